"""What the answer says of the reading of pasted code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.language.messages import Message
from klsym.language.recognition import name_floors

IDENTITY_METHODS = {  # methods that change no value
    "unsqueeze", "squeeze", "float", "contiguous", "clone", "view", "reshape", "flatten", "repeat_interleave",
    "expand", "expand_as", "to", "double", "half", "bfloat16", "transpose", "permute", "cuda", "cpu",
    "type_as", "copy", "ravel", "numpy",
}  # fmt: skip

SHAPE_METHODS = {
    "unsqueeze",
    "squeeze",
    "view",
    "reshape",
    "flatten",
    "expand",
    "expand_as",
    "transpose",
    "permute",
}


def list_notes(reader: Any) -> Iterator[Message]:
    """Yield what was read as what, and what was left out."""
    yield from reader.list_names_read()
    yield from [Message("selection-held", of=reader.selection)] * bool(reader.selection)
    if temperature := "".join(reader.temperatures):
        yield Message("temperature-read", temperature=temperature)
    for quotient, temperature in reader.divided_logs.items():
        yield Message("log-divided", quotient=quotient, temperature=temperature)
    if reader.is_scaled:
        yield Message("temperature-squared")
    if reader.assumed:
        yield Message("settings-assumed", conditions=tuple(dict.fromkeys(reader.assumed)))
    if reader.floors:
        yield Message("floors-left-out", floors=name_floors(reader.floors))
    left_out = [name for name, count in reader.left_out.items() if count]
    averages = tuple(name for name in left_out if name not in IDENTITY_METHODS)
    if reader.centred:
        names = tuple(map(str, reader.centred))
        yield Message("batch-mean-read", names=names, divided=reader.divides_by_std, guard=reader.std_guard)
    if reader.is_of_each_token:
        yield Message("of-each-token", aggregate=reader.aggregate)
    elif reader.sums_tokens:
        yield Message("over-tokens")
    elif averages:
        yield Message("averages-left-out", names=averages)
    if averages and reader.aggregate and not reader.is_of_each_token:
        yield Message("tokens-added-up", aggregate=reader.aggregate)
    if unchanged := tuple(name for name in left_out if name in IDENTITY_METHODS):
        yield Message("calls-left-out", names=unchanged)
    if (factor := reader.factor_left_out) != 1:
        yield Message("scale-left-out" if reader.aggregate else "factor-left-out", factor=str(factor))
    passed = [name for name in reader.unread if not reader.is_told(name) and name not in reader.names]
    if unused := (
        *(name for name in reader.assigned if name not in reader.used and name != reader.last),
        *passed,
    ):
        is_last = reader.last == next(reversed(reader.assigned), "")
        yield Message("names-unused", names=unused, loss=reader.last, is_last=is_last)
