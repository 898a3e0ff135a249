"""Code that has been found, before it is given values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from klsym.audit.compiled.early import return_early, returning, variable_of
from klsym.audit.expressions import normal, written
from klsym.audit.results import FIRST_READ
from klsym.errors import UsageError
from klsym.language.training_names import words_of


@dataclass(frozen=True)
class Argument:
    """An argument of the function: its name, and what the code says about it."""

    name: str
    has_default: bool = False
    is_none: bool = False  # is the default None?
    annotation: str = ""
    default: str = ""  # as Python writes it


@dataclass
class Code:
    """Code that has been found, before it is given values.

    build: what is bound -> the function that takes the arguments by name, and its namespace.
    """

    name: str
    file: str
    lines: tuple[int, int]
    arguments: tuple[Argument, ...]
    build: Callable[[Collection[str]], tuple[Callable[..., Any], dict[str, Any]]]
    notes: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    texts: frozenset[str] = frozenset()  # every expression in it
    stored: frozenset[str] = frozenset()  # its variables
    defaults: dict[str, Any] = field(default_factory=dict)  # of options, as __init__ or a dataclass has them
    numbers: frozenset[str] = frozenset()  # options that are annotated as numbers
    origin: dict[str, str] = field(default_factory=dict)  # option -> the dataclass that has its default

    @property
    def own(self) -> set[str]:
        """The names of its arguments."""
        return {argument.name for argument in self.arguments}

    def place(self, line: int | None) -> str:
        """Where something happens, in a message."""
        file = getattr(line, "file", self.file) or self.name
        return f"{file}{f', line {line}' if line else ''}"

    def unreadable(self, reason: str, line: int | None) -> UsageError:
        """The error of code that cannot be read, for this reason."""
        reason = self.of_pairs or reason
        error = UsageError(f"{self.place(line)}: {reason}")
        return error.located(getattr(line, "file", self.file), int(line or self.lines[0]), reason)

    @property
    def of_pairs(self) -> str:
        """Why a loss that compares two sequences, such as that of DPO, is refused; "" for other losses."""
        words = {word for name in [*self.own, *self.stored] for word in words_of(name)}
        won = {name[:-2] for name in self.own if name.endswith("_w")}  # the winner, and the loser
        lost = {name[:-2] for name in self.own if name.endswith("_l")}
        if not {"chosen", "rejected"} <= words and len(won & lost) < 2:
            return ""
        return "a loss of pairs, chosen and rejected, is out of scope: klsym reads losses of one sequence"


def shown(name: str) -> str:
    """A name in a message; what cannot be printed in ASCII.

    >>> shown("f"), shown(chr(0))
    ('f', "'\\\\x00'")
    """
    return name if name.isprintable() and len(name) <= 60 else ascii(name[:60])


def returned(node: ast.FunctionDef, result: str | None) -> list[str]:
    """Have it return what is asked for; what is to be said of that."""
    name = variable_of(normal(result)) if result is not None and not result.isdigit() else ""
    loops = return_early(node.body, normal(result or ""), name) if name else None
    left = returning(node, result)
    if loops:
        return [f"{result} is read in the first round of the loop over {loops[-1]}"]
    return [f"of {left} {FIRST_READ}"] if left else []


def texts_of(body: list[ast.stmt]) -> frozenset[str]:
    """All expressions, as Python writes them."""
    return frozenset(written(n) for s in body for n in ast.walk(s) if isinstance(n, ast.expr))


def stored_in(body: list[ast.stmt]) -> frozenset[str]:
    """The variables that are given a value."""
    names = (n for s in body for n in ast.walk(s) if isinstance(n, ast.Name))
    return frozenset(n.id for n in names if isinstance(n.ctx, ast.Store))
