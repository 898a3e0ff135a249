"""The compiled copy of the user's code, in which what is bound replaces expressions.

x = f(y)         x = klsym_in_code.kept(lambda: f(y), ('x',), ..)
if bad: raise    if klsym_in_code.holds(lambda: bad): raise
x is None        klsym_in_code.is_none(x)
float(x)         klsym_in_code.number(float, x)
'k' in x         klsym_in_code.contains('k', x)
getattr(x, 'y', z)  klsym_in_code.attribute(x, 'y', z)
if x.ndim == 2   if klsym_in_code.by_shape(x.ndim == 2, 'x.ndim == 2')
self.beta        klsym_in_code.given('self.beta'), where the user has bound it
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from klsym.audit.compiled.inert import (
    called_in,
    changed_in_rounds,
    dead_containers,
    is_guard,
    is_of_shape,
    is_pure,
    passed_over,
    reported_in,
    returns_alone,
    root,
)
from klsym.audit.expressions import written

IN_CODE, IMPORTED = "klsym_in_code", "klsym_imported"
_NUMBERS = itertools.count()
ASKED = ("isinstance", "hasattr", "type")  # of what is not known
NOT_MOVED = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)  # they mean another thing within a lambda
OF_FRAMES = {"super", "locals", "vars", "globals"}


def prepared(
    node: ast.FunctionDef, scope: str = "", keys: Collection[str] = (), beside: Iterable[ast.FunctionDef] = ()
) -> ast.FunctionDef:
    """The function as it is compiled, with calls of `in_code`.

    scope: before the names of its variables, "" for the function that is audited.  keys: what is bound.
    beside: the other methods of the class that are compiled.
    """
    if any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in ast.walk(node)):
        return node
    found = copy.deepcopy(node)
    own = {a.arg for a in ast.walk(found.args) if isinstance(a, ast.arg)}
    names = [n.id for s in found.body for n in ast.walk(s) if isinstance(n, ast.Name)]
    stored = _stores(found.body)
    writer = _Rewritten(found, scope, frozenset(key for key in keys if key not in own | {*stored}))
    writer.given = frozenset(keys) & {*stored}
    writer.dead = dead_containers(node, beside)
    writer.once = {name for name in names if stored[name] == 1 and not scope} - own
    found.body = writer.block(found.body)
    return found


def _stores(body: Iterable[ast.AST]) -> Counter[str]:
    """How often a name is given a value, of the two branches of an if that with more of them.

    >>> _stores(ast.parse("if x: a = 1\\nelse: a = b = 2").body)
    Counter({'a': 1, 'b': 1})
    """
    found: Counter[str] = Counter()
    for node in body:
        if isinstance(node, ast.If):
            found += _stores([node.test])
            found += _stores(node.body) | _stores(node.orelse)
        elif isinstance(node, ast.Name):
            found[node.id] += isinstance(node.ctx, ast.Store)
        else:
            found += _stores(ast.iter_child_nodes(node))
    return found


def _call(name: str, arguments: list[ast.expr], at: ast.AST) -> ast.Call:
    function = ast.Attribute(ast.Name(IN_CODE, ast.Load()), name, ast.Load())
    made = ast.Call(function, arguments, [])
    for part in (function.value, function, made):
        ast.copy_location(part, at)
    for argument in arguments:
        ast.copy_location(argument, at)
    return made


def _listed(names: Iterable[str], at: ast.AST) -> ast.Tuple:
    parts: list[ast.expr] = [ast.copy_location(ast.Constant(name), at) for name in sorted(names)]
    return ast.copy_location(ast.Tuple(parts, ast.Load()), at)


def _later(value: ast.expr) -> ast.Lambda:
    none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(none, value), value)


def _by_shape(test: ast.expr, typed: ast.expr) -> ast.expr:
    """A condition; one on shapes is noted when it is decided."""
    return _call("by_shape", [test, ast.Constant(ast.unparse(typed))], typed) if is_of_shape(typed) else test


def _is_movable(value: ast.expr) -> bool:
    inside = list(ast.walk(value))
    framed = any(isinstance(n, ast.Name) and n.id in OF_FRAMES for n in inside)
    return not framed and not any(isinstance(n, NOT_MOVED) for n in inside)


class _Rewritten(ast.NodeTransformer):
    """dead: containers that nothing reads.  once: variables that are given a value once, and in no loop."""

    def __init__(self, node: ast.FunctionDef, scope: str, keys: frozenset[str]) -> None:
        self.own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        self.scope, self.keys = scope, keys
        names = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)]
        self.stored = self.own | {n.id for n in names if isinstance(n.ctx, ast.Store)}
        self.given: frozenset[str] = frozenset()  # variables to which the user has bound a value
        self.dead: set[str] = set()
        self.once: set[str] = set()
        self.loops = 0
        self.filled: list[str] = []  # names that the code replaces where they are None

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        match body:
            case [*first, ast.If(orelse=[]) as test, ast.Return() as last] if isinstance(
                test.body[-1], ast.Return
            ):
                test.orelse, body = [last], [*first, test]
        for node in body:
            made = self.visit(node)
            found += made if isinstance(made, list) else [made]
        return found

    def visit(self, node: ast.AST) -> Any:
        loaded = isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if self.keys and loaded and (name := written(node)) in self.keys:
            return _call("given", [ast.Constant(name)], node)
        return super().visit(node)

    # -- statements ---------------------------------------------------------------------------
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if len(node.targets) == 1 and self.is_part_of_given(node.targets[0]):
            return ast.copy_location(ast.Pass(), node)
        names = _names(node.targets[0]) if len(node.targets) == 1 else []
        pure = called_in(node.value)
        node.value = self.visit(node.value)
        node.targets = [self.visit(t) for t in node.targets]
        node.value = self.kept(node.value, names, pure, node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if self.is_part_of_given(node.target):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def is_part_of_given(self, target: ast.expr) -> bool:
        """x[..] of a variable x whose value the user has said: that is the value in the end."""
        if isinstance(target, ast.Tuple):
            return bool(target.elts) and all(map(self.is_part_of_given, target.elts))
        return isinstance(target, ast.Subscript) and root(target) in self.given

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            pure = called_in(node.value)
            node.value = self.kept(self.visit(node.value), _names(node.target), pure, node)
        return node

    def kept(self, value: ast.expr, names: list[str], pure: set[str] | None, at: ast.stmt) -> ast.expr:
        plain = (ast.Constant, ast.Lambda) if len(names) > 1 else (ast.Constant, ast.Lambda, ast.Name)
        if isinstance(value, plain) or not _is_movable(value):
            return value
        named = names if not {*self.own, *self.filled} & {*names} else []
        scoped: list[ast.expr] = [ast.Constant(f"{self.scope}{name}") for name in named]
        listed = ast.Tuple(scoped, ast.Load())
        says = bool(named) and {*named} <= self.once and not self.loops
        called = ast.Constant(None) if pure is None else _listed(pure, at)
        arguments: list[ast.expr] = [_later(value), listed, called, ast.Constant(says)]
        for part in (*arguments, *scoped):
            ast.copy_location(part, at if part is not arguments[0] else value)
        return _call("kept", arguments, value)

    def visit_If(self, node: ast.If) -> Any:
        test, lost, ends = copy.deepcopy(node.test), passed_over(node, self.dead), returns_alone(node)
        filled = _none_of(test)
        node.test = self.visit(node.test)
        guard = is_guard(node)
        node.test = node.test if guard else _by_shape(node.test, test)
        self.filled.append(filled)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        self.filled.pop()
        if not _is_movable(node.test):
            return node
        if guard:
            node.test = self.holds(node.test)
            return node
        if ends:
            return self.branch(node, None)
        return node if lost is None else self.branch(node, lost)

    def branch(self, node: ast.If, lost: list[str] | None) -> list[ast.stmt]:
        """The statement, or, where it cannot be decided, its variables, or what it returns, as unread."""
        name = f"klsym_choice_{next(_NUMBERS)}"
        asked = ast.Assign([ast.Name(name, ast.Store())], _call("branch", [_later(node.test)], node.test))
        node.test = ast.copy_location(ast.Name(name, ast.Load()), node.test)
        found = _if("is_lost", name, "lost", lost or [], [node])
        if lost is None:
            found.body = [ast.Return(_call("unread_result", [], node))]
        return [ast.fix_missing_locations(ast.copy_location(part, node)) for part in (asked, found)]

    def visit_For(self, node: ast.For) -> Any:
        lost, changed = passed_over(node, self.dead), changed_in_rounds(node)
        targets, text = _names(node.target), ast.unparse(node.iter)
        node.iter, node.target = self.visit(node.iter), self.visit(node.target)
        rounds = not _returns(node.body)  # else the first is the last
        self.loops += rounds
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        self.loops -= rounds
        if not targets or not _is_movable(node.iter):
            return node
        carried, filled = ([x for x in names if x in self.stored] for names in changed)
        name = f"klsym_rounds_{next(_NUMBERS)}"
        listed = ast.Tuple([ast.Constant(x) for x in targets], ast.Load())
        asks = "rounds" if lost is None else "loop"
        given = _call(asks, [_later(node.iter), listed, ast.Constant(text)], node.iter)
        first = ast.Assign([ast.Name(name, ast.Store())], given)
        node.iter = ast.Name(name, ast.Load())
        whole: list[ast.stmt] = [_if("is_one_round", name, "of_rounds", carried), node,
                                 _if("is_one_round", name, "of_rounds", filled)]  # fmt: skip
        if lost is not None:
            names = [*dict.fromkeys([*targets, *lost])]
            whole = [_if("is_lost", name, "lost", names, whole)]
        found = [first, *whole]
        return [ast.fix_missing_locations(ast.copy_location(part, node)) for part in found]

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        plain, called, test = is_pure(node.test), called_in(node), copy.deepcopy(node.test)
        self.generic_visit(node)
        node.test = _by_shape(node.test, test)
        if not plain or called is None or not _is_movable(node):
            return node
        parts: list[ast.expr] = [_later(part) for part in (node.test, node.body, node.orelse)]
        return _call("either", [*parts, _listed(called, node)], node)

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self.visit(node.test)
        self.loops += 1
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        self.loops -= 1
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        items = [item for item in node.items if not _is_precision(item.context_expr)]
        node.items = [item if item not in items else self.visit(item) for item in node.items]
        for item in node.items:
            if _is_precision(item.context_expr):
                item.context_expr = _call("of_precision", [], item.context_expr)
            item.context_expr = _call("within", [item.context_expr], item.context_expr)
        node.body = self.block(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            setattr(node, name, self.block(getattr(node, name)))
        for handler in node.handlers:
            first = ast.Expr(_call("caught", [], handler))
            handler.body = [ast.copy_location(first, handler), *self.block(handler.body)]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        called = reported_in(node.value, self.dead)
        node.value = self.visit(node.value)
        if called is not None and isinstance(node.value, ast.Call) and _is_movable(node.value):
            node.value = _call("tried", [_later(node.value), _listed(called, node)], node.value)
        return node

    def holds(self, test: ast.expr) -> ast.Call:
        return _call("holds", [_later(test)], test)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        if not _is_movable(node.test):
            return node
        failed = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        error = ast.copy_location(ast.Name("AssertionError", ast.Load()), node)
        raised: list[ast.stmt] = [ast.copy_location(ast.Raise(error), node)]
        return ast.copy_location(ast.If(self.holds(failed), raised, []), node)

    # -- expressions --------------------------------------------------------------------------
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        counted = len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        text = f"{written(node.left)} != {written(node.comparators[0])}" if counted else ""
        self.generic_visit(node)
        match node:
            case ast.Compare(x, [ast.Eq() | ast.NotEq() as kind], [other]) if _is_filler(other):
                same = ast.Constant(isinstance(kind, ast.Eq))
                return _call("is_counted", [_later(node), x, ast.Constant(text), same], node)
            case ast.Compare(x, [ast.Is() | ast.IsNot() as kind], [ast.Constant(None)]):
                found: ast.expr = _call("is_none", [x], node)
            case ast.Compare(x, [ast.Is() | ast.IsNot() as kind], [other]):
                found = _call("is_same", [x, other], node)
            case ast.Compare(key, [ast.In() | ast.NotIn() as kind], [of]):
                found = _call("contains", [key, of], node)
            case _:
                return node
        negated = isinstance(kind, ast.IsNot | ast.NotIn)
        return ast.copy_location(ast.UnaryOp(ast.Not(), found), node) if negated else found

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        plain = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        plain = copy.deepcopy(plain)
        self.generic_visit(node)
        values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        if not values or not _is_movable(node) or not all(map(is_pure, plain)):
            return node
        return _call("joined", [_later(node), *copy.deepcopy(values)], node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        text = ast.unparse(node) if name in ASKED else ""
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("float" | "int" | "str" | "bool"), [ast.expr()], []):
                return _call("converted", [node.func, node.args[0]], node)
            case ast.Call(ast.Name("isinstance"), [_, _], []):
                return _call("is_instance", [*node.args, ast.Constant(text)], node)
            case ast.Call(ast.Name("hasattr"), [_, _], []):
                return _call("has", [*node.args, ast.Constant(text)], node)
            case ast.Call(ast.Name("type"), [_], []):
                return _call("type_of", [*node.args, ast.Constant(text)], node)
            case ast.Call(ast.Name("getattr"), [_, ast.Constant(str()), _], []):
                return _call("attribute", node.args, node)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """An import within a function: where the package is not installed, as at the head of the file."""
        given: list[ast.stmt] = []
        for alias in node.names:
            arguments: list[ast.expr] = [ast.Constant(x) for x in (node.module or "", node.level, alias.name)]
            found = ast.Call(ast.Name(IMPORTED, ast.Load()), arguments, [])
            given.append(ast.Assign([ast.Name(alias.asname or alias.name, ast.Store())], found))
        return _or_absent(node, given)

    def visit_Import(self, node: ast.Import) -> ast.AST:
        given: list[ast.stmt] = []
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            arguments: list[ast.expr] = [ast.Constant(x) for x in (alias.name, -1, alias.asname)]
            found = ast.Call(ast.Name(IMPORTED, ast.Load()), arguments, [])
            given.append(ast.Assign([ast.Name(name, ast.Store())], found))
        return _or_absent(node, given)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function within has names of its own."""
        inner = _Rewritten(node, f"{node.name}.", self.keys)
        inner.own |= self.own
        node.body = inner.block(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node


def _or_absent(node: ast.Import | ast.ImportFrom, given: list[ast.stmt]) -> ast.AST:
    handler = ast.ExceptHandler(ast.Name("ImportError", ast.Load()), None, given)
    return ast.fix_missing_locations(ast.copy_location(ast.Try([node], [handler], [], []), node))


def _is_precision(context: ast.expr) -> bool:
    """Is it torch.autocast(..), by any of its names?"""
    text = ast.unparse(context.func) if isinstance(context, ast.Call) else ""
    return text == "autocast" or (text.startswith("torch.") and text.endswith(".autocast"))


def _returns(body: list[ast.stmt]) -> bool:
    """Does a block return in any case?"""
    return any(isinstance(s, ast.Return) or (isinstance(s, ast.With) and _returns(s.body)) for s in body)


def _none_of(test: ast.expr) -> str:
    """The name x of a condition `x is None`; "" of any other."""
    match test:
        case ast.Compare(ast.Name(name), [ast.Is()], [ast.Constant(None)]):
            return name
    return ""


def _is_filler(node: ast.expr) -> bool:
    """A negative number such as -100, or a name such as self.ignore_index or tokenizer.pad_token_id."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    last = getattr(node, "attr", getattr(node, "id", ""))
    return bool({*last.lower().split("_")} & {"ignore", "pad", "padding"})


def _if(asks: str, name: str, gives: str, names: list[str], other: Iterable[ast.stmt] = ()) -> ast.If:
    """if klsym_in_code.asks(name): names = klsym_in_code.gives(names); else: other"""

    def call(function: str, argument: ast.expr) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name(IN_CODE, ast.Load()), function, ast.Load()), [argument], [])

    stored: list[ast.expr] = [ast.Name(x, ast.Store()) for x in names]
    listed = ast.Tuple([ast.Constant(x) for x in names], ast.Load())
    given = ast.Assign([ast.Tuple(stored, ast.Store())], call(gives, listed))
    return ast.If(call(asks, ast.Name(name, ast.Load())), [given if names else ast.Pass()], [*other])


def _names(target: ast.expr) -> list[str]:
    """a, or a and b of `a, b = ..`; nothing for other targets."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return names if len(names) == len(parts) else []
