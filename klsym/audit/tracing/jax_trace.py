"""Tracing and running JAX: the jaxpr of the code, equation by equation, with stop_gradient as it stands
there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import combinations
from typing import Any
from unittest import mock

import numpy as np

from klsym.audit.compiled import running
from klsym.audit.confirm import Point
from klsym.audit.places import files_watched
from klsym.audit.terms import VOCABULARY, Refused, exact, mask, token, total
from klsym.audit.tracing.operations import applied
from klsym.audit.tracing.shapes import GRID, LONGER, axes_of, cut_off, refuse_unless_aligned
from klsym.audit.tracing.torch_run import ON_A_GRID as LAYOUTS
from klsym.audit.tracing.torch_run import Layout, shape_of
from klsym.language.expressions import log_q
from klsym.numeric.array_losses import evaluate

__all__ = ["LAYOUTS"]
INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
NUMBERS = {"integer_pow": "y"}
MOST_SLICED = 6  # arguments that are tried with one token more
PLAIN = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type", "copy", "copy_p",
         "reduce_precision"}  # fmt: skip
MASKS = {"bool": "bool", "float": "float32", "int64": "int32"}
SHORT = ("float32", "float16", "bfloat16")


@contextmanager
def in_double() -> Iterator[None]:
    """Numbers are float64, and so are the shorter floats that the code casts to: a cast is no part of the
    formula."""
    import jax
    import jax.numpy as jnp

    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        for name in SHORT:
            stack.enter_context(mock.patch.object(jnp, name, jnp.float64))
        yield


def argument(name: str, formula: Any, layout: Layout) -> tuple[Any, Any]:
    """A formula, and the shape and dtype of its array."""
    import jax

    if formula in VOCABULARY or formula == token:
        raise Refused("the whole vocabulary is read in PyTorch only")
    dtype = MASKS[layout.mask_type] if formula == mask else "float64"
    with in_double():
        array = jax.ShapeDtypeStruct(shape_of(formula, layout), dtype)
        return layout.traced(formula), _with_one_more_token(array) if name in layout.longer else array


def _with_one_more_token(array: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct((array.shape[0], LONGER), array.dtype)


def parameter_argument(symbol: Any) -> tuple[Any, Any]:
    import jax

    with in_double():
        return symbol, jax.ShapeDtypeStruct((), "float64")


def trace(call: Callable[[dict[str, Any]], Any], arguments: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """The formula of what the call returns, and the operations on the way."""
    import jax

    keys = sorted(arguments)
    arrays = {key: arguments[key][1] for key in keys}

    def traced(longer: tuple[str, ...] = ()) -> Any:
        more = {key: _with_one_more_token(arrays[key]) for key in longer}
        return jax.make_jaxpr(lambda values: call(dict(zip(keys, values, strict=True))))(
            tuple((arrays | more)[key] for key in keys)
        )

    with in_double():
        try:
            closed = traced()
        except (TypeError, ValueError):
            longer = _those_with_one_more(traced, [key for key in keys if arrays[key].shape == GRID])
            if longer is None:
                raise
            raise running.Longer(longer) from None
    journal: list[Any] = []
    origins = [frozenset((key,)) if len(arrays[key].shape) > 1 else frozenset() for key in keys]
    [found] = _walk(closed, [arguments[key][0] for key in keys], journal, origins)
    return found, journal


def _those_with_one_more(traced: Callable[[tuple[str, ...]], Any], names: list[str]) -> frozenset[str] | None:
    """The fewest arguments with which the shapes fit, if these have one token more: logp[:, 1:] - ref."""
    for some in (c for size in range(1, len(names) + 1) for c in combinations(names[:MOST_SLICED], size)):
        with suppress(TypeError, ValueError):
            traced(some)
            return frozenset(some)
    return None


def _walk(closed: Any, given: list[Any], journal: list[Any], origins: list[frozenset[str]]) -> list[Any]:
    jaxpr, constants = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
    known: dict[Any, Any] = dict(zip(jaxpr.invars, given, strict=True))
    made_of: dict[Any, frozenset[str]] = dict(zip(jaxpr.invars, origins, strict=True))
    known.update(
        {variable: _constant(value) for variable, value in zip(jaxpr.constvars, constants, strict=True)}
    )

    def formula(x: Any) -> Any:
        return _constant(x.val) if hasattr(x, "val") else known[x]

    for equation in jaxpr.eqns:
        line = _line(equation)
        of = [frozenset() if hasattr(x, "val") else made_of.get(x, frozenset()) for x in equation.invars]
        made_of.update(dict.fromkeys(equation.outvars, frozenset().union(*of)))
        try:
            results = _equation(equation, [formula(x) for x in equation.invars], journal, of)
            for variable in equation.outvars:
                refuse_unless_aligned(tuple(variable.aval.shape))
        except Refused as refusal:
            raise refusal.at(line) from None
        journal += [(equation.primitive.name, line, result) for result in results]
        known.update(dict(zip(equation.outvars, results, strict=True)))
    return [formula(x) for x in jaxpr.outvars]


def _constant(value: Any) -> Any:
    array = np.asarray(value)
    if array.size == 0 or not bool((array == array.flat[0]).all()):
        raise Refused("an array that is no argument and has more than one value")
    return exact(array.flat[0].item())


def _line(equation: Any) -> int | None:
    """Where the equation stands in the user's file."""
    frames = getattr(getattr(equation.source_info, "traceback", None), "frames", ())
    lines = [getattr(f, "line_num", None) for f in frames if f.file_name in files_watched()]
    return lines[0] if lines else None


def _equation(
    equation: Any, given: list[Any], journal: list[Any], origins: list[frozenset[str]]
) -> list[Any]:
    name, options = equation.primitive.name, equation.params
    if "vjp" in name:
        raise Refused("a custom derivative (custom_vjp) is not read")
    inner = next((options[key] for key in INNER if key in options), None)
    if inner is not None:
        return _walk(inner, given, journal, origins)
    if name == "slice":
        sizes, strides = equation.invars[0].aval.shape, options["strides"]
        if strides is not None and set(strides) != {1}:
            raise Refused("indexing that takes out a part of a tensor is not read")
        for size, start, stop in zip(sizes, options["start_indices"], options["limit_indices"], strict=True):
            cut_off(size, start, stop, origins[0])
        return [given[0]]
    if name == "reduce_sum":
        sizes = equation.invars[0].aval.shape
        return [total(given[0], axes_of(sizes[i] for i in options["axes"]))]
    if name == "select_n":
        condition, otherwise, chosen = given
        return [applied("where", condition, chosen, otherwise)]
    if name == "clamp":
        low, x, high = given
        return [applied("clamp", x, low, high)]
    if name == "convert_element_type" and str(options.get("new_dtype")) == "bool":
        return [applied("bool", *given)]
    if name in NUMBERS:
        return [applied("pow", given[0], exact(options[NUMBERS[name]]))]
    if name in PLAIN:
        return [given[0]]
    names = {
        "max": "maximum",
        "min": "minimum",
        "and": "logical_and",
        "or": "logical_or",
        "not": "logical_not",
    }
    return [applied(names.get(name, name), *given)]


# ---------------------------------------------------------------------------- running it
def _arguments(
    roles: Mapping[str, Any], point: Point, layout: Layout, values: dict[Any, Any]
) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    named = {x.name: v for x, v in values.items()}
    found = {}
    for key, formula in roles.items():
        if formula == mask:
            found[key] = values[mask].astype(MASKS[layout.mask_type])
        else:
            numbers = layout.numbers(formula, named, values[mask])
            found[key] = evaluate(formula, numbers, jnp, jax.lax.stop_gradient)
    for key in layout.longer & found.keys():
        x, start = found[key], layout.cuts.get(key, 0)
        other = jax.lax.stop_gradient(
            jnp.roll(x[:, :1] if start else x[:, -1:], 1, 0)
        )  # nothing depends on it
        found[key] = jnp.concatenate([other, x] if start else [x, other], axis=1)
    return found


def exactly(call: Callable[[Point, dict[str, Any]], Any], roles: Mapping[str, Any], layout: Layout) -> Any:
    """point -> value and gradient as NumPy arrays, in float64, and no largest number."""
    import jax
    import jax.numpy as jnp

    def at(point: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with in_double():
            values = {x: jnp.asarray(layout.shaped(x, v)) for x, v in point.values.items()}
            leaf = values.get(log_q, jnp.zeros(point.values[mask].shape))

            def summed(x: Any) -> Any:
                moved = {**values, log_q: x} if log_q in values else values
                value = jnp.asarray(call(point, _arguments(roles, point, layout, moved)), dtype=float)
                return value.sum(), value

            slope, value = jax.grad(summed, has_aux=True)(leaf)
            return np.asarray(value), np.asarray(slope), np.zeros(1)

    return at


def overflows(
    call: Callable[[Point, dict[str, Any]], Any], roles: Mapping[str, Any], layout: Layout,
    points: Mapping[str, Point],
) -> list[tuple[str, str, str, int | None]]:  # fmt: skip
    """(dtype, where, what happened, no line) for each point and dtype at which something is not finite."""
    import jax
    import jax.numpy as jnp

    found: list[tuple[str, str, str, int | None]] = []
    for name in ("float32", "bfloat16"):
        for words, point in points.items():
            values = {x: jnp.asarray(layout.shaped(x, v), dtype=name) for x, v in point.values.items()}
            if log_q not in values:
                continue

            def summed(x: Any, point: Point = point, values: dict[Any, Any] = values) -> Any:
                value = call(point, _arguments(roles, point, layout, {**values, log_q: x}))
                return value.sum(), value

            slope, value = jax.grad(summed, has_aux=True)(values[log_q])
            both = (("the value", value), ("the gradient", slope))
            bad = [w for w, array in both if not bool(jnp.isfinite(array).all())]
            if bad:
                found.append((name, words, f"{' and '.join(bad)} not finite", None))
    return found
