"""Importance weights with a bound, as min(rho, C): where the bound holds, the term has C in place of rho."""

from __future__ import annotations

from typing import Any

import sympy

from klsym.engine.divergences.regressions import find_regression
from klsym.language.expressions import clip, log_q, rho


def has_bounded_weights(e: Any) -> bool:
    """Is rho in a bounded factor of each term that depends on the policy?

    >>> from klsym.language.expressions import A, parameter, sg
    >>> bounded = sympy.Min(rho, parameter("C"))
    >>> has_bounded_weights(sg(bounded) * A * log_q), has_bounded_weights(bounded * A + log_q)
    (True, False)
    """
    terms = [term for term in sympy.Add.make_args(e) if term.has(log_q, rho)]
    bounds = (sympy.Min, sympy.Max, clip)
    return bool(terms) and all(
        any(bound.has(rho) for factor in sympy.Mul.make_args(term) for bound in factor.atoms(*bounds))
        for term in terms
    )


def needs_no_weight(e: Any, is_weighted: bool) -> bool:
    """Is it a regression, or are its weights bounded, so that rho is missing beyond the bounds alone?"""
    return bool(find_regression(e)) or (is_weighted and has_bounded_weights(e))
