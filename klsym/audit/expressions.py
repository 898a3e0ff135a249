"""The expressions of code by which its inputs are named."""

from __future__ import annotations

import ast
import copy
from typing import Any

from klsym.errors import UsageError
from klsym.language.pasted.text import parse_python


def normalise_text(text: str) -> str:
    """Return an expression of the code, as Python itself would write it.

    >>> normalise_text('inputs["ref_logps"]'), normalise_text('getattr(self.args, "flag", False)')
    ("inputs['ref_logps']", 'self.args.flag')

    Raises UsageError: no expression.
    """
    try:
        return name_expression(parse_python(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"{text[:60]!r} is no name or expression of the code") from None


def set_line(node: ast.AST, line: int) -> None:
    for part in ast.walk(node):
        if isinstance(part, ast.stmt | ast.expr):
            part.lineno = part.end_lineno = line


def _is_getattr(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Name("getattr"), [_, ast.Constant(str(name)), *more], []) if len(more) < 2:
            return name.isidentifier()
    return False


class _GetattrRemover(ast.NodeTransformer):
    """getattr(x, "y") and getattr(x, "y", z) as x.y."""

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if not _is_getattr(node):
            return node
        name: Any = node.args[1]
        return ast.copy_location(ast.Attribute(node.args[0], name.value, ast.Load()), node)


def name_expression(node: ast.AST) -> str:
    """Return the name of an expression of the code: getattr(x, "y", z) reads x.y."""
    text = ast.unparse(node)
    return ast.unparse(_GetattrRemover().visit(copy.deepcopy(node))) if "getattr" in text else text
