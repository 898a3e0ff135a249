"""Distillation on the top k words: code that selects them is read, values that are handed over are not."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from klsym.api import explain
from klsym.confirmed.both import audit
from klsym.errors import UsageError
from klsym.language.pasted.asked_names import suggest_for_top_words
from support.commands import Out, run

HEADER = "import torch\n\ndef loss(student_logits, teacher_logits, k=2):\n"
SELECT = """\
    t, where = torch.topk(teacher_logits.log_softmax(-1), k, dim=-1)
    s = student_logits.log_softmax(-1).gather(-1, where)
"""
HANDED = """\
def loss(student_topk_logps, teacher_topk_logps):
    return (student_topk_logps.exp() * (student_topk_logps - teacher_topk_logps)).sum(-1).mean()
"""


@pytest.mark.parametrize(
    ("ends", "formula"),
    [
        ("    return (t.exp() * (t - s)).sum(-1).mean()\n", "full(-M*k1*r)"),
        ("    return (s.exp() * (s - t)).sum(-1).mean()\n", "full(M*k1)"),
    ],
)
def test_a_sum_over_the_top_words_of_the_teacher_has_a_verdict(
    ends: str, formula: str, tmp_path: Path
) -> None:
    """Also where k is less than the words of the worlds on which it is measured."""
    pytest.importorskip("torch")
    (tmp_path / "loss.py").write_text(HEADER + SELECT + ends)
    found = audit(f"{tmp_path / 'loss.py'}:loss")
    assert found.read is not None and found.measured is not None
    assert found.read.expression == formula and found.read.verdict.trust == "kernel"
    assert not found.measured.has_objective and found.target == "no-objective"


def test_the_whole_vocabulary_is_still_compared_with_the_gradient_that_is_printed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    body = "    s, t = student_logits.log_softmax(-1), teacher_logits.log_softmax(-1)\n"
    (tmp_path / "loss.py").write_text(HEADER + body + "    return (s.exp() * (s - t)).sum(-1).mean()\n")
    found = audit(f"{tmp_path / 'loss.py'}:loss")
    assert found.agreements and all(one.gap < 1e-6 for one in found.agreements.values())


def test_values_of_the_top_words_are_refused_with_commands_that_have_an_answer(
    tmp_path: Path, capsys: Out
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "loss.py").write_text(HANDED)
    code, out, err = run(capsys, "audit", str(tmp_path / "loss.py"))
    assert (code, out) == (2, "") and err.count("\n") == 1
    said = "of the top k words: for their sum type klsym explain 'full(M*k1)' --level token"
    assert said in err and "'full(M*r*log(r))' (forward)" in err
    for formula in ("full(M*k1)", "full(M*r*log(r))"):
        code, out, _ = run(capsys, *shlex.split(f"explain '{formula}' --level token"))
        assert code == 0 and "of each next token" in out


def test_a_pasted_line_of_the_top_words_has_the_same_hint_once() -> None:
    line = "(student_topk_logp.exp() * (student_topk_logp - teacher_topk_logp)).sum(-1)"
    with pytest.raises(UsageError) as refused:
        explain(line)
    assert str(refused.value).count("of the top k words") == 1


@pytest.mark.parametrize("name", ["topk", "stop_logps", "top_reward", "teacher_logps", "k"])
def test_other_names_are_not_of_the_top_words(name: str) -> None:
    assert suggest_for_top_words(name) == ""
