"""Tracing and running NumPy: values alone, as rewards are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from klsym.audit.compiled.unread import UnreadValue, make_unread, resolve_values
from klsym.audit.confirm import Point
from klsym.audit.places import find_current_line
from klsym.audit.terms import VOCABULARY, Refused, as_rational, mask, sequence_mask, sum_over, token
from klsym.audit.tracing.operations import apply_operation
from klsym.audit.tracing.shapes import count_entries, find_axes, refuse_unless_aligned
from klsym.audit.tracing.torch_run import ON_A_GRID as LAYOUTS
from klsym.audit.tracing.torch_run import Layout, choose_shape
from klsym.numeric.array_losses import evaluate

__all__ = ["LAYOUTS"]
NAMES = {"true_divide": "div", "subtract": "sub", "multiply": "mul", "power": "pow"}
Entry = tuple[str, int | None, Any]
_journal: list[list[Entry]] = []


class TracedArray(NDArrayOperatorsMixin):
    """An array without data that carries a formula."""

    def __init__(self, formula: Any, shape: tuple[int, ...]) -> None:
        refuse_unless_aligned(shape)
        self.formula, self.shape = formula, shape

    ndim = property(lambda self: len(self.shape))
    dtype = np.dtype("float64")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options.get("out"):
            raise Refused(f"{ufunc.__name__} with {method} or out= is not read", find_current_line())
        return _apply_to_arrays(NAMES.get(ufunc.__name__, ufunc.__name__), inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        name = function.__name__
        if name in ("sum", "mean"):
            return _reduce_array(name, *args, **options)
        if name in ("clip", "where", "zeros_like", "ones_like", "copy", "exp", "nan_to_num"):
            return _apply_to_arrays(name, args, options)
        raise Refused(f"the operation {name} is not read", find_current_line())

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Refused("the values of an array that is traced", find_current_line())

    def __bool__(self) -> bool:
        raise Refused("a branch on data is not read", find_current_line())

    def __float__(self) -> float:
        raise Refused("float() of an array is not read", find_current_line())

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        raise Refused("indexing of an array is not read", find_current_line())

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduce_array("sum", self, axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduce_array("mean", self, axis, keepdims=keepdims)

    def clip(self, low: Any = None, high: Any = None) -> Any:
        return _apply_to_arrays("clip", (self, low, high))

    def astype(self, *_: Any, **__: Any) -> Any:
        return self

    copy = astype


def _read_formula(value: Any) -> Any:
    if isinstance(value, UnreadValue):
        [value] = resolve_values([value])
    if isinstance(value, UnreadValue):
        raise value._make_refusal()
    if isinstance(value, TracedArray):
        return value.formula
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.size == 0 or not bool((array == array.flat[0]).all()):
        raise Refused("an array that is no argument and has more than one value", find_current_line())
    return as_rational(array.flat[0].item())


def _apply_to_arrays(name: str, inputs: Any, options: Any = None) -> Any:
    inputs = resolve_values(inputs)
    if any(isinstance(x, UnreadValue) for x in inputs):
        return make_unread(*inputs)
    try:
        formulas = [None if x is None else _read_formula(x) for x in inputs]
        named = {{"a_min": "low", "a_max": "high", "min": "low", "max": "high"}.get(k, k): _read_formula(v)
                 for k, v in (options or {}).items() if v is not None}  # fmt: skip
        formula = apply_operation(name, *formulas, **named)
        result = TracedArray(formula, np.broadcast_shapes(*(getattr(x, "shape", ()) for x in inputs)))
    except Refused as refusal:
        raise refusal.add_line(find_current_line()) from None
    if _journal:
        _journal[-1].append((name, find_current_line(), formula))
    return result


def _reduce_array(
    name: str, x: TracedArray, axis: Any = None, keepdims: bool = False, **_: Any
) -> TracedArray:
    axes = range(len(x.shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    chosen = {a % len(x.shape) for a in axes}
    sizes = [x.shape[a] for a in sorted(chosen)]
    formula = sum_over(x.formula, find_axes(sizes))
    shape = tuple(1 if i in chosen else n for i, n in enumerate(x.shape) if keepdims or i not in chosen)
    return TracedArray(formula / count_entries(sizes) if name == "mean" else formula, shape)


def make_argument(name: str, formula: Any, layout: Layout) -> TracedArray:
    if formula.has(*VOCABULARY, token, sequence_mask):
        raise Refused("the whole vocabulary is read in PyTorch only")
    return TracedArray(layout.make_formula(formula), choose_shape(formula, layout))


def make_parameter(symbol: Any) -> TracedArray:
    return TracedArray(symbol, ())


def trace(call: Callable[[dict[str, Any]], Any], arguments: Mapping[str, Any]) -> tuple[Any, list[Entry]]:
    """Return the formula of what the call returns, and the operations on the way."""
    _journal.append([])
    try:
        return _read_formula(call(dict(arguments))), _journal[-1]
    finally:
        _journal.pop()


def make_runner(
    call: Callable[[Point, dict[str, Any]], Any], roles: Mapping[str, Any], layout: Layout
) -> Any:
    """Return point -> the value, and no gradient."""

    def run_at(point: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        values = {x: layout.convert_values(x, v) for x, v in point.values.items()}
        named = {x.name: v for x, v in values.items()}
        arguments = {
            key: values[mask].astype(layout.mask_type)
            if formula == mask
            else evaluate(formula, layout.make_numbers(formula, named, values[mask]), np)
            for key, formula in roles.items()
        }
        return np.asarray(call(point, arguments), dtype=float), np.zeros(0), np.zeros(1)

    return run_at


def find_overflows(*_: Any) -> list[Any]:
    """Return no overflows: there is no gradient, and NumPy's rewards are in float64."""
    return []
