"""One run of the user's code: what names are bound to, what it asks for, what was taken for granted."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from klsym.audit.terms import Refused
from klsym.errors import spell_option

ABSENT = object()


class RoleRequest(BaseException):
    """The code computes with a name that says what it is; no handler of the code catches this."""

    def __init__(self, name: str, role: str) -> None:
        self.name, self.role = name, role


class Words(int):
    """How many words of the vocabulary are chosen; the formula is the same for any number."""


class LongerArguments(BaseException):
    """A slice leaves out one token of these arguments: they have one more than the others."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names


class ScaledLogits(BaseException):
    """Arguments are logits of a policy with a temperature."""

    def __init__(self, names: frozenset[str], every: Any, factor: Any) -> None:
        self.names, self.every, self.factor = names, every, factor


class UndecidedBranch(Refused):
    """A branch on what is not known: the name that would settle it, and a value to go on with.

    asks: "none" or "truth" of the value with this name, "fact" that holds or not, "" of anything else.
    """

    asks = ""

    def __init__(self, name: str, value: Any, reason: str, line: int | None) -> None:
        self.name, self.value = name, value
        super().__init__(reason, line)


class UnknownLoop(Refused):
    """The result needs what a loop gives, which was passed over."""

    def __init__(self, text: str, line: int | None) -> None:
        self.text = text
        super().__init__(f"a loop over {text}, which is not known", line)


class CarriedVariable(Refused):
    """The result needs a variable that a loop changes from one round to the next."""

    def __init__(self, name: str, line: int | None) -> None:
        super().__init__(f"{name} changes from round to round of a loop", line)


FEATURES = {"cuda", "gpu", "mps", "bf16", "fp16", "tf32", "nccl", "gloo", "mpi"}  # of a machine, no packages


def mark_question(kind: str, refusal: Refused) -> Refused:
    """Mark the refusal as a question that has two answers, and return it."""
    if isinstance(refusal, UndecidedBranch):
        refusal.asks = kind
    return refusal


METADATA = frozenset(("shape", "dtype", "device", "ndim", "dim", "size", "numel"))


def make_undecided(unread: Any, line: int | None, name: str = "", value: Any = False) -> Refused:
    """Return why a branch on an unread value is refused, and what would settle it."""
    subject, kind, compared = unread._asks or (unread, "", None)
    first = subject._causes[0] if subject._causes else Refused("a branch on data", line)
    if isinstance(first, UndecidedBranch):
        return first
    sized = subject._last in METADATA or (subject._parent is not None and subject._parent._last in METADATA)
    if sized or not (name or subject._path):
        reason = first.reason if sized else f"a branch on data: {first.reason}"
        refusal = Refused(reason, first.line or line)
        refusal.is_of_shape = first.is_of_shape
        return refusal
    if "(..)" in (name or subject._path):
        return Refused(f"a branch on {name or subject._path}, which is not known", line)
    plain = kind and isinstance(compared, str | int | float | None.__class__)
    asked = name or subject._path
    return UndecidedBranch(
        asked, compared if plain else value, f"a branch on {asked}, which is unknown", line
    )


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
    methods: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # of a config that is not there
    flat: bool = False  # do the tokens of all sequences stand along one axis?
    objects: frozenset[str] = frozenset()  # names that the user has said to be objects, known by their parts
    containers: frozenset[str] = frozenset()  # options that are tuples, lists or dicts by default
    something: frozenset[str] = frozenset()  # names of what is tried as no None, or as true
    cuts: dict[str, int] = field(default_factory=dict)  # of arguments with one token more
    shaped: dict[str, bool] = field(default_factory=dict)  # conditions on shapes that this run has met


_sessions: list[Session] = []


@contextmanager
def open_session(session: Session) -> Iterator[Session]:
    """Make code that runs within the block ask this session."""
    _sessions.append(session)
    try:
        yield session
    finally:
        _sessions.pop()


def get_session() -> Session:
    return _sessions[-1] if _sessions else Session()


def store_value(name: str, value: Any) -> None:
    """Store a value that the code puts into an unknown object."""
    get_session().values[name] = value


def find_bound(name: str) -> Any:
    """Return what a name is bound to; ABSENT where it is not."""
    values = get_session().values
    if name in values:
        get_session().used.add(name)
        get_session().touched.add(name)
        return values[name]
    return ABSENT


def find_value(unread: Any) -> Any:
    """Return what an unread value is bound to by its name; ABSENT where it is not.

    Raises RoleRequest: its name says what it is.
    """
    for name in (unread._path, unread._alias):
        if name and (value := find_bound(name)) is not ABSENT:
            return value
    guess = get_session().guess
    meant = (
        guess(unread._path, unread._alias, unread._off) if guess and (unread._path or unread._alias) else None
    )
    if meant:
        if meant[0] == unread._alias != unread._path and unread._causes:
            name, role = meant
            statement = (
                f"klsym cannot read the value of {name} ({unread._causes[0].reason}); it takes {name} for"
            )
            add_note(f"{statement} {role} by its name, and assumes that computing it changes nothing else")
        raise RoleRequest(*meant)
    return ABSENT


def is_number(unread: Any) -> bool:
    """Does its name say that it is a number, though nothing is bound to it?"""
    guess = get_session().guess
    meant = guess(unread._path, unread._alias, unread._off) if guess and unread._path else None
    return bool(meant and meant[1] == "number" and unread._path not in get_session().values)


def is_meaningful(unread: Any) -> bool:
    """Is its value, or a part of it, bound, or does its name say what it is?"""
    if unread._path and any(
        name.startswith((f"{unread._path}.", f"{unread._path}[")) for name in get_session().values
    ):
        return True
    try:
        return find_value(unread) is not ABSENT
    except RoleRequest:
        return True


def add_note(text: str) -> None:
    if text not in get_session().notes:
        get_session().notes.append(text)


def take_for_positive(names: Iterable[str]) -> None:
    """Note that a branch was chosen so."""
    for name in sorted(names):
        add_note(
            f"{name} is taken for positive, which decides a branch; {spell_option('set')} gives it a number"
        )


def add_training_note(path: str) -> bool:
    """Note that code is read as it runs in training, and return True."""
    add_note(f"{path} is taken for true")
    return True


def is_available(path: str) -> bool | None:
    """Return what is_vllm_available() gives here, where the package that has it is not loaded.

    >>> is_available("transformers.utils.is_numpy_available"), is_available("is_nowhere_available")
    (True, False)
    """
    named = re.fullmatch(r"is_([a-z]\w*)_available", path.rpartition(".")[2])
    if named is None or named[1] in FEATURES:
        return None
    is_installed = importlib.util.find_spec(named[1]) is not None
    add_note(f"{path}() is {is_installed}: {named[1]} is {'' if is_installed else 'not '}installed here")
    return is_installed


def choose_default(value: Any, default: Any) -> Any:
    """Return x.get(key, default) of an unknown x: what the name says, else the default."""
    if not hasattr(value, "_path") or default is None or is_meaningful(value):
        return value
    add_note(f"{value._path} is left at its default")
    return default


def has_key(key: Any, container: Any) -> bool:
    """Is a key in an unknown dict?  --set "'key' in name=true" says so, and a bound key is in it."""
    name = f"{key!r} in {container._path}"
    if (value := find_bound(name)) is not ABSENT:
        return bool(value)
    inner = f"{container._path}[{key!r}]"
    if find_bound(inner) is not ABSENT or inner in get_session().something:
        return True
    raise mark_question("fact", make_undecided(container, None, name))


def call_torch(func: Any, args: Any, options: dict[str, Any]) -> Any:
    """Call a function of PyTorch, some of whose arguments are unread."""
    from klsym.audit.tracing.torch_trace import call_with_unread

    return call_with_unread(func, args, options)
