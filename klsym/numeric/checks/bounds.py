"""Bounds of a clip, min, max or abs: where a loss meets them along a line of samples."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import mpmath
import sympy

from klsym.language.expressions import clip, log_mu, log_q, remove_sg, unfold
from klsym.worlds.losses import SAMPLED, evaluate_at_sample


def find_bounds(*expressions: Any, on_policy: bool = False) -> list[Any]:
    """Return the functions of a sample at whose zeros a piece of an expression ends, such as k1 - 10 and k1 +
    10.

    >>> from klsym.language.expressions import k1
    >>> find_bounds(clip(k1, -1, 1))
    [-log_p + log_q + 1, log_p - log_q + 1]
    """
    bounds: set[Any] = set()
    for node in (node for e in expressions for node in sympy.preorder_traversal(e)):
        match node:
            case sympy.Abs() | sympy.Heaviside():
                bounds.add(node.args[0])
            case clip():
                bounds |= {node.args[0] - bound for bound in node.args[1:]}
            case sympy.Min() | sympy.Max():
                bounds |= {a - b for a in node.args for b in node.args if a.sort_key() < b.sort_key()}
    sampler = {log_mu: log_q} if on_policy else {}
    plain = (sympy.expand(unfold(remove_sg(e)).subs(sampler)) for e in bounds)
    varying = {-e if e.could_extract_minus_sign() else e for e in plain if e.has(*SAMPLED)}
    return sorted(varying, key=sympy.default_sort_key)


def find_crossings(bound: Any, line: Any, reach: float) -> list[Any]:
    """Return where a bound changes its sign along a line: numbers t between -reach and reach.

    line: t -> the values of all symbols.
    """
    steps = [0.0]
    while steps[-1] < reach:
        steps.append(max(0.1, 1.5 * steps[-1]))
    grid = sorted({*steps, *(-t for t in steps)})
    signs = [(t, _find_sign(bound, line(mpmath.mpf(t)))) for t in grid]
    crossing_points = []
    for (low, before), (high, after) in pairwise(signs):
        if before * after < 0:
            crossing_points.append(
                _solve_by_bisection(bound, line, low=mpmath.mpf(low), high=mpmath.mpf(high), before=before)
            )
    return crossing_points


def _find_sign(bound: Any, values: Mapping[str, Any]) -> int:
    try:
        return int(mpmath.sign(evaluate_at_sample(bound, values).value))
    except (ArithmeticError, ValueError):
        return 0


def _solve_by_bisection(bound: Any, line: Any, low: Any, high: Any, before: int) -> Any:
    for _ in range(40):
        middle = (low + high) / 2
        if _find_sign(bound, line(middle)) == before:
            low = middle
        else:
            high = middle
    return (low + high) / 2
