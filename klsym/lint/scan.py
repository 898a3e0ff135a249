"""Which functions of a project are losses with a KL or a ratio, by what they compute; nothing is run."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from klsym.audit.binding import guess_role
from klsym.errors import UsageError
from klsym.files import read_text
from klsym.language.pasted.text import parse_python
from klsym.lint.computing import find_lines, list_functions

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
MOST = 6  # names that are shown


@dataclass(frozen=True)
class Candidate:
    """A function or method: where it stands, what its names say, the lines that make it a loss."""

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
        named = f"; a KL or a ratio in line {', '.join(map(str, self.lines[:MOST]))}"
        return f"{self.code}  (line {self.line}) {read}{named}"


def find_candidates(root: Path) -> list[Candidate]:
    """Return the candidates of a file or a folder; raises UsageError if it does not exist."""
    if root.is_file():
        files = [root]
    elif root.is_dir():
        files = sorted(p for p in root.rglob("*.py") if not LEFT_OUT & {*p.relative_to(root).parts[:-1]})
    else:
        raise UsageError(f"{root}: no such file or folder")
    return [candidate for file in files for candidate in list_functions_of(file) if candidate.lines]


def list_functions_of(path: Path) -> list[Candidate]:
    """Return all functions of a file; those without lines compute neither a KL nor a policy loss."""
    try:
        tree = parse_python(read_text(path, LARGEST), filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError, UsageError):
        return []
    return [
        Candidate(path.as_posix(), name, node.lineno, roles=_list_roles(node), lines=find_lines(node))
        for name, node in list_functions(tree)
    ]


def _list_roles(node: ast.FunctionDef) -> tuple[tuple[str, str], ...]:
    """Return the usual names in a function with their roles."""
    roles: dict[str, str] = {}
    for word in _collect_names(node):
        if (role := guess_role(word)) and (role.startswith("log_") or role in ("A", "R", "rho")):
            roles.setdefault(word, role)
    return tuple(roles.items())


def _collect_names(node: ast.AST) -> Iterator[str]:
    """Yield arguments, variables, attributes and keys."""
    for node_inside in ast.walk(node):
        match node_inside:
            case ast.arg(arg=name) | ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.Subscript(slice=ast.Constant(str(key))) if re.fullmatch(r"\w+", key):
                yield key


EXPECTATION = (
    '# expect = "-E[A] + 0.04*reverse-kl"  # what it is to minimise; an audit of anything else fails'
)


def as_targets(candidates: list[Candidate], known: set[str]) -> str:
    """Return the candidates that are no targets yet as tables of klsym.toml.

    Comments list their names, and how to say what the code is to minimise, which only its author knows.
    """
    written = []
    for candidate in candidates:
        if candidate.code in known or not candidate.is_text:
            continue
        roles = ", ".join(f"{name} = {role}" for name, role in candidate.roles[:MOST])
        code = f"code = {as_toml_string(candidate.code)}"
        written.append(f"\n[[target]]  # by their names: {roles}\n{code}\n{EXPECTATION}\n")
    return "".join(written)


def as_toml_string(text: str) -> str:
    r"""Return a string as TOML writes it, with what cannot be printed escaped.

    >>> print(as_toml_string('a "b" \\ \x7f'))
    "a \"b\" \\ \u007f"
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
