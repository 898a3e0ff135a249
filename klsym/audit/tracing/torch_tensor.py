"""A tensor of PyTorch without data that carries a formula.

It is a meta tensor, so that shapes, dtypes and isinstance work.  PyTorch hands every function and method that
meets one to `__torch_function__`, which asks `torch_trace`.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from klsym.audit.compiled.unread import Unread
from klsym.audit.terms import Refused, Top, exact
from klsym.audit.tracing.shapes import refuse_unless_aligned


@cache
def traced_class() -> Any:
    """The tensor class, made when PyTorch is loaded."""
    import torch

    class Traced(torch.Tensor):  # type: ignore[misc]
        formula: Any
        selected: Any  # the mask that has been applied by indexing, or the words of topk in the last axis
        origins: frozenset[str]  # the arguments that it is made of

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            from klsym.audit.tracing.torch_trace import dispatch

            with torch._C.DisableTorchFunctionSubclass():
                return dispatch(func, args, dict(kwargs or {}))

        def __repr__(self, *_: Any, **__: Any) -> str:  # type: ignore[override]
            return "<a tensor that is traced>"

        def __format__(self, form: str) -> str:
            return "nan"

    return Traced


def traced(
    formula: Any, shape: tuple[int, ...], dtype: Any = None, selected: Any = None,
    origins: frozenset[str] = frozenset(),
) -> Any:  # fmt: skip
    """A tensor of this shape that stands for a formula."""
    import torch

    refuse_unless_aligned(shape)
    made = torch.empty(shape, device="meta", dtype=dtype or torch.float32).as_subclass(traced_class())
    made.formula, made.selected, made.origins = formula, selected, origins
    return made


def is_traced(value: Any) -> bool:
    return not isinstance(value, Unread) and hasattr(value, "formula")


def formula_of(value: Any) -> Any:
    """The formula of an argument: a traced tensor, a number, or a tensor of one value."""
    import torch

    if is_traced(value):
        return value.formula
    if isinstance(value, Unread):
        raise value._causes[0]
    if isinstance(value, torch.Tensor):
        if value.is_meta or value.numel() == 0 or not bool((value == value.flatten()[0]).all()):
            raise Refused("a tensor that is no argument and has more than one value")
        return exact(value.flatten()[0].item(), infinite=True)
    if isinstance(value, bool | int | float):
        return exact(value, infinite=True)
    raise Refused(f"{type(value).__name__} where a tensor or a number is expected")


def lifted(x: Any) -> Any:
    """A tensor that was made here, as one that is traced."""
    return x if is_traced(x) else traced(formula_of(x), tuple(x.shape), x.dtype)


def origins_of(*values: Any) -> frozenset[str]:
    """The arguments that tensors, also those in lists, are made of."""
    found: frozenset[str] = frozenset()
    for value in values:
        inner = value if isinstance(value, tuple | list) else [value]
        found = found.union(*(getattr(one, "origins", frozenset()) for one in inner))
    return found


def bare(value: Any) -> Any:
    """The same without a formula, on which PyTorch computes shapes."""
    import torch

    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    return type(value)(map(bare, value)) if type(value) in (tuple, list) else value


def shape_of(func: Any, name: str, args: Any, options: dict[str, Any]) -> SimpleNamespace:
    """The shape and dtype of the result, which PyTorch computes without data."""
    import torch

    if name in ("cpu", "cuda", "to") and len(args) < 3:
        args = [a for a in args if not isinstance(a, str | torch.device)]
        if name != "to" or (len(args) == 1 and "dtype" not in options):
            return SimpleNamespace(shape=tuple(args[0].shape), dtype=args[0].dtype)
    kept = {k: bare(v) for k, v in options.items() if k not in ("device", "non_blocking", "copy")}
    try:
        found = func(*(bare(a) for a in args), **kept)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        refusal = Refused(f"{name}: {str(error).splitlines()[0][:160]}")
        refusal.of_shape = True
        raise refusal from None
    if found is NotImplemented:
        others = {type(a).__name__ for a in args if not isinstance(a, torch.Tensor)}
        raise Refused(f"{name} of a tensor and {' or '.join(sorted(others))}")
    return SimpleNamespace(shape=tuple(found.shape), dtype=found.dtype)


def selection(tensors: list[Any]) -> Any:
    """What all of them have been taken out by."""
    chosen = {t.selected for t in tensors if t.selected is not None or t.dim()}
    if len(chosen - {None}) < len(chosen) and all(isinstance(c, Top) for c in chosen - {None}):
        chosen -= {None}  # what is the same for all words: shapes refuse the others
    if len(chosen) > 1:
        raise Refused("tensors that different masks, or topk, have selected from")
    return chosen.pop() if chosen else None


def made(formula: Any, shaped: Any, selected: Any = None, origins: frozenset[str] = frozenset()) -> Any:
    return traced(formula, tuple(shaped.shape), shaped.dtype, selected, origins)


def alike(x: Any, formula: Any, *others: Any) -> Any:
    """A tensor that looks like x."""
    return traced(formula, tuple(x.shape), x.dtype, x.selected, origins_of(x, *others))
