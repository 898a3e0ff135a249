"""Dual numbers over rational enclosures, and over dual numbers: first and second derivatives, enclosed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from klsym.kernel.intervals import Interval, enclose_exp_of_interval, enclose_log


@dataclass(frozen=True, slots=True)
class Dual:
    """value + slope t with t^2 = 0; both are rational intervals, or both dual numbers in another t.

    >>> x = Dual.from_numbers(Fraction(2), Fraction(1))
    >>> (x ** 3 / x).slope == Interval.from_number(4)
    True
    >>> x = Dual(Dual.from_numbers(2, 1), Dual.from_numbers(3))  # 2 + t + 3 s
    >>> (x ** 3).slope.slope.lower  # d^2 x^3 / ds dt = 6 x x_s x_t
    Fraction(36, 1)

    Source: Fike & Alonso 2011, The development of hyper-dual numbers for exact second derivatives.
    """

    value: Any
    slope: Any

    @staticmethod
    def from_numbers(value: int | Fraction, slope: int | Fraction = 0) -> Dual:
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
        value = self.value.exp() if isinstance(self.value, Dual) else enclose_exp_of_interval(self.value)
        return Dual(value, _round_outwards(value * self.slope))

    def log(self) -> Dual:
        """d log x = dx / x; NumPy's log calls this on object arrays."""
        value = self.value.log() if isinstance(self.value, Dual) else _enclose_log(self.value)
        return Dual(value, _round_outwards(self.value**-1 * self.slope))


def _convert_number(value: int | Fraction, like: Any) -> Any:
    """Return a constant of the same kind as another number."""
    if isinstance(like, Dual):
        return Dual(_convert_number(value, like.value), _convert_number(0, like.value))
    return Interval.from_number(value)


def _match_kinds(a: Dual, b: Any) -> tuple[Any, Any]:
    """Return both as numbers of one kind; None for what is no exact number."""
    if isinstance(b, int | Fraction):
        return a, _convert_number(b, a)
    if not isinstance(b, Dual):
        return a, None
    nested = isinstance(a.value, Dual), isinstance(b.value, Dual)
    if nested[0] == nested[1]:
        return a, b
    return (a, Dual(b, _convert_number(0, b))) if nested[0] else (Dual(a, _convert_number(0, a)), b)


def _enclose_log(x: Interval) -> Interval:
    return Interval(enclose_log(x.lower).lower, enclose_log(x.upper).upper)


def _round_outwards(number: Any) -> Any:
    """Return points as they are, intervals with a width rounded outwards, so that their ends stay short."""
    point = isinstance(number, Dual) or number.lower == number.upper
    return number if point else number.round_outwards()
