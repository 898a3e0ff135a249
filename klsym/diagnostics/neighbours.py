"""Losses that are one change away: a weight attached or detached, a ratio turned upside down.

>>> from klsym.language.expressions import k3, rho, sg
>>> attached(sg(rho) * k3), detached(rho * k3)
(k3*rho, k3*sg(rho))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from klsym.language.expressions import OF_TABLE, log_mu, log_p, log_q, rho, sg, unfold


def attached(loss: Any) -> Any:
    """The loss with its importance weight attached."""
    return loss.xreplace({sg(rho): rho})


def detached(loss: Any) -> Any:
    """The loss with its importance weight detached."""
    hidden = sympy.Dummy()
    return loss.xreplace({sg(rho): hidden}).xreplace({rho: sg(rho)}).xreplace({hidden: sg(rho)})


def without_weight(loss: Any) -> Any:
    """The loss with 1 in place of its importance weight."""
    return unfold(loss).xreplace({log_mu: log_q}) if loss.has(rho) or loss.has(log_mu) else loss


def other_ratio(loss: Any) -> Any:
    """The loss with q/p in place of p/q: log q - log p changes its sign; an estimator by its name."""
    other = sympy.expand(unfold(loss).xreplace({log_p: 2 * log_q - log_p}))
    return next((of for of in OF_TABLE.values() if not differ(of, other)), other)


def other_weight(loss: Any) -> Any:
    """The loss with mu/q in place of q/mu."""
    return loss.xreplace({rho: 1 / rho, sg(rho): 1 / sg(rho)})


NEIGHBOURS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "KL003": (attached,), "KL015": (detached,), "KL016": (other_ratio, other_weight),
}  # fmt: skip


def differ(one: Any, other: Any) -> bool:
    """Are two losses different expressions?"""
    return one != other and sympy.expand(unfold(one - other)) != 0
