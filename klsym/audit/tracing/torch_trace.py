"""Tracing PyTorch: what an operation gives, by a row of `operations` or of `torch_structure`.

What has no row is unread: it is refused where the result or a branch depends on it.  Where gradients are off
(no_grad, inference_mode), a result is detached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import sympy

from klsym.audit.compiled import running
from klsym.audit.compiled.running import UndecidedBranch
from klsym.audit.compiled.unread import UnreadValue, make_unread, resolve_values
from klsym.audit.places import find_current_line
from klsym.audit.terms import Refused, is_theta_dependent
from klsym.audit.tracing.operations import apply_operation, find_operation
from klsym.audit.tracing.torch_structure import STRUCTURE, apply_softmax
from klsym.audit.tracing.torch_tensor import (
    collect_origins,
    infer_shape,
    is_traced,
    make_like,
    make_result,
    merge_selections,
    read_formula,
)
from klsym.audit.weights import decide_for_any_mask
from klsym.language.expressions import sg

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
        "allclose": "a branch on data", "backward": "backward()", "nonzero": "nonzero()",
        "item": "a number that .item() takes out of a tensor"}  # fmt: skip
NOW = {"__bool__", "__float__", "__int__", "__index__", "__contains__", "__array__", "backward"}
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
POSITIONAL = (
    "condition", "input", "self", "other", "exponent", "mask", "fill_value", "weight", "value",
)  # fmt: skip
OF_NUMBERS = ("log", "exp", "sqrt", "log1p", "expm1")  # of the module math
SOME_WORDS = 4  # that topk takes, where any number gives the same formula
NO_CHANGE = {"retain_grad", "requires_grad_", "register_hook"}
SHAPING = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "expand_as", "broadcast_to",
           "view_as", "to",
           "type_as", "cpu", "cuda", "clone", "contiguous", "float", "double", "half", "bfloat16",
           "nan_to_num",
           "zeros_like", "ones_like", "long", "int"}  # fmt: skip


# ---------------------------------------------------------------------------- one operation
def apply_function(func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the result of an operation; one that is not read is unread, with the reason and the line."""
    name = getattr(func, "__name__", str(func))
    try:
        if name in ("__get__", "__set__"):
            return _get_property(func, name, args)
        args, options = (
            _resolve_arguments(args),
            dict(zip(options, _resolve_arguments(options.values()), strict=True)),
        )
        missing = _find_unread(args) or _find_unread(options.values())
        if missing and name not in NOW:
            if is_in_place(name, options):
                raise Refused(
                    f"{name} of a tensor with what is not known: {missing[0]._make_refusal().reason}"
                )
            return make_unread(*missing)
        return _call_function(func, name, args, options)
    except UndecidedBranch:
        raise
    except Refused as refusal:
        refusal.add_line(find_current_line())
        if name == "__setitem__" and is_traced(args[0]):
            args[0].lost = refusal  # a part of it is not known, so nor is the whole
            return None
        if name in NOW or name == "__set__" or is_in_place(name, options):
            raise refusal from None
        return make_unread(why=refusal)


def call_with_unread(func: Any, args: Any, options: dict[str, Any]) -> Any:
    """Return the same outside of a trace, where tensors are real."""
    if journals:
        return apply_function(func, args, options)
    args, options = (
        _resolve_arguments(args),
        dict(zip(options, _resolve_arguments(options.values()), strict=True)),
    )
    missing = [*_find_unread(args), *_find_unread(options.values())]
    return make_unread(*missing) if missing else func(*args, **options)


def _resolve_arguments(values: Any) -> tuple[Any, ...]:
    return tuple(
        type(v)(resolve_values(v)) if type(v) in (list, tuple) else v for v in resolve_values(values)
    )


def _find_unread(values: Any) -> list[UnreadValue]:
    inner = [element for v in values for element in (v if type(v) in (list, tuple) else [v])]
    return [element for element in inner if isinstance(element, UnreadValue)]


def is_in_place(name: str, options: dict[str, Any]) -> bool:
    operator = name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__"))
    return operator or (name.endswith("_") and not name.endswith("__")) or bool(options.get("inplace"))


def _get_property(func: Any, kind: str, args: tuple[Any, ...]) -> Any:
    import torch

    name, [x, *_] = func.__self__.__name__, args
    if kind == "__set__":
        raise Refused(f"setting .{name} of a tensor")
    if name == "device":
        return torch.device("cpu")  # so that what is made there has values
    if name == "requires_grad":
        return is_theta_dependent(x.formula)
    if name in GETTERS:
        return func(*args)
    if name in ("T", "mT"):
        return _call_function(type(x).t if name == "T" else lambda y: y.transpose(-1, -2), "t", (x,), {})
    if name == "data":
        return make_like(x, sg(x.formula))
    raise Refused(f"the attribute .{name} of a tensor is not read")


def _call_function(func: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if name in ASKED:
        return func(*args, **options)
    if name == "__bool__" and (truth := _decide_truth(args[0].formula)) is not None:
        return truth
    if name in DATA:
        raise Refused(f"{DATA[name]} is not read")
    if name in ("__eq__", "__ne__") and any(isinstance(value, str) for value in args):
        return _compare_with_word(name, *args)
    if name in NO_CHANGE:
        return args[0]
    in_place = is_in_place(name, options)
    plain = "__" + name[3:] if in_place and name.startswith("__i") else name
    plain = plain.strip("_")
    result = _compute_value(func, plain, args, options)
    for tensor in (r for r in (result if isinstance(result, tuple | list) else (result,)) if is_traced(r)):
        if tensor.formula.has(sympy.oo, -sympy.oo, sympy.nan, sympy.zoo):
            raise Refused("the number inf in a formula")
        tensor.origins = collect_origins(*args, *options.values()) | tensor.origins
        if _is_without_gradient():
            tensor.formula = sg(tensor.formula)
        if journals:
            journals[-1].append((plain, find_current_line(), tensor.formula))
    return _replace_in_place(args[0], result) if in_place and result is not None else result


def _compare_with_word(name: str, first: Any, second: Any) -> bool:
    """Ask for the value of a coefficient that the code compares with a word: it is an option."""
    x, word = (second, first) if isinstance(first, str) else (first, second)
    option = running.get_session().parameters.get(getattr(x, "formula", None))
    if option is None:
        return name == "__ne__"
    raise running.UndecidedBranch(option, word, f"a branch on {option}, which is a word", find_current_line())


def _decide_truth(condition: Any) -> bool | None:
    """Return the truth of a condition on masks or coefficients, which are positive or asked for."""
    answer = decide_for_any_mask(condition)
    parameters = running.get_session().parameters
    if answer is not None or not condition.free_symbols or not condition.free_symbols <= {*parameters}:
        return answer
    positive = {x: sympy.Dummy(positive=True) for x in condition.free_symbols}
    decided = condition.xreplace(positive).doit()
    if decided.is_number:
        running.take_for_positive(parameters[x] for x in condition.free_symbols)
        return bool(decided)
    name = parameters[min(condition.free_symbols, key=str)]
    raise running.UndecidedBranch(name, 0.0, f"a branch on {name}, which is any number", find_current_line())


def _is_without_gradient() -> bool:
    import torch

    return not torch.is_grad_enabled()


def _replace_in_place(target: Any, result: Any) -> Any:
    """Apply an in-place operation; a plain tensor that meets a traced one cannot hold it."""
    if not is_traced(target):
        raise Refused("an in-place operation on a tensor that is made here")
    target.formula, target.selected, target.origins = result.formula, result.selected, result.origins
    return target


def _compute_value(func: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if name in STRUCTURE:
        return STRUCTURE[name](func, args, options)
    if find_operation(name) is None:
        raise Refused(f"the operation {name} is not read")
    if name in ("log_softmax", "softmax", "special_log_softmax", "special_softmax"):
        return apply_softmax(name, args, options)
    tensors, formulas = _split_arguments(args, options)
    if name in SHAPING:
        formulas = formulas[:1]
    shaped = infer_shape(func, name, args, options)
    named = {RENAMED.get(key, key): read_formula(value) for key, value in _drop_unused(options).items()}
    return make_result(apply_operation(name, *formulas, **named), shaped, merge_selections(tensors))


def _drop_unused(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k not in UNUSED and k not in POSITIONAL and v is not None}


def _split_arguments(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return traced tensors, and the formulas of all positional arguments, also those given by name."""
    values = [*args, *(options[key] for key in POSITIONAL if key in options)]
    formulas = [None if v is None else read_formula(v) for v in values if _is_value(v)]
    return [v for v in values if is_traced(v)], formulas


def _is_value(value: Any) -> bool:
    import torch

    return value is None or isinstance(value, torch.Tensor | bool | int | float)


Entry = tuple[str, int | None, Any]  # the operation, the line, the formula of its result
journals: list[list[Entry]] = []


def _iterate_replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield functions of PyTorch and `math` that do not ask what is traced: where, name, replacement."""
    import torch

    def refuse(*_: Any, **__: Any) -> Any:
        return make_unread(why=Refused("a custom autograd function is not read", find_current_line()))

    def make_tensor(plain: Any, value: Any, *args: Any, **options: Any) -> Any:
        """Return torch.tensor of what is traced already, or not known, as it is."""
        [value] = resolve_values([value])
        if getattr(options.get("dtype"), "is_floating_point", False):
            options["dtype"] = torch.float64  # the numbers of the code have all their digits
        return value if is_traced(value) or isinstance(value, UnreadValue) else plain(value, *args, **options)

    def apply_math(name: str, plain: Any, x: Any, *more: Any) -> Any:
        """Apply a function of `math`, also to what is traced."""
        return getattr(torch, name)(x) if is_traced(x) or isinstance(x, UnreadValue) else plain(x, *more)

    def choose_topk(plain: Any, x: Any, k: Any, *more: Any, **options: Any) -> Any:
        """Return torch.topk, of as many words as nobody has said."""
        if is_traced(k) and (name := running.get_session().parameters.get(k.formula)) is not None:
            raise running.UndecidedBranch(
                name, running.Words(SOME_WORDS), f"topk of {name} words", find_current_line()
            )
        return plain(x, k, *more, **options)

    yield torch, "topk", partial(choose_topk, torch.topk)
    yield torch.autograd.Function, "apply", refuse
    for name in ("tensor", "as_tensor"):
        yield torch, name, partial(make_tensor, getattr(torch, name))
    yield torch.cuda, "current_device", lambda: "cpu"
    for name in OF_NUMBERS:
        yield math, name, partial(apply_math, name, getattr(math, name))


@contextmanager
def open_journal() -> Iterator[list[Entry]]:
    """Yield the operations that are met within the block, in order.

    Custom autograd functions, whose backward a trace would not see, are refused there.
    """
    import torch

    distribution = torch.distributions.Distribution
    validates, usual = distribution._validate_args, torch.get_default_dtype()
    journals.append([])
    distribution.set_default_validate_args(False)
    torch.set_default_dtype(torch.float64)
    try:
        with ExitStack() as stack:
            for place, name, instead in _iterate_replacements():
                stack.enter_context(mock.patch.object(place, name, instead))
            stack.enter_context(torch.enable_grad())
            yield journals[-1]
    finally:
        torch.set_default_dtype(usual)
        distribution.set_default_validate_args(validates)
        journals.pop()
