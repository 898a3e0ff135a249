"""Losses that regress the log ratio of the policy to a fixed one on rewards: c (a log(q/mu) - h)^2, c > 0.

The loss is 0 at every sample where q = mu exp(h/a), which is a policy if E_mu[exp(h/a)] = 1.

>>> from klsym.language.expressions import A, beta
>>> find_regression((beta * (log_q - log_mu) - A) ** 2)
Regression(policy='mu', exponent=A/beta)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import sympy

from klsym.language.expressions import A, M, OverPositions, R, log_mu, log_old, log_p, log_q, unfold

POLICIES = {log_mu: "mu", log_p: "p", log_old: "old"}


class Regression(NamedTuple):
    """A regression whose loss is 0 where q = policy * exp(exponent)."""

    policy: str
    exponent: Any


@lru_cache(maxsize=256)
def find_regression(e: Any) -> Regression | None:
    """Return the regression that a loss is; None for other losses."""
    factor, square = e.as_independent(log_q, as_Add=False) if e.is_Mul else (sympy.S.One, e)
    is_square = square.is_Pow and square.exp == 2 and not factor.is_negative and not factor.has(A, R, M)
    if not is_square or e.has(OverPositions) or factor.free_symbols & {*POLICIES}:
        return None
    residual = sympy.expand(sympy.expand_log(unfold(square.base)))
    if not residual.is_polynomial(log_q):
        return None
    a, own = residual.coeff(log_q, 1), residual.coeff(log_q, 0)
    others = [density for density in POLICIES if residual.has(density)]
    if len(others) != 1 or a == 0 or sympy.expand(residual - a * log_q - own) != 0:
        return None
    h = sympy.expand(-(own + a * others[0]))
    if a.has(A, R, M, *POLICIES) or h.has(*POLICIES, M) or not h.has(A, R):
        return None
    return Regression(POLICIES[others[0]], sympy.factor_terms(h / a))
