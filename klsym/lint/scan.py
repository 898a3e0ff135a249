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

from klsym.audit.binding import guess_role
from klsym.errors import UsageError
from klsym.files import read_text
from klsym.language.parser import parse_python
from klsym.language.training_names import split_words

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


def find_candidates(root: Path) -> list[Candidate]:
    """Return the candidates of a file or a folder; raises UsageError if it does not exist."""
    if root.is_file():
        files = [root]
    elif root.is_dir():
        files = sorted(p for p in root.rglob("*.py") if not LEFT_OUT & {*p.relative_to(root).parts[:-1]})
    else:
        raise UsageError(f"{root}: no such file or folder")
    return [candidate for file in files for candidate in _find_in_file(file)]


def _find_in_file(path: Path) -> Iterator[Candidate]:
    try:
        tree = parse_python(read_text(path, LARGEST), filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError, UsageError):
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _judge_function(path, node, node.name)
        for inner in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(inner, ast.FunctionDef):
                yield from _judge_function(path, inner, f"{node.name}.{inner.name}")


def _judge_function(path: Path, node: ast.FunctionDef, name: str) -> Iterator[Candidate]:
    roles: dict[str, str] = {}
    lines: set[int] = set()
    computes = any(isinstance(n, ast.BinOp | ast.Call) for n in ast.walk(node))
    for word, line in _collect_names(node):
        if (role := guess_role(word)) and (role.startswith("log_") or role in ("A", "R", "rho")):
            roles.setdefault(word, role)
        if {*split_words(word)} & KL:
            lines.add(line)
    policies = {role[:5] for role in roles.values() if role.startswith("log_")}
    weighed = "rho" in roles.values() and {"A", "R"} & {*roles.values()}
    if computes and (len(policies) > 1 or weighed or (lines and policies)):
        yield Candidate(
            path.as_posix(), name, node.lineno, roles=tuple(roles.items()), lines=tuple(sorted(lines))
        )


def _collect_names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield arguments, variables, attributes and keys, with their lines."""
    for node_inside in ast.walk(node):
        match node_inside:
            case ast.arg(arg=name) | ast.Name(id=name) | ast.Attribute(attr=name):
                yield name, node_inside.lineno
            case ast.Subscript(slice=ast.Constant(str(key))) if re.fullmatch(r"\w+", key):
                yield key, node_inside.lineno


def as_targets(candidates: list[Candidate], known: set[str]) -> str:
    """Return the candidates that are no targets yet as tables of klsym.toml; a comment lists their names."""
    written = []
    for candidate in candidates:
        if candidate.code in known or not candidate.is_text:
            continue
        roles = ", ".join(f"{name} = {role}" for name, role in candidate.roles[:MOST])
        written.append(f"\n[[target]]  # by their names: {roles}\ncode = {as_toml_string(candidate.code)}\n")
    return "".join(written)


def as_toml_string(text: str) -> str:
    r"""Return a string as TOML writes it, with what cannot be printed escaped.

    >>> print(as_toml_string('a "b" \\ \x7f'))
    "a \"b\" \\ \u007f"
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
