"""Dual numbers over rational enclosures: a value and its slope, each with an error bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from klsym.kernel.intervals import Interval, exp_of_interval, log_enclosure


@dataclass(frozen=True, slots=True)
class Dual:
    """value + slope t with t^2 = 0, both enclosed in rational intervals.

    >>> x = Dual.of(Fraction(2), Fraction(1))
    >>> (x ** 3 / x).slope == Interval.exact(4)
    True
    """

    value: Interval
    slope: Interval

    @staticmethod
    def of(value: int | Fraction, slope: int = 0) -> Dual:
        return Dual(Interval.exact(value), Interval.exact(slope))

    def __add__(self, other: Any) -> Dual:
        other = _dual(other)
        if other is NotImplemented:
            return NotImplemented
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other: Any) -> Dual:
        other = _dual(other)
        if other is NotImplemented:
            return NotImplemented
        slope = self.slope * other.value + self.value * other.slope
        return Dual(_tidy(self.value * other.value), _tidy(slope))

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, other: Any) -> Dual:
        return self + other * -1

    def __rsub__(self, other: Any) -> Dual:
        return self * -1 + other

    def __pow__(self, power: int) -> Dual:
        """d x^n = n x^(n-1) dx."""
        if power == 0:
            return Dual.of(1)
        slope = Interval.exact(power) * self.value ** (power - 1) * self.slope
        return Dual(_tidy(self.value**power), _tidy(slope))

    def __truediv__(self, other: Any) -> Dual:
        other = _dual(other)
        return NotImplemented if other is NotImplemented else self * other**-1

    def __rtruediv__(self, other: Any) -> Dual:
        return self**-1 * other

    def exp(self) -> Dual:
        """d exp x = exp x dx; NumPy's exp calls this on object arrays."""
        value = exp_of_interval(self.value)
        return Dual(value, _tidy(value * self.slope))

    def log(self) -> Dual:
        """d log x = dx / x; NumPy's log calls this on object arrays."""
        low, high = log_enclosure(self.value.lower), log_enclosure(self.value.upper)
        return Dual(Interval(low.lower, high.upper), _tidy(self.value**-1 * self.slope))


def _dual(value: Any) -> Any:
    if isinstance(value, Dual):
        return value
    return Dual.of(value) if isinstance(value, int | Fraction) else NotImplemented


def _tidy(interval: Interval) -> Interval:
    """Points stay exact; what has a width is rounded outwards, so that its ends stay short."""
    return interval if interval.lower == interval.upper else interval.rounded()
