"""Values in either spelling: exponential polynomials, SymPy expressions, coefficients of scores of slots, and
formulas made of such values.

>>> now, past = ExpPoly.from_variable("k1[now]"), ExpPoly.from_variable("length")
>>> show_value({"past": past, "now": -now}), show_value(now, LATEX)
('T*s_past - k1_now*s_now', 'k_{1,t}')

A coefficient may have cases, with the condition of each.

>>> from types import SimpleNamespace as Value
>>> from klsym.language.expressions import A, eps, rho
>>> bound, sign = Value(x=rho - eps - 1, signs=(1, 0)), Value(x=A, signs=(1,))
>>> describe_conditions((bound, sign)), describe_conditions(())
('rho >= eps + 1 and A > 0', 'otherwise')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import sympy

from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.expressions import REWARDS, Weight, log_mu, log_old, log_p, log_q
from klsym.notation import losses
from klsym.notation.coefficients import build_coefficient
from klsym.notation.estimators import replace_by_k3
from klsym.notation.positions import build_in_slot
from klsym.notation.printers import LATEX as LATEX
from klsym.notation.printers import TEXT, Text
from klsym.notation.tree import Call, Formula, Minus, add_terms, divide, multiply, negate


class LazyFormula(NamedTuple):
    """A formula whose parts stay apart in print: the function that joins their trees, and the parts.

    >>> n = ExpPoly.from_variable("n")
    >>> show_value(LazyFormula(multiply, (1 - n.invert(), ExpPoly.from_variable("k1") - n)))
    '(1 - 1/n)*(k1 - n)'
    """

    build: Callable[..., Formula]
    of: tuple[Any, ...]


def multiply_by_score(value: Any, score: Any) -> LazyFormula:
    """Multiply a value in brackets by a score function: (k1 - 1)*s_now."""
    return LazyFormula(_build_scored, (value, score))


def _build_scored(value: Formula, score: Formula) -> Formula:
    return multiply(add_brackets(value), score)


def divide_by_token_count(pushed: Any, number: Any, tokens: Any) -> LazyFormula:
    """Divide what is pushed on a score by the number of tokens of a batch: pushed*number/tokens."""
    return LazyFormula(_divide_product, (pushed, number, tokens))


def _divide_product(pushed: Formula, number: Formula, tokens: Formula) -> Formula:
    return divide(multiply(pushed, number), tokens)


def take_off_score(h: Any) -> Any:
    """Return what multiplies the only score of a formula, without the number of tokens that divides it."""
    while isinstance(h, LazyFormula) and h.build in (_divide_product, _build_scored):
        h = h.of[0]
    return h


def add_brackets(value: Formula) -> Formula:
    return Call("", (value,))


def subtract_mean(mine: ExpPoly, others: ExpPoly) -> LazyFormula:
    """Return h_i minus the mean of its batch, from h_i and the sum of the others.

    >>> k1 = [ExpPoly.from_variable(f"k1[{slot}]") for slot in ("self", "others")]
    >>> show_value(subtract_mean(*k1)), show_value(subtract_mean_of_others(*k1))
    ('k1_self - (k1_self + k1_others)/n', 'k1_self - k1_others/(n - 1)')
    """
    return LazyFormula(_subtract_batch_mean, (mine, others, ExpPoly.from_variable("n")))


def subtract_mean_of_others(mine: ExpPoly, others: ExpPoly) -> LazyFormula:
    """Return h_i minus the mean of the others."""
    return LazyFormula(_subtract_quotient, (mine, others, ExpPoly.from_variable("n") - 1))


def _subtract_batch_mean(mine: Formula, others: Formula, n: Formula) -> Formula:
    return _subtract_quotient(mine, add_terms(mine, others), n)


def _subtract_quotient(mine: Formula, of: Formula, number: Formula) -> Formula:
    return add_terms(mine, negate(divide(of, number)))


def show_value(value: Any, spell: Text = TEXT) -> str:
    """Return a value as text or LaTeX; text stays as it is."""
    return value if isinstance(value, str) else spell(build_tree(value, spell.positions))


def build_tree(value: Any, sums: bool = False) -> Formula:
    """Build the tree of a value; sums: in the notation of mathematics, with sums over positions."""
    if isinstance(value, ExpPoly):
        return build_coefficient(value, sums)
    if isinstance(value, Mapping):
        return _build_scores(value, sums)
    if isinstance(value, LazyFormula):
        return value.build(*(build_tree(part, sums) for part in value.of))
    from klsym.notation import losses

    return losses.build_tree(value, sums)


def collect_names(value: Any) -> set[str]:
    """Collect the names that occur in a value.

    >>> h = ExpPoly.from_variable("h1")
    >>> formula = LazyFormula(multiply, (h + 1, ExpPoly.from_variable("k1")))
    >>> sorted(collect_names(formula)), collect_names({"now": h})
    (['h1', 'k1'], {'h1'})
    """
    if isinstance(value, Mapping | LazyFormula):
        return set().union(*map(collect_names, value.values() if isinstance(value, Mapping) else value.of))
    if isinstance(value, ExpPoly):
        return {*value.names()}
    return {x.name for x in getattr(value, "free_symbols", ())}


def _build_scores(slots: Mapping[str, ExpPoly], sums: bool) -> Formula:
    """Build the sum of coefficients times scores of slots; for `now` alone, its coefficient."""
    if set(slots) <= {"now"}:
        return build_coefficient(slots.get("now", ZERO), sums)
    rows = [build_coefficient(c, sums, build_in_slot("s", slot, sums)) for slot, c in sorted(slots.items())]
    return add_terms(*sorted(rows, key=lambda row: isinstance(row, Minus)))


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
    x = replace_by_k3(name_sampler(x))
    terms = sympy.Add.make_args(x)
    varying = [t for t in terms if _has_symbol(t, LOGS)] or [t for t in terms if _has_symbol(t, REWARDS)]
    left = sympy.Add(*varying) if varying else x
    relation = RELATIONS[signs]
    sides = (losses.show(side, spell) for side in (left, sympy.expand(left - x)))
    return f" {relation if spell is TEXT else IN_LATEX.get(relation, relation)} ".join(sides)


@lru_cache(maxsize=1024)
def name_sampler(x: Any) -> Any:
    """Write the terms on mu alone, which the engine has in q and rho = q/mu, with log_mu.

    >>> from klsym.language.expressions import exp, rho
    >>> name_sampler(exp(log_q)/rho - exp(log_q)), name_sampler(rho - exp(log_q))
    (exp(log_mu) - exp(log_q), -exp(log_q) + rho)
    """
    return sympy.Add(*(_name_sampler_in_term(term) for term in sympy.Add.make_args(x)))


def _name_sampler_in_term(term: Any) -> Any:
    if not any(isinstance(atom, Weight) for atom in term.atoms(sympy.Function)):
        return term
    unfolded = sympy.expand(term.replace(Weight, lambda first, second: sympy.exp(first - second)))
    return term if _has_symbol(unfolded, (log_q,)) else unfolded


LOGS = (log_q, log_p, log_mu, log_old)


def _has_symbol(e: Any, symbols: tuple[Any, ...]) -> bool:
    """Does the expression contain one of the symbols, in any slot?"""
    names = {symbol.name.partition("[")[0] for symbol in e.free_symbols}
    return bool(names & {symbol.name for symbol in symbols})


def show_coefficient(coefficient: Any, spell: Text = TEXT) -> str:
    """Return the coefficient, or "no value" if it is 0/0."""
    if coefficient.has(sympy.nan, sympy.zoo):
        return "no value" if spell is TEXT else r"\text{no value}"
    return losses.show(name_sampler(coefficient), spell)


def format_lines(cases: Iterable[tuple[Any, Any]]) -> list[str]:
    """Return one line for each (conditions, coefficient)."""
    rows = [(show_coefficient(c), f"{'where ' if on else ''}{describe_conditions(on)}") for on, c in cases]
    width = max((len(shown) for shown, _ in rows), default=0)
    return [f"{shown:<{width}}  {place}" for shown, place in rows]


def format_latex(cases: Iterable[tuple[Any, Any]]) -> str:
    """Return all cases behind one brace, in LaTeX."""
    rows = (f"{show_coefficient(c, LATEX)} & {describe_conditions(on, LATEX)}" for on, c in cases)
    return r"\begin{cases} " + r" \\ ".join(rows) + r" \end{cases}"
