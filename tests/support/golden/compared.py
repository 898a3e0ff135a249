"""The differences between the stored answer and a new one, by column and kind, and which are intended.

>>> was = {"target": "zero", "trust": "kernel", "messages": {"vanishes": 1}}
>>> for one in differences(Pair("k1"), was, {"target": "objective", "trust": "kernel"}):
...     print(one.column, "|", one.kind)
target | zero -> objective
messages | - vanishes
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .answers import BESIDE, COLUMNS, Answer, at_points
from .pairs import Pair

LISTED = Path(__file__).with_name("intended.toml")
WORDS = ("refusal", "target", "trust")  # columns of one word
COUNTS = ("messages", "hypotheses")
SAME_VALUE = "other form, same value"
VALUES = ("ring", "slots", "at")


@dataclass(frozen=True)
class Difference:
    """One column of one pair with two answers."""

    column: str
    kind: str
    pair: Pair
    was: Any
    now: Any


def differences(pair: Pair, was: Answer, now: Answer) -> Iterator[Difference]:
    """All differences of one pair; where one of the answers is a refusal, that one alone."""
    if "refusal" in was or "refusal" in now:
        columns: tuple[str, ...] = ("refusal",)
    else:
        columns = COLUMNS + BESIDE
    on_policy = pair.option("sampling") == "on-policy"
    for column in columns:
        one, other = was.get(column), now.get(column)
        if column == "form":
            found = of_form(was, now, on_policy)
        else:
            found = iter(()) if same(one, other, on_policy) else kinds(column, one, other, on_policy)
        yield from (Difference(column, kind, pair, one, other) for kind in found)


def kinds(column: str, was: Any, now: Any, on_policy: bool) -> Iterator[str]:
    """The kinds of a difference in a column."""
    if column in WORDS:
        yield f"{was or 'answered'} -> {now or 'answered'}"
    elif column in COUNTS:
        was, now = was or {}, now or {}
        yield from (f"- {code}" for code in was if code not in now)
        yield from (f"+ {code}" for code in now if code not in was)
        yield from (f"count of {code}" for code in was if code in now and was[code] != now[code])
    elif was is None or now is None:
        yield "appeared" if was is None else "vanished"
    elif isinstance(was, Mapping) and isinstance(now, Mapping) and not is_value(was) and not is_value(now):
        named = [name for name in {**was, **now} if not same(was.get(name), now.get(name), on_policy)]
        yield from (f"{name}: {moved(was.get(name), now.get(name))}" for name in named)
    else:
        yield moved(was, now)


def moved(was: Any, now: Any) -> str:
    """What happened to an entry, in few words."""
    if was in (None, [], {}) or now in (None, [], {}):
        return "appeared" if was in (None, [], {}) else "vanished"
    words = isinstance(was, str) and isinstance(now, str) and len(was + now) < 60
    return f"{was} -> {now}" if words else "other value"


def of_form(was: Answer, now: Answer, on_policy: bool) -> Iterator[str]:
    """How h and c are held, and the columns whose values are equal in another form."""
    one, other = was.get("form") or {}, now.get("form") or {}
    yield from (f"{name}: {one[name]} -> {other[name]}" for name in one if one[name] != other.get(name))
    for column in COLUMNS:
        first, second = (without_text(answer.get(column)) for answer in (was, now))
        if first != second and same(was.get(column), now.get(column), on_policy):
            yield f"{column}: {SAME_VALUE}"


# ---------------------------------------------------------------------------- equality
def same(was: Any, now: Any, on_policy: bool = True) -> bool:
    """Are two entries equal as values?  Canonical forms first, then values at fixed points.

    >>> n = ["1", {"n": 1}]
    >>> same({"ring": [["-1", {}], n]}, {"ring": [["1", {"m": 1}]]}), same({"ring": [n]}, {"ring": []})
    (True, False)
    """
    if without_text(was) == without_text(now):
        return True
    if is_value(was) and is_value(now):
        return at_points(was, on_policy) == at_points(now, on_policy)
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        return was.keys() == now.keys() and all(same(was[name], now[name], on_policy) for name in was)
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(same(a, b, on_policy) for a, b in zip(was, now, strict=True))
    return False


def is_value(entry: Any) -> bool:
    """Is it the canonical form of a value, or a value at fixed points?"""
    return isinstance(entry, Mapping) and any(name in entry for name in VALUES)


def without_text(entry: Any) -> Any:
    """An entry without the text for the reader."""
    if isinstance(entry, Mapping):
        return {name: without_text(of) for name, of in entry.items() if name != "text" or "at" not in entry}
    return [without_text(of) for of in entry] if isinstance(entry, list) else entry


# ---------------------------------------------------------------------------- intended differences
@dataclass(frozen=True)
class Intended:
    """Differences that are wanted: patterns of the column, the kind and the loss, or keys; the reason."""

    column: str
    reason: str
    kind: str = "*"
    loss: str = "*"
    source: str = "*"
    pairs: tuple[str, ...] = ()

    def covers(self, one: Difference) -> bool:
        """Is this difference one of them?"""
        patterns = (self.column, self.kind, self.loss, self.source)
        words = (one.column, one.kind, one.pair.text, one.pair.source)
        named = not self.pairs or one.pair.key in self.pairs
        return named and all(
            x == word or fnmatchcase(word, x) for x, word in zip(patterns, words, strict=True)
        )


def intended(text: str | None = None) -> tuple[Intended, ...]:
    """The list of intended differences; each has a reason of a sentence.

    >>> [found] = intended("[[difference]]\\ncolumn = 'trust'\\nreason = 'Clamps are proved now.'")
    >>> found.column, found.kind, found.loss
    ('trust', '*', '*')
    """
    rows = tomllib.loads(LISTED.read_text(encoding="utf-8") if text is None else text).get("difference", [])
    found = tuple(Intended(**{**row, "pairs": tuple(row.get("pairs", ()))}) for row in rows)
    for one in found:
        if len(one.reason.split()) < 3:
            raise ValueError(f"intended.toml: {one.column} {one.kind}: a reason of a sentence expected")
    return found


def sorted_out(
    found: Iterable[Difference], listed: Iterable[Intended]
) -> tuple[list[Difference], dict[Intended, int]]:
    """The differences that no entry of the list covers, and how many each entry covers."""
    covered, left = dict.fromkeys(listed, 0), []
    for one in found:
        entry = next((entry for entry in covered if entry.covers(one)), None)
        if entry is None:
            left.append(one)
        else:
            covered[entry] += 1
    return left, covered


def shown(entry: Any, width: int = 150) -> str:
    """An entry for the reader."""
    text = "nothing" if entry is None else entry if isinstance(entry, str) else json.dumps(entry)
    return text if len(text) <= width else text[: width - 3] + "..."
