"""What an edit leaves as it is, and where none is made."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Any

import pytest

from klsym.fixing.edits import Source, write_diff


def replace(text: str, old: str, new: str) -> str | None:
    """Put new text for the expression `old` of the first statement that has it."""
    source = Source(text)
    statements = [n for n in ast.walk(source.tree) if isinstance(n, ast.Assign | ast.Return)]
    for statement in statements:
        for node in ast.walk(statement.value or statement):
            if isinstance(node, ast.expr) and source.get_text(node) == old:
                edit = source.replace_expression(statement, node, new, "")
                return None if edit is None else edit.apply(text)
    raise AssertionError(f"no expression {old}")


CHANGED = [  # text, expression, new text, text with it
    ("x = a - b\n", "a - b", "c", "x = c\n"),
    ("x = (a - b).sum()\n", "a - b", "c * d", "x = (c * d).sum()\n"),
    ("x = y * a\n", "a", "b + c", "x = y * (b + c)\n"),
    ("x = a.sum()\n", "a", "b - c", "x = (b - c).sum()\n"),
    ("x = a ** 2\n", "a", "-b", "x = (-b) ** 2\n"),
    ("x = f(a, k=b)\n", "b", "c if d else e", "x = f(a, k=c if d else e)\n"),
    ("x = [a, b][0]\n", "b", "lambda: c", "x = [a, lambda: c][0]\n"),
    ("é = 'ü'; x = a\n", "a", "b", "é = 'ü'; x = b\n"),
    ("x = a\r\ny = b\r\n", "b", "c", "x = a\r\ny = c\r\n"),
    ("x = a\ry = b", "b", "c", "x = a\ry = c"),
    ("if x:\n\ty = (a +\n\t\tb)\n", "a +\n\t\tb", "c", "if x:\n\ty = (c)\n"),
    ("x = '\x0c'\ny = a  # é\n", "a", "b", "x = '\x0c'\ny = b  # é\n"),
]
KEPT = [  # text, expression, new text
    ("x = (a  # first\n    + b)\n", "a  # first\n    + b", "c"),
    ("x = f'{a}'\n", "a", "'"),
    ("x = a\n", "a", "b; y = c"),
    ("x = a\n", "a", "b)("),
]


@pytest.mark.parametrize(("text", "old", "new", "after"), CHANGED)
def test_all_else_stays(text: str, old: str, new: str, after: str) -> None:
    assert replace(text, old, new) == after


@pytest.mark.parametrize(("text", "old", "new"), KEPT)
def test_no_edit_where_the_text_would_be_another(text: str, old: str, new: str) -> None:
    with suppress(SyntaxError):
        assert replace(text, old, new) is None


def test_a_diff_applies(tmp_path: Any) -> None:
    import shutil
    import subprocess

    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for number, (before, after) in enumerate([("a\nb\nc", "a\nB\nc"), ("a\r\nb\r\n", "a\r\nB\r\n")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        file = folder / "x.py"
        file.write_bytes(before.encode())
        diff = write_diff("x.py", before, after).encode()
        subprocess.run(["git", "apply", "-p1", "-"], input=diff, cwd=folder, check=True)
        assert file.read_bytes() == after.encode()
