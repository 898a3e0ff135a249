"""The values that expressions of the user's code have in a trace, by their place in the file.

    a + b        klsym_in_code.record_value(a + b, 3, 4, 3, 9)

The lines and columns are those of `ast`: columns count bytes.  Nothing of this is compiled in otherwise.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

IN_CODE = "klsym_in_code"
RECORDED = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Call, ast.IfExp)


class Place(NamedTuple):
    """Where an expression stands."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


Records = list[tuple[Place, Any]]  # the formula of a value, or the array of JAX whose formula is known later
_records: list[Records] = []


@contextmanager
def record_values() -> Iterator[Records]:
    """Compile the user's code so that it records its values, within the block."""
    _records.append([])
    try:
        yield _records[-1]
    finally:
        _records.pop()


def get_records() -> Records | None:
    """Return the records of the present run; None where nothing is recorded."""
    return _records[-1] if _records else None


def record_value(value: Any, *place: int) -> Any:
    """Return the value, after it was recorded if it is traced."""
    attributes = getattr(value, "__dict__", {})
    is_of_jax = type(value).__module__.startswith("jax") and hasattr(value, "aval")
    if _records and ("formula" in attributes or is_of_jax):
        formula = attributes.get("formula", value)  # as it is now: a later operation may change it in place
        _records[-1].append((Place(sys._getframe(1).f_code.co_filename, *place), formula))
    return value


def wrap_expressions(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements with each expression recorded, if anything is."""
    return [_Recorder().visit(statement) for statement in body] if _records else body


class _Recorder(ast.NodeTransformer):
    """Wraps expressions; annotations and patterns stay."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.pattern):
            return node
        visited: Any = super().visit(node)
        is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if not isinstance(node, RECORDED) or not is_read or getattr(node, "end_col_offset", None) is None:
            return visited
        place = [node.lineno, node.col_offset, node.end_lineno, node.end_col_offset]
        function = ast.Attribute(ast.Name(IN_CODE, ast.Load()), "record_value", ast.Load())
        call = ast.Call(function, [visited, *map(ast.Constant, place)], [])
        for part in (call, function, function.value, *call.args[1:]):
            ast.copy_location(part, node)
        return call

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = None if node.value is None else self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.body = [self.visit(statement) for statement in node.body]
        return node
