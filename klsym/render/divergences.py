"""The divergence behind a loss in words and formulas: f(r), and where it is one.

>>> from klsym.notation.spelling import LATEX, TEXT
>>> k1 = ExpPoly.variable("k1")
>>> TEXT(in_r(k1 + (-k1).exp() - 1)), LATEX(in_r(k1 * k1 * Fraction(1, 2)))
('r - log(r) - 1', '\\\\frac{\\\\log(r)^{2}}{2}')
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import sympy

from klsym.names import SAMPLE_BASES
from klsym.notation import losses
from klsym.notation.coefficients import coefficient
from klsym.notation.spelling import TEXT
from klsym.notation.tree import Call, Formula, Name
from klsym.notation.values import shown
from klsym.ring import ExpPoly

INFINITE = (sympy.nan, sympy.zoo, sympy.oo, -sympy.oo)
DIGITS = 6  # of an edge that is no power of e


def in_r(f: Any) -> Formula:
    """A function of k1 as one of r: k1 is -log r, exp(-a k1) is r^a; outside the ring it is in r already."""
    return _renamed(coefficient(_of_log_r(f))) if isinstance(f, ExpPoly) else losses.tree_of(f)


def _of_log_r(f: ExpPoly) -> ExpPoly:
    """With k1 standing for log r where it is no exponent."""
    terms = {
        (monomial, exponent): value * (-1) ** dict(monomial).get("k1", 0)
        for (monomial, exponent), value in f.terms.items()
    }
    return ExpPoly(terms)


def _renamed(formula: Any, of: str = "r") -> Any:
    if formula == Name("k1"):
        return Call("log", (Name(of),))
    if formula == Name("r"):
        return Name(of)
    if isinstance(formula, tuple):
        return tuple(_renamed(item, of) for item in formula)
    if not isinstance(formula, Formula):
        return formula
    return type(formula)(*(_renamed(value, of) for value in vars(formula).values()))


def region(where: Any, of: str = "r") -> str:
    """Intervals of k1 = -log r as intervals of r, "1/e <= r <= 3.51286", or a condition, "r <= lam + 1".

    Intervals that meet are one "but not across r = 1", where f falls short of convex by a kink.

    where: intervals with the ends `lower` and `upper`, each None or a pair of rationals that enclose it; or
    an `element` that is not negative there.  of: the ratio whose logarithm is -k1.
    """
    if hasattr(where, "element"):
        return at_least_zero(where.element, of)
    whole, across = _through_kinks(where)
    text = " or ".join(_interval(lower, upper, of) for lower, upper in reversed(whole))
    kinks = " or ".join(f"{of} = {_edge(zero)}" for zero in reversed(across))
    return text + (f" but not across {kinks}" if kinks else "")


def _through_kinks(where: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Intervals that meet as one, and where they meet: f is convex on both sides of a kink."""
    whole: list[tuple[Any, Any]] = []
    across = []
    for s in where:
        if whole and s.lower is not None and whole[-1][1] == s.lower:
            across.append(s.lower)
            whole[-1] = whole[-1][0], s.upper
        else:
            whole.append((s.lower, s.upper))
    return whole, across


def _is_whole(where: Any) -> bool:
    """Is it all of r, but for kinks?"""
    return not hasattr(where, "element") and _through_kinks(where)[0] == [(None, None)]


def at_least_zero(element: ExpPoly, of: str = "r") -> str:
    """The condition that it is not negative: what holds r on the left.

    >>> k1, lam = ExpPoly.variable("k1"), ExpPoly.variable("lam")
    >>> at_least_zero(1 + lam - (-k1).exp()), at_least_zero(-lam), at_least_zero(lam * lam - lam)
    ('r <= lam + 1', 'lam <= 0', 'lam*(lam - 1) >= 0')
    """
    both = _of_log_r(element)
    over = ExpPoly({key: value for key, value in both.terms.items() if value > 0})
    under = over - both
    shared = set.intersection(*({name for name, _ in m} for m, _ in both.terms)) - {"k1"}
    if over and under and (shared or "k1" not in element.names()):  # beta*(1 - r) >= 0
        return f"{TEXT(_renamed(coefficient(both), of))} >= 0"
    left, right = (TEXT(_renamed(coefficient(side), of)) for side in (over, under))
    flipped = under and (not over or "k1" in under.names() - over.names())
    return f"{right} <= {left}" if flipped else f"{left} >= {right}"


def everywhere_if(where: Any) -> str | None:
    """What parameters must be for it to hold everywhere; None where none make it so, or it needs none.

    >>> from types import SimpleNamespace
    >>> lam, beta = ExpPoly.variable("lam"), ExpPoly.variable("beta")
    >>> everywhere_if(SimpleNamespace(element=lam, always=(beta, -beta, lam)))
    'beta = 0 and lam >= 0'
    """
    if getattr(where, "always", None) is None:
        return None
    needed = dict.fromkeys(where.always)
    equal = [e for e in needed if -e in needed]
    said = {TEXT(coefficient(max(e, -e, key=_leads))): " = 0" for e in equal}
    return " and ".join([f"{e}{sign}" for e, sign in said.items()] +
                        [at_least_zero(e) for e in needed if e not in equal])  # fmt: skip


def _leads(element: ExpPoly) -> bool:
    return next(iter(element.terms.values())) > 0


def _interval(lower: Any, upper: Any, of: str) -> str:
    if lower is None and upper is None:
        return "everywhere"
    if upper is None:
        return f"{of} <= {_edge(lower)}"
    if lower is None:
        return f"{of} >= {_edge(upper)}"
    return f"{_edge(upper)} <= {of} <= {_edge(lower)}"


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
    return {
        "f": None if found.f is None else TEXT(in_r(found.f)),
        "genuine_divergence": convexity_json(found.where, found.is_divergence),
        "fisher_strength": strength_text(found),
    }


def convexity_json(where: Any, holds: bool | None) -> dict[str, Any] | None:
    """Is it convex for all parameters, and where it is; null where that is open."""
    if holds is None:
        return None
    return {"holds": holds, "where": region(where) if where and not holds else None}


def generated_text(found: Any) -> str:
    """E_q[f(r)] with f = log(r)**2/2, convex where r <= e; f''(1) = 1; beside rewards what is maximised."""
    told = generated_json(found)
    whole = f"maximise E_q[{shown(found.beside)}] - E_q[f(r)]" if found.beside else "E_q[f(r)]"
    convex = convexity_text(found.where, found.is_divergence)
    f = "; ".join(f"{TEXT(in_r(part))} where {region((on,))}" for on, part in reversed(found.pieces))
    known = f" with f = {f or told['f']}" if told["f"] else " with an f that has no formula here"
    parts = filter(None, (whole + known, convex))
    return "; ".join([", ".join(parts), at_reference_text(found), *map(_case_text, found.cases)])


def strength_text(found: Any) -> str | None:
    """f''(1); None where there is none, or where as a formula it is 0/0 or infinite, as that of sqrt(k3)."""
    value = found.strength
    if value is None or (isinstance(value, sympy.Expr) and value.has(*INFINITE)):
        return None
    return shown(value)


def at_reference_text(found: Any) -> str:
    """What f is at r = 1."""
    value = strength_text(found)
    if value is None:
        return "a kink at r = 1" if found.strength is None else "f''(1) is not known"
    return f"f''(1) = {value}"


def _case_text(case: Any) -> str:
    """if alpha = 1, f = r*log(r) - r + 1."""
    name, value, f = case
    return f"if {name} = {value}, " + ("nothing" if f is None else f"f = {TEXT(in_r(f))}")


def convexity_text(where: Any, holds: bool | None, of: str = "r") -> str:
    """convex where r <= e; empty where it is open."""
    if holds is None:
        return ""
    if not where:
        return "convex nowhere"
    if holds:
        return "convex"
    shown_region, always = region(where, of), everywhere_if(where)
    if always == shown_region:
        return f"convex if {always}"
    place = shown_region if _is_whole(where) else f"where {shown_region}"
    return f"convex {place}" + (f" (everywhere if {always})" if always else "")


def functional_text(found: Any) -> str:
    """Where a separable objective is convex in q: "convex in q where r >= 1/e"."""
    told = convexity_text(found.where, found.is_convex, found.of)
    return told if told.endswith("nowhere") else told.replace("convex", "convex in q", 1)


def functional_warning(found: Any) -> list[str]:
    """What it means that c does not rise with log q."""
    if found.is_convex is not False or _for_weights(found.where):
        return []
    where = f"only where {region(found.where, found.of)}: elsewhere" if found.where else "nowhere:"
    return [f"the objective is convex in q {where} the more likely an outcome, the weaker it is held"]


def _for_weights(where: Any) -> bool:
    """Is it everywhere for positive parameters, as weights are?  Or a matter of their signs alone?"""
    always = getattr(where, "always", None)
    of_sample = always is not None and where.element.names() & {*SAMPLE_BASES}
    return always is not None and not (of_sample and any(v < 0 for e in always for v in e.terms.values()))


def _pushes_away(where: Any) -> str:
    if _is_whole(where):
        return f"pushes q away from p where f has a kink: f is convex {region(where)}"
    return f"pushes q away from p unless {region(where)}: f is convex there alone"


def generated_warnings(found: Any) -> list[str]:
    """What descending E_q[f(r)] does that no divergence does."""
    said = []
    if found.strength is not None and not found.strength:
        said.append("no restoring force at q = p: f''(1) = 0")
    if found.where and not found.is_divergence and not _for_weights(found.where):
        said.append(_pushes_away(found.where))
    if found.unbounded:
        said.append("the objective is unbounded below: it falls without end as q goes to 0 somewhere")
    return said
