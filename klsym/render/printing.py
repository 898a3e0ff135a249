"""An answer of the engine in the class that prints it: the same fields, shown as text or in Jupyter."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")
WIDTH = 100  # columns, where no terminal says how many it has


def as_printed(kind: type[T], data: Any, **changes: Any) -> T:
    """Copy a frozen dataclass into a subclass that prints itself; changes: fields to replace."""
    instance = object.__new__(kind)
    instance.__dict__.update(data.__dict__, **changes)
    return instance
