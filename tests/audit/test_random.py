"""Random PyTorch functions: the audit says what `explain` says of the loss that they are the code of."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from support.audits.audit_judge import judge
from support.audits.random_audits import random_audit

SEEDS = [*range(4), 227]  # 227: an indicator beside a weight of e^60


def test_audits_of_random_code_agree_with_explain(tmp_path):
    """No disagreement; benchmarks/random_audits.py has a thousand of them and the share of refusals."""
    told = {seed: judge(seed, tmp_path) for seed in SEEDS}
    assert {seed: words for seed, (kind, words) in told.items() if kind != "agrees"} == {}


def test_the_functions_are_of_many_kinds():
    sources = [random_audit(seed)[0] for seed in range(400)]
    for word in (
        ".detach()",
        "no_grad",
        "clamp",
        "torch.where",
        "expm1",
        "-=",
        "helper(",
        "scale=0.5",
        ".data",
    ):
        assert sum(word in source.partition("def f(")[2] for source in sources) > 3, word


def test_a_wrong_loss_is_told_apart(tmp_path, monkeypatch):
    """The judge sees a loss that the code is not the code of."""
    from support.audits import audit_judge

    source, loss, sampling = random_audit(1)
    for wrong in (f"k1 + {loss}", f"2*({loss})", f"sg({loss})"):
        with monkeypatch.context() as changed:
            changed.setattr(audit_judge, "random_audit", lambda seed, w=wrong: (source, w, sampling))
            assert audit_judge.judge(1, tmp_path)[0] == "differs"
