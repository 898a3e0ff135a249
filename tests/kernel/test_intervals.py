"""Enclosures of log and exp against mpmath: at 60 digits, and at 4 to 8 bits or 1 to 3 digits, where each
rounding counts.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klsym.errors import Refused
from klsym.kernel import intervals
from klsym.kernel.intervals import (
    LARGEST_EXPONENT,
    LONGEST,
    Interval,
    enclose_exp,
    enclose_exp_of_interval,
    enclose_log,
    raise_to_power,
    weigh_number,
)
from klsym.kernel.ring import set_budget
from support.scale import scaled

CHECK = settings(derandomize=True, database=None, deadline=None, max_examples=scaled(60, 20))
DIGITS = 60
WIDTH = Fraction(1, 2**80)  # enclosures are documented as about 2**-90 wide
INTEGERS = st.one_of(st.integers(1, 50), st.integers(1, 10**30))
POSITIVE = st.builds(Fraction, INTEGERS, INTEGERS)
SMALL = st.builds(Fraction, st.integers(-300, 300), st.integers(1, 40))
ANY = st.builds(Fraction, st.integers(-(10**6), 10**6), st.integers(1, 10**4))


def exact(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / mpmath.mpf(value.denominator)


def holds(interval: Interval, value: mpmath.mpf) -> bool:
    """lower <= value <= upper, up to the error of the reference itself."""
    slack = mpmath.mpf(10) ** (5 - DIGITS) * (1 + abs(value))
    return exact(interval.lower) - slack <= value <= exact(interval.upper) + slack


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(DIGITS):
        yield


@CHECK
@given(POSITIVE)
def test_log(x):
    interval = enclose_log(x)
    with mpmath.workdps(DIGITS):
        assert holds(interval, mpmath.log(exact(x)))
    assert 0 <= interval.upper - interval.lower < WIDTH


@CHECK
@given(SMALL)
def test_exp(x):
    interval = enclose_exp(x)
    with mpmath.workdps(DIGITS + 150):
        assert exact(interval.lower) <= mpmath.exp(exact(x)) <= exact(interval.upper)
    assert interval.upper - interval.lower < WIDTH * max(1, interval.upper) * 2**12


def test_the_reference_would_notice():
    narrow = enclose_log(Fraction(2))
    shifted = Interval(narrow.lower + 2 * WIDTH, narrow.upper + 2 * WIDTH)
    assert holds(narrow, mpmath.log(2)) and not holds(shifted, mpmath.log(2))


@CHECK
@given(POSITIVE, POSITIVE)
def test_log_is_increasing(x, y):
    if x < y:
        assert enclose_log(x).lower <= enclose_log(y).upper
        assert y - x < Fraction(1, 10**12) * y or enclose_log(x).upper < enclose_log(y).lower


@CHECK
@given(SMALL, SMALL)
def test_exp_is_increasing(x, y):
    if x < y and abs(x) < 30 and abs(y) < 30:
        assert enclose_exp(x).upper < enclose_exp(y).lower


@CHECK
@given(SMALL, SMALL)
def test_exp_of_an_interval(x, y):
    low, high = sorted((x, y))
    interval = enclose_exp_of_interval(Interval(low, high))
    assert interval.lower <= enclose_exp((low + high) / 2).lower
    assert interval.upper >= enclose_exp((low + high) / 2).upper


@pytest.mark.parametrize("x", [Fraction(4, 3), Fraction(2, 3), Fraction(4, 3) + WIDTH, Fraction(1, 3)])
def test_log_where_the_reduction_changes(x):
    assert holds(enclose_log(x), mpmath.log(exact(x)))
    assert holds(enclose_log(1 / x), -mpmath.log(exact(x)))


def test_exact_values():
    assert enclose_log(Fraction(1)) == Interval.from_number(0)
    one = enclose_exp(Fraction(0))
    assert one.lower <= 1 <= one.upper and one.upper - one.lower < WIDTH


@pytest.mark.parametrize("power", [1, 100, 2000])
def test_log_of_extreme_arguments(power):
    for x in (Fraction(10) ** power, Fraction(1, 10**power), 1 + Fraction(1, 10**power)):
        with mpmath.workdps(DIGITS + power):
            assert holds(enclose_log(x), mpmath.log(exact(x)))


@pytest.mark.parametrize("x", [Fraction(LARGEST_EXPONENT), Fraction(-LARGEST_EXPONENT), Fraction(1, 10**40)])
def test_exp_of_extreme_arguments(x):
    interval = enclose_exp(x)
    with mpmath.workdps(2000):
        assert exact(interval.lower) <= mpmath.exp(exact(x)) <= exact(interval.upper)
    assert interval.upper < interval.lower * (1 + 256 * WIDTH) or x < 0


def test_refusals():
    for x in (Fraction(0), Fraction(-1, 3)):
        with pytest.raises(Refused, match="log of"):
            enclose_log(x)
    for x in (Fraction(LARGEST_EXPONENT + 1), Fraction(-LARGEST_EXPONENT * 2 - 1, 2)):
        with pytest.raises(Refused, match="an exponent beyond"):
            enclose_exp(x)
    for ends in ((-1, 1), (0, 1), (-1, 0), (0, 0)):
        with pytest.raises(Refused, match="contains zero"):
            Interval(Fraction(ends[0]), Fraction(ends[1])) ** -1


# ---------------------------------------------------------------------------- interval arithmetic
@st.composite
def enclosed(draw):
    ends = sorted((draw(ANY), draw(ANY)))
    inside = draw(st.fractions(0, 1, max_denominator=7))
    return Interval(*ends), ends[0] + inside * (ends[1] - ends[0])


@CHECK
@given(enclosed(), enclosed(), st.integers(-3, 5))
def test_operations_contain_the_results_of_points(first, second, power):
    (a, x), (b, y) = first, second
    for interval, value in ((a + b, x + y), (a * b, x * y), (a.round_outwards(), x)):
        assert interval.lower <= value <= interval.upper
    if power >= 0 or a.lower > 0 or a.upper < 0:
        assert (a**power).lower <= x**power <= (a**power).upper


def test_operations_are_tight():
    a = Interval(Fraction(-2), Fraction(3))
    assert a * a == Interval(Fraction(-6), Fraction(9))
    assert a**2 == Interval(Fraction(0), Fraction(9))
    assert a**3 == Interval(Fraction(-8), Fraction(27)) and a**0 == Interval.from_number(1)
    assert Interval(Fraction(2), Fraction(4)) ** -1 == Interval(Fraction(1, 4), Fraction(1, 2))


@pytest.mark.parametrize(
    ("bits", "kept"), [(97, True), (383, True), (384, False), (400, False), (500, False)]
)
def test_long_ends_are_rounded_and_short_ones_kept(bits, kept):
    end = Fraction(1, 2**bits)
    for interval in (Interval(Fraction(0), end), Interval(-end, Fraction(0)), Interval.from_number(end)):
        assert interval.shorten() == (interval if kept else interval.round_outwards())
        assert interval != interval.round_outwards()


@CHECK
@given(ANY)
def test_rounding_is_outward_and_small(x):
    interval = Interval.from_number(x).round_outwards()
    assert interval.lower <= x <= interval.upper and interval.upper - interval.lower <= WIDTH
    assert interval.round_outwards() == interval


@pytest.mark.parametrize(
    ("ends", "power", "expected"),
    [
        ((0, 2), 2, (0, 4)),
        ((-2, 0), 2, (0, 4)),
        ((-3, 2), 4, (0, 81)),
        ((-3, -2), 2, (4, 9)),
        ((-2, 3), 1, (-2, 3)),
        ((0, 0), 0, (1, 1)),
        ((-1, 1), 0, (1, 1)),
        ((-1, 1), 2, (0, 1)),
        ((Fraction(1, 2), 1), 2, (Fraction(1, 4), 1)),
        ((Fraction(-1, 2), Fraction(1, 3)), 2, (0, Fraction(1, 4))),
        ((-4, -2), -1, (Fraction(-1, 2), Fraction(-1, 4))),
        ((-4, -2), -2, (Fraction(1, 16), Fraction(1, 4))),
    ],
)
def test_powers(ends, power, expected):
    assert Interval(*map(Fraction, ends)) ** power == Interval(*map(Fraction, expected))


def test_exact_numbers_beside_wide_intervals():
    exact, wide = Interval.from_number(-2), Interval(Fraction(3), Fraction(5))
    assert exact * wide == wide * exact == Interval(Fraction(-10), Fraction(-6))
    assert exact + wide == wide + exact == Interval(Fraction(1), Fraction(3))
    from_zero = Interval(Fraction(0), Fraction(1))
    assert from_zero + wide == wide + from_zero == Interval(Fraction(3), Fraction(6))
    assert Interval.from_number(0) + wide == Interval.from_number(1) * wide == wide


def test_long_powers_are_refused():
    assert raise_to_power(Fraction(2), LONGEST // 2) == 2 ** (LONGEST // 2)
    for value, power in ((2, LONGEST // 2 + 1), (Fraction(1, 2), -LONGEST // 2 - 1)):
        with pytest.raises(Refused, match="a power of more than"):
            raise_to_power(Fraction(value), power)


def test_long_numbers_are_refused():
    longest = Fraction(2 ** (LONGEST - 1))
    assert weigh_number(longest) == longest and weigh_number(1 / longest) * longest == 1
    for value in (longest * 2, -longest * 2, 1 / (longest * 2)):
        for interval in (Interval.from_number(value), Interval(value, value + 1)):
            with pytest.raises(Refused, match="a number of more than"):
                interval * Interval.from_number(1)


def test_products_are_charged():
    for interval in (Interval.from_number(2), Interval(Fraction(1), Fraction(2))):
        with set_budget(20):
            for _ in range(10):
                assert interval * Interval.from_number(1) == interval
            with pytest.raises(Refused, match="budget"):
                interval * Interval.from_number(1)


def test_powers_are_charged():
    with set_budget(20):
        for _ in range(20):
            raise_to_power(Fraction(3), 2)
        with pytest.raises(Refused, match="budget"):
            raise_to_power(Fraction(3), 2)
    with set_budget(100_000), pytest.raises(Refused, match="budget"):
        raise_to_power(Fraction(3), LONGEST // 2)


# ---------------------------------------------------------------------------- at a few bits
NEAR_ONE = [Fraction(a, b) for b in range(1, 25) for a in range(1, 80)]
EXPONENTS = [Fraction(a, b) for b in (1, 2, 3, 4, 5, 7, 8, 16, 32, 100, 256) for a in range(-40, 41)]


@pytest.fixture(params=[(4, 30), (5, 30), (8, 30), (96, 1), (96, 2), (96, 3), (6, 2), (4, 1)])
def bits(request, monkeypatch):
    """The last bit of an end, and the digits of log and exp."""
    for name, value in zip(("BITS", "DIGITS"), request.param, strict=True):
        monkeypatch.setattr(intervals, name, value)
    enclose_log.cache_clear()
    enclose_exp.cache_clear()
    yield request.param[0]
    enclose_log.cache_clear()
    enclose_exp.cache_clear()


def test_logs_at_a_few_bits(bits):
    for x in NEAR_ONE:
        interval, value = enclose_log(x), mpmath.log(exact(x))
        assert exact(interval.lower) <= value <= exact(interval.upper), x


def test_exponentials_at_a_few_bits(bits):
    for x in EXPONENTS:
        interval, value = enclose_exp(x), mpmath.exp(exact(x))
        assert exact(interval.lower) <= value <= exact(interval.upper), x


def test_exponentials_of_intervals_at_a_few_bits(bits):
    for x in EXPONENTS:
        interval, low, high = enclose_exp_of_interval(Interval(x, x + 1)), exact(x), exact(x + 1)
        assert exact(interval.lower) <= mpmath.exp(low) < mpmath.exp(high) <= exact(interval.upper)


@pytest.mark.parametrize("bits", [(6, 2)], indirect=True)
@pytest.mark.parametrize(
    ("enclosure", "x", "lower", "upper"),  # in units of 2**-6
    [
        (enclose_log, "1", 0, 0),
        (enclose_log, "2", 39, 49),
        (enclose_log, "3/7", -62, -48),
        (enclose_log, "4/3", 14, 24),
        (enclose_log, "2/3", -30, -23),
        (enclose_log, "5/4", 10, 19),
        (enclose_log, "9/10", -8, -6),
        (enclose_log, "4/7", -40, -31),
        (enclose_log, "17", 161, 198),
        (enclose_log, "100", 264, 324),
        (enclose_exp, "0", 64, 64),
        (enclose_exp, "1/7", 69, 85),
        (enclose_exp, "1/3", 80, 99),
        (enclose_exp, "1/2", 92, 113),
        (enclose_exp, "1", 155, 191),
        (enclose_exp, "3", 1152, 1408),
        (enclose_exp, "-1", 21, 27),
        (enclose_exp, "-5/2", 4, 6),
    ],
)
def test_the_ends_are_those_that_certificates_record(bits, enclosure, x, lower, upper):
    assert enclosure(Fraction(x)) == Interval(Fraction(lower, 2**bits), Fraction(upper, 2**bits))


@pytest.mark.parametrize("bits", [(4, 30)], indirect=True)
def test_rounding_at_a_few_bits(bits):
    interval = Interval(Fraction(-1, 3), Fraction(1, 3)).round_outwards()
    assert interval == Interval(Fraction(-6, 16), Fraction(6, 16))
    assert Interval.from_number(Fraction(5, 16)).round_outwards() == Interval.from_number(Fraction(5, 16))
