"""Two infinitesimals at once, for second derivatives in exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.numeric.dual import Dual
from klsym.numeric.systems import EXACT, System, no_size

ZERO = Dual.of(0)


@dataclass(frozen=True, slots=True)
class Nested:
    """value + slope s with s^2 = 0, both dual numbers in t: x = x00 + x01 t + x10 s + x11 s t.

    >>> x = Nested(Dual.of(2, 1), Dual.of(3))  # 2 + t + 3 s
    >>> (x ** 3).slope.slope.lower  # d^2 x^3 / ds dt = 6 x x_s x_t
    Fraction(36, 1)

    Source: Fike & Alonso 2011, The development of hyper-dual numbers for exact second derivatives.
    """

    value: Dual
    slope: Dual

    def __add__(self, other: Any) -> Nested:
        other = _nested(other)
        if other is NotImplemented:
            return NotImplemented
        return Nested(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other: Any) -> Nested:
        other = _nested(other)
        if other is NotImplemented:
            return NotImplemented
        slope = self.slope * other.value + self.value * other.slope
        return Nested(self.value * other.value, slope)

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, other: Any) -> Nested:
        return self + other * -1

    def __pow__(self, power: int) -> Nested:
        if power == 0:
            return Nested(Dual.of(1), ZERO)
        return Nested(self.value**power, self.value ** (power - 1) * self.slope * power)

    def __truediv__(self, other: Any) -> Nested:
        other = _nested(other)
        return NotImplemented if other is NotImplemented else self * other**-1

    def __rsub__(self, other: Any) -> Nested:
        return self * -1 + other

    def __rtruediv__(self, other: Any) -> Nested:
        return self**-1 * other

    def exp(self) -> Nested:
        value = self.value.exp()
        return Nested(value, value * self.slope)

    def log(self) -> Nested:
        return Nested(self.value.log(), self.slope / self.value)


def _nested(value: Any) -> Any:
    if isinstance(value, Nested):
        return value
    if isinstance(value, int | Fraction):
        return Nested(Dual.of(value), ZERO)
    return Nested(value, ZERO) if isinstance(value, Dual) else NotImplemented


def _lift(values: Any) -> Any:
    if isinstance(values, int | Fraction):
        return _nested(values)
    return np.array([_nested(value) for value in values], dtype=object)


NESTED = System(
    lift=_lift,
    step=_nested(EXACT.step),
    slope=lambda x: Nested(EXACT.slope(x.value), EXACT.slope(x.slope)),
    magnitude=no_size,
    log_magnitude=no_size,
)
OUTER = Nested(ZERO, Dual.of(1))  # the element s
