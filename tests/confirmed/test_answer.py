"""`klsym.audit` in Python: read and measured, measured alone, or an error in one line."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import klsym
from klsym.audit.terms import Disagreement
from klsym.confirmed import answer

FILE = "tests/support/audits/measured.py"
ANSWERS: list[tuple[str, dict[str, Any], str | None, bool, tuple[str, ...], tuple[str, ...]]] = [
    # name, options, target, is it read, what it meets, what it does not
    ("weighted_k1", {}, "own-mean", True, ("next-token-reverse-kl",), ("forward-kl", "zero")),
    ("mean_k3", {}, "no-objective", True, ("no-objective",), ("reverse-kl",)),
    ("kl_reward", {"use": "reward"}, "reverse-kl", True, ("reverse-kl",), ("zero",)),
    ("reward_through_cumsum", {}, "reverse-kl", False, ("reverse-kl",), ("forward-kl", "no-objective")),
    ("through_cumsum", {"sampling": "off-policy"}, "E_mu[k2]", False, (), ("reverse-kl", "zero")),
    ("sorted_tokens", {}, "no-objective", False, ("no-objective",), ("reverse-kl", "zero")),
]


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case[0])
def test_an_answer_has_a_target_that_it_meets(case: Any) -> None:
    name, options, target, is_read, met, missed = case
    found = klsym.audit(f"{FILE}:{name}", **options)
    assert (found.target, found.read is not None) == (target, is_read)
    assert all(map(found.meets, met)) and not any(map(found.meets, missed))
    assert ("not read" in str(found)) is not is_read
    assert found._repr_html_().startswith("<p>" if is_read else "<div class")


def test_what_can_neither_be_read_nor_run_is_an_error() -> None:
    def broken(logp: Any, ref_logp: Any) -> Any:
        raise RuntimeError("no model")

    with pytest.raises(klsym.UsageError, match="no model"):
        klsym.audit(broken)


def test_a_formula_that_is_not_the_code_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "GAP", -1.0)
    with pytest.raises(Disagreement, match="is not the one that the"):
        klsym.audit(f"{FILE}:mean_k3")
