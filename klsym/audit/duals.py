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
    def magnitude(self) -> Array:
        return np.abs(self.value) if self.size is None else self.size

    @property
    def slope_magnitude(self) -> Array:
        return np.abs(self.slope) if self.slope_size is None and self.slope is not None else self.slope_size

    def apply_chain_rule(self, factor: Array, value: Array) -> Dual:
        """Return a function of this one with that value and derivative, by the chain rule."""
        size = np.abs(value) * (1 + self.magnitude) + np.abs(factor) * self.magnitude
        if self.slope is None:
            return Dual(value, None, size)
        slope_size = self.slope_magnitude * (np.abs(factor) * (1 + self.magnitude))[..., None]
        return Dual(value, self.slope * factor[..., None], size, slope_size)

    def __add__(self, other: Dual) -> Dual:
        sizes = (self.magnitude + other.magnitude, _add_slopes(self.slope_magnitude, other.slope_magnitude))
        return Dual(self.value + other.value, _add_slopes(self.slope, other.slope), *sizes)

    def __mul__(self, other: Dual) -> Dual:
        slope = _add_slopes(
            _multiply_slope(self.slope, other.value), _multiply_slope(other.slope, self.value)
        )
        slope_size = _add_slopes(
            _multiply_slope(self.slope_magnitude, other.magnitude),
            _multiply_slope(other.slope_magnitude, self.magnitude),
        )
        return Dual(self.value * other.value, slope, self.magnitude * other.magnitude, slope_size)


def _add_slopes(a: Array, b: Array) -> Array:
    return b if a is None else a if b is None else a + b


def _multiply_slope(slope: Array, value: Array) -> Array:
    return None if slope is None else slope * value[..., None]


def make_constant(number: float) -> Dual:
    return Dual(np.full((1, 1, 1), float(number)))


def evaluate(e: Any, values: Mapping[Any, Dual]) -> Dual:
    """Return the value of formula e with numbers for its symbols.

    >>> evaluate(2 * sympy.Symbol("x"), {sympy.Symbol("x"): make_constant(3)}).value.item()
    6.0
    """
    with np.errstate(all="ignore"):
        return _walk(e, {**{s: make_constant(SIZES[a]) for a, s in COUNTS.items()}, **values})


def _walk(e: Any, values: Mapping[Any, Dual]) -> Dual:
    if e in values:
        return values[e]
    if e.is_number:
        return make_constant(float(e))
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


def _compute_power(e: Any, parts: list[Dual]) -> Dual:
    base, exponent = parts
    if e.exp.is_number:
        n = float(e.exp)
        return base.apply_chain_rule(n * base.value ** (n - 1), base.value**n)
    value = base.value**exponent.value
    base_part = base.apply_chain_rule(exponent.value * base.value ** (exponent.value - 1), value)
    exponent_part = exponent.apply_chain_rule(value * np.log(base.value), value)
    sizes = (
        base_part.magnitude + exponent_part.magnitude,
        _add_slopes(base_part.slope_magnitude, exponent_part.slope_magnitude),
    )
    return Dual(value, _add_slopes(base_part.slope, exponent_part.slope), *sizes)


def _compute_exp(e: Any, parts: list[Dual]) -> Dual:
    value = np.exp(parts[0].value)
    return parts[0].apply_chain_rule(value, value)


def _compute_log(e: Any, parts: list[Dual]) -> Dual:
    return parts[0].apply_chain_rule(1 / parts[0].value, np.log(parts[0].value))


def _compute_abs(e: Any, parts: list[Dual]) -> Dual:
    return parts[0].apply_chain_rule(np.sign(parts[0].value), np.abs(parts[0].value))


def _choose_by_share(first: Dual, second: Dual, share: Array) -> Dual:
    """Return share * first + (1 - share) * second."""
    return first * Dual(share) + second * Dual(1 - share)


def _replace_infinite(part: Dual) -> Dual:
    """Return finite numbers: nan * 0 is nan, and would make an overflow of the other branch count."""
    slopes = [None if s is None else np.nan_to_num(s) for s in (part.slope, part.slope_magnitude)]
    return Dual(np.nan_to_num(part.value), slopes[0], np.nan_to_num(part.magnitude), slopes[1])


def _find_greatest(e: Any, parts: list[Dual]) -> Dual:
    def choose_greater(a: Dual, b: Dual) -> Dual:
        return _choose_by_share(
            _replace_infinite(a),
            _replace_infinite(b),
            (1 + np.sign(_replace_infinite(a).value - _replace_infinite(b).value)) / 2,
        )

    return reduce(choose_greater, parts)


def _find_least(e: Any, parts: list[Dual]) -> Dual:
    minus = [part * make_constant(-1) for part in parts]
    return _find_greatest(e, minus) * make_constant(-1)


def _clip(e: Any, parts: list[Dual]) -> Dual:
    x, low, high = (_replace_infinite(part) for part in parts)
    inside = _choose_by_share(x, low, (x.value >= low.value) * 1.0)
    return _choose_by_share(high, inside, (inside.value > high.value) * 1.0)


def _sum_axes(e: Any, parts: list[Dual]) -> Dual:
    [x] = parts
    axes = tuple(AXES.index(a) for a in e.axes)
    shape = tuple(SIZES[AXES[i]] if i in axes else n for i, n in enumerate(x.value.shape))

    def sum_array(values: Array) -> Array:
        if values is None:
            return None
        whole = np.broadcast_shapes(shape, values.shape[:3]) + values.shape[3:]
        return np.broadcast_to(values, whole).sum(axis=axes, keepdims=True)

    return Dual(sum_array(x.value), sum_array(x.slope), sum_array(x.magnitude), sum_array(x.slope_magnitude))


def _mark_top(e: Any, parts: list[Dual]) -> Dual:
    """Return 1 at the k largest along the vocabulary; the choice of words has no slope."""
    x, k = parts[0].value, int(e.args[1])
    threshold = np.sort(x, axis=-1)[..., -k][..., None]
    return Dual((x >= threshold) * 1.0)


RULES: dict[Any, Callable[[Any, list[Dual]], Dual]] = {
    sympy.exp: _compute_exp,
    sympy.Add: _add,
    sympy.Mul: _multiply,
    sympy.Pow: _compute_power,
    sympy.log: _compute_log,
    sympy.Abs: _compute_abs,
    sympy.Max: _find_greatest,
    sympy.Min: _find_least,
    clip: _clip,
    sg: lambda e, parts: Dual(parts[0].value, None, parts[0].magnitude),
    Step: lambda e, parts: Dual(np.where(np.isnan(parts[0].value), np.nan, parts[0].value > 0)),
    sympy.Heaviside: lambda e, parts: Dual(np.where(parts[0].value == 0, parts[1].value, parts[0].value > 0)),
    Top: _mark_top,
    **dict.fromkeys((OverVocabulary, Whole), lambda e, parts: parts[0]),  # on both sides of `is_same_loss`
    Total: _sum_axes,
}
