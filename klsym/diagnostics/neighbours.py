"""Losses that are one change away: a weight attached or detached, a ratio turned upside down.

>>> from klsym.language.expressions import k3, rho, sg
>>> attach_weight(sg(rho) * k3), detach_weight(rho * k3)
(k3*rho, k3*sg(rho))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import sympy

from klsym.errors import NotInRing
from klsym.language.convert import is_in_ring, to_ring
from klsym.language.expressions import OF_TABLE, log_mu, log_p, log_q, rho, sg, unfold


def attach_weight(loss: Any) -> Any:
    """Return the loss with its importance weight attached."""
    return loss.xreplace({sg(rho): rho})


def detach_weight(loss: Any) -> Any:
    """Return the loss with its importance weight detached."""
    return loss.xreplace({sg(rho): sg(rho), rho: sg(rho)})  # what is replaced is not looked into


def remove_weight(loss: Any) -> Any:
    """Return the loss with 1 for its importance weight."""
    return unfold(loss).xreplace({log_mu: log_q}) if loss.has(rho) or loss.has(log_mu) else loss


def invert_ratio(loss: Any) -> Any:
    """Return the loss with q/p for p/q, under the name of an estimator if it is one."""
    other = unfold(loss).xreplace({log_p: 2 * log_q - log_p})
    return _index_estimators().get(to_ring(other), other) if is_in_ring(other) else other


@cache
def _index_estimators() -> dict[Any, Any]:
    """Return the estimators by their normal forms; of equal ones, the first."""
    return {to_ring(of): of for of in reversed(OF_TABLE.values()) if is_in_ring(of)}


def invert_weight(loss: Any) -> Any:
    """Return the loss with mu/q for q/mu."""
    return loss.xreplace({rho: 1 / rho, sg(rho): 1 / sg(rho)})


def has_inverted_weight(loss: Any) -> bool:
    """Is there a negative power of the importance weight, such as mu/q?

    >>> has_inverted_weight(-1 / rho), has_inverted_weight(rho**2)
    (True, False)
    """
    return any(x.base in (rho, sg(rho)) and x.exp.is_negative for x in loss.atoms(sympy.Pow))


NEIGHBOURS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "KL003": (attach_weight,), "KL015": (detach_weight,), "KL016": (invert_ratio, invert_weight),
}  # fmt: skip


def has_other_value(one: Any, other: Any) -> bool:
    """Are two losses different expressions?"""
    if one == other:
        return False
    try:
        return to_ring(one) != to_ring(other)
    except NotInRing:
        return bool(sympy.expand(unfold(one - other)) != 0)
