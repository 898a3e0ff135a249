"""Of a function only the statements on which its result depends: metrics and logging are not run.

Statements are gone through from the last to the first.  A statement is kept if it gives a value to a name
that is read afterwards.  Names are those of variables, and `x.y` of their attributes.

>>> code = "def f(x):\\n    y = x * 2\\n    print(y)\\n    seen = y.item()\\n    return y"
>>> [node] = ast.parse(code).body
>>> ast.unparse(sliced(node))
'def f(x):\\n    y = x * 2\\n    return y'
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable
from typing import Any

QUIET = {
    "print", "log", "info", "debug", "warning", "warn", "error", "exception", "record", "report", "track",
    "log_metrics", "add_scalar", "append_metrics", "update_metrics", "log_metric", "stat", "scalar",
}  # fmt: skip  # calls that change none of their arguments
WAITS = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)


def sliced(node: ast.FunctionDef) -> ast.FunctionDef:
    """The function without the statements that its result does not depend on."""
    found = copy.copy(node)
    if any(isinstance(n, WAITS) for n in ast.walk(node)):
        return found
    if not any(isinstance(n, ast.Return) and n.value is not None for n in _own(node)):
        return found  # it works by what it changes
    found.body, _ = _needed(node.body, set())
    return found


def _own(node: ast.AST) -> Iterable[ast.AST]:
    """The nodes of a function without those of functions within it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield from _own(child)


# ---------------------------------------------------------------------------- names
def _chain(node: ast.AST) -> str:
    """x or x.y, by which x.y.z[0] is known; nothing for what begins otherwise."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        attributes += [node.attr] if isinstance(node, ast.Attribute) else []
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *attributes[-1:]])


def reads(node: ast.AST | None) -> set[str]:
    """The names that are read in an expression or a statement."""
    found: set[str] = set()
    stack = [node] if node is not None else []
    while stack:
        one = stack.pop()
        if isinstance(one, ast.Attribute | ast.Subscript) and (chain := _chain(one)):
            found.add(chain)
            inner: ast.AST = one
            while isinstance(inner, ast.Attribute | ast.Subscript):
                stack += [inner.slice] if isinstance(inner, ast.Subscript) else []
                inner = inner.value
            continue
        if isinstance(one, ast.Name):
            found.add(one.id)
        stack += ast.iter_child_nodes(one)
    return found


def _is_live(chain: str, live: set[str]) -> bool:
    root, dot, _ = chain.partition(".")
    if not dot:
        return root in live or any(name.startswith(f"{root}.") for name in live)
    return chain in live or (root in live and root not in ("self", "cls"))


def _without(live: set[str], name: str) -> set[str]:
    return {x for x in live if x != name and not x.startswith(f"{name}.")}


# ---------------------------------------------------------------------------- statements
Kept = tuple[ast.stmt | None, set[str]]  # the statement, if it is, and the names that are read before it


def _needed(body: list[ast.stmt], live: set[str]) -> tuple[list[ast.stmt], set[str]]:
    """The statements that are kept, and the names that are read before them."""
    found: list[ast.stmt] = []
    for node in reversed(body):
        kept, live = _statement(node, live)
        found += [kept] if kept is not None else []
    return found[::-1], live


def _statement(node: ast.stmt, live: set[str]) -> Kept:
    match node:
        case ast.Return():
            return node, reads(node.value)
        case ast.Raise() | ast.Assert() | ast.Continue() | ast.Break() | ast.Pass():
            return node, set(live)
        case ast.Assign(targets):
            return _assigned(node, [t for target in targets for t in _parts(target)], node.value, live)
        case ast.AugAssign(target) | ast.AnnAssign(target, value=ast.expr()):
            return _assigned(node, _parts(target), node.value, live)
        case ast.Expr(value):
            return (node, live | reads(value)) if _changes(value, live) else (None, live)
        case ast.FunctionDef(name) | ast.ClassDef(name):
            return (node, _without(live, name) | reads(node)) if _is_live(name, live) else (None, live)
        case ast.Import(aliases) | ast.ImportFrom(names=aliases):
            names = [(a.asname or a.name).partition(".")[0] for a in aliases]
            return (node if any(_is_live(name, live) for name in names) else None), live
        case ast.Delete():
            return None, live
    for kind, rule in BLOCKS.items():
        if isinstance(node, kind):
            return rule(node, live)
    return node, live | reads(node)


def _parts(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for one in target.elts for part in _parts(one)]
    return [target.value if isinstance(target, ast.Starred) else target]


def _assigned(node: ast.stmt, targets: list[ast.expr], value: ast.expr | None, live: set[str]) -> Kept:
    chains = [_chain(target) for target in targets]
    augmented = isinstance(node, ast.AugAssign)
    views = augmented or any(map(_of_tensor, targets))  # what is live may share its memory
    if not views and not any(not chain or _is_live(chain, live) for chain in chains):
        return None, live
    for target, chain in zip(targets, chains, strict=True):
        if isinstance(target, ast.Name) and not augmented:
            live = _without(live, chain)
    inner = {name for target in targets if not isinstance(target, ast.Name) for name in reads(target)}
    return node, live | reads(value) | inner | ({*chains} if augmented else set())


def _of_tensor(target: ast.expr) -> bool:
    """x[mask], x[:, 0]: no x["key"], which is one of a dict."""
    return isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant | ast.JoinedStr)


def _changes(value: ast.expr, live: set[str]) -> bool:
    """May a call change what is read afterwards: the object of the method, or an argument?"""
    if not isinstance(value, ast.Call):
        return not isinstance(value, ast.Constant | ast.Name | ast.Attribute)
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    if name in QUIET:
        return False
    if isinstance(value.func, ast.Name) or (name.endswith("_") and not name.endswith("__")):
        return True
    given = [*value.args, *(keyword.value for keyword in value.keywords)]
    of_arguments = any(isinstance(a, ast.Name) and _is_live(a.id, live) for a in given)
    if isinstance(value.func, ast.Attribute) and _is_live(_chain(value.func.value) or "-", live):
        return of_arguments or _chain(value.func.value) not in ("self", "cls", "torch")
    return of_arguments


def _if(node: ast.If, live: set[str]) -> Kept:
    body, before = _needed(node.body, live)
    other, before_other = _needed(node.orelse, live)
    if not body and not other:
        return None, live
    found = ast.copy_location(ast.If(node.test, body or [ast.copy_location(ast.Pass(), node)], other), node)
    if is_guard(found):
        return found, live
    return found, before | before_other | reads(node.test)


def is_guard(node: ast.stmt) -> bool:
    """An if that does nothing but raise an error."""
    return isinstance(node, ast.If) and not node.orelse and all(isinstance(s, ast.Raise) for s in node.body)


def _loop(node: ast.For | ast.While, live: set[str]) -> Kept:
    head = reads(node.iter) if isinstance(node, ast.For) else reads(node.test)
    before = set(live)
    while True:
        body, inner = _needed(node.body, before)
        if inner | head <= before:
            break
        before |= inner | head
    if not body or all(isinstance(s, ast.Continue | ast.Break | ast.Pass) for s in body):
        return None, live
    found = copy.copy(node)
    found.body = body
    return found, before


def _with(node: ast.With, live: set[str]) -> Kept:
    body, before = _needed(node.body, live)
    if not body:
        return None, live
    found = copy.copy(node)
    found.body = body
    return found, before | {name for item in node.items for name in reads(item.context_expr)}


def _try(node: ast.Try, live: set[str]) -> Kept:
    found = copy.copy(node)
    found.finalbody, before = _needed(node.finalbody, live)
    found.orelse, before = _needed(node.orelse, before)
    found.handlers = [copy.copy(handler) for handler in node.handlers]
    for handler in found.handlers:
        handler.body, more = _needed(handler.body, live)
        handler.body = handler.body or [ast.copy_location(ast.Pass(), handler)]
        before = before | more
    found.body, inner = _needed(node.body, before)
    if not found.body and not found.finalbody and not found.orelse:
        return None, live
    found.body = found.body or [ast.copy_location(ast.Pass(), node)]
    return found, inner | before


BLOCKS: dict[Any, Callable[[Any, set[str]], Kept]] = {
    ast.If: _if, ast.For: _loop, ast.While: _loop, ast.With: _with, ast.Try: _try,
}  # fmt: skip
