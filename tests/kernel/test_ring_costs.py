"""What work in the ring costs, and what a budget refuses."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import prod
from typing import Any

import pytest

from klsym.errors import Refused
from klsym.kernel.ring import (
    MAX_BITS,
    MAX_DIGITS,
    ONE,
    ZERO,
    ExpPoly,
    charge,
    count_bits,
    read_number,
    set_budget,
)

x, y, z = (ExpPoly.from_variable(name) for name in "xyz")


def cost(work: Callable[[], Any]) -> int:
    """The smallest budget that is enough."""

    def enough(units: int) -> bool:
        try:
            with set_budget(units):
                work()
        except Refused as error:
            assert "the budget of work for one certificate is spent" in str(error)
            return False
        return True

    low, high = -1, 1
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def powers(name: str, count: int) -> ExpPoly:
    return ExpPoly({(((name, i + 1),), ()): 1 for i in range(count)})


SUM, LONG = powers("x", 40), ExpPoly.from_number(3**4000)
DEAR = ExpPoly({((), tuple(((("x", i + 1),), 1) for i in range(40))): 1})  # one term, 40 in its exponent
APART = sum((x**i * Fraction(1, 2**200 + 2 * i + 1) for i in range(20)), ZERO)  # sums have long denominators
WIDE = ExpPoly({(tuple((f"x{i:02}", 1) for i in range(64)), ()): 1})  # one term in 64 variables


@pytest.mark.parametrize(
    ("work", "least", "most"),
    [
        (lambda: charge(0), 0, 0),
        (lambda: charge(7), 7, 7),
        (lambda: [charge(3), charge(4)], 7, 7),
        (lambda: SUM + powers("y", 40), 20, 80),
        (lambda: SUM - powers("y", 40), 20, 80),
        (lambda: SUM + ZERO, 0, 0),
        (lambda: SUM * ONE, 0, 0),
        (lambda: ONE * SUM, 0, 0),
        (lambda: SUM * x, 40, 100),
        (lambda: SUM * powers("y", 40), 1600, 4000),
        (lambda: DEAR * x, 40, 100),
        (lambda: DEAR * SUM, 1600, 4000),
        (lambda: WIDE * x, 4, 80),
        (lambda: WIDE.exp() * x, 4, 80),
        (lambda: LONG * x, 100, 4000),
        (lambda: LONG.invert() * x, 100, 4000),
        (lambda: LONG.exp() * x, 100, 4000),
        (lambda: LONG * LONG, 500, 10**7),
        (lambda: APART * APART, 10**4, 10**6),
        (lambda: (x + 1) ** 2, 4, 8),
        (lambda: SUM.derive(lambda name: ZERO), 40, 40),
        (lambda: DEAR.derive(lambda name: ZERO), 41, 41),
    ],
)
def test_work_costs_about_what_it_takes(work, least, most):
    assert least <= cost(work) <= most


def test_a_budget_holds_within_its_block_alone():
    charge(10**12)
    with set_budget(5):
        with set_budget(100):
            charge(50)
        charge(5)
        with pytest.raises(Refused, match="budget"):
            charge(1)
    with pytest.raises(ValueError, match="inner"), set_budget(1):
        raise ValueError("inner")
    charge(10**12)


def test_what_a_factor_costs():
    """A monomial of eight names counts twice; numbers beyond 256 bits count by their length squared."""
    names = [prod(ExpPoly.from_variable(f"b{i}") for i in range(n)) for n in (1, 7, 8, 15, 16)]
    assert [a.measure_work() for a in names] == [(1, 0), (1, 0), (2, 0), (2, 0), (3, 0)]
    numbers = [x * 2**bits for bits in (254, 255, 511, 767)]
    assert [a.measure_work() for a in numbers] == [(1, 0), (1, 1), (1, 4), (1, 9)]
    assert ((x + y).exp() * z + 1).measure_work() == (4, 0) and (x * 2**255).exp().measure_work() == (2, 1)


def test_numbers_too_long_to_print_are_refused():
    with pytest.raises(Refused, match="a number of more than 4000 digits"):
        read_number("1/" + "1" * 4000)
    longest = ExpPoly.from_number(2 ** (MAX_BITS - 1))
    longer = longest + longest
    with set_budget(10**9):
        assert longest * x
        for number in (longer, longer.exp()):
            with pytest.raises(Refused, match="a number of more than 4000 digits"):
                number * (x + 1)
        assert longest.invert()
    with pytest.raises(Refused, match="a number of more than 4000 digits"):
        longer.invert()
    assert [count_bits(v) for v in (1, -4, Fraction(1, 4), Fraction(-9, 2))] == [1, 3, 3, 4]


def test_sums_are_sized_within_a_budget_alone():
    long = ExpPoly.from_number(10**MAX_DIGITS)
    assert long + ExpPoly.from_variable("x") - long == ExpPoly.from_variable("x")
    with set_budget(10**9), pytest.raises(Refused, match="digits"):
        long + ExpPoly.from_variable("x")
