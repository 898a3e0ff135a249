"""What the compiled copy of the user's code calls: `slicing` puts these calls in.

It runs under the name `klsym_in_code` in the namespace of the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.audit import running
from klsym.audit.places import here
from klsym.audit.running import ABSENT, bound
from klsym.audit.terms import Refused
from klsym.audit.unread import Unread


def raised(error: BaseException) -> str:
    """What is said of an error in the user's code; names of klsym's own types say nothing to the user."""
    text = (str(error).splitlines() or [""])[0][:200]
    if "Traced" in text or "Unread" in text:
        return "a plain number or object is needed here, and what the code has is not known: --set gives it"
    return f"the code raises {type(error).__name__}: {text}"


def given(name: str) -> Any:
    """An expression to which the user has bound a value."""
    value = bound(name)
    return Unread.named(name) if value is ABSENT else value


def kept(value: Callable[[], Any], names: tuple[str, ...]) -> Any:
    """The right side of an assignment to these names; what cannot be read is known by the name it gets."""
    values = [bound(name) for name in names]
    if any(found is not ABSENT for found in values):
        known = tuple(Unread.named(n) if v is ABSENT else v for n, v in zip(names, values, strict=True))
        return known[0] if len(names) == 1 else known
    found: Any
    try:
        found = value()
    except Refused as refusal:  # as far as the result depends on it
        found = Unread("", (refusal.at(here()),))
    except Exception as error:  # the user's code, on what is not known: anything may happen
        found = Unread("", (Refused(raised(error), here()),))
    if len(names) == 1:
        return found.also(names[0]) if isinstance(found, Unread) else found
    if isinstance(found, Unread):
        return tuple(Unread("", found._causes).also(name) for name in names)
    if isinstance(found, tuple) and len(found) == len(names):
        pairs = zip(found, names, strict=True)
        return tuple(x.also(name) if isinstance(x, Unread) else x for x, name in pairs)
    return found


def is_none(value: Any) -> bool:
    """`value is None`; asked where it is not known, unless its name says what it is."""
    if not isinstance(value, Unread):
        return value is None
    if running.says(value):
        return bound(value._path) is None
    if not value._path:
        return False  # made of what is not known: no None
    raise running.undecided(value, here(), value._path, None)


def holds(test: Callable[[], Any]) -> bool:
    """The condition of an error that the code raises; not asked where a trace cannot decide it."""
    if running.current().guess is None:  # the code runs on numbers: the trace has gone on here
        return False
    try:
        return bool(test())
    except (Refused, NameError, TypeError, AttributeError):
        return False


def number(kind: type, value: Any) -> Any:
    """float(x) and int(x), which leave what is traced as it is."""
    if isinstance(value, Unread):
        mine = running.value_of(value)
        return value if mine is ABSENT else number(kind, mine)
    if hasattr(value, "formula") and kind is float:
        return value
    return kind(value)


def is_instance(value: Any, kinds: Any, text: str) -> bool:
    """isinstance(value, kinds); asked of what is not known, and no of what is not imported."""
    if (answer := bound(text)) is not ABSENT:
        return bool(answer)
    value = running.value_of(value) if isinstance(value, Unread) else value
    if value is ABSENT:
        raise running.Undecided(text, False, f"a branch on {text}", here())
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    return isinstance(value, tuple(kind for kind in listed if not isinstance(kind, Unread)))


def attribute(of: Any, name: str, default: Any) -> Any:
    """getattr(of, name, default)."""
    found = getattr(of, name, default)
    return running.or_default(found, default) if isinstance(of, Unread) else found


def contains(key: Any, of: Any) -> bool:
    return running.contains(key, of) if isinstance(of, Unread) else key in of
