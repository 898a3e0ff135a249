"""Ring elements on arrays: mpmath reads the terms in 40 digits, and formulas written out by hand."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.study.sampling.evaluate import Variables

K1, W, LOG_Q, LAM = (ExpPoly.from_variable(name) for name in ("k1", "w", "log_q", "lam"))
X = {
    "k1": np.array([0.0, 1.25, -0.75, 2.5]),
    "w": np.array([0.5, -1.0, 0.0, 1.5]),
    "log_q": np.array([-1.0, -0.25, -3.0, -2.0]),
}
NUMBERS = {"lam": -0.7}


def lookup(name: str) -> Any:
    return NUMBERS[name] if name in NUMBERS else X[name]


def ring(element: ExpPoly) -> Any:
    return Variables(np, lookup).evaluate_element(element)


# ---------------------------------------------------------------------------- by hand
k, w, lam = X["k1"], X["w"], NUMBERS["lam"]
BY_HAND = [
    (K1 * 0, 0.0),
    (ExpPoly.from_number(Fraction(-3, 7)), -3 / 7),
    ((W - K1 * 2).exp() * K1**3, np.exp(w - 2 * k) * k**3),
    ((K1 * K1 * Fraction(-1, 4)).exp() * W, np.exp(-(k**2) / 4) * w),
    (LAM.exp() * LAM**3 - 1, math.exp(lam) * lam**3 - 1),
]


@pytest.mark.parametrize(("element", "expected"), BY_HAND, ids=lambda value: str(value)[:30])
def test_by_hand(element: ExpPoly, expected: Any) -> None:
    """What holds parameters alone stays a number."""
    found = ring(element)
    assert np.shape(found) == np.shape(expected) and isinstance(found, float) == isinstance(expected, float)
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-300)


# ---------------------------------------------------------------------------- mpmath
def random_element(rng: random.Random) -> ExpPoly:
    """Up to six terms that share monomials and exponents."""
    variables = [K1, W, LOG_Q, LAM]
    exponents = [(variable * Fraction(rng.randint(-4, 4), 3)) for variable in variables]
    total = ExpPoly({})
    for _ in range(rng.randint(1, 6)):
        term = ExpPoly.from_number(Fraction(rng.randint(-9, 9), rng.randint(1, 7)))
        for variable in rng.choices(variables, k=rng.randint(0, 3)):
            term = term * variable
        for exponent in rng.choices(exponents, k=rng.randint(0, 2)):
            term = term * exponent.exp()
        total = total + term * (LAM ** rng.choice([-1, 0, 2]))
    return total


def in_digits(element: ExpPoly, i: int) -> tuple[Any, Any]:
    """The element and the sum of the sizes of its terms at sample i, in 40 digits."""

    def power(monomial: Any) -> Any:
        values = (NUMBERS[name] if name in NUMBERS else X[name][i] for name, _ in monomial)
        return mpmath.fprod(mpmath.mpf(float(v)) ** p for v, (_, p) in zip(values, monomial, strict=True))

    def number(value: Any) -> Any:
        return mpmath.mpf(Fraction(value).numerator) / Fraction(value).denominator

    with mpmath.workdps(40):
        terms = [
            number(value)
            * power(monomial)
            * mpmath.exp(mpmath.fsum(number(v) * power(m) for m, v in exponent))
            for (monomial, exponent), value in element.terms.items()
        ]
        return mpmath.fsum(terms), mpmath.fsum(abs(term) for term in terms)


@pytest.mark.parametrize("seed", range(40))
def test_random_elements(seed: int) -> None:
    element = random_element(random.Random(seed))
    variables = Variables(np, lookup)
    found, size = (
        np.broadcast_to(row, 4)
        for row in (variables.evaluate_element(element), variables.evaluate_size(element))
    )
    for i in range(4):
        value, scale = in_digits(element, i)
        assert abs(found[i] - value) <= 4e-15 * scale + 1e-300
        assert size[i] == pytest.approx(float(scale), rel=1e-13)


# ---------------------------------------------------------------------------- sharing and refusals
def test_each_variable_and_exponential_is_computed_once() -> None:
    asked = Counter[str]()
    exponentials = 0

    class Counting:
        @staticmethod
        def exp(x: Any) -> Any:
            nonlocal exponentials
            exponentials += 1
            return np.exp(x)

    def counted(name: str) -> Any:
        asked[name] += 1
        return lookup(name)

    variables = Variables(Counting, counted)
    for element in ((-K1).exp() * K1 + W, (-K1).exp() * 3 - 1, (-K1).exp() * W * W):
        variables.evaluate_element(element)
    assert asked == {"k1": 1, "w": 1} and exponentials == 1


@pytest.mark.parametrize(
    ("element", "numbers", "reason"),
    [
        (LAM**-1, {"lam": 0.0}, "division by lam, which is zero"),
        (K1 * LAM**-2, {"lam": 0.0}, "division by lam"),
        ((K1 * LAM**-1).exp(), {"lam": 0.0}, "division by lam"),
        (LAM.exp() * K1, {"lam": 1e3}, "beyond the range of floats"),
        (LAM**3, {"lam": 1e200}, "beyond the range of floats"),
        (K1 * 10**400, {}, "beyond the range of floats"),
    ],
)
def test_refusals(element: ExpPoly, numbers: dict[str, float], reason: str) -> None:
    variables = Variables(np, lambda name: numbers[name] if name in numbers else X[name])
    with pytest.raises(UsageError, match=reason):
        variables.evaluate_element(element)
