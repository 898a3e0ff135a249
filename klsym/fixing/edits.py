"""Changes of one place of a file: all its other bytes stay as they are.

>>> source = Source("kl = a - b  # k1\\n")
>>> [statement] = source.tree.body
>>> edit = source.replace_expression(statement, statement.value, "0.5 * (a - b) ** 2", "estimator")
>>> edit.apply(source.text), edit.size
('kl = 0.5 * (a - b) ** 2  # k1\\n', 9)
"""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from klsym.language.pasted.text import parse_python

LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")  # as Python counts lines
TOKEN = re.compile(r"\w+|\S")


@dataclass(frozen=True)
class Edit:
    """New text for the bytes from start to end of a file; kind: what is changed."""

    start: int
    end: int
    new: str
    old: str
    kind: str

    @property
    def size(self) -> int:
        """How many words and signs are changed, put in or taken out."""
        old, new = (TOKEN.findall(text) for text in (self.old, self.new))
        changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        return sum(max(b - a, d - c) for tag, a, b, c, d in changes if tag != "equal")

    def apply(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


class Source:
    """The text of a file, with its tree and the bytes of each node."""

    def __init__(self, text: str, file: str = "") -> None:
        self.text, self.file, self.data = text, file, text.encode()
        self.tree: ast.Module = parse_python(text, filename=file or "<text>")

    @cached_property
    def _starts(self) -> list[int]:
        return [match.start() for match in LINE.finditer(self.data)]

    def find_bytes(self, node: Any) -> slice:
        """Return the bytes of a node."""
        first, last = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return slice(first + node.col_offset, last + node.end_col_offset)

    def get_text(self, node: ast.AST) -> str:
        return self.data[self.find_bytes(node)].decode()

    def replace_expression(self, statement: ast.stmt, node: ast.expr, new: str, kind: str) -> Edit | None:
        """Return the edit that puts new text for an expression, in brackets where it needs them.

        None where a comment would be lost, or where the text would be read as something else.
        """
        whole, part = self.find_bytes(statement), self.find_bytes(node)
        if b"#" in self.data[part] and b"\n" in self.data[part]:
            return None
        before, behind = self.data[whole.start : part.start], self.data[part.stop : whole.stop]
        wanted = ast.dump(parse_python(new, mode="eval").body)
        for text in (new, f"({new})"):
            changed = (before + text.encode() + behind).decode()
            if _find_replacement(changed, _find_path(statement, node)) == wanted and self._is_same_around(
                statement, node, changed
            ):
                return Edit(part.start, part.stop, new=text, old=self.get_text(node), kind=kind)
        return None

    def _is_same_around(self, statement: ast.stmt, node: ast.expr, changed: str) -> bool:
        """Is all the same in a changed statement, except for the node?"""
        path = _find_path(statement, node)
        first, second = (parse_python(text).body[0] for text in (self.get_text(statement), changed))
        return _dump_around(first, path) == _dump_around(second, path)

    def replace_statement(self, statement: ast.stmt, new: str, kind: str) -> Edit | None:
        part = self.find_bytes(statement)
        if b"\n" in self.data[part] or parse_python(new) is None:
            return None
        return Edit(part.start, part.stop, new=new, old=self.get_text(statement), kind=kind)


Path = list[tuple[str, int | None]]


def _find_path(root: ast.AST, node: ast.AST) -> Path:
    """Return the fields that lead to a node: (value, None), (args, 0)."""
    if root is node:
        return []
    for name, value in ast.iter_fields(root):
        children = value if isinstance(value, list) else [value]
        for at, child in enumerate(children):
            if isinstance(child, ast.AST) and (child is node or any(n is node for n in ast.walk(child))):
                return [(name, at if isinstance(value, list) else None), *_find_path(child, node)]
    raise AssertionError("the node is none of the statement")


def _get_child(root: Any, path: Path) -> Any:
    for name, at in path:
        root = getattr(root, name, None)
        root = root if at is None else root[at] if isinstance(root, list) and at < len(root) else None
    return root


def _find_replacement(changed: str, path: Path) -> str:
    """Return what stands at the path of a changed statement; "" for what is no Python."""
    try:
        [statement] = parse_python(changed).body
    except (SyntaxError, ValueError):
        return ""
    child = _get_child(statement, path)
    return ast.dump(child) if isinstance(child, ast.AST) else ""


def _dump_around(statement: ast.stmt, path: Path) -> str:
    """Return the tree of a statement with a name for the node at the path."""
    *parents, (name, at) = path
    parent, hidden = _get_child(statement, parents), ast.Name("_", ast.Load())
    if at is None:
        setattr(parent, name, hidden)
    else:
        getattr(parent, name)[at] = hidden
    return ast.dump(statement)


def write_diff(path: str, before: str, after: str) -> str:
    """Return the unified diff of a file, as `git apply` and `patch -p1` read it."""
    old, new = ([line.decode() for line in LINE.findall(text.encode())] for text in (before, after))
    name = path.lstrip("/")
    rows = list(difflib.unified_diff(old, new, fromfile=f"a/{name}", tofile=f"b/{name}"))
    return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)
