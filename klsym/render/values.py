"""Values in either spelling: exponential polynomials, SymPy expressions, and coefficients of scores of slots.

>>> now, past = ExpPoly.variable("k1[now]"), ExpPoly.variable("length")
>>> shown({"past": past, "now": -now}), shown(now, LATEX)
('T*s_past - k1_now*s_now', 'k_{1,t}')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from klsym.render import formulas
from klsym.render.coefficients import coefficient
from klsym.render.positions import in_slot
from klsym.render.spelling import LATEX as LATEX
from klsym.render.spelling import TEXT, Text
from klsym.render.tree import Minus, product, total
from klsym.ring import ZERO, ExpPoly


class Times(NamedTuple):
    """A product whose factors stay apart in print.

    >>> n = ExpPoly.variable("n")
    >>> shown(Times(1 - n.inverse(), ExpPoly.variable("k1") - n))
    '(1 - 1/n)*(k1 - n)'
    """

    scale: ExpPoly
    of: ExpPoly


def shown(value: Any, spell: Text = TEXT) -> str:
    """One value; text stays as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, ExpPoly):
        return formulas.element(value, spell)
    if isinstance(value, Mapping):
        return scored(value, spell)
    if isinstance(value, Times):
        return spell(product(coefficient(value.scale), coefficient(value.of, spell.positions)))
    from klsym.render import losses

    return losses.show(value, spell)


def names(value: Any) -> set[str]:
    """The names that stand in a value; text has none.

    >>> h = ExpPoly.variable("h1")
    >>> sorted(names(Times(h + 1, ExpPoly.variable("k1")))), names({"now": h}), names("h1")
    (['h1', 'k1'], {'h1'}, set())
    """
    if isinstance(value, Mapping | Times):
        return set().union(*map(names, value.values() if isinstance(value, Mapping) else value))
    if isinstance(value, ExpPoly):
        return {*value.names()}
    return {x.name for x in getattr(value, "free_symbols", ())}


def scored(slots: Mapping[str, ExpPoly], spell: Text = TEXT) -> str:
    """Coefficients of the scores of slots; that of the token itself goes without saying when it is alone."""
    if set(slots) <= {"now"}:
        return formulas.element(slots.get("now", ZERO), spell)
    sums = spell.positions
    rows = [coefficient(c, sums, in_slot("s", slot, sums)) for slot, c in sorted(slots.items())]
    return spell(total(*sorted(rows, key=lambda row: isinstance(row, Minus))))
