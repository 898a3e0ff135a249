"""What a loss literally is at one sample: its value and its slope in log q, in many digits.

Dual numbers a + a' t with t^2 = 0 are carried through the expression, where log q has the slope 1 and
sg(.), log p, log mu, rewards and parameters have none.  At ties the slopes are those that the verdict
states: 1 for clip at its bounds, 0 for |x| at 0, halves for min and max, taken by pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any

import mpmath
import sympy

from klsym.language.expressions import (
    A,
    Estimator,
    M,
    R,
    V,
    V_next,
    clip,
    log_mu,
    log_old,
    log_p,
    log_q,
    remove_sg,
    sg,
    unfold,
)

Dual = tuple[Any, Any]  # value, slope
SAMPLED = (log_q, log_p, log_mu, log_old, R, A, M, V, V_next)  # what differs from sample to sample
TIED = 20  # digits that two equal numbers may lose to rounding


def evaluate_at_sample(expression: Any, values: Mapping[str, Any]) -> Dual:
    """Return the value at a sample, and the slope in log q; in mpmath's current precision, well above TIED
    digits.

    >>> from klsym.language.expressions import k2, rho
    >>> values = {"log_q": mpmath.mpf(1), "log_p": mpmath.mpf(3), "log_mu": mpmath.mpf(1)}
    >>> with mpmath.workdps(50):
    ...     print(*evaluate_at_sample(rho * k2, values), *evaluate_at_sample(sg(rho) * k2, values))
    2.0 0.0 2.0 -2.0

    values: name of each symbol -> number, or a number with a slope of its own.
    Raises ArithmeticError or ValueError: there is no real value here.
    """
    return compile_expression(expression)(values)


@lru_cache(maxsize=4096)
def compile_expression(expression: Any) -> Callable[[Mapping[str, Any]], Dual]:
    """Return values -> the dual number of an expression; the tree is walked once, not at each sample."""
    match expression:
        case sympy.Symbol(name=name):
            slope = mpmath.mpf(int(name == log_q.name))
            return lambda values: value if isinstance(value := values[name], tuple) else (value, slope)
        case sympy.Rational(p=p, q=q):
            above, below = int(p), int(q)
            return lambda values: (mpmath.mpf(above) / below, mpmath.mpf(0))
        case Estimator():
            return compile_expression(expression.definition())
        case sympy.Min() | sympy.Max():
            pair = _choose_lesser if isinstance(expression, sympy.Min) else _choose_greater
            readers = [compile_expression(argument) for argument in order_arguments(expression)]
            return lambda values: reduce(pair, (argument(values) for argument in readers))
    if expression is sympy.E:
        return lambda values: (mpmath.mpf(mpmath.e), mpmath.mpf(0))
    rule, arguments = RULES[expression.func], [compile_expression(argument) for argument in expression.args]
    return lambda values: rule(*[argument(values) for argument in arguments])


def order_arguments(e: Any) -> Iterable[Any]:
    """Return the arguments of min or max, what differs from sample to sample first."""
    return sorted(e.args, key=lambda a: not a.has(*SAMPLED))


def _add_duals(*terms: Dual) -> Dual:
    return _sum_exactly(v for v, _ in terms), mpmath.fsum(d for _, d in terms)


def _sum_exactly(terms: Iterable[Any]) -> Any:
    """Return a sum; 0 where only rounding is left of its terms, so that a tie is one."""
    terms = list(terms)
    total = mpmath.fsum(terms)
    lost = max(map(abs, terms)) * mpmath.mpf(10) ** (TIED - mpmath.mp.dps)
    return total if abs(total) > lost else mpmath.mpf(0)


def _multiply_duals(*factors: Dual) -> Dual:
    return reduce(lambda x, y: (x[0] * y[0], x[1] * y[0] + x[0] * y[1]), factors)


def _compute_power(base: Dual, exponent: Dual) -> Dual:
    """Return x^y with d x^y = y x^(y-1) dx + x^y log(x) dy."""
    (x, dx), (y, dy) = base, exponent
    value = x ** (int(y) if mpmath.isint(y) else y)
    if isinstance(value, mpmath.mpc):
        raise ValueError("a fractional power of a negative number")
    slope = y * x ** (int(y) - 1 if mpmath.isint(y) else y - 1) * dx if dx else mpmath.mpf(0)
    return value, slope + (value * mpmath.log(x) * dy if dy else 0)


def _compute_exp(x: Dual) -> Dual:
    value = mpmath.exp(x[0])
    return value, value * x[1]


def _compute_log(x: Dual) -> Dual:
    if x[0] <= 0:
        raise ValueError("log of a number that is not positive")
    return mpmath.log(x[0]), x[1] / x[0]


def _compare_values(x: Dual, y: Dual) -> int:
    """Return the sign of x - y."""
    return int(mpmath.sign(_sum_exactly((x[0], -y[0]))))


def _compute_absolute(x: Dual) -> Dual:
    return abs(x[0]), int(mpmath.sign(x[0])) * x[1]


def _choose_lesser(x: Dual, y: Dual) -> Dual:
    order = _compare_values(x, y)
    return (min(x[0], y[0]), (x[1] + y[1]) / 2) if order == 0 else x if order < 0 else y


def _choose_greater(x: Dual, y: Dual) -> Dual:
    order = _compare_values(x, y)
    return (max(x[0], y[0]), (x[1] + y[1]) / 2) if order == 0 else x if order > 0 else y


def _compute_step(x: Dual, at_zero: Dual) -> Dual:
    """Return 1 where x > 0, 0 where x < 0, without a slope."""
    sign = _compare_values(x, (mpmath.mpf(0), mpmath.mpf(0)))
    return at_zero[0] if sign == 0 else mpmath.mpf(sign > 0), mpmath.mpf(0)


def _compute_clip(x: Dual, lo: Dual, hi: Dual) -> Dual:
    """Return min(max(x, lo), hi); where it meets a bound it moves like x."""
    if _compare_values(lo, hi) > 0 or _compare_values(x, hi) > 0:
        return hi
    return lo if _compare_values(x, lo) < 0 else x


RULES: dict[Any, Any] = {
    sympy.Add: _add_duals,
    sympy.Mul: _multiply_duals,
    sympy.Pow: _compute_power,
    sympy.exp: _compute_exp,
    sympy.log: _compute_log,
    sympy.Abs: _compute_absolute,
    clip: _compute_clip,
    sg: lambda x: (x[0], mpmath.mpf(0)),
    sympy.Heaviside: _compute_step,
}


# ---------------------------------------------------------------------------- bounds


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
                _solve_by_bisection(bound, line, mpmath.mpf(low), mpmath.mpf(high), before)
            )
    return crossing_points


def _find_sign(bound: Any, values: Mapping[str, Any]) -> int:
    try:
        return int(mpmath.sign(evaluate_at_sample(bound, values)[0]))
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
