"""Code that has been found, before it is given values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from klsym.audit.compiled.early import find_variable, insert_return, replace_returns
from klsym.audit.expressions import name_expression, normalise_text
from klsym.audit.results import describe_first_read
from klsym.errors import UsageError
from klsym.language.training_names import split_words


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
    methods: dict[str, Callable[..., Any]] = field(default_factory=dict)  # config.penalty -> what it calls

    @property
    def argument_names(self) -> set[str]:
        """The names of its arguments."""
        return {argument.name for argument in self.arguments}

    def describe_place(self, line: int | None) -> str:
        """Return the file and line, for a message."""
        file = getattr(line, "file", self.file) or self.name
        return f"{file}{f', line {line}' if line else ''}"

    def make_error(self, reason: str, line: int | None) -> UsageError:
        """Return the error of code that cannot be read, for this reason."""
        reason = self.pairs_refusal or reason
        error = UsageError(f"{self.describe_place(line)}: {reason}")
        return error.located(getattr(line, "file", self.file), int(line or self.lines[0]), reason)

    @property
    def pairs_refusal(self) -> str:
        """Why a loss that compares two sequences, such as that of DPO, is refused; "" for other losses."""
        words = {word for name in [*self.argument_names, *self.stored] for word in split_words(name)}
        won = {name[:-2] for name in self.argument_names if name.endswith("_w")}  # the winner, and the loser
        lost = {name[:-2] for name in self.argument_names if name.endswith("_l")}
        if not {"chosen", "rejected"} <= words and len(won & lost) < 2:
            return ""
        return "a loss of pairs, chosen and rejected, is out of scope: klsym reads losses of one sequence"


def show_name(name: str) -> str:
    """Return a name for a message, escaped if it cannot be printed in ASCII.

    >>> show_name("f"), show_name(chr(0))
    ('f', "'\\\\x00'")
    """
    return name if name.isprintable() and len(name) <= 60 else ascii(name[:60])


def set_result(node: ast.FunctionDef, result: str | None) -> list[str]:
    """Make the function return what is asked for, and return the notes on that."""
    name = find_variable(normalise_text(result)) if result is not None and not result.isdigit() else ""
    loops = insert_return(node.body, normalise_text(result or ""), name) if name else None
    value_count = replace_returns(node, result)
    if loops:
        return [f"{result} is read in the first round of the loop over {loops[-1]}"]
    return [describe_first_read(value_count)] if value_count else []


def collect_texts(body: list[ast.stmt]) -> frozenset[str]:
    """Return all expressions, as Python writes them."""
    return frozenset(name_expression(n) for s in body for n in ast.walk(s) if isinstance(n, ast.expr))


def collect_stored(body: list[ast.stmt]) -> frozenset[str]:
    """Return the variables that are given a value."""
    names = (n for s in body for n in ast.walk(s) if isinstance(n, ast.Name))
    return frozenset(n.id for n in names if isinstance(n.ctx, ast.Store))
