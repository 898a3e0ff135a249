"""Frozen records: what `dataclass(frozen=True)` makes, in a quarter of its time.  Standard library only.

A command defines a hundred of them before it answers.  Of each, only `__init__` is compiled, the rest is
shared.

>>> from dataclasses import replace
>>> @record
... class Point:
...     x: int
...     y: int = 0
>>> Point(1), Point(1) == Point(1, 0), replace(Point(1), y=2)
(Point(x=1, y=0), True, Point(x=1, y=2))
>>> Point(1).x = 2
Traceback (most recent call last):
    ...
dataclasses.FrozenInstanceError: Point.x cannot be changed
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, Never, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class of annotated fields a frozen record, with the methods that it has not."""
    dataclass(init=False, repr=False, eq=False)(cls)
    rows = fields(cls)  # type: ignore[arg-type]
    members = {
        "__init__": _compile_init(rows, hasattr(cls, "__post_init__")),
        "_compared": attrgetter("__class__", *(row.name for row in rows if row.compare)),
        **{name: method for name, method in METHODS.items() if getattr(cls, name) is getattr(object, name)},
    }
    for name, member in members.items():
        setattr(cls, name, member)
    return cls


def _compile_init(rows: tuple[Field[Any], ...], is_checked: bool) -> Any:
    """Return `__init__`, which sets the fields in their order; is_checked: and calls `__post_init__`."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    arguments, lines = ["self"], []
    for row in rows:
        default = f" = _{row.name}_"
        if row.default_factory is not MISSING:
            names[f"_{row.name}_"], default = row.default_factory, " = _MISSING"
            lines.append(f"    if {row.name} is _MISSING:\n        {row.name} = _{row.name}_()")
        elif row.default is not MISSING:
            names[f"_{row.name}_"] = row.default
        else:
            default = ""
        arguments.append(row.name + default)
        lines.append(f"    _set(self, {row.name!r}, {row.name})")
    lines += ["    self.__post_init__()"] if is_checked else []
    exec("\n".join([f"def __init__({', '.join(arguments)}):", *lines]), names)  # text of this module alone
    return names["__init__"]


def _equals(self: Any, other: Any) -> bool:
    return self._compared(self) == self._compared(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _show(self: Any) -> str:
    shown = ", ".join(f"{row.name}={getattr(self, row.name)!r}" for row in fields(self) if row.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_change(self: Any, name: str, *value: object) -> Never:
    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")


METHODS = {
    "__eq__": _equals, "__hash__": _hash, "__repr__": _show, "__setattr__": _refuse_change,
    "__delattr__": _refuse_change,
}  # fmt: skip
