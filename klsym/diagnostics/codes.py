"""The diagnostic codes and their pages, read from codes.toml.

>>> code("KL004").name, code("missing-weight").code
('missing-weight', 'KL004')
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from klsym.errors import UsageError

PAGES = Path(__file__).with_name("codes.toml")


@dataclass(frozen=True)
class Example:
    """A loss and the options of `klsym explain` with it."""

    loss: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """As it is typed after `klsym explain`."""
        quoted = f"'{self.loss}'" if set(self.loss) & set(" *()<>&;|") else self.loss
        return " ".join([quoted, *(f"--{name} {value}" for name, value in self.options.items())])


@dataclass(frozen=True)
class Code:
    """One diagnostic: what it says, what it means, why it matters, an example, the fix, the theorem.

    theorem: the claim of the ledger behind it; "" where it rests on arithmetic alone.
    """

    code: str
    name: str
    says: str
    means: str
    matters: str
    example: Example
    write: Example
    theorem: str = ""


@cache
def codes() -> tuple[Code, ...]:
    """All codes, in their order."""
    rows = tomllib.loads(PAGES.read_text(encoding="utf-8"))["code"]
    return tuple(
        Code(**{**row, **{name: _example(row[name]) for name in ("example", "write")}}) for row in rows
    )


def _example(row: dict[str, Any]) -> Example:
    return Example(row["loss"], {name: value for name, value in row.items() if name != "loss"})


def code(asked: str) -> Code:
    """The code with this number or name; raises UsageError where there is none."""
    wanted = asked.strip()
    found = [one for one in codes() if wanted.upper() == one.code or wanted.lower() == one.name]
    if found:
        return found[0]
    known = ", ".join(f"{one.code} {one.name}" for one in codes())
    raise UsageError(f"{asked[:40]!r} is no diagnostic code; known: {known}")
