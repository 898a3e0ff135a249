"""Branches on a value that nobody has confirmed: the default of an option, or a value that klsym assumed.

If a loss is the same for both answers to such a question, klsym does not ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

from klsym.audit.code import Code
from klsym.audit.compiled.running import UndecidedBranch, Words
from klsym.errors import UsageError, spell_option, spell_values

FEW = 4  # questions whose answers are combined in every way


class Questions:
    """proposed: name -> a value with which the code goes on; defaults: options with one in the code.

    asks: which of them have two answers (see Undecided).  other: the answers that are tried in place of
    those proposed; something: the names of values that are tried as no None, or as true.
    """

    def __init__(self, code: Code, note: Callable[[str], None]) -> None:
        self.code, self.note = code, note
        self.proposed: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.asks: dict[str, str] = {}
        self.other: dict[str, Any] = {}
        self.something: frozenset[str] = frozenset()

    @property
    def values(self) -> dict[str, Any]:
        values = {**self.defaults, **self.proposed, **self.other}
        return {name: value for name, value in values.items() if name not in self.something}

    def decide(self, undecided: UndecidedBranch) -> None:
        """Go on with the default of an option, or with a value that is proposed to the user."""
        name = undecided.name
        if not name or name in self.proposed:
            raise undecided
        if isinstance(undecided.value, Words):
            self.defaults[name] = int(undecided.value)
            statement = f"{name} is any number of words below the vocabulary"
            self.note(f"{statement}; klsym runs the code with {undecided.value}")
            return
        if name not in self.code.defaults or name in self.defaults:
            self.proposed[name], self.asks[name] = undecided.value, undecided.asks
            return
        self.defaults[name] = value = self.code.defaults[name]
        place = self.code.origin.get(name, "__init__")
        self.note(f"{name} is {value!r}, its default in {place} ({spell_option('set')} binds it)")

    def drop_without_effect(self, is_same: Callable[[], bool]) -> None:
        """Drop questions whose answers give one loss; is_same: do self.values give the loss that was read?

        A question with more than two answers stays.
        """
        names = [name for name in self.proposed if self.asks[name]]
        dropped = [name for name in names if self._is_same(is_same, [name])]
        if not dropped or not all(self._is_same(is_same, chosen) for chosen in _combine_names(dropped)):
            return
        how = "in every combination" if len(dropped) <= FEW else "each alone and all together"
        self.note(f"klsym tried both answers to {', '.join(dropped)}, {how}: the loss is the same")
        for name in dropped:
            self.defaults[name] = self.proposed.pop(name)

    def _is_same(self, is_same: Callable[[], bool], names: list[str]) -> bool:
        facts = [name for name in names if self.asks[name] == "fact"]
        self.other = {name: not self.proposed[name] for name in facts}
        self.something = frozenset(names) - {*facts}
        try:
            return is_same()
        finally:
            self.other, self.something = {}, frozenset()

    def refuse(self, reason: str = "") -> None:
        """Raise UsageError with all that the code branches on, and what would be read for these values."""
        if not self.proposed:
            return
        command = spell_values(self.proposed)
        names = ", ".join(self.proposed)
        be = "is" if len(self.proposed) == 1 else "are"
        outcome = f"; with these, {reason}" if reason else ""
        says = f"{spell_option('set')} says so, as in {command}{outcome}"
        raise UsageError(f"{self.code.name} branches on {names}, which {be} unknown: {says}")


def _combine_names(names: list[str]) -> Iterator[list[str]]:
    """Yield several names at once: in every way if they are few, else all together."""
    if len(names) > FEW:
        yield names
        return
    for size in range(2, len(names) + 1):
        yield from map(list, combinations(names, size))


def copy_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same values; the code may fill a container anew in each run."""
    return {k: type(v)(v) if type(v) in (dict, list) else v for k, v in values.items()}
