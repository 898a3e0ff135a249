"""A call as it is typed, and the arguments that a function takes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

from klsym.language.parser import SHOWN


class Call(NamedTuple):
    """A call as it is typed: x.f(y) has the arguments x, y."""

    name: str
    arguments: list[ast.expr]
    node: ast.Call
    is_method: bool


class Row(NamedTuple):
    """A function that is read."""

    names: tuple[str, ...]
    build: Callable[..., Any]  # of the reader, the call, {name: tree}, the depth


KEYWORDS = {
    "input": "x", "a": "x", "other": "y", "x2": "y", "x1": "x", "exponent": "n", "min": "lo", "a_min": "lo",
    "max": "hi", "a_max": "hi", "clip_value_min": "lo", "clip_value_max": "hi", "dim": "axis", "dims": "axis",
    "keepdim": "keepdims", "keep_dims": "keepdims", "input_tensor": "x",
    "logits": "x", "labels": "target", "indices": "index", "tensors": "x", "reduction_indices": "axis",
    "condition": "when",
    "logprob": "x", "ref_logprob": "y", "kl_penalty": "kind",
    "tensor": "x", "values": "x", "value": "x", "weights": "mask", "masks": "mask",
    "loss_mat": "x", "loss_mask": "mask", "loss_agg_mode": "mode",
}  # fmt: skip


def bind_arguments(reader: Any, row: Row, call: Call) -> dict[str, ast.expr]:
    """Return the arguments by name; what is unknown, missing or given twice is refused."""
    order = [name for name in row.names if name != "/"]
    needed = row.names[: row.names.index("/")] if "/" in row.names else row.names
    short_name = call.name[:SHOWN]
    if len(call.arguments) > len(order) or any(isinstance(x, ast.Starred) for x in call.arguments):
        raise reader.make_error_at(f"{short_name} takes {len(order)} arguments at most", call.node)
    arguments = dict(zip(order, call.arguments, strict=False))
    for keyword in call.node.keywords:
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            continue  # TensorFlow's name of an operation
        name = keyword.arg or "**"
        argument = name if name in order else KEYWORDS.get(name, "")
        if argument not in order or argument in arguments:
            raise reader.make_error_at(f"the argument {name[:SHOWN]}= of {short_name} is not read", call.node)
        arguments[argument] = keyword.value
    arguments = {name: tree for name, tree in arguments.items() if not _is_none(tree)}
    if missing := [name for name in needed if name not in arguments]:
        raise reader.make_error_at(f"{short_name} without its argument {missing[0]}", call.node)
    return arguments


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def make_elementwise_row(names: str, of: Callable[..., Any]) -> Row:
    """Return a row of which all arguments are formulas: of(reader, node, *values)."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        values = [reader.build(given[name], depth) for name in names.split()]
        return of(reader, call.node, *values)

    return Row(tuple(names.split()), build)
