"""Piecewise losses case by case: min, max, clip and abs as sums over indicators of regions.

    min(a, b) = a + (b - a) 1[a > b]        clip(x, lo, hi) = lo + (x - lo) 1[x > lo] - (x - hi) 1[x > hi]
    max(a, b) = a + (b - a) 1[b > a]        |x| = x (2 1[x > 0] - 1)

Within a region an indicator is constant, so it differentiates to zero; and an indicator is its own
square.  What remains is a polynomial in indicators with coefficients that the ring can decide.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import sympy

from klsym.language import Estimator, clip, log_mu, log_p, log_q, unfold
from klsym.normal_form import ExpPoly

DENSITIES = (log_q, log_p, log_mu)
Table = dict[Any, Any]  # indicator symbol -> the expression whose sign it tells


def is_piecewise(e: Any) -> bool:
    return bool(e.has(sympy.Min, sympy.Max, sympy.Abs, clip, sympy.Heaviside, sympy.sign))


def in_indicators(e: Any, table: Table) -> Any:
    """The expression with every min, max, clip and abs of the sample written with indicators."""
    if not e.has(*DENSITIES) or e.is_Atom or isinstance(e, Estimator):
        return e
    arguments = [in_indicators(argument, table) for argument in e.args]
    if isinstance(e, sympy.Abs):
        [x] = arguments
        return x * (2 * indicator(x, table) - 1)
    if isinstance(e, sympy.Min):
        return reduce(lambda a, b: a + (b - a) * indicator(a - b, table), arguments)
    if isinstance(e, sympy.Max):
        return reduce(lambda a, b: a + (b - a) * indicator(b - a, table), arguments)
    if isinstance(e, clip):
        x, lo, hi = arguments
        return lo + (x - lo) * indicator(x - lo, table) - (x - hi) * indicator(x - hi, table)
    return e.func(*arguments)


def indicator(x: Any, table: Table) -> Any:
    """1[x > 0], with 1[-x > 0] = 1 - 1[x > 0] almost everywhere."""
    scale, x = sympy.expand(unfold(x)).as_coeff_Mul()
    if x.is_number or scale == 0:
        return sympy.Heaviside(scale * x)
    if x.could_extract_minus_sign():
        scale, x = -scale, -x
    if x.is_nonnegative or x.is_nonpositive:
        positive = sympy.Integer(1 if x.is_nonnegative else 0)
    elif not x.has(*DENSITIES):
        positive = sympy.Heaviside(x)
    else:
        positive = next((s for s, known in table.items() if known == x), None)
        if positive is None:
            positive = sympy.Symbol(f"indicator{len(table)}", real=True)
            table[positive] = x
    return positive if scale > 0 else 1 - positive


def reread(e: Any, change: Any, table: Table) -> tuple[Any, Table]:
    """Apply `change` (such as w = 0) to an expression and to what its indicators tell the sign of."""
    fresh: Table = {}
    renamed: Table = {}
    for symbol, x in table.items():  # what an indicator looks at may hold earlier ones
        renamed[symbol] = indicator(change(x).xreplace(renamed), fresh)
    return change(e).xreplace(renamed), fresh


def idempotent(element: ExpPoly, names: frozenset[str]) -> ExpPoly:
    """1[x > 0]^2 = 1[x > 0]."""
    total = ExpPoly({})
    for (monomial, exponent), value in element.terms.items():
        powers = tuple((n, 1 if n in names else p) for n, p in monomial)
        total = total + ExpPoly({(powers, exponent): value})
    return total
