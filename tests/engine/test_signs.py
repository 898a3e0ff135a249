"""What is nowhere negative, and the factors of a difference of squares."""

from __future__ import annotations

import pytest
from hypothesis import given

from klsym.engine.regions.positivity import find_positive_sum, split_difference_of_squares
from klsym.kernel.ring import ZERO
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from klsym.render.questions.compare import region
from support.compare_models import MODELS, coefficients, inside, points
from support.float_sheet import evaluate

POSITIVE = ["k1**2", "k3", "2*k3 + 1", "rho*k3", "r**2 - 1 + 2*k1", "k1**2 + k1 + 1", "1/r - 1 - k1",
            "rho - 1 - log(rho)", "r*k1**4 + 3", "k3 + 2*(rho - 1 - log(rho)) + k1**2",
            "rho**2*(4*k1**2 + 4*k1 + 1)"]  # fmt: skip
NEITHER = ["k1", "1 - k1**2", "2*k1 + 1", "-k3", "k1**2 + 3*k1 + 2", "r - 1", "k3 - 1", "R*k1", "R", "beta",
           "k1 - r + 1", "k3 - k1**2/2", "r - 1 + 2*k1", "k1**3 + 1"]  # fmt: skip


@pytest.mark.parametrize("text", POSITIVE)
def test_a_positive_sum_is_that_sum(text: str) -> None:
    element = to_ring(parse(text))
    rows = find_positive_sum(element)
    assert rows is not None
    total = ZERO
    for row in rows.squares:
        assert row["scale"] > 0
        total = total + to_ring(row["scale"]) * to_ring(row["v"]).exp() * to_ring(row["b"]) ** 2
    for row in rows.tangents:
        u = to_ring(row["u"])
        assert row["scale"] > 0
        total = total + to_ring(row["scale"]) * to_ring(row["v"]).exp() * (u.exp() - 1 - u)
    assert total == element


@pytest.mark.parametrize("text", NEITHER)
def test_what_takes_both_signs_is_no_positive_sum(text: str) -> None:
    assert find_positive_sum(to_ring(parse(text))) is None


@given(coefficients(), coefficients())
def test_a_difference_of_squares_keeps_its_value(a: str, b: str) -> None:
    """And whatever is found about it holds at sample points."""
    a, b = (text.replace("sg(k1)", "k1") for text in (a, b))  # coefficients hold no sg
    x, y = to_ring(parse(a)), to_ring(parse(b))
    split = split_difference_of_squares(x, y)
    assert split.unit * split.root**2 * split.remainder * split.scale == x * x - y * y
    assert split.scale > 0 and len(split.unit.terms) == 1
    shown = region(*split.displayed_factors)
    for model in MODELS[:6]:
        for _, _, at in points(model, "off-policy"):
            gap = evaluate(a, at) ** 2 - evaluate(b, at) ** 2
            if abs(gap) > 1e-6:
                assert inside(shown, at) == (gap > 0), shown
