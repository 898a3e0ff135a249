"""Which pairs of texts are not compared: those that differ in what is not read, or in their mu or M.

A theorem compares what was read.  Where two texts differ in what was not read, it says nothing of them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from klsym.engine.explain import SELECTION
from klsym.engine.questions.comparison import WrittenPair
from klsym.errors import UsageError
from klsym.language.expressions import M
from klsym.language.messages import BY_ITS_NAME
from klsym.language.pasted.notes import SHAPE_METHODS
from klsym.language.pasted.selections import remove_hold
from klsym.language.pasted.text import as_python, find_assigned_name, parse_python
from klsym.language.training_names import find_meaning, names_entropy
from klsym.language.usual_names import names_old
from klsym.notation.losses import Written

WORD = "[v]"  # in what a name of every word is read as


def refuse_other_readings(pair: WrittenPair) -> None:
    """Refuse losses whose texts differ in what is not read, or whose masks or samplers are two.

    Raises UsageError: with what to type instead.
    """
    _refuse_two_selections(pair)
    _refuse_word_beside_vocabulary(pair)
    _refuse_two_samplers(pair)
    _refuse_two_temperatures(pair)
    _refuse_unread_lines(pair)
    _refuse_shapes_alone(pair)


def _refuse_two_selections(pair: WrittenPair) -> None:
    """Refuse losses whose masks M are selections by different quantiles, or one of them is typed."""
    if not all(written.expression.has(M) for written in pair):
        return
    first, second = (
        next((note.values["of"] for note in written.notes if note.code == SELECTION), "M") for written in pair
    )
    if first != second:
        masks = f"{first[:60]!r} and {second[:60]!r}"
        raise UsageError(f"compare: M would be two masks, {masks}: compare losses with the same selection")


def _refuse_word_beside_vocabulary(pair: WrittenPair) -> None:
    """Refuse a name that is of the drawn word in one text, and of every word in the other."""
    first, second = (dict(_list_names_read(written)) for written in pair)
    for name in first.keys() & second.keys():
        if (WORD in first[name]) != (WORD in second[name]):
            raise UsageError(
                f"compare: {name[:60]!r} is of every word in one of the two, and of the drawn word in the"
                " other: type H(q) or full_kl(q, p) for sums over the vocabulary"
            )


def _list_names_read(written: Written) -> Iterator[tuple[str, str]]:
    """Yield each name that is typed, and what it is read as."""
    for note in written.notes:
        if note.code == "names-read":
            yield from note.values["pairs"]


def _refuse_two_samplers(pair: WrittenPair) -> None:
    """Refuse old_logp in one text and rollout_logp in the other, both read as the sampler."""
    names = [_find_name_of(written, "log_mu") for written in pair]
    if not all(names) or names_old(names[0]) == names_old(names[1]):
        return
    old = next(name for name in names if names_old(name))[:60]
    raise UsageError(
        f"compare: {names[0][:60]!r} and {names[1][:60]!r} would both be the sampler mu: if they are two"
        f" policies, write `{old} = log_old; ...` before the text of {old}"
    )


def _refuse_two_temperatures(pair: WrittenPair) -> None:
    """Refuse logits that are divided by a temperature in one text alone, or by two."""
    notes = (
        next((x.values["temperature"] for x in written.notes if x.code == "temperature-read"), "1")
        for written in pair
    )
    first, second = notes
    if first != second:
        raise UsageError(
            f"compare: the logits are divided by {first[:60]} and by {second[:60]}, so that q would be two"
            " policies: explain each by itself"
        )


def _find_name_of(written: Written, symbol: str) -> str:
    """Return the name that is read as a symbol; "" if there is none."""
    return next((name for name, value in _list_names_read(written) if value == symbol), "")


def _refuse_unread_lines(pair: WrittenPair) -> None:
    """Refuse texts in which names of one meaning, taken for what they say, are computed in two ways."""
    first, second = (dict(_list_unread_lines(written)) for written in pair)
    for meaning in first.keys() & second.keys():
        if first[meaning].partition(" = ")[2] != second[meaning].partition(" = ")[2]:
            lines = f"`{first[meaning][:80]}` and `{second[meaning][:80]}`"
            raise UsageError(
                f"compare: the two differ in {lines}, which are not read: write what the names in them are"
            )


def _list_unread_lines(written: Written) -> Iterator[tuple[str, str]]:
    """Yield the meaning of each name that is taken for what it says, and the line that assigns it."""
    conditions = (
        x for note in written.notes if note.code == "settings-assumed" for x in note.values["conditions"]
    )
    told = {x.removesuffix(BY_ITS_NAME).strip() for x in conditions if x.endswith(BY_ITS_NAME)}
    if not told:
        return
    for line in ast.walk(parse_python(as_python(written.typed))):
        if isinstance(line, ast.Assign | ast.AugAssign) and (name := find_assigned_name(line)) in told:
            assert name is not None
            value = _drop_requires_grad(line.value) if names_entropy(name) else line.value
            yield find_meaning(name) or name, f"{name} = {ast.unparse(value)}"


def _drop_requires_grad(value: ast.expr) -> ast.expr:
    """Return the call of an entropy without what says whether it has a gradient, which is read."""
    inner = copy.deepcopy(remove_hold(value))
    if isinstance(inner, ast.Call):
        inner.keywords = [keyword for keyword in inner.keywords if keyword.arg != "requires_grad"]
    return inner


def _refuse_shapes_alone(pair: WrittenPair) -> None:
    """Refuse texts that differ in methods such as squeeze alone: shapes are not read."""
    if pair[0].expression != pair[1].expression:
        return
    first, second = (
        {x for note in written.notes if note.code == "calls-left-out" for x in note.values["names"]}
        & SHAPE_METHODS
        for written in pair
    )
    if first != second:
        shown = ", ".join(sorted(first ^ second))
        raise UsageError(
            f"compare: the two differ in {shown} alone, and shapes are not read: in PyTorch a value of shape"
            " (n, 1) less one of shape (n,) has shape (n, n), so that each sample meets all others"
        )
