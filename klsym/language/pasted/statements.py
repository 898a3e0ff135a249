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
from functools import reduce

from klsym.language.pasted.names import LIBRARIES, list_chain, list_names_filled
from klsym.language.pasted.text import find_assigned_name, find_setting
from klsym.language.training_names import names_critic, split_words

SKIPPED_CALLS = {  # calls that stand alone in a line
    "backward", "step", "zero_grad", "print", "clip_grad_norm_", "log", "info", "add_scalar",
    "update", "train", "eval", "debug", "empty_cache", "synchronize", "barrier", "append_stats",
}  # fmt: skip
NO_GRADIENT = {"no_grad", "inference_mode", "set_grad_enabled"}


def names_loss(name: str) -> bool:
    """Does a name say that it is a loss?"""
    return bool({*split_words(name)} & {"loss", "losses", "objective"})


class Unrolled:
    """Statements without blocks.  assumed: the conditions that are taken to be true.

    >>> code = "def f(x):\\n z = []\\n if args.use_kl:\\n  for y in x:\\n   z.append(y*2)\\n return sum(z)"
    >>> unrolled = Unrolled(ast.parse(code).body)
    >>> [ast.unparse(line) for line in unrolled.statements], unrolled.assumed
    (['y = x', 'z = y * 2', 'return sum(z)'], ['args.use_kl'])
    """

    def __init__(self, statements: Iterable[ast.stmt]) -> None:
        self.assumed: list[str] = []
        self.lists: set[str] = set()  # names of empty lists, which a loop fills
        self.filled: set[str] = set()  # names of lists to which something was appended
        self.looped: set[str] = set()  # names that a loop fills step by step
        self.losses: list[ast.expr] = []  # x of x.backward(), whose gradients add up
        lines = _leave_out_helpers([*statements])
        self.is_single = sum(isinstance(line, ast.FunctionDef | ast.ClassDef) for line in lines) < 2
        self.statements = [line for statement in lines for line in self.flatten(statement)]
        if self.losses:
            self.statements = [x for x in self.statements if not isinstance(x, ast.Return)]
            total = reduce(lambda a, b: ast.copy_location(ast.BinOp(a, ast.Add(), b), a), self.losses)
            self.statements.append(ast.copy_location(ast.Expr(total), total))

    def flatten(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """Yield what a statement does, one assignment after another."""
        match statement:
            case ast.FunctionDef() | ast.With() if self.is_single or isinstance(statement, ast.With):
                yield from self._flatten_function(statement)
            case ast.ClassDef(body=body) if (function := _find_loss_function(body)) is not None:
                yield from self.flatten(function)
            case ast.For(target, values, body, []) if _is_of_one_sample(body):
                yield from self._flatten_loop(statement, target, values, body)
            case ast.If():
                yield from self._flatten_choice(statement)
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Assert():
                return
            case ast.Return(ast.Tuple([first, _, *_] as values)):
                trained = [x for x in values if isinstance(x, ast.Name) and not names_critic(x.id)]
                loss = trained[0] if trained and isinstance(first, ast.Name) else first
                which = "the first" if loss is first else ast.unparse(loss)
                self.assumed.append(f"{which} of the values that are returned is the loss")
                yield ast.copy_location(ast.Return(loss), statement)
            case ast.Assign([ast.Name(name)], ast.List([])):
                self.lists.add(name)
            case ast.Assign() | ast.AnnAssign() | ast.Return():
                yield from _flatten_assignment(statement)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [value])) if (
                name in self.lists or ("loss" in name and name not in self.filled)
            ):
                self.lists.discard(name)  # a second one would be of other samples
                self.filled.add(name)
                assignment = ast.Assign([ast.Name(name, ast.Store())], value)
                yield from _flatten_assignment(ast.copy_location(assignment, statement))
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "reverse"), [])) if name in self.looped:
                return  # of what a loop has filled, the last step first
            case ast.Expr(ast.Call(function, arguments)) if changes_no_value(function, len(arguments)):
                if isinstance(function, ast.Attribute) and function.attr == "backward":
                    self.losses.append(function.value)
            case ast.Expr():
                yield from _unroll_comprehensions(statement)
            case _:
                self.looped |= {*list_names_filled(statement)} if isinstance(statement, ast.For) else set()
                yield statement

    def _flatten_function(self, block: ast.FunctionDef | ast.With) -> Iterator[ast.stmt]:
        """Yield the body of a function or of a block, without gradients where it has none."""
        body = block.body
        if isinstance(block, ast.FunctionDef):
            yield from assign_defaults(block)
            has_text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
            body = body[1:] if has_text and len(body) > 1 else body
        is_held = _is_without_gradient(block)
        for line in body:
            for inner in self.flatten(line):
                yield _detach(inner) if is_held else inner

    def _flatten_choice(self, choice: ast.If) -> Iterator[ast.stmt]:
        """Yield what is done if a setting is on, or if a value is given."""
        body: list[ast.stmt] = []
        match choice:
            case ast.If(ast.Compare(of, [ast.Is()], [ast.Constant(None)]), _, [_, *_]):
                self.assumed.append(f"{ast.unparse(of)} is given")
                body = choice.orelse
            case ast.If(condition) if setting := find_setting(f"if {ast.unparse(condition)}:"):
                self.assumed.append(setting)
                body = choice.body
        for line in body:
            yield from self.flatten(line)
        if not body:
            yield choice

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


def _flatten_assignment(statement: ast.Assign | ast.AnnAssign | ast.Return) -> Iterator[ast.stmt]:
    """Yield one assignment for each name of a, b = x, y or of a, b = f(x)."""
    match statement:
        case ast.AnnAssign(annotated, _, ast.expr() as value):
            yield from _unroll_comprehensions(ast.copy_location(ast.Assign([annotated], value), statement))
        case ast.Assign(_, ast.Tuple([value])) | ast.Return(ast.Tuple([value])):
            statement.value = value  # a comma at the end
            yield from _unroll_comprehensions(statement)
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values) and not (
            _list_names(targets) & _list_names(values)
        ):
            for target, value in zip(targets, values, strict=True):
                yield ast.copy_location(ast.Assign([target], value), statement)
        case ast.Assign([ast.Tuple(targets)], ast.Call() as call):
            for number, target in enumerate(targets):
                if isinstance(target, ast.Name) and target.id.strip("_"):
                    entry = ast.copy_location(ast.Subscript(call, ast.Constant(number), ast.Load()), call)
                    yield ast.copy_location(ast.Assign([target], entry), statement)
        case _:
            yield from _unroll_comprehensions(statement)


def _list_names(nodes: Iterable[ast.expr]) -> set[str]:
    return {x.id for node in nodes for x in ast.walk(node) if isinstance(x, ast.Name)}


def _unroll_comprehensions(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield what the names of comprehensions are at a sample, and the statement at it."""
    comprehensions = _list_comprehensions(statement)
    for comprehension in comprehensions:
        yield from _unroll(comprehension)
    yield _ElementOnly(comprehensions).visit(statement) if comprehensions else statement


def _leave_out_helpers(lines: list[ast.stmt]) -> list[ast.stmt]:
    r"""Return the lines without functions beside them, which they call; one at the end is the loss itself.

    >>> code = "old = logp.detach()\ndef get_loss():\n    return (logp - old)*adv"
    >>> [type(line).__name__ for line in _leave_out_helpers(ast.parse(code).body)]
    ['Assign', 'FunctionDef']
    """
    blocks = [x for x in lines if isinstance(x, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)]
    texts = [line for line in lines if _is_text(line) and len(lines) > 1]
    plain = [line for line in lines if line not in (*blocks, *texts)]
    has_loss = any(names_loss(find_assigned_name(line) or "") for line in plain)
    if plain and isinstance(lines[-1], ast.FunctionDef) and not has_loss:
        return [*plain, lines[-1]]
    return plain or lines


def _is_text(line: ast.stmt) -> bool:
    """Is it a text that stands alone, as a docstring does?"""
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


def _find_loss_function(body: Iterable[ast.stmt]) -> ast.FunctionDef | None:
    """Return the one function of a class that is no preparation: forward, as a rule."""
    functions = [
        x for x in body if isinstance(x, ast.FunctionDef) and x.name not in ("__init__", "extra_repr")
    ]
    return functions[0] if len(functions) == 1 else None


def _list_comprehensions(statement: ast.stmt) -> list[ast.ListComp | ast.GeneratorExp]:
    """Return what is built of each sample in turn, without a condition."""
    nodes = ast.walk(statement)
    comprehensions = [node for node in nodes if isinstance(node, ast.ListComp | ast.GeneratorExp)]
    is_plain = all(len(x.generators) == 1 and not x.generators[0].ifs for x in comprehensions)
    return comprehensions if is_plain else []


def _unroll(comprehension: ast.ListComp | ast.GeneratorExp) -> Iterator[ast.stmt]:
    """Yield what the names of a comprehension are at a sample."""
    [generator] = comprehension.generators
    for name, value in _pair_names(generator.target, generator.iter):
        if value is not None:
            yield ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), comprehension)


class _ElementOnly(ast.NodeTransformer):
    """Writes x*y for [x*y for x, y in zip(a, b)]."""

    def __init__(self, comprehensions: Sequence[ast.ListComp | ast.GeneratorExp]) -> None:
        self.places = {
            name
            for comprehension in comprehensions
            for name, value in _pair_names(
                comprehension.generators[0].target, comprehension.generators[0].iter
            )
            if value is None
        }

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return _OfSample(self.places).visit(node.elt)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return _OfSample(self.places).visit(node.elt)


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

    >>> codes = ("R = r + gamma*R", "loss += -lp*R", "k1", "x.append(l - b); b += l", "d *= 2")
    >>> [_is_of_one_sample(ast.parse(x).body) for x in (*codes, "if r > 0: R = 0\\nR = r + gamma*R")]
    [False, True, False, False, False, False]
    """
    if any(isinstance(line, ast.Expr) and not isinstance(line.value, ast.Call) for line in body):
        return False
    sums = [node for line in body for node in ast.walk(line) if isinstance(node, ast.AugAssign)]
    if not all(isinstance(node.op, ast.Add | ast.Sub) for node in sums):
        return False
    assigned: set[str] = set()
    read: set[str] = set()
    for statement in body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        read |= {node.id for node in names if isinstance(node.ctx, ast.Load)} - assigned
        if isinstance(statement, ast.If) and not find_setting(f"if {ast.unparse(statement.test)}:"):
            read |= {
                node.id for node in names if isinstance(node.ctx, ast.Store)
            }  # as it was, or a new value
        if not isinstance(statement, ast.AugAssign):
            assigned |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    added = {node.target.id for node in sums if isinstance(node.target, ast.Name)}
    loaded = {
        node.id for line in body for node in ast.walk(line)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }  # fmt: skip
    return not read & assigned and not loaded & added


def assign_defaults(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """Yield the numbers that arguments have by default."""
    named = function.args.args[len(function.args.args) - len(function.args.defaults) :]
    pairs = [*zip(named, function.args.defaults, strict=True)]
    pairs += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d]
    for argument, default in pairs:
        number = default.operand if isinstance(default, ast.UnaryOp) else default
        if isinstance(number, ast.Constant) and type(number.value) in (int, float):
            yield ast.copy_location(ast.Assign([ast.Name(argument.arg, ast.Store())], default), default)


def _is_without_gradient(block: ast.stmt) -> bool:
    """Is it a block, or a function, without gradients?"""
    marks = [item.context_expr for item in block.items] if isinstance(block, ast.With) else []
    marks += block.decorator_list if isinstance(block, ast.FunctionDef) else []
    return any(_disables_gradient(mark) for mark in marks)


def _disables_gradient(mark: ast.expr) -> bool:
    """Is it torch.no_grad() or its like, and not set_grad_enabled(x), which may enable them?"""
    name = _name_last(mark.func if isinstance(mark, ast.Call) else mark)
    modes = [*mark.args, *(keyword.value for keyword in mark.keywords)] if isinstance(mark, ast.Call) else []
    is_off = any(isinstance(mode, ast.Constant) and mode.value is False for mode in modes)
    return name in NO_GRADIENT and is_off == (name == "set_grad_enabled")


def changes_no_value(function: ast.expr, arguments: int) -> bool:
    """Is it a call such as optimizer.step() or wandb.log(x), and not torch.log(x) or x.log()?"""
    owner = list_chain(function.value)[:1] if isinstance(function, ast.Attribute) else []
    is_logarithm = _name_last(function) == "log" and ({*owner} <= LIBRARIES or not arguments)
    return _name_last(function) in SKIPPED_CALLS and not is_logarithm


def _detach(statement: ast.stmt) -> ast.stmt:
    """Return an assignment of a value without its gradient."""
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.Return) and statement.value is not None:
        detached = ast.Call(ast.Attribute(statement.value, "detach", ast.Load()), [], [])
        statement.value = ast.copy_location(detached, statement.value)
    return statement


def _name_last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
