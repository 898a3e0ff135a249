"""The size of a penalty near q = p, which a change keeps.  Untrusted: it proposes."""

from __future__ import annotations

from typing import Any, NamedTuple

from klsym.language.expressions import A, R, log_mu, log_old, log_p, log_q, remove_sg, unfold
from klsym.numeric.array_losses import evaluate

NEAR = 1e-3  # a log ratio at which an estimator shows its order and its size
NUMBER = 0.37  # of each parameter


def find_scale(loss: Any) -> float | None:
    """Return c of c*k1, c*k2, c*k3 or c*abs(k1) near q = p; None for what is no estimator.

    >>> from klsym.language.expressions import k1, k3
    >>> find_scale(unfold(0.1 * k3)), find_scale(unfold(-k1)), find_scale(unfold(k1**2)), find_scale(log_q)
    (0.1, -1.0, 2.0, None)
    """
    try:
        near, far = (_measure_sides(loss, apart) for apart in (NEAR, 2 * NEAR))
        if abs(float(_evaluate(loss, 0.0))) > NEAR**3:
            return None
    except (TypeError, ValueError, KeyError, ArithmeticError, AttributeError):
        return None
    if abs(near.odd) > 10 * abs(near.even):
        scale = near.odd
    else:
        scale = near.even if abs(far.even) < 1.5 * abs(near.even) else 2 * near.even / NEAR
    return float(f"{scale:.2g}") or None


def is_multiple(loss: Any, other: Any) -> bool:
    """Is a loss a number times another one, near q = p?

    >>> from klsym.language.expressions import k1, k3
    >>> is_multiple(unfold(2 * k3), unfold(k3)), is_multiple(unfold(k3 - k1), unfold(k3))
    (True, False)
    """
    try:
        first, *more = (
            float(_evaluate(loss, x)) / float(_evaluate(other, x)) for x in (NEAR, -NEAR, 20 * NEAR)
        )
    except (TypeError, ValueError, KeyError, ArithmeticError, AttributeError):
        return False
    return all(abs(ratio - first) < NEAR**2 * abs(first) for ratio in more)


class Sides(NamedTuple):
    """The parts of a loss that change sign with the log ratio and that do not, divided by it."""

    odd: float
    even: float


def _measure_sides(loss: Any, apart: float) -> Sides:
    above, below = (float(_evaluate(loss, x)) for x in (apart, -apart))
    return Sides((above - below) / (2 * apart), (above + below) / (2 * apart))


def find_scale_of_penalty(loss: Any) -> float | None:
    """Return the size of a loss without its reward, with 1 for its weights; None where it has no penalty.

    >>> from klsym.language.expressions import k2, rho, sg
    >>> find_scale_of_penalty(sg(rho) * k2 - rho * A), find_scale_of_penalty(rho * A)
    (1.0, None)
    """
    penalty = remove_sg(unfold(loss)).xreplace({log_mu: log_q, log_old: log_q, A: 0, R: 0})
    names = penalty.free_symbols - {log_q, log_p}
    scale = find_scale(penalty.xreplace(dict.fromkeys(names, NUMBER)))
    return None if scale is None else abs(scale)


def _evaluate(loss: Any, apart: float) -> Any:
    import numpy as np

    numbers = {log_q.name: np.asarray(-1.0), log_p.name: np.asarray(-1.0 - apart)}
    return evaluate(loss, numbers, np, lambda x: x)
