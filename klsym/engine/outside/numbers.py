"""Values of SymPy expressions at samples, in forty digits.  Untrusted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mpmath
import sympy

from klsym.engine.regions.piecewise import DENSITIES
from klsym.engine.regions.subgradients import expression_at_policy
from klsym.language import REWARDS, length, rho, unfold

DIGITS = 40
_unfolded = lru_cache(maxsize=1024)(unfold)  # one expression has values at many places
MAX_EXPONENT = sympy.Integer(10) ** 300  # exp(x) takes as many bits of precision as x has
GIVEN = (*REWARDS, length)  # T is random, and free of theta


def under_q(expression: Any, on_policy: bool) -> Any:
    """The integrand under q: on-policy with w = 0, off-policy divided by rho."""
    return expression_at_policy(expression) if on_policy else sympy.powsimp(expression / rho)


def number_at(expression: Any, at: dict[Any, Any]) -> Any | None:
    """The real value of an expression to DIGITS digits; None where it has none, or holds exp of more than
    LARGEST."""
    try:
        if any(abs(sympy.N(x.xreplace(at))) > MAX_EXPONENT for x in _nested(expression)):
            return None
        value = sympy.N(_unfolded(expression).xreplace(at), DIGITS)
    except (ValueError, TypeError):  # such as a comparison with infinity
        return None
    known = value._mpf_ if value.is_Float else int(value) if value.is_Integer else None
    return None if known is None else mpmath.mpf(known)


@lru_cache(maxsize=1024)
def _nested(expression: Any) -> tuple[Any, ...]:
    """What holds exponentials and stands in one, the innermost first."""
    inside = (e.args[0] for e in _unfolded(expression).atoms(sympy.exp))
    return tuple(sorted((x for x in inside if x.has(sympy.exp)), key=sympy.count_ops))


def parameters(c: Any) -> list[Any]:
    """Symbols that are neither densities nor given at a sample."""
    return sorted(c.free_symbols - {*DENSITIES, *GIVEN}, key=str)
