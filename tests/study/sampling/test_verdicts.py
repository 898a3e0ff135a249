"""The verdicts of a verification: one text whatever is drawn, and another one when something disagrees."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from klsym.api import explain
from klsym.study.ledger.registry import Claim
from klsym.study.ledger.settle_claim import recall, settle
from klsym.study.sampling.backends import choose_backend
from klsym.study.sampling.identities import Options
from klsym.study.sampling.streams import Stream
from klsym.study.sampling.verdict_lines import describe_verdict, list_verdict_lines
from klsym.study.sampling.verify import Report, verify

CLAIMS = ("gradient.k3-loss", "gradient.k3-loss-not-reverse", "gradient.straight-through")
DRAWN = 200_000


def verified(on: str = "numpy") -> Report:
    return verify([recall(name) for name in CLAIMS], Options(choose_backend(on, "cpu"), drawn=DRAWN))


def test_a_line_for_each_identity_and_the_summary():
    report = verified()
    lines = list_verdict_lines(report)
    assert report.passed and lines[-1] == f"all {len(report.checked)} identities agree"
    assert re.fullmatch(
        r"gradient\.k3-loss +exact oracle agrees; 4 trials agree, 4 controls rejected, "
        r"sees \de-\d\d on finite models, \de-\d\d on Gaussians",
        lines[0],
    )
    assert [line.endswith("not sampled") for line in lines[:4]] == [False, False, True, False]
    assert "on Gaussians" not in lines[1]


def test_other_numbers_give_the_same_text(monkeypatch):
    """As on a GPU, which has generators of its own."""
    first, generator = verified(), Stream.build_generator
    monkeypatch.setattr(Stream, "build_generator", lambda self: generator(self.derive_child(99)))
    second = verified()
    pairs = list(zip(first.outcomes, second.outcomes, strict=True))
    assert all(a.z != b.z for a, b in pairs if np.isfinite(a.z)) and all(a.sees == b.sees for a, b in pairs)
    assert list_verdict_lines(first) == list_verdict_lines(second)


def test_another_backend_gives_the_same_text():
    pytest.importorskip("torch")
    assert list_verdict_lines(verified("torch")) == list_verdict_lines(verified())


def test_a_typed_loss_is_verified_on_another_backend():
    """Its proofs carry the text; autograd needs the expression."""
    pytest.importorskip("torch")
    typed = explain("k2 - sg(k2) + sg(k3)")
    settled = settle(Claim("mine", "proved", "here", "", lambda: typed.proof.theorems))
    reports = [
        verify([settled], Options(choose_backend(on, "cpu"), drawn=DRAWN)) for on in ("numpy", "torch")
    ]
    assert all(report.passed for report in reports) and reports[1].checked[0].autograd is not None
    assert list_verdict_lines(reports[0]) == list_verdict_lines(reports[1])


def test_what_disagrees_is_said():
    one = verified().checked[0]
    assert "DISAGREES" in describe_verdict(replace(one, exact=(False, "difference 1")))
    worse = [replace(outcome, holds=False) for outcome in one.outcomes]
    assert not any(outcome.passed for outcome in worse)
    assert "ONLY 0 of 4 trials agree" in describe_verdict(replace(one, finite=worse, gaussian="not sampled"))
    assert (
        describe_verdict(replace(one, finite="none", gaussian="none")) == "exact oracle agrees; not sampled"
    )
