"""Coefficients of scores at a sample: are they 0 everywhere, and which density ratio in them is unbounded?

>>> r = (-ExpPoly.variable("k1")).exp()
>>> tail_of([r], [r], False), tail_of([r * ExpPoly.variable("w").exp()], [r], False)
('r', 'rho*r')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from klsym.engine.objectives import at_policy
from klsym.kernel.derivatives import attach
from klsym.names import parse_name
from klsym.ring import Exponent, ExpPoly


def is_zero(coefficients: Iterable[ExpPoly], on_policy: bool) -> bool:
    """Are they 0 at every sample?  On-policy log q - log mu is."""
    values = (attach(of) for of in coefficients)
    return not any(at_policy(value) if on_policy else value for value in values)


def tail_of(coefficients: Iterable[ExpPoly], under_q: Iterable[ExpPoly], on_policy: bool) -> str:
    """The ratio that is unbounded at a sample: r for a negative power of q, p/mu for one of mu alone.

    under_q: the coefficients of E_q[c s]; a ratio that has left them is not told.
    """
    if not any(tail for of in under_q for _, exponent in of.terms for tail in _tails(exponent)):
        return ""
    values = [at_policy(attach(of)) if on_policy else attach(of) for of in coefficients]
    found = {tail for value in values for _, exponent in value.terms for tail in _tails(exponent)}
    return "r" if "r" in found else "rho*r" if found else ""


def _tails(exponent: Exponent) -> Iterator[str]:
    """exp(a k1 + b w) of one slot, with a < 0: q stands in the power a + b, mu in -b."""
    powers: dict[str, dict[str, Any]] = {}
    for monomial, value in exponent:
        name = parse_name(monomial[0][0]) if len(monomial) == 1 and monomial[0][1] == 1 else None
        if name is not None and name.base in ("k1", "w"):
            powers.setdefault(name.slot, {})[name.base] = value
    for of in powers.values():
        a, b = of.get("k1", 0), of.get("w", 0)
        if a < 0:
            yield from ["r"] if a + b < 0 else ["rho*r"] if b > 0 else []
