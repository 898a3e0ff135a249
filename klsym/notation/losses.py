"""Losses as trees, as they were written: SymPy expressions, weights before estimators.

>>> from klsym.language.expressions import k2, rho, sg
>>> from klsym.notation.printers import LATEX, TEXT
>>> show(sg(rho) * k2, TEXT), show(sg(rho) * k2, LATEX)
('sg(rho)*k2', '\\\\mathrm{sg}(\\\\rho)\\\\,k_2')
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from klsym.language.defined import LOG, OF_CONSTANTS, OF_EXPECTATIONS, OF_FULL, OF_LOGS, find_definition
from klsym.language.expressions import ATOMS, SLOTTED, Estimator, OverPositions, as_expression, clip, sg
from klsym.language.messages import Message
from klsym.language.sums import OverVocabulary
from klsym.notation import tree
from klsym.notation.positions import SLOT_ORDER, build_in_slot
from klsym.notation.printers import Text
from klsym.notation.sigmoids import write_by_sigmoids
from klsym.notation.steps import drop_empty_regions
from klsym.notation.tree import (
    Call,
    Cases,
    Formula,
    Minus,
    Name,
    Number,
    Relation,
    build_number,
    divide,
    multiply,
    negate,
)
from klsym.records import record

WEIGHT = re.compile(r"rho(_[a-z]+)*|sg\(rho(_[a-z]+)*\)")
CALLS = {
    sympy.exp: "exp", sympy.log: "log", sympy.Abs: "abs", sympy.Min: "min", sympy.Max: "max", sg: "sg",
    clip: "clip",
}  # fmt: skip
SIGNS = {"==": "="}


@record
class Written:
    """A loss with its text in the grammar; typed: what the user typed instead, notes: how it was read.

    in_float32: the log ratios log q - log p at which code was not finite in float32, if it was run, each with
    what was seen.  is_guess: is it the first of several values of a function that names no loss?
    """

    text: str
    expression: Any
    typed: str = ""
    notes: tuple[Message, ...] = ()
    in_float32: tuple[tuple[int, str], ...] | None = None
    is_guess: bool = False


def show(loss: Any, spell: Text) -> str:
    """Return the loss in one notation; typed text is kept as it is."""
    return spell(build_tree(loss, spell.positions))


def build_tree(loss: Any, sums: bool = False) -> Formula:
    """Build the tree of a loss; sums: in the notation of mathematics, with sums over positions."""
    if isinstance(loss, Written):
        return tree.Typed(loss.text, build_tree(loss.expression, sums))
    return _walk(write_by_sigmoids(drop_empty_regions(_expand_logs(as_expression(loss)))), sums)


def _expand_logs(e: Any) -> Any:
    """Replace names of logs and constants by their definitions."""
    definitions = {
        x: find_definition(x.name)
        for x in e.free_symbols
        if x.name.startswith((OF_LOGS, OF_CONSTANTS, OF_FULL))
    }
    if not definitions:
        return e
    from klsym.language.convert import to_sympy

    values = {x: (of[0], _expand_logs(to_sympy(of[1]))) for x, of in definitions.items() if of}
    functions = {LOG: sympy.log, OF_EXPECTATIONS: OverVocabulary}
    return e.xreplace(
        {x: functions[kind](of) if kind in functions else of for x, (kind, of) in values.items()}
    )


@lru_cache(maxsize=8192)
def _walk(e: Any, sums: bool) -> Formula:
    """Build the tree of a SymPy expression; cached, since lines of a derivation share their terms."""
    if e.is_Rational:
        return build_number(int(e.p) if e.q == 1 else Fraction(int(e.p), int(e.q)))
    if e is sympy.E:
        return Call("exp", (Number(1),))
    if e.is_Symbol or (isinstance(e, Estimator) and e in ATOMS.values()):
        name, _, slot = e.name.partition("[")
        return build_in_slot(name, slot.removesuffix("]") or "x", sums)
    if isinstance(e, Estimator) and e.slot and e.xreplace(_find_plain_symbols(e)) in ATOMS.values():
        return build_in_slot(e.name, e.slot, sums, ratio=e.name in ("r", "rho", "rho_old"))
    if isinstance(e, Estimator):  # of other densities than its name says
        return _walk(e.definition(), sums)
    if e.is_Add:
        return _build_sum(e, sums)
    if e.is_Mul:
        return _build_product(e, sums)
    if e.is_Pow:
        return _build_power(e, sums)
    if isinstance(e, sympy.Piecewise):
        return Cases(tuple((_walk(value, sums), _build_condition(when, sums)) for value, when in e.args))
    return _build_call(e, sums)


def _build_power(e: Any, sums: bool) -> Formula:
    if e.exp == sympy.Rational(1, 2):
        return Call("sqrt", (_walk(e.base, sums),))
    if e.exp.is_Rational and e.exp < 0:
        return divide(Number(1), _walk(e.base**-e.exp, sums))
    return tree.Power(_walk(e.base, sums), _walk(e.exp, sums))


def _build_call(e: Any, sums: bool) -> Formula:
    if isinstance(e, sympy.Subs):  # g'(k1)
        name, primes = e.expr.expr.func.__name__, int(e.expr.derivative_count)
        if len(e.point) > 1:
            return Name(name, primes=primes)
        return Call(name, tuple(_walk(a, sums) for a in e.point), primes)
    if isinstance(e, AppliedUndef) and len(e.args) > 1:
        return Name(e.func.__name__)  # a generic function of everything
    if isinstance(e, sympy.Heaviside | sympy.sign):
        return _build_step(e, sums)
    if isinstance(e, sg) and isinstance(e.args[0], sympy.Heaviside):
        x, at_zero = e.args[0].args
        return _build_comparison(x, at_zero, sums)
    if isinstance(e, sympy.exp):
        logs = [x for x in sympy.Mul.make_args(e.args[0]) if isinstance(x, sympy.log)]
        if len(logs) == 1:  # exp(a log(x)) = x^a
            return tree.Power(_walk(logs[0].args[0], sums), _walk(e.args[0] / logs[0], sums))
    if isinstance(e, OverPositions):
        return Call(e.name, (_walk(e.args[0], sums),))
    return Call(CALLS.get(e.func) or str(e.func.__name__), tuple(_walk(a, sums) for a in e.args))


def _build_condition(e: Any, sums: bool) -> Formula | None:
    """Build the condition of a case; None for true, otherwise."""
    if e == True:  # noqa: E712  (SymPy's own truth)
        return None
    if isinstance(e, sympy.And | sympy.Or):
        word = tree.Words(" and " if isinstance(e, sympy.And) else " or ")
        first, *rest = (_build_condition(a, sums) or tree.Words("true") for a in e.args)
        return tree.Phrase((first, *(part for item in rest for part in (word, item))))
    return Relation(_walk(e.lhs, sums), SIGNS.get(e.rel_op, e.rel_op), _walk(e.rhs, sums))


def _find_plain_symbols(e: Any) -> dict[Any, Any]:
    """Map the symbols of a slot to the one-sample symbols that they are copies of."""
    return {
        symbol: known for symbol in e.free_symbols for known in SLOTTED if symbol.name.startswith(f"{known}[")
    }


def _build_step(e: Any, sums: bool) -> Formula:
    """Build steps and signs; in the grammar, where(x > 0, 1, where(x < 0, -1, 0)) is the sign of x."""
    x = e.args[0]
    if sums:
        return Call("sgn", (_walk(x, sums),)) if isinstance(e, sympy.sign) else _build_comparison(x, 0, sums)
    above, below, one, zero = _build_relation(x, 0, sums), _build_relation(-x, 0, sums), Number(1), Number(0)
    if isinstance(e, sympy.sign):
        return Call("where", (above, one, Call("where", (below, tree.Minus(one), zero))))
    if e.args[1] in (0, 1):
        return Call("where", (_build_relation(x, e.args[1], sums), one, zero))
    return Call("where", (above, one, Call("where", (below, zero, Number(sympy.Rational(1, 2))))))


def _build_comparison(x: Any, at_zero: Any, sums: bool) -> Formula:
    """Build 1 where x > 0, or x >= 0: a number in the grammar."""
    relation = _build_relation(x, at_zero, sums)
    return tree.Indicator(relation) if sums else Call("", (relation,))


def _build_relation(x: Any, at_zero: Any, sums: bool) -> Relation:
    """Build x > 0, or x >= 0, with negative terms and numbers on the right."""
    number, variable_part = x.as_coeff_Add()
    if not variable_part.is_Add:  # 5 rho > 6 as rho > 6/5
        scale, variable_part = (
            abs(variable_part.as_coeff_Mul()[0]),
            variable_part / abs(variable_part.as_coeff_Mul()[0]),
        )
        number = number / scale
    right = sympy.Add(*(-t for t in sympy.Add.make_args(variable_part) if t.could_extract_minus_sign()))
    left, sign = variable_part + right, ">=" if at_zero == 1 else ">"
    if left == 0:
        left, right, number, sign = right, left, -number, sign.replace(">", "<")
    return Relation(_walk(left, sums), sign, _walk(right - number, sums))


def _build_sum(e: Any, sums: bool) -> Formula:
    rows = [_walk(argument, sums) for argument in sorted(e.args, key=_get_term_order)]
    if isinstance(rows[0], Minus):  # a positive term first, if any
        rows.sort(key=lambda row: isinstance(row, Minus))
    return tree.add_terms(*rows)


def _get_term_order(e: Any) -> tuple[Any, ...]:
    return (bool(e.is_number), bool(e.has(sg)), _get_slot_rank(e), _format_sympy(e))


@lru_cache(maxsize=8192)
def _format_sympy(e: Any) -> str:
    """Return SymPy's text of an expression, by which terms are ordered."""
    return str(e)


def _get_slot_rank(e: Any) -> int:
    """Return the key that sorts past before now before future, self before others."""
    slots = {symbol.name.partition("[")[2].removesuffix("]") for symbol in e.free_symbols}
    return max((SLOT_ORDER.index(slot) for slot in slots if slot in SLOT_ORDER), default=-1)


def _build_product(e: Any, sums: bool) -> Formula:
    if e.as_coeff_Mul()[0].is_negative:
        return negate(_walk(-e, sums))
    numerator, denominator = e.as_numer_denom()
    over = _build_factors(numerator, sums)
    return over if denominator == 1 else divide(over, _walk(denominator, sums))


def _build_factors(e: Any, sums: bool) -> Formula:
    """Build a product in reading order; rho_{<t} rho_t is rho_{<=t} where slots are positions."""
    factors = [_walk(factor, sums) for factor in sorted(sympy.Mul.make_args(e), key=_get_factor_order)]
    for ratio in ("rho", "rho_old", "r") if sums else ():
        for before, after, both in (("<t", "t", "upto"), ("t", ">t", "from")):
            pair = [Name(ratio, before), Name(ratio, after)]
            if all(name in factors for name in pair):
                factors.insert(factors.index(pair[0]), build_in_slot(ratio, both, sums, ratio=True))
                factors = [factor for factor in factors if factor not in pair]
    return multiply(*factors)


def _get_factor_order(e: Any) -> tuple[int, str]:
    """Return the key that sorts numbers, parameters, weights, rewards, other factors."""
    text = e.name if e.is_Symbol else _format_sympy(e)
    if e.is_number:
        return 0, text
    if e.is_Symbol and text not in ("R", "A", "M", "log_q", "log_p", "log_mu", "log_old", "s"):
        return 1, text
    if WEIGHT.fullmatch(text):
        return 2, f"{_get_slot_rank(e)} {text}"
    if text == "s":
        return 5, text
    return (3 if text in ("R", "A", "M") else 4), text


def divide_text(text: str, b: Any, spell: Text) -> str:
    """Return text/b, for an element b of the ring.

    >>> from klsym.language.convert import to_ring
    >>> from klsym.notation.printers import TEXT
    >>> divide_text("E_q[R]", to_ring(sympy.Symbol("beta", real=True)), TEXT)
    '(1/beta)*E_q[R]'
    """
    from klsym.language.convert import to_sympy

    inverse = 1 / to_sympy(b)
    return text if inverse == 1 else f"{spell.bracket(show(inverse, spell))}{spell.product_sign}{text}"
