"""Syntax trees of source files, for tests that read the code; nothing may change them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def read_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file, parsed once a process.

    >>> read_tree(Path(__file__)).body[-1].name
    'read_tree'
    """
    return ast.parse(path.read_text(encoding="utf-8"))
