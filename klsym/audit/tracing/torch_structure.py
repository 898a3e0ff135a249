"""Operations of PyTorch that change shapes, take out parts, or add up; the table is at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy

from klsym.audit.compiled import running
from klsym.audit.compiled.unread import unread
from klsym.audit.terms import VOCABULARY, Refused, Stack, Top, Total, Words, depends, mask, step, token, total
from klsym.audit.tracing.operations import applied, log_of_mass
from klsym.audit.tracing.shapes import GRID, SELECTED, SIZES, axes_of, count_of, cut_off
from klsym.audit.tracing.torch_tensor import (
    alike,
    formula_of,
    is_traced,
    lifted,
    made,
    selection,
    shape_of,
    traced,
)
from klsym.language.expressions import without_sg


def _at(args: tuple[Any, ...], options: dict[str, Any], place: int, *names: str, default: Any = None) -> Any:
    """An argument by its place, or by one of its names."""
    named = [options[name] for name in names if name in options]
    return named[0] if named else args[place] if len(args) > place else default


# ---------------------------------------------------------------------------- sums
def _reduce(func: Any, args: tuple[Any, ...], options: dict[str, Any], mean: bool) -> Any:
    x, dims = lifted(args[0]), _at(args, options, 1, "dim", "axis")
    if x.selected is not None and not isinstance(x.selected, Top):
        whole = total(x.formula * x.selected, "bt")
        return traced(whole / total(x.selected, "bt") if mean else whole, ())
    sizes = tuple(x.shape)
    chosen = range(len(sizes)) if dims is None or dims == () else [dims] if isinstance(dims, int) else dims
    shaped = shape_of(func, "mean" if mean else "sum", args, options)
    if running.current().flat and dims not in (None, ()) and math.prod(GRID) in (sizes[i] for i in chosen):
        raise Refused("a sum along an axis that may be that of the tokens of one sequence")
    if isinstance(x.formula, Stack):
        found = sympy.Add(*_stacked(x, [*chosen]))
        return made(found / len(x.formula.args) if mean else found, shaped, x.selected)
    words = x.selected is not None and any(i % len(sizes) == len(sizes) - 1 for i in chosen)
    rest = [sizes[i] for i in chosen if not (words and i % len(sizes) == len(sizes) - 1)]
    found = total(total(x.formula * x.selected, "v") if words else x.formula, axes_of(rest))
    count = count_of(rest) * (sizes[-1] if words else 1)
    return made(found / count if mean else found, shaped, None if words else x.selected)


def _stacked(x: Any, dims: list[int]) -> tuple[Any, ...]:
    """What has been stacked, where the axis is that of the stack alone."""
    axis = next(i for i, n in enumerate(x.shape) if n == len(x.formula.args))
    if [d % x.dim() for d in dims] != [axis]:
        raise Refused("a sum of what is stacked along another axis")
    return tuple(x.formula.args)


def _sum(func: Any, args: Any, options: Any) -> Any:
    return _reduce(func, args, options, mean=False)


def _mean(func: Any, args: Any, options: Any) -> Any:
    return _reduce(func, args, options, mean=True)


def _count(func: Any, args: Any, options: Any) -> Any:
    return _sum(*_truths(args, negated=False), options)


def _truths(args: Any, negated: bool) -> tuple[Any, Any]:
    """torch.sum, and the arguments with the truth of the first as numbers."""
    import torch

    x = lifted(args[0])
    truth = applied("logical_not" if negated else "bool", x.formula)
    return torch.sum, (traced(truth, tuple(x.shape), torch.int64, x.selected, x.origins), *args[1:])


def _any(func: Any, args: Any, options: Any) -> Any:
    """any() of masks: is there one among them?"""
    import torch

    found = _sum(*_truths(args, negated=False), options)
    return traced(step(found.formula), tuple(found.shape), torch.bool)


def _all(func: Any, args: Any, options: Any) -> Any:
    import torch

    found = _sum(*_truths(args, negated=True), options)
    return traced(1 - step(found.formula), tuple(found.shape), torch.bool)


def _extreme(func: Any, args: Any, options: Any) -> Any:
    """torch.max of two tensors, or of those that are stacked; over tokens it is refused."""
    import torch

    name = func.__name__
    both = [*args, *([options["other"]] if "other" in options else [])]
    if len(both) == 2 and isinstance(both[1], torch.Tensor):
        found = applied(f"{name}imum", *(formula_of(a) for a in both))
        return made(found, shape_of(func, name, args, options), selection([a for a in both if is_traced(a)]))
    dim = _at(args, options, 1, "dim")
    if isinstance(args[0].formula, Stack) and dim is not None:
        kind = sympy.Max if name.endswith("max") else sympy.Min
        shape = list(args[0].shape)
        shape[dim % len(shape) : dim % len(shape) + 1] = [1] if options.get("keepdim") else []
        found = traced(kind(*_stacked(args[0], [dim])), tuple(shape), args[0].dtype)
        which = unread(why=Refused("which of those that are stacked is the largest or the smallest"))
        return found if name in ("amax", "amin") else getattr(torch.return_types, name)((found, which))
    raise Refused(f"{name} over tokens is not read")


def _stack(func: Any, args: Any, options: Any) -> Any:
    """torch.stack of tensors of one shape: an axis of its own, over which they are added up."""
    parts = [formula_of(x) for x in args[0]]
    shaped = shape_of(func, "stack", args, options)
    same = len(parts) == SIZES["b"] and len({*parts}) == 1  # the rows that a loop has gone through
    if not same and len(parts) in SIZES.values():
        raise Refused(f"a stack of {len(parts)} tensors is not read")
    return made(parts[0] if same else Stack(*parts), shaped, selection([x for x in args[0] if is_traced(x)]))


def _unbind(func: Any, args: Any, options: Any) -> Any:
    """The rows of a batch, which all have one formula; or what has been stacked."""
    x, dim = args[0], _at(args, options, 1, "dim", default=0)
    shape = tuple(n for i, n in enumerate(x.shape) if i != dim % x.dim())
    if isinstance(x.formula, Stack):
        return tuple(traced(part, shape, x.dtype) for part in _stacked(x, [dim]))
    if x.shape[dim] != SIZES["b"]:
        raise Refused("a loop over tokens or words is not read")
    return tuple(traced(x.formula, shape, x.dtype, x.selected) for _ in range(SIZES["b"]))


def _rows(func: Any, args: Any, options: Any) -> Any:
    return iter(_unbind(func, args, options))


# ---------------------------------------------------------------------------- parts
def _index(func: Any, args: Any, options: Any) -> Any:
    """x[mask] selects; x[:, None] and x[...] change the shape alone; x[:, 1:] leaves out a token."""
    import torch

    x, where = lifted(args[0]), args[1]
    if is_traced(where) and where.dtype == torch.bool:
        return traced(x.formula, (SELECTED,), x.dtype, where.formula)
    parts = list(where) if isinstance(where, tuple) else [where]
    shaped = shape_of(func, "indexing", args, options)
    sizes = list(x.shape)
    before = parts.index(Ellipsis) if any(p is Ellipsis for p in parts) else len(parts)
    kinds = [p for p in parts if p is not None and p is not Ellipsis]
    first = sum(p is not None for p in parts[:before])
    for n, part in enumerate(kinds):
        axis = n if n < first else len(sizes) - len(kinds) + n
        _part_along(x, axis, part)
    return made(x.formula, shaped, x.selected)


def _part_along(x: Any, axis: int, part: Any) -> None:
    """Is the part of an axis all of it, all but one token, or one of what is the same along it?"""
    size = x.shape[axis]
    if isinstance(part, int) and size == 1:
        return
    same = size == SIZES["v"] and not x.formula.free_symbols & {*VOCABULARY} and x.selected is None
    if same and isinstance(part, int | slice):
        return
    if not isinstance(part, slice) or part.step not in (None, 1):
        raise Refused("indexing that takes out a part of a tensor is not read")
    start, stop, _ = part.indices(size)
    cut_off(size, start, stop, x.origins)


def _assign(func: Any, args: Any, options: Any) -> Any:
    """x[mask] = value."""
    import torch

    x, where, value = args
    if not (is_traced(where) and where.dtype == torch.bool and is_traced(x)):
        raise Refused("assignment to a part of a tensor is not read, but by a mask")
    if where.formula.is_zero:  # such as where a probability is 0
        return
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

    x, k = args[0], _at(args, options, 1, "k")
    _along_words("topk", x, _at(args, options, 2, "dim", default=-1))
    if not _at(args, options, 3, "largest", default=True):
        raise Refused("topk with largest=False is not read")
    if not isinstance(k, int) or not 1 < k < SIZES["v"] or k in SIZES.values():
        raise Refused(f"topk of {k} words: code is run on {SIZES['v']} words, so --set a k of 2 to 6 for any")
    order = without_sg(x.formula)
    order = order.args[0] if isinstance(order, sympy.exp) else order
    shape = (*x.shape[:-1], k)
    both = (traced(x.formula, shape, x.dtype, Top(order, k)), traced(Words(order, k), shape, torch.int64))
    return torch.return_types.topk(both)


def _words_of(index: Any) -> Any:
    """The words that an index names, as topk gave them; None for any other index."""
    of = without_sg(index.formula) if is_traced(index) else None
    return Top(*of.args) if isinstance(of, Words) else None


def _scatter(func: Any, args: Any, options: Any) -> Any:
    """Into the words of topk: a number, or what was taken out of the same words."""
    names = ("input", "dim", "index", "src" if "src" in options else "value")
    x, dim, index, source = (_at(args, options, i, name) for i, name in enumerate(names))
    words = _words_of(index)
    if words is None or not is_traced(x) or x.selected is not None:
        raise Refused("scatter by what are no indices of topk")
    _along_words("scatter", x, dim)
    if is_traced(source) and source.selected != words:
        raise Refused("scatter of what was taken out of other words")
    return alike(x, applied("where", words, formula_of(source), x.formula))


def _is_token(index: Any) -> bool:
    """The word that was sampled; labels of padding may have been replaced."""
    return is_traced(index) and index.formula.xreplace({mask: sympy.S.One}) == token


def _gather(func: Any, args: Any, options: Any) -> Any:
    """The log-probability of the sampled token, or of those of topk, out of those of the vocabulary."""
    x, index = args[0], _at(args, options, len(args) - 1, "index")
    words = _words_of(index)
    if words is not None:
        _along_words("gather", x, _at(args, options, 1, "dim"))
        return made(x.formula, shape_of(func, "gather", args, options), words)
    if not _is_token(index):
        raise Refused("gather by what is not bound to token (the word that was sampled)")
    return made(_picked(x), shape_of(func, "gather", args, options))


def _picked(x: Any) -> Any:
    """A formula of the vocabulary at the word that was sampled; sums over the vocabulary stay."""
    found = _at_the_token(x.formula)
    if found == x.formula:
        raise Refused("gather from what is not over the vocabulary")
    return found


def _at_the_token(e: Any) -> Any:
    if isinstance(e, sympy.Atom):
        return VOCABULARY.get(e, e)
    if not e.free_symbols & {*VOCABULARY} or (isinstance(e, Total) and "v" in e.axes):
        return e
    return e.func(*map(_at_the_token, e.args))


# ---------------------------------------------------------------------------- the vocabulary
def over_vocabulary(name: str, args: Any, options: Any) -> Any:
    """softmax and log_softmax; of log q divided by a temperature, which the logits then have."""
    x, dim = args[0], _at(args, options, 1, "dim")
    _along_words(name, x, dim)
    _refuse_untempered(x)
    return alike(x, applied(name, x.formula, *([x.selected] if x.selected is not None else [])))


def _refuse_untempered(x: Any) -> None:
    """Logits z with softmax(z/T) as the policy: then z is T log q."""
    for every in VOCABULARY:
        factor = x.formula.coeff(every) if x.formula.has(every) else 0
        if factor not in (0, 1) and x.formula == factor * every and not depends(factor):
            raise running.Scaled(x.origins, every, 1 / factor)


def _log_of_mass(func: Any, args: Any, options: Any) -> Any:
    x, dim = args[0], _at(args, options, 1, "dim")
    shaped = shape_of(func, "logsumexp", args, options)
    if isinstance(x.formula, Stack):
        parts = _stacked(x, [dim])
        return made(sympy.log(sympy.Add(*map(sympy.exp, parts))), shaped, x.selected)
    _along_words("logsumexp", x, dim)
    _refuse_untempered(x)
    return made(log_of_mass(x.formula, x.selected), shaped)


def _cross_entropy(func: Any, args: Any, options: Any) -> Any:
    """-log q of the word that was sampled."""
    x, target = args[0], _at(args, options, 1, "target")
    if not _is_token(target) or any(options.get(k) for k in ("weight", "label_smoothing")):
        raise Refused("cross_entropy of what is not bound to token, or with weights or smoothing")
    plain = x.formula if func.__name__ == "nll_loss" else applied("log_softmax", x.formula)
    point = alike(target, -_at_the_token(plain), x)
    return _reduced(traced(point.formula, tuple(target.shape), x.dtype), options.get("reduction", "mean"))


# ---------------------------------------------------------------------------- losses
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
    both = (args[0] if args else options["input"], _at(args, options, 1, "target"))
    x, y = (formula_of(a) for a in both)
    logs = options.get("log_target", False)
    point = applied("exp", y) * (y - x) if logs else y * (applied("log", y) - x)
    return _reduced(_pointwise(point, both), options.get("reduction", "mean"))


def _difference_loss(name: str) -> Callable[..., Any]:
    def build(func: Any, args: Any, options: Any) -> Any:
        x, y = (formula_of(a) for a in args[:2])
        point = applied(name, x - y)
        return _reduced(_pointwise(point, args), options.get("reduction", "mean"))

    return build


def _pointwise(point: Any, args: Any) -> Any:
    import torch

    shaped = shape_of(torch.add, "the loss", tuple(args[:2]), {})
    return made(point, shaped, selection([a for a in args[:2] if is_traced(a)]))


def _new(func: Any, args: Any, options: Any) -> Any:
    """new_zeros and new_tensor: a plain tensor, with values."""
    import torch

    plain = torch.empty(0, dtype=args[0].dtype)
    return getattr(plain, func.__name__)(*args[1:], **{k: v for k, v in options.items() if k != "device"})


def _broadcast(func: Any, args: Any, options: Any) -> Any:
    """torch.broadcast_tensors: each of them with the shape of all."""
    import torch

    whole = torch.broadcast_shapes(*(tuple(x.shape) for x in args))
    return tuple(traced(formula_of(x), tuple(whole), x.dtype, getattr(x, "selected", None)) for x in args)


def _turned(func: Any, args: Any, options: Any) -> Any:
    """The same with its axes in another order: each of them is known by its size."""
    return made(args[0].formula, shape_of(func, func.__name__, args, options), args[0].selected)


def _alone(func: Any, args: Any, options: Any) -> Any:
    """all_reduce and its like, with one process."""
    running.note(f"{func.__name__} is read for one process")
    return args[0]


STRUCTURE: dict[str, Callable[..., Any]] = {
    "sum": _sum, "mean": _mean, "nansum": _sum, "nanmean": _mean, "max": _extreme, "min": _extreme,
    "amax": _extreme, "amin": _extreme, "any": _any, "count_nonzero": _count, "all": _all, "stack": _stack,
    "unbind": _unbind, "iter": _rows,
    "getitem": _index, "setitem": _assign, "gather": _gather, "logsumexp": _log_of_mass, "kl_div": _kl_div,
    "topk": _topk, "scatter": _scatter, "broadcast_tensors": _broadcast, "cross_entropy": _cross_entropy,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims", "permute", "movedim", "t"), _turned),
    "nll_loss": _cross_entropy, "all_reduce": _alone,
    "masked_select": _index, "mse_loss": _difference_loss("square"), "l1_loss": _difference_loss("abs"),
    **dict.fromkeys(("new_zeros", "new_ones", "new_tensor", "new_full"), _new),
}  # fmt: skip
