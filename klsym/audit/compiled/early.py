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
from klsym.audit.expressions import normalise_text, set_line


def find_variable(text: str) -> str:
    """Return the only variable of an expression such as -gain; "" for others.

    >>> find_variable("-gain"), find_variable("gain - loss")
    ('gain', '')
    """
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    plain = not any(isinstance(n, ast.Call | ast.Attribute | ast.Subscript) for n in nodes)
    return names.pop() if len(names) == 1 and plain else ""


def insert_return(body: list[ast.stmt], text: str, name: str) -> list[str] | None:
    """Insert `return text` behind the last statement that changes its variable; return the loops around it.

    None: no statement gives it a value.  A branch of an if gives it one in some cases alone, so that the
    return stands behind the whole if.
    """
    at = next((n for n in reversed(range(len(body))) if _has_change(body[n], name)), None)
    if at is None:
        return None
    node = body[at]
    inside = [n for s in body for n in ast.walk(s)]
    if any(isinstance(n, ast.Nonlocal | ast.Global) and name in n.names for n in inside):
        return None  # a call may change it anywhere
    later = [s for s in getattr(node, "orelse", []) if _has_change(s, name)]
    if not later and isinstance(node, ast.For | ast.While | ast.With | ast.AsyncFor | ast.AsyncWith):
        inner = insert_return(node.body, text, name)
        if inner is not None:
            loop = isinstance(node, ast.For | ast.While | ast.AsyncFor)
            return [_show_loop(node), *inner] if loop else inner
    statement = ast.Return(ast.parse(text, mode="eval").body)
    line = node.end_lineno or node.lineno
    for part in ast.walk(statement):
        if isinstance(part, ast.stmt | ast.expr):
            part.lineno = part.end_lineno = line
            part.col_offset = part.end_col_offset = 0
    body.insert(at + 1, statement)
    return []


def _show_loop(node: ast.stmt) -> str:
    return ast.unparse(node.test if isinstance(node, ast.While) else node.iter)  # type: ignore[attr-defined]


def _has_change(statement: ast.stmt, name: str) -> bool:
    """Does it give the variable a value, or change the value in place?"""
    return any(_is_change(node, name) for node in ast.walk(statement))


def _is_change(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Name(variable, ast.Store() | ast.Del()):
            return variable == name
        case ast.Subscript(target, ctx=ast.Store()) | ast.Attribute(target, ctx=ast.Store()):
            return _find_root(target) == name
        case ast.Call(ast.Attribute(target, method)):
            return method.endswith("_") and not method.endswith("__") and _find_root(target) == name
        case ast.Call(keywords=keywords):
            return any(k.arg == "out" and _find_root(k.value) == name for k in keywords)
    return False


def _find_root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# ---------------------------------------------------------------------------- the result
class _ResultReturner(ast.NodeTransformer):
    """Every return of the function itself gives the result that was asked for."""

    def __init__(self, result: str | None) -> None:
        self.text = result
        self.value_count = 0  # of how many values one is read

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self.text is not None and not self.text.isdigit():
            expression = ast.parse(self.text, mode="eval").body
            set_line(expression, node.lineno)
            return ast.copy_location(ast.Return(expression), node)
        if isinstance(node.value, ast.Tuple):
            at = int(self.text or 0)
            others = [e for n, e in enumerate(node.value.elts) if n != at]
            plain = not any(isinstance(e, ast.Starred) for e in node.value.elts) and all(map(is_pure, others))
            if at < len(node.value.elts) and plain:
                self.value_count = max(self.value_count, len(node.value.elts) if self.text is None else 0)
                return ast.copy_location(ast.Return(node.value.elts[at]), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


def replace_returns(node: ast.FunctionDef, result: str | None) -> int:
    """Make the function return the result that is asked for; return the number of values if nobody chose."""
    text = normalise_text(result) if result is not None and not result.isdigit() else result
    writer = _ResultReturner(text)
    node.body = [writer.visit(s) for s in node.body]
    last = node.body[-1]
    if text is not None and not text.isdigit() and not isinstance(last, ast.Return):
        statement = ast.Return(ast.parse(text, mode="eval").body)
        set_line(statement, last.end_lineno or last.lineno)
        node.body.append(statement)
    return writer.value_count
