"""What the compiled copy of the user's code calls: `rewriting` puts these calls in.

It runs under the name `klsym_in_code` in the namespace of the code.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from klsym.audit.compiled import running
from klsym.audit.compiled.densities import uses_density
from klsym.audit.compiled.inert import effects_of
from klsym.audit.compiled.running import ABSENT, bound
from klsym.audit.compiled.unread import Unread, settled, unread
from klsym.audit.places import here
from klsym.audit.terms import Refused, token
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


def caught() -> None:
    """At the head of a handler of the code: errors of klsym's own, which the real code does not raise."""
    error = sys.exc_info()[1]
    if error is not None and is_own(error):
        raise error


def is_own(error: BaseException) -> bool:
    stops = (Refused, running.Needs, running.Longer, running.Scaled)
    return isinstance(error, stops) or _is_ours(error)


class _Suppressing(AbstractContextManager[Any]):
    """contextlib.suppress, which lets errors of klsym's own pass."""

    def __init__(self, of: AbstractContextManager[Any]) -> None:
        self.of = of

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is not None and is_own(error):
            return False
        return bool(self.of.__exit__(kind, error, trace))


def within(context: Any) -> Any:
    """The context of a with statement."""
    return _Suppressing(context) if isinstance(context, suppress) else context


def of_precision() -> AbstractContextManager[Any]:
    """The context of autocast, which changes how floats are rounded: klsym reads numbers without rounding."""
    return nullcontext()


def _is_ours(error: BaseException) -> bool:
    """Does it come of values that are traced or not known?"""
    return any(word in str(error) for word in ("Traced", "Unread", "'Number' object", "got Number"))


def not_imported(module: str, level: int, name: str | None) -> Any:
    """Return an unread value for an import within a function whose package is not installed."""
    path = module if level < 0 else f"{'.' * level}{module}.{name}"
    return Unread.named(path, "is not imported: map what it gives")


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
    if any(found is not ABSENT for found in values) or running.current().objects & {*names}:
        known = tuple(Unread.named(n) if v is ABSENT else v for n, v in zip(names, values, strict=True))
        return known[0] if len(names) == 1 else known
    try:
        found = _tried(value, called) if called is not None else value()
    except (Refused, TypeError, AttributeError, ValueError, RuntimeError, IndexError) as error:
        if says and not uses_density(value):
            refusal = error if isinstance(error, Refused) else Refused(raised(error), here())
            settled([unread(why=refusal).also(name) for name in names])
        raise
    if not isinstance(found, Unread) or not names:
        return found
    if len(names) > 1 and found._path in running.current().containers:
        raise running.undecided(found, here())
    named = says and not uses_density(value)
    path = found._path if found._path.endswith("(..)") else ""  # of `a, b = batch` the names are known alone
    parts = [Unread(path, found._causes) for _ in names] if len(names) > 1 else [found]
    parts = [x.also(n) if named else x for x, n in zip(parts, names, strict=True)]
    return parts[0] if len(names) == 1 else tuple(parts)


def is_counted(compared: Any, value: Any, text: str, same: bool) -> Any:
    """labels != -100: the mask of the tokens that count, by the usual names; labels == -100: 1 less it."""
    mask = bound(text)
    value = running.value_of(value) if mask is ABSENT and isinstance(value, Unread) else value
    if mask is ABSENT and (isinstance(value, Unread) or getattr(value, "formula", None) != token):
        return compared()
    if mask is ABSENT:
        raise running.Needs(text, "mask")
    if getattr(value, "shape", None) == (math.prod(mask.shape),):
        mask = mask.reshape(-1)
    return mask == 0 if same else mask != 0


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


def by_shape(test: Any, text: str) -> Any:
    """A condition on the shape of a tensor: klsym has chosen the shapes, and notes what they decide."""
    if isinstance(test, bool):
        place = here()
        running.current().shaped[f"line {place}: {text}" if place else text] = test
    return test


def loop(value: Callable[[], Any], names: tuple[str, ...], text: str) -> Iterator[Any] | object:
    """Return the iterator of a loop that only gives values to variables; LOST where it is not known.

    Where the result needs one of these variables, one round is read.
    """
    found = _tried(lambda: iter(value()))
    if not isinstance(found, Unread):
        return found
    if text in running.current().loops:
        return rounds(value, names, text)
    return _lost(Unread("", (running.Looped(text, here()),)))


class OneRound(list[Any]):
    """One element of an iterable that is not known; the element twice where klsym compares rounds."""


def rounds(value: Callable[[], Any], names: tuple[str, ...], text: str) -> Iterator[Any] | OneRound:
    """Return the iterator of a loop; where it is not known, one element with the names of the loop."""
    found = _tried(lambda: iter(value()))
    if not isinstance(found, Unread):
        return found
    running.note(f"klsym reads one round of the loop over {text}")
    running.current().read_once.add(text)
    parts = tuple(Unread.named(name) for name in names)
    return OneRound([parts[0] if len(names) == 1 else parts] * running.current().rounds)


def is_one_round(found: Any) -> bool:
    return isinstance(found, OneRound)


def of_rounds(names: tuple[str, ...]) -> tuple[Unread, ...]:
    """Variables that a loop changes from one round to the next, of which one is read."""
    return tuple(unread(why=running.Carried(name, here())) for name in names)


def either(test: Any, one: Any, other: Any, called: tuple[str, ...]) -> Any:
    """`one if test else other`, unread where the condition cannot be decided and nothing else depends on it.

    called: if these functions change nothing, nor do the two values.
    """
    if not all(_is_without_effect(test.__globals__.get(name), 0) for name in called):
        return (one if test() else other)()
    found = _tried(lambda: bool(test()))
    return unread(found) if isinstance(found, Unread) else (one if found else other)()


def _lost(found: Unread) -> object:
    running.current().lost = found._causes
    return LOST


def is_lost(choice: Any) -> bool:
    return choice is LOST


def lost(names: tuple[str, ...]) -> tuple[Unread, ...]:
    """Variables whose values depend on a branch that was not decided."""
    return tuple(Unread("", running.current().lost) for _ in names)


def unread_result() -> Unread:
    """What a function returns whose last branch was not decided."""
    return lost(("",))[0]


def is_none(value: Any) -> bool:
    """`value is None`; asked where it is not known, unless its name says what it is."""
    if not isinstance(value, Unread):
        return value is None
    if value._path in running.current().something:
        return False
    if running.current().declared.get(value._path, ABSENT) is None and bound(value._path) is ABSENT:
        raise running.asking("none", running.undecided(value, here(), value._path, None))
    if running.says(value):
        return bound(value._path) is None
    for cause in value._causes:
        if isinstance(cause, running.Carried):  # None in one round, perhaps
            raise cause
    if not value._path:
        return False  # made of what is not known: no None
    raise running.asking("none", running.undecided(value, here(), value._path, None))


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
        raise running.asking("fact", running.Undecided(text, False, f"a branch on {text}", here()))
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    return isinstance(value, tuple(kind for kind in listed if not isinstance(kind, Unread)))


def has(of: Any, name: str, text: str) -> bool:
    """hasattr(of, name); asked of what is not known."""
    if (answer := bound(text)) is not ABSENT:
        return bool(answer)
    found = getattr(of, name, ABSENT)
    if isinstance(of, Unread) or isinstance(found, Unread):
        raise running.asking("fact", running.Undecided(text, True, f"a branch on {text}", here()))
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
