"""Dual numbers over rational enclosures, and over dual numbers: first and second derivatives, enclosed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from klsym.kernel.intervals import Interval, exp_of_interval, log_enclosure


@dataclass(frozen=True, slots=True)
class Dual:
    """value + slope t with t^2 = 0; both are rational intervals, or both dual numbers in another t.

    >>> x = Dual.of(Fraction(2), Fraction(1))
    >>> (x ** 3 / x).slope == Interval.exact(4)
    True
    >>> x = Dual(Dual.of(2, 1), Dual.of(3))  # 2 + t + 3 s
    >>> (x ** 3).slope.slope.lower  # d^2 x^3 / ds dt = 6 x x_s x_t
    Fraction(36, 1)

    Source: Fike & Alonso 2011, The development of hyper-dual numbers for exact second derivatives.
    """

    value: Any
    slope: Any

    @staticmethod
    def of(value: int | Fraction, slope: int | Fraction = 0) -> Dual:
        return Dual(Interval.exact(value), Interval.exact(slope))

    def __add__(self, other: Any) -> Dual:
        a, b = _alike(self, other)
        return NotImplemented if b is None else Dual(a.value + b.value, a.slope + b.slope)

    def __mul__(self, other: Any) -> Dual:
        a, b = _alike(self, other)
        if b is None:
            return NotImplemented
        return Dual(_tidy(a.value * b.value), _tidy(a.slope * b.value + a.value * b.slope))

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, other: Any) -> Dual:
        return self + other * -1

    def __rsub__(self, other: Any) -> Dual:
        return self * -1 + other

    def __pow__(self, power: int) -> Dual:
        """d x^n = n x^(n-1) dx."""
        if power == 0:
            return _number(1, self)
        slope = _number(power, self.value) * self.value ** (power - 1) * self.slope
        return Dual(_tidy(self.value**power), _tidy(slope))

    def __truediv__(self, other: Any) -> Dual:
        _, b = _alike(self, other)
        return NotImplemented if b is None else self * b**-1

    def __rtruediv__(self, other: Any) -> Dual:
        return self**-1 * other

    def exp(self) -> Dual:
        """d exp x = exp x dx; NumPy's exp calls this on object arrays."""
        value = self.value.exp() if isinstance(self.value, Dual) else exp_of_interval(self.value)
        return Dual(value, _tidy(value * self.slope))

    def log(self) -> Dual:
        """d log x = dx / x; NumPy's log calls this on object arrays."""
        value = self.value.log() if isinstance(self.value, Dual) else _log(self.value)
        return Dual(value, _tidy(self.value**-1 * self.slope))


def _number(value: int | Fraction, like: Any) -> Any:
    """A constant of the same kind as another number."""
    if isinstance(like, Dual):
        return Dual(_number(value, like.value), _number(0, like.value))
    return Interval.exact(value)


def _alike(a: Dual, b: Any) -> tuple[Any, Any]:
    """Both as numbers of one kind; None for what is no exact number."""
    if isinstance(b, int | Fraction):
        return a, _number(b, a)
    if not isinstance(b, Dual):
        return a, None
    nested = isinstance(a.value, Dual), isinstance(b.value, Dual)
    if nested[0] == nested[1]:
        return a, b
    return (a, Dual(b, _number(0, b))) if nested[0] else (Dual(a, _number(0, a)), b)


def _log(x: Interval) -> Interval:
    return Interval(log_enclosure(x.lower).lower, log_enclosure(x.upper).upper)


def _tidy(number: Any) -> Any:
    """Points stay exact; an interval with a width is rounded outwards, so that its ends stay short."""
    point = isinstance(number, Dual) or number.lower == number.upper
    return number if point else number.rounded()
