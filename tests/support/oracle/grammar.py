"""The loss grammar as the oracle reads it: text, walked in the `ast` of Python; names are defined here."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from .numbers import Jet, choose, exp, log, power

Names = Callable[..., Any]
TIE = 1e-14  # relative
SLOTS = ("past", "now", "future")
DERIVED = ("k1", "k2", "k3", "r", "rho", "w", "s", "rho_old", "o")
ATOMS = ("log_q", "log_p", "log_mu", "log_old", "R", "A", "M", "V", "V_next", *DERIVED)


def derived(name: str, find: Callable[[str], Any]) -> Any:
    """What the log densities define."""
    match name:
        case "k1":
            return find("log_q") - find("log_p")
        case "w":
            return find("log_q") - find("log_mu")
        case "k2":
            return find("k1") * find("k1") * 0.5
        case "r":
            return exp(find("k1") * -1)
        case "k3":
            return find("r") - 1 + find("k1")
        case "rho":
            return exp(find("w"))
        case "o":
            return find("log_q") - find("log_old")
        case "rho_old":
            return exp(find("o"))
    raise KeyError(name)


def defined(known: dict[str, Any]) -> dict[str, Any]:
    """Names with all that the three log densities among them define."""
    found = dict(known)
    for name in ("k1", "k2", "r", "k3", "w", "rho"):
        found.setdefault(name, derived(name, found.__getitem__))
    return found


def jet(x: Any) -> Jet:
    return x if isinstance(x, Jet) else Jet(np.asarray(x, float))


def plain(x: Any) -> Any:
    """The value alone."""
    return x.value if isinstance(x, Jet) else x


def largest(part: Any) -> Any:
    """Of a derivative along each logit."""
    return np.abs(part).max(axis=(0, 1)) if np.ndim(part) == 3 else np.abs(part)


def sg(x: Any) -> Any:
    """Held fixed at the sample; the world moves it."""
    return Jet(x.value, 0.0, x.b, 0.0) if isinstance(x, Jet) else x


@lru_cache(maxsize=256)
def parsed(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def evaluate(text: str, names: Names) -> Any:
    """The value of a loss; sg(.) holds what is in it, past(.), now(.) and future(.) name a slot."""
    with np.errstate(all="ignore"):  # what a branch that is not taken is worth
        return walked(parsed(text), names, None)


def walked(at: ast.expr, names: Names, slot: str | None) -> Any:
    def inner(item: ast.expr) -> Any:
        return walked(item, names, slot)

    match at:
        case ast.Constant(int() | float() as value):
            return float(value) if isinstance(value, float) else value
        case ast.Name(name):
            return names(name, slot) if slot else names(name)
        case ast.UnaryOp(ast.USub(), operand):
            return inner(operand) * -1
        case ast.UnaryOp(ast.UAdd(), operand):
            return inner(operand)
        case ast.BinOp(left, operator, right):
            return BINARY[type(operator)](inner(left), inner(right))
        case ast.Compare(left, [sign], [right]):
            return RELATIONS[type(sign)](plain(inner(left)), plain(inner(right))) * 1.0
        case ast.List([ast.Compare() | ast.BoolOp() as condition]):  # Iverson's bracket
            return inner(condition)
        case ast.UnaryOp(ast.Not(), operand):
            return 1.0 - plain(inner(operand))
        case ast.BoolOp(sign, parts):
            join = np.logical_and if isinstance(sign, ast.And) else np.logical_or
            return reduce(join, [plain(inner(part)) > 0 for part in parts]) * 1.0
        case ast.Call(ast.Name("sg"), [argument]):
            return sg(inner(argument))
        case ast.Call(ast.Name("k"), [weight]):
            return inner(ast.Name("k1")) + inner(weight) * (inner(ast.Name("r")) - 1)
        case ast.Call(ast.Name(name), [argument]) if name != "gae" and name in getattr(names, "sums", ()):
            return names.sums[name](argument)  # type: ignore[attr-defined]
        case ast.Call(ast.Name("disc"), [factor, argument]) if "disc" in getattr(names, "sums", ()):
            return names.sums["disc"](argument, inner(factor))  # type: ignore[attr-defined]
        case ast.Call(ast.Name("gae"), [weight, *rest]):
            return names.sums["gae"](inner(weight), *map(inner, rest))  # type: ignore[attr-defined]
        case ast.Call(ast.Name("past" | "now" | "future" as name), [argument]) if slot is None:
            return walked(argument, names, name)
        case ast.Call(ast.Name(name), arguments):
            return FUNCTIONS[name](*map(inner, arguments))
    raise ValueError(f"not in the loss grammar: {ast.dump(at)}")


def _extreme(better: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """min or max; a tie shares the slope, as in PyTorch."""

    def extreme(first: Any, *others: Any) -> Any:
        for other in others:
            a, b = jet(first), jet(other)
            picked = choose(better(a.value, b.value), a, b)
            tie = np.abs(a.value - b.value) <= TIE * np.abs(a.value)  # of two spellings of one value, too
            first = choose(tie, (a + b) * 0.5, picked)
        return first

    return extreme


def _clip(x: Any, lo: Any, hi: Any) -> Any:
    """min(max(x, lo), hi) with slope 1 on [lo, hi], the ends included; hi where the bounds cross."""
    x, lo, hi = jet(x), jet(lo), jet(hi)
    raised = choose(x.value < lo.value, lo, x)
    return choose(raised.value > hi.value, hi, raised)


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a * power(b, -1),
    ast.Pow: power,
}
RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Gt: np.greater, ast.GtE: np.greater_equal, ast.Lt: np.less, ast.LtE: np.less_equal,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": exp,
    "log": log,
    "sqrt": lambda x: power(x, 0.5),
    "sigmoid": lambda x: power(1.0 + exp(-1.0 * x), -1),
    "logsigmoid": lambda x: -1.0 * log(1.0 + exp(-1.0 * x)),
    "abs": lambda x: x * np.sign(x.value if isinstance(x, Jet) else x),  # slope 0 at 0
    "min": _extreme(np.less),
    "max": _extreme(np.greater),
    "clip": _clip,
    "where": lambda holds, one, other: one * holds + other * (1.0 - holds),
}
