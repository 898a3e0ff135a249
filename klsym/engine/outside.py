"""Losses outside the ring (clip, min, max, abs, sqrt, log(1 + r), ...): SymPy differentiates them.

The verdict rests on SymPy and says so.  Derivatives are taken where they exist, case by case over the
regions of a piecewise loss (a tie has probability zero or follows the convention of `clip`).  A target
is first fitted in 40-digit arithmetic, then confirmed by `simplify`; a fit alone is only numeric.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy
from sympy import Rational

from klsym.convert import to_ring
from klsym.errors import NotInRing
from klsym.language import A, Estimator, R, clip, k1, log_mu, log_p, log_q, r, rho, sg, unfold
from klsym.normal_form import ExpPoly

DIGITS = 40
BASIS = (k1, -r, R, A, sympy.Integer(1))  # reverse KL, forward KL, rewards, the constant that drops
# log q, log p, log mu at which coefficients are compared: far apart, so that every clamp is crossed
POINTS = [
    tuple(Rational(n, 100) for n in row)
    for row in (
        (-131, -52, -207), (-73, -461, -112), (-309, -18, -27), (-11, -290, -333), (-620, -35, -84),
        (-47, -51, -44), (-5, -713, -260), (-402, -399, -6), (-95, -84, -121), (-260, -577, -19),
        (-33, -171, -402), (-540, -208, -61), (-150, -3, -310), (-22, -26, -29), (-8, -404, -3),
    )
]  # fmt: skip


@dataclass(frozen=True)
class Fitted:
    """The multiples of k1, -r, R, A and 1 in a coefficient, and how they were confirmed."""

    multiples: tuple[Any, ...] | None
    trust: str


def gradient_coefficient(loss: Any) -> Any:
    """dL/dlog q with sg(.) held constant, then sg dropped: the per-sample gradient over s."""
    return drop_sg(sympy.diff(loss, log_q))


def drop_sg(expression: Any) -> Any:
    while expression.has(sg):
        expression = expression.replace(lambda e: isinstance(e, sg), lambda e: e.args[0])
    return expression


def score_coefficient(per_sample: Any, on_policy: bool) -> Any:
    """c in E_q[c s]: on-policy with w = 0, off-policy divided by rho."""
    if on_policy:
        return at_policy(per_sample)
    return sympy.powsimp(per_sample / rho)


def at_policy(expression: Any) -> Any:
    """The sampler is q: log mu = log q, rho = 1."""
    return expression.xreplace({rho: sympy.Integer(1)}).subs(log_mu, log_q)


def as_ring(expression: Any) -> ExpPoly | None:
    """The normal form, where the coefficient happens to be an exponential polynomial."""
    try:
        return to_ring(expression)
    except NotInRing:
        return None


def fit(c: Any) -> Fitted:
    """Write c as a combination of BASIS if it is one.

    The numbers on POINTS decide: off them c is no combination; on them `simplify` must agree before
    the verdict may rest on SymPy rather than on numbers.
    """
    free = sorted(c.free_symbols - {log_q, log_p, log_mu, R, A}, key=str)
    values = {symbol: Rational(7 + 2 * i, 5) for i, symbol in enumerate(free)}
    with mpmath.workdps(DIGITS):
        rows = [_row(c.subs(values), point, i) for i, point in enumerate(POINTS)]
        solution = _least_squares(rows)
        if solution is None:
            return Fitted(None, "sympy")
        if free:
            return _with_parameters(c)
        multiples = tuple(sympy.nsimplify(sympy.Float(str(x), 30), rational=True) for x in solution)
    exact = all(abs(m.p) < 10**9 and m.q < 10**9 for m in multiples)
    return _confirm(c, multiples) if exact else Fitted(None, "sympy")


def _row(c: Any, point: tuple[Any, ...], i: int) -> tuple[list[Any], Any]:
    at = dict(zip((log_q, log_p, log_mu), point, strict=True)) | {
        R: Rational(3 * i % 7),
        A: Rational(5 * i % 11),
    }
    numbers = [_value(unfold(e), at) for e in (*BASIS, c)]
    return numbers[:-1], numbers[-1]


def _value(expression: Any, at: dict[Any, Any]) -> Any:
    return mpmath.mpmathify(sympy.N(expression.subs(at), DIGITS))


def _least_squares(rows: list[tuple[list[Any], Any]]) -> list[Any] | None:
    matrix = mpmath.matrix([row for row, _ in rows])
    target = mpmath.matrix([value for _, value in rows])
    solution = mpmath.lu_solve(matrix, target)
    residual = mpmath.norm(matrix * solution - target, mpmath.inf)
    scale = 1 + mpmath.norm(target, mpmath.inf)
    return list(solution) if residual < scale * mpmath.mpf(10) ** (-DIGITS // 2) else None


def _with_parameters(c: Any) -> Fitted:
    """Multiples may hold parameters: each is a difference quotient of c along its own basis element."""
    expanded = sympy.expand(sympy.powsimp(unfold(c)))
    x = sympy.Dummy("x", real=True)
    in_x = expanded.subs(log_q, log_p + x)
    linear, ratio = in_x.coeff(x, 1), in_x.coeff(sympy.exp(-x), 1)
    multiples = (linear, -ratio, in_x.coeff(R, 1), in_x.coeff(A, 1), sympy.Integer(0))
    if any(m.has(x) or m.has(log_p) for m in multiples):
        return Fitted(None, "sympy")
    return _confirm(c, multiples)


def _confirm(c: Any, multiples: tuple[Any, ...]) -> Fitted:
    combination = sum(m * b for m, b in zip(multiples, BASIS, strict=True))
    difference = sympy.simplify(unfold(c - combination))
    if not difference.free_symbols & {log_q, log_p, log_mu, R, A}:
        return Fitted(multiples, "sympy")
    return Fitted(multiples, "numeric")


def depends_beyond_r(c: Any) -> bool:
    """Does c depend on more than k1 = log q - log p?  Shift both log q and log p alike and compare."""
    shift = sympy.Dummy("shift", real=True)
    moved = unfold(c).subs({log_q: log_q + shift, log_p: log_p + shift}, simultaneous=True)
    return bool({R, A, log_mu} & c.free_symbols) or bool(sympy.simplify(moved - unfold(c)) != 0)


def witness(c: Any, models: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """A finite model in which E_q[c s] is not E_q[k1 s] = grad KL(q||p), to 15 decimals."""
    for model in models:
        q, p, mu, u = ([Rational(x) for x in model[name]] for name in ("q", "p", "mu", "u"))
        fixed = {sympy.Symbol(n, real=True): Rational(v) for n, v in model["parameters"].items()}
        mean = sum(a * b for a, b in zip(q, u, strict=True))
        sides = [sympy.Integer(0), sympy.Integer(0)]
        for x in range(len(q)):
            rewards = {R: Rational(model["rewards"]["R"][x]), A: Rational(model["rewards"]["A"][x])}
            at = {log_q: sympy.log(q[x]), log_p: sympy.log(p[x]), log_mu: sympy.log(mu[x])} | rewards | fixed
            for i, coefficient in enumerate((c, k1)):
                sides[i] += q[x] * (u[x] - mean) * sympy.N(unfold(coefficient).subs(at), DIGITS)
        if abs(sides[0] - sides[1]) > Rational(1, 10**9):
            return model | {
                "left": [str(sympy.N(sides[0], 15))] * 2,
                "right": [str(sympy.N(sides[1], 15))] * 2,
            }
    return None


def inside_clamps(loss: Any) -> Any | None:
    """The loss where no bound binds: clip(x, lo, hi) -> x, min and max -> their one random argument."""
    if not loss.has(clip, sympy.Min, sympy.Max):
        return None
    loss = loss.replace(lambda e: isinstance(e, clip), lambda e: e.args[0])
    return loss.replace(lambda e: isinstance(e, sympy.Min | sympy.Max), _unclamped)


def _unclamped(e: Any) -> Any:
    random = {a for a in e.args if a.has(Estimator, log_q, log_p, log_mu, R, A)}
    return random.pop() if len(random) == 1 else e
