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
    exp_enclosure,
    exp_of_interval,
    log_enclosure,
    rational_power,
    weighed,
)
from klsym.kernel.ring import budget
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
    interval = log_enclosure(x)
    with mpmath.workdps(DIGITS):
        assert holds(interval, mpmath.log(exact(x)))
    assert 0 <= interval.upper - interval.lower < WIDTH


@CHECK
@given(SMALL)
def test_exp(x):
    interval = exp_enclosure(x)
    with mpmath.workdps(DIGITS + 150):
        assert exact(interval.lower) <= mpmath.exp(exact(x)) <= exact(interval.upper)
    assert interval.upper - interval.lower < WIDTH * max(1, interval.upper) * 2**12


def test_the_reference_would_notice():
    narrow = log_enclosure(Fraction(2))
    shifted = Interval(narrow.lower + 2 * WIDTH, narrow.upper + 2 * WIDTH)
    assert holds(narrow, mpmath.log(2)) and not holds(shifted, mpmath.log(2))


@CHECK
@given(POSITIVE, POSITIVE)
def test_log_is_increasing(x, y):
    if x < y:
        assert log_enclosure(x).lower <= log_enclosure(y).upper
        assert y - x < Fraction(1, 10**12) * y or log_enclosure(x).upper < log_enclosure(y).lower


@CHECK
@given(SMALL, SMALL)
def test_exp_is_increasing(x, y):
    if x < y and abs(x) < 30 and abs(y) < 30:
        assert exp_enclosure(x).upper < exp_enclosure(y).lower


@CHECK
@given(SMALL, SMALL)
def test_exp_of_an_interval(x, y):
    low, high = sorted((x, y))
    interval = exp_of_interval(Interval(low, high))
    assert interval.lower <= exp_enclosure((low + high) / 2).lower
    assert interval.upper >= exp_enclosure((low + high) / 2).upper


@pytest.mark.parametrize("x", [Fraction(4, 3), Fraction(2, 3), Fraction(4, 3) + WIDTH, Fraction(1, 3)])
def test_log_where_the_reduction_changes(x):
    assert holds(log_enclosure(x), mpmath.log(exact(x)))
    assert holds(log_enclosure(1 / x), -mpmath.log(exact(x)))


def test_exact_values():
    assert log_enclosure(Fraction(1)) == Interval.exact(0)
    one = exp_enclosure(Fraction(0))
    assert one.lower <= 1 <= one.upper and one.upper - one.lower < WIDTH


@pytest.mark.parametrize("power", [1, 100, 2000])
def test_log_of_extreme_arguments(power):
    for x in (Fraction(10) ** power, Fraction(1, 10**power), 1 + Fraction(1, 10**power)):
        with mpmath.workdps(DIGITS + power):
            assert holds(log_enclosure(x), mpmath.log(exact(x)))


@pytest.mark.parametrize("x", [Fraction(LARGEST_EXPONENT), Fraction(-LARGEST_EXPONENT), Fraction(1, 10**40)])
def test_exp_of_extreme_arguments(x):
    interval = exp_enclosure(x)
    with mpmath.workdps(2000):
        assert exact(interval.lower) <= mpmath.exp(exact(x)) <= exact(interval.upper)
    assert interval.upper < interval.lower * (1 + 256 * WIDTH) or x < 0


def test_refusals():
    for x in (Fraction(0), Fraction(-1, 3)):
        with pytest.raises(Refused, match="log of"):
            log_enclosure(x)
    for x in (Fraction(LARGEST_EXPONENT + 1), Fraction(-LARGEST_EXPONENT * 2 - 1, 2)):
        with pytest.raises(Refused, match="an exponent beyond"):
            exp_enclosure(x)
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
    for interval, value in ((a + b, x + y), (a * b, x * y), (a.rounded(), x)):
        assert interval.lower <= value <= interval.upper
    if power >= 0 or a.lower > 0 or a.upper < 0:
        assert (a**power).lower <= x**power <= (a**power).upper


def test_operations_are_tight():
    a = Interval(Fraction(-2), Fraction(3))
    assert a * a == Interval(Fraction(-6), Fraction(9))
    assert a**2 == Interval(Fraction(0), Fraction(9))
    assert a**3 == Interval(Fraction(-8), Fraction(27)) and a**0 == Interval.exact(1)
    assert Interval(Fraction(2), Fraction(4)) ** -1 == Interval(Fraction(1, 4), Fraction(1, 2))


@pytest.mark.parametrize(
    ("bits", "kept"), [(97, True), (383, True), (384, False), (400, False), (500, False)]
)
def test_long_ends_are_rounded_and_short_ones_kept(bits, kept):
    end = Fraction(1, 2**bits)
    for interval in (Interval(Fraction(0), end), Interval(-end, Fraction(0)), Interval.exact(end)):
        assert interval.shortened() == (interval if kept else interval.rounded())
        assert interval != interval.rounded()


@CHECK
@given(ANY)
def test_rounding_is_outward_and_small(x):
    interval = Interval.exact(x).rounded()
    assert interval.lower <= x <= interval.upper and interval.upper - interval.lower <= WIDTH
    assert interval.rounded() == interval


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
    exact, wide = Interval.exact(-2), Interval(Fraction(3), Fraction(5))
    assert exact * wide == wide * exact == Interval(Fraction(-10), Fraction(-6))
    assert exact + wide == wide + exact == Interval(Fraction(1), Fraction(3))
    from_zero = Interval(Fraction(0), Fraction(1))
    assert from_zero + wide == wide + from_zero == Interval(Fraction(3), Fraction(6))
    assert Interval.exact(0) + wide == Interval.exact(1) * wide == wide


def test_long_powers_are_refused():
    assert rational_power(Fraction(2), LONGEST // 2) == 2 ** (LONGEST // 2)
    for value, power in ((2, LONGEST // 2 + 1), (Fraction(1, 2), -LONGEST // 2 - 1)):
        with pytest.raises(Refused, match="a power of more than"):
            rational_power(Fraction(value), power)


def test_long_numbers_are_refused():
    longest = Fraction(2 ** (LONGEST - 1))
    assert weighed(longest) == longest and weighed(1 / longest) * longest == 1
    for value in (longest * 2, -longest * 2, 1 / (longest * 2)):
        for interval in (Interval.exact(value), Interval(value, value + 1)):
            with pytest.raises(Refused, match="a number of more than"):
                interval * Interval.exact(1)


def test_products_are_charged():
    for interval in (Interval.exact(2), Interval(Fraction(1), Fraction(2))):
        with budget(20):
            for _ in range(10):
                assert interval * Interval.exact(1) == interval
            with pytest.raises(Refused, match="budget"):
                interval * Interval.exact(1)


def test_powers_are_charged():
    with budget(20):
        for _ in range(20):
            rational_power(Fraction(3), 2)
        with pytest.raises(Refused, match="budget"):
            rational_power(Fraction(3), 2)
    with budget(100_000), pytest.raises(Refused, match="budget"):
        rational_power(Fraction(3), LONGEST // 2)


# ---------------------------------------------------------------------------- at a few bits
NEAR_ONE = [Fraction(a, b) for b in range(1, 25) for a in range(1, 80)]
EXPONENTS = [Fraction(a, b) for b in (1, 2, 3, 4, 5, 7, 8, 16, 32, 100, 256) for a in range(-40, 41)]


@pytest.fixture(params=[(4, 30), (5, 30), (8, 30), (96, 1), (96, 2), (96, 3), (6, 2), (4, 1)])
def bits(request, monkeypatch):
    """The last bit of an end, and the digits of log and exp."""
    for name, value in zip(("BITS", "DIGITS"), request.param, strict=True):
        monkeypatch.setattr(intervals, name, value)
    log_enclosure.cache_clear()
    exp_enclosure.cache_clear()
    yield request.param[0]
    log_enclosure.cache_clear()
    exp_enclosure.cache_clear()


def test_logs_at_a_few_bits(bits):
    for x in NEAR_ONE:
        interval, value = log_enclosure(x), mpmath.log(exact(x))
        assert exact(interval.lower) <= value <= exact(interval.upper), x


def test_exponentials_at_a_few_bits(bits):
    for x in EXPONENTS:
        interval, value = exp_enclosure(x), mpmath.exp(exact(x))
        assert exact(interval.lower) <= value <= exact(interval.upper), x


def test_exponentials_of_intervals_at_a_few_bits(bits):
    for x in EXPONENTS:
        interval, low, high = exp_of_interval(Interval(x, x + 1)), exact(x), exact(x + 1)
        assert exact(interval.lower) <= mpmath.exp(low) < mpmath.exp(high) <= exact(interval.upper)


@pytest.mark.parametrize("bits", [(6, 2)], indirect=True)
@pytest.mark.parametrize(
    ("enclosure", "x", "lower", "upper"),  # in units of 2**-6
    [
        (log_enclosure, "1", 0, 0),
        (log_enclosure, "2", 39, 49),
        (log_enclosure, "3/7", -62, -48),
        (log_enclosure, "4/3", 14, 24),
        (log_enclosure, "2/3", -30, -23),
        (log_enclosure, "5/4", 10, 19),
        (log_enclosure, "9/10", -8, -6),
        (log_enclosure, "4/7", -40, -31),
        (log_enclosure, "17", 161, 198),
        (log_enclosure, "100", 264, 324),
        (exp_enclosure, "0", 64, 64),
        (exp_enclosure, "1/7", 69, 85),
        (exp_enclosure, "1/3", 80, 99),
        (exp_enclosure, "1/2", 92, 113),
        (exp_enclosure, "1", 155, 191),
        (exp_enclosure, "3", 1152, 1408),
        (exp_enclosure, "-1", 21, 27),
        (exp_enclosure, "-5/2", 4, 6),
    ],
)
def test_the_ends_are_those_that_certificates_record(bits, enclosure, x, lower, upper):
    assert enclosure(Fraction(x)) == Interval(Fraction(lower, 2**bits), Fraction(upper, 2**bits))


@pytest.mark.parametrize("bits", [(4, 30)], indirect=True)
def test_rounding_at_a_few_bits(bits):
    interval = Interval(Fraction(-1, 3), Fraction(1, 3)).rounded()
    assert interval == Interval(Fraction(-6, 16), Fraction(6, 16))
    assert Interval.exact(Fraction(5, 16)).rounded() == Interval.exact(Fraction(5, 16))
