"""The terms of a sum as they were typed, each with its expression."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.language.pasted.text import parse_python


def split_terms(text: str, parameters: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """Return the terms of a typed sum, in their order; nothing for what is no text of the grammar.

    >>> [text for text, _ in split_terms("-A*log_q + beta*k3 - (r - 1)")]
    ['-A*log_q', 'beta*k3', '-(r - 1)']
    """
    try:
        pieces = list(_split_pieces(parse_python(text.strip(), mode="eval").body, text.strip()))
        return [(piece, parse(piece, parameters)) for piece in pieces]
    except (SyntaxError, RecursionError, MemoryError, ValueError, UsageError):
        return []


def _split_pieces(node: ast.expr, text: str, sign: str = "") -> Iterator[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and not sign:
        yield from _split_pieces(node.left, text)
        yield from _split_pieces(node.right, text, "-" if isinstance(node.op, ast.Sub) else "")
        return
    piece = ast.get_source_segment(text, node) or ""
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    yield f"{sign}({piece})" if sign and is_sum else f"{sign}{piece}"
