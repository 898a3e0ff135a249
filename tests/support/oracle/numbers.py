"""Numbers that carry derivatives along two axes, floats, numbers of fifty digits, or arrays."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

LONG = mpmath.mp.clone()  # of its own: what is judged runs with the digits that users have
LONG.dps = 50


class Undefined(Exception):
    """A mean that a statement names does not exist in a model: the model is outside the statement."""


class Unsupported(Exception):
    """What the oracle has no value for, such as a score function under a gradient."""


class Jet:
    """A value with its derivatives along a, along b, and along both."""

    __slots__ = ("a", "ab", "b", "value")
    __array_ufunc__ = None  # an array times a jet is a jet

    def __init__(self, value: Any, a: Any = 0.0, b: Any = 0.0, ab: Any = 0.0) -> None:
        self.value, self.a, self.b, self.ab = value, a, b, ab

    def __add__(self, other: Any) -> Jet:
        if not isinstance(other, Jet):
            return Jet(self.value + other, self.a, self.b, self.ab)
        return Jet(self.value + other.value, self.a + other.a, self.b + other.b, self.ab + other.ab)

    def __mul__(self, other: Any) -> Jet:
        if not isinstance(other, Jet):
            return Jet(self.value * other, self.a * other, self.b * other, self.ab * other)
        x, y = self, other
        return Jet(
            x.value * y.value,
            x.a * y.value + x.value * y.a,
            x.b * y.value + x.value * y.b,
            x.ab * y.value + x.a * y.b + x.b * y.a + x.value * y.ab,
        )

    def __neg__(self) -> Jet:
        return self * -1

    def __sub__(self, other: Any) -> Jet:
        return self + -other

    def __rsub__(self, other: Any) -> Jet:
        return -self + other

    def __pow__(self, power: int) -> Jet:
        if power < 0:
            inverse = 1 / self.value
            return self.lift(inverse, -(inverse**2), 2 * inverse**3) ** -power
        result = self if power else Jet(self.value * 0 + 1)
        for _ in range(power - 1):
            result = result * self
        return result

    def lift(self, value: Any, first: Any, second: Any) -> Jet:
        """A function of this number, from its value and first two derivatives there."""
        return Jet(value, first * self.a, first * self.b, first * self.ab + second * self.a * self.b)

    def map(self, of: Any) -> Jet:
        """A linear map of arrays, applied to each part; parts that are the number 0 stay."""
        parts = (self.a, self.b, self.ab)
        return Jet(of(self.value), *(of(part) if isinstance(part, np.ndarray) else part for part in parts))

    def __truediv__(self, other: Any) -> Jet:
        return self * (other**-1 if isinstance(other, Jet) else 1 / other)

    __radd__, __rmul__ = __add__, __mul__


def value_of(x: Any) -> Any:
    return x.value if isinstance(x, Jet) else x


def is_plain(x: Any) -> bool:
    """Finite, with all its derivatives."""
    parts = (x.value, x.a, x.b, x.ab) if isinstance(x, Jet) else (x,)
    return all(LONG.isfinite(part) for part in parts)


def exp(x: Any) -> Any:
    if isinstance(x, Jet):
        e = exp(x.value)
        return x.lift(e, e, e)
    if isinstance(x, np.ndarray):
        return np.exp(x)
    return LONG.exp(x) if isinstance(x, LONG.mpf) else math.exp(x)


def sine(x: Any, quarter: int) -> Any:
    """sin(x + quarter pi / 2); at infinity it has no value."""
    if isinstance(x, Jet):
        return x.lift(sine(x.value, quarter), sine(x.value, quarter + 1), sine(x.value, quarter + 2))
    if not LONG.isfinite(x):
        return x * 0
    library = LONG if isinstance(x, LONG.mpf) else math
    plain = library.cos(x) if quarter % 2 else library.sin(x)
    return -plain if quarter % 4 > 1 else plain


def log(x: Any) -> Any:
    """log, minus infinity at 0."""
    if isinstance(x, Jet):
        if not isinstance(x.value, np.ndarray) and x.value == 0:
            return Jet(log(x.value), *[x.value * math.nan] * 3)
        return x.lift(log(x.value), 1 / x.value, -1 / x.value**2)
    if isinstance(x, np.ndarray):
        return np.log(x)
    if x == 0:
        return x - math.inf
    return LONG.log(x) if isinstance(x, LONG.mpf) else math.log(x)


def power(x: Any, y: Any) -> Any:
    """Whole powers by multiplication, others of what is positive."""
    if isinstance(y, int):
        return x**y if y >= 0 or isinstance(x, Jet) else 1 / x**-y
    return exp(log(x) * y)


def choose(where: Any, x: Any, y: Any) -> Jet:
    """x where it holds, else y, with the derivatives of each."""
    x, y = (z if isinstance(z, Jet) else Jet(z) for z in (x, y))
    return Jet(*(np.where(where, p, q) if np.ndim(p) or np.ndim(q) or p != q else p
                 for p, q in zip(*((z.value, z.a, z.b, z.ab) for z in (x, y)), strict=True)))  # fmt: skip


def as_float(x: Fraction | float) -> float:
    return float(x)


def as_long(x: Any) -> Any:
    """A number of fifty digits."""
    return LONG.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else LONG.mpf(x)
