"""Dual numbers over enclosures, and over dual numbers: f(x + a t + b s) has f' a at t and f'' a b at s t."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest

from klsym.errors import KlsymError
from klsym.kernel.intervals import Interval
from klsym.numeric.number_systems import EXACT
from klsym.worlds.numbers import (
    DIGITS,
    ENCLOSURES,
    FLOATS,
    MAX_EXPONENT,
    Dual,
    System,
    Tie,
    build_duals,
    find_system,
)

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


# ---------------------------------------------------------------------------- systems
SYSTEMS = {"floats": FLOATS, "digits": DIGITS, "enclosures": ENCLOSURES}


def as_float(x: Any) -> float:
    return float((x.lower + x.upper) / 2) if isinstance(x, Interval) else float(x)


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_functions_are_those_of_the_standard_library(system: System) -> None:
    x, y = (system.lift(Fraction(number)) for number in ("5/7", "-3/2"))
    near = partial(pytest.approx, rel=1e-13)
    assert as_float(system.exp(y)) == near(math.exp(-1.5))
    assert as_float(system.log(x)) == near(math.log(5 / 7))
    assert as_float(system.sqrt(x)) == near(math.sqrt(5 / 7))
    assert as_float(system.raise_to(x, y)) == near((5 / 7) ** -1.5)
    assert as_float(system.divide(x, y)) == near(-10 / 21)
    assert as_float(system.add([x, y, x])) == near(10 / 7 - 1.5)
    assert as_float(system.multiply([x, y, x])) == near(-(25 / 49) * 1.5)
    assert [system.sign(number) for number in (x, y, system.lift(0))] == [1, -1, 0]
    with pytest.raises((ValueError, KlsymError)):
        system.log(y)


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_slopes_are_difference_quotients(system: System) -> None:
    """f(x + h, y + 2 h) less f(x - h, y - 2 h), over 2 h, of each function of a system."""
    functions = {
        "exp": lambda s, x, y: s.exp(y), "log": lambda s, x, y: s.log(x), "sqrt": lambda s, x, y: s.sqrt(x),
        "power": lambda s, x, y: s.raise_to(x, y), "quotient": lambda s, x, y: s.divide(y, x),
        "product": lambda s, x, y: s.multiply([x, y, y]), "sum": lambda s, x, y: s.add([x, y, y]),
    }  # fmt: skip
    for name, function in functions.items():
        x, y = (Dual(system.lift(value), system.lift(slope)) for value, slope in ((0.75, 1), (-1.5, 2)))
        found = as_float(function(build_duals(system), x, y).slope)
        h = 1e-5
        ends = [function(FLOATS, 0.75 + t, -1.5 + 2 * t) for t in (-h, h)]
        assert found == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-8), name


def test_second_derivatives_of_nested_numbers() -> None:
    """d^2 x^y / ds dt at x = 2 + t, y = 3 + s is x^(y-1) (1 + y log x)."""
    system = build_duals(build_duals(FLOATS))
    x, y = Dual(Dual(2.0, 1.0), Dual(0.0, 0.0)), Dual(Dual(3.0, 0.0), Dual(1.0, 0.0))
    assert system.raise_to(x, y).slope.slope == pytest.approx(4 * (1 + 3 * math.log(2)))
    assert find_system(x) is system


@pytest.mark.parametrize("inner", [FLOATS, DIGITS, ENCLOSURES, build_duals(FLOATS)], ids=[*SYSTEMS, "duals"])
def test_a_sign_that_changes_nearby_is_refused(inner: System) -> None:
    system = build_duals(inner)
    with mpmath.workdps(50):
        assert system.sign(system.lift(0)) == 0 and system.sign(system.lift(-2)) == -1
        with pytest.raises(Tie):
            system.sign(Dual(inner.lift(0), inner.lift(1)))


def test_an_enclosure_that_contains_0_has_no_sign() -> None:
    with pytest.raises(Tie):
        ENCLOSURES.sign(Interval(Fraction(-1), Fraction(1)))


def test_what_only_rounding_leaves_is_0() -> None:
    assert FLOATS.cancel([0.1, 0.2, -0.3]) == 0.0 != 0.1 + 0.2 - 0.3
    with mpmath.workdps(50):
        third = mpmath.mpf(1) / 3
        assert DIGITS.cancel([third**2, -mpmath.mpf(1) / 9, mpmath.mpf(10) ** -49]) == 0
        assert DIGITS.cancel([third, mpmath.mpf(10) ** -25, -third]) != 0


def test_a_number_has_a_largest_exponential() -> None:
    """exp(x) takes as many bits as x has: values of a tower of them are not asked for."""
    large = DIGITS.exp(DIGITS.exp(DIGITS.exp(mpmath.mpf(2))))  # exp(1618)
    assert large > MAX_EXPONENT
    for x in (large, -large):
        with pytest.raises(OverflowError):
            DIGITS.exp(x)
