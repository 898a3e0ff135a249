"""Which functions of a project may hold a KL: by the names in them, nothing is run.

A candidate computes with the log-probabilities of at least two policies, or calls what is named after a KL.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from klsym.audit.binding import meaning
from klsym.errors import UsageError
from klsym.files import read_text
from klsym.language.parser import syntax
from klsym.language.training_names import words_of

LARGEST = 5_000_000  # bytes of a file
LEFT_OUT = {
    ".git",
    ".venv",
    "venv",
    "node_modules",
    "build",
    "dist",
    "__pycache__",
    "site-packages",
    "tests",
    "test",
}
KL = {"kl", "kld", "kldiv", "jsd"}
MOST = 6  # names that are shown


@dataclass(frozen=True)
class Candidate:
    """A function or method: where it stands, what its names say, where a KL is named."""

    path: str
    function: str
    line: int
    roles: tuple[tuple[str, str], ...]
    lines: tuple[int, ...]

    @property
    def code(self) -> str:
        return f"{self.path}:{self.function}"

    @property
    def is_text(self) -> bool:
        """Is its path Unicode, as a file of TOML has to be?"""
        return not any("\ud800" <= sign <= "\udfff" for sign in self.code)

    def __str__(self) -> str:
        read = ", ".join(f"{name} = {role}" for name, role in self.roles[:MOST]) or "no usual names"
        named = f"; a KL in line {', '.join(map(str, self.lines[:MOST]))}" if self.lines else ""
        return f"{self.code}  (line {self.line}) {read}{named}"


def scanned(root: Path) -> list[Candidate]:
    """The candidates of a file or a folder; raises UsageError where there is none such."""
    if root.is_file():
        files = [root]
    elif root.is_dir():
        files = sorted(p for p in root.rglob("*.py") if not LEFT_OUT & {*p.relative_to(root).parts[:-1]})
    else:
        raise UsageError(f"{root}: no such file or folder")
    return [found for file in files for found in _of_file(file)]


def _of_file(path: Path) -> Iterator[Candidate]:
    try:
        tree = syntax(read_text(path, LARGEST), filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError, UsageError):
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _of_function(path, node, node.name)
        for inner in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(inner, ast.FunctionDef):
                yield from _of_function(path, inner, f"{node.name}.{inner.name}")


def _of_function(path: Path, node: ast.FunctionDef, name: str) -> Iterator[Candidate]:
    roles: dict[str, str] = {}
    lines: set[int] = set()
    computes = any(isinstance(n, ast.BinOp | ast.Call) for n in ast.walk(node))
    for word, line in _names(node):
        if (role := meaning(word)) and (role.startswith("log_") or role in ("A", "R", "rho")):
            roles.setdefault(word, role)
        if {*words_of(word)} & KL:
            lines.add(line)
    policies = {role[:5] for role in roles.values() if role.startswith("log_")}
    weighed = "rho" in roles.values() and {"A", "R"} & {*roles.values()}
    if computes and (len(policies) > 1 or weighed or (lines and policies)):
        yield Candidate(path.as_posix(), name, node.lineno, tuple(roles.items()), tuple(sorted(lines)))


def _names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Arguments, variables, attributes and keys."""
    for one in ast.walk(node):
        match one:
            case ast.arg(arg=name) | ast.Name(id=name) | ast.Attribute(attr=name):
                yield name, one.lineno
            case ast.Subscript(slice=ast.Constant(str(key))) if re.fullmatch(r"\w+", key):
                yield key, one.lineno


def as_targets(candidates: list[Candidate], known: set[str]) -> str:
    """The candidates that are no targets yet, as tables of klsym.toml; a comment lists their names."""
    written = []
    for one in candidates:
        if one.code in known or not one.is_text:
            continue
        said = ", ".join(f"{name} = {role}" for name, role in one.roles[:MOST])
        written.append(f"\n[[target]]  # by their names: {said}\ncode = {toml_string(one.code)}\n")
    return "".join(written)


def toml_string(text: str) -> str:
    r"""A string of TOML, which has no surrogates, and escapes what cannot be printed.

    >>> print(toml_string('a "b" \\ \x7f'))
    "a \"b\" \\ \u007f"
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
