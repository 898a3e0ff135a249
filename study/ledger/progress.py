"""How long work shows how far it is: whoever does it is handed a wrapper for its list of items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Announce = Callable[[str], None]  # called with what is done next
Wrapper = Callable[[list[Any], Callable[[Any], str]], Iterable[Any]]  # items, and what to call each


def announce_nothing(text: str) -> None:
    """Say nothing of a step."""


def show_nothing(items: list[Any], describe: Callable[[Any], str]) -> Iterator[Any]:
    """No progress shown.

    >>> list(show_nothing([1, 2], str))
    [1, 2]
    """
    yield from items
