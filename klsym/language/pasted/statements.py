"""Statements of pasted code, one after another: what runs once for each sample stands as one assignment.

    for lp, ret in zip(log_probs, returns):          lp = log_probs
        losses.append(-lp * ret)            ->       ret = returns
    loss = torch.cat(losses).sum()                   losses = -lp * ret
                                                     loss = torch.cat(losses).sum()

A function stands for its body, `with torch.no_grad():` for `.detach()`, and an `if` of a setting for what it
does when the setting is on.  What changes no value, such as a step of an optimizer, is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from klsym.language.pasted.names import LIBRARIES, list_chain
from klsym.language.pasted.text import find_setting

NO_VALUE = {  # calls that stand alone in a line
    "backward", "step", "zero_grad", "print", "clip_grad_norm_", "log", "info", "add_scalar",
    "update", "train", "eval", "debug",
}  # fmt: skip
NO_GRADIENT = {"no_grad", "inference_mode"}


class Flat:
    """Statements without blocks.  assumed: the conditions that are taken to be true.

    >>> code = "def f(x):\\n z = []\\n if args.use_kl:\\n  for y in x:\\n   z.append(y*2)\\n return sum(z)"
    >>> flat = Flat(ast.parse(code).body)
    >>> [ast.unparse(line) for line in flat.statements], flat.assumed
    (['y = x', 'z = y * 2', 'return sum(z)'], ['args.use_kl'])
    """

    def __init__(self, statements: Iterable[ast.stmt]) -> None:
        self.assumed: list[str] = []
        self.lists: set[str] = set()  # names of empty lists, which a loop fills
        self.loss: ast.expr | None = None  # x of x.backward()
        self.statements = [line for statement in statements for line in self.flatten(statement)]
        if self.loss is not None:
            self.statements.append(ast.copy_location(ast.Expr(self.loss), self.loss))

    def flatten(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """Yield what a statement does, one assignment after another."""
        match statement:
            case (
                ast.FunctionDef(body=[ast.Expr(ast.Constant(str())), *body])
                | ast.FunctionDef(body=body)
                | ast.With(body=body)
            ):
                is_held = isinstance(statement, ast.With) and _is_without_gradient(statement)
                for line in body:
                    for inner in self.flatten(line):
                        yield _detach(inner) if is_held else inner
            case ast.For(target, values, body, []) if _is_of_one_sample(body):
                yield from self._flatten_loop(statement, target, values, body)
            case ast.If(condition, body, _) if setting := find_setting(f"if {ast.unparse(condition)}:"):
                self.assumed.append(setting)
                for line in body:
                    yield from self.flatten(line)
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Assert():
                return
            case ast.Assign([ast.Name(name)], ast.List([])):
                self.lists.add(name)
            case ast.AnnAssign(target, _, ast.expr() as value):
                yield ast.copy_location(ast.Assign([target], value), statement)
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                for target, value in zip(targets, values, strict=True):
                    yield ast.copy_location(ast.Assign([target], value), statement)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [value])) if name in self.lists:
                self.lists.discard(name)  # a second one would be of other samples
                yield ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), statement)
            case ast.Expr(ast.Call(function, arguments)) if changes_no_value(function, len(arguments)):
                if isinstance(function, ast.Attribute) and function.attr == "backward":
                    self.loss = function.value
            case _:
                yield statement

    def _flatten_loop(
        self, loop: ast.For, target: ast.expr, values: ast.expr, body: list[ast.stmt]
    ) -> Iterator[ast.stmt]:
        """Yield the body for one sample; what it adds up is a sum over samples."""
        places: set[str] = set()
        for name, value in _pair_names(target, values):
            if value is None:
                places.add(name)
            else:
                yield ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), loop)
        for line in body:
            for inner in self.flatten(line):
                at_sample = _OfSample(places).visit(inner)
                if isinstance(at_sample, ast.AugAssign):
                    total = ast.Call(ast.Name("sum", ast.Load()), [at_sample.value], [])
                    at_sample.value = ast.copy_location(total, at_sample.value)
                yield at_sample


class _OfSample(ast.NodeTransformer):
    """Writes x for x[i], where i counts the samples of a loop."""

    def __init__(self, places: set[str]) -> None:
        self.places = places

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_place = isinstance(node.slice, ast.Name) and node.slice.id in self.places
        return node.value if is_place else node


def _pair_names(target: ast.expr, values: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each name of a loop with what it goes through; None for one that counts."""
    match target, values:
        case ast.Name(name), ast.Call(ast.Name("range")):
            yield name, None
        case ast.Name(name), _:
            yield name, values
        case ast.Tuple([ast.Name(name), inner]), ast.Call(ast.Name("enumerate"), [of, *_]):
            yield name, None
            yield from _pair_names(inner, of)
        case ast.Tuple(targets), ast.Call(ast.Name("zip"), several) if len(targets) == len(several):
            for one, of in zip(targets, several, strict=True):
                yield from _pair_names(one, of)


def _is_of_one_sample(body: Sequence[ast.stmt]) -> bool:
    """Does a loop do the same for each sample?  Not if it reads what the sample before has left.

    >>> [_is_of_one_sample(ast.parse(x).body) for x in ("R = r + gamma*R", "loss += -lp*R", "k1")]
    [False, True, False]
    """
    if any(isinstance(line, ast.Expr) and not isinstance(line.value, ast.Call) for line in body):
        return False
    assigned: set[str] = set()
    read: set[str] = set()
    for statement in body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        read |= {node.id for node in names if isinstance(node.ctx, ast.Load)} - assigned
        if not isinstance(statement, ast.AugAssign):
            assigned |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return not read & assigned


def _is_without_gradient(block: ast.With) -> bool:
    return any(
        isinstance(item.context_expr, ast.Call) and _name_last(item.context_expr.func) in NO_GRADIENT
        for item in block.items
    )


def changes_no_value(function: ast.expr, arguments: int) -> bool:
    """Is it a call such as optimizer.step() or wandb.log(x), and not torch.log(x) or x.log()?"""
    owner = list_chain(function.value)[:1] if isinstance(function, ast.Attribute) else []
    is_logarithm = _name_last(function) == "log" and ({*owner} <= LIBRARIES or not arguments)
    return _name_last(function) in NO_VALUE and not is_logarithm


def _detach(statement: ast.stmt) -> ast.stmt:
    """Return an assignment of a value without its gradient."""
    if isinstance(statement, ast.Assign | ast.AugAssign):
        detached = ast.Call(ast.Attribute(statement.value, "detach", ast.Load()), [], [])
        statement.value = ast.copy_location(detached, statement.value)
    return statement


def _name_last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
