"""Number systems of worlds: floats, many digits, enclosures, and dual numbers over any of them.

A dual number is value + slope t with t^2 = 0.  Over dual numbers it has second derivatives: in s and in t.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from operator import mul
from typing import Any

import mpmath

from klsym.errors import KlsymError
from klsym.kernel.intervals import Interval, enclose_exp_of_interval, enclose_log_of_interval

TIED = 20  # digits that two equal numbers may lose to rounding
MAX_EXPONENT = mpmath.mpf(10) ** 300
ROUNDING = 1e-13  # of floats, relative to the size of the terms of a sum


class Tie(KlsymError, ArithmeticError):
    """A number is 0 and depends on theta: its sign, and with it a piece of a formula, changes here."""


@dataclass(frozen=True, slots=True)
class Dual:
    """value + slope t with t^2 = 0; both are numbers of one system, which may be dual numbers in another t.

    >>> x = Dual.from_numbers(Fraction(2), Fraction(1))
    >>> (x ** 3 / x).slope == Interval.from_number(4)
    True
    >>> x = Dual(Dual.from_numbers(2, 1), Dual.from_numbers(3))  # 2 + t + 3 s
    >>> (x ** 3).slope.slope.lower  # d^2 x^3 / ds dt = 6 x x_s x_t
    Fraction(36, 1)
    >>> Dual(2.0, 1.0) * Dual(3.0, 0.0) + 1
    Dual(value=7.0, slope=3.0)

    Source: Fike & Alonso 2011, The development of hyper-dual numbers for exact second derivatives.
    """

    value: Any
    slope: Any

    @staticmethod
    def from_numbers(value: int | Fraction, slope: int | Fraction = 0) -> Dual:
        """Return a dual number over enclosures."""
        return Dual(Interval.from_number(value), Interval.from_number(slope))

    def __add__(self, other: Any) -> Dual:
        a, b = _match_kinds(self, other)
        return NotImplemented if b is None else Dual(a.value + b.value, a.slope + b.slope)

    def __mul__(self, other: Any) -> Dual:
        a, b = _match_kinds(self, other)
        if b is None:
            return NotImplemented
        return Dual(
            _round_outwards(a.value * b.value), _round_outwards(a.slope * b.value + a.value * b.slope)
        )

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Dual:
        return self * -1

    def __sub__(self, other: Any) -> Dual:
        return self + other * -1

    def __rsub__(self, other: Any) -> Dual:
        return self * -1 + other

    def __pow__(self, power: int) -> Dual:
        """d x^n = n x^(n-1) dx."""
        if power == 0:
            return _convert_number(1, self)
        slope = _convert_number(power, self.value) * self.value ** (power - 1) * self.slope
        return Dual(_round_outwards(self.value**power), _round_outwards(slope))

    def __truediv__(self, other: Any) -> Dual:
        _, b = _match_kinds(self, other)
        return NotImplemented if b is None else self * b**-1

    def __rtruediv__(self, other: Any) -> Dual:
        return self**-1 * other

    def exp(self) -> Dual:
        """d exp x = exp x dx; NumPy's exp calls this on object arrays."""
        return find_system(self).exp(self)

    def log(self) -> Dual:
        """d log x = dx / x; NumPy's log calls this on object arrays."""
        return find_system(self).log(self)


def _convert_number(value: int | Fraction, like: Any) -> Any:
    """Return a constant of the same kind as another number."""
    if isinstance(like, Dual):
        return Dual(_convert_number(value, like.value), _convert_number(0, like.value))
    return Interval.from_number(value) if isinstance(like, Interval) else find_system(like).lift(value)


def _match_kinds(a: Dual, b: Any) -> tuple[Any, Any]:
    """Return both as numbers of one kind; None for a number that `a` cannot be combined with."""
    if isinstance(b, int | Fraction):
        return a, _convert_number(b, a)
    if not isinstance(b, Dual):
        return a, Dual(b, _convert_number(0, b)) if type(b) is type(a.value) else None
    nested = isinstance(a.value, Dual), isinstance(b.value, Dual)
    if nested[0] == nested[1]:
        return a, b
    return (a, Dual(b, _convert_number(0, b))) if nested[0] else (Dual(a, _convert_number(0, a)), b)


def _round_outwards(number: Any) -> Any:
    """Return enclosures with a width rounded outwards, so that their ends stay short; others as they are."""
    if type(number) is not Interval or number.lower == number.upper:
        return number
    return number.round_outwards()


# ---------------------------------------------------------------------------- systems
class System(ABC):
    """The numbers of a world.  They combine by + * and integer powers; a system has the functions.

    >>> system = build_duals(FLOATS)
    >>> system.log(system.exp(Dual(2.0, 1.0)))
    Dual(value=2.0, slope=1.0)
    >>> system.sign(Dual(0.0, 1.0))
    Traceback (most recent call last):
    klsym.worlds.numbers.Tie: 0 at this theta, and not 0 nearby
    """

    zero: Any  # the number 0

    @abstractmethod
    def lift(self, number: Any) -> Any:
        """Return a rational number or a float as a number of the system."""

    @abstractmethod
    def add(self, terms: Iterable[Any]) -> Any:
        """Return a sum."""

    @abstractmethod
    def cancel(self, terms: Iterable[Any]) -> Any:
        """Return a sum; its value is 0 where only rounding is left of the terms, so that a tie is one."""

    @abstractmethod
    def exp(self, x: Any) -> Any:
        """Return exp x."""

    @abstractmethod
    def log(self, x: Any) -> Any:
        """Return log x; raises ValueError or Refused if x is not positive."""

    @abstractmethod
    def raise_to(self, x: Any, power: Any) -> Any:
        """Return x^power for two numbers of the system; raises ValueError where it is not real."""

    @abstractmethod
    def sign(self, x: Any) -> int:
        """Return 1, 0 or -1; raises Tie if x is 0 here and depends on theta."""

    @abstractmethod
    def is_zero(self, x: Any) -> bool:
        """Is a number 0, but for rounding?"""

    def multiply(self, factors: Iterable[Any]) -> Any:
        """Return the product of one number or more."""
        return reduce(mul, factors)

    def divide(self, x: Any, y: Any) -> Any:
        """Return x/y."""
        return x / y

    def sqrt(self, x: Any) -> Any:
        """Return the square root of a positive number."""
        return self.raise_to(x, self.lift(Fraction(1, 2)))


class Floats(System):
    """Floats of double precision."""

    zero = 0.0

    def lift(self, number: Any) -> float:
        return float(number)

    def add(self, terms: Iterable[float]) -> float:
        return math.fsum(terms)

    def cancel(self, terms: Iterable[float]) -> float:
        total = math.fsum(terms := list(terms))
        return total if abs(total) > ROUNDING * max(map(abs, terms), default=0.0) else 0.0

    def exp(self, x: float) -> float:
        return math.exp(x)

    def log(self, x: float) -> float:
        return math.log(x)

    def raise_to(self, x: float, power: float) -> float:
        return math.pow(x, power)

    def sign(self, x: float) -> int:
        return (x > 0) - (x < 0)

    def is_zero(self, x: float) -> bool:
        return abs(x) <= ROUNDING


class Digits(System):
    """Numbers of mpmath, in its current precision.  Fewer than 30 digits will not do, see TIED."""

    zero = mpmath.mpf(0)

    def lift(self, number: Any) -> Any:
        if isinstance(number, Fraction):
            return mpmath.mpf(number.numerator) / number.denominator
        return mpmath.mpf(number)

    def add(self, terms: Iterable[Any]) -> Any:
        return mpmath.fsum(terms)

    def cancel(self, terms: Iterable[Any]) -> Any:
        total = mpmath.fsum(terms := list(terms))
        lost = max(map(abs, terms), default=0) * mpmath.mpf(10) ** (TIED - mpmath.mp.dps)
        return total if abs(total) > lost else mpmath.mpf(0)

    def exp(self, x: Any) -> Any:
        """Return exp x, for which mpmath takes as many bits as x has; raises OverflowError for too many."""
        if not -MAX_EXPONENT < x < MAX_EXPONENT:
            raise OverflowError("an exponential of more than 10^300")
        return mpmath.exp(x)

    def log(self, x: Any) -> Any:
        if x <= 0:
            raise ValueError("log of a number that is not positive")
        return mpmath.log(x)

    def raise_to(self, x: Any, power: Any) -> Any:
        value = x ** (int(power) if mpmath.isint(power) else power)
        if isinstance(value, mpmath.mpc):
            raise ValueError("a fractional power of a negative number")
        return value

    def multiply(self, factors: Iterable[Any]) -> Any:
        return mpmath.fprod(factors)

    def sign(self, x: Any) -> int:
        return int(mpmath.sign(x))

    def is_zero(self, x: Any) -> bool:
        return bool(abs(x) <= mpmath.mpf(10) ** (TIED - mpmath.mp.dps))


class Enclosures(System):
    """Rational intervals that contain the number; a sign that they do not decide is refused as a tie."""

    zero = Interval.from_number(0)

    def lift(self, number: Any) -> Interval:
        return Interval.from_number(Fraction(number))

    def add(self, terms: Iterable[Interval]) -> Interval:
        return sum(terms, self.zero)

    def cancel(self, terms: Iterable[Interval]) -> Interval:
        return self.add(terms)

    def exp(self, x: Interval) -> Interval:
        return enclose_exp_of_interval(x)

    def log(self, x: Interval) -> Interval:
        return enclose_log_of_interval(x)

    def raise_to(self, x: Interval, power: Interval) -> Interval:
        number = power.lower
        if number == power.upper and number.denominator == 1:
            return x ** int(number)
        return self.exp((self.log(x) * power).round_outwards())

    def divide(self, x: Interval, y: Interval) -> Interval:
        return y**-1 * x

    def sign(self, x: Interval) -> int:
        if x.lower > 0 or x.upper < 0:
            return 1 if x.lower > 0 else -1
        if x.lower != x.upper:
            raise Tie("the enclosure contains 0")
        return 0

    def is_zero(self, x: Interval) -> bool:
        return x.lower == x.upper == 0


@dataclass(frozen=True)
class Duals(System):
    """Dual numbers over another system."""

    over: System

    def __post_init__(self) -> None:
        object.__setattr__(self, "zero", Dual(self.over.zero, self.over.zero))

    def lift(self, number: Any) -> Dual:
        return Dual(self.over.lift(number), self.over.zero)

    def add(self, terms: Iterable[Dual]) -> Dual:
        terms = list(terms)
        return Dual(self.over.add(x.value for x in terms), self.over.add(x.slope for x in terms))

    def cancel(self, terms: Iterable[Dual]) -> Dual:
        terms = list(terms)
        return Dual(self.over.cancel(x.value for x in terms), self.over.add(x.slope for x in terms))

    def exp(self, x: Dual) -> Dual:
        value = self.over.exp(x.value)
        return Dual(value, _round_outwards(value * x.slope))

    def log(self, x: Dual) -> Dual:
        value = self.over.log(x.value)
        return Dual(value, _round_outwards(self.over.divide(x.slope, x.value)))

    def raise_to(self, x: Dual, power: Dual) -> Dual:
        """d x^y = y x^(y-1) dx + x^y log(x) dy."""
        over, y = self.over, power.value
        value = over.raise_to(x.value, y)
        slope = over.zero
        if not _is_exactly_zero(x.slope):
            slope = y * over.raise_to(x.value, y + over.lift(-1)) * x.slope
        if not _is_exactly_zero(power.slope):
            slope = slope + value * over.log(x.value) * power.slope
        return Dual(value, _round_outwards(slope))

    def multiply(self, factors: Iterable[Dual]) -> Dual:
        return reduce(_multiply, factors)

    def sign(self, x: Dual) -> int:
        sign = self.over.sign(x.value)
        if sign == 0 and not self.over.is_zero(x.slope):
            raise Tie("0 at this theta, and not 0 nearby")
        return sign

    def is_zero(self, x: Dual) -> bool:
        return self.over.is_zero(x.value) and self.over.is_zero(x.slope)


def _multiply(x: Dual, y: Dual) -> Dual:
    """d(x y) = y dx + x dy, for two numbers of one system."""
    return Dual(_round_outwards(x.value * y.value), _round_outwards(x.slope * y.value + x.value * y.slope))


def _is_exactly_zero(number: Any) -> bool:
    if isinstance(number, Dual):
        return _is_exactly_zero(number.value) and _is_exactly_zero(number.slope)
    return number.lower == number.upper == 0 if isinstance(number, Interval) else number == 0


FLOATS, DIGITS, ENCLOSURES = Floats(), Digits(), Enclosures()


@lru_cache
def build_duals(system: System) -> Duals:
    """Return the dual numbers over a system."""
    return Duals(system)


def find_system(number: Any) -> System:
    """Return the system of a number.

    >>> find_system(Dual(1.0, 2.0)) is build_duals(FLOATS)
    True
    """
    if isinstance(number, Dual):
        return build_duals(find_system(number.value))
    if isinstance(number, Interval):
        return ENCLOSURES
    return FLOATS if isinstance(number, float) else DIGITS
