"""Tracing PyTorch: a tensor without data that carries a formula, and a row for each operation.

A traced tensor is a meta tensor (so that shapes, dtypes and isinstance work) with a formula of `terms`.
PyTorch hands every function and method that meets one to `__torch_function__`; what has no row is refused
by name.  Where gradients are off (no_grad, inference_mode), a result is detached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import sympy

from klsym.audit.aggregation import of_any_mask
from klsym.audit.places import here
from klsym.audit.terms import VOCABULARY, Refused, Top, Words, depends, exact, step, token, total
from klsym.audit.tracing.operations import applied, operation
from klsym.audit.tracing.shapes import SELECTED, SIZES, axes_of, count_of, refuse_unless_aligned
from klsym.language.expressions import sg, without_sg

GETTERS = {"shape", "dtype", "ndim", "requires_grad", "is_leaf", "is_cuda", "is_meta", "layout", "names",
           "grad_fn",
           "is_sparse", "is_quantized", "is_nested", "is_mps", "is_xpu", "is_cpu", "itemsize",
           "nbytes"}  # fmt: skip
ASKED = {"dim", "size", "numel", "nelement", "__len__", "is_floating_point", "is_complex", "is_contiguous",
         "ndimension",
         "get_device", "element_size", "stride", "is_tensor", "is_inference"}  # fmt: skip
DATA = {"__bool__": "a branch on data", "__float__": "float() of a tensor", "__int__": "int() of a tensor",
        "tolist": "tolist()", "numpy": "numpy()", "__array__": "a NumPy array of a tensor",
        "__index__": "an index from a tensor", "__contains__": "`in` a tensor", "equal": "a branch on data",
        "allclose": "a branch on data", "backward": "backward()", "nonzero": "nonzero()"}  # fmt: skip
UNUSED = {
    "dtype",
    "device",
    "memory_format",
    "non_blocking",
    "copy",
    "layout",
    "inplace",
    "_stacklevel",
    "async_op",
}
RENAMED = {"min": "low", "max": "high"}
POSITIONAL = ("input", "self", "other", "exponent", "mask", "condition", "fill_value", "weight", "value")
NO_CHANGE = {"retain_grad", "requires_grad_", "register_hook"}


class Unread(float):
    """What `.item()` gives: a number that may be logged, but not used."""

    def _refuse(self, *_: Any) -> Any:
        raise Refused("a branch or a formula on a number that .item() takes out of a tensor", here())

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __int__ = _refuse
    __hash__ = float.__hash__

    def _unread(self, *_: Any) -> Any:
        return Unread("nan")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unread
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = __pow__ = __rpow__ = _unread  # type: ignore[assignment]


@cache
def traced_class() -> Any:
    """The tensor class, made when PyTorch is loaded."""
    import torch

    class Traced(torch.Tensor):  # type: ignore[misc]
        formula: Any
        selected: Any  # the mask that has been applied by indexing, or the words of topk in the last axis

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                return dispatch(func, args, dict(kwargs or {}))

        def __repr__(self, *_: Any, **__: Any) -> str:  # type: ignore[override]
            return "<a tensor that is traced>"

        def __format__(self, form: str) -> str:
            return "nan"

    return Traced


def traced(formula: Any, shape: tuple[int, ...], dtype: Any = None, selected: Any = None) -> Any:
    """A tensor of this shape that stands for a formula."""
    import torch

    refuse_unless_aligned(shape)
    made = torch.empty(shape, device="meta", dtype=dtype or torch.float32).as_subclass(traced_class())
    made.formula, made.selected = formula, selected
    return made


def is_traced(value: Any) -> bool:
    return hasattr(value, "formula")


def formula_of(value: Any) -> Any:
    """The formula of an argument: a traced tensor, a number, or a tensor of one value."""
    import torch

    if is_traced(value):
        return value.formula
    if isinstance(value, Unread):
        value._refuse()
    if isinstance(value, torch.Tensor):
        if value.is_meta or value.numel() == 0 or not bool((value == value.flatten()[0]).all()):
            raise Refused("a tensor that is no argument and has more than one value")
        return exact(value.flatten()[0].item())
    if isinstance(value, bool | int | float):
        return exact(value)
    raise Refused(f"{type(value).__name__} where a tensor or a number is expected")


# ---------------------------------------------------------------------------- one operation
def dispatch(func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What an operation gives; refusals say the line."""
    name = getattr(func, "__name__", str(func))
    try:
        if name in ("__get__", "__set__"):
            return _property(func, name, args)
        return _called(func, name, args, options)
    except Refused as refusal:
        raise refusal.at(here()) from None


def _property(func: Any, kind: str, args: tuple[Any, ...]) -> Any:
    import torch

    name, [x, *_] = func.__self__.__name__, args
    if kind == "__set__":
        raise Refused(f"setting .{name} of a tensor")
    if name == "device":
        return torch.device("cpu")  # so that what is made there has values
    if name == "requires_grad":
        return depends(x.formula)
    if name in GETTERS:
        return func(*args)
    if name == "data":
        return alike(x, sg(x.formula))
    raise Refused(f"the attribute .{name} of a tensor is not read")


def _called(func: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if name in ASKED:
        return func(*args, **options)
    if name == "__bool__" and (known := of_any_mask(args[0].formula)) is not None:
        return known
    if name in DATA:
        raise Refused(f"{DATA[name]} is not read")
    if name == "item":
        return Unread("nan")
    if name in NO_CHANGE:
        return args[0]
    in_place = name.endswith("_") and not name.endswith("__")
    plain = name.removesuffix("_") if in_place else name
    if name.startswith("__i") and name not in ("__invert__", "__index__"):  # __iadd__
        in_place, plain = True, "__" + name[3:]
    plain = plain.strip("_")
    result = _value(func, plain, args, options)
    for one in (r for r in (result if isinstance(result, tuple) else (result,)) if is_traced(r)):
        if _gradients_are_off():
            one.formula = sg(one.formula)
        if journals:
            journals[-1].append((plain, here(), one.formula))
    if in_place or options.get("inplace"):
        return _overwritten(args[0], result)
    return result


def _gradients_are_off() -> bool:
    import torch

    return not torch.is_grad_enabled()


def _overwritten(target: Any, result: Any) -> Any:
    """An in-place operation; a plain tensor that meets a traced one cannot hold it."""
    if not is_traced(target):
        raise Refused("an in-place operation on a tensor that is made here")
    target.formula, target.selected = result.formula, result.selected
    return target


def _value(func: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if name in STRUCTURE:
        return STRUCTURE[name](func, args, options)
    if operation(name) is None:
        raise Refused(f"the operation {name} is not read")
    if name in ("log_softmax", "softmax", "special_log_softmax", "special_softmax"):
        return _over_vocabulary(name, args, options)
    tensors, given = _arguments(args, options)
    if name in SHAPING:
        given = given[:1]
    shaped = _shape_of(func, name, args, options)
    named = {RENAMED.get(key, key): formula_of(value) for key, value in _kept(options).items()}
    found = applied(name, *given, **named)
    return _made(found, shaped, _selection(tensors))


SHAPING = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "expand_as", "broadcast_to",
           "view_as", "to",
           "type_as", "cpu", "cuda", "clone", "contiguous", "float", "double", "half", "bfloat16",
           "nan_to_num",
           "zeros_like", "ones_like"}  # fmt: skip


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k not in UNUSED and k not in POSITIONAL and v is not None}


def _arguments(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Traced tensors, and the formulas of all positional arguments, also those given by name."""
    values = [*args, *(options[key] for key in POSITIONAL if key in options)]
    formulas = [None if v is None else formula_of(v) for v in values if _is_value(v)]
    return [v for v in values if is_traced(v)], formulas


def _is_value(value: Any) -> bool:
    import torch

    return value is None or isinstance(value, torch.Tensor | bool | int | float)


def _shape_of(func: Any, name: str, args: Any, options: dict[str, Any]) -> SimpleNamespace:
    """The shape and dtype of the result, which PyTorch computes without data."""
    import torch

    def bare(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty(value.shape, dtype=value.dtype, device="meta")
        return tuple(bare(v) for v in value) if isinstance(value, tuple | list) else value

    if name in ("cpu", "cuda", "to") and len(args) < 3:
        args = [a for a in args if not isinstance(a, str | torch.device)]
        if name != "to" or (len(args) == 1 and "dtype" not in options):
            return SimpleNamespace(shape=tuple(args[0].shape), dtype=args[0].dtype)
    kept = {k: bare(v) for k, v in options.items() if k not in ("device", "non_blocking", "copy")}
    try:
        found = func(*(bare(a) for a in args), **kept)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise Refused(f"{name}: {str(error).splitlines()[0][:160]}") from None
    return SimpleNamespace(shape=tuple(found.shape), dtype=found.dtype)


def _selection(tensors: list[Any]) -> Any:
    chosen = {t.selected for t in tensors if t.selected is not None or t.dim()}
    if len(chosen - {None}) < len(chosen) and all(isinstance(c, Top) for c in chosen - {None}):
        chosen -= {None}  # what is the same for all words: shapes refuse the others
    if len(chosen) > 1:
        raise Refused("tensors that different masks, or topk, have selected from")
    return chosen.pop() if chosen else None


def _made(formula: Any, shaped: Any, selected: Any = None) -> Any:
    return traced(formula, shaped.shape, shaped.dtype, selected)


def alike(x: Any, formula: Any) -> Any:
    return traced(formula, tuple(x.shape), x.dtype, x.selected)


# ---------------------------------------------------------------------------- what changes shapes
def _reduce(func: Any, args: tuple[Any, ...], options: dict[str, Any], mean: bool) -> Any:
    x, dims = args[0], options.get("dim", options.get("axis", args[1] if len(args) > 1 else None))
    if x.selected is not None and not isinstance(x.selected, Top):
        whole = total(x.formula * x.selected, "bt")
        return traced(whole / total(x.selected, "bt") if mean else whole, ())
    sizes = tuple(x.shape)
    chosen = range(len(sizes)) if dims is None or dims == () else [dims] if isinstance(dims, int) else dims
    shaped = _shape_of(func, "mean" if mean else "sum", args, options)
    words = x.selected is not None and any(i % len(sizes) == len(sizes) - 1 for i in chosen)
    rest = [sizes[i] for i in chosen if not (words and i % len(sizes) == len(sizes) - 1)]
    found = total(total(x.formula * x.selected, "v") if words else x.formula, axes_of(rest))
    count = count_of(rest) * (sizes[-1] if words else 1)
    return _made(found / count if mean else found, shaped, None if words else x.selected)


def _sum(func: Any, args: Any, options: Any) -> Any:
    return _reduce(func, args, options, mean=False)


def _mean(func: Any, args: Any, options: Any) -> Any:
    return _reduce(func, args, options, mean=True)


def _any(func: Any, args: Any, options: Any) -> Any:
    """any() of masks: is there one among them?"""
    found = _sum(func, (args[0].bool(), *args[1:]), options)
    return traced(step(found.formula), tuple(found.shape), _bool())


def _all(func: Any, args: Any, options: Any) -> Any:
    found = _any(func, (~args[0].bool(), *args[1:]), options)
    return alike(found, 1 - found.formula)


def _bool() -> Any:
    import torch

    return torch.bool


def _extreme(func: Any, args: Any, options: Any) -> Any:
    """torch.max of two tensors; over tokens it is refused."""
    import torch

    name = func.__name__
    both = [*args, *([options["other"]] if "other" in options else [])]
    if len(both) == 2 and isinstance(both[1], torch.Tensor):
        found = applied(f"{name}imum", *(formula_of(a) for a in both))
        return _made(found, _shape_of(func, name, args, options))
    raise Refused(f"{name} over tokens is not read")


def _index(func: Any, args: Any, options: Any) -> Any:
    """x[mask] selects; x[:, None] and x[...] change the shape alone."""
    import torch

    x, where = args
    if is_traced(where) and where.dtype == torch.bool:
        return traced(x.formula, (SELECTED,), x.dtype, where.formula)
    parts = where if isinstance(where, tuple) else (where,)
    if all(part is None or part is Ellipsis or part == slice(None) for part in parts):
        return _made(x.formula, _shape_of(func, "indexing", args, options), x.selected)
    raise Refused("indexing that takes out a part of a tensor is not read")


def _assign(func: Any, args: Any, options: Any) -> Any:
    """x[mask] = value."""
    import torch

    x, where, value = args
    if not (is_traced(where) and where.dtype == torch.bool and is_traced(x)):
        raise Refused("assignment to a part of a tensor is not read, but by a mask")
    x.formula = applied("where", where.formula, formula_of(value), x.formula)


def _along_words(name: str, x: Any, dim: Any) -> None:
    """Is the axis the vocabulary, or the words that topk has taken out of it?"""
    last = dim is not None and dim % x.dim() == x.dim() - 1
    if not last or (x.selected is None and axes_of([x.shape[dim]]) != "v"):
        said = "what is over the vocabulary is mapped to log_q[v], log_p[v] or log_mu[v]"
        raise Refused(f"{name} over another axis than the vocabulary: {said}")


def _topk(func: Any, args: Any, options: Any) -> Any:
    """The k largest, and where they stand; of the others nothing is known but that they are left out."""
    import torch

    x, k = args[0], options.get("k", args[1] if len(args) > 1 else None)
    dim = options.get("dim", args[2] if len(args) > 2 else -1)
    _along_words("topk", x, dim)
    if not options.get("largest", args[3] if len(args) > 3 else True):
        raise Refused("topk with largest=False is not read")
    if not isinstance(k, int) or not 1 < k < SIZES["v"] or k in SIZES.values():
        raise Refused(f"topk of {k} words: code is run on {SIZES['v']} words, so --set a k of 2 to 6 for any")
    order = without_sg(x.formula)
    order = order.args[0] if isinstance(order, sympy.exp) else order
    shape = (*x.shape[:-1], k)
    made = (traced(x.formula, shape, x.dtype, Top(order, k)), traced(Words(order, k), shape, torch.int64))
    return torch.return_types.topk(made)


def _words_of(index: Any) -> Any:
    """The words that an index names, as topk gave them; None for any other index."""
    of = without_sg(index.formula) if is_traced(index) else None
    return Top(*of.args) if isinstance(of, Words) else None


def _scatter(func: Any, args: Any, options: Any) -> Any:
    """Into the words of topk: a number, or what was taken out of the same words."""
    names = ("input", "dim", "index", "src" if "src" in options else "value")
    x, dim, index, source = (args[i] if i < len(args) else options.get(n) for i, n in enumerate(names))
    words = _words_of(index)
    if words is None or not is_traced(x) or x.selected is not None:
        raise Refused("scatter by what are no indices of topk")
    _along_words("scatter", x, dim)
    if is_traced(source) and source.selected != words:
        raise Refused("scatter of what was taken out of other words")
    return alike(x, applied("where", words, formula_of(source), x.formula))


def _gather(func: Any, args: Any, options: Any) -> Any:
    """The log-probability of the sampled token, or of those of topk, out of those of the vocabulary."""
    x, index = args[0], options.get("index", args[-1])
    words = _words_of(index)
    if words is not None:
        _along_words("gather", x, options.get("dim", args[1]))
        return _made(x.formula, _shape_of(func, "gather", args, options), words)
    if not is_traced(index) or index.formula != token:
        raise Refused("gather by what is not bound to token (the word that was sampled)")
    picked = x.formula.xreplace(VOCABULARY)
    if picked == x.formula:
        raise Refused("gather from what is not over the vocabulary")
    return _made(picked, _shape_of(func, "gather", args, options))


def _over_vocabulary(name: str, args: Any, options: Any) -> Any:
    x, dim = args[0], options.get("dim", args[1] if len(args) > 1 else None)
    _along_words(name, x, dim)
    return alike(x, applied(name, x.formula, *([x.selected] if x.selected is not None else [])))


def _log_of_mass(func: Any, args: Any, options: Any) -> Any:
    from klsym.audit.tracing.operations import log_of_mass

    x = args[0]
    _along_words("logsumexp", x, options.get("dim", args[1] if len(args) > 1 else None))
    return _made(log_of_mass(x.formula, x.selected), _shape_of(func, "logsumexp", args, options))


def _reduced(found: Any, reduction: str) -> Any:
    """The argument reduction= of losses."""
    if reduction == "none":
        return found
    if reduction == "batchmean":
        whole = _sum(type(found).sum, (found,), {})
        return alike(whole, whole.formula / count_of([found.shape[0]]))
    return (_mean if reduction == "mean" else _sum)(getattr(type(found), reduction), (found,), {})


def _kl_div(func: Any, args: Any, options: Any) -> Any:
    """F.kl_div(input, target): target (log target - input); exp(target) (target - input) of log targets."""
    x, y = (formula_of(a) for a in args[:2])
    logs = options.get("log_target", False)
    point = applied("exp", y) * (y - x) if logs else y * (applied("log", y) - x)
    return _reduced(_pointwise(point, args), options.get("reduction", "mean"))


def _difference_loss(name: str) -> Callable[..., Any]:
    def build(func: Any, args: Any, options: Any) -> Any:
        x, y = (formula_of(a) for a in args[:2])
        point = applied(name, x - y)
        return _reduced(_pointwise(point, args), options.get("reduction", "mean"))

    return build


def _pointwise(point: Any, args: Any) -> Any:
    import torch

    shaped = _shape_of(torch.add, "the loss", tuple(args[:2]), {})
    return _made(point, shaped, _selection([a for a in args[:2] if is_traced(a)]))


def _new(func: Any, args: Any, options: Any) -> Any:
    """new_zeros and new_tensor: a plain tensor, with values."""
    import torch

    plain = torch.empty(0, dtype=args[0].dtype)
    return getattr(plain, func.__name__)(*args[1:], **{k: v for k, v in options.items() if k != "device"})


STRUCTURE: dict[str, Callable[..., Any]] = {
    "sum": _sum, "mean": _mean, "nansum": _sum, "nanmean": _mean, "max": _extreme, "min": _extreme,
    "amax": _extreme, "any": _any, "all": _all,
    "getitem": _index, "setitem": _assign, "gather": _gather, "logsumexp": _log_of_mass, "kl_div": _kl_div,
    "topk": _topk, "scatter": _scatter,
    "masked_select": _index, "mse_loss": _difference_loss("square"), "l1_loss": _difference_loss("abs"),
    **dict.fromkeys(("new_zeros", "new_ones", "new_tensor", "new_full"), _new),
}  # fmt: skip


Entry = tuple[str, int | None, Any]  # the operation, the line, the formula of its result
journals: list[list[Entry]] = []


@contextmanager
def tracing() -> Iterator[list[Entry]]:
    """Gives the operations that are met within the block, in order.

    Custom autograd functions, whose backward a trace would not see, are refused there.
    """
    import torch

    def refuse(*_: Any, **__: Any) -> Any:
        raise Refused("a custom autograd function is not read", here())

    journals.append([])
    try:
        with mock.patch.object(torch.autograd.Function, "apply", refuse), torch.enable_grad():
            yield journals[-1]
    finally:
        journals.pop()
