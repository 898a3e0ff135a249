"""Values of SymPy expressions at samples, in forty digits.  Untrusted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mpmath
import sympy
from sympy import Rational

from klsym.engine.regions.piecewise import DENSITIES
from klsym.engine.regions.subgradients import expression_at_policy
from klsym.language import REWARDS, A, M, R, length, rho, unfold

DIGITS = 40
_unfolded = lru_cache(maxsize=1024)(unfold)  # one expression has values at many places
MAX_EXPONENT = sympy.Integer(10) ** 300  # exp(x) takes as many bits of precision as x has
GIVEN = (*REWARDS, length)  # T is random, and free of theta
# log q, log p, log mu, log old at which expressions are looked at
POINTS = [
    tuple(Rational(n, 100) for n in (*row, -7 - 37 * i * i % 293))
    for i, row in enumerate((
        (-131, -52, -207), (-73, -461, -112), (-309, -18, -27), (-11, -290, -333), (-620, -35, -84),
        (-47, -51, -44), (-5, -713, -260), (-402, -399, -6), (-95, -84, -121), (-260, -577, -19),
        (-33, -171, -402), (-540, -208, -61), (-150, -3, -310), (-22, -26, -29), (-8, -404, -3),
    ))
]  # fmt: skip


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


def has_values(c: Any) -> bool:
    """Is c a real number of moderate size at any of the points?  1/0 by rounding is a huge one."""
    fixed = {s: Rational(7 + 2 * i, 5) for i, s in enumerate(parameters(c))}
    values = (number_at(c, fixed | _point(point, i)) for i, point in enumerate(POINTS))
    return any(value is not None and abs(value) < 1e30 for value in values)


def _point(point: tuple[Any, ...], i: int) -> dict[Any, Any]:
    return dict(zip(DENSITIES, point, strict=True)) | {
        R: Rational(1 + 3 * i % 7),
        A: Rational(1 + 5 * i % 11),
        M: Rational(1 + i % 2),
        length: Rational(1 + i % 3),
    }


def parameters(c: Any) -> list[Any]:
    """Symbols that are neither densities nor given at a sample."""
    return sorted(c.free_symbols - {*DENSITIES, *GIVEN}, key=str)
