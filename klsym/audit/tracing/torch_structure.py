"""Operations of PyTorch that change shapes, take out parts, or add up; the table is at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy

from klsym.audit.compiled import running
from klsym.audit.compiled.unread import make_unread
from klsym.audit.terms import (
    VOCABULARY,
    Refused,
    Stack,
    Top,
    Total,
    Words,
    is_theta_dependent,
    make_step,
    mask,
    sum_over,
    token,
)
from klsym.audit.tracing.operations import apply_operation, compute_log_mass
from klsym.audit.tracing.shapes import GRID, SELECTED, SIZES, count_entries, find_axes, record_cut
from klsym.audit.tracing.torch_tensor import (
    as_traced,
    infer_shape,
    is_traced,
    make_like,
    make_result,
    make_traced,
    merge_selections,
    read_formula,
)
from klsym.language.expressions import remove_sg


def _get_argument(
    args: tuple[Any, ...], options: dict[str, Any], place: int, *names: str, default: Any = None
) -> Any:
    """Return an argument by its place, or by one of its names."""
    named = [options[name] for name in names if name in options]
    return named[0] if named else args[place] if len(args) > place else default


# ---------------------------------------------------------------------------- sums
def _reduce(func: Any, args: tuple[Any, ...], options: dict[str, Any], mean: bool) -> Any:
    x, dims = as_traced(args[0]), _get_argument(args, options, 1, "dim", "axis")
    if x.selected is not None and not isinstance(x.selected, Top):
        whole = sum_over(x.formula * x.selected, "bt")
        return make_traced(whole / sum_over(x.selected, "bt") if mean else whole, ())
    sizes = tuple(x.shape)
    chosen = range(len(sizes)) if dims is None or dims == () else [dims] if isinstance(dims, int) else dims
    shaped = infer_shape(func, "mean" if mean else "sum", args, options)
    if (
        running.get_session().flat
        and dims not in (None, ())
        and math.prod(GRID) in (sizes[i] for i in chosen)
    ):
        raise Refused("a sum along an axis that may be that of the tokens of one sequence")
    if isinstance(x.formula, Stack):
        formula = sympy.Add(*_get_stacked(x, [*chosen]))
        return make_result(formula / len(x.formula.args) if mean else formula, shaped, x.selected)
    words = x.selected is not None and any(i % len(sizes) == len(sizes) - 1 for i in chosen)
    reduced_sizes = [sizes[i] for i in chosen if not (words and i % len(sizes) == len(sizes) - 1)]
    formula = sum_over(
        sum_over(x.formula * x.selected, "v") if words else x.formula, find_axes(reduced_sizes)
    )
    count = count_entries(reduced_sizes) * (sizes[-1] if words else 1)
    return make_result(formula / count if mean else formula, shaped, None if words else x.selected)


def _get_stacked(x: Any, dims: list[int]) -> tuple[Any, ...]:
    """Return what has been stacked, where the axis is that of the stack alone."""
    axis = next(i for i, n in enumerate(x.shape) if n == len(x.formula.args))
    if [d % x.dim() for d in dims] != [axis]:
        raise Refused("a sum of what is stacked along another axis")
    return tuple(x.formula.args)


def _sum(func: Any, args: Any, options: Any) -> Any:
    return _reduce(func, args, options, mean=False)


def _compute_mean(func: Any, args: Any, options: Any) -> Any:
    return _reduce(func, args, options, mean=True)


def _count(func: Any, args: Any, options: Any) -> Any:
    return _sum(*_convert_truths(args, negated=False), options)


def _convert_truths(args: Any, negated: bool) -> tuple[Any, Any]:
    """Return torch.sum, and the arguments with the truth of the first as numbers."""
    import torch

    x = as_traced(args[0])
    truth = apply_operation("logical_not" if negated else "bool", x.formula)
    return torch.sum, (make_traced(truth, tuple(x.shape), torch.int64, x.selected, x.origins), *args[1:])


def _compute_any(func: Any, args: Any, options: Any) -> Any:
    """Return any() of masks: is there one among them?"""
    import torch

    count = _sum(*_convert_truths(args, negated=False), options)
    return make_traced(make_step(count.formula), tuple(count.shape), torch.bool)


def _compute_all(func: Any, args: Any, options: Any) -> Any:
    import torch

    count = _sum(*_convert_truths(args, negated=True), options)
    return make_traced(1 - make_step(count.formula), tuple(count.shape), torch.bool)


def _compute_extreme(func: Any, args: Any, options: Any) -> Any:
    """Return torch.max of two tensors, or of those that are stacked; over tokens it is refused."""
    import torch

    name = func.__name__
    both = [*args, *([options["other"]] if "other" in options else [])]
    if len(both) == 2 and isinstance(both[1], torch.Tensor):
        result = apply_operation(f"{name}imum", *(read_formula(a) for a in both))
        return make_result(
            result,
            infer_shape(func, name, args, options),
            merge_selections([a for a in both if is_traced(a)]),
        )
    dim = _get_argument(args, options, 1, "dim")
    if isinstance(args[0].formula, Stack) and dim is not None:
        kind = sympy.Max if name.endswith("max") else sympy.Min
        shape = list(args[0].shape)
        shape[dim % len(shape) : dim % len(shape) + 1] = [1] if options.get("keepdim") else []
        result = make_traced(kind(*_get_stacked(args[0], [dim])), tuple(shape), args[0].dtype)
        indices = make_unread(why=Refused("which of those that are stacked is the largest or the smallest"))
        return result if name in ("amax", "amin") else getattr(torch.return_types, name)((result, indices))
    raise Refused(f"{name} over tokens is not read")


def _build_stack(func: Any, args: Any, options: Any) -> Any:
    """Return torch.stack of tensors of one shape, with an axis of its own, over which they are added up."""
    parts = [read_formula(x) for x in args[0]]
    shaped = infer_shape(func, "stack", args, options)
    is_rows = len(parts) == SIZES["b"] and len({*parts}) == 1  # the rows that a loop has gone through
    if not is_rows and len(parts) in SIZES.values():
        raise Refused(f"a stack of {len(parts)} tensors is not read")
    return make_result(
        parts[0] if is_rows else Stack(*parts), shaped, merge_selections([x for x in args[0] if is_traced(x)])
    )


def _split_rows(func: Any, args: Any, options: Any) -> Any:
    """Return the rows of a batch, which all have one formula; or what has been stacked."""
    x, dim = args[0], _get_argument(args, options, 1, "dim", default=0)
    shape = tuple(n for i, n in enumerate(x.shape) if i != dim % x.dim())
    if isinstance(x.formula, Stack):
        return tuple(make_traced(part, shape, x.dtype) for part in _get_stacked(x, [dim]))
    if x.shape[dim] != SIZES["b"]:
        raise Refused("a loop over tokens or words is not read")
    return tuple(make_traced(x.formula, shape, x.dtype, x.selected) for _ in range(SIZES["b"]))


def _iterate_rows(func: Any, args: Any, options: Any) -> Any:
    return iter(_split_rows(func, args, options))


# ---------------------------------------------------------------------------- parts
def _take_index(func: Any, args: Any, options: Any) -> Any:
    """Return x[mask], a selection; x[:, None] and x[...] of another shape; x[:, 1:] without a token."""
    import torch

    x, where = as_traced(args[0]), args[1]
    if is_traced(where) and where.dtype == torch.bool:
        return make_traced(x.formula, (SELECTED,), x.dtype, where.formula)
    parts = list(where) if isinstance(where, tuple) else [where]
    shaped = infer_shape(func, "indexing", args, options)
    sizes = list(x.shape)
    before = parts.index(Ellipsis) if any(p is Ellipsis for p in parts) else len(parts)
    kinds = [p for p in parts if p is not None and p is not Ellipsis]
    first = sum(p is not None for p in parts[:before])
    for n, part in enumerate(kinds):
        axis = n if n < first else len(sizes) - len(kinds) + n
        _check_part(x, axis, part)
    return make_result(x.formula, shaped, x.selected)


def _check_part(x: Any, axis: int, part: Any) -> None:
    """Raise Refused unless the part is all of the axis, all but one token, or one of equal values."""
    size = x.shape[axis]
    if isinstance(part, int) and size == 1:
        return
    is_constant = size == SIZES["v"] and not x.formula.free_symbols & {*VOCABULARY} and x.selected is None
    if is_constant and isinstance(part, int | slice):
        return
    if not isinstance(part, slice) or part.step not in (None, 1):
        raise Refused("indexing that takes out a part of a tensor is not read")
    start, stop, _ = part.indices(size)
    record_cut(size, start, stop, x.origins)


def _set_masked(func: Any, args: Any, options: Any) -> Any:
    """Set x[mask] = value."""
    import torch

    x, where, value = args
    if not (is_traced(where) and where.dtype == torch.bool and is_traced(x)):
        raise Refused("assignment to a part of a tensor is not read, but by a mask")
    if where.formula.is_zero:  # such as where a probability is 0
        return
    x.formula = apply_operation("where", where.formula, read_formula(value), x.formula)


def _require_vocabulary_axis(name: str, x: Any, dim: Any) -> None:
    """Raise Refused unless the axis is the vocabulary, or the words that topk has taken out of it."""
    last = dim is not None and dim % x.dim() == x.dim() - 1
    if not last or (x.selected is None and find_axes([x.shape[dim]]) != "v"):
        hint = "what is over the vocabulary is mapped to log_q[v], log_p[v] or log_mu[v]"
        raise Refused(f"{name} over another axis than the vocabulary: {hint}")


def _choose_topk(func: Any, args: Any, options: Any) -> Any:
    """Return the k largest, and their words; the others are left out."""
    import torch

    x, k = args[0], _get_argument(args, options, 1, "k")
    _require_vocabulary_axis("topk", x, _get_argument(args, options, 2, "dim", default=-1))
    if not _get_argument(args, options, 3, "largest", default=True):
        raise Refused("topk with largest=False is not read")
    if not isinstance(k, int) or not 1 < k < SIZES["v"] or k in SIZES.values():
        raise Refused(f"topk of {k} words: code is run on {SIZES['v']} words, so k is to be 2 to 6")
    order = remove_sg(x.formula)
    order = order.args[0] if isinstance(order, sympy.exp) else order
    shape = (*x.shape[:-1], k)
    both = (
        make_traced(x.formula, shape, x.dtype, Top(order, k)),
        make_traced(Words(order, k), shape, torch.int64),
    )
    return torch.return_types.topk(both)


def _find_topk_words(index: Any) -> Any:
    """Return the words that an index names, as topk gave them; None for any other index."""
    words = remove_sg(index.formula) if is_traced(index) else None
    return Top(*words.args) if isinstance(words, Words) else None


def _scatter(func: Any, args: Any, options: Any) -> Any:
    """Put a number, or what was taken out of the same words, at the words of topk."""
    names = ("input", "dim", "index", "src" if "src" in options else "value")
    x, dim, index, source = (_get_argument(args, options, i, name) for i, name in enumerate(names))
    words = _find_topk_words(index)
    if words is None or not is_traced(x) or x.selected is not None:
        raise Refused("scatter by what are no indices of topk")
    _require_vocabulary_axis("scatter", x, dim)
    if is_traced(source) and source.selected != words:
        raise Refused("scatter of what was taken out of other words")
    return make_like(x, apply_operation("where", words, read_formula(source), x.formula))


def _is_token(index: Any) -> bool:
    """Is it the word that was sampled?  Labels of padding may have been replaced."""
    return is_traced(index) and index.formula.xreplace({mask: sympy.S.One}) == token


def _gather(func: Any, args: Any, options: Any) -> Any:
    """Return the log-probability of the sampled token, or of the words of topk."""
    x, index = args[0], _get_argument(args, options, len(args) - 1, "index")
    words = _find_topk_words(index)
    if words is not None:
        _require_vocabulary_axis("gather", x, _get_argument(args, options, 1, "dim"))
        return make_result(x.formula, infer_shape(func, "gather", args, options), words)
    if not _is_token(index):
        raise Refused("gather by what is not bound to token (the word that was sampled)")
    return make_result(_take_token(x), infer_shape(func, "gather", args, options))


def _take_token(x: Any) -> Any:
    """Return a formula of the vocabulary at the word that was sampled; sums over the vocabulary stay."""
    formula = _replace_vocabulary(x.formula)
    if formula == x.formula:
        raise Refused("gather from what is not over the vocabulary")
    return formula


def _replace_vocabulary(e: Any) -> Any:
    if isinstance(e, sympy.Atom):
        return VOCABULARY.get(e, e)
    if not e.free_symbols & {*VOCABULARY} or (isinstance(e, Total) and "v" in e.axes):
        return e
    return e.func(*map(_replace_vocabulary, e.args))


# ---------------------------------------------------------------------------- the vocabulary
def apply_softmax(name: str, args: Any, options: Any) -> Any:
    """Return softmax or log_softmax; of log q divided by a temperature, the logits have that temperature."""
    x, dim = args[0], _get_argument(args, options, 1, "dim")
    _require_vocabulary_axis(name, x, dim)
    _refuse_untempered(x)
    return make_like(x, apply_operation(name, x.formula, *([x.selected] if x.selected is not None else [])))


def _refuse_untempered(x: Any) -> None:
    """Raise ScaledLogits for logits z with softmax(z/T) as the policy: then z is T log q."""
    for every in VOCABULARY:
        factor = x.formula.coeff(every) if x.formula.has(every) else 0
        if factor not in (0, 1) and x.formula == factor * every and not is_theta_dependent(factor):
            raise running.ScaledLogits(x.origins, every, 1 / factor)


def _compute_log_mass(func: Any, args: Any, options: Any) -> Any:
    x, dim = args[0], _get_argument(args, options, 1, "dim")
    shaped = infer_shape(func, "logsumexp", args, options)
    if isinstance(x.formula, Stack):
        parts = _get_stacked(x, [dim])
        return make_result(sympy.log(sympy.Add(*map(sympy.exp, parts))), shaped, x.selected)
    _require_vocabulary_axis("logsumexp", x, dim)
    _refuse_untempered(x)
    return make_result(compute_log_mass(x.formula, x.selected), shaped)


def _compute_cross_entropy(func: Any, args: Any, options: Any) -> Any:
    """Return -log q of the word that was sampled."""
    x, target = args[0], _get_argument(args, options, 1, "target")
    if not _is_token(target) or any(options.get(k) for k in ("weight", "label_smoothing")):
        raise Refused("cross_entropy of what is not bound to token, or with weights or smoothing")
    plain = x.formula if func.__name__ == "nll_loss" else apply_operation("log_softmax", x.formula)
    point = make_like(target, -_replace_vocabulary(plain), x)
    return _apply_reduction(
        make_traced(point.formula, tuple(target.shape), x.dtype), options.get("reduction", "mean")
    )


# ---------------------------------------------------------------------------- losses
def _apply_reduction(loss: Any, reduction: str) -> Any:
    """Apply the argument reduction= of losses."""
    if reduction == "none":
        return loss
    if reduction == "batchmean":
        whole = _sum(type(loss).sum, (loss,), {})
        return make_like(whole, whole.formula / count_entries([loss.shape[0]]))
    return (_compute_mean if reduction == "mean" else _sum)(getattr(type(loss), reduction), (loss,), {})


def _compute_kl_div(func: Any, args: Any, options: Any) -> Any:
    """Return F.kl_div(input, target): y (log y - x), or exp(y) (y - x) of log targets."""
    both = (args[0] if args else options["input"], _get_argument(args, options, 1, "target"))
    x, y = (read_formula(a) for a in both)
    logs = options.get("log_target", False)
    point = apply_operation("exp", y) * (y - x) if logs else y * (apply_operation("log", y) - x)
    return _apply_reduction(_make_pointwise(point, both), options.get("reduction", "mean"))


def _make_difference_loss(name: str) -> Callable[..., Any]:
    def build(func: Any, args: Any, options: Any) -> Any:
        x, y = (read_formula(a) for a in args[:2])
        point = apply_operation(name, x - y)
        return _apply_reduction(_make_pointwise(point, args), options.get("reduction", "mean"))

    return build


def _make_pointwise(point: Any, args: Any) -> Any:
    import torch

    shaped = infer_shape(torch.add, "the loss", tuple(args[:2]), {})
    return make_result(point, shaped, merge_selections([a for a in args[:2] if is_traced(a)]))


def _make_new(func: Any, args: Any, options: Any) -> Any:
    """Return new_zeros and new_tensor: a plain tensor, with values."""
    import torch

    plain = torch.empty(0, dtype=args[0].dtype)
    return getattr(plain, func.__name__)(*args[1:], **{k: v for k, v in options.items() if k != "device"})


def _expand_together(func: Any, args: Any, options: Any) -> Any:
    """Return torch.broadcast_tensors: each of them with the shape of all."""
    import torch

    whole = torch.broadcast_shapes(*(tuple(x.shape) for x in args))
    return tuple(
        make_traced(read_formula(x), tuple(whole), x.dtype, getattr(x, "selected", None)) for x in args
    )


def _move_axes(func: Any, args: Any, options: Any) -> Any:
    """Return the tensor with its axes in another order: each of them is known by its size."""
    return make_result(args[0].formula, infer_shape(func, func.__name__, args, options), args[0].selected)


def _skip_all_reduce(func: Any, args: Any, options: Any) -> Any:
    """Return all_reduce and its like, with one process."""
    running.add_note(f"{func.__name__} is read for one process")
    return args[0]


STRUCTURE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("sum", "nansum"), _sum), **dict.fromkeys(("mean", "nanmean"), _compute_mean),
    **dict.fromkeys(("max", "min", "amax", "amin"), _compute_extreme),
    "any": _compute_any, "count_nonzero": _count, "all": _compute_all, "stack": _build_stack,
    "unbind": _split_rows, "iter": _iterate_rows,
    "getitem": _take_index, "setitem": _set_masked, "gather": _gather, "logsumexp": _compute_log_mass,
    "kl_div": _compute_kl_div, "topk": _choose_topk, "scatter": _scatter,
    "broadcast_tensors": _expand_together, "cross_entropy": _compute_cross_entropy,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims", "permute", "movedim", "t"), _move_axes),
    "nll_loss": _compute_cross_entropy, "all_reduce": _skip_all_reduce, "masked_select": _take_index,
    "mse_loss": _make_difference_loss("square"), "l1_loss": _make_difference_loss("abs"),
    **dict.fromkeys(("new_zeros", "new_ones", "new_tensor", "new_full"), _make_new),
}  # fmt: skip
