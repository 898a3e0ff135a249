"""Functions of r = p/q, and regions of r, as text.

>>> from klsym.notation.printers import LATEX, TEXT
>>> k1 = ExpPoly.from_variable("k1")
>>> TEXT(rewrite_in_r(k1 + (-k1).exp() - 1)), LATEX(rewrite_in_r(k1 * k1 * Fraction(1, 2)))
('r - log(r) - 1', '\\\\frac{\\\\log(r)^{2}}{2}')
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from klsym.kernel.ring import ExpPoly
from klsym.notation import losses
from klsym.notation.coefficients import build_coefficient
from klsym.notation.printers import TEXT
from klsym.notation.tree import Call, Formula, Name, replace_parts

DIGITS = 6  # of an edge that is no power of e


def rewrite_in_r(f: Any, sums: bool = False) -> Formula:
    """Rewrite a function of k1 in r: k1 is -log r, exp(-a k1) is r^a; SymPy expressions are in r already."""
    return (
        _rename_ratio(build_coefficient(_rewrite_in_log_r(f)))
        if isinstance(f, ExpPoly)
        else losses.build_tree(f, sums)
    )


def _rewrite_in_log_r(f: ExpPoly) -> ExpPoly:
    """Replace k1 by -k1 outside of exponents: k1 then denotes log r."""
    terms = {
        (monomial, exponent): value * (-1) ** dict(monomial).get("k1", 0)
        for (monomial, exponent), value in f.terms.items()
    }
    return ExpPoly(terms)


def _rename_ratio(formula: Formula, of: str = "r") -> Formula:
    if formula == Name("k1"):
        return Call("log", (Name(of),))
    if formula == Name("r"):
        return Name(of)
    return replace_parts(formula, lambda part: _rename_ratio(part, of))


def describe_region(where: Any, of: str = "r") -> str:
    """Return intervals of k1 as intervals of r, "1/e <= r <= 3.51286", or a condition, "r <= lam + 1".

    Intervals that meet are one "but not across r = 1", where f falls short of convex by a kink.

    where: intervals with the ends `lower` and `upper`, each None or a pair of rationals that enclose it; or
    an `element` that is not negative there.  of: the ratio whose logarithm is -k1.
    """
    if hasattr(where, "element"):
        return describe_nonnegative(where.element, of)
    whole, across = _merge_intervals(where)
    text = " or ".join(_format_interval(lower, upper, of) for lower, upper in reversed(whole))
    kinks = " or ".join(f"{of} = {_format_edge(zero)}" for zero in reversed(across))
    return text + (f" but not across {kinks}" if kinks else "")


def _merge_intervals(where: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Merge intervals that meet, and return also the points where they meet: kinks of f."""
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
    """Does the region contain all r except kinks?"""
    return not hasattr(where, "element") and _merge_intervals(where)[0] == [(None, None)]


def describe_nonnegative(element: ExpPoly, of: str = "r") -> str:
    """Return the condition that an element is not negative, with r on the left.

    >>> k1, lam = ExpPoly.from_variable("k1"), ExpPoly.from_variable("lam")
    >>> [describe_nonnegative(e) for e in (1 + lam - (-k1).exp(), -lam, lam * lam - lam)]
    ['r <= lam + 1', 'lam <= 0', 'lam*(lam - 1) >= 0']
    """
    both = _rewrite_in_log_r(element)
    over = ExpPoly({key: value for key, value in both.terms.items() if value > 0})
    under = over - both
    shared = set.intersection(*({name for name, _ in m} for m, _ in both.terms)) - {"k1"}
    if over and under and (shared or "k1" not in element.names()):  # beta*(1 - r) >= 0
        return f"{TEXT(_rename_ratio(build_coefficient(both), of))} >= 0"
    left, right = (TEXT(_rename_ratio(build_coefficient(side), of)) for side in (over, under))
    flipped = under and (not over or "k1" in under.names() - over.names())
    return f"{right} <= {left}" if flipped else f"{left} >= {right}"


def describe_everywhere(where: Any) -> str | None:
    """Return the condition on parameters for which it holds everywhere; None if there is none.

    >>> from types import SimpleNamespace
    >>> lam, beta = ExpPoly.from_variable("lam"), ExpPoly.from_variable("beta")
    >>> describe_everywhere(SimpleNamespace(element=lam, always=(beta, -beta, lam)))
    'beta = 0 and lam >= 0'
    """
    if getattr(where, "always", None) is None:
        return None
    needed = dict.fromkeys(where.always)
    equal = [e for e in needed if -e in needed]
    signs = {TEXT(build_coefficient(max(e, -e, key=_has_positive_lead))): " = 0" for e in equal}
    return " and ".join([f"{e}{sign}" for e, sign in signs.items()] +
                        [describe_nonnegative(e) for e in needed if e not in equal])  # fmt: skip


def _has_positive_lead(element: ExpPoly) -> bool:
    return next(iter(element.terms.values())) > 0


def _format_interval(lower: Any, upper: Any, of: str) -> str:
    if lower is None and upper is None:
        return "everywhere"
    if upper is None:
        return f"{of} <= {_format_edge(lower)}"
    if lower is None:
        return f"{of} >= {_format_edge(upper)}"
    return f"{_format_edge(upper)} <= {of} <= {_format_edge(lower)}"


def _format_edge(zero: tuple[Fraction, Fraction]) -> str:
    """Return exp(-k1) as text: 1, e, exp(1/2); rounded if k1 is not known to be rational."""
    low, high = zero
    if low == high:
        plain = {Fraction(0): "1", Fraction(-1): "e", Fraction(1): "1/e"}
        return plain.get(low) or TEXT(build_coefficient(ExpPoly.from_number(-low).exp()))
    return f"{math.exp(-float(low + high) / 2):.{DIGITS}g}"
