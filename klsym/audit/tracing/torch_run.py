"""Running real PyTorch code: in float64 to confirm a trace, in short floats to see where it overflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import sympy

from klsym.audit.compiled.unread import UnreadValue, resolve_values
from klsym.audit.confirm import Point
from klsym.audit.places import find_current_line
from klsym.audit.terms import VOCABULARY, Refused, Total, mask, offsets, sequence_mask, sum_over, token
from klsym.audit.tracing.shapes import GRID, LONGER, ROWS, WORDS
from klsym.audit.tracing.torch_tensor import is_traced, make_traced, read_formula
from klsym.audit.tracing.torch_trace import Entry, call_with_unread, open_journal
from klsym.language.expressions import DENSITIES, A, R, log_q, unfold
from klsym.language.sums import Whole
from klsym.numeric.array_losses import evaluate

CASTS = {"float", "half", "bfloat16", "to", "type", "type_as"}
MASK_TYPES = ("bool", "float", "int64")


@dataclass(frozen=True)
class Layout:
    """How arguments look: the dtype of masks, and whether rewards have one number a sequence.

    by_rows: one number; constant: the same number at each of its tokens.  summed: log densities have one
    number a sequence too, their sums over its tokens.  flat: the tokens of all sequences lie on one axis.

    longer: arguments that have one token more; cuts: at which token of them the others begin, 0 or 1.
    """

    mask_type: str = "bool"
    by_rows: bool = False
    constant: bool = False
    flat: bool = False
    summed: bool = False
    longer: frozenset[str] = frozenset()
    cuts: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def rows(self) -> frozenset[Any]:
        return frozenset((R, A)) if self.by_rows or self.constant else frozenset()

    def convert_values(self, x: Any, v: np.ndarray) -> np.ndarray:
        """Return the values of a symbol at a point, as this layout has them."""
        if x not in self.rows or v.ndim < 2:
            return v
        return v[..., 0] if self.by_rows else np.broadcast_to(v, GRID)

    @property
    def sequence_layout(self) -> Layout:
        """The layout with one number a sequence for rewards and log densities."""
        return replace(self, by_rows=True, constant=False, summed=True)

    def is_token_sum(self, formula: Any) -> bool:
        """Does this layout have the log densities of a role summed over the tokens of a sequence?"""
        symbols = unfold(formula).free_symbols
        return self.summed and bool(symbols & {*DENSITIES}) and not formula.has(Whole, *VOCABULARY)

    def make_formula(self, formula: Any) -> Any:
        """Return the formula of an argument: one number a sequence is a sum over its tokens."""
        if formula == offsets:
            raise Refused("the places where packed sequences begin are not read")
        if formula == sequence_mask:
            return sympy.S.One
        plain = expand_whole_sums(formula)
        return (
            plain.xreplace({x: sum_over(mask * x, "t") for x in DENSITIES})
            if self.is_token_sum(formula)
            else plain
        )

    def make_numbers(self, formula: Any, values: Mapping[str, Any], counted: Any) -> Mapping[str, Any]:
        """Return the values of the symbols of a role, by name; counted: the mask as numbers."""
        if not self.is_token_sum(formula):
            return values
        return {
            **values,
            **{x.name: (values[x.name] * counted).sum(1) for x in DENSITIES if x.name in values},
        }

    def move_rewards_out(self, formula: Any) -> Any:
        """Return sum_t A x = A sum_t x, where A is the same at all tokens."""
        return _move_rewards_out(formula) if self.constant else formula

    def refuse_without_rewards(self, formula: Any, loss: Any) -> None:
        """Raise Refused if rewards cancel only because all tokens of a sequence have the same one here."""
        if self.constant and formula.free_symbols & {A, R} and not unfold(loss).free_symbols & {A, R}:
            raise Refused("rewards cancel if they are the same at all tokens of a sequence")


def _move_rewards_out(e: Any) -> Any:
    """Move R and A before each sum over the tokens of a sequence.

    >>> _move_rewards_out(sum_over(A * mask, "t"))
    A*Total(mask, t)
    """
    if isinstance(e, sympy.Atom) or not e.has(Total):
        return e
    result = e.func(*map(_move_rewards_out, e.args))
    if not isinstance(result, Total) or result.axes != "t":
        return result
    factors = sympy.Mul.make_args(result.args[0])
    fixed = [f for f in factors if f in (A, R)]
    return sympy.Mul(*fixed) * sum_over(sympy.Mul(*(f for f in factors if f not in fixed)), "t")


ON_A_GRID = tuple(Layout(m, *rewards) for rewards in ((), (True,), (False, True)) for m in MASK_TYPES)
LAYOUTS = (*ON_A_GRID, *(Layout(m, flat=True) for m in MASK_TYPES))


def expand_whole_sums(formula: Any) -> Any:
    """Replace whole(x), one number a sequence, by a sum over its tokens."""
    return unfold(formula).replace(lambda e: isinstance(e, Whole), lambda e: sum_over(mask * e.args[0], "t"))


def choose_shape(formula: Any, layout: Layout) -> tuple[int, ...]:
    symbols = unfold(formula).free_symbols
    if formula.has(Whole) or formula == sequence_mask or layout.is_token_sum(formula):
        return ROWS
    shape = WORDS if symbols & set(VOCABULARY) else GRID
    if layout.flat:
        return (GRID[0] * GRID[1], *shape[2:])
    return ROWS if layout.by_rows and symbols and symbols <= layout.rows else shape


def make_argument(name: str, formula: Any, layout: Layout) -> Any:
    """Return a traced argument."""
    import torch

    dtypes = {mask: layout.mask_type, sequence_mask: layout.mask_type, token: "int64"}
    dtype = getattr(torch, dtypes.get(formula, "float32"))
    shape = choose_shape(formula, layout)
    if name in layout.longer:
        shape = (shape[0], LONGER, *shape[2:])
    return make_traced(
        layout.make_formula(formula),
        shape,
        dtype,
        origins=frozenset((name,)) if len(shape) > 1 else frozenset(),
    )


def make_parameter(symbol: Any) -> Any:
    return make_traced(symbol, ())


def trace(call: Callable[[dict[str, Any]], Any], arguments: Mapping[str, Any]) -> tuple[Any, list[Entry]]:
    """Return the formula of what the call returns, and the operations on the way."""
    with open_journal() as journal:
        [result] = resolve_values([call(dict(arguments))])
        if is_traced(result) and result.selected is not None:
            raise Refused("what is returned is a selection by a mask, which nothing sums")
        return read_formula(result), journal


class Number(float):
    """The value of a parameter, with the methods of a tensor, which some code calls."""

    def __getattr__(self, name: str) -> Any:
        import torch

        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.tensor(float(self), dtype=torch.float64), name)


def _make_operator(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def apply_operator(self: Number, *others: Any) -> Any:
        result = plain(self, *others)
        return Number(result) if type(result) is float else result

    return apply_operator


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Number, f"__{_name}__", _make_operator(f"__{_name}__"))
    setattr(Number, f"__r{_name}__", _make_operator(f"__r{_name}__"))
for _name in ("neg", "abs"):
    setattr(Number, f"__{_name}__", _make_operator(f"__{_name}__"))


# ---------------------------------------------------------------------------- real tensors
def make_real_arguments(
    roles: Mapping[str, Any], point: Point, layout: Layout, dtype: Any
) -> tuple[dict[str, Any], Any]:
    """Return the arguments as real tensors, and the leaf of the gradients: log q, or the logits."""
    import torch
    from array_api_compat import torch as xp

    def make_tensor(value: Any) -> Any:
        return torch.tensor(np.array(value), dtype=dtype)

    values = {x: make_tensor(layout.convert_values(x, v)) for x, v in point.values.items()}
    over_vocabulary = any(f.has(*VOCABULARY) for f in roles.values())
    logits = {x: make_tensor(z) for x, z in point.logits.items()}
    [every] = [x for x, density in VOCABULARY.items() if density == log_q]
    leaf = logits[every] if over_vocabulary else values.get(log_q, make_tensor(np.zeros(GRID)))
    leaf.requires_grad_()
    logs = {x: torch.log_softmax(z, dim=-1) for x, z in logits.items()}
    if over_vocabulary:
        picks = torch.as_tensor(point.picks)[..., None]
        values.update({density: logs[x].gather(-1, picks)[..., 0] for x, density in VOCABULARY.items()})
    named = {x.name: v for x, v in values.items()} | {x.name: v for x, v in logs.items()}

    def evaluate_role(formula: Any) -> Any:
        if formula == mask:
            return values[mask].to(getattr(torch, layout.mask_type))
        if formula == sequence_mask:
            return torch.ones(ROWS, dtype=getattr(torch, layout.mask_type))
        if formula == token:
            return torch.as_tensor(point.picks)
        if formula in VOCABULARY:
            return logs[formula]
        if formula.has(Whole):
            inside = formula.replace(lambda e: isinstance(e, Whole), lambda e: e.args[0])
            return (evaluate(inside, named, xp, lambda t: t.detach()) * values[mask]).sum(dim=1)
        return evaluate(formula, layout.make_numbers(formula, named, values[mask]), xp, lambda t: t.detach())

    arguments = {key: evaluate_role(formula) for key, formula in roles.items()}
    return fit_layout(arguments, layout), leaf


def fit_layout(arguments: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the arguments on one axis, or with one token more, where the layout says so."""
    if layout.flat:
        arguments = {key: value.reshape(-1, *value.shape[2:]) for key, value in arguments.items()}
    for key in layout.longer & arguments.keys():
        arguments[key] = _add_token(arguments[key], layout.cuts.get(key, 0))
    return arguments


def _add_token(x: Any, start: int) -> Any:
    """Add a token that nothing may depend on; it has the values of a neighbour."""
    import torch

    if start:
        return torch.cat([x[:, :1].detach().roll(1, 0), x], dim=1)
    return torch.cat([x, x[:, -1:].detach().roll(1, 0)], dim=1)


def run(call: Callable[[dict[str, Any]], Any], arguments: dict[str, Any], leaf: Any) -> tuple[Any, Any]:
    """Return the value and the gradient of its sum."""
    import torch

    with keep_on_cpu():
        value = call(arguments)
    if not isinstance(value, torch.Tensor):
        value = torch.as_tensor(float(value), dtype=leaf.dtype)
    if not value.requires_grad:
        return value, torch.zeros_like(leaf)
    [slope] = torch.autograd.grad(value.sum(), [leaf], allow_unused=True, materialize_grads=True)
    return value, slope


def make_runner(
    call: Callable[[Point, dict[str, Any]], Any], roles: Mapping[str, Any], layout: Layout
) -> Any:
    """Return point -> float64 value and gradient as NumPy arrays, and the largest number at each token."""
    import torch

    def run_at(point: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        arguments, leaf = make_real_arguments(roles, point, layout, torch.float64)
        with use_double(), make_watching_mode() as watching:
            value, slope = run(partial(call, point), arguments, leaf)
        if tuple(value.shape) == GRID[::-1]:
            value = value.t()
        return value.detach().double().numpy(), slope.detach().numpy(), watching.largest.numpy()

    return run_at


@contextmanager
def keep_on_cpu() -> Iterator[None]:
    """Where all tensors are is what code that asks for the current GPU gets."""
    import torch

    with mock.patch.object(torch.cuda, "current_device", lambda: "cpu"):
        yield


@contextmanager
def use_double() -> Iterator[None]:
    """Compute in float64, casts to shorter floats left out."""
    import torch

    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of counts with a number added: mask.sum() + 1e-8
    try:
        with torch.enable_grad(), _make_double_mode():
            yield
    finally:
        torch.set_default_dtype(usual)


def _make_double_mode() -> Any:
    """Return a mode of PyTorch that computes in float64."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Double(TorchFunctionMode):  # type: ignore[misc]
        """Casts between floats are left out."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            options = dict(kwargs or {})
            if any(isinstance(x, UnreadValue) for x in (*args, *options.values())):
                return call_with_unread(func, args, options)
            if getattr(options.get("dtype"), "is_floating_point", False):
                options["dtype"] = torch.float64
            with torch._C.DisableTorchFunction():
                result = func(*args, **options)
                if name in CASTS and isinstance(result, torch.Tensor) and result.is_floating_point():
                    double = getattr(args[0], "dtype", None) == torch.float64
                    return args[0] if double else result.double()
            return result

    return Double()


def make_watching_mode(axis: int = 0) -> Any:
    """Return a mode of PyTorch that keeps the largest number at each token.

    axis: the size of an axis with the tokens of all sequences, which nothing may pair with itself; 0: none.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Watching(TorchFunctionMode):  # type: ignore[misc]
        largest = torch.zeros(GRID, dtype=torch.float64)

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if isinstance(result, torch.Tensor) and result.is_floating_point() and name not in CASTS:
                with torch._C.DisableTorchFunction():
                    self.keep(result.detach())
            return result

        def keep(self, result: Any) -> None:
            """Keep the largest size: at each token of the grid; of anything else, at all tokens."""
            if axis and tuple(result.shape).count(axis) > 1:
                raise Refused("tokens are paired with tokens by broadcasting")
            size = result.abs().nan_to_num(nan=0.0)
            size = size.amax(dim=-1) if tuple(size.shape) == WORDS else size
            if size.numel():
                self.largest = torch.maximum(self.largest, size if tuple(size.shape) == GRID else size.amax())

    return Watching()


# ---------------------------------------------------------------------------- short floats
def find_overflows(
    call: Callable[[Point, dict[str, Any]], Any],
    roles: Mapping[str, Any],
    layout: Layout,
    points: Mapping[str, Point],
) -> list[tuple[str, str, str, int | None]]:
    """Return (dtype, where, what happened, line) wherever a number is not finite."""
    import torch

    problems: list[tuple[str, str, str, int | None]] = []
    for name in ("float32", "bfloat16"):
        for words, point in points.items():
            arguments, leaf = make_real_arguments(roles, point, layout, getattr(torch, name))
            if not all(bool(torch.isfinite(t).all()) for t in arguments.values()):
                continue  # what is mapped overflows, not the code
            with FirstLoss() as first:
                try:
                    value, slope = run(partial(call, point), arguments, leaf)
                except RuntimeError as error:
                    problems.append((name, words, f"fails: {str(error).splitlines()[0][:100]}", None))
                    break
            bad = [
                w
                for w, t in (("the value", value), ("the gradient", slope))
                if not bool(torch.isfinite(t).all())
            ]
            if bad:
                kinds = {"nan" if bool(torch.isnan(t).any()) else "infinite" for t in (value, slope)
                         if not bool(torch.isfinite(t).all())}  # fmt: skip
                at = f", first at {first.name}" if first.name else ""
                problems.append(
                    (name, words, f"{' and '.join(bad)} {'/'.join(sorted(kinds))}{at}", first.line)
                )
    return problems


class FirstLoss:
    """The first operation whose result is not finite though its arguments were."""

    def __init__(self) -> None:
        self.name = ""
        self.line: int | None = None

    def __enter__(self) -> FirstLoss:
        import torch
        from torch.overrides import TorchFunctionMode

        outer = self

        class Watching(TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                bad = isinstance(result, torch.Tensor) and result.is_floating_point() and not outer.name
                if bad and not bool(torch.isfinite(result).all()):
                    outer.name, outer.line = getattr(func, "__name__", "").strip("_"), find_current_line()
                return result

        self.mode = Watching()
        self.mode.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self.mode.__exit__(*details)
