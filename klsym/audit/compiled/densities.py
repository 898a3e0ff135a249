"""Does an expression of the user's code use a known log density?  Then the name of its value is no guide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klsym.audit.compiled.unread import UnreadValue, is_density

DEEPEST = 4  # objects within one another
MOST = 1000  # objects that are looked at


def has_density(value: Any) -> bool:
    """Does a function without arguments reach a log density: by its variables, and by what these contain?"""
    waiting = [(cell, 0) for cell in _iterate_cells(value)]
    seen: set[int] = set()
    while waiting and len(seen) < MOST:
        element, depth = waiting.pop()
        if id(element) in seen:
            continue
        seen.add(id(element))
        if is_density(element):
            return True
        if depth < DEEPEST:
            waiting += [(part, depth + 1) for part in _iterate_parts(element)]
    return len(seen) >= MOST


def _iterate_cells(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable without a value
            continue


def _iterate_parts(container: Any) -> Iterator[Any]:
    """Yield the values in a container, an object of the user's code, or the closure of a function."""
    if isinstance(container, dict):
        yield from container.values()
    elif isinstance(container, list | tuple | set):
        yield from container
    elif isinstance(container, UnreadValue) or "formula" in getattr(container, "__dict__", {}):
        return
    else:
        yield from _iterate_cells(container)
        if any(base.__module__.startswith("klsym_audited") for base in type(container).__mro__):
            yield from container.__dict__.values()
