"""Where training ends: the stationary policies of E_q[R] - beta (penalty).

A policy is stationary where R - beta c is constant on its support: a number nu drops from the field
E_q[(R - beta c) s], and nothing else does (implied.score-form-unique).
"""

import math
from fractions import Fraction

import mpmath
import sympy

from klsym.calculus import (
    KL,
    A,
    R,
    beta,
    derive,
    exp,
    expectation,
    expected_gradient,
    grad,
    k1,
    k2,
    k3,
    log_p,
    log_q,
    mu,
    p,
    parameter,
    q,
    r,
    rho,
    s,
    sample,
    sample_gradient,
)
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

a, nu = parameter("a"), parameter("nu")


def penalised(penalty):
    return expectation(R, under=q) - beta * penalty


def field_of(c):
    """The field of rewards R and a penalty with the coefficient c."""
    return expectation((R - beta * c) * s, under=q)


def zero_where_constant(c):
    """The field is 0 where R - beta c = nu at every sample."""
    return derive(field_of(c)).equals(expectation((R - beta * c - nu) * s, under=q))


@claim(
    "optimum.reverse",
    source="TM",
    reading=(
        "with Z = E_p[exp(R/beta)] the right side is beta log Z at a = log Z, and no less at any other a;"
        " equality at a = log Z is q = q* = p exp(R/beta)/Z",
    ),
)
def exponential_tilt():
    """exp(u) >= 1 + u at u = R/beta - a - k1, which is log(q*/q) for a = log Z."""
    tilted = expectation(exp(R / beta - a), under=p)
    return (
        derive(penalised(KL(q, p))).at_most(
            beta * (a - 1 + tilted), rows=[{"u": R / beta - a - k1, "at": q, "scale": beta}]
        ),
        zero_where_constant(k1),
    )


@claim(
    "optimum.objective-identity",
    verdict="corrected",
    source="TM sec. 3.1",
    words="the objective differs from -KL(q||q*) by a constant, without the factor beta",
    reading=("a is log Z with Z = E_p[exp(R/beta)], so that log p + R/beta - a is log q*",),
)
def objective_is_a_divergence_from_the_optimum():
    """With log q* = log p + R/beta - log Z the objective is beta log Z - beta KL(q||q*)."""
    to_optimum = expectation(log_q - (log_p + R / beta - a), under=q)
    return (
        derive(penalised(KL(q, p))).equals(beta * a - beta * to_optimum),
        derive(penalised(KL(q, p))).differs_from(beta * a - to_optimum),
    )


@claim(
    "optimum.forward",
    source="TM sec. 3.1",
    reading=("A stands for log((nu - R)/beta), so that q* = p exp(-A) = beta p/(nu - R)",),
)
def reciprocal_policy():
    """exp(u) >= 1 + u at u = log(q/q*), in the mean under p; nu is the number for which q* has mass one."""
    rewards = nu - beta * exp(A)
    return (
        derive(expectation(rewards, under=q) - beta * KL(p, q)).at_most(
            nu - beta - beta * expectation(A, under=p),
            rows=[{"u": k1 + A, "v": -k1, "at": q, "scale": beta}],
        ),
        zero_where_constant(-r),
    )


@claim("optimum.k1-loss", source="WZ1; TM (no regularisation)")
def k1_in_the_loss_regularises_nothing():
    """Its expected gradient is 0, so beta has no effect; with constant rewards every policy is stationary."""
    update = expectation(R * s, under=q) - expected_gradient(beta * k1, under=q)
    return (
        derive(update).equals(grad(expectation(R, under=q))),
        derive(expectation(nu * s, under=q)).equals(0),
        derive(update).differs_from(0),
        derive(update).differs_from(grad(penalised(KL(q, p)))),
    )


@claim("optimum.k2-reward", source="new")
def k2_in_the_reward_has_two_branches():
    """R - beta k1^2/2 = nu has the solutions k1 and -k1.

    k2 has the slope k1 along log q, which is 0 at q = p.
    """
    return (
        zero_where_constant(k2),
        derive(sample_gradient(k2)).differentiate().equals(sample(k1 * s)),
        derive(expectation(k2 * s, under=q)).differs_from(0),
        _two_policies(),
    )


def _two_policies():
    """Where q/p is 2 and 1/2, k1^2 is the same at both outcomes, as it is at q = p."""
    p, q = (Fraction(1, 3), Fraction(2, 3)), (Fraction(2, 3), Fraction(1, 3))
    ratios = [b / a for a, b in zip(p, q, strict=True)]

    def oracle():
        worst = 0.0
        for policy in (p, q):
            k2 = [math.log(b / a) ** 2 / 2 for a, b in zip(p, policy, strict=True)]
            mean = sum(float(b) * value for b, value in zip(policy, k2, strict=True))
            worst = max(worst, *(abs(float(b) * (v - mean)) for b, v in zip(policy, k2, strict=True)))
        return worst < 1e-15, f"the field along each logit, in floats: at most {worst:.1e}"

    def row(values):
        return "(" + ", ".join(map(str, values)) + ")"

    return Evidence(
        "exact",
        f"for constant rewards and p = {row(p)} both q = p and q = {row(q)} are stationary",
        rf"R = \nu,\ p = {row(p)}:\quad q = p \text{{ and }} q = {row(q)} \text{{ are stationary}}",
        "sympy",
        oracle=oracle,
        steps=(("q/p at the two outcomes", row(ratios)), ("k1 and -k1", r"\log^2 2 = \log^2 \tfrac{1}{2}")),
        holds=ratios[0] * ratios[1] == 1 and sum(p) == sum(q) == 1,
    )


@claim("optimum.k3-reward", source="SH, WZ2 (instability); mechanism new")
def k3_in_the_reward_has_two_branches():
    """k3 = r - 1 - log r decreases for r < 1 and increases for r > 1.

    Its slope along log q is 1 - r, which is 0 at q = p.
    """
    return (
        zero_where_constant(k3),
        derive(sample_gradient(k3)).differentiate().equals(sample((1 - r) * s)),
        derive(expectation(k3 * s, under=q)).differs_from(0),
        _lambert_branches(),
    )


def _lambert_branches():
    """r - 1 - log r = x is -r exp(-r) = -exp(-1 - x), whose solutions are -r = W(-exp(-1 - x))."""
    ratio = sympy.Symbol("r", positive=True)
    level = ratio - 1 - sympy.log(ratio)

    def oracle():
        worst, apart = mpmath.mpf(0), True
        for x in (0.01, 0.5, 2, 7):
            found = [-mpmath.lambertw(-mpmath.exp(-1 - x), branch).real for branch in (0, -1)]
            worst = max(worst, *(abs(value - 1 - mpmath.log(value) - x) for value in found))
            apart = apart and found[0] < 1 < found[1]
        return apart and worst < 1e-12, f"both branches at four levels: within {mpmath.nstr(worst, 2)}"

    return Evidence(
        "exact",
        "r - 1 - log r = x has two solutions r = -W(-exp(-1 - x)) for each x > 0, on either side of 1",
        r"r - 1 - \log r = x \iff r = -W(-e^{-1-x}),\quad W_0 \text{ for } r < 1,\ W_{-1} \text{ for } r > 1",
        "sympy",
        oracle=oracle,
        holds=sympy.simplify(sympy.exp(-1 - level) - ratio * sympy.exp(-ratio)) == 0,
    )


@claim("optimum.rho-k2", source="new")
def weighted_k2_pushes_the_wrong_way_beyond_e():
    """c = k1 + k1^2/2 has the slope 1 + k1 along log q, which is positive if and only if r < e."""
    return (
        derive(expected_gradient(rho * k2, under=mu)).differentiate().change_measure(to=q).equals(
            expectation((k1 + k2) * s, under=q)
        ),
        derive(sample_gradient(k1 + k2)).differentiate().equals(sample((1 + k1) * s)),
        derive(sample(k1 + k2)).differs_from(sample(0), relation="<="),
        zero_where_constant(k1 + k2),
    )  # fmt: skip
