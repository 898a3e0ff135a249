"""What descending E_q[f(r)] does to a policy where f is not convex, from the form of c(r).  Untrusted.

The force between outcomes is what c gains along log q: its slope dc/dk1, which is 1 for the reverse KL.

>>> from klsym.language.convert import to_ring
>>> from klsym.language.expressions import k3
>>> found = find_effects(to_ring(k3))
>>> found.third, found.overweight, found.underweight, found.corners_attract
(-1, 1.0, -inf, True)
>>> found.lower.trust
'kernel'
"""

from __future__ import annotations

import math
from functools import lru_cache

from klsym.engine.divergences.f_divergence import (
    K1,
    LeadingTerm,
    compute_third_derivative,
    differentiate_in_log_q,
    find_divergence,
    find_leading_term,
    find_limit,
)
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import expectation, sample
from klsym.engine.regions.root_isolation import find_signs
from klsym.errors import ProofError, Refused
from klsym.kernel.ring import ExpPoly, Number
from klsym.language.convert import to_sympy
from klsym.records import record


@record
class Effects:
    """slope: dc/dlog q, with what it goes to where q >> p (overweight) and where q << p (underweight).

    strength, third: f''(1) and f'''(1).  falls: the term like which f(r)/r
    falls without end as q goes to 0; None where it does not.  corners_attract: does each policy on one
    outcome attract, whatever the rewards?  lower: the refutation of 0 <= E_q[f(r)], if a model was found.
    """

    slope: ExpPoly
    strength: Number
    third: Number
    overweight: float
    underweight: float
    falls: LeadingTerm | None
    corners_attract: bool
    lower: Proof | None


def find_effects(c: ExpPoly) -> Effects | None:
    """Return the effects of a c(r) whose f is not convex, up to a weight in front; else None."""
    c = _remove_weight(c)
    divergence = find_divergence(c)
    if divergence is None or divergence.is_divergence is not False or c.names() - {"k1"}:
        return None
    rising = differentiate_in_log_q(c)
    return Effects(
        slope=rising,
        strength=_read_number(divergence.strength),
        third=_read_number(compute_third_derivative(c)),
        overweight=find_limit(rising.substitute({"k1": -K1})),
        underweight=find_limit(rising),
        falls=find_leading_term(divergence.f * K1.exp()) if divergence.unbounded else None,
        corners_attract=find_limit(c) == math.inf,  # R - beta c falls without end as q goes to 0
        lower=_refute_nonnegativity(divergence.f),
    )


def _remove_weight(c: ExpPoly) -> ExpPoly:
    """Return c without its constant and without the parameters that all other terms share."""
    moving = ExpPoly({key: value for key, value in c.terms.items() if ExpPoly({key: value}).names() & {"k1"}})
    weights = {tuple(item for item in monomial if item[0] != "k1") for monomial, _ in moving.terms}
    return moving * ExpPoly({(weights.pop(), ()): 1}).invert() if len(weights) == 1 else c


def _read_number(element: ExpPoly) -> Number:
    return element.terms.get(((), ()), 0)


@lru_cache(maxsize=256)
def _refute_nonnegativity(f: ExpPoly) -> Proof | None:
    """Return the proof that E_q[f(r)] < 0 for some policy; None where f is nowhere negative."""
    if find_signs(f) == (1,):
        return None
    try:
        return derive(sample(0)).differs_from(expectation(to_sympy(f), under="q"), relation="<=")
    except (ProofError, Refused):
        return None
