"""Enclosures of log and exp of rationals.  Trusted; standard library only.

An `Interval` has Fraction ends and contains the real number it stands for; every operation rounds
outwards, so a strict inequality between ends is a proof.  The decimals of the standard library round
log and exp correctly, that is by less than one unit in the last digit.

>>> enclose_log(Fraction(2)).lower < Fraction(693148, 10**6) < enclose_exp(Fraction(0)).upper
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from klsym.errors import Refused
from klsym.kernel.ring import charge, count_bits

DIGITS = 40  # of log and exp
BITS = 96  # ends are rounded to multiples of 2**-BITS
LARGEST_EXPONENT = 4096
LONGEST = 200_000  # bits of a number


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval [lower, upper] of rationals."""

    lower: Fraction
    upper: Fraction

    @staticmethod
    def from_number(value: int | Fraction) -> Interval:
        end = value if type(value) is Fraction else Fraction(value)
        return Interval(end, end)

    def __add__(self, other: Interval) -> Interval:
        charge_numbers(self.lower, other.lower)
        charge_numbers(self.upper, other.upper)
        if self.lower is self.upper and not self.lower:
            return other
        lower, exact = self.lower + other.lower, self.lower is self.upper and other.lower is other.upper
        return Interval(lower, lower if exact else self.upper + other.upper)

    def __mul__(self, other: Interval) -> Interval:
        if self.lower is not self.upper and other.lower is not other.upper:
            ends = [a * b for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
            return Interval(weigh_number(min(ends)), weigh_number(max(ends)))
        number, factor = (self.lower, other) if self.lower is self.upper else (other.lower, self)
        is_unit = number == 1
        lower = weigh_number(factor.lower if is_unit else number * factor.lower)
        upper = weigh_number(
            lower if factor.lower is factor.upper else factor.upper if is_unit else number * factor.upper
        )
        return factor if is_unit else Interval(lower, upper) if number >= 0 else Interval(upper, lower)

    def __pow__(self, power: int) -> Interval:
        if power == 1:
            return self
        if power < 0:
            if self.lower <= 0 <= self.upper:
                raise Refused("finite model: division by an enclosure that contains zero")
            return Interval(1 / self.upper, 1 / self.lower) ** -power
        ends = sorted((raise_to_power(self.lower, power), raise_to_power(self.upper, power)))
        if power % 2 == 0 and power and self.lower <= 0 <= self.upper:
            ends[0] = Fraction(0)
        return Interval(ends[0], ends[1])

    def round_outwards(self) -> Interval:
        """Return the ends moved outwards to multiples of 2**-BITS."""
        return Interval(
            Fraction(_round_down(self.lower), 1 << BITS), Fraction(-_round_down(-self.upper), 1 << BITS)
        )

    def shorten(self) -> Interval:
        """Return the interval, rounded where an end is long; short ones stay exact, so an exact 0 is 0."""
        short = max(count_bits(self.lower), count_bits(self.upper)) <= 4 * BITS
        return self if short else self.round_outwards()


def raise_to_power(value: Fraction, power: int) -> Fraction:
    """Return an exact power, refused where it is too long."""
    if count_bits(value) * abs(power) > LONGEST:
        raise Refused(f"finite model: a power of more than {LONGEST} bits")
    return weigh_number(value**power)


def weigh_number(value: Fraction) -> Fraction:
    """Return the same number, once arithmetic with numbers as long is paid for."""
    if (bits := count_bits(value)) > LONGEST:
        raise Refused(f"finite model: a number of more than {LONGEST} bits")
    charge(1 + ((bits >> 6) ** 2 >> 4))
    return value


def charge_numbers(*values: Fraction) -> None:
    """Pay for arithmetic with numbers as long as these are together."""
    charge(1 + ((sum(map(count_bits, values)) >> 6) ** 2 >> 4))


def _round_down(value: Fraction) -> int:
    return (value.numerator << BITS) // value.denominator


@lru_cache(maxsize=4096)
def enclose_log(x: Fraction) -> Interval:
    """Return an enclosure of log x for a positive rational."""
    if x <= 0:
        raise Refused(f"finite model: log of {str(x)[:40]}")
    return _enclose_function(Context.ln, x)


@lru_cache(maxsize=4096)
def enclose_exp(x: Fraction) -> Interval:
    """Return an enclosure of exp x for a rational."""
    if abs(x) > LARGEST_EXPONENT:
        raise Refused(f"finite model: an exponent beyond {LARGEST_EXPONENT}")
    return _enclose_function(Context.exp, x) if x else Interval.from_number(1)


def _enclose_function(function: Callable[[Context, Decimal], Decimal], x: Fraction) -> Interval:
    """Return an increasing function at x rounded down and up to decimals, each result moved by one unit at
    most.
    """
    down, up = (
        Context(DIGITS, direction, -99_999, 99_999, traps=[]) for direction in (ROUND_FLOOR, ROUND_CEILING)
    )
    low, high = (at.divide(Decimal(x.numerator), Decimal(x.denominator)) for at in (down, up))
    lower, upper, unit = (
        Fraction(function(down, low)),
        Fraction(function(up, high)),
        Fraction(10) ** (1 - DIGITS),
    )
    return Interval(lower - abs(lower) * unit, upper + abs(upper) * unit).round_outwards()


def enclose_log_of_interval(x: Interval) -> Interval:
    """Return [log(lower), log(upper)], each end enclosed: log is increasing."""
    low = enclose_log(x.lower)
    return low if x.lower is x.upper else Interval(low.lower, enclose_log(x.upper).upper)


def enclose_exp_of_interval(x: Interval) -> Interval:
    """Return [exp(lower), exp(upper)], each end enclosed: exp is increasing."""
    return Interval(enclose_exp(x.lower).lower, enclose_exp(x.upper).upper)
