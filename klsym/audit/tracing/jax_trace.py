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
from klsym.audit.compiled.recording import get_records
from klsym.audit.confirm import Point
from klsym.audit.places import get_watched_files
from klsym.audit.terms import VOCABULARY, Refused, as_rational, mask, sequence_mask, sum_over, token
from klsym.audit.tracing.operations import apply_operation
from klsym.audit.tracing.shapes import GRID, LONGER, find_axes, record_cut, refuse_unless_aligned
from klsym.audit.tracing.torch_run import ON_A_GRID as LAYOUTS
from klsym.audit.tracing.torch_run import Layout, choose_shape
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
def use_double() -> Iterator[None]:
    """Make numbers float64, also shorter floats that the code casts to: a cast is no part of the formula."""
    import jax
    import jax.numpy as jnp

    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        for name in SHORT:
            stack.enter_context(mock.patch.object(jnp, name, jnp.float64))
        yield


def make_argument(name: str, formula: Any, layout: Layout) -> tuple[Any, Any]:
    """Return a formula, and the shape and dtype of its array."""
    import jax

    if formula.has(*VOCABULARY, token, sequence_mask):
        raise Refused("the whole vocabulary, and masks of sequences, are read in PyTorch only")
    dtype = MASKS[layout.mask_type] if formula == mask else "float64"
    with use_double():
        array = jax.ShapeDtypeStruct(choose_shape(formula, layout), dtype)
        return layout.make_formula(formula), _add_token(array) if name in layout.longer else array


def _add_token(array: Any) -> Any:
    import jax

    return jax.ShapeDtypeStruct((array.shape[0], LONGER), array.dtype)


def make_parameter(symbol: Any) -> tuple[Any, Any]:
    import jax

    with use_double():
        return symbol, jax.ShapeDtypeStruct((), "float64")


def trace(call: Callable[[dict[str, Any]], Any], arguments: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Return the formula of what the call returns, and the operations on the way."""
    import jax

    keys = sorted(arguments)
    arrays = {key: arguments[key][1] for key in keys}

    def make_jaxpr(longer: tuple[str, ...] = ()) -> Any:
        longer_arrays = {key: _add_token(arrays[key]) for key in longer}

        def run(values: tuple[Any, ...]) -> tuple[Any, list[Any]]:
            records = get_records()
            start = len(records or ())
            result = call(dict(zip(keys, values, strict=True)))
            return result, [array for _, array in (records or ())[start:]]

        return jax.make_jaxpr(run)(tuple((arrays | longer_arrays)[key] for key in keys))

    with use_double():
        try:
            closed = make_jaxpr()
        except (TypeError, ValueError):
            longer = _find_longer(make_jaxpr, [key for key in keys if arrays[key].shape == GRID])
            if longer is None:
                raise
            raise running.LongerArguments(longer) from None
    journal: list[Any] = []
    origins = [frozenset((key,)) if len(arrays[key].shape) > 1 else frozenset() for key in keys]
    formula, *recorded = _walk(closed, [arguments[key][0] for key in keys], journal, origins)
    if (records := get_records()) is not None:
        places = [place for place, _ in records[len(records) - len(recorded) :]]
        records[:] = zip(places, recorded, strict=True)
    return formula, journal


def _find_longer(traced: Callable[[tuple[str, ...]], Any], names: list[str]) -> frozenset[str] | None:
    """Return the fewest arguments for which one token more makes shapes fit: logp[:, 1:] - ref."""
    for chosen in (c for size in range(1, len(names) + 1) for c in combinations(names[:MOST_SLICED], size)):
        with suppress(TypeError, ValueError):
            traced(chosen)
            return frozenset(chosen)
    return None


def _walk(closed: Any, formulas: list[Any], journal: list[Any], origins: list[frozenset[str]]) -> list[Any]:
    jaxpr, constants = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
    values: dict[Any, Any] = dict(zip(jaxpr.invars, formulas, strict=True))
    made_of: dict[Any, frozenset[str]] = dict(zip(jaxpr.invars, origins, strict=True))
    values.update(
        {variable: _read_constant(value) for variable, value in zip(jaxpr.constvars, constants, strict=True)}
    )

    def find_formula(x: Any) -> Any:
        return _read_constant(x.val) if hasattr(x, "val") else values[x]

    for equation in jaxpr.eqns:
        line = _find_line(equation)
        sources = [frozenset() if hasattr(x, "val") else made_of.get(x, frozenset()) for x in equation.invars]
        made_of.update(dict.fromkeys(equation.outvars, frozenset().union(*sources)))
        try:
            results = _read_equation(equation, [find_formula(x) for x in equation.invars], journal, sources)
            for variable in equation.outvars:
                refuse_unless_aligned(tuple(variable.aval.shape))
        except Refused as refusal:
            raise refusal.add_line(line) from None
        journal += [(equation.primitive.name, line, result) for result in results]
        values.update(dict(zip(equation.outvars, results, strict=True)))
    return [find_formula(x) for x in jaxpr.outvars]


def _read_constant(value: Any) -> Any:
    array = np.asarray(value)
    if array.size == 0 or not bool((array == array.flat[0]).all()):
        raise Refused("an array that is no argument and has more than one value")
    return as_rational(array.flat[0].item())


def _find_line(equation: Any) -> int | None:
    """Return the line of the equation in the user's file."""
    frames = getattr(getattr(equation.source_info, "traceback", None), "frames", ())
    lines = [getattr(f, "line_num", None) for f in frames if f.file_name in get_watched_files()]
    return lines[0] if lines else None


def _read_equation(
    equation: Any, formulas: list[Any], journal: list[Any], origins: list[frozenset[str]]
) -> list[Any]:
    name, options = equation.primitive.name, equation.params
    if "vjp" in name:
        raise Refused("a custom derivative (custom_vjp) is not read")
    inner = next((options[key] for key in INNER if key in options), None)
    if inner is not None:
        return _walk(inner, formulas, journal, origins)
    if name == "slice":
        sizes, strides = equation.invars[0].aval.shape, options["strides"]
        if strides is not None and set(strides) != {1}:
            raise Refused("indexing that takes out a part of a tensor is not read")
        for size, start, stop in zip(sizes, options["start_indices"], options["limit_indices"], strict=True):
            record_cut(size, start, stop, origins[0])
        return [formulas[0]]
    if name == "reduce_sum":
        sizes = equation.invars[0].aval.shape
        return [sum_over(formulas[0], find_axes(sizes[i] for i in options["axes"]))]
    if name == "select_n":
        condition, otherwise, chosen = formulas
        return [apply_operation("where", condition, chosen, otherwise)]
    if name == "clamp":
        low, x, high = formulas
        return [apply_operation("clamp", x, low, high)]
    if name == "convert_element_type" and str(options.get("new_dtype")) == "bool":
        return [apply_operation("bool", *formulas)]
    if name in NUMBERS:
        return [apply_operation("pow", formulas[0], as_rational(options[NUMBERS[name]]))]
    if name in PLAIN:
        return [formulas[0]]
    names = {
        "max": "maximum",
        "min": "minimum",
        "and": "logical_and",
        "or": "logical_or",
        "not": "logical_not",
    }
    return [apply_operation(names.get(name, name), *formulas)]


# ---------------------------------------------------------------------------- running it
def _make_arguments(
    roles: Mapping[str, Any], point: Point, layout: Layout, values: dict[Any, Any]
) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    named = {x.name: v for x, v in values.items()}
    arrays = {}
    for key, formula in roles.items():
        if formula == mask:
            arrays[key] = values[mask].astype(MASKS[layout.mask_type])
        else:
            numbers = layout.make_numbers(formula, named, values[mask])
            arrays[key] = evaluate(formula, numbers, jnp, jax.lax.stop_gradient)
    return fit_layout(arrays, layout)


def fit_layout(arrays: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the arguments with one token more where the layout says so."""
    import jax
    import jax.numpy as jnp

    for key in layout.longer & arrays.keys():
        x, start = arrays[key], layout.cuts.get(key, 0)
        extra = jax.lax.stop_gradient(
            jnp.roll(x[:, :1] if start else x[:, -1:], 1, 0)
        )  # nothing depends on it
        arrays[key] = jnp.concatenate([extra, x] if start else [x, extra], axis=1)
    return arrays


def make_runner(
    call: Callable[[Point, dict[str, Any]], Any], roles: Mapping[str, Any], layout: Layout
) -> Any:
    """Return point -> value and gradient as NumPy arrays, in float64, and no largest number."""
    import jax
    import jax.numpy as jnp

    def run_at(point: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with use_double():
            values = {x: jnp.asarray(layout.convert_values(x, v)) for x, v in point.values.items()}
            leaf = values.get(log_q, jnp.zeros(point.values[mask].shape))

            def sum_loss(x: Any) -> Any:
                inputs = {**values, log_q: x} if log_q in values else values
                value = jnp.asarray(call(point, _make_arguments(roles, point, layout, inputs)), dtype=float)
                return value.sum(), value

            slope, value = jax.grad(sum_loss, has_aux=True)(leaf)
            return np.asarray(value), np.asarray(slope), np.zeros(1)

    return run_at


def find_overflows(
    call: Callable[[Point, dict[str, Any]], Any], roles: Mapping[str, Any], layout: Layout,
    points: Mapping[str, Point],
) -> list[tuple[str, str, str, int | None]]:  # fmt: skip
    """Return (dtype, where, what happened, no line) wherever a number is not finite."""
    import jax
    import jax.numpy as jnp

    problems: list[tuple[str, str, str, int | None]] = []
    for name in ("float32", "bfloat16"):
        for words, point in points.items():
            values = {
                x: jnp.asarray(layout.convert_values(x, v), dtype=name) for x, v in point.values.items()
            }
            if log_q not in values:
                continue

            def sum_loss(x: Any, point: Point = point, values: dict[Any, Any] = values) -> Any:
                value = call(point, _make_arguments(roles, point, layout, {**values, log_q: x}))
                return value.sum(), value

            slope, value = jax.grad(sum_loss, has_aux=True)(values[log_q])
            both = (("the value", value), ("the gradient", slope))
            bad = [w for w, array in both if not bool(jnp.isfinite(array).all())]
            if bad:
                problems.append((name, words, f"{' and '.join(bad)} not finite", None))
    return problems
