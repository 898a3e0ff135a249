"""The compiled copy of the user's code, in which what is bound replaces expressions.

x = f(y)         x = klsym_in_code.resolve_assignment(lambda: f(y), ('x',), ..)
if bad: raise    if klsym_in_code.check_guard(lambda: bad): raise
x is None        klsym_in_code.is_none(x)
float(x)         klsym_in_code.convert_value(float, x)
'k' in x         klsym_in_code.has_key('k', x)
getattr(x, 'y', z)  klsym_in_code.get_attribute(x, 'y', z)
if x.ndim == 2   if klsym_in_code.record_shape_test(x.ndim == 2, 'x.ndim == 2')
self.beta        klsym_in_code.get_bound_value('self.beta'), where the user has bound it
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from klsym.audit.compiled.inert import (
    find_carried,
    find_dead_containers,
    find_report_calls,
    find_root,
    find_unknown_calls,
    is_guard,
    is_of_shape,
    is_pure,
    is_pure_return,
    list_lost_variables,
)
from klsym.audit.compiled.recording import IN_CODE, wrap_expressions
from klsym.audit.expressions import name_expression

IMPORTED = "klsym_imported"
_NUMBERS = itertools.count()
ASKED = ("isinstance", "hasattr", "type")  # of what is not known
NOT_MOVED = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)  # they mean another thing within a lambda
OF_FRAMES = {"super", "locals", "vars", "globals"}


def rewrite_function(
    node: ast.FunctionDef,
    scope: str = "",
    keys: Collection[str] = (),
    siblings: Iterable[ast.FunctionDef] = (),
) -> ast.FunctionDef:
    """Return the function as it is compiled, with calls of `in_code`.

    scope: before the names of its variables, "" for the function that is audited.  keys: what is bound.
    beside: the other methods of the class that are compiled.
    """
    if any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in ast.walk(node)):
        return node
    function = copy.deepcopy(node)
    arguments = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    names = [n.id for s in function.body for n in ast.walk(s) if isinstance(n, ast.Name)]
    stored = _count_stores(function.body)
    writer = _Rewriter(function, scope, frozenset(key for key in keys if key not in arguments | {*stored}))
    writer.bound_variables = frozenset(keys) & {*stored}
    writer.dead = find_dead_containers(node, siblings)
    writer.assigned_once = {name for name in names if stored[name] == 1 and not scope} - arguments
    function.body = wrap_expressions(writer.rewrite_block(function.body))
    return function


def _count_stores(body: Iterable[ast.AST]) -> Counter[str]:
    """Return how often a name is given a value: for an if, in the branch with more assignments.

    >>> _count_stores(ast.parse("if x: a = 1\\nelse: a = b = 2").body)
    Counter({'a': 1, 'b': 1})
    """
    counts: Counter[str] = Counter()
    for node in body:
        if isinstance(node, ast.If):
            counts += _count_stores([node.test])
            counts += _count_stores(node.body) | _count_stores(node.orelse)
        elif isinstance(node, ast.Name):
            counts[node.id] += isinstance(node.ctx, ast.Store)
        else:
            counts += _count_stores(ast.iter_child_nodes(node))
    return counts


def _build_call(name: str, arguments: list[ast.expr], at: ast.AST) -> ast.Call:
    function = ast.Attribute(ast.Name(IN_CODE, ast.Load()), name, ast.Load())
    call = ast.Call(function, arguments, [])
    for part in (function.value, function, call):
        ast.copy_location(part, at)
    for argument in arguments:
        ast.copy_location(argument, at)
    return call


def _build_tuple(names: Iterable[str], at: ast.AST) -> ast.Tuple:
    parts: list[ast.expr] = [ast.copy_location(ast.Constant(name), at) for name in sorted(names)]
    return ast.copy_location(ast.Tuple(parts, ast.Load()), at)


def _build_lambda(value: ast.expr) -> ast.Lambda:
    none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(none, value), value)


def _record_shape(test: ast.expr, typed: ast.expr) -> ast.expr:
    """Return a condition; one on shapes is noted when it is decided."""
    return (
        _build_call("record_shape_test", [test, ast.Constant(ast.unparse(typed))], typed)
        if is_of_shape(typed)
        else test
    )


def _is_movable(value: ast.expr) -> bool:
    inside = list(ast.walk(value))
    framed = any(isinstance(n, ast.Name) and n.id in OF_FRAMES for n in inside)
    return not framed and not any(isinstance(n, NOT_MOVED) for n in inside)


class _Rewriter(ast.NodeTransformer):
    """dead: containers that nothing reads.  once: variables that are given a value once, and in no loop."""

    def __init__(self, node: ast.FunctionDef, scope: str, keys: frozenset[str]) -> None:
        self.arguments = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        self.scope, self.keys = scope, keys
        names = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)]
        self.stored = self.arguments | {n.id for n in names if isinstance(n.ctx, ast.Store)}
        self.bound_variables: frozenset[str] = frozenset()  # variables to which the user has bound a value
        self.dead: set[str] = set()
        self.assigned_once: set[str] = set()
        self.loops = 0
        self.none_names: list[str] = []  # names that the code replaces where they are None

    def rewrite_block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        match body:
            case [*first, ast.If(orelse=[]) as test, ast.Return() as last] if isinstance(
                test.body[-1], ast.Return
            ):
                test.orelse, body = [last], [*first, test]
        for node in body:
            result = self.visit(node)
            statements += result if isinstance(result, list) else [result]
        return statements

    def visit(self, node: ast.AST) -> Any:
        loaded = isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if self.keys and loaded and (name := name_expression(node)) in self.keys:
            return _build_call("get_bound_value", [ast.Constant(name)], node)
        return super().visit(node)

    # -- statements ---------------------------------------------------------------------------
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if len(node.targets) == 1 and self.is_part_of_given(node.targets[0]):
            return ast.copy_location(ast.Pass(), node)
        names = _list_names(node.targets[0]) if len(node.targets) == 1 else []
        pure = find_unknown_calls(node.value)
        node.value = self.visit(node.value)
        node.targets = [self.visit(t) for t in node.targets]
        node.value = self.wrap_value(node.value, names, pure, node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if self.is_part_of_given(node.target):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def is_part_of_given(self, target: ast.expr) -> bool:
        """Is it x[..] of a variable x whose value the user gave?  That is the value in the end."""
        if isinstance(target, ast.Tuple):
            return bool(target.elts) and all(map(self.is_part_of_given, target.elts))
        return isinstance(target, ast.Subscript) and find_root(target) in self.bound_variables

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            pure = find_unknown_calls(node.value)
            node.value = self.wrap_value(self.visit(node.value), _list_names(node.target), pure, node)
        return node

    def wrap_value(self, value: ast.expr, names: list[str], pure: set[str] | None, at: ast.stmt) -> ast.expr:
        plain = (ast.Constant, ast.Lambda) if len(names) > 1 else (ast.Constant, ast.Lambda, ast.Name)
        if isinstance(value, plain) or not _is_movable(value):
            return value
        named = names if not {*self.arguments, *self.none_names} & {*names} else []
        scoped: list[ast.expr] = [ast.Constant(f"{self.scope}{name}") for name in named]
        listed = ast.Tuple(scoped, ast.Load())
        says = bool(named) and {*named} <= self.assigned_once and not self.loops
        called = ast.Constant(None) if pure is None else _build_tuple(pure, at)
        arguments: list[ast.expr] = [_build_lambda(value), listed, called, ast.Constant(says)]
        for part in (*arguments, *scoped):
            ast.copy_location(part, at if part is not arguments[0] else value)
        return _build_call("resolve_assignment", arguments, value)

    def visit_If(self, node: ast.If) -> Any:
        test, lost, ends = (
            copy.deepcopy(node.test),
            list_lost_variables(node, self.dead),
            is_pure_return(node),
        )
        filled = _find_none_name(test)
        node.test = self.visit(node.test)
        guard = is_guard(node)
        node.test = node.test if guard else _record_shape(node.test, test)
        self.none_names.append(filled)
        node.body, node.orelse = self.rewrite_block(node.body), self.rewrite_block(node.orelse)
        self.none_names.pop()
        if not _is_movable(node.test):
            return node
        if guard:
            node.test = self.build_guard(node.test)
            return node
        if ends:
            return self.build_branch(node, None)
        return node if lost is None else self.build_branch(node, lost)

    def build_branch(self, node: ast.If, lost: list[str] | None) -> list[ast.stmt]:
        """Return the statement; if it cannot be decided, its variables, or what it returns, become unread."""
        name = f"klsym_choice_{next(_NUMBERS)}"
        asked = ast.Assign(
            [ast.Name(name, ast.Store())], _build_call("decide_branch", [_build_lambda(node.test)], node.test)
        )
        node.test = ast.copy_location(ast.Name(name, ast.Load()), node.test)
        decision = _build_if("is_lost", name, "make_lost", lost or [], [node])
        if lost is None:
            decision.body = [ast.Return(_build_call("make_unread_result", [], node))]
        return [ast.fix_missing_locations(ast.copy_location(part, node)) for part in (asked, decision)]

    def visit_For(self, node: ast.For) -> Any:
        lost, changed = list_lost_variables(node, self.dead), find_carried(node)
        targets, text = _list_names(node.target), ast.unparse(node.iter)
        node.iter, node.target = self.visit(node.iter), self.visit(node.target)
        rounds = not _has_return(node.body)  # else the first is the last
        self.loops += rounds
        node.body, node.orelse = self.rewrite_block(node.body), self.rewrite_block(node.orelse)
        self.loops -= rounds
        if not targets or not _is_movable(node.iter):
            return node
        carried, filled = ([x for x in names if x in self.stored] for names in changed)
        name = f"klsym_rounds_{next(_NUMBERS)}"
        listed = ast.Tuple([ast.Constant(x) for x in targets], ast.Load())
        asks = "iterate_rounds" if lost is None else "iterate_inert"
        iterator = _build_call(asks, [_build_lambda(node.iter), listed, ast.Constant(text)], node.iter)
        first = ast.Assign([ast.Name(name, ast.Store())], iterator)
        node.iter = ast.Name(name, ast.Load())
        whole: list[ast.stmt] = [_build_if("is_one_round", name, "make_carried", carried), node,
                                 _build_if("is_one_round", name, "make_carried", filled)]  # fmt: skip
        if lost is not None:
            names = [*dict.fromkeys([*targets, *lost])]
            whole = [_build_if("is_lost", name, "make_lost", names, whole)]
        statements = [first, *whole]
        return [ast.fix_missing_locations(ast.copy_location(part, node)) for part in statements]

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        plain, called, test = is_pure(node.test), find_unknown_calls(node), copy.deepcopy(node.test)
        self.generic_visit(node)
        node.test = _record_shape(node.test, test)
        if not plain or called is None or not _is_movable(node):
            return node
        parts: list[ast.expr] = [_build_lambda(part) for part in (node.test, node.body, node.orelse)]
        return _build_call("choose_value", [*parts, _build_tuple(called, node)], node)

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self.visit(node.test)
        self.loops += 1
        node.body, node.orelse = self.rewrite_block(node.body), self.rewrite_block(node.orelse)
        self.loops -= 1
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        items = [item for item in node.items if not _is_precision(item.context_expr)]
        node.items = [item if item not in items else self.visit(item) for item in node.items]
        for item in node.items:
            if _is_precision(item.context_expr):
                item.context_expr = _build_call("replace_autocast", [], item.context_expr)
            item.context_expr = _build_call("wrap_context", [item.context_expr], item.context_expr)
        node.body = self.rewrite_block(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            setattr(node, name, self.rewrite_block(getattr(node, name)))
        for handler in node.handlers:
            first = ast.Expr(_build_call("raise_own_errors", [], handler))
            handler.body = [ast.copy_location(first, handler), *self.rewrite_block(handler.body)]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        called = find_report_calls(node.value, self.dead)
        node.value = self.visit(node.value)
        if called is not None and isinstance(node.value, ast.Call) and _is_movable(node.value):
            node.value = _build_call(
                "try_call", [_build_lambda(node.value), _build_tuple(called, node)], node.value
            )
        return node

    def build_guard(self, test: ast.expr) -> ast.Call:
        return _build_call("check_guard", [_build_lambda(test)], test)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        if not _is_movable(node.test):
            return node
        failed = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        error = ast.copy_location(ast.Name("AssertionError", ast.Load()), node)
        raised: list[ast.stmt] = [ast.copy_location(ast.Raise(error), node)]
        return ast.copy_location(ast.If(self.build_guard(failed), raised, []), node)

    # -- expressions --------------------------------------------------------------------------
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        counted = len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        text = f"{name_expression(node.left)} != {name_expression(node.comparators[0])}" if counted else ""
        self.generic_visit(node)
        match node:
            case ast.Compare(x, [ast.Eq() | ast.NotEq() as kind], [right]) if _is_filler(right):
                is_equal = ast.Constant(isinstance(kind, ast.Eq))
                return _build_call(
                    "compare_labels", [_build_lambda(node), x, ast.Constant(text), is_equal], node
                )
            case ast.Compare(x, [ast.Is() | ast.IsNot() as kind], [ast.Constant(None)]):
                result: ast.expr = _build_call("is_none", [x], node)
            case ast.Compare(x, [ast.Is() | ast.IsNot() as kind], [right]):
                result = _build_call("is_same", [x, right], node)
            case ast.Compare(key, [ast.In() | ast.NotIn() as kind], [container]):
                result = _build_call("has_key", [key, container], node)
            case _:
                return node
        negated = isinstance(kind, ast.IsNot | ast.NotIn)
        return ast.copy_location(ast.UnaryOp(ast.Not(), result), node) if negated else result

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        plain = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        plain = copy.deepcopy(plain)
        self.generic_visit(node)
        values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        if not values or not _is_movable(node) or not all(map(is_pure, plain)):
            return node
        return _build_call("format_text", [_build_lambda(node), *copy.deepcopy(values)], node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        text = ast.unparse(node) if name in ASKED else ""
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("float" | "int" | "str" | "bool"), [ast.expr()], []):
                return _build_call("convert_value", [node.func, node.args[0]], node)
            case ast.Call(ast.Name("isinstance"), [_, _], []):
                return _build_call("is_instance", [*node.args, ast.Constant(text)], node)
            case ast.Call(ast.Name("hasattr"), [_, _], []):
                return _build_call("has_attribute", [*node.args, ast.Constant(text)], node)
            case ast.Call(ast.Name("type"), [_], []):
                return _build_call("get_type", [*node.args, ast.Constant(text)], node)
            case ast.Call(ast.Name("getattr"), [_, ast.Constant(str()), _], []):
                return _build_call("get_attribute", node.args, node)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Make an import within a function do, without the package, what one at the head of the file does."""
        assignments: list[ast.stmt] = []
        for alias in node.names:
            arguments: list[ast.expr] = [ast.Constant(x) for x in (node.module or "", node.level, alias.name)]
            call = ast.Call(ast.Name(IMPORTED, ast.Load()), arguments, [])
            assignments.append(ast.Assign([ast.Name(alias.asname or alias.name, ast.Store())], call))
        return _build_import(node, assignments)

    def visit_Import(self, node: ast.Import) -> ast.AST:
        assignments: list[ast.stmt] = []
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            arguments: list[ast.expr] = [ast.Constant(x) for x in (alias.name, -1, alias.asname)]
            call = ast.Call(ast.Name(IMPORTED, ast.Load()), arguments, [])
            assignments.append(ast.Assign([ast.Name(name, ast.Store())], call))
        return _build_import(node, assignments)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Rewrite a function within, which has names of its own."""
        inner = _Rewriter(node, f"{node.name}.", self.keys)
        inner.arguments |= self.arguments
        node.body = inner.rewrite_block(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node


def _build_import(node: ast.Import | ast.ImportFrom, assignments: list[ast.stmt]) -> ast.AST:
    handler = ast.ExceptHandler(ast.Name("ImportError", ast.Load()), None, assignments)
    return ast.fix_missing_locations(ast.copy_location(ast.Try([node], [handler], [], []), node))


def _is_precision(context: ast.expr) -> bool:
    """Is it torch.autocast(..), by any of its names?"""
    text = ast.unparse(context.func) if isinstance(context, ast.Call) else ""
    return text == "autocast" or (text.startswith("torch.") and text.endswith(".autocast"))


def _has_return(body: list[ast.stmt]) -> bool:
    """Does a block return in any case?"""
    return any(isinstance(s, ast.Return) or (isinstance(s, ast.With) and _has_return(s.body)) for s in body)


def _find_none_name(test: ast.expr) -> str:
    """Return the name x of a condition `x is None`; "" for any other."""
    match test:
        case ast.Compare(ast.Name(name), [ast.Is()], [ast.Constant(None)]):
            return name
    return ""


def _is_filler(node: ast.expr) -> bool:
    """Is it a negative number such as -100, or a name such as self.ignore_index or tokenizer.pad_token_id?"""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    last = getattr(node, "attr", getattr(node, "id", ""))
    return bool({*last.lower().split("_")} & {"ignore", "pad", "padding"})


def _build_if(
    asks: str, name: str, gives: str, names: list[str], otherwise: Iterable[ast.stmt] = ()
) -> ast.If:
    """Return `if klsym_in_code.asks(name): names = klsym_in_code.gives(names)`, `else: otherwise`."""

    def call(function: str, argument: ast.expr) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name(IN_CODE, ast.Load()), function, ast.Load()), [argument], [])

    stored: list[ast.expr] = [ast.Name(x, ast.Store()) for x in names]
    listed = ast.Tuple([ast.Constant(x) for x in names], ast.Load())
    assignment = ast.Assign([ast.Tuple(stored, ast.Store())], call(gives, listed))
    return ast.If(call(asks, ast.Name(name, ast.Load())), [assignment if names else ast.Pass()], [*otherwise])


def _list_names(target: ast.expr) -> list[str]:
    """Return a, or a and b of `a, b = ..`; nothing for other targets."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return names if len(names) == len(parts) else []
