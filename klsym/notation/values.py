"""Values in either spelling: exponential polynomials, SymPy expressions, coefficients of scores of slots, and
formulas made of such values.

>>> now, past = ExpPoly.from_variable("k1[now]"), ExpPoly.from_variable("length")
>>> show_value({"past": past, "now": -now}), show_value(now, LATEX)
('T*s_past - k1_now*s_now', 'k_{1,t}')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from klsym.kernel.ring import ZERO, ExpPoly
from klsym.notation.coefficients import build_coefficient
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
