"""Thresholds against exact laws: binomial, gamma and a symmetric rare jump, term by term."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.study.sampling.statistics import FALSE_ALARM, MISS, Level, TooFew, write_number

LEVELS = [Level(c, a) for a in (0.4, 0.1, 0.01, 1e-6) for c in (1, 10, 1000)]


def normal_tail(z: float) -> mpmath.mpf:
    return mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2


# ---------------------------------------------------------------------------- the equations
SHAPES = [(0.0, 0.0), (0.0, -1.5), (0.3, 0.0), (-4.0, 16.0), (0.0, 50.0), (30.0, 900.0)]


@pytest.mark.parametrize("level", LEVELS, ids=repr)
@pytest.mark.parametrize(("skewness", "kurtosis"), SHAPES)
def test_the_corrected_law(level: Level, skewness: float, kurtosis: float) -> None:
    """The tail of the normal law times exp(|g| x^3/(6 sqrt n) + k x^4/(24 n)), k where it is positive."""
    samples = 10**8
    z = level.find_threshold(samples, skewness, kurtosis)
    seen = level.find_detectable_bias(z, samples, skewness, kurtosis) - z
    for x, stated in ((z, level.false_alarm / (2 * level.comparisons)), (seen, level.miss)):
        tail = normal_tail(x) * mpmath.exp(
            abs(skewness) * x**3 / (6 * math.sqrt(samples)) + max(kurtosis, 0) * x**4 / (24 * samples)
        )
        assert float(tail) == pytest.approx(stated, rel=1e-9)
    if not skewness and kurtosis <= 0:  # the normal law
        assert z == pytest.approx(level.normal_threshold, rel=1e-9)
        assert float(normal_tail(level.find_detectable_bias(1.5) - 1.5)) == pytest.approx(
            level.miss, rel=1e-9
        )


shapes = st.tuples(
    st.sampled_from(LEVELS),
    st.floats(-1e3, 1e3),
    st.floats(-2, 1e6),
    st.integers(1, 10**12),
)


@given(shapes)
def test_needed_samples_do(shape: tuple[Level, float, float, int]) -> None:
    level, skewness, kurtosis, samples = shape
    try:
        z = level.find_threshold(samples, skewness, kurtosis)
    except TooFew as error:
        assert error.needed > samples
        assert level.find_threshold(error.needed, skewness, kurtosis) >= level.normal_threshold
        with pytest.raises(TooFew):  # and not many more than needed
            level.find_threshold(max(1, int(0.85 * error.needed) - 2), skewness, kurtosis)
    else:
        assert z >= level.normal_threshold


@given(shapes, st.floats(1, 10))
def test_more_of_anything_bad_raises_the_threshold(
    shape: tuple[Level, float, float, int], factor: float
) -> None:
    level, skewness, kurtosis, samples = shape
    samples += 10**8

    def threshold(level: Level, g: float, k: float, n: int) -> float:
        try:
            return level.find_threshold(n, g, k)
        except TooFew:
            return math.inf

    z = threshold(level, skewness, kurtosis, samples)
    slack = 1e-9
    assert threshold(level, skewness * factor, kurtosis, samples) >= z - slack
    assert threshold(level, -skewness, kurtosis, samples) == z
    assert threshold(level, skewness, abs(kurtosis) * factor, samples) >= z - slack
    assert threshold(level, skewness, kurtosis, int(samples * factor)) <= z + slack
    assert (
        threshold(Level(7 * level.comparisons, level.false_alarm), skewness, kurtosis, samples) >= z - slack
    )


# ---------------------------------------------------------------------------- exact laws
def binomial_tail(n: int, p: float, least: int) -> float:
    """P(B >= least), term by term: the first by logarithms, the others by their ratios."""
    if not 0 < least <= n:
        return float(least <= 0)
    odds = math.log(p) * least + math.log1p(-p) * (n - least)
    first = math.exp(math.lgamma(n + 1) - math.lgamma(least + 1) - math.lgamma(n - least + 1) + odds)
    k = np.arange(least, min(n, least + int(20 * math.sqrt(n * p * (1 - p))) + 200))
    return first * (1 + float(np.cumprod((n - k) / (k + 1) * (p / (1 - p))).sum()))


def rare_outcome(p: float, n: int, z: float, side: int) -> float:
    """P(side * Z > z) for the share of an outcome of probability p."""
    deviation = math.sqrt(n * p * (1 - p))
    if side > 0:
        return binomial_tail(n, p, math.floor(n * p + z * deviation) + 1)
    return binomial_tail(n, 1 - p, math.floor(n * (1 - p) + z * deviation) + 1)


def exponential(n: int, z: float, side: int) -> float:
    """For the mean of n exponential variables."""
    if side > 0:
        return float(mpmath.gammainc(n, n + z * math.sqrt(n), regularized=True))
    return float(mpmath.gammainc(n, 0, n - z * math.sqrt(n), regularized=True))


def symmetric_jump(p: float, n: int, z: float, side: int) -> float:
    """For jumps +1 and -1 of probability p/2 each: up - (jumps - up) >= least."""
    least, total = math.floor(z * math.sqrt(n * p)) + 1, 0.0
    for jumps in range(least, int(n * p + 12 * math.sqrt(n * p)) + 100):
        exactly = binomial_tail(n, p, jumps) - binomial_tail(n, p, jumps + 1)
        total += exactly * binomial_tail(jumps, 0.5, -((-jumps - least) // 2))
    return total


def shape_of_rare(p: float) -> tuple[float, float]:
    variance = p * (1 - p)
    return (1 - 2 * p) / math.sqrt(variance), (1 - 6 * variance) / variance


LAWS = {
    "rare": (lambda n, z, side: rare_outcome(1e-3, n, z, side), shape_of_rare(1e-3)),
    "rarer": (lambda n, z, side: rare_outcome(1e-5, n, z, side), shape_of_rare(1e-5)),
    "frequent": (lambda n, z, side: rare_outcome(0.99, n, z, side), shape_of_rare(0.99)),
    "fair": (lambda n, z, side: rare_outcome(0.5, n, z, side), shape_of_rare(0.5)),
    "exponential": (exponential, (2.0, 6.0)),
    "symmetric": (lambda n, z, side: symmetric_jump(1e-3, n, z, side), (0.0, 1e3 - 3)),
}
DEEP = [Level(1), Level(10, 1e-4), Level(1000), Level(20, 0.05)]


def least_samples(level: Level, skewness: float, kurtosis: float) -> int:
    with pytest.raises(TooFew) as caught:
        level.find_threshold(1, skewness, kurtosis)
    return caught.value.needed


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("level", DEEP, ids=repr)
def test_the_stated_rate_holds_at_the_fewest_samples_allowed(law: str, level: Level) -> None:
    """Where the approximation is at its worst, the exact rate of false alarms is at most what is stated."""
    exact, (skewness, kurtosis) = LAWS[law]
    samples = least_samples(level, skewness, kurtosis)
    z, stated = level.find_threshold(samples, skewness, kurtosis), level.false_alarm / level.comparisons
    both = exact(samples, z, 1) + exact(samples, z, -1)
    # a law on a lattice of width a lies up to z a / 2 (relative) above its smooth part
    assert both / stated < 1.1


@pytest.mark.parametrize("law", ["rare", "rarer", "symmetric"])
def test_the_normal_law_alone_would_break_it(law: str) -> None:
    level = Level(1000)
    exact, (skewness, kurtosis) = LAWS[law]
    samples = least_samples(level, skewness, kurtosis)
    stated = level.false_alarm / level.comparisons
    assert exact(samples, level.normal_threshold, 1) / (stated / 2) > (1.15 if law == "symmetric" else 2)


def test_skewness_alone_would_not_see_symmetric_jumps() -> None:
    """Seven jumps of one sign raise an alarm where 40 are expected: the fourth moment is what tells."""
    level = Level(1000)
    exact, (skewness, kurtosis) = LAWS["symmetric"]
    samples = 40_000
    z = level.find_threshold(samples, skewness)
    assert exact(samples, z, 1) / (level.false_alarm / 2000) > 2
    with pytest.raises(TooFew):
        level.find_threshold(samples, skewness, kurtosis)


@pytest.mark.parametrize("law", ["rare", "frequent", "exponential", "fair"])
@pytest.mark.parametrize("miss", [0.1, 1e-3, MISS])
def test_a_bias_of_the_stated_size_is_missed_as_seldom_as_stated(law: str, miss: float) -> None:
    exact, (skewness, kurtosis) = LAWS[law]
    level = Level(10, miss=miss)
    samples = least_samples(level, skewness, kurtosis)
    z = level.find_threshold(samples, skewness, kurtosis)
    seen = level.find_detectable_bias(z, samples, skewness, kurtosis)
    for side in (1, -1):  # missed: the estimate falls short of the bias by more than seen - z
        assert exact(samples, seen - z, -side) / miss < 1.1


# ---------------------------------------------------------------------------- refusals


NO_SHAPES = [
    (0, 0.0, 0.0), (10**6, math.nan, 0.0), (10**6, math.inf, 0.0), (10**6, 0.0, math.inf),
    (10**6, 1e200, 0.0), (10**6, 0.0, math.nan),
]  # fmt: skip
RATES = "rates between 0 and 1/2"
REFUSED = [
    *((lambda rate=rate: Level(1, rate), RATES) for rate in (0.0, 0.5, 1.0, -1e-6, math.nan, math.inf)),
    *((lambda rate=rate: Level(1, 0.1, rate), RATES) for rate in (0.0, 0.5, 1.0, -1e-6, math.nan, math.inf)),
    *((lambda count=count: Level(count), "at least one comparison") for count in (0, -3)),
    *((lambda shape=shape: Level(10).find_threshold(*shape), "level:") for shape in NO_SHAPES),
]


@pytest.mark.parametrize(("make", "reason"), REFUSED)
def test_refusals(make: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        make()
    assert not isinstance(caught.value, TooFew)


@pytest.mark.parametrize("samples", [1, 2, 100, 20_000])
def test_too_few(samples: int) -> None:
    with pytest.raises(TooFew, match=rf"^{samples} samples are too few .* would do$"):
        Level(1000).find_threshold(samples)


def test_huge_needs_are_written_short() -> None:
    with pytest.raises(TooFew) as caught:
        Level(1000).find_threshold(10, 1e50)
    assert len(str(caught.value)) < 100 and caught.value.needed > 10**100
    assert (write_number(12), write_number(10**15), write_number(3 * 10**20)) == (
        "12",
        "1000000000000000",
        "3e+20",
    )


def test_the_house_rates() -> None:
    assert FALSE_ALARM <= 1e-6 and MISS <= 1e-6 and Level(1).false_alarm == FALSE_ALARM
