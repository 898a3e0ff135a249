"""The functions of PyTorch, JAX and NumPy that losses use, each in terms of the loss grammar.

A row of FUNCTIONS has the names of the arguments, those after "/" optional, and a function that builds the
value from the reader, the call and the arguments as trees.

>>> [name for name, row in FUNCTIONS.items() if row.names == ("x", "/", "lo", "hi")]
['clamp', 'clamp_', 'clip', 'clip_by_value']
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

from klsym.language.expressions import DENSITIES as SYMBOLS
from klsym.language.parser import SHOWN
from klsym.language.reductions import MASK, SAMPLES, WORDS
from klsym.language.sums import DENSITIES, full_kl


class Call(NamedTuple):
    """A call as it is typed: x.f(y) has the arguments x, y."""

    name: str
    arguments: list[ast.expr]
    node: ast.Call
    is_method: bool


class Row(NamedTuple):
    """A function that is read."""

    names: tuple[str, ...]
    build: Callable[..., Any]  # of the reader, the call, {name: tree}, the depth


KEYWORDS = {
    "input": "x", "a": "x", "other": "y", "x2": "y", "x1": "x", "exponent": "n", "min": "lo", "a_min": "lo",
    "max": "hi", "a_max": "hi", "clip_value_min": "lo", "clip_value_max": "hi", "dim": "axis",
    "keepdim": "keepdims", "condition": "when",
}  # fmt: skip


def bound_arguments(reader: Any, row: Row, call: Call) -> dict[str, ast.expr]:
    """The arguments by name; what is unknown, missing or given twice is refused."""
    order = [name for name in row.names if name != "/"]
    needed = row.names[: row.names.index("/")] if "/" in row.names else row.names
    shown = call.name[:SHOWN]
    if len(call.arguments) > len(order) or any(isinstance(x, ast.Starred) for x in call.arguments):
        raise reader.at(f"{shown} takes {len(order)} arguments at most", call.node)
    found = dict(zip(order, call.arguments, strict=False))
    for keyword in call.node.keywords:
        name = keyword.arg or "**"
        known = name if name in order else KEYWORDS.get(name, "")
        if known not in order or known in found:
            raise reader.at(f"the argument {name[:SHOWN]}= of {shown} is not read", call.node)
        found[known] = keyword.value
    found = {name: of for name, of in found.items() if not _is_none(of)}
    if missing := [name for name in needed if name not in found]:
        raise reader.at(f"{shown} without its argument {missing[0]}", call.node)
    return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# ---------------------------------------------------------------------------- elementwise
def elementwise(names: str, of: Callable[..., Any]) -> Row:
    """A row of which all arguments are formulas: of(reader, node, *values)."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        values = [reader.build(given[name], depth) for name in names.split()]
        return of(reader, call.node, *values)

    return Row(tuple(names.split()), build)


def grammar(name: str) -> Row:
    """A function that the grammar has, too."""
    return elementwise("x", lambda reader, node, x: reader.call(name, [x], node))


def operation(operator: ast.operator) -> Row:
    return elementwise("x y", lambda reader, node, x, y: reader.operate(operator, x, y, node))


def _exp(reader: Any, x: Any, node: ast.expr) -> Any:
    return reader.call("exp", [x], node)


def _log(reader: Any, x: Any, node: ast.expr) -> Any:
    return reader.call("log", [x], node)


def _extreme(name: str) -> Row:
    """min and max of two formulas; of a library, and as methods, a number is an axis."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        if "y" not in given:
            raise reader.at(f"{call.name} over samples or tokens is not read", call.node)
        x, y = (reader.build(given[key], depth) for key in ("x", "y"))
        if call.name == name and y.is_number:
            what = f"{name} with a number is that over an axis: type {name}(x, {y}) for the {name} of both"
            raise reader.at(what, call.node)
        return reader.call(name, [x, y], call.node)

    return Row(("x", "/", "y"), build)


def _clamp(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """clip(x, lo, hi), or one bound alone."""
    x = reader.build(given["x"], depth)
    bounds = {name: reader.build(given[name], depth) for name in ("lo", "hi") if name in given}
    if not bounds:
        raise reader.at(f"{call.name} without a bound", call.node)
    if len(bounds) == 2:
        return reader.call("clip", [x, bounds["lo"], bounds["hi"]], call.node)
    return reader.call("max" if "lo" in bounds else "min", [x, *bounds.values()], call.node)


def _where(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    grammar_call = ast.Call(ast.Name("where"), [given[name] for name in ("when", "x", "y")], [])
    return reader.build(ast.copy_location(grammar_call, call.node), depth)


# ---------------------------------------------------------------------------- means and sums
def _reduction(kind: str) -> Row:
    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        _refuse_computed_axis(reader, call, given)
        return reader.reduce(kind, reader.build(given["x"], depth), call.name)

    return Row(("x", "/", "axis", "keepdims"), build)


def _masked(kind: str) -> Row:
    """masked_mean(x, mask)."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        _refuse_computed_axis(reader, call, given)
        x, mask = reader.build(given["x"], depth), reader.build(given["mask"], depth)
        if mask != MASK:
            raise reader.at(f"{call.name} with a second argument that is no mask of padding", call.node)
        if kind == "mean":
            return reader.reduce("sum", MASK * x, call.name) / reader.reduce("sum", MASK, call.name)
        return reader.reduce(kind, MASK * x, call.name)

    return Row(("x", "mask", "/", "axis"), build)


def _refuse_computed_axis(reader: Any, call: Call, given: dict[str, ast.expr]) -> None:
    for name in ("axis", "keepdims"):
        node = given.get(name)
        if node is not None and not _is_literal(node):
            raise reader.at(f"{call.name} over an axis that is no number", call.node)


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant(int() | bool()) | ast.UnaryOp(ast.USub(), ast.Constant(int())):
            return True
        case ast.Tuple(items) | ast.List(items):
            return all(map(_is_literal, items))
    return False


# ---------------------------------------------------------------------------- divergences
POLICIES = {"pi": "q", "pi_theta": "q", "policy": "q", "ref": "p", "pi_ref": "p", "pi_old": "mu"}


def _divergence(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """KL(q||p), which the text has as KL(q, p)."""
    names = [node.id for node in given.values() if isinstance(node, ast.Name)]
    policies = [POLICIES.get(name, name) for name in names]
    if len(policies) != 2 or not {*policies} <= {*DENSITIES} or len({*policies}) == 1:
        known = ", ".join(DENSITIES)
        raise reader.at(f"{call.name} is of two different policies among {known}, as in KL(q||p)", call.node)
    return full_kl(*policies)


def _kl_div(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """F.kl_div(log a, log b, log_target=True) = sum_y b (log b - log a) = KL(b||a)."""
    flag, reduction = given.get("log_target"), given.get("reduction")
    is_log = isinstance(flag, ast.Constant) and flag.value is True
    first, second = (reader.build(given[name], depth) for name in ("x", "target"))
    target = second if is_log else (second.args[0] if second.args else None)
    symbols = {symbol: name for name, symbol in DENSITIES.items()}
    if first not in SYMBOLS or target not in SYMBOLS or first == target:
        hint = ": it is read of two log-probabilities, as in F.kl_div(logp, ref_logp, log_target=True)"
        raise reader.at_hint(f"{call.name} of other arguments", hint, call.node)
    way = reduction.value if isinstance(reduction, ast.Constant) else "mean" if reduction is None else None
    factors = {"none": 1 / WORDS, "mean": 1 / WORDS, "batchmean": 1, "sum": SAMPLES}
    if way not in factors:
        raise reader.at("kl_div with a reduction that is not read", call.node)
    return factors[way] * full_kl(symbols[target], symbols[first])


FUNCTIONS: dict[str, Row] = {
    **{name: grammar(name) for name in ("exp", "log", "sqrt", "abs")},
    "absolute": grammar("abs"),
    **dict.fromkeys(("detach", "stop_gradient", "item"), grammar("sg")),
    "expm1": elementwise("x", lambda reader, node, x: _exp(reader, x, node) - 1),
    "exp2": elementwise("x", lambda reader, node, x: reader.power(reader.two, x, node)),
    "log1p": elementwise("x", lambda reader, node, x: _log(reader, 1 + x, node)),
    "square": elementwise("x", lambda reader, node, x: reader.power(x, reader.two, node)),
    "reciprocal": elementwise("x", lambda reader, node, x: reader.operate(ast.Div(), reader.one, x, node)),
    "rsqrt": elementwise("x", lambda reader, node, x: 1 / reader.call("sqrt", [x], node)),
    **dict.fromkeys(("neg", "negative"), elementwise("x", lambda reader, node, x: -x)),
    "relu": elementwise("x", lambda reader, node, x: reader.call("max", [x, reader.zero], node)),
    "sigmoid": elementwise("x", lambda reader, node, x: 1 / (1 + _exp(reader, -x, node))),
    **dict.fromkeys(
        ("logsigmoid", "log_sigmoid"),
        elementwise("x", lambda reader, node, x: -_log(reader, 1 + _exp(reader, -x, node), node)),
    ),
    "softplus": elementwise("x", lambda reader, node, x: _log(reader, 1 + _exp(reader, x, node), node)),
    **dict.fromkeys(("pow", "power"), elementwise("x n", lambda reader, node, *xn: reader.power(*xn, node))),
    "add": operation(ast.Add()),
    **dict.fromkeys(("sub", "subtract"), operation(ast.Sub())),
    **dict.fromkeys(("mul", "multiply"), operation(ast.Mult())),
    **dict.fromkeys(("div", "divide", "true_divide"), operation(ast.Div())),
    **dict.fromkeys(("clamp", "clamp_", "clip", "clip_by_value"), Row(("x", "/", "lo", "hi"), _clamp)),
    "clamp_min": elementwise("x lo", lambda reader, node, x, lo: reader.call("max", [x, lo], node)),
    "clamp_max": elementwise("x hi", lambda reader, node, x, hi: reader.call("min", [x, hi], node)),
    **dict.fromkeys(("min", "minimum"), _extreme("min")),
    **dict.fromkeys(("max", "maximum"), _extreme("max")),
    "where": Row(("when", "x", "y"), _where),
    **{kind: _reduction(kind) for kind in ("mean", "sum")},
    "masked_mean": _masked("mean"),
    "masked_sum": _masked("sum"),
    "kl_div": Row(("x", "target", "/", "reduction", "log_target"), _kl_div),
    **dict.fromkeys(("KL", "kl", "kl_divergence"), Row(("x", "y"), _divergence)),
}
