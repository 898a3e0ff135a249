"""The divergence behind a loss in words and formulas: f(r), and where it is one.

>>> from klsym.render.spelling import LATEX, TEXT
>>> k1 = ExpPoly.variable("k1")
>>> TEXT(in_r(k1 + (-k1).exp() - 1)), LATEX(in_r(k1 * k1 * Fraction(1, 2)))
('r - log(r) - 1', '\\\\frac{\\\\log(r)^{2}}{2}')
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from klsym.render.coefficients import coefficient, element
from klsym.render.spelling import TEXT
from klsym.render.tree import Call, Formula, Name
from klsym.ring import ExpPoly

RATIO = Name("r")
DIGITS = 6  # of an edge that is no power of e


def in_r(f: ExpPoly) -> Formula:
    """A function of k1 as one of r: k1 is -log r, exp(-a k1) is r^a."""
    terms = {
        (monomial, exponent): value * (-1) ** dict(monomial).get("k1", 0)
        for (monomial, exponent), value in f.terms.items()
    }
    return _renamed(coefficient(ExpPoly(terms)))


def _renamed(formula: Any) -> Any:
    if formula == Name("k1"):
        return Call("log", (RATIO,))
    if isinstance(formula, tuple):
        return tuple(map(_renamed, formula))
    if not isinstance(formula, Formula):
        return formula
    fields = formula.__dataclass_fields__  # type: ignore[attr-defined]
    return replace(formula, **{name: _renamed(getattr(formula, name)) for name in fields})  # type: ignore[type-var]


def region(stretches: Sequence[Any]) -> str:
    """Intervals of k1 = -log r as intervals of r: "r <= e", "1/e <= r <= 3.51286".

    stretches: with the ends `lower` and `upper`, each None or a pair of rationals that enclose it.
    """
    return " or ".join(_interval(s.lower, s.upper) for s in reversed(stretches))


def _interval(lower: Any, upper: Any) -> str:
    if lower is None and upper is None:
        return "everywhere"
    if upper is None:
        return f"r <= {_edge(lower)}"
    if lower is None:
        return f"r >= {_edge(upper)}"
    return f"{_edge(upper)} <= r <= {_edge(lower)}"


def _edge(zero: tuple[Fraction, Fraction]) -> str:
    """exp(-k1): 1, e, exp(1/2); rounded where k1 is not known to be rational."""
    low, high = zero
    if low == high:
        plain = {Fraction(0): "1", Fraction(-1): "e", Fraction(1): "1/e"}
        return plain.get(low) or TEXT(coefficient(ExpPoly.number(-low).exp()))
    return f"{math.exp(-float(low + high) / 2):.{DIGITS}g}"


# ---------------------------------------------------------------------------- of a verdict
def generated_json(found: Any) -> dict[str, Any]:
    """f as a grammar string in r, where it is convex, and f''(1); nulls where there is none."""
    if found is None:
        return {"f": None, "genuine_divergence": None, "fisher_strength": None}
    holds = found.is_divergence
    where = region(found.where) if found.where and not holds else None
    return {
        "f": TEXT(in_r(found.f)),
        "genuine_divergence": None if holds is None else {"holds": holds, "where": where},
        "fisher_strength": element(found.strength),
    }


def generated_text(found: Any) -> str:
    """f = log(r)**2/2, convex where r <= e; f''(1) = 1."""
    told = generated_json(found)
    genuine = told["genuine_divergence"]
    convex = "" if genuine is None else ", convex" if genuine["holds"] else ", convex nowhere"
    if genuine and genuine["where"]:
        convex = f", convex where {genuine['where']}"
    return f"E_q[f(r)] with f = {told['f']}{convex}; f''(1) = {told['fisher_strength']}"


def generated_warnings(found: Any) -> list[str]:
    """What descending E_q[f(r)] does that no divergence does."""
    said = []
    if not found.strength:
        said.append("no restoring force at q = p: f''(1) = 0")
    if found.where and not found.is_divergence:
        said.append(f"pushes q away from p unless {region(found.where)}: f is convex there alone")
    if found.unbounded:
        said.append("the objective is unbounded below: it falls without end as q goes to 0 somewhere")
    return said
