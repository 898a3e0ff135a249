"""Mutations of a Python source: small changes of its tree, each of which some test should notice.

Docstrings, annotations, error texts, imports, assertions, decorators and what is charged stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
SWAPPED = {"any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list"}
LIMIT = 1000  # an integer from here on is a limit: that there is one matters, not by how much
WIDTH = 200  # longer statements are cut to where they differ
UNTOUCHED = ast.Import | ast.ImportFrom | ast.Assert | ast.Pass
TYPES = ast.Name | ast.Subscript | ast.BinOp | ast.BitOr | ast.Load | ast.Tuple | ast.List | ast.Attribute
WEIGHTS = ("_work", "_per_number")  # functions that say what a step is charged
# From which argument on calls hold the text of an error.
TEXTS = {"refuse_unless": 1, "_rows": 2, "_choose_item": 2}
ASIDE = ("annotation", "returns", "targets", "target", "decorator_list")
Edit = tuple[ast.AST, str, Any]  # a node, a field of it, the new value of the field
Found = tuple[Edit, ast.AST, ast.AST, str]  # an edit, what it changes, in which statement and function


@dataclass(frozen=True)
class Mutant:
    """One change: `before` and `after` show the statement, or the first line of a block."""

    file: str
    line: int
    where: str
    before: str
    after: str
    statement: tuple[int, int]  # its first and last line, without the block below
    edit: Edit

    @property
    def key(self) -> str:
        return " | ".join((self.file, self.where, self.before, self.after))

    def apply(self) -> None:
        """Change the tree that the mutant was made from."""
        setattr(*self.edit)


class Source:
    """The tree of a file, and its mutants.

    >>> [mutant.after for mutant in Source("x.py", "a = b < 1").mutants]
    ['a = b <= 1', 'a = b >= 1', 'a = b < 0', 'a = b < 2']
    """

    def __init__(self, file: str, text: str) -> None:
        self.file, self.tree = file, ast.parse(text)
        found = (self._mutant(*each) for each in _block(self.tree.body, self.tree, "body", ""))
        self.mutants = list(
            {mutant.key: mutant for mutant in found if mutant.before != mutant.after}.values()
        )

    def _mutant(self, edit: Edit, node: Any, statement: Any, where: str) -> Mutant:
        owner, field, new = edit
        old, before = getattr(owner, field), _first_line(statement)
        setattr(owner, field, new)
        after = "pass" if field in ("body", "orelse") and isinstance(old, list) else _first_line(statement)
        setattr(owner, field, old)
        line = getattr(node, "lineno", None) or statement.lineno
        first = getattr(statement, "lineno", line)
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if isinstance(body, list) else statement.end_lineno
        shown = _shortened(before, after)
        return Mutant(self.file, line, where, *shown, (first, max(first, line, last)), edit)


# ---------------------------------------------------------------------------- statements
def _block(statements: list[Any], owner: ast.AST, field: str, where: str) -> Iterator[Found]:
    for i, node in enumerate(statements):
        if isinstance(node, UNTOUCHED) or is_text(node) or _is_alias(node):
            continue
        if isinstance(node, ast.Expr | ast.Raise | ast.AugAssign | ast.Continue):
            yield (owner, field, [*statements[:i], ast.Pass(), *statements[i + 1 :]]), node, node, where
        if not isinstance(node, ast.Raise) and not _calls(node, "charge"):
            yield from _statement(node, where)


def _statement(node: Any, where: str) -> Iterator[Found]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}" if where else node.name
    if isinstance(node, ast.FunctionDef):
        yield from _inside(node.args, node, where)
    elif isinstance(node, ast.Match):
        for case in node.cases:
            case.lineno = node.lineno  # type: ignore[attr-defined]  what is executed is the whole
            yield from _case(case, where)
    elif not isinstance(node, ast.ClassDef) and where not in WEIGHTS:
        yield from _inside(node, node, where)
    if isinstance(node, ast.If | ast.While):
        for truth in (True, False)[isinstance(node, ast.While) :]:
            yield (node, "test", ast.Constant(truth)), node.test, node, where
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        yield (node.value, "elts", node.value.elts[::-1]), node, node, where
    for field in ("body", "orelse", "finalbody"):
        yield from _block(getattr(node, field, []), node, field, where)
    for handler in getattr(node, "handlers", []):
        yield from _block(handler.body, handler, "body", where)


def _case(case: ast.match_case, where: str) -> Iterator[Found]:
    yield (case, "guard", ast.Constant(False)), case.pattern, case, where
    if case.guard is not None:
        yield (case, "guard", None), case.guard, case, where
        yield from _inside(case, case, where)
    for inner in ast.walk(case.pattern):
        if isinstance(inner, ast.MatchValue) and isinstance(inner.value, ast.Constant):
            yield (inner, "value", ast.Constant(f"{inner.value.value}?")), inner, case, where
    yield from _block(case.body, case, "body", where)


def is_text(node: ast.AST) -> bool:
    """Is it a docstring?"""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _calls(node: ast.AST, name: str) -> bool:
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name


def _is_alias(node: ast.AST) -> bool:
    """`__all__`, and names for types such as `Number = int | Fraction`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    typed = isinstance(node.value, ast.Subscript | ast.BinOp) and all(
        isinstance(n, TYPES) or (isinstance(n, ast.Constant) and n.value in (..., None))
        for n in ast.walk(node.value)
    )
    return typed or node.targets[0].id == "__all__"


# ---------------------------------------------------------------------------- expressions
def _inside(node: ast.AST, statement: ast.AST, where: str) -> Iterator[Found]:
    """The changes of the expressions below a node, those of blocks left out."""
    for field, value in ast.iter_fields(node):
        if field in ASIDE or (field == "func" and not isinstance(value, ast.Attribute)):
            continue
        for i, item in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(item, ast.expr | ast.comprehension | ast.keyword):
                continue
            if field == "args" and any(i >= first and _calls(node, name) for name, first in TEXTS.items()):
                continue
            for new in (*_changed(item, node), *_dropped(item, node)):
                edited = [*value[:i], new, *value[i + 1 :]] if isinstance(value, list) else new
                yield (node, field, edited), new if hasattr(new, "lineno") else item, statement, where
            yield from _inside(item, statement, where)


def _changed(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of an expression."""
    match node:
        case ast.Compare(left, operators, right):
            for i, operator in enumerate(operators):
                for kind in COMPARISONS[type(operator)]:
                    yield ast.Compare(left, [*operators[:i], kind(), *operators[i + 1 :]], right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for rest in _without_one(values):
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.BinOp(left, operator, right):
            yield ast.BinOp(left, OPERATORS[type(operator)](), right)
            if isinstance(operator, ast.BitOr | ast.BitAnd | ast.Add | ast.Mult):
                yield from (left, right)
        case ast.Constant(value):
            yield from map(ast.Constant, _constants(value, parent))
        case ast.IfExp(_, body, orelse):
            yield from (body, orelse)
        case ast.Call(ast.Name(name), arguments, keywords) if name in SWAPPED:
            yield ast.Call(
                ast.Name(SWAPPED[name], ast.Load()), arguments, [] if name == "sorted" else keywords
            )
        case ast.Slice(lower, upper, step):
            yield from (ast.Slice(None, upper, step) for _ in [lower] if lower)
            yield from (ast.Slice(lower, None, step) for _ in [upper] if upper)


def _constants(value: Any, parent: ast.AST) -> Iterator[Any]:
    if isinstance(value, bool):
        yield from () if isinstance(parent, ast.keyword) and parent.arg == "strict" else [not value]
    elif isinstance(parent, ast.Subscript):
        yield from [value + 1] if isinstance(value, int) else []
    elif isinstance(value, int):
        yield from (0, value * 10**9) if value >= LIMIT else (value - 1, value + 1)
    elif isinstance(value, str) and isinstance(parent, ast.JoinedStr):
        yield ""
    elif isinstance(value, str):
        items = [*getattr(parent, "elts", ()), *getattr(parent, "values", ())]
        texts = [item.value for item in items if isinstance(item, ast.Constant)]
        yield next((text for text in texts if isinstance(text, str) and text != value), f"{value}?")


def _dropped(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    """The same without one of its elements or conditions."""
    match node:
        case ast.Tuple(items) | ast.List(items) if _is_collection(node, parent):
            for i, rest in enumerate(_without_one(items)):
                yield ast.copy_location(type(node)(rest, node.ctx), items[i])
        case ast.Set(items):
            for i, rest in enumerate(_without_one(items)):
                empty = ast.Starred(ast.List([], ast.Load()), ast.Load())
                yield ast.copy_location(ast.Set(rest or [empty]), items[i])
        case ast.Dict(keys, values):
            pairs = zip(_without_one(keys), _without_one(values), strict=True)
            for i, (left, right) in enumerate(pairs):
                yield ast.copy_location(ast.Dict(left, right), values[i])
        case ast.comprehension(target, source, conditions):
            for rest in _without_one(conditions):
                yield ast.comprehension(target, source, rest, 0)
                yield ast.comprehension(target, source, [*rest, ast.Constant(False)], 0)
        case ast.Call(ast.Name("min" | "max"), arguments, keywords) if len(arguments) > 1:
            for rest in _without_one(arguments):
                yield ast.Call(node.func, [ast.List(rest, ast.Load())], keywords)


def _is_collection(node: Any, parent: ast.AST) -> bool:
    """Not a row of a fixed length, which would not be read at all without an element."""
    if isinstance(parent, ast.Return | ast.Subscript):
        return False
    loose = (isinstance(item, ast.Starred | ast.Constant) for item in node.elts)
    held = isinstance(parent, ast.Compare | ast.Assign | ast.Dict)
    return isinstance(node, ast.List) or held or all(loose)


def _without_one(items: list[Any]) -> list[list[Any]]:
    return [items[:i] + items[i + 1 :] for i in range(len(items))]


# ---------------------------------------------------------------------------- how it is shown
def _first_line(statement: ast.AST) -> str:
    lines = ast.unparse(statement).strip().split("\n")
    return next(line for line in lines if not line.startswith("@"))


def _shortened(before: str, after: str) -> tuple[str, str]:
    """Long statements are cut to where they differ."""
    if max(len(before), len(after)) <= WIDTH:
        return before, after
    start = max(0, _shared(before, after) - 60)
    end = max(0, _shared(before[start:][::-1], after[start:][::-1]) - 60)
    return tuple(text[start : len(text) - end] for text in (before, after))  # type: ignore[return-value]


def _shared(a: str, b: str) -> int:
    """The length of the text that both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
