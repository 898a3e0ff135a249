"""Enclosures of log and exp of rationals, in exact integer arithmetic.  Trusted; standard library only.

An `Interval` has Fraction ends and contains the real number it stands for; every operation rounds
outwards, so a strict inequality between ends is a proof.

>>> log_enclosure(Fraction(2)).lower < Fraction(693148, 10**6) < exp_enclosure(Fraction(0)).upper
True
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from klsym.errors import Refused
from klsym.ring import charge, size_of

BITS = 96  # fixed-point precision of log and exp; enclosures are about 2**-90 wide
LARGEST_EXPONENT = 4096
LONGEST = 200_000  # bits of a number


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval [lower, upper] of rationals."""

    lower: Fraction
    upper: Fraction

    @staticmethod
    def exact(value: int | Fraction) -> Interval:
        return Interval(Fraction(value), Fraction(value))

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.lower + other.lower, self.upper + other.upper)

    def __mul__(self, other: Interval) -> Interval:
        if self.lower == self.upper:  # one exact factor: two products do
            ends = [self.lower * other.lower, self.lower * other.upper]
            return Interval(weighed(min(ends)), weighed(max(ends)))
        ends = [a * b for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
        return Interval(weighed(min(ends)), weighed(max(ends)))

    def __pow__(self, power: int) -> Interval:
        if power < 0:
            if self.lower <= 0 <= self.upper:
                raise Refused("finite model: division by an enclosure that contains zero")
            return Interval(1 / self.upper, 1 / self.lower) ** -power
        ends = sorted((rational_power(self.lower, power), rational_power(self.upper, power)))
        if power % 2 == 0 and power and self.lower <= 0 <= self.upper:
            ends[0] = Fraction(0)
        return Interval(ends[0], ends[1])

    def rounded(self) -> Interval:
        """The ends moved outwards to multiples of 2**-BITS."""
        return Interval(Fraction(_floor(self.lower), 1 << BITS), Fraction(-_floor(-self.upper), 1 << BITS))

    def shortened(self) -> Interval:
        """Rounded where an end is long; short ones stay exact, so that an exact 0 is 0."""
        short = max(size_of(self.lower), size_of(self.upper)) <= 4 * BITS
        return self if short else self.rounded()


def rational_power(value: Fraction, power: int) -> Fraction:
    """An exact power, refused where it is too long."""
    if size_of(value) * abs(power) > LONGEST:
        raise Refused(f"finite model: a power of more than {LONGEST} bits")
    return weighed(value**power)


def weighed(value: Fraction, times: int = 1) -> Fraction:
    """The same number, once arithmetic with numbers as long is paid for."""
    if size_of(value) > LONGEST:
        raise Refused(f"finite model: a number of more than {LONGEST} bits")
    charge(times * (1 + ((size_of(value) >> 6) ** 2 >> 4)))
    return value


def _floor(value: Fraction) -> int:
    return (value.numerator << BITS) // value.denominator


def _shift_up(value: int, bits: int) -> int:
    return -(-value >> bits)


@lru_cache(maxsize=4096)
def log_enclosure(x: Fraction) -> Interval:
    """log x for a positive rational: x = 2^k m with m in [2/3, 4/3], log m = 2 atanh((m-1)/(m+1))."""
    if x <= 0:
        raise Refused(f"finite model: log of {str(x)[:40]}")
    k = x.numerator.bit_length() - x.denominator.bit_length()
    x = x / Fraction(2) ** k  # between 1/2 and 2
    if not Fraction(2, 3) <= x <= Fraction(4, 3):
        x, k = (x / 2, k + 1) if x > 1 else (x * 2, k - 1)
    two_atanh = _two_atanh((x - 1) / (x + 1))
    return (two_atanh + Interval.exact(k) * _two_atanh(Fraction(1, 3))).rounded()


def _two_atanh(t: Fraction) -> Interval:
    """2 atanh t = 2 sum t^(2i+1)/(2i+1) for |t| <= 1/3; the tail is at most 9/8 of its first term."""
    if t < 0:
        positive = _two_atanh(-t)
        return Interval(-positive.upper, -positive.lower)
    low, high = _floor(t), -_floor(-t)
    low_square, high_square = low * low >> BITS, _shift_up(high * high, BITS)
    low_sum = high_sum = 0
    odd = 1
    while high > 1:
        low_sum += low // odd
        high_sum += -(-high // odd)
        low, high = low * low_square >> BITS, _shift_up(high * high_square, BITS)
        odd += 2
    return Interval(Fraction(2 * low_sum, 1 << BITS), Fraction(2 * (high_sum + 2 * high), 1 << BITS))


@lru_cache(maxsize=4096)
def exp_enclosure(x: Fraction) -> Interval:
    """exp x for a rational: Taylor at x/2^k <= 1/2, then k squarings; exp(-x) = 1/exp(x)."""
    if abs(x) > LARGEST_EXPONENT:
        raise Refused(f"finite model: an exponent beyond {LARGEST_EXPONENT}")
    if x < 0:
        return (exp_enclosure(-x) ** -1).rounded()
    k = 0
    while x > Fraction(1, 2):
        x, k = x / 2, k + 1
    low, high = _floor(x), -_floor(-x)
    low_term = high_term = 1 << BITS
    low_sum = high_sum = 0
    n = 0
    while high_term > 1:
        low_sum, high_sum, n = low_sum + low_term, high_sum + high_term, n + 1
        low_term = (low_term * low >> BITS) // n
        high_term = -(-_shift_up(high_term * high, BITS) // n)
    high_sum += 2 * high_term
    for _ in range(k):
        low_sum, high_sum = low_sum * low_sum >> BITS, _shift_up(high_sum * high_sum, BITS)
    return Interval(Fraction(low_sum, 1 << BITS), Fraction(high_sum, 1 << BITS))


def exp_of_interval(x: Interval) -> Interval:
    """exp is increasing: [exp(lower), exp(upper)], each end enclosed."""
    return Interval(exp_enclosure(x.lower).lower, exp_enclosure(x.upper).upper)
