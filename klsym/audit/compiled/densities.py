"""Does an expression of the user's code use a known log density?  Then the name of its value is no guide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.audit.compiled.unread import Unread, is_density

DEEPEST = 4  # objects within one another
MOST = 1000  # objects that are looked at


def uses_density(value: Any) -> bool:
    """Does a function without arguments reach a log density: by its variables, and by what these contain?"""
    waiting = [(cell, 0) for cell in _cells(value)]
    seen: set[int] = set()
    while waiting and len(seen) < MOST:
        one, depth = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if is_density(one):
            return True
        if depth < DEEPEST:
            waiting += [(part, depth + 1) for part in _parts(one)]
    return len(seen) >= MOST


def _cells(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable without a value
            continue


def _parts(one: Any) -> Iterator[Any]:
    """Yield the values in a container, an object of the user's code, or the closure of a function."""
    if isinstance(one, dict):
        yield from one.values()
    elif isinstance(one, list | tuple | set):
        yield from one
    elif isinstance(one, Unread) or "formula" in getattr(one, "__dict__", {}):
        return
    else:
        yield from _cells(one)
        if any(base.__module__.startswith("klsym_audited") for base in type(one).__mro__):
            yield from one.__dict__.values()
