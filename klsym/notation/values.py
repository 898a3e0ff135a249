"""Values in either spelling: exponential polynomials, SymPy expressions, coefficients of scores of slots, and
formulas made of such values.

>>> now, past = ExpPoly.variable("k1[now]"), ExpPoly.variable("length")
>>> shown({"past": past, "now": -now}), shown(now, LATEX)
('T*s_past - k1_now*s_now', 'k_{1,t}')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from klsym.kernel.ring import ZERO, ExpPoly
from klsym.notation.coefficients import coefficient
from klsym.notation.positions import in_slot
from klsym.notation.printers import LATEX as LATEX
from klsym.notation.printers import TEXT, Text
from klsym.notation.tree import Call, Formula, Minus, negated, product, quotient, total


class LazyFormula(NamedTuple):
    """A formula whose parts stay apart in print: what puts their trees together, and the parts.

    >>> n = ExpPoly.variable("n")
    >>> shown(LazyFormula(product, (1 - n.inverse(), ExpPoly.variable("k1") - n)))
    '(1 - 1/n)*(k1 - n)'
    """

    build: Callable[..., Formula]
    of: tuple[Any, ...]


def scored(value: Any, score: Any) -> LazyFormula:
    """A value in brackets, times a score function: (k1 - 1)*s_now."""
    return LazyFormula(_at_score, (value, score))


def _at_score(value: Formula, score: Formula) -> Formula:
    return product(bracketed(value), score)


def bracketed(value: Formula) -> Formula:
    return Call("", (value,))


def less_mean(mine: ExpPoly, others: ExpPoly) -> LazyFormula:
    """h_i less the mean of a batch, from h_i and the sum of the others.

    >>> k1 = [ExpPoly.variable(f"k1[{slot}]") for slot in ("self", "others")]
    >>> shown(less_mean(*k1)), shown(less_others(*k1))
    ('k1_self - (k1_self + k1_others)/n', 'k1_self - k1_others/(n - 1)')
    """
    return LazyFormula(_less_mean, (mine, others, ExpPoly.variable("n")))


def less_others(mine: ExpPoly, others: ExpPoly) -> LazyFormula:
    """h_i less the mean of the others."""
    return LazyFormula(_less, (mine, others, ExpPoly.variable("n") - 1))


def _less_mean(mine: Formula, others: Formula, n: Formula) -> Formula:
    return _less(mine, total(mine, others), n)


def _less(mine: Formula, of: Formula, number: Formula) -> Formula:
    return total(mine, negated(quotient(of, number)))


def shown(value: Any, spell: Text = TEXT) -> str:
    """One value; what a check writes in its place, as text, stays as it is."""
    return value if isinstance(value, str) else spell(tree_of(value, spell.positions))


def tree_of(value: Any, sums: bool = False) -> Formula:
    """The tree of a value; sums: in the notation of mathematics, with sums over positions."""
    if isinstance(value, ExpPoly):
        return coefficient(value, sums)
    if isinstance(value, Mapping):
        return _scores(value, sums)
    if isinstance(value, LazyFormula):
        return value.build(*(tree_of(part, sums) for part in value.of))
    from klsym.notation import losses

    return losses.tree_of(value, sums)


def names(value: Any) -> set[str]:
    """The names that stand in a value.

    >>> h = ExpPoly.variable("h1")
    >>> sorted(names(LazyFormula(product, (h + 1, ExpPoly.variable("k1"))))), names({"now": h})
    (['h1', 'k1'], {'h1'})
    """
    if isinstance(value, Mapping | LazyFormula):
        return set().union(*map(names, value.values() if isinstance(value, Mapping) else value.of))
    if isinstance(value, ExpPoly):
        return {*value.names()}
    return {x.name for x in getattr(value, "free_symbols", ())}


def _scores(slots: Mapping[str, ExpPoly], sums: bool) -> Formula:
    """Coefficients of the scores of slots; that of the token itself goes without saying when it is alone."""
    if set(slots) <= {"now"}:
        return coefficient(slots.get("now", ZERO), sums)
    rows = [coefficient(c, sums, in_slot("s", slot, sums)) for slot, c in sorted(slots.items())]
    return total(*sorted(rows, key=lambda row: isinstance(row, Minus)))
