"""The diagnostic codes and their pages, read from codes.toml.

>>> find_code("KL004").name, find_code("missing-weight").code
('missing-weight', 'KL004')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from klsym.engine.answers.loss_hints import suggest_explain
from klsym.errors import UsageError, suggest_nearest

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

    level: "error", the loss has another objective than it seems to have, or "warning".

    theorem: the claim of the ledger behind it; "" where it rests on arithmetic alone.
    """

    code: str
    name: str
    level: str
    says: str
    means: str
    matters: str
    example: Example
    write: Example
    theorem: str = ""


@cache
def load_codes() -> tuple[Code, ...]:
    """Return all codes, in their order."""
    return tuple(map(_load_code, _read_pages()))


@cache
def _read_pages() -> dict[str, str]:
    """Return the table of each code as text, by its number."""
    pages = re.split(r"^(?=\[\[code\]\])", PAGES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {page.split('"', 2)[1]: page for page in pages}


@cache
def _load_code(number: str) -> Code:
    import tomllib

    row = tomllib.loads(_read_pages()[number])["code"][0]
    return Code(**{**row, **{name: _read_example(row[name]) for name in ("example", "write")}})


def _read_example(row: dict[str, Any]) -> Example:
    return Example(row["loss"], {name: value for name, value in row.items() if name != "loss"})


def find_code(number_or_name: str) -> Code:
    """Return the code with this number or name; raises UsageError if there is none."""
    if number_or_name in _read_pages():
        return _load_code(number_or_name)
    wanted = number_or_name.strip()
    number = re.sub(r"^KL0*(\d{1,2})$", lambda digits: f"KL{int(digits[1]):03}", wanted.upper())
    matches = [
        one
        for one in load_codes()
        if number == one.code or re.sub(r"[\s_]+", "-", wanted.lower()) == one.name
    ]
    if matches:
        return matches[0]
    known = ", ".join(f"{one.code} {one.name}" for one in load_codes())
    nearest = suggest_nearest(wanted, [name for one in load_codes() for name in (one.code, one.name)])
    raise UsageError(
        f"{number_or_name[:40]!r} is no diagnostic code{suggest_explain(wanted) or nearest}; known: {known}"
    )
