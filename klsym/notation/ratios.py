"""Functions of r = p/q, and where they hold, as text.

>>> from klsym.notation.printers import LATEX, TEXT
>>> k1 = ExpPoly.variable("k1")
>>> TEXT(in_r(k1 + (-k1).exp() - 1)), LATEX(in_r(k1 * k1 * Fraction(1, 2)))
('r - log(r) - 1', '\\\\frac{\\\\log(r)^{2}}{2}')
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.notation import losses
from klsym.notation.coefficients import coefficient
from klsym.notation.printers import TEXT
from klsym.notation.tree import Call, Formula, Name, rebuilt

DIGITS = 6  # of an edge that is no power of e


def in_r(f: Any, sums: bool = False) -> Formula:
    """A function of k1 as one of r: k1 is -log r, exp(-a k1) is r^a; outside the ring it is in r already."""
    return _renamed(coefficient(_of_log_r(f))) if isinstance(f, ExpPoly) else losses.tree_of(f, sums)


def _of_log_r(f: ExpPoly) -> ExpPoly:
    """With k1 standing for log r where it is no exponent."""
    terms = {
        (monomial, exponent): value * (-1) ** dict(monomial).get("k1", 0)
        for (monomial, exponent), value in f.terms.items()
    }
    return ExpPoly(terms)


def _renamed(formula: Formula, of: str = "r") -> Formula:
    if formula == Name("k1"):
        return Call("log", (Name(of),))
    if formula == Name("r"):
        return Name(of)
    return rebuilt(formula, lambda part: _renamed(part, of))


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


def is_whole(where: Any) -> bool:
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
