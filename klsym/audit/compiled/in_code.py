"""What the compiled copy of the user's code calls: `rewriting` puts these calls in.

It runs under the name `klsym_in_code` in the namespace of the code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from klsym.audit.compiled import running
from klsym.audit.compiled.inert import effects_of
from klsym.audit.compiled.running import ABSENT, bound
from klsym.audit.compiled.unread import Unread, unread
from klsym.audit.places import here
from klsym.audit.terms import Refused
from klsym.errors import UsageError
from klsym.files import read_text
from klsym.language.parser import syntax

DEEPEST = 4  # functions that call one another
LARGEST = 5_000_000  # bytes of a file
LOST = object()  # what a branch gives that cannot be decided, and does nothing that is read


def raised(error: BaseException) -> str:
    """What is said of an error in the user's code; names of klsym's own types say nothing to the user."""
    text = (str(error).splitlines() or [""])[0][:200]
    if _is_ours(error):
        return "a plain number or object is needed here, and what the code has is not known: --set gives it"
    return f"the code raises {type(error).__name__}: {text}"


def _is_ours(error: BaseException) -> bool:
    """Does it come of values that are traced or not known?"""
    return "Traced" in str(error) or "Unread" in str(error)


def given(name: str) -> Any:
    """An expression to which the user has bound a value."""
    value = bound(name)
    return Unread.named(name) if value is ABSENT else value


def kept(value: Any, names: tuple[str, ...], called: tuple[str, ...] | None, says: bool) -> Any:
    """The right side of an assignment to these names.

    called: if these functions change nothing, nor does it, and it is unread where it cannot be read.
    says: what an unknown object gives may be known by the name it gets, which is given a value here alone.
    """
    values = [bound(name) for name in names]
    if any(found is not ABSENT for found in values):
        known = tuple(Unread.named(n) if v is ABSENT else v for n, v in zip(names, values, strict=True))
        return known[0] if len(names) == 1 else known
    found = _tried(value, called) if called is not None else value()
    if not isinstance(found, Unread) or not names:
        return found
    if len(names) == 1:
        return found.also(names[0]) if says and found._path else found
    parts = (Unread(found._path, found._causes) for _ in names)
    return tuple(x.also(n) if says and x._path else x for x, n in zip(parts, names, strict=True))


def _tried(value: Any, called: tuple[str, ...] = ()) -> Any:
    """A value, or why it cannot be read, if these functions change nothing."""
    try:
        return value()
    except Refused as refusal:
        if not all(_is_without_effect(value.__globals__.get(name), 0) for name in called):
            raise
        return unread(why=refusal.at(here()))
    except (TypeError, AttributeError, ValueError, RuntimeError) as error:
        if not _is_ours(error) or not all(_is_without_effect(value.__globals__.get(n), 0) for n in called):
            raise
        return unread(why=Refused(raised(error), here()))


def tried(call: Any, called: tuple[str, ...]) -> None:
    """A call that changes nothing that is read, if these functions change nothing."""
    _tried(call, called)


def _is_without_effect(function: Any, depth: int) -> bool:
    """Does a function of the user's files change nothing but its variables?"""
    code = getattr(function, "__code__", None)
    if isinstance(function, Unread):
        return True  # what it does is not known, and is taken for nothing wherever it is called
    if code is None or depth > DEEPEST:
        return False
    node = _sources(code.co_filename).get(code.co_firstlineno)
    called = effects_of(node) if node is not None and node.name == code.co_name else None
    if called is None:
        return False
    return all(_is_without_effect(function.__globals__.get(name), depth + 1) for name in called)


@cache
def _sources(file: str) -> dict[int, ast.FunctionDef]:
    """The functions of a file by the line where they begin, decorators included."""
    try:
        tree = syntax(read_text(Path(file), LARGEST), filename=file)
    except (UsageError, SyntaxError, ValueError, RecursionError):
        return {}
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return {line: n for n in nodes for line in {n.lineno, *(d.lineno for d in n.decorator_list)}}


def branch(test: Callable[[], Any]) -> Any:
    """The truth of a condition; LOST where it cannot be decided, and decides nothing that is read."""
    found = _tried(lambda: bool(test()))
    return _lost(found) if isinstance(found, Unread) else found


def loop(value: Callable[[], Any]) -> Iterator[Any] | object:
    """What is gone through; LOST where that is not known, and the loop does nothing that is read."""
    found = _tried(lambda: iter(value()))
    return _lost(found) if isinstance(found, Unread) else found


def _lost(found: Unread) -> object:
    running.current().lost = found._causes
    return LOST


def is_lost(choice: Any) -> bool:
    return choice is LOST


def lost(count: int) -> tuple[Unread, ...]:
    """Variables whose values depend on a branch that was not decided."""
    return tuple(Unread("", running.current().lost) for _ in range(count))


def unread_result() -> Unread:
    """What a function returns whose last branch was not decided."""
    return lost(1)[0]


def is_none(value: Any) -> bool:
    """`value is None`; asked where it is not known, unless its name says what it is."""
    if not isinstance(value, Unread):
        return value is None
    if running.says(value):
        return bound(value._path) is None
    if not value._path:
        return False  # made of what is not known: no None
    raise running.undecided(value, here(), value._path, None)


def is_same(value: Any, other: Any) -> bool:
    """`value is other`, where other is no None."""
    one, two = (running.value_of(x) if isinstance(x, Unread) else x for x in (value, other))
    for mine, its in ((one, other), (two, value)):
        if mine is ABSENT:
            asked = value if one is ABSENT else other
            plain = its if isinstance(its, bool | str | int) else False
            raise running.undecided(asked, here(), asked._path, plain)
    return one is two


def holds(test: Callable[[], Any]) -> bool:
    """The condition of an error that the code raises; not asked where a trace cannot decide it."""
    if running.current().guess is None:  # the code runs on numbers: the trace has gone on here
        return False
    try:
        return bool(test())
    except (Refused, NameError, TypeError, AttributeError):
        return False


def converted(kind: type, value: Any) -> Any:
    """float(x), int(x), str(x) and bool(x), which leave what is not known unread."""
    if isinstance(value, Unread):
        mine = running.value_of(value)
        if mine is ABSENT:
            return bool(value) if kind is bool else value
        return converted(kind, mine)
    return value if hasattr(value, "formula") and kind is float else kind(value)


def is_instance(value: Any, kinds: Any, text: str) -> bool:
    """isinstance(value, kinds); asked of what is not known, and no of what is not imported."""
    if (answer := bound(text)) is not ABSENT:
        return bool(answer)
    value = running.value_of(value) if isinstance(value, Unread) else value
    if value is ABSENT:
        raise running.Undecided(text, False, f"a branch on {text}", here())
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    return isinstance(value, tuple(kind for kind in listed if not isinstance(kind, Unread)))


def has(of: Any, name: str, text: str) -> bool:
    """hasattr(of, name); asked of what is not known."""
    if (answer := bound(text)) is not ABSENT:
        return bool(answer)
    found = getattr(of, name, ABSENT)
    if isinstance(of, Unread) or isinstance(found, Unread):
        raise running.Undecided(text, True, f"a branch on {text}", here())
    return found is not ABSENT


def type_of(value: Any, text: str) -> Any:
    return Unread.named(text) if isinstance(value, Unread) else type(value)


def attribute(of: Any, name: str, default: Any) -> Any:
    """getattr(of, name, default)."""
    found = getattr(of, name, default)
    return running.or_default(found, default) if isinstance(of, Unread) else found


def contains(key: Any, of: Any) -> bool:
    """`key in of`; asked where either is not known."""
    if isinstance(of, Unread):
        return running.contains(key, of)
    if isinstance(key, Unread):
        mine = running.value_of(key)
        if mine is ABSENT:
            plain = (
                [x for x in of if isinstance(x, str | int | float)] if isinstance(of, list | tuple) else []
            )
            raise running.undecided(key, here(), key._path, plain[0] if plain else False)
        return mine in of
    return key in of


def joined(text: Callable[[], str], *values: Any) -> Any:
    """A formatted string, unread where one of its values is."""
    return unread(*values) if any(isinstance(x, Unread) for x in values) else text()
