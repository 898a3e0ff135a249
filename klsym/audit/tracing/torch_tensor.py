"""A tensor of PyTorch without data that carries a formula.

It is a meta tensor, so that shapes, dtypes and isinstance work.  PyTorch hands every function and method that
meets one to `__torch_function__`, which asks `torch_trace`.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from klsym.audit.compiled.unread import UnreadValue
from klsym.audit.terms import Refused, Top, as_rational
from klsym.audit.tracing.shapes import refuse_unless_aligned


@cache
def make_tensor_class() -> Any:
    """Return the tensor class, which is made when PyTorch is loaded."""
    import torch

    class Traced(torch.Tensor):  # type: ignore[misc]
        formula: Any
        selected: Any  # the mask that has been applied by indexing, or the words of topk in the last axis
        origins: frozenset[str]  # the arguments that it is made of

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            from klsym.audit.tracing.torch_trace import apply_function

            with torch._C.DisableTorchFunctionSubclass():
                return apply_function(func, args, dict(kwargs or {}))

        def __repr__(self, *_: Any, **__: Any) -> str:  # type: ignore[override]
            return "<a tensor that is traced>"

        def __format__(self, form: str) -> str:
            return "nan"

    return Traced


def make_traced(
    formula: Any, shape: tuple[int, ...], dtype: Any = None, selected: Any = None,
    origins: frozenset[str] = frozenset(),
) -> Any:  # fmt: skip
    """Return a tensor of this shape that carries a formula."""
    import torch

    refuse_unless_aligned(shape)
    tensor = torch.empty(shape, device="meta", dtype=dtype or torch.float32).as_subclass(make_tensor_class())
    tensor.formula, tensor.selected, tensor.origins = formula, selected, origins
    return tensor


def is_traced(value: Any) -> bool:
    return not isinstance(value, UnreadValue) and hasattr(value, "formula")


def read_formula(value: Any) -> Any:
    """Return the formula of an argument: a traced tensor, a number, or a tensor of one value."""
    import torch

    if is_traced(value):
        return value.formula
    if isinstance(value, UnreadValue):
        raise value._make_refusal()
    if isinstance(value, torch.Tensor):
        if value.is_meta or value.numel() == 0 or not bool((value == value.flatten()[0]).all()):
            raise Refused("a tensor that is no argument and has more than one value")
        return as_rational(value.flatten()[0].item(), infinite=True)
    if isinstance(value, bool | int | float):
        return as_rational(value, infinite=True)
    raise Refused(f"{type(value).__name__} where a tensor or a number is expected")


def as_traced(x: Any) -> Any:
    """Return a tensor that was made here, as one that is traced."""
    return x if is_traced(x) else make_traced(read_formula(x), tuple(x.shape), x.dtype)


def collect_origins(*values: Any) -> frozenset[str]:
    """Return the arguments that tensors, also those in lists, are made of."""
    origins: frozenset[str] = frozenset()
    for value in values:
        inner = value if isinstance(value, tuple | list) else [value]
        origins = origins.union(*(getattr(element, "origins", frozenset()) for element in inner))
    return origins


def remove_formula(value: Any) -> Any:
    """Return zeros in place of a formula, on which PyTorch computes shapes.

    Tensors without data would do, but the first operation on one of them imports the compiler of PyTorch.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    return type(value)(map(remove_formula, value)) if type(value) in (tuple, list) else value


def infer_shape(func: Any, name: str, args: Any, options: dict[str, Any]) -> SimpleNamespace:
    """Return the shape and dtype of the result, which PyTorch computes without data."""
    import torch

    if name in ("cpu", "cuda", "to") and len(args) < 3:
        args = [a for a in args if not isinstance(a, str | torch.device)]
        if name != "to" or (len(args) == 1 and "dtype" not in options):
            return SimpleNamespace(shape=tuple(args[0].shape), dtype=args[0].dtype)
    plain_options = {
        k: remove_formula(v) for k, v in options.items() if k not in ("device", "non_blocking", "copy")
    }
    try:
        result = func(*(remove_formula(a) for a in args), **plain_options)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        refusal = Refused(f"{name}: {str(error).splitlines()[0][:160]}")
        refusal.is_of_shape = True
        raise refusal from None
    if result is NotImplemented:
        others = {type(a).__name__ for a in args if not isinstance(a, torch.Tensor)}
        raise Refused(f"{name} of a tensor and {' or '.join(sorted(others))}")
    return SimpleNamespace(shape=tuple(result.shape), dtype=result.dtype)


def merge_selections(tensors: list[Any]) -> Any:
    """Return the mask or words that all of them have been selected by."""
    chosen = {t.selected for t in tensors if t.selected is not None or t.dim()}
    if len(chosen - {None}) < len(chosen) and all(isinstance(c, Top) for c in chosen - {None}):
        chosen -= {None}  # what is the same for all words: shapes refuse the others
    if len(chosen) > 1:
        raise Refused("tensors that different masks, or topk, have selected from")
    return chosen.pop() if chosen else None


def make_result(
    formula: Any, shaped: Any, selected: Any = None, origins: frozenset[str] = frozenset()
) -> Any:
    return make_traced(formula, tuple(shaped.shape), shaped.dtype, selected, origins)


def make_like(x: Any, formula: Any, *others: Any) -> Any:
    """Return a tensor that looks like x."""
    return make_traced(formula, tuple(x.shape), x.dtype, x.selected, collect_origins(x, *others))
