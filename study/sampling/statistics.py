"""The statistical test behind every sampled cross-check: false-alarm rate, power, and when it is sound.

An estimate m of the known mean M with the known standard error se has z = (m - M)/se.  Over a whole run
of c comparisons each may raise a false alarm with probability alpha/c (Bonferroni), two-sided alpha/(2c).
The law of z is normal up to its skewness g and excess kurtosis k, whose corrections in the tail (Cramer) are

    P(Z > z) = Phi(-z) exp(g z^3/(6 sqrt(N)) + (k - 3 g^2) z^4/(24 N) + ...)        for z^2 much less than N

so the threshold solves Phi(-z) exp(|g| z^3/(6 sqrt(N)) + k z^4/(24 N)) = alpha/(2c).  A bias that exceeds
it by the z of the chance to miss, found in the same way, is seen with probability 1 - MISS.  What is
asked of the model: finite moments up to the fourth, and N so large that both corrections are small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from klsym.errors import UsageError

FALSE_ALARM = 1e-6  # over a whole run
MISS = 1e-6  # the chance to overlook a bias of the stated size
LARGEST_CORRECTION = 1.0  # of the logarithm of the tail by the skewness: beyond it N is too small
LARGEST_SECOND = 0.25  # and by the kurtosis, the next order
LARGEST_RATIO = 0.05  # z^4 / N
LARGEST_Z = 37.0  # the normal tail is a float up to here
LARGEST_SHAPE = 1e100  # of skewness and kurtosis


class TooFew(UsageError):
    """So few samples that the normal law says nothing in the tail; `needed` would do."""

    def __init__(self, samples: int, needed: int) -> None:
        self.needed = needed
        super().__init__(
            f"{samples} samples are too few for the stated error rate: {write_number(needed)} would do"
        )


def write_number(samples: int) -> str:
    """A number of samples, short where it is huge.

    >>> write_number(33614), write_number(10**21)
    ('33614', '1e+21')
    """
    return str(samples) if samples < 10**16 else f"{samples:.0e}"


@dataclass(frozen=True)
class Level:
    """The error rates of a run of `comparisons` comparisons.

    >>> round(Level(1000).find_threshold(10**6), 2), round(Level(1000).find_threshold(10**6, skewness=5.0), 2)
    (6.11, 6.14)

    false_alarm: over the whole run.  miss: of one comparison whose bias has the stated size.
    Raises UsageError: rates outside (0, 1/2), no comparisons.
    Source: Cramer 1938, Sur un nouveau theoreme-limite; Petrov 1975, Sums of independent random
    variables, VIII.2.
    """

    comparisons: int
    false_alarm: float = FALSE_ALARM
    miss: float = MISS

    def __post_init__(self) -> None:
        if self.comparisons < 1 or not (0 < self.false_alarm < 0.5 and 0 < self.miss < 0.5):
            raise UsageError("level: at least one comparison, and rates between 0 and 1/2, expected")

    @property
    def normal_threshold(self) -> float:
        """z with P(|Z| > z) = false_alarm/comparisons for the normal law."""
        return _find_normal_quantile(self._tail)

    @property
    def _tail(self) -> float:
        return self.false_alarm / (2 * self.comparisons)

    def find_threshold(self, samples: int, skewness: float = 0.0, kurtosis: float = 0.0) -> float:
        """The z beyond which an estimate is rejected.

        samples: how many the estimate averages.  skewness, kurtosis (its excess): of one sample.
        Raises TooFew: the corrections of the tail are no small ones.
        """
        return _find_quantile(self._tail, samples, skewness, kurtosis)

    def find_detectable_bias(
        self, threshold: float, samples: int | None = None, skewness: float = 0.0, kurtosis: float = 0.0
    ) -> float:
        """The bias, in standard errors, that a threshold overlooks with probability `miss` only.

        samples, skewness, kurtosis: as in `threshold`, which raises TooFew likewise; none for the normal law.
        """
        if samples is None:
            return threshold + _find_normal_quantile(self.miss)
        return threshold + _find_quantile(self.miss, samples, skewness, kurtosis)


def _find_normal_quantile(tail: float) -> float:
    return -NormalDist().inv_cdf(tail)


def _find_quantile(tail: float, samples: int, skewness: float, kurtosis: float) -> float:
    """The z with P(Z > z) = tail; raises TooFew."""
    if samples < 1 or not (abs(skewness) < LARGEST_SHAPE and abs(kurtosis) < LARGEST_SHAPE):
        raise UsageError(f"level: {samples} samples of skewness {skewness}, kurtosis {kurtosis}: no numbers")
    root = _solve(tail, samples, skewness, kurtosis)
    if root is None:
        raise TooFew(samples, _count_enough_samples(tail, skewness, kurtosis))
    return root


def _solve(tail: float, samples: int, skewness: float, kurtosis: float) -> float | None:
    """log Phi(-z) + lean z^3 + heavy z^4 = log tail, by bisection where the corrections are small."""
    lean, heavy = abs(skewness) / (6 * math.sqrt(samples)), max(kurtosis, 0.0) / (24 * samples)
    low, high = _find_normal_quantile(tail), min(LARGEST_Z, (LARGEST_RATIO * samples) ** 0.25)
    if lean:
        high = min(high, (LARGEST_CORRECTION / lean) ** (1 / 3))
    if heavy:
        high = min(high, (LARGEST_SECOND / heavy) ** 0.25)

    def measure_excess(z: float) -> float:
        return math.log(math.erfc(z / math.sqrt(2)) / 2) + lean * z**3 + heavy * z**4 - math.log(tail)

    if not low <= high or (measure_excess(high) > 0 and (lean or heavy)):
        return None
    for _ in range(60 if lean or heavy else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if measure_excess(middle) > 0 else (low, middle)
    return high if lean or heavy else low


def _count_enough_samples(tail: float, skewness: float, kurtosis: float) -> int:
    """A number of samples for which `_solve` has an answer, a tenth above the least at most."""
    z = _find_normal_quantile(tail)
    by_skewness = (abs(skewness) * z**3 / (6 * LARGEST_CORRECTION)) ** 2
    by_kurtosis = max(kurtosis, 0.0) * z**4 / (24 * LARGEST_SECOND)
    needed = math.ceil(max(by_skewness, by_kurtosis, z**4 / LARGEST_RATIO))
    while _solve(tail, needed, skewness, kurtosis) is None:
        needed += needed // 10 + 1
    return needed
