"""Dual numbers over enclosures, and over dual numbers: f(x + a t + b s) has f' a at t and f'' a b at s t."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from klsym.kernel.intervals import Interval
from klsym.numeric.dual import Dual
from klsym.numeric.number_systems import EXACT

FUNCTIONS = [  # f, f', f''
    (lambda x: x * x * x - 2 * x, lambda x: 3 * x**2 - 2, lambda x: 6 * x),
    (lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3),
    (
        lambda x: (3 - x) / (x + 1) ** 2,
        lambda x: (x - 7) / (x + 1) ** 3,
        lambda x: (22 - 2 * x) / (x + 1) ** 4,
    ),
    (lambda x: x**-3, lambda x: -3 / x**4, lambda x: 12 / x**5),
    (np.exp, np.exp, np.exp),
    (np.log, lambda x: 1 / x, lambda x: -1 / x**2),
    (lambda x: x**0, lambda x: 0, lambda x: 0),
]
POINT = Fraction(5, 7)


def near(found: Interval, expected: float) -> bool:
    return (
        float(found.lower) == pytest.approx(expected, rel=1e-13) and float(found.upper - found.lower) < 1e-20
    )


@pytest.mark.parametrize(("function", "first", "second"), FUNCTIONS)
def test_derivatives(function, first, second):
    value, x = float(function(np.array([5 / 7]))[0]), 5 / 7
    once = function(np.array([Dual.from_numbers(POINT, 1)]))[0]
    assert near(once.value, value) and near(once.slope, float(first(x)))
    twice = function(np.array([Dual(Dual.from_numbers(POINT, 3), Dual.from_numbers(2))]))[0]
    assert near(twice.value.value, value) and near(twice.value.slope, 3 * float(first(x)))
    assert near(twice.slope.value, 2 * float(first(x))) and near(twice.slope.slope, 6 * float(second(x)))


def test_kinds_mix_upwards_and_floats_are_refused():
    x = Dual(Dual.from_numbers(2, 1), Dual.from_numbers(1))
    for product in (
        (1 + Dual.from_numbers(3, 1) * x) * Fraction(1, 2),
        (x * Dual.from_numbers(3, 1) + 1) * Fraction(1, 2),
    ):
        assert product.slope.slope == Interval.from_number(Fraction(1, 2))
    for number in (Dual.from_numbers(1), x):
        with pytest.raises(TypeError):
            number + 0.5
    with pytest.raises(TypeError):
        EXACT.step * 1j
