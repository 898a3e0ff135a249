"""Messages: each code that the library uses has one sentence, and each sentence a use; values are said."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from klsym.api import explain
from klsym.engine.outside.vocabulary import OPEN_CODES
from klsym.language.messages import Message
from klsym.render.sentences import REMARKS, SENTENCES, write_sentence

FOLDERS = [Path(__file__).parents[2] / name for name in ("klsym", "study")]
CODE = re.compile(r"[a-z]+(-[a-z]+)*")


OF_KERNEL = {
    "premise",
    "equal",
    "batch",
    "ends",
    "nonzero",
    "positive",
    "generic",
    "away",
    "off",
    "apart",
    "above",
    "log",
    "let",
}  # its own kinds


def codes(call: ast.Call) -> list[str]:
    """The code of a message, or either of two; none where the kernel gives it."""
    first = call.args[0]
    choices = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    return [one.value for one in choices if isinstance(one, ast.Constant)]


def messages() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(path for folder in FOLDERS for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Message":
                yield from ((code, node) for code in codes(node))


USED = list(messages())


def test_each_code_has_a_sentence_and_each_sentence_a_use() -> None:
    assert {code for code, _ in USED} | OF_KERNEL == {*SENTENCES}
    assert all(map(CODE.fullmatch, SENTENCES)) and len(USED) > 100


@pytest.mark.parametrize(("code", "call"), USED, ids=[code for code, _ in USED])
def test_a_sentence_takes_the_values_of_its_message(code: str, call: ast.Call) -> None:
    """Formats name each value; functions have it as a parameter."""
    told, values = SENTENCES[code], {keyword.arg for keyword in call.keywords}
    if None in values:  # given as a table
        return
    if isinstance(told, str):
        filled = told.format(**dict.fromkeys(values, 0))
        assert filled and all(f"{{{name}" in told for name in values)
    else:
        assert set(inspect.signature(told).parameters) == values


def test_the_remarks_that_leave_a_target_open_are_known() -> None:
    """They go where exact means have an objective after all."""
    assert {code for code in REMARKS if code.startswith("open-")} == {*OPEN_CODES}


def test_nothing_that_decides_knows_a_sentence() -> None:
    """No module of the engine imports how an answer is worded."""
    for path in (FOLDERS[0] / "engine").rglob("*.py"):
        assert "klsym.render" not in path.read_text(encoding="utf-8").replace("`klsym.render", ""), path


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Message("missing-weight", at=None, setting=explain("k1", "off-policy").setting),
         "samples come from mu, not from q; no importance weight rho = q/mu"),
        (Message("support", first="q", second="p"), "q << p: wherever q > 0, also p > 0"),
        (Message("nonzero", of="beta"), "beta is not 0"),
        (Message("zero-but-where", where=((), (), ())), "a gradient only in 3 regions"),
    ],
)  # fmt: skip
def test_what_a_message_says(message: Message, said: str) -> None:
    assert write_sentence(message) == said


@pytest.mark.parametrize(
    "message",
    [Message("no-such-code"), Message("nonzero"), Message("support", first="q"), Message("kept", term="q")],
)
def test_a_code_without_its_values_is_an_error(message: Message) -> None:
    with pytest.raises((KeyError, TypeError)):
        write_sentence(message)


def test_messages_are_equal_by_code_and_values() -> None:
    one, other = Message("heavy-tail", ratio="r"), Message("heavy-tail", ratio="rho*r")
    assert one == Message("heavy-tail", ratio="r") and one != other and one != "heavy-tail"
    assert len({one, other, Message("heavy-tail", ratio="r")}) == 2
