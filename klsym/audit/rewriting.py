"""The compiled copy of the user's code, in which what is bound replaces expressions.

x = f(y)         x = klsym_in_code.kept(lambda: f(y), ('x',))
if bad: raise    if klsym_in_code.holds(lambda: bad): raise
x is None        klsym_in_code.is_none(x)
float(x)         klsym_in_code.number(float, x)
'k' in x         klsym_in_code.contains('k', x)
getattr(x, 'y', z)  klsym_in_code.attribute(x, 'y', z)
self.beta        klsym_in_code.given('self.beta'), where the user has bound it
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection
from typing import Any

from klsym.audit.expressions import normal, placed, written
from klsym.audit.slicing import is_guard, reads, sliced

IN_CODE = "klsym_in_code"
NOT_MOVED = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)  # they mean another thing within a lambda
OF_FRAMES = {"super", "locals", "vars", "globals"}


def prepared(node: ast.FunctionDef, scope: str = "", keys: Collection[str] = ()) -> ast.FunctionDef:
    """The function as it is compiled: sliced, with calls of `in_code`.

    scope: before the names of its variables, "" for the function that is audited.  keys: what is bound.
    """
    if any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in ast.walk(node)):
        return node
    found = sliced(node)
    own = {a.arg for a in ast.walk(found.args) if isinstance(a, ast.arg)}
    stored = {
        n.id
        for s in found.body
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    replaced = frozenset(key for key in keys if key not in own | stored)
    writer = _Rewritten(replaced, own, scope)
    found.body = [writer.visit(copy.deepcopy(s)) for s in found.body]
    return found


def _call(name: str, arguments: list[ast.expr], at: ast.AST) -> ast.Call:
    function = ast.Attribute(ast.Name(IN_CODE, ast.Load()), name, ast.Load())
    made = ast.Call(function, arguments, [])
    for part in (function.value, function, made):
        ast.copy_location(part, at)
    for argument in arguments:
        ast.copy_location(argument, at)
    return made


def _later(value: ast.expr) -> ast.Lambda:
    none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(none, value)


def _is_movable(value: ast.expr) -> bool:
    inside = list(ast.walk(value))
    framed = any(isinstance(n, ast.Name) and n.id in OF_FRAMES for n in inside)
    return not framed and not any(isinstance(n, NOT_MOVED) for n in inside)


class _Rewritten(ast.NodeTransformer):
    def __init__(self, keys: frozenset[str], own: set[str], scope: str) -> None:
        self.keys, self.own, self.scope = keys, own, scope

    def visit(self, node: ast.AST) -> Any:
        loaded = isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if self.keys and loaded and (name := written(node)) in self.keys:
            return _call("given", [ast.Constant(name)], node)
        return super().visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        names = _names(node.targets[0]) if len(node.targets) == 1 else []
        value = self.visit(node.value)
        node.targets = [self.visit(t) for t in node.targets]
        node.value = self.kept(value, names, node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.kept(self.visit(node.value), _names(node.target), node)
        return node

    def kept(self, value: ast.expr, names: list[str], at: ast.stmt) -> ast.expr:
        plain = isinstance(value, ast.Constant | ast.Name | ast.Lambda | ast.Tuple)
        if not names or plain or self.own & {*names} or reads(value) & {*names} or not _is_movable(value):
            return value
        scoped = [ast.Constant(f"{self.scope}{name}") for name in names]
        listed = ast.copy_location(ast.Tuple([ast.copy_location(c, at) for c in scoped], ast.Load()), at)
        return _call("kept", [ast.copy_location(_later(value), value), listed], value)

    def visit_If(self, node: ast.If) -> ast.AST:
        guard = is_guard(node)
        self.generic_visit(node)
        if guard and _is_movable(node.test):
            node.test = self.holds(node.test)
        return node

    def holds(self, test: ast.expr) -> ast.Call:
        lambda_ = ast.copy_location(_later(test), test)
        return _call("holds", [lambda_], test)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        if not _is_movable(node.test):
            return ast.copy_location(ast.Pass(), node)
        failed = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        error = ast.copy_location(ast.Name("AssertionError", ast.Load()), node)
        return ast.copy_location(
            ast.If(self.holds(failed), [ast.copy_location(ast.Raise(error), node)], []), node
        )

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Compare(x, [ast.Is() | ast.IsNot() as kind], [ast.Constant(None)]):
                found: ast.expr = _call("is_none", [x], node)
            case ast.Compare(ast.Constant(str()) as key, [ast.In() | ast.NotIn() as kind], [of]):
                found = _call("contains", [key, of], node)
            case _:
                return node
        negated = isinstance(kind, ast.IsNot | ast.NotIn)
        return ast.copy_location(ast.UnaryOp(ast.Not(), found), node) if negated else found

    def visit_Call(self, node: ast.Call) -> ast.AST:
        text = ast.unparse(node) if isinstance(node.func, ast.Name) and node.func.id == "isinstance" else ""
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("float" | "int"), [ast.expr()], []):
                return _call("number", [node.func, node.args[0]], node)
            case ast.Call(ast.Name("isinstance"), [_, _], []):
                return _call("is_instance", [*node.args, ast.Constant(text)], node)
            case ast.Call(ast.Name("getattr"), [_, ast.Constant(str()), _], []):
                return _call("attribute", node.args, node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function within has names of its own."""
        inner = _Rewritten(
            self.keys, self.own | {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}, ""
        )
        node.body = [inner.visit(s) for s in node.body]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node


def _names(target: ast.expr) -> list[str]:
    """a, or a and b of `a, b = ..`; nothing for other targets."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return names if len(names) == len(parts) else []


# ---------------------------------------------------------------------------- the result
class _Returning(ast.NodeTransformer):
    """Every return of the function itself gives the result that was asked for."""

    def __init__(self, result: str | None) -> None:
        self.text = result
        self.left = 0  # of how many values one is read

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self.text is not None and not self.text.isdigit():
            found = ast.parse(self.text, mode="eval").body
            placed(found, node.lineno)
            return ast.copy_location(ast.Return(found), node)
        if isinstance(node.value, ast.Tuple):
            at = int(self.text or 0)
            if at < len(node.value.elts) and not any(isinstance(e, ast.Starred) for e in node.value.elts):
                self.left = max(self.left, len(node.value.elts) if self.text is None else 0)
                return ast.copy_location(ast.Return(node.value.elts[at]), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


def returning(node: ast.FunctionDef, result: str | None) -> int:
    """Have the function return the result that is asked for; of how many values it is the first, unasked."""
    text = normal(result) if result is not None and not result.isdigit() else result
    writer = _Returning(text)
    node.body = [writer.visit(s) for s in node.body]
    last = node.body[-1]
    if text is not None and not text.isdigit() and not isinstance(last, ast.Return):
        found = ast.Return(ast.parse(text, mode="eval").body)
        placed(found, last.end_lineno or last.lineno)
        node.body.append(found)
    return writer.left
