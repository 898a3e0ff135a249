"""Neighbouring papers on KL penalties: losses as rewards, off-policy forms, unnormalised divergences.

Sources: LI = Liu et al. 2025, "Rethinking KL Regularization in RLHF"; ZH = Zhang et al. 2025, "On the Design
of KL-Regularized Policy Gradient Algorithms"; SH = Shah et al. 2025, "A Comedy of Estimators"; MR = Mroueh
2025, "Reinforcement Learning with Verifiable Rewards: GRPO's Loss, Dynamics, and Success Amplification".
"""

import math
from functools import cache

import mpmath
import numpy as np
import sympy

from klsym.calculus import (
    KL,
    Function,
    beta,
    chi2,
    count,
    covariance,
    derive,
    exp,
    expectation,
    expected_gradient,
    grad,
    k1,
    k2,
    k3,
    log,
    log_mu,
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
    sg,
)
from klsym.derivations.expansions import rounded_up
from klsym.derivations.tools.taylor import expand, expectation_bound, show_series
from klsym.language.convert import to_sympy
from klsym.notation.printers import LATEX
from klsym.study.gaussian.exact import GaussianModel
from klsym.study.gaussian.models import Gaussian, compute_expectation
from klsym.study.ledger.evidence import Estimate, Evidence
from klsym.study.ledger.registry import claim

g = Function("g")(k1)  # any differentiable function of k1
f = Function("f")(log_q, log_p, log_mu)  # any differentiable function of the sample and theta


# ---------------------------------------------------------------------------- losses and rewards
@claim("neighbour.loss-as-reward", source="LI")
def losses_as_rewards():
    """The gradient of g(k1) at a sample is g'(k1) s, which is that of the detached reward g'(k1)."""

    def of(loss):
        return derive(sample_gradient(loss)).differentiate()

    return (
        of(g).equals(sample(s * sg(g.diff(log_q)))),
        of(k1).equals(sample(s * 1)),
        of(k2).equals(sample(s * sg(k1))),
        of(k3).equals(sample(s * sg(1 - r))),
        derive(expected_gradient(g, under=q)).differentiate().equals(
            expectation(s * sg(g.diff(log_q)), under=q)
        ),
    )  # fmt: skip


@claim("neighbour.chi2", source="LI")
def variance_of_the_k3_coefficient():
    """1 - r has expectation zero under q, so its variance is E_q[(1 - r)^2]."""
    return derive(covariance(1 - r, 1 - r, under=q)).equals(chi2(p, q))


@claim(
    "neighbour.in-reward-and-in-loss",
    source="SH (given there with other coefficients); new",
    instances={"f": lambda k1, log_q, w: math.e ** (-k1) - 1 + k1},
)
def estimator_in_the_reward_and_in_the_loss():
    """With coefficient 1 each, the two terms are those of the product rule for grad E_q[f]."""

    def both(estimator):
        return expectation(s * sg(estimator), under=q) + expected_gradient(estimator, under=q)

    unbiased = (KL(q, p), expectation(f, under=q))
    return (
        derive(both(f), premises=(unbiased,)).equals(grad(KL(q, p))),
        derive(both(f) / 2, premises=(unbiased,)).equals(grad(KL(q, p)) / 2),
        derive(both(k1)).equals(grad(KL(q, p))),
        derive(both(k3)).equals(grad(KL(q, p))),
        derive(both(k3) / 2).differs_from(grad(KL(q, p))),
    )


# ---------------------------------------------------------------------------- off-policy forms
@claim(
    "neighbour.rpg-forward",
    source="ZH",
    reading=("the samples come from mu, an earlier policy: the penalty is the forward KL towards it",),
)
def forward_penalty_towards_the_sampler():
    """KL(mu||q) is E_mu[-log q] plus a constant.

    rho has expectation 1 for every theta, so it changes no gradient.
    """

    def chain(loss):
        return derive(expected_gradient(loss, under=mu)).differentiate()

    return (
        chain(-beta * log_q).equals(beta * grad(KL(mu, q))),
        chain(beta * (rho - log(rho) - 1)).equals(beta * grad(KL(mu, q))),
        derive(expectation(rho - log(rho) - 1, under=mu)).equals(KL(mu, q)),
    )


@claim("neighbour.rpg-reverse", source="ZH")
def reverse_penalty_towards_the_sampler():
    """The gradient of rho log rho is rho (log rho + 1) s; the 1 comes from rho and has expectation zero."""

    def chain(loss):
        return derive(expected_gradient(loss, under=mu)).differentiate()

    normalised, unnormalised = beta * rho * log(rho), beta * (rho * log(rho) - rho)
    noise = sample_gradient(normalised) - sample_gradient(unnormalised)
    return (
        chain(normalised).equals(beta * grad(KL(q, mu))),
        chain(unnormalised).equals(beta * grad(KL(q, mu))),
        derive(noise).differentiate().equals(sample(beta * rho * s)),
        derive(expectation(beta * rho * s, under=mu)).equals(0),
    )


@claim("neighbour.k3-is-unnormalised-kl", source="ZH")
def k3_is_the_unnormalised_kl():
    """q k3 is q log(q/p), corrected by the mass p - q, which sums to zero where both are normalised."""
    integrand = exp(log_p) - exp(log_q) + exp(log_q) * (log_q - log_p)
    return (
        derive(sample(exp(log_q) * k3)).equals(sample(integrand)),
        derive(expectation(integrand, under=count)).change_measure(to=q).equals(expectation(k3, under=q)),
        derive(expectation(integrand, under=count)).change_measure(to=q).equals(KL(q, p)),
    )


@claim("neighbour.grpo-missing-weight", verdict="refuted", source="ZH")
def k3_without_its_weight():
    """Off-policy, k3 needs the attached weight: E_mu[grad(rho k3)] is the gradient (offpolicy.rho-k3)."""
    return derive(expected_gradient(k3, under=mu)).differs_from(grad(KL(q, p)))


# ---------------------------------------------------------------------------- rewards of 0 and 1, normalised
P, P_p, sigma, a = (parameter(name) for name in ("P", "P_p", "sigma", "a"))
ADVANTAGE = (f - P) / sigma


def success(k1, log_q, w):
    """A reward of 0 or 1, for the oracle: whether 7 log p has an odd integer part."""
    return np.floor(7 * np.real(log_q - k1)) % 2


@claim(
    "neighbour.grpo-success-recurrence",
    source="MR",
    instances={"f": success},
    reading=(
        "f is the reward, 0 or 1 at each sample, which is all that the first two premises say of it;"
        " sigma = sqrt(P (1 - P)) with P the success probability of the previous policy",
        "at a = log E_p[exp((f - P)/(beta sigma))] the first is an equality just at"
        " q* = p exp((f - P)/(beta sigma) - a), the maximiser (optimum.reverse): P' = E_q*[f] is to 1 - P' as"
        " E_p[f exp(f/(beta sigma))] to E_p[(1 - f) exp(f/(beta sigma))]",
        "so that the last says P'/(1 - P') = exp(1/(beta sigma)) P_p/(1 - P_p):"
        " logit P' = logit P_p + 1/(beta sqrt(P (1 - P)))",
    ),
)
def success_of_the_next_policy():
    """The advantage takes two values that differ by 1/sigma, so q*/p takes two values with the ratio
    exp(1/(beta sigma))."""
    step = exp(1 / (beta * sigma))
    succeeds = expectation(f * exp(f / (beta * sigma)), under=p)
    fails = expectation((1 - f) * exp(f / (beta * sigma)), under=p)
    binary = (
        (succeeds, step * expectation(f, under=p)),
        (fails, expectation(1 - f, under=p)),
        (expectation(f, under=p), P_p),
    )
    return (
        derive(expectation(ADVANTAGE, under=q) - beta * KL(q, p)).at_most(
            beta * (a - 1 + expectation(exp(ADVANTAGE / beta - a), under=p)),
            rows=[{"u": ADVANTAGE / beta - a - k1, "at": q, "scale": beta}],
        ),
        derive((1 - P_p) * succeeds, premises=binary).equals(
            step * P_p * fails, using=[(0, P_p - 1), (1, P_p * step), (2, -step)]
        ),
    )


# ---------------------------------------------------------------------------- k3 as a first-order stand-in
SHOWN = 6  # powers of eps = r - 1


@claim("neighbour.k3-loss-first-order", verdict="exact", source="LI")
def k3_loss_to_first_order():
    """The k3 loss has the coefficient 1 - r instead of k1; the difference is k3, which is of second order."""
    return derive(sample(k1 - (1 - r))).equals(sample(k3)), _series(), _limits()


def _series():
    """-log(1 + eps) + eps = sum over i >= 2 of (-eps)^i/i, with a bound on the rest."""
    coefficients = [to_sympy(c) for c in expand(k1 - (1 - r), SHOWN)]
    constant = rounded_up(expectation_bound(k3, SHOWN))
    terms = [f"{c} (r - 1)^{i}" for i, c in enumerate(coefficients) if c]
    pattern = all(c == (sympy.Rational((-1) ** i, i) if i >= 2 else 0) for i, c in enumerate(coefficients))

    def oracle():
        places = [mpmath.mpf(n) / 64 for n in range(-32, 33) if n]
        worst = max(abs(_missing(t) - _summed(coefficients, t)) / abs(t) ** SHOWN for t in places)
        held = worst <= mpmath.mpf(constant)
        return held, f"on |eps| <= 1/2 the remainder is at most {float(worst):.3f} eps^{SHOWN}"

    return Evidence(
        "exact",
        f"k1 - (1 - r) = k3 = {' + '.join(terms).replace('+ -', '- ')} + O((r - 1)^{SHOWN}),"
        f" the remainder at most {constant} (r - 1)^{SHOWN}",
        rf"k_1 - (1 - r) = k_3 = {show_series(k3, SHOWN)},"
        rf"\quad |O(\varepsilon^{SHOWN})| \le {constant}\,\varepsilon^{SHOWN}",
        "sympy",
        ("|r - 1| is at most 1/2",),
        oracle,
        (("r = 1 + eps", f"k_1 = {show_series(k1, SHOWN)}"),),
        pattern,
    )


def _missing(t):
    return t - mpmath.log(1 + t)


def _summed(coefficients, t):
    return sum(mpmath.mpf(c.p) / c.q * t**i for i, c in enumerate(coefficients))


def _limits():
    """1 - r, k1 = -log r and their quotient, as r -> 0 and as r -> oo."""
    ratio = sympy.Symbol("r", positive=True)
    pushes = (1 - ratio, -sympy.log(ratio), (1 - ratio) / -sympy.log(ratio))
    at_zero = [sympy.limit(push, ratio, 0, "+") for push in pushes]
    at_infinity = [sympy.limit(push, ratio, sympy.oo) for push in pushes]
    a, b, c, d, e = map(sympy.latex, (*at_zero[:2], *at_infinity))
    return Evidence(
        "exact",
        f"1 - r -> {at_zero[0]} and k1 -> {at_zero[1]} as r -> 0;"
        f" 1 - r -> {at_infinity[0]}, k1 -> {at_infinity[1]} and (1 - r)/k1 -> {at_infinity[2]} as r -> oo",
        rf"1 - r \to {a},\quad k_1 \to {b} \text{{ as }} r \to 0;\quad 1 - r \to {c},\quad k_1 \to {d},"
        rf"\quad \tfrac{{1 - r}}{{k_1}} \to {e} \text{{ as }} r \to \infty",
        "sympy",
        oracle=_far_away,
        holds=[*at_zero, *at_infinity] == [1, sympy.oo, 0, -sympy.oo, -sympy.oo, sympy.oo],
    )


def _far_away():
    """The same at r = 1e-300 and r = 1e300."""
    low, high = (1 - mpmath.mpf(10) ** power for power in (-300, 300))
    k1_low, k1_high = (-mpmath.log(mpmath.mpf(10) ** power) for power in (-300, 300))
    saturates = abs(low - 1) < 1e-14 and k1_low > 690
    explodes = high / k1_high > 1e297 and -700 < k1_high < -690
    numbers = ", ".join(mpmath.nstr(value, 4) for value in (low, high, k1_low, k1_high))
    return saturates and explodes, f"at r = 1e-300 and 1e300, 1 - r and k1 are {numbers}"


# ---------------------------------------------------------------------------- k3 in the reward, for Gaussians
m, n, shift, t = (sympy.Symbol(name, real=True) for name in ("m", "n", "a", "t"))
v, u = (sympy.Symbol(name, positive=True) for name in ("v", "u"))
SAMPLED = (0.5, -0.8)  # means of p where the forces are sampled, q = N(0, 1), p = N(n, 1)


@claim("neighbour.gaussian-k3-reward-vanishes", verdict="exact", source="new")
def k3_in_the_reward_of_gaussians():
    """With equal variances, both KL gradients agree along the mean, so k3 in the reward has gradient zero
    there. Along the scale they differ: k3 in the reward shrinks the scale of q unless the means are equal,
    and the reverse KL has slope zero there."""
    force = derive(expectation(s * sg(k3), under=q)).equals(grad(KL(q, p)) - grad(KL(p, q)))
    mean, scale = _force(k3)
    true_mean, true_scale = _force(k1)
    vanishing = (n - m) * (u - v) / (u * v)
    pull = (m - n) ** 2 / v + (u - v) ** 2 / (u * v)
    flat, towards, shrinking = sympy.simplify(true_scale.subs(u, v)), true_mean.subs(u, v), pull.subs(u, v)
    return (
        force,
        _gaussian(
            "the mean",
            0,
            f"0, where grad KL(q||p) = {sympy.factor(towards)}",
            rf"0,\quad {TRUE} = {sympy.latex(sympy.factor(towards))}",
            ("any variances", f"{FORCE} = {sympy.latex(vanishing)}"),
            _same(mean, vanishing) and _same(mean.subs(u, v), 0) and not _same(towards, 0),
        ),
        _gaussian(
            "the log scale",
            1,
            f"{shrinking}, where grad KL(q||p) = {flat}".replace("**", "^"),
            rf"{sympy.latex(shrinking)},\quad {TRUE} = {sympy.latex(flat)}",
            ("any variances: 0 at q = p only", rf"{FORCE} = {sympy.latex(pull)} \ge 0"),
            _same(scale, pull) and flat == 0,
        ),
    )  # fmt: skip


FORCE = LATEX.expectation("q", r"\mathrm{sg}(k_3)\,s")
TRUE = LATEX.gradient_of(LATEX.divergence("KL", "q", "p"), simple=True)


@cache
def _force(estimator):
    """E_q[s a] along the mean and the log scale of q = N(m, v), p = N(n, u): only the samples move.

    It is the slope in theta' of E[a] under q at theta', a being held at theta.
    """
    moving = Gaussian(m + shift, v * sympy.exp(2 * t))
    value = compute_expectation(estimator, Gaussian(m, v), Gaussian(n, u), under=moving).value
    return [sympy.simplify(sympy.diff(value, name).subs({shift: 0, t: 0})) for name in (shift, t)]


def _same(found, expected):
    return sympy.simplify(found - expected) == 0


def _gaussian(place, direction, text, latex, step, holds):
    return Evidence(
        "exact",
        f"q = N(m,v), p = N(n,v): along {place} of q, E_q[s sg(k3)] = {text}",
        rf"\text{{along {place} of }} q:\quad {FORCE} = {latex}",
        "sympy",
        ("q = N(m,v) and p = N(n,v) have the same variance; the scale of q is sqrt(v)",),
        lambda: _measured(direction),
        (step,),
        holds,
        estimates=tuple(
            Estimate(
                f"E_q[s sg({a})] at p = N({at}, 1)",
                expectation(s * sg(a), under=q).side,
                GaussianModel((0.0, 1.0), (at, 1.0)),
                tuple(float(c.subs({m: 0, v: 1, n: at, u: 1})) for c in _force(a)),
            )
            for at in SAMPLED[direction : direction + 1]
            for a in (k3, k1)
        ),
    )


def _measured(direction):
    """Both forces by quadrature from the densities, at equal variances, against the values stated."""
    found = []
    for centre, other, spread in ((0.0, 0.5, 1.0), (-0.3, 0.9, 0.49), (1.0, -1.0, 2.0)):
        gap = centre - other
        expected = (0, gap / spread) if direction == 0 else (gap**2 / spread, 0)
        for loss, value in zip((_k3, lambda k: k), expected, strict=True):
            found.append(abs(_integral(loss, direction, centre, other, spread) - value))
    worst = float(max(found))
    return worst < 1e-12, f"quadrature: largest difference of {len(found)} forces {worst:.1e}"


def _k3(k):
    return mpmath.expm1(-k) + k


def _integral(loss, direction, centre, other, spread):
    def integrand(at):
        z = (at - centre) / math.sqrt(spread)
        density = mpmath.exp(-(z**2) / 2) / mpmath.sqrt(2 * mpmath.pi * spread)
        score = z / math.sqrt(spread) if direction == 0 else z**2 - 1
        return density * score * loss(((at - other) ** 2 - (at - centre) ** 2) / (2 * spread))

    ends = [centre + i * math.sqrt(spread) for i in range(-16, 17, 4)]
    return mpmath.quad(integrand, ends)
