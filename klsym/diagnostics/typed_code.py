"""A loss as it is typed, run in an arithmetic: operation by operation, before SymPy simplifies anything.

>>> from klsym.diagnostics.arithmetic import Arithmetic
>>> double = Arithmetic(single=False)
>>> inputs = {"log_q": double.make_leaf(-1.0), "log_p": double.make_number(-1.5)}
>>> found = run_typed("d = log_p - log_q; torch.expm1(d) - d", (), double, lambda e: inputs[e.name])
>>> round(found.value, 12)
0.106530659713
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from typing import Any

from klsym.diagnostics.arithmetic import Arithmetic, Node
from klsym.errors import KlsymError
from klsym.language.parser import FUNCTIONS, MAX_DEPTH
from klsym.language.pasted.notes import IDENTITY_METHODS
from klsym.language.reductions import KEPT, MASK
from klsym.language.spellings import SpelledReader

Value = Callable[[Any], Node]  # of a name of the grammar


class CannotRun(Exception):
    """The text uses something that has no operation here."""


def run_typed(text: str, parameters: Iterable[str], arithmetic: Arithmetic, value: Value) -> Node:
    """Return the value of a typed loss; a mean or a sum over samples is that of one.  Raises CannotRun."""
    try:
        reader, statements = _read_statements(text, tuple(parameters))
        return _StatementRunner(reader, arithmetic, value).run_statements(statements)
    except (KlsymError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CannotRun(str(error)) from None


@lru_cache(maxsize=8)
def _read_statements(text: str, parameters: tuple[str, ...]) -> tuple[SpelledReader, list[ast.stmt]]:
    """Return the statements of a loss, which is run at several points, and what reads their names."""
    reader = SpelledReader(text, parameters)
    return reader, reader.parse_statements()


class _StatementRunner:
    """Runs the statements of a loss, one after the other."""

    def __init__(self, reader: SpelledReader, arithmetic: Arithmetic, value: Value) -> None:
        self.reader, self.arithmetic, self.value = reader, arithmetic, value
        self.assigned: dict[str, Node] = {}

    def run_statements(self, nodes: list[ast.stmt]) -> Node:
        result = self.arithmetic.make_number(0)
        for node in nodes:
            match node:
                case ast.Assign(targets, expression):
                    result = self.evaluate(expression)
                    self.assigned |= {target.id: result for target in targets if isinstance(target, ast.Name)}
                case ast.AugAssign(ast.Name(name), operator, expression):
                    result = self.binary(operator, self.assigned[name], self.evaluate(expression))
                    self.assigned[name] = result
                case ast.Expr(expression) | ast.Return(expression) if expression is not None:
                    result = self.evaluate(expression)
                case _:
                    raise CannotRun("a statement")
        return result

    def evaluate(self, node: ast.expr, depth: int = 0) -> Node:
        if depth > 4 * MAX_DEPTH:
            raise CannotRun("nested too deeply")
        match node:
            case ast.Name(name) if name in self.assigned:
                return self.assigned[name]
            case ast.Constant(int() | float() as number):
                return self.arithmetic.make_number(number)
            case ast.Name(name):
                return self.evaluate_name(self.reader.read_name(name, node))
            case ast.UnaryOp(ast.USub(), operand):
                return self.arithmetic.negative(self.evaluate(operand, depth + 1))
            case ast.UnaryOp(ast.UAdd(), operand):
                return self.evaluate(operand, depth + 1)
            case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
                return self.binary(operator, self.evaluate(left, depth + 1), self.evaluate(right, depth + 1))
            case ast.Call():
                return self.apply_call(node, depth + 1)
            case ast.Attribute(operand, "data") if self.reader.split_chain(node) is None:
                return self.arithmetic.detach(self.evaluate(operand, depth + 1))
            case ast.Attribute() | ast.Subscript():
                return self.evaluate_name(self.reader.read_attribute(node))
        return self.arithmetic.make_number(float(self.is_true(node, depth)))

    def evaluate_name(self, symbol: Any) -> Node:
        return self.arithmetic.make_number(1) if symbol in (MASK, KEPT) else self.value(symbol)

    def binary(self, operator: ast.operator, left: Node, right: Node) -> Node:
        return OPERATORS[type(operator)](self.arithmetic, left, right)

    def is_true(self, node: ast.expr, depth: int) -> bool:
        """Is a comparison true?"""
        match node:
            case ast.Compare(first, signs, others):
                values = [self.evaluate(item, depth + 1).value for item in (first, *others)]
                return all(
                    COMPARISONS[type(s)](a, b) for s, a, b in zip(signs, values, values[1:], strict=False)
                )
            case ast.UnaryOp(ast.Not() | ast.Invert(), operands):
                return not self.is_true(operands, depth + 1)
            case ast.BoolOp(sign, operands):
                truths = [self.is_true(item, depth + 1) for item in operands]
                return all(truths) if isinstance(sign, ast.And) else any(truths)
            case ast.BinOp(left, ast.BitAnd(), right):
                return self.is_true(left, depth + 1) and self.is_true(right, depth + 1)
            case ast.BinOp(left, ast.BitOr(), right):
                return self.is_true(left, depth + 1) or self.is_true(right, depth + 1)
        raise CannotRun(type(node).__name__)

    # ------------------------------------------------------------------------ calls
    def apply_call(self, node: ast.Call, depth: int) -> Node:
        name, arguments, is_from_library = self.reader.split_call(node)
        is_method = isinstance(node.func, ast.Attribute) and not is_from_library
        if name in IDENTITY_METHODS and is_method:
            return self.evaluate(arguments[0], depth)
        if isinstance(node.func, ast.Name) and name in {*FUNCTIONS, "where"} and not node.keywords:
            names = ("when", "x", "y") if name == "where" else ("x", "lo", "hi")
            arguments_by_name = dict(zip(names, arguments, strict=False))
            extremes = arguments if name in ("min", "max") else []
        else:
            from klsym.language.library_calls import FUNCTIONS as CALLS
            from klsym.language.pasted.calls import Call, bind_arguments

            arguments_by_name = bind_arguments(
                self.reader, CALLS[name], Call(name, arguments, node, is_method)
            )
            extremes = [arguments_by_name[key] for key in ("x", "y") if key in arguments_by_name]
        if name in EXTREMES:
            if len(extremes) < 2:
                raise CannotRun(f"{name} over an axis")
            operation = EXTREMES[name]
            return reduce(
                lambda a, b: operation(self.arithmetic, a, b), [self.evaluate(x, depth) for x in extremes]
            )
        if name == "where":
            branches = (self.evaluate(arguments_by_name[key], depth) for key in ("x", "y"))
            return self.arithmetic.where(self.is_true(arguments_by_name["when"], depth), *branches)
        values = {
            key: self.evaluate(argument, depth)
            for key, argument in arguments_by_name.items()
            if key not in NO_NUMBERS
        }
        if name in CLIPS:
            return self.arithmetic.clip(values["x"], values.get("lo"), values.get("hi"))
        return ELEMENTWISE[name](self.arithmetic, *(values[key] for key in ("x", "y", "n") if key in values))


def _apply_softplus(arithmetic: Arithmetic, x: Node) -> Node:
    return arithmetic.negative(arithmetic.logsigmoid(arithmetic.negative(x)))


def _apply_relu(arithmetic: Arithmetic, x: Node) -> Node:
    return arithmetic.where(x.value <= 0, arithmetic.make_number(0), x)  # nan stays nan


def _keep_value(arithmetic: Arithmetic, x: Node) -> Node:
    return x


Operation = Callable[..., Node]
OPERATORS: dict[type[ast.operator], Operation] = {
    ast.Add: Arithmetic.add, ast.Sub: Arithmetic.subtract, ast.Mult: Arithmetic.multiply,
    ast.Div: Arithmetic.divide, ast.Pow: Arithmetic.power,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
    ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b,
}  # fmt: skip
EXTREMES = {
    "min": Arithmetic.minimum, "minimum": Arithmetic.minimum,
    "max": Arithmetic.maximum, "maximum": Arithmetic.maximum,
}  # fmt: skip
CLIPS = {"clip", "clamp", "clamp_", "clip_by_value", "clamp_min", "clamp_max"}
NO_NUMBERS = {"axis", "keepdims", "mask"}
ELEMENTWISE: dict[str, Operation] = {
    "exp": Arithmetic.exp, "log": Arithmetic.log, "sqrt": Arithmetic.sqrt, "abs": Arithmetic.absolute,
    "absolute": Arithmetic.absolute, "sg": Arithmetic.detach, "detach": Arithmetic.detach,
    "stop_gradient": Arithmetic.detach, "item": Arithmetic.detach, "expm1": Arithmetic.expm1,
    "log1p": Arithmetic.log1p, "sigmoid": Arithmetic.sigmoid, "logsigmoid": Arithmetic.logsigmoid,
    "log_sigmoid": Arithmetic.logsigmoid, "softplus": _apply_softplus, "relu": _apply_relu,
    "neg": Arithmetic.negative,
    "negative": Arithmetic.negative, "pow": Arithmetic.power, "power": Arithmetic.power,
    "add": Arithmetic.add, "sub": Arithmetic.subtract, "subtract": Arithmetic.subtract,
    "mul": Arithmetic.multiply, "multiply": Arithmetic.multiply, "div": Arithmetic.divide,
    "divide": Arithmetic.divide, "true_divide": Arithmetic.divide, "mean": _keep_value, "sum": _keep_value,
    "masked_mean": _keep_value, "masked_sum": _keep_value,
    "square": lambda of, x: of.power(x, of.make_number(2)),
    "exp2": lambda of, x: of.power(of.make_number(2), x),
    "reciprocal": lambda of, x: of.divide(of.make_number(1), x),
    "rsqrt": lambda of, x: of.divide(of.make_number(1), of.sqrt(x)),
}  # fmt: skip
