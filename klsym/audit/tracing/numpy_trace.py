"""Tracing and running NumPy: values alone, as rewards are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from klsym.audit.compiled.unread import Unread, settled, unread
from klsym.audit.confirm import Point
from klsym.audit.places import here
from klsym.audit.terms import VOCABULARY, Refused, exact, mask, token, total
from klsym.audit.tracing.operations import applied
from klsym.audit.tracing.shapes import axes_of, count_of, refuse_unless_aligned
from klsym.audit.tracing.torch_run import ON_A_GRID as LAYOUTS
from klsym.audit.tracing.torch_run import Layout, shape_of
from klsym.numeric.array_losses import evaluate

__all__ = ["LAYOUTS"]
NAMES = {"true_divide": "div", "subtract": "sub", "multiply": "mul", "power": "pow"}
Entry = tuple[str, int | None, Any]
_journal: list[list[Entry]] = []


class Traced(NDArrayOperatorsMixin):
    """An array without data that carries a formula."""

    def __init__(self, formula: Any, shape: tuple[int, ...]) -> None:
        refuse_unless_aligned(shape)
        self.formula, self.shape = formula, shape

    ndim = property(lambda self: len(self.shape))
    dtype = np.dtype("float64")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options.get("out"):
            raise Refused(f"{ufunc.__name__} with {method} or out= is not read", here())
        return _made(NAMES.get(ufunc.__name__, ufunc.__name__), inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        name = function.__name__
        if name in ("sum", "mean"):
            return _reduced(name, *args, **options)
        if name in ("clip", "where", "zeros_like", "ones_like", "copy", "exp", "nan_to_num"):
            return _made(name, args, options)
        raise Refused(f"the operation {name} is not read", here())

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Refused("the values of an array that is traced", here())

    def __bool__(self) -> bool:
        raise Refused("a branch on data is not read", here())

    def __float__(self) -> float:
        raise Refused("float() of an array is not read", here())

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        raise Refused("indexing of an array is not read", here())

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduced("sum", self, axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduced("mean", self, axis, keepdims=keepdims)

    def clip(self, low: Any = None, high: Any = None) -> Any:
        return _made("clip", (self, low, high))

    def astype(self, *_: Any, **__: Any) -> Any:
        return self

    copy = astype


def _formula(value: Any) -> Any:
    if isinstance(value, Unread):
        [value] = settled([value])
    if isinstance(value, Unread):
        raise value._causes[0]
    if isinstance(value, Traced):
        return value.formula
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.size == 0 or not bool((array == array.flat[0]).all()):
        raise Refused("an array that is no argument and has more than one value", here())
    return exact(array.flat[0].item())


def _made(name: str, inputs: Any, options: Any = None) -> Any:
    inputs = settled(inputs)
    if any(isinstance(x, Unread) for x in inputs):
        return unread(*inputs)
    try:
        given = [None if x is None else _formula(x) for x in inputs]
        named = {{"a_min": "low", "a_max": "high", "min": "low", "max": "high"}.get(k, k): _formula(v)
                 for k, v in (options or {}).items() if v is not None}  # fmt: skip
        found = applied(name, *given, **named)
        made = Traced(found, np.broadcast_shapes(*(getattr(x, "shape", ()) for x in inputs)))
    except Refused as refusal:
        raise refusal.at(here()) from None
    if _journal:
        _journal[-1].append((name, here(), found))
    return made


def _reduced(name: str, x: Traced, axis: Any = None, keepdims: bool = False, **_: Any) -> Traced:
    axes = range(len(x.shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    chosen = {a % len(x.shape) for a in axes}
    sizes = [x.shape[a] for a in sorted(chosen)]
    found = total(x.formula, axes_of(sizes))
    left = tuple(1 if i in chosen else n for i, n in enumerate(x.shape) if keepdims or i not in chosen)
    return Traced(found / count_of(sizes) if name == "mean" else found, left)


def argument(name: str, formula: Any, layout: Layout) -> Traced:
    if formula in VOCABULARY or formula == token:
        raise Refused("the whole vocabulary is read in PyTorch only")
    return Traced(layout.traced(formula), shape_of(formula, layout))


def parameter_argument(symbol: Any) -> Traced:
    return Traced(symbol, ())


def trace(call: Callable[[dict[str, Any]], Any], arguments: Mapping[str, Any]) -> tuple[Any, list[Entry]]:
    """The formula of what the call returns, and the operations on the way."""
    _journal.append([])
    try:
        return _formula(call(dict(arguments))), _journal[-1]
    finally:
        _journal.pop()


def exactly(call: Callable[[Point, dict[str, Any]], Any], roles: Mapping[str, Any], layout: Layout) -> Any:
    """point -> the value, and no gradient."""

    def at(point: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        values = {x: layout.shaped(x, v) for x, v in point.values.items()}
        named = {x.name: v for x, v in values.items()}
        found = {
            key: values[mask].astype(layout.mask_type)
            if formula == mask
            else evaluate(formula, layout.numbers(formula, named, values[mask]), np)
            for key, formula in roles.items()
        }
        return np.asarray(call(point, found), dtype=float), np.zeros(0), np.zeros(1)

    return at


def overflows(*_: Any) -> list[Any]:
    """Not looked for: there is no gradient, and NumPy's rewards are in float64."""
    return []
