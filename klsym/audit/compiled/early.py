"""Returning a variable as soon as the code has given it its last value, so that what follows is not run.

    for batch in batches:                       for batch in batches:
        loss = (batch.logp - old).mean()            loss = (batch.logp - old).mean()
        loss.backward()                             return loss
                                                    loss.backward()

Within a loop this is the value of the first round.
"""

from __future__ import annotations

import ast

from klsym.audit.compiled.inert import is_pure
from klsym.audit.expressions import normal, placed


def variable_of(text: str) -> str:
    """The only variable of an expression such as -gain; "" of others.

    >>> variable_of("-gain"), variable_of("gain - loss")
    ('gain', '')
    """
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    plain = not any(isinstance(n, ast.Call | ast.Attribute | ast.Subscript) for n in nodes)
    return names.pop() if len(names) == 1 and plain else ""


def return_early(body: list[ast.stmt], text: str, name: str) -> list[str] | None:
    """Insert `return text` behind the last statement that changes its variable; return the loops around it.

    None: no statement gives it a value.  A branch of an if gives it one in some cases alone, so that the
    return stands behind the whole if.
    """
    at = next((n for n in reversed(range(len(body))) if _changes(body[n], name)), None)
    if at is None:
        return None
    node = body[at]
    inside = [n for s in body for n in ast.walk(s)]
    if any(isinstance(n, ast.Nonlocal | ast.Global) and name in n.names for n in inside):
        return None  # a call may change it anywhere
    later = [s for s in getattr(node, "orelse", []) if _changes(s, name)]
    if not later and isinstance(node, ast.For | ast.While | ast.With | ast.AsyncFor | ast.AsyncWith):
        inner = return_early(node.body, text, name)
        if inner is not None:
            loop = isinstance(node, ast.For | ast.While | ast.AsyncFor)
            return [_text(node), *inner] if loop else inner
    found = ast.Return(ast.parse(text, mode="eval").body)
    line = node.end_lineno or node.lineno
    for part in ast.walk(found):
        if isinstance(part, ast.stmt | ast.expr):
            part.lineno = part.end_lineno = line
            part.col_offset = part.end_col_offset = 0
    body.insert(at + 1, found)
    return []


def _text(node: ast.stmt) -> str:
    return ast.unparse(node.test if isinstance(node, ast.While) else node.iter)  # type: ignore[attr-defined]


def _changes(statement: ast.stmt, name: str) -> bool:
    """Does it give the variable a value, or change the value in place?"""
    return any(_is_change(node, name) for node in ast.walk(statement))


def _is_change(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Name(own, ast.Store() | ast.Del()):
            return own == name
        case ast.Subscript(of, ctx=ast.Store()) | ast.Attribute(of, ctx=ast.Store()):
            return _root(of) == name
        case ast.Call(ast.Attribute(of, method)):
            return method.endswith("_") and not method.endswith("__") and _root(of) == name
        case ast.Call(keywords=given):
            return any(k.arg == "out" and _root(k.value) == name for k in given)
    return False


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


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
            others = [e for n, e in enumerate(node.value.elts) if n != at]
            plain = not any(isinstance(e, ast.Starred) for e in node.value.elts) and all(map(is_pure, others))
            if at < len(node.value.elts) and plain:
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
