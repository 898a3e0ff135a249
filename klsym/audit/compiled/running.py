"""One run of the user's code: what names are bound to, what it asks for, what was taken for granted."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from klsym.audit.terms import Refused

ABSENT = object()


class Needs(BaseException):
    """The code computes with a name that says what it is; no handler of the code catches this."""

    def __init__(self, name: str, role: str) -> None:
        self.name, self.role = name, role


class Words(int):
    """How many words of the vocabulary are chosen; the formula is the same for any number."""


class Longer(BaseException):
    """A slice leaves out one token of these arguments: they have one more than the others."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names


class Scaled(BaseException):
    """Arguments are logits of a policy with a temperature."""

    def __init__(self, names: frozenset[str], every: Any, factor: Any) -> None:
        self.names, self.every, self.factor = names, every, factor


class Undecided(Refused):
    """A branch on what is not known: the name that would settle it, and a value to go on with.

    asks: "none" or "truth" of the value with this name, "fact" that holds or not, "" of anything else.
    """

    asks = ""

    def __init__(self, name: str, value: Any, reason: str, line: int | None) -> None:
        self.name, self.value = name, value
        super().__init__(reason, line)


class Looped(Refused):
    """The result needs what a loop gives, which was passed over."""

    def __init__(self, text: str, line: int | None) -> None:
        self.text = text
        super().__init__(f"a loop over {text}, which is not known", line)


class Carried(Refused):
    """The result needs a variable that a loop changes from one round to the next."""

    def __init__(self, name: str, line: int | None) -> None:
        super().__init__(f"{name} changes from round to round of a loop", line)


FEATURES = {"cuda", "gpu", "mps", "bf16", "fp16", "tf32", "nccl", "gloo", "mpi"}  # of a machine, no packages


def asking(kind: str, refusal: Refused) -> Refused:
    """The same, marked as a question that has two answers."""
    if isinstance(refusal, Undecided):
        refusal.asks = kind
    return refusal


METADATA = frozenset(("shape", "dtype", "device", "ndim", "dim", "size", "numel"))


def undecided(unread: Any, line: int | None, name: str = "", value: Any = False) -> Refused:
    """Why a branch on an unread value is refused, and what would settle it."""
    of, kind, other = unread._asks or (unread, "", None)
    first = of._causes[0] if of._causes else Refused("a branch on data", line)
    if isinstance(first, Undecided):
        return first
    sized = of._last in METADATA or (of._parent is not None and of._parent._last in METADATA)
    if sized or not (name or of._path):
        reason = first.reason if sized else f"a branch on data: {first.reason}"
        refusal = Refused(reason, first.line or line)
        refusal.of_shape = first.of_shape
        return refusal
    if "(..)" in (name or of._path):
        return Refused(f"a branch on {name or of._path}, which is not known", line)
    plain = kind and isinstance(other, str | int | float | None.__class__)
    asked = name or of._path
    return Undecided(asked, other if plain else value, f"a branch on {asked}, which is free", line)


@dataclass
class Session:
    """values: name -> value.  guess: (path, alias, is its gradient off) -> name and role.

    notes: what was taken for granted; used: the names that were asked for.
    """

    values: dict[str, Any] = field(default_factory=dict)
    guess: Callable[[str, str, bool], tuple[str, str] | None] | None = None
    notes: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)  # those of this run
    files: set[str] = field(default_factory=set)
    lost: tuple[Refused, ...] = ()  # why the last branch that was passed over could not be decided
    loops: set[str] = field(default_factory=set)  # of which one round is read
    read_once: set[str] = field(default_factory=set)  # those of this run
    rounds: int = 1  # of each of them
    parameters: dict[Any, str] = field(default_factory=dict)  # their symbols -> what they are in the code
    declared: dict[str, Any] = field(default_factory=dict)  # options with a default in a dataclass
    flat: bool = False  # do the tokens of all sequences stand along one axis?
    objects: frozenset[str] = frozenset()  # names that the user has said to be objects, known by their parts
    containers: frozenset[str] = frozenset()  # options that are tuples, lists or dicts by default
    something: frozenset[str] = frozenset()  # names of what is tried as no None, or as true
    cuts: dict[str, int] = field(default_factory=dict)  # of arguments with one token more
    shaped: dict[str, bool] = field(default_factory=dict)  # conditions on shapes that this run has met


_sessions: list[Session] = []


@contextmanager
def session(one: Session) -> Iterator[Session]:
    """Code that runs within the block asks this session."""
    _sessions.append(one)
    try:
        yield one
    finally:
        _sessions.pop()


def current() -> Session:
    return _sessions[-1] if _sessions else Session()


def keep(name: str, value: Any) -> None:
    """The code puts a value into an unknown object."""
    current().values[name] = value


def bound(name: str) -> Any:
    """What a name is bound to; ABSENT where it is not."""
    values = current().values
    if name in values:
        current().used.add(name)
        current().touched.add(name)
        return values[name]
    return ABSENT


def value_of(unread: Any) -> Any:
    """What an unread value is bound to by its name; ABSENT where it is not; raises Needs where it says it."""
    for name in (unread._path, unread._alias):
        if name and (found := bound(name)) is not ABSENT:
            return found
    guess = current().guess
    meant = (
        guess(unread._path, unread._alias, unread._off) if guess and (unread._path or unread._alias) else None
    )
    if meant:
        if meant[0] == unread._alias != unread._path and unread._causes:
            name, role = meant
            told = f"klsym cannot read the value of {name} ({unread._causes[0].reason}); it takes {name} for"
            note(f"{told} {role} by its name, and assumes that computing it changes nothing else")
        raise Needs(*meant)
    return ABSENT


def is_number(unread: Any) -> bool:
    """Does its name say that it is a number, though nothing is bound to it?"""
    guess = current().guess
    meant = guess(unread._path, unread._alias, unread._off) if guess and unread._path else None
    return bool(meant and meant[1] == "number" and unread._path not in current().values)


def says(unread: Any) -> bool:
    """Is its value, or a part of it, bound, or does its name say what it is?"""
    if unread._path and any(
        name.startswith((f"{unread._path}.", f"{unread._path}[")) for name in current().values
    ):
        return True
    try:
        return value_of(unread) is not ABSENT
    except Needs:
        return True


def note(text: str) -> None:
    if text not in current().notes:
        current().notes.append(text)


def take_for_positive(names: Iterable[str]) -> None:
    """Note that a branch was chosen so."""
    for name in sorted(names):
        note(f"{name} is taken for positive, which decides a branch; --set gives it a number")


def note_training(path: str) -> bool:
    """Code is read as it runs in training."""
    note(f"{path} is taken for true")
    return True


def is_available(path: str) -> bool | None:
    """Return what is_vllm_available() gives here, where the package that has it is not loaded.

    >>> is_available("transformers.utils.is_numpy_available"), is_available("is_nowhere_available")
    (True, False)
    """
    named = re.fullmatch(r"is_([a-z]\w*)_available", path.rpartition(".")[2])
    if named is None or named[1] in FEATURES:
        return None
    found = importlib.util.find_spec(named[1]) is not None
    note(f"{path}() is {found}: {named[1]} is {'' if found else 'not '}installed here")
    return found


def or_default(value: Any, default: Any) -> Any:
    """x.get(key, default) of an unknown x: what the name says, else the default."""
    if not hasattr(value, "_path") or default is None or says(value):
        return value
    note(f"{value._path} is left at its default")
    return default


def contains(key: Any, of: Any) -> bool:
    """Is a key in an unknown dict?  Said by --set "'key' in name=true"; what is bound is there."""
    name = f"{key!r} in {of._path}"
    if (found := bound(name)) is not ABSENT:
        return bool(found)
    inner = f"{of._path}[{key!r}]"
    if bound(inner) is not ABSENT or inner in current().something:
        return True
    raise asking("fact", undecided(of, None, name))


def torch_called(func: Any, args: Any, options: dict[str, Any]) -> Any:
    """A function of PyTorch, some of whose arguments are unread."""
    from klsym.audit.tracing.torch_trace import called_with_unread

    return called_with_unread(func, args, options)
