"""The expressions of code by which its inputs are named, and their replacement by names."""

from __future__ import annotations

import ast
import copy
from typing import Any

from klsym.errors import UsageError
from klsym.language.parser import syntax

OF_TENSORS = {"shape", "dtype", "device", "ndim", "data", "T", "requires_grad", "size", "is_cuda"}


def normal(text: str) -> str:
    """An expression of the code, as Python itself would write it.

    >>> normal('inputs["ref_logps"]'), normal('getattr(self.args, "flag", False)')
    ("inputs['ref_logps']", 'self.args.flag')

    Raises UsageError: no expression.
    """
    try:
        return written(syntax(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"{text[:60]!r} is no name or expression of the code") from None


def placed(node: ast.AST, line: int) -> None:
    for part in ast.walk(node):
        if isinstance(part, ast.stmt | ast.expr):
            part.lineno = part.end_lineno = line


class Outside(ast.NodeVisitor):
    """The expressions x, x.y, x["z"] that begin at one of some names, each as long as it is written."""

    def __init__(self, roots: set[str]) -> None:
        self.roots, self.found = roots, {}  # type: ignore[var-annotated]

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            attribute = _Plain().visit(copy.deepcopy(node)) if _is_getattr(node) else None
            if attribute is not None and _root(attribute) in self.roots:
                self.found[ast.unparse(attribute)] = None
                for default in node.args[2:]:
                    self.visit(default)
                return
            chain = _root(node.func)
            if isinstance(node.func, ast.Attribute) and chain in self.roots:
                self.visit(node.func.value)  # a method of x is no part of its name
                for other in [*node.args, *node.keywords]:
                    self.visit(other)
                return
        if isinstance(node, ast.Attribute) and node.attr in OF_TENSORS and _root(node) in self.roots:
            self.visit(node.value)
            return
        read = isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load)
        if read and _root(node) in self.roots and ast.unparse(node) not in ("self", "cls"):
            self.found[ast.unparse(node)] = None
            return
        super().generic_visit(node)


def _root(node: ast.AST) -> str | None:
    while True:
        match node:
            case ast.Attribute(value=inner):
                node = inner
            case ast.Subscript(value=inner, slice=ast.Constant(str())):
                node = inner
            case ast.Name(name):
                return name
            case _:
                return None


def _is_getattr(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Name("getattr"), [_, ast.Constant(str(name)), *more], []) if len(more) < 2:
            return name.isidentifier()
    return False


class _Plain(ast.NodeTransformer):
    """getattr(x, "y") and getattr(x, "y", z) as x.y."""

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if not _is_getattr(node):
            return node
        name: Any = node.args[1]
        return ast.copy_location(ast.Attribute(node.args[0], name.value, ast.Load()), node)


def written(node: ast.AST) -> str:
    """The name of an expression of the code: getattr(x, "y", z) reads x.y."""
    text = ast.unparse(node)
    return ast.unparse(_Plain().visit(copy.deepcopy(node))) if "getattr" in text else text


class Renamed(ast.NodeTransformer):
    """Each expression that has a value, replaced by the name that holds it."""

    def __init__(self, slots: dict[str, str]) -> None:
        self.slots = slots

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            name = self.slots.get(written(node))
            if name:
                return ast.copy_location(ast.Name(name, ast.Load()), node)
        return super().visit(node)


class _Returning(ast.NodeTransformer):
    """Every return of the function itself gives the result that was asked for."""

    def __init__(self, result: str) -> None:
        self.result = ast.parse(result, mode="eval").body

    def visit_Return(self, node: ast.Return) -> Any:
        found = copy.deepcopy(self.result)
        placed(found, node.lineno)
        return ast.copy_location(ast.Return(found), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return node


def replaced(node: ast.FunctionDef, slots: dict[str, str], result: str | None) -> ast.FunctionDef:
    own = {a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]}
    left = {key: name for key, name in slots.items() if key not in own}
    node.body = [Renamed(left).visit(s) for s in node.body]
    if result is not None and not result.isdigit():
        node.body = [_Returning(normal(result)).visit(s) for s in node.body]
    return node
