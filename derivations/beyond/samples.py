"""Single samples: what k1, a clipped ratio and weights do to values, gradients and their variances.

Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions); TM = Tang & Munos 2025; RE = the notes
"Re-understanding KL Approximation from an RL-for-LLM Lens".
"""

from fractions import Fraction

import mpmath
import sympy

from klsym.calculus import (
    KL,
    Function,
    M,
    R,
    beta,
    chi2,
    derive,
    exp,
    expectation,
    expected_gradient,
    grad,
    k1,
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
)
from klsym.derivations.variances import ALONG, variance
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

a, b_star, c = (parameter(name) for name in ("a", "b_star", "c"))
SQUARES = expectation(s**2, under=q)


# ---------------------------------------------------------------------------- k1 in the loss
BASELINE = ((expectation(R * s**2, under=q), b_star * SQUARES),)


@claim(
    "beyond.k1-loss-baseline",
    verdict="corrected",
    source="TM eq. 2",
    words="k1 in the loss adds zero-mean noise and nothing else",
    reading=(
        *ALONG,
        "b_star is E_q[R s^2]/E_q[s^2] at the theta in question: E_q[R^2 s^2] is finite and E_q[s^2] is"
        " not 0",
        "by the second part the variance is lower with k1 if and only if 0 < beta < 2 b_star",
    ),
)
def k1_in_the_loss_is_a_baseline():
    """The gradient of -R log q + beta k1 is -(R - beta) s: beta is a baseline of every reward."""
    return (
        derive(sample_gradient(-R * log_q + beta * k1)).differentiate().equals(sample(-(R - beta) * s)),
        derive(variance(R - beta, q) - variance(R, q), premises=BASELINE).equals(
            beta * (beta - 2 * b_star) * SQUARES, using=[(0, 2 * beta)]
        ),
        derive(variance(R, q)).differs_from(variance(R - beta, q), relation="<="),
    )


# ---------------------------------------------------------------------------- a clipped ratio
@claim(
    "beyond.clipped-ratio",
    verdict="corrected",
    source="WZ1 trap 3",
    words="clip r in k3 to tame heavy tails; the value and the gradient stay those of k3",
    reading=(
        "M = 1 where r < c, 0 where r > c, so that min(r, c) is M r + (1 - M) c; the theorems hold for every"
        " mask M that is free of theta",
        "a coefficient 1 of s, as where r > c, lowers q there, though q is below p already",
    ),
)
def clipping_the_ratio_in_k3():
    """The value loses E_q[(r - c)+], and where r > c only k1 is left of the gradient, with the sign +."""
    clipped = M * r + (1 - M) * c - 1 + k1
    return (
        derive(expectation(clipped, under=q)).equals(KL(q, p) - expectation((1 - M) * (r - c), under=q)),
        derive(sample_gradient(clipped)).differentiate().equals(sample((1 - M * r) * s)),
        derive(expected_gradient(clipped, under=q)).differentiate().equals(
            grad(KL(p, q)) + expectation((1 - M) * r * s, under=q)
        ),
        derive(expectation(clipped, under=q)).differs_from(KL(q, p)),
        derive(expected_gradient(clipped, under=q)).differs_from(grad(KL(p, q))),
    )  # fmt: skip


# ---------------------------------------------------------------------------- the other direction
@claim(
    "beyond.old-policy-direction",
    source="RE (theta in the new policy, samples of the old one), made exact",
    reading=("samples of mu, which theta does not move; rho = q/mu, so that -log rho is log mu - log q",),
)
def estimators_of_the_old_policy():
    """Measured from mu, k1 as a loss has the gradient of KL(mu||q), and k2 has not: they trade places."""
    return (
        derive(expected_gradient(log_mu - log_q, under=mu)).differentiate().equals(grad(KL(mu, q))),
        derive(expected_gradient(rho - 1 + log_mu - log_q, under=mu)).differentiate().equals(
            grad(KL(mu, q))
        ),
        derive(expected_gradient((log_q - log_mu) ** 2 / 2, under=mu)).differs_from(grad(KL(mu, q))),
    )  # fmt: skip


# ---------------------------------------------------------------------------- weights
FORM = Function("F")(log_q, log_p, log_mu)


@claim(
    "beyond.weight-growth",
    source="WZ1 (weights explode), made exact",
    reading=(
        "a is KL(q||mu), so that the second part is E_q[rho] >= exp(KL(q||mu)), and by the first"
        " E_mu[rho^2] >= exp(KL(q||mu))",
        "F stands for |k1 s|, with s along one direction",
        "so that with equality rho F is constant, which says that mu is proportional to q F",
    ),
)
def weights_grow_with_the_divergence():
    """exp(u) >= 1 + u at u = log rho - KL(q||mu); a variance is at least 0; tokens multiply their moments."""
    return (
        derive(expectation(rho**2, under=mu)).change_measure(to=q).equals(expectation(rho, under=q)),
        derive(expectation(exp(a), under=q), premises=((KL(q, mu), a),)).at_most(
            expectation(rho, under=q), rows=[{"u": log_q - log_mu - a, "v": a, "at": q}], using=[(0, exp(a))]
        ),
        derive(expectation(FORM, under=q) * expectation(FORM, under=q)).at_most(
            expectation((rho * FORM) ** 2, under=mu), rows=[{"variance": rho * FORM, "at": mu}]
        ),
        derive(expectation(rho**2, under=mu) - 1).equals(chi2(q, mu)),
        _equal_tokens(),
        _mixture_of_samplers(),
    )


def _equal_tokens():
    """The weight of T independent tokens is the product of theirs."""
    chances = ((Fraction(1, 4), Fraction(2, 5)), (Fraction(3, 4), Fraction(3, 5)))  # of q and mu
    moment = sum(q * q / mu for q, mu in chances)

    def oracle():
        worst = 0.0
        for length in range(1, 6):
            paths = [(1.0, 1.0)]
            for _ in range(length):
                paths = [(x * float(q), y * float(mu)) for x, y in paths for q, mu in chances]
            total = sum(x * x / y for x, y in paths)
            worst = max(worst, abs(total / float(moment) ** length - 1))
        return worst < 1e-13, f"all sequences of 1 to 5 tokens in floats: within {worst:.0e}"

    return Evidence(
        "exact",
        "for T independent equal tokens E_mu[rho^2] = (1 + chi2)^T, chi2 = chi2(q||mu) of one token",
        r"\mathbb{E}_\mu[\rho^2] = (1 + \chi^2)^T",
        "sympy",
        ("the tokens are independent and equal, under q and under mu",),
        oracle,
        (("the mean of a product of independent factors is the product of their means",
          r"\mathbb{E}_\mu \prod_t \rho_t^2 = \prod_t \mathbb{E}_\mu[\rho_t^2]"),),
        holds=moment == 1 + sum((q - mu) ** 2 / mu for q, mu in chances),
    )  # fmt: skip


def _mixture_of_samplers():
    """1/x is convex: at every sample the weight by the mixture has the smaller square, in the mean."""
    x, y, t = sympy.symbols("x y t", positive=True)
    mixture = t * x + (1 - t) * y
    gap = t / x + (1 - t) / y - 1 / mixture

    def oracle():
        least = min(
            u / v + (1 - u) / w - 1 / (u * v + (1 - u) * w)
            for u in (0.1, 0.5, 0.8) for v in (0.02, 0.3, 0.9) for w in (0.05, 0.4, 0.7)
        )  # fmt: skip
        return least >= 0, f"27 pairs of probabilities: the least gap is {least:.1e}"

    return Evidence(
        "exact",
        "samples of several samplers mu_j, a share t_j of each: weights q/(sum_j t_j mu_j) give q F a second"
        " moment that is at most that of each sample's own weight q/mu_j",
        r"\mathbb{E}_{\nu}\left[\frac{q^2 F^2}{\nu^2}\right]"
        r" \le \sum_j t_j\, \mathbb{E}_{\mu_j}\left[\frac{q^2 F^2}{\mu_j^2}\right],"
        r"\quad \nu = \sum_j t_j \mu_j",
        "sympy",
        ("every mu_j is positive where q F is not 0",),
        oracle,
        (("at every sample, for two samplers; for more one after the other",
          r"\frac{t}{x} + \frac{1-t}{y} - \frac{1}{t x + (1-t) y}"
          r" = \frac{t (1-t) (x-y)^2}{x y (t x + (1-t) y)}"),),
        holds=sympy.simplify(gap - t * (1 - t) * (x - y) ** 2 / (x * y * mixture)) == 0,
    )  # fmt: skip


# ---------------------------------------------------------------------------- how often k1 is negative
@claim("beyond.sign-probability", verdict="refuted", source="RE ('roughly half' of the k1 are negative)")
def how_often_k1_is_negative():
    """Two outcomes: k1 < 0 exactly where p is larger, which q may give any chance h."""
    h = sympy.Symbol("h", positive=True)
    larger = (1 + h) / 2  # p of the outcome to which q gives h

    def oracle():
        chances = [0.001, 0.5, 0.999]
        found = []
        for x in chances:
            pairs = ((x, (1 + x) / 2), (1 - x, (1 - x) / 2))
            found.append(sum(q for q, p in pairs if mpmath.log(q) < mpmath.log(p)))
        return found == chances, f"P_q(k1 < 0) = {', '.join(map(str, found))} in three models"

    return Evidence(
        "refuted",
        "there are constants 0 < a < b < 1 with a <= P_q(k1 < 0) <= b for all q != p",
        r"0 < a \le P_q(k_1 < 0) \le b < 1",
        "sympy",
        ("q = (h, 1 - h) and p = ((1 + h)/2, (1 - h)/2): k1 < 0 at the first outcome alone, any 0 < h < 1",),
        oracle,
        (("p is larger at the first outcome, and smaller at the second",
          r"\tfrac{1 + h}{2} - h = (1 - h) - \tfrac{1 - h}{2} = \tfrac{1 - h}{2} > 0"),),
        holds=sympy.expand(larger - h) == sympy.expand((1 - h) - (1 - h) / 2) == sympy.expand((1 - h) / 2),
    )  # fmt: skip
