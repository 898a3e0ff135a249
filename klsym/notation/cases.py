"""A coefficient by cases, with the condition of each.

>>> from types import SimpleNamespace as Value
>>> from klsym.language.expressions import A, eps, rho
>>> bound, sign = Value(x=rho - eps - 1, signs=(1, 0)), Value(x=A, signs=(1,))
>>> describe_conditions((bound, sign)), describe_conditions(())
('rho >= eps + 1 and A > 0', 'otherwise')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from klsym.language.expressions import REWARDS, log_mu, log_old, log_p, log_q
from klsym.notation import losses
from klsym.notation.estimators import replace_by_k3
from klsym.notation.printers import LATEX, TEXT, Text

RELATIONS = {(1,): ">", (1, 0): ">=", (0,): "=", (0, -1): "<=", (-1,): "<", (1, -1): "!="}
IN_LATEX = {">=": r"\ge", "<=": r"\le", "!=": r"\ne"}


def describe_conditions(conditions: Iterable[Any], spell: Text = TEXT) -> str:
    """Return the conditions in words."""
    joined = " and " if spell is TEXT else r",\ "
    shown = joined.join(
        _format_condition(c.x, tuple(sorted(c.signs, reverse=True)), spell) for c in conditions
    )
    return shown or ("otherwise" if spell is TEXT else r"\text{otherwise}")


def _format_condition(x: Any, signs: tuple[int, ...], spell: Text) -> str:
    """Return one condition, with the terms that vary over samples on the left."""
    x = replace_by_k3(x)
    terms = sympy.Add.make_args(x)
    varying = [t for t in terms if _has_symbol(t, LOGS)] or [t for t in terms if _has_symbol(t, REWARDS)]
    left = sympy.Add(*varying) if varying else x
    relation = RELATIONS[signs]
    sides = (losses.show(side, spell) for side in (left, sympy.expand(left - x)))
    return f" {relation if spell is TEXT else IN_LATEX.get(relation, relation)} ".join(sides)


LOGS = (log_q, log_p, log_mu, log_old)


def _has_symbol(e: Any, symbols: tuple[Any, ...]) -> bool:
    """Does the expression contain one of the symbols, in any slot?"""
    names = {symbol.name.partition("[")[0] for symbol in e.free_symbols}
    return bool(names & {symbol.name for symbol in symbols})


def show_coefficient(coefficient: Any, spell: Text = TEXT) -> str:
    """Return the coefficient, or "no value" if it is 0/0."""
    if coefficient.has(sympy.nan, sympy.zoo):
        return "no value" if spell is TEXT else r"\text{no value}"
    return losses.show(coefficient, spell)


def format_lines(cases: Iterable[tuple[Any, Any]]) -> list[str]:
    """Return one line for each (conditions, coefficient)."""
    rows = [(show_coefficient(c), f"{'where ' if on else ''}{describe_conditions(on)}") for on, c in cases]
    width = max((len(shown) for shown, _ in rows), default=0)
    return [f"{shown:<{width}}  {place}" for shown, place in rows]


def format_latex(cases: Iterable[tuple[Any, Any]]) -> str:
    """Return all cases behind one brace, in LaTeX."""
    rows = (f"{show_coefficient(c, LATEX)} & {describe_conditions(on, LATEX)}" for on, c in cases)
    return r"\begin{cases} " + r" \\ ".join(rows) + r" \end{cases}"
