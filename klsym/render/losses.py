"""Losses as they were written: SymPy expressions in either spelling, weights before estimators.

>>> from klsym.language import k2, rho, sg
>>> from klsym.render.spelling import LATEX, TEXT
>>> show(sg(rho) * k2, TEXT), show(sg(rho) * k2, LATEX)
('sg(rho)*k2', '\\\\mathrm{sg}(\\\\rho)\\\\,k_2')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from klsym.language import ATOMS, SLOTTED, Estimator, as_expression, clip, sg
from klsym.render.spelling import SLOT_ORDER, TEXT, Text

WEIGHT = re.compile(r"rho(_[a-z]+)?|sg\(rho(_[a-z]+)?\)")
SUM, PRODUCT, ATOM = range(3)  # how tightly a piece binds
CALLS = {sympy.exp: "exp", sympy.log: "log", sympy.Abs: "abs", sympy.Min: "min", sympy.Max: "max"}


@dataclass(frozen=True)
class Written:
    """A loss with the text that the user typed for it."""

    text: str
    expression: Any


def show(loss: Any, spell: Text) -> str:
    """The loss in one spelling; typed text is kept as it is."""
    if isinstance(loss, Written):
        return loss.text if spell is TEXT else show(loss.expression, spell)
    return _walk(as_expression(loss), spell)[0]


def _walk(e: Any, spell: Text) -> tuple[str, int]:
    if e.is_Rational:
        return spell.number(
            Fraction(int(e.p), int(e.q))
        ), ATOM if e.is_nonnegative and e.is_Integer else PRODUCT
    if e is sympy.E:
        return spell.call("exp", "1"), ATOM
    if e.is_Symbol or (isinstance(e, Estimator) and e in ATOMS.values()):
        name, _, slot = str(e).partition("[")
        return spell.in_slot(name, slot.removesuffix("]") or "x"), ATOM
    if isinstance(e, Estimator) and e.slot and e.xreplace(_plain(e)) in ATOMS.values():
        return spell.in_slot(e.name, e.slot, ratio=e.name in ("r", "rho")), ATOM
    if isinstance(e, Estimator):  # of other densities than its name says
        return _walk(e.definition(), spell)
    if e.is_Add:
        return _sum(e, spell), SUM
    if e.is_Mul:
        return _product(e, spell), PRODUCT
    if e.is_Pow and e.exp == sympy.Rational(1, 2):
        return spell.call("sqrt", _walk(e.base, spell)[0]), ATOM
    if e.is_Pow and e.exp.is_Rational and e.exp < 0:
        base, binding = _walk(e.base**-e.exp, spell)
        bottom = f"({base})" if spell is TEXT and binding != ATOM else base
        return spell.fraction("1", bottom), PRODUCT
    if e.is_Pow:
        base, exponent = (_walk(part, spell)[0] for part in (e.base, e.exp))
        return spell.power(base, exponent), ATOM
    if isinstance(e, sympy.Subs):  # g'(k1)
        primed = spell.name(e.expr.expr.func.__name__) + "'" * int(e.expr.derivative_count)
        arguments = ", ".join(_walk(a, spell)[0] for a in e.point)
        return (primed if len(e.point) > 1 else f"{primed}({arguments})"), ATOM
    if isinstance(e, AppliedUndef) and len(e.args) > 1:
        return spell.name(e.func.__name__), ATOM  # a generic function of everything
    if isinstance(e, sympy.Heaviside | sympy.sign):
        return _step(e, spell)
    name = _function_name(e)
    return spell.call(name, ", ".join(_walk(a, spell)[0] for a in e.args)), ATOM


def _plain(e: Any) -> dict[Any, Any]:
    """The symbols of a slot, and the one-sample symbols that they are copies of."""
    return {
        symbol: known for symbol in e.free_symbols for known in SLOTTED if symbol.name.startswith(f"{known}[")
    }


def _step(e: Any, spell: Text) -> tuple[str, int]:
    """sign(x) = x/|x|, 0 at x = 0, and steps of a given value there: in text, within the loss grammar.

    (1 + sign(x))/2 is 1/2 at x = 0        min(1, 1 + sign(x)) is 1        max(0, sign(x)) is 0
    """
    inner, binding = _walk(e.args[0], spell)
    sign = isinstance(e, sympy.sign)
    if spell is not TEXT:
        return (rf"\mathrm{{sgn}}({inner})" if sign else rf"\mathbf{{1}}[{inner} > 0]"), ATOM
    ratio = f"{inner if binding == ATOM else f'({inner})'}/max(abs({inner}), 1e-300)"
    if sign:
        return ratio, PRODUCT
    at_zero = {1: f"min(1, 1 + {ratio})", 0: f"max(0, {ratio})"}
    return at_zero.get(e.args[1], f"((1 + {ratio})/2)"), ATOM


def _function_name(e: Any) -> str:
    if isinstance(e, sg | clip):
        return type(e).__name__
    return CALLS.get(e.func) or str(e.func.__name__)


def _sum(e: Any, spell: Text) -> str:
    rows: list[tuple[bool, str]] = []
    for argument in sorted(e.args, key=_term_order):
        negative = bool(argument.as_coeff_Mul()[0].is_negative)
        shown, _ = _walk(-argument if negative else argument, spell)
        rows.append((negative, shown))
    rows = sorted(rows, key=lambda row: row[0] and rows[0][0])  # a positive term first, if any
    text = ("-" if rows[0][0] else "") + rows[0][1]
    return text + "".join((" - " if negative else " + ") + body for negative, body in rows[1:])


def _term_order(e: Any) -> tuple[Any, ...]:
    return (bool(e.is_number), bool(e.has(sg)), _slot_rank(e), str(e))


def _slot_rank(e: Any) -> int:
    """past before now before future, self before others."""
    slots = {symbol.name.partition("[")[2].removesuffix("]") for symbol in e.free_symbols}
    return max((SLOT_ORDER.index(slot) for slot in slots if slot in SLOT_ORDER), default=-1)


def _product(e: Any, spell: Text) -> str:
    numerator, denominator = e.as_numer_denom()
    if denominator != 1:
        top = _factors(numerator, spell)
        bottom, binding = _walk(denominator, spell)
        if spell is TEXT and binding != ATOM:
            bottom = f"({bottom})"
        return spell.fraction(top, bottom)
    return _factors(e, spell)


def _factors(e: Any, spell: Text) -> str:
    if not e.is_Mul:
        shown, binding = _walk(e, spell)
        return spell.bracket(shown) if binding == SUM and spell is TEXT else shown
    sign, rest = e.as_coeff_Mul()
    prefix = "-" if sign == -1 else ""
    factors = list(rest.args if rest.is_Mul else [rest]) + ([] if abs(sign) == 1 else [sign])
    pieces = []
    for factor in sorted(factors, key=_factor_order):
        text, binding = _walk(factor, spell)
        pieces.append(spell.bracket(text) if binding == SUM else text)
    return prefix + spell.product(_side_by_side(pieces))


def _side_by_side(factors: list[str]) -> list[str]:
    """rho_{<t} rho_t is rho_{<=t} in LaTeX."""
    for ratio in (r"\rho", "r"):
        for before, after, both in (("{<t}", "t", r"{\le t}"), ("t", "{>t}", r"{\ge t}")):
            pair = [f"{ratio}_{before}", f"{ratio}_{after}"]
            if pair[0] in factors and pair[1] in factors:
                at = factors.index(pair[0])
                rest = [factor for factor in factors if factor not in pair]
                factors = [*rest[:at], f"{ratio}_{both}", *rest[at:]]
    return factors


def _factor_order(e: Any) -> tuple[int, str]:
    """Numbers, parameters, weights, rewards, then the rest."""
    text = str(e)
    if e.is_number:
        return 0, text
    if e.is_Symbol and text not in ("R", "A", "log_q", "log_p", "log_mu", "s"):
        return 1, text
    if WEIGHT.fullmatch(text):
        return 2, f"{_slot_rank(e)} {text}"
    if text == "s":
        return 5, text
    return (3 if text in ("R", "A") else 4), text
