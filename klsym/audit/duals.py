"""Formulas of a trace with numbers put in: values, and derivatives along every entry of log q.

Arrays have the axes (b, t, v), of size 1 where a value does not depend on one, and slopes one axis more.
Nothing is shared with the code that differentiates symbolically.  Slopes at ties are klsym's: that of clip is
1 on its bounds, min and max share theirs, that of |x| at 0 is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import sympy

from klsym.audit.terms import AXES, Refused, Step, Top, Total
from klsym.audit.tracing.shapes import COUNTS, SIZES
from klsym.language.expressions import Estimator, clip, sg
from klsym.language.sums import OverVocabulary, Whole

Array = Any


@dataclass(frozen=True)
class Dual:
    """A number at each entry, and its slope along each entry of log q; None stands for no slope.

    size, slope_size: the sums of the absolute values of all terms on the way, which bound what rounding does.
    """

    value: Array
    slope: Array = None
    size: Array = None
    slope_size: Array = None

    @property
    def sized(self) -> Array:
        return np.abs(self.value) if self.size is None else self.size

    @property
    def slope_sized(self) -> Array:
        return np.abs(self.slope) if self.slope_size is None and self.slope is not None else self.slope_size

    def along(self, factor: Array, value: Array) -> Dual:
        """The chain rule: a function of this one with that value and derivative."""
        size = np.abs(value) * (1 + self.sized) + np.abs(factor) * self.sized
        if self.slope is None:
            return Dual(value, None, size)
        slope_size = self.slope_sized * (np.abs(factor) * (1 + self.sized))[..., None]
        return Dual(value, self.slope * factor[..., None], size, slope_size)

    def __add__(self, other: Dual) -> Dual:
        sizes = (self.sized + other.sized, _sum(self.slope_sized, other.slope_sized))
        return Dual(self.value + other.value, _sum(self.slope, other.slope), *sizes)

    def __mul__(self, other: Dual) -> Dual:
        slope = _sum(_times(self.slope, other.value), _times(other.slope, self.value))
        slope_size = _sum(_times(self.slope_sized, other.sized), _times(other.slope_sized, self.sized))
        return Dual(self.value * other.value, slope, self.sized * other.sized, slope_size)


def _sum(a: Array, b: Array) -> Array:
    return b if a is None else a if b is None else a + b


def _times(slope: Array, value: Array) -> Array:
    return None if slope is None else slope * value[..., None]


def constant(number: float) -> Dual:
    return Dual(np.full((1, 1, 1), float(number)))


def evaluate(e: Any, values: Mapping[Any, Dual]) -> Dual:
    """The formula e with numbers for its symbols.

    >>> evaluate(2 * sympy.Symbol("x"), {sympy.Symbol("x"): constant(3)}).value.item()
    6.0
    """
    with np.errstate(all="ignore"):
        return _walk(e, {**{s: constant(SIZES[a]) for a, s in COUNTS.items()}, **values})


def _walk(e: Any, values: Mapping[Any, Dual]) -> Dual:
    if e in values:
        return values[e]
    if e.is_number:
        return constant(float(e))
    if isinstance(e, Estimator):
        return _walk(e.definition(), values)
    for kind, rule in RULES.items():
        if isinstance(e, kind):
            return rule(e, [_walk(a, values) for a in e.args if not _is_axes(e, a)])
    raise Refused(f"{e} has no value")


def _is_axes(e: Any, argument: Any) -> bool:
    return isinstance(e, Total) and argument is e.args[1]


def _add(e: Any, parts: list[Dual]) -> Dual:
    return reduce(Dual.__add__, parts)


def _multiply(e: Any, parts: list[Dual]) -> Dual:
    return reduce(Dual.__mul__, parts)


def _power(e: Any, parts: list[Dual]) -> Dual:
    base, exponent = parts
    if e.exp.is_number:
        n = float(e.exp)
        return base.along(n * base.value ** (n - 1), base.value**n)
    found = base.value**exponent.value
    left = base.along(exponent.value * base.value ** (exponent.value - 1), found)
    right = exponent.along(found * np.log(base.value), found)
    sizes = (left.sized + right.sized, _sum(left.slope_sized, right.slope_sized))
    return Dual(found, _sum(left.slope, right.slope), *sizes)


def _exp(e: Any, parts: list[Dual]) -> Dual:
    found = np.exp(parts[0].value)
    return parts[0].along(found, found)


def _log(e: Any, parts: list[Dual]) -> Dual:
    return parts[0].along(1 / parts[0].value, np.log(parts[0].value))


def _abs(e: Any, parts: list[Dual]) -> Dual:
    return parts[0].along(np.sign(parts[0].value), np.abs(parts[0].value))


def _chosen(first: Dual, second: Dual, share: Array) -> Dual:
    """The first with that share, else the second."""
    return first * Dual(share) + second * Dual(1 - share)


def _finite(part: Dual) -> Dual:
    """An overflow of the branch that is not taken is no matter: nan * 0 would be one."""
    slopes = [None if s is None else np.nan_to_num(s) for s in (part.slope, part.slope_sized)]
    return Dual(np.nan_to_num(part.value), slopes[0], np.nan_to_num(part.sized), slopes[1])


def _greatest(e: Any, parts: list[Dual]) -> Dual:
    def pair(a: Dual, b: Dual) -> Dual:
        return _chosen(_finite(a), _finite(b), (1 + np.sign(_finite(a).value - _finite(b).value)) / 2)

    return reduce(pair, parts)


def _least(e: Any, parts: list[Dual]) -> Dual:
    minus = [part * constant(-1) for part in parts]
    return _greatest(e, minus) * constant(-1)


def _clip(e: Any, parts: list[Dual]) -> Dual:
    x, low, high = (_finite(part) for part in parts)
    inside = _chosen(x, low, (x.value >= low.value) * 1.0)
    return _chosen(high, inside, (inside.value > high.value) * 1.0)


def _total(e: Any, parts: list[Dual]) -> Dual:
    [x] = parts
    axes = tuple(AXES.index(a) for a in e.axes)
    shape = tuple(SIZES[AXES[i]] if i in axes else n for i, n in enumerate(x.value.shape))

    def added(values: Array) -> Array:
        if values is None:
            return None
        whole = np.broadcast_shapes(shape, values.shape[:3]) + values.shape[3:]
        return np.broadcast_to(values, whole).sum(axis=axes, keepdims=True)

    return Dual(added(x.value), added(x.slope), added(x.sized), added(x.slope_sized))


def _top(e: Any, parts: list[Dual]) -> Dual:
    """1 at the k largest along the vocabulary; the words that are taken are no function with a slope."""
    x, k = parts[0].value, int(e.args[1])
    least = np.sort(x, axis=-1)[..., -k][..., None]
    return Dual((x >= least) * 1.0)


RULES: dict[Any, Callable[[Any, list[Dual]], Dual]] = {
    sympy.exp: _exp,
    sympy.Add: _add,
    sympy.Mul: _multiply,
    sympy.Pow: _power,
    sympy.log: _log,
    sympy.Abs: _abs,
    sympy.Max: _greatest,
    sympy.Min: _least,
    clip: _clip,
    sg: lambda e, parts: Dual(parts[0].value, None, parts[0].sized),
    Step: lambda e, parts: Dual(np.where(np.isnan(parts[0].value), np.nan, parts[0].value > 0)),
    sympy.Heaviside: lambda e, parts: Dual(np.where(parts[0].value == 0, parts[1].value, parts[0].value > 0)),
    Top: _top,
    **dict.fromkeys((OverVocabulary, Whole), lambda e, parts: parts[0]),  # on both sides, of the same: `same`
    Total: _total,
}
