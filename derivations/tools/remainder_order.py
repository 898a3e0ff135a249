"""The order of a remainder as p -> q, measured on finite models in high precision.

p_t = q (1 + t delta) with sum q delta = 0, so that r = p/q = 1 + eps with eps = t delta.  The remainder
R(t) of an approximation that is right up to O(eps^n) has log2 R(t)/R(t/2) -> n as t -> 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import mpmath

Quantity = Callable[[Sequence[Any], Sequence[Any]], Any]  # of q and r = p/q, outcome by outcome

DIGITS = 90
STEPS = (12, 20)  # t = 2^-12 and 2^-20: R is measured there and at t/2
CLOSE = 0.02  # R(t)/t^n is constant up to O(t)
MODELS = (2, 3, 5, 8)  # outcomes


def mean(q: Sequence[Any], values: Sequence[Any]) -> Any:
    """E_q[values].

    >>> mean([0.25, 0.75], [4, 0])
    1.0
    """
    return sum((a * b for a, b in zip(q, values, strict=True)), 0)


def moments(q: Sequence[Any], r: Sequence[Any], highest: int) -> dict[str, Any]:
    """E_q[eps^i] for 2 <= i <= highest, under the names "E[eps^i]".

    >>> moments([0.5, 0.5], [1.5, 0.5], 3)
    {'E[eps^2]': 0.25, 'E[eps^3]': 0.0}

    q: probabilities.  r: the ratios p/q, of mean one.
    """
    return {f"E[eps^{i}]": mean(q, [(x - 1) ** i for x in r]) for i in range(2, highest + 1)}


def check_order(
    exact: Quantity, approximate: Quantity, order: int, bound: Quantity | None = None
) -> tuple[bool, str]:
    """Does exact - approximate vanish like t^order, or faster, on random models?

    >>> square = lambda q, r: mean(q, [(x - 1) ** 2 for x in r])
    >>> twice_kl = lambda q, r: mean(q, [x - 1 - mpmath.log(x) for x in r]) * 2
    >>> check_order(twice_kl, square, 3)[0], check_order(twice_kl, square, 4)[0]
    (True, False)

    exact, approximate: functions of q and r = p/q, lists of mpmath numbers over the outcomes.
    order: the claimed order of the difference in t.
    bound: what |exact - approximate| must not exceed where |eps| <= 1/2, judged at t = 1/2, 1/4, ...
    Returns whether it holds, and one line with the orders that were measured.
    """
    measured, used = [], [mpmath.mpf(0)]
    with mpmath.workdps(DIGITS):
        for q, delta in map(_model, MODELS):
            for step in STEPS:
                first, second = (_remainder(exact, approximate, _at(q, delta, s)) for s in (step, step + 1))
                measured.append(mpmath.log(abs(first / second), 2) if second else mpmath.inf)
            if bound is not None:
                points = [_at(q, delta, step) for step in range(1, STEPS[0])]
                used += [abs(_remainder(exact, approximate, point)) / bound(*point) for point in points]
    passed = min(measured) > order - CLOSE and max(used) <= 1
    low, high, most = (mpmath.nstr(x, 6) for x in (min(measured), max(measured), max(used)))
    text = f"{len(MODELS)} models p = q (1 + t delta), t = 2^-{STEPS[0]} to 2^-{STEPS[-1] + 1}: the remainder"
    text += f" falls as t^{low} to t^{high}, claimed t^{order}"
    return passed, text + (f"; at most {most} of its bound" if bound else "")


def _at(q: Any, delta: Any, step: int) -> tuple[Any, Any]:
    return q, [1 + mpmath.ldexp(d, -step) for d in delta]


def _remainder(exact: Quantity, approximate: Quantity, point: tuple[Any, Any]) -> Any:
    return exact(*point) - approximate(*point)


def _model(outcomes: int) -> tuple[list[Any], list[Any]]:
    """Random weights q and a direction delta of mean zero with sup |delta| = 1."""
    rng = random.Random(outcomes)
    weights = [mpmath.mpf(rng.randint(1, 50)) for _ in range(outcomes)]
    q = [w / sum(weights) for w in weights]
    raw = [mpmath.mpf(rng.randint(-99, 99)) for _ in range(outcomes)]
    centred = [x - mean(q, raw) for x in raw]
    size = max(abs(x) for x in centred)
    return q, [x / size for x in centred]
