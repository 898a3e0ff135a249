"""What a clamped loss reads without its options, and 1/T in front of it, judged by enumeration."""

from __future__ import annotations

import re

import numpy as np
import pytest

import klsym
from support.losses.loss_judge import complaints
from support.losses.loss_worlds import flat, forest, options, settings
from support.losses.random_losses import Case
from support.oracle.losses import Setting

OFF, ON = "off-policy", "on-policy"
MEAN = {"aggregate": "mean"}
SEQUENCE, TOKEN = {"level": "sequence"}, {"level": "token"}
CASES = [
    ("abs(k1)", ON, "loss", {**SEQUENCE, **MEAN}),
    ("abs(k1)", OFF, "loss", {**SEQUENCE, **MEAN}),
    ("abs(k1)", OFF, "reward", {**SEQUENCE, **MEAN}),
    ("log(1 + r)", ON, "loss", {**SEQUENCE, **MEAN}),
    ("clip(k1, -0.3, 0.3)", ON, "loss", {**TOKEN, **MEAN}),
    ("clip(rho, 0.8, 1.2)*A", ON, "loss", {**TOKEN, **MEAN}),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", ON, "loss", {**TOKEN, **MEAN}),
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", OFF, "loss", {**TOKEN, **MEAN}),
    ("max(k1, -r)", ON, "loss", {**TOKEN, **MEAN}),
    ("clip(k1, -0.3, 0.3)", OFF, "reward", {**TOKEN, **MEAN, "credit": "same-token"}),
    ("clip(rho, 0.8, 1.2)*A", OFF, "loss", {**TOKEN, **MEAN, "weights": "prefix"}),
    ("clip(k1, -0.3, 0.3)", ON, "loss", {"batch": "mean"}),
    ("clip(k1, -0.3, 0.3)", OFF, "loss", {"batch": "leave-one-out"}),
    ("abs(k1)*A", OFF, "reward", {"batch": "mean"}),
    ("abs(k1)", ON, "loss", {**SEQUENCE, **MEAN, "batch": "mean"}),
]


@pytest.mark.parametrize(("loss", "sampling", "use", "given"), CASES)
def test_the_expansion_is_the_loss(loss: str, sampling: str, use: str, given: dict[str, str]) -> None:
    """Both have one expected gradient in every world."""
    case = Case(loss, sampling, use, ring=False, **{"level": "sample", **given})
    verdict = klsym.explain(loss, **options(case))
    text = verdict.expansion
    assert text is not None
    assert text.endswith("/T") or "batch" in given
    where = forest(case)
    for one in settings(case):
        plain = Setting(one.sampling, one.use, one.level, n=one.n, credit=one.credit)
        exact, read = (flat(where.field(x, y).a, where) for x, y in ((loss, one), (text, plain)))
        assert np.abs(exact - read).max() < 1e-9
    assert not complaints(case, verdict)


@pytest.mark.parametrize(("loss", "sampling"), [("abs(k1)", ON), ("abs(k1)", OFF), ("min(k1, 2)", ON)])
def test_the_statement_has_1_over_T_in_front(loss: str, sampling: str) -> None:
    """In the first line of the derivation, and in what the counterexample refutes."""
    verdict = klsym.explain(loss, sampling=sampling, level="sequence", aggregate="mean")
    assert re.fullmatch(rf"E_\w+\[grad\({re.escape(loss)}/T\)\]", verdict.steps[0][1])
    assert verdict.witness is not None and f"({loss}/T)" in verdict.witness["refutes"]
    assert r"{T}" in verdict.steps[0][2] or "/T" in verdict.steps[0][2]


@pytest.mark.parametrize("given", [{}, TOKEN, SEQUENCE, {"sampling": OFF}])
def test_without_options_nothing_is_read(given: dict[str, str]) -> None:
    assert klsym.explain("abs(k1)", **given).expansion is None
