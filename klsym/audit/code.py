"""Code that has been found, before it is given values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from klsym.audit.compiled.rewriting import returning
from klsym.audit.expressions import written


@dataclass(frozen=True)
class Argument:
    """An argument of the function: its name, and what the code says about it."""

    name: str
    has_default: bool = False
    is_none: bool = False  # is the default None?
    annotation: str = ""


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
    defaults: dict[str, Any] = field(default_factory=dict)  # of attributes of self, as __init__ has them

    @property
    def own(self) -> set[str]:
        """The names of its arguments."""
        return {argument.name for argument in self.arguments}


def shown(name: str) -> str:
    """A name in a message; what cannot be printed in ASCII.

    >>> shown("f"), shown(chr(0))
    ('f', "'\\\\x00'")
    """
    return name if name.isprintable() and len(name) <= 60 else ascii(name[:60])


def returned(node: ast.FunctionDef, result: str | None) -> list[str]:
    """Have it return what is asked for; what is to be said of that."""
    left = returning(node, result)
    return [f"of {left} values that are returned, the first is read (--result chooses)"] if left else []


def texts_of(body: list[ast.stmt]) -> frozenset[str]:
    """All expressions, as Python writes them."""
    return frozenset(written(n) for s in body for n in ast.walk(s) if isinstance(n, ast.expr))


def stored_in(body: list[ast.stmt]) -> frozenset[str]:
    """The variables that are given a value."""
    names = (n for s in body for n in ast.walk(s) if isinstance(n, ast.Name))
    return frozenset(n.id for n in names if isinstance(n.ctx, ast.Store))
