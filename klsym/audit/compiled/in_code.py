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
from klsym.audit.compiled.densities import has_density
from klsym.audit.compiled.inert import find_unknown_effects
from klsym.audit.compiled.recording import record_value
from klsym.audit.compiled.running import ABSENT, find_bound
from klsym.audit.compiled.sources import read_source
from klsym.audit.compiled.unread import UnreadValue, make_unread, resolve_values
from klsym.audit.places import find_current_line
from klsym.audit.terms import Refused, token
from klsym.errors import UsageError, spell_option
from klsym.language.pasted.text import parse_python

__all__ = ["record_value"]  # and what is defined here
DEEPEST = 4  # functions that call one another
LOST = object()  # what a branch gives that cannot be decided, and does nothing that is read


def describe_error(error: BaseException) -> str:
    """Return the message for an error in the user's code, without names of klsym's own types."""
    text = (str(error).splitlines() or [""])[0][:200]
    if _is_ours(error):
        says = f"{spell_option('set')} gives it"
        return f"a plain number or object is needed here, and what the code has is not known: {says}"
    return f"the code raises {type(error).__name__}: {text}"


def raise_own_errors() -> None:
    """Raise klsym's own errors again, at the head of a handler: the real code does not raise them."""
    error = sys.exc_info()[1]
    if error is not None and is_klsym_error(error):
        raise error


def is_klsym_error(error: BaseException) -> bool:
    stops = (Refused, running.RoleRequest, running.LongerArguments, running.ScaledLogits)
    return isinstance(error, stops) or _is_ours(error)


class _Suppression(AbstractContextManager[Any]):
    """contextlib.suppress, which lets errors of klsym's own pass."""

    def __init__(self, context: AbstractContextManager[Any]) -> None:
        self.context = context

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is not None and is_klsym_error(error):
            return False
        return bool(self.context.__exit__(kind, error, trace))


def wrap_context(context: Any) -> Any:
    """Return the context of a with statement, for which contextlib.suppress lets klsym's errors pass."""
    return _Suppression(context) if isinstance(context, suppress) else context


def replace_autocast() -> AbstractContextManager[Any]:
    """Return a context without effect for autocast: klsym reads numbers without rounding."""
    return nullcontext()


def _is_ours(error: BaseException) -> bool:
    """Does the error come from values that are traced or not known?"""
    return any(word in str(error) for word in ("Traced", "Unread", "'Number' object", "got Number"))


def make_unimported(module: str, level: int, name: str | None) -> Any:
    """Return an unread value for an import within a function whose package is not installed."""
    path = module if level < 0 else f"{'.' * level}{module}.{name}"
    return UnreadValue._from_name(path, "is not imported: map what it gives")


def get_bound_value(name: str) -> Any:
    """Return the value that the user has bound to an expression."""
    value = find_bound(name)
    return UnreadValue._from_name(name) if value is ABSENT else value


def resolve_assignment(value: Any, names: tuple[str, ...], called: tuple[str, ...] | None, says: bool) -> Any:
    """Return the right side of an assignment to these names.

    called: if these functions change nothing, nor does it, and it is unread where it cannot be read.
    says: what an unknown object gives may be known by the name it gets, which is given a value here alone.
    """
    values = [find_bound(name) for name in names]
    if any(result is not ABSENT for result in values) or running.get_session().objects & {*names}:
        bound_values = tuple(
            UnreadValue._from_name(n) if v is ABSENT else v for n, v in zip(names, values, strict=True)
        )
        return bound_values[0] if len(names) == 1 else bound_values
    try:
        result = _try_value(value, called) if called is not None else value()
    except (Refused, TypeError, AttributeError, ValueError, RuntimeError, IndexError) as error:
        if says and not has_density(value):
            refusal = (
                error if isinstance(error, Refused) else Refused(describe_error(error), find_current_line())
            )
            resolve_values([make_unread(why=refusal)._add_alias(name) for name in names])
        raise
    if not isinstance(result, UnreadValue) or not names:
        return result
    if len(names) > 1 and result._path in running.get_session().containers:
        raise running.make_undecided(result, find_current_line())
    named = says and not has_density(value)
    path = (
        result._path if result._path.endswith("(..)") else ""
    )  # of `a, b = batch` the names are known alone
    parts = [UnreadValue(path, result._causes) for _ in names] if len(names) > 1 else [result]
    parts = [x._add_alias(n) if named else x for x, n in zip(parts, names, strict=True)]
    return parts[0] if len(names) == 1 else tuple(parts)


def compare_labels(compared: Any, value: Any, text: str, is_equal: bool) -> Any:
    """Return the mask of labels != -100, by the usual names the tokens that count; 1 - mask for ==."""
    mask = find_bound(text)
    value = running.find_value(value) if mask is ABSENT and isinstance(value, UnreadValue) else value
    if mask is ABSENT and (isinstance(value, UnreadValue) or getattr(value, "formula", None) != token):
        return compared()
    if mask is ABSENT:
        raise running.RoleRequest(text, "mask")
    if getattr(value, "shape", None) == (math.prod(mask.shape),):
        mask = mask.reshape(-1)
    return mask == 0 if is_equal else mask != 0


def _try_value(value: Any, called: tuple[str, ...] = ()) -> Any:
    """Return a value, or why it cannot be read, if these functions change nothing."""
    try:
        return value()
    except Refused as refusal:
        if not all(_is_without_effect(value.__globals__.get(name), 0) for name in called):
            raise
        return make_unread(why=refusal.add_line(find_current_line()))
    except (TypeError, AttributeError, ValueError, RuntimeError) as error:
        if not _is_ours(error) or not all(_is_without_effect(value.__globals__.get(n), 0) for n in called):
            raise
        return make_unread(why=Refused(describe_error(error), find_current_line()))


def try_call(call: Any, called: tuple[str, ...]) -> None:
    """Make a call that changes nothing that is read, if these functions change nothing."""
    _try_value(call, called)


def _is_without_effect(function: Any, depth: int) -> bool:
    """Does a function of the user's files change nothing but its variables?"""
    code = getattr(function, "__code__", None)
    if isinstance(function, UnreadValue):
        return True  # what it does is not known, and is taken for nothing wherever it is called
    if code is None or depth > DEEPEST:
        return False
    node = _find_functions(code.co_filename, _read_file(code.co_filename)).get(code.co_firstlineno)
    called = find_unknown_effects(node) if node is not None and node.name == code.co_name else None
    if called is None:
        return False
    return all(_is_without_effect(function.__globals__.get(name), depth + 1) for name in called)


def _read_file(file: str) -> str:
    """Return the text of a file; "" where it cannot be read."""
    try:
        return read_source(Path(file))
    except UsageError:
        return ""


@cache
def _find_functions(file: str, text: str) -> dict[int, ast.FunctionDef]:
    """Return the functions of a file by the line where they begin, decorators included."""
    try:
        tree = parse_python(text, filename=file)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return {line: n for n in nodes for line in {n.lineno, *(d.lineno for d in n.decorator_list)}}


def decide_branch(test: Callable[[], Any]) -> Any:
    """Return the truth of a condition; LOST where it cannot be decided, and decides nothing that is read."""
    truth = _try_value(lambda: bool(test()))
    return _record_lost(truth) if isinstance(truth, UnreadValue) else truth


def record_shape_test(test: Any, text: str) -> Any:
    """Return a condition on the shape of a tensor, and note it: klsym has chosen the shapes."""
    if isinstance(test, bool):
        place = find_current_line()
        running.get_session().shaped[f"line {place}: {text}" if place else text] = test
    return test


def iterate_inert(value: Callable[[], Any], names: tuple[str, ...], text: str) -> Iterator[Any] | object:
    """Return the iterator of a loop that only gives values to variables; LOST where it is not known.

    Where the result needs one of these variables, one round is read.
    """
    iterator = _try_value(lambda: iter(value()))
    if not isinstance(iterator, UnreadValue):
        return iterator
    if text in running.get_session().loops:
        return iterate_rounds(value, names, text)
    return _record_lost(UnreadValue("", (running.UnknownLoop(text, find_current_line()),)))


class OneRound(list[Any]):
    """One element of an iterable that is not known; the element twice where klsym compares rounds."""


def iterate_rounds(value: Callable[[], Any], names: tuple[str, ...], text: str) -> Iterator[Any] | OneRound:
    """Return the iterator of a loop; where it is not known, one element with the names of the loop."""
    iterator = _try_value(lambda: iter(value()))
    if not isinstance(iterator, UnreadValue):
        return iterator
    running.add_note(f"klsym reads one round of the loop over {text}")
    running.get_session().read_once.add(text)
    parts = tuple(UnreadValue._from_name(name) for name in names)
    return OneRound([parts[0] if len(names) == 1 else parts] * running.get_session().rounds)


def is_one_round(iterable: Any) -> bool:
    return isinstance(iterable, OneRound)


def make_carried(names: tuple[str, ...]) -> tuple[UnreadValue, ...]:
    """Return unread values for variables that each round of a loop changes, where one round is read."""
    return tuple(make_unread(why=running.CarriedVariable(name, find_current_line())) for name in names)


def choose_value(test: Any, value: Any, otherwise: Any, called: tuple[str, ...]) -> Any:
    """Return `value if test else otherwise`, unread if the condition is not known and nothing else depends
    on it.

    called: if these functions change nothing, nor do the two values.
    """
    if not all(_is_without_effect(test.__globals__.get(name), 0) for name in called):
        return (value if test() else otherwise)()
    truth = _try_value(lambda: bool(test()))
    return make_unread(truth) if isinstance(truth, UnreadValue) else (value if truth else otherwise)()


def _record_lost(value: UnreadValue) -> object:
    running.get_session().lost = value._causes
    return LOST


def is_lost(choice: Any) -> bool:
    return choice is LOST


def make_lost(names: tuple[str, ...]) -> tuple[UnreadValue, ...]:
    """Return unread values for variables that depend on a branch that was not decided."""
    return tuple(UnreadValue("", running.get_session().lost) for _ in names)


def make_unread_result() -> UnreadValue:
    """Return the result of a function whose last branch was not decided."""
    return make_lost(("",))[0]


def is_none(value: Any) -> bool:
    """Is `value is None`?  klsym asks where it is not known, unless its name says what it is."""
    if not isinstance(value, UnreadValue):
        return value is None
    if value._path in running.get_session().something:
        return False
    if running.get_session().declared.get(value._path, ABSENT) is None and find_bound(value._path) is ABSENT:
        raise running.mark_question(
            "none", running.make_undecided(value, find_current_line(), value._path, None)
        )
    if running.is_meaningful(value):
        return find_bound(value._path) is None
    for cause in value._causes:
        if isinstance(cause, running.CarriedVariable):  # None in one round, perhaps
            raise cause
    if not value._path:
        return False  # made of what is not known: no None
    raise running.mark_question("none", running.make_undecided(value, find_current_line(), value._path, None))


def is_same(value: Any, other: Any) -> bool:
    """Is `value is other`, where other is not None?"""
    first, second = (running.find_value(x) if isinstance(x, UnreadValue) else x for x in (value, other))
    for mine, its in ((first, other), (second, value)):
        if mine is ABSENT:
            asked = value if first is ABSENT else other
            plain = its if isinstance(its, bool | str | int) else False
            raise running.make_undecided(asked, find_current_line(), asked._path, plain)
    return first is second


def check_guard(test: Callable[[], Any]) -> bool:
    """Return the condition of an error that the code raises; False where a trace cannot decide it."""
    if running.get_session().guess is None:  # the code runs on numbers: the trace has gone on here
        return False
    try:
        return bool(test())
    except (Refused, NameError, TypeError, AttributeError):
        return False


def convert_value(kind: type, value: Any) -> Any:
    """Return float(x), int(x), str(x) or bool(x), and what is not known as it is."""
    if isinstance(value, UnreadValue):
        mine = running.find_value(value)
        if mine is ABSENT:
            return bool(value) if kind is bool else value
        return convert_value(kind, mine)
    return value if hasattr(value, "formula") and kind is float else kind(value)


def is_instance(value: Any, kinds: Any, text: str) -> bool:
    """Is isinstance(value, kinds) true?  Asked of what is not known; false for classes not imported."""
    if (answer := find_bound(text)) is not ABSENT:
        return bool(answer)
    value = running.find_value(value) if isinstance(value, UnreadValue) else value
    if value is ABSENT:
        raise running.mark_question(
            "fact", running.UndecidedBranch(text, False, f"a branch on {text}", find_current_line())
        )
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    return isinstance(value, tuple(kind for kind in listed if not isinstance(kind, UnreadValue)))


def has_attribute(value: Any, name: str, text: str) -> bool:
    """Is hasattr(value, name) true?  Asked of what is not known."""
    if (answer := find_bound(text)) is not ABSENT:
        return bool(answer)
    attribute = getattr(value, name, ABSENT)
    if isinstance(value, UnreadValue) or isinstance(attribute, UnreadValue):
        raise running.mark_question(
            "fact", running.UndecidedBranch(text, True, f"a branch on {text}", find_current_line())
        )
    return attribute is not ABSENT


def get_type(value: Any, text: str) -> Any:
    return UnreadValue._from_name(text) if isinstance(value, UnreadValue) else type(value)


def get_attribute(value: Any, name: str, default: Any) -> Any:
    """Return getattr(value, name, default)."""
    attribute = getattr(value, name, default)
    return running.choose_default(attribute, default) if isinstance(value, UnreadValue) else attribute


def has_key(key: Any, container: Any) -> bool:
    """Is `key in container` true?  Asked where either is not known."""
    if isinstance(container, UnreadValue):
        return running.has_key(key, container)
    if isinstance(key, UnreadValue):
        mine = running.find_value(key)
        if mine is ABSENT:
            plain = (
                [x for x in container if isinstance(x, str | int | float)]
                if isinstance(container, list | tuple)
                else []
            )
            raise running.make_undecided(key, find_current_line(), key._path, plain[0] if plain else False)
        return mine in container
    return key in container


def format_text(text: Callable[[], str], *values: Any) -> Any:
    """Return a formatted string, unread where one of its values is."""
    return make_unread(*values) if any(isinstance(x, UnreadValue) for x in values) else text()
