"""Losses on arrays: an expression of the klsym language evaluated in NumPy, PyTorch, JAX, ...

The expression tree is walked node by node; no code is generated.  Numbers stay exact Fractions until
they meet an array, estimators keep their digits near k1 = 0, and sg(.) is whatever the library calls it
(`tensor.detach()`, `jax.lax.stop_gradient`), so that automatic differentiation of the result is a
second route to the gradient.

At ties all libraries follow klsym: the slope of clip is 1 on [lo, hi], of |x| at 0 it is 0, and min and
max share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, reduce
from numbers import Rational, Real
from operator import add, mul
from typing import Any

import sympy
from numpy import broadcast_shapes

from klsym.errors import UsageError
from klsym.language.estimators import Row
from klsym.language.expressions import (
    IN_K1,
    IN_R,
    K1,
    Estimator,
    OfRow,
    Ratio,
    Weight,
    as_expression,
    clip,
    differentiate_in_k1,
    sg,
)

Value = Any  # an array, or an exact Fraction or a float
SERIES_UP_TO = 0.25  # below this |k1| terms as those of k3 cancel, and the power series takes over
MAX_TERMS, ROUNDING = 40, 2.0**-59  # of the series; what is below the rounding of float64
SURPLUS = sympy.Symbol("surplus", real=True)  # r - 1 = expm1(-k1), with all its digits near r = 1


def evaluate(
    loss: Any, values: Mapping[str, Any], xp: Any, stop_gradient: Callable[[Any], Any] = lambda x: x
) -> Any:
    """Return the value of a loss at each sample.

    >>> import numpy as np
    >>> from klsym.language.expressions import k2, rho, sg
    >>> log_q, log_p, log_mu = np.log([[0.5, 0.25], [0.5, 0.5], [0.25, 0.5]])
    >>> values = {"log_q": log_q, "log_p": log_p, "log_mu": log_mu}
    >>> evaluate(sg(rho) * k2, values, np).round(3)
    array([0.  , 0.12])

    loss: SymPy expression of the loss grammar; its derivatives (with `sign` and `Heaviside`) also will do.
    values: name of each symbol (log_q, log_p, log_mu, R, A, parameters) -> real floating array, or a
      number; integers and Fractions are exact.  log densities are in nats.
    xp: the array namespace, as of `array_api_compat.array_namespace`.
    stop_gradient: array -> the same array, held constant; the identity where nothing is differentiated.
    Returns an array: of the shape of the arrays that the loss mentions, broadcast together; a constant
      loss has that of log_q, or of the first array in values.
    Raises UsageError: a symbol without a value or with one that is no number or real array, a node
      outside the grammar, a number without a real value, such as log(lam) at lam = -1.
    """
    walk = _Walk(as_expression(loss), values, xp, stop_gradient)
    return walk.call_or_refuse(_Walk.evaluate_loss, walk.loss)


class _Walk:
    """One evaluation; `value` hands each node to the method for its class."""

    def __init__(self, loss: Any, values: Mapping[str, Any], xp: Any, stop_gradient: Any) -> None:
        self.loss, self.values, self.xp, self.stop_gradient = loss, values, xp, stop_gradient
        self.known: dict[Any, Value] = {}  # estimators and symbols, which come up again and again
        self.shape: tuple[int, ...] = ()

    def evaluate_loss(self, e: Any) -> Any:
        result = self.evaluate_node(e)
        if not _is_number(result):
            return result
        candidates = (self.values.get("log_q"), *self.values.values())
        array = next((value for value in candidates if self.is_floating(value)), None)
        return self.xp.asarray(float(result)) if array is None else self.as_array_like(result, array)

    def evaluate_node(self, e: Any) -> Value:
        if e in self.known:
            return self.known[e]
        for kind in type(e).__mro__:
            if kind in NODES:
                result = self.call_or_refuse(NODES[kind], e)
                if issubclass(kind, sympy.Symbol | Estimator):
                    self.known[e] = result
                return result
        name = str(e) if e.is_Atom else type(e).__name__
        raise UsageError(
            f"{name} cannot be evaluated, in {self.name_loss()}: it is not part of the loss grammar"
        )

    def call_or_refuse(self, method: Callable[[_Walk, Any], Value], e: Any) -> Value:
        """Return what a method returns; Python's own numbers raise where arrays hold nan or infinity."""
        try:
            return method(self, e)
        except UsageError:
            raise
        except (OverflowError, ValueError, ZeroDivisionError):
            raise UsageError(f"{str(e)[:60]} has no finite real value, in {self.name_loss()}") from None

    def name_loss(self) -> str:
        return str(self.loss)[:60]

    # -- atoms --------------------------------------------------------------------------
    def read_symbol(self, e: Any) -> Value:
        if e.name not in self.values:
            raise UsageError(
                f"no value for {e.name}, which {self.name_loss()} needs: pass values[{e.name!r}]"
            )
        value = self.values[e.name]
        if isinstance(value, Real) and not isinstance(value, bool):
            return Fraction(value) if isinstance(value, Rational) else float(value)
        if not _is_array(value):
            kind = type(value).__name__
            raise UsageError(f"values[{e.name!r}]: an array or a number expected, got {kind}")
        if not self.is_floating(value):
            raise UsageError(f"values[{e.name!r}]: real floating numbers expected, got {value.dtype}")
        try:
            self.shape = broadcast_shapes(self.shape, tuple(value.shape))
        except ValueError:
            shapes = f"{tuple(value.shape)} does not fit {self.shape}, the shape of the values before"
            raise UsageError(f"values[{e.name!r}]: shape {shapes}") from None
        return value

    def is_floating(self, value: Any) -> bool:
        return _is_array(value) and bool(self.xp.isdtype(value.dtype, "real floating"))

    def convert_rational(self, e: Any) -> Value:
        return Fraction(int(e.p), int(e.q))

    def convert_euler(self, e: Any) -> Value:
        return math.e

    # -- arithmetic ---------------------------------------------------------------------
    def add_terms(self, e: Any) -> Value:
        return self.combine_values(e.args, add, Fraction(0))

    def multiply_factors(self, e: Any) -> Value:
        return self.combine_values(e.args, mul, Fraction(1))

    def combine_values(
        self, arguments: Any, operation: Callable[[Any, Any], Any], neutral: Fraction
    ) -> Value:
        """Return a sum or product: numbers with numbers first, exactly; the array that remains meets one
        float.
        """
        values = [self.evaluate_node(argument) for argument in arguments]
        number = reduce(operation, filter(_is_number, values), neutral)
        arrays = [value for value in values if not _is_number(value)]
        if not arrays:
            return number
        array = reduce(operation, arrays)
        return array if number == neutral else operation(float(number), array)

    def compute_power(self, e: Any) -> Value:
        base, exponent = self.evaluate_node(e.base), self.evaluate_node(e.exp)
        if _is_number(base) and _is_number(exponent):
            if base < 0 and exponent != int(exponent):
                raise ValueError
            return base**exponent
        if not _is_number(exponent):
            return _as_float(base) ** exponent
        if abs(exponent) == Fraction(1, 2):
            root = self.xp.sqrt(base)
            return root if exponent > 0 else 1.0 / root
        if exponent == int(exponent):
            n = int(exponent)
            return base**n if n > 0 else 1.0 / base**-n
        return base ** float(exponent)

    # -- functions ----------------------------------------------------------------------
    def compute_exp(self, e: Any) -> Value:
        return self.apply_exp(self.evaluate_node(e.args[0]))

    def apply_exp(self, x: Value) -> Value:
        return math.exp(x) if _is_number(x) else self.xp.exp(x)

    def compute_log(self, e: Any) -> Value:
        """Return a log; log r and log rho are differences: exact where the ratio over- or underflows."""
        [inner] = e.args
        if isinstance(inner, Ratio | Weight):
            difference = self.subtract_log_densities(inner)
            return -difference if isinstance(inner, Ratio) else difference
        x = self.evaluate_node(inner)
        return math.log(x) if _is_number(x) else self.xp.log(x)

    def compute_absolute(self, e: Any) -> Value:
        """Return x sign(x), with slope 0 at 0; the slope of JAX's own abs is 1 there."""
        x = self.evaluate_node(e.args[0])
        return abs(x) if _is_number(x) else x * self.xp.sign(x)

    def compute_sign(self, e: Any) -> Value:
        x = self.evaluate_node(e.args[0])
        return Fraction((x > 0) - (x < 0)) if _is_number(x) else self.xp.sign(x)

    def compute_step(self, e: Any) -> Value:
        """Return Heaviside(x, h): 0, h or 1 as x is negative, 0 or positive."""
        x, at_zero = (self.evaluate_node(argument) for argument in e.args)
        if _is_number(x):
            return at_zero if x == 0 else Fraction(int(x > 0))
        below = self.xp.where(x == 0, self.as_array_like(at_zero, x), self.as_array_like(0, x))
        return self.xp.where(x > 0, self.as_array_like(1, x), below)

    def find_minimum(self, e: Any) -> Value:
        return self.find_extreme(e, min, self.xp.minimum)

    def find_maximum(self, e: Any) -> Value:
        return self.find_extreme(e, max, self.xp.maximum)

    def find_extreme(
        self, e: Any, of_numbers: Callable[[Any], Any], of_arrays: Callable[[Any, Any], Any]
    ) -> Value:
        values = [self.evaluate_node(argument) for argument in e.args]
        arrays = [value for value in values if not _is_number(value)]
        numbers = [value for value in values if _is_number(value)]
        if not arrays:
            return of_numbers(numbers)
        array = reduce(of_arrays, arrays)
        return of_arrays(array, self.as_array_like(of_numbers(numbers), array)) if numbers else array

    def compute_clip(self, e: Any) -> Value:
        """Return min(max(x, lo), hi) by comparisons, which keep the slope 1 at both ends."""
        x, lo, hi = (self.evaluate_node(argument) for argument in e.args)
        if all(map(_is_number, (x, lo, hi))):
            return min(max(x, lo), hi)
        like = next(value for value in (x, lo, hi) if not _is_number(value))
        x, lo, hi = (self.as_array_like(value, like) for value in (x, lo, hi))
        raised = self.xp.where(x < lo, lo, x)
        return self.xp.where(raised > hi, hi, raised)

    def detach(self, e: Any) -> Value:
        x = self.evaluate_node(e.args[0])
        return x if _is_number(x) else self.stop_gradient(x)

    def as_array_like(self, x: Value, array: Any) -> Any:
        return self.xp.full_like(array, float(x)) if _is_number(x) else x

    # -- estimators ---------------------------------------------------------------------
    def subtract_log_densities(self, e: Any) -> Value:
        first, second = (self.evaluate_node(argument) for argument in e.args)
        return (
            first - second
            if _is_number(first) == _is_number(second)
            else _as_float(first) - _as_float(second)
        )

    def compute_ratio(self, e: Any) -> Value:
        return self.apply_exp(-self.subtract_log_densities(e))

    def compute_weight(self, e: Any) -> Value:
        return self.apply_exp(self.subtract_log_densities(e))

    def compute_estimator(self, e: Any) -> Value:
        """Return the formula in d = -k1 and r - 1; where its terms cancel, the power series for small d."""
        d, series = -self.subtract_log_densities(e), _expand_series(e.row)
        if not series:
            return self.compute_in_surplus(e, d)
        if _is_number(d):
            return _sum_series(series, float(d)) if abs(d) < SERIES_UP_TO else self.compute_in_surplus(e, d)
        near = self.xp.abs(d) < SERIES_UP_TO
        # the branch that is not chosen sees 0, so that it adds no nan to a gradient
        zero = self.as_array_like(0, d)
        small, far = self.xp.where(near, d, zero), self.xp.where(near, zero, d)
        return self.xp.where(near, _sum_series(series, small), self.compute_in_surplus(e, far))

    def compute_in_surplus(self, e: Any, d: Value) -> Value:
        surplus = math.expm1(d) if _is_number(d) else self.xp.expm1(d)
        values = {IN_K1.name: -d, SURPLUS.name: surplus}
        formula = _Walk(e.row.formula(IN_K1, 1 + SURPLUS), values, self.xp, self.stop_gradient)
        return formula.evaluate_node(formula.loss)


@cache
def _expand_series(row: Row) -> tuple[tuple[int, float], ...]:
    """Return the powers of d = -k1 with their coefficients; empty if no terms cancel or the series is too
    long.

    k3 = d^2/2! + d^3/3! + d^4/4! + ...
    """
    if not row.formula(IN_K1, 1 + SURPLUS).is_Add:
        return ()
    powers: list[tuple[int, float]] = []
    slope = row.formula(IN_K1, IN_R)
    for power in range(MAX_TERMS):
        value = slope.xreplace({IN_K1: sympy.S.Zero, IN_R: sympy.S.One}) * (-1) ** power
        slope = differentiate_in_k1(slope)
        if value:
            powers.append((power, float(value / math.factorial(power))))
            (first, leading), (last, coefficient) = powers[0], powers[-1]
            if abs(coefficient / leading) * SERIES_UP_TO ** (last - first) < ROUNDING:
                return tuple(powers)
    return ()


def _sum_series(series: tuple[tuple[int, float], ...], d: Any) -> Any:
    """Return the sum of a power series, by Horner's scheme."""
    (power, total), *lower_powers = reversed(series)
    for lower, coefficient in lower_powers:
        total, power = total * d ** (power - lower) + coefficient, lower
    return d**power * total


def _is_number(value: Any) -> bool:
    return isinstance(value, Fraction | float)


def _as_float(value: Value) -> Value:
    return float(value) if isinstance(value, Fraction) else value


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, Real)


NODES: dict[type, Callable[[_Walk, Any], Value]] = {
    sympy.Symbol: _Walk.read_symbol,
    sympy.Rational: _Walk.convert_rational,
    type(sympy.E): _Walk.convert_euler,
    sympy.Add: _Walk.add_terms,
    sympy.Mul: _Walk.multiply_factors,
    sympy.Pow: _Walk.compute_power,
    sympy.exp: _Walk.compute_exp,
    sympy.log: _Walk.compute_log,
    sympy.Abs: _Walk.compute_absolute,
    sympy.Min: _Walk.find_minimum,
    sympy.Max: _Walk.find_maximum,
    sympy.sign: _Walk.compute_sign,
    sympy.Heaviside: _Walk.compute_step,
    clip: _Walk.compute_clip,
    sg: _Walk.detach,
    K1: _Walk.subtract_log_densities,
    OfRow: _Walk.compute_estimator,
    Ratio: _Walk.compute_ratio,
    Weight: _Walk.compute_weight,
}
