"""Signs and variances of the estimators: what is never negative, and which control variate is best.

exp(u) > 1 + u unless u = 0 gives every sign here, squares give every order of variances.

Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions); TM = Tang & Munos 2025; RE = the notes
"Re-understanding KL Approximation from an RL-for-LLM Lens".
"""

from fractions import Fraction

from klsym.calculus import (
    KL,
    Function,
    chi2,
    covariance,
    derive,
    expectation,
    jeffreys,
    k,
    k1,
    k2,
    k3,
    lam,
    log_mu,
    log_p,
    log_q,
    p,
    parameter,
    q,
    r,
    sample,
)
from klsym.derivations.expansions import optimal_lambda_limit
from klsym.study.ledger.registry import claim

zero = sample(0)
lam_star, d, n = (parameter(name) for name in ("lam_star", "d", "n"))
f = Function("f")(log_q, log_p, log_mu)  # any estimator


def variance(a):
    return covariance(a, a, under=q)


@claim("value.k3-nonnegative", source="WZ1 k3; WZ2 3.1; RE")
def k3_is_nonnegative():
    """k3 = exp(u) - 1 - u with u = -k1, and exp(u) > 1 + u unless u = 0. k1 takes both signs."""
    return (
        derive(zero).at_most(sample(k3), rows=[{"u": -k1, "at": "sample"}]),
        derive(zero).at_most(sample(k2), rows=[{"b": k1, "scale": Fraction(1, 2), "at": "sample"}]),
        derive(zero).differs_from(sample(k1), relation="<="),
        derive(sample(k1)).differs_from(zero, relation="<="),
        derive(zero).at_most(KL(q, p), rows=[{"u": -k1, "at": q}]),
        derive(zero).at_most(KL(p, q), rows=[{"u": k1, "v": -k1, "at": q}]),
        derive(zero).at_most(chi2(p, q), rows=[{"b": r - 1, "at": q}]),
    )


@claim("value.lambda-one-unique", source="WZ1 trap; RE; uniqueness new")
def only_lambda_one_is_nonnegative():
    """k(1) is never negative; any other k(lam) is negative if r lies strictly between 1 and 1/lam.

    There (r - 1)(lam - 1/r) is negative; for lam <= 0 it is negative for all r > 1.
    """
    return nonnegative_for_one_alone(lam)


def nonnegative_for_one_alone(parameter):
    """0 <= k(1), and k(lam) <= (r - 1)(lam - 1/r), from exp(u) >= 1 + u at u = -k1 and at u = k1."""
    ceiling = (r - 1) * (parameter - 1 / r)
    return (
        derive(zero).at_most(sample(k(1)), rows=[{"u": -k1, "at": "sample"}]),
        derive(sample(k(parameter))).at_most(sample(ceiling), rows=[{"u": k1, "at": "sample"}]),
    )


LAM_STAR = ((jeffreys(p, q), lam_star * chi2(p, q)),)
EXISTS = (
    "lam_star is J(p, q)/chi2(p||q) at the theta in question: both and Var_q(k1) are finite, and"
    " chi2(p||q) is not 0",
)


@claim("value.optimal-lambda", source="RE (left open there); new", reading=EXISTS)
def optimal_lambda():
    """Var_q k(lam) is a quadratic function of lam, since Cov_q(k1, r - 1) = -J and Var_q(r - 1) = chi2."""
    gap = lam - lam_star
    parabola = variance(k1) - 2 * lam * jeffreys(p, q) + lam**2 * chi2(p, q)
    return (
        derive(variance(k(lam))).equals(parabola, evaluate=True),
        derive(variance(k(lam)), premises=LAM_STAR).equals(
            variance(k(lam_star)) + gap**2 * chi2(p, q), using=[(0, 2 * gap)]
        ),
        derive(variance(k(lam_star)), premises=LAM_STAR).at_most(
            variance(k(lam)),
            rows=[{"b": r - 1, "factor": gap, "at": q}],
            using=[(0, -2 * gap)],
        ),
        optimal_lambda_limit(),
    )


@claim("value.nonnegativity-is-not-the-cause", source="RE (argued in words); new proof", reading=EXISTS)
def nonnegativity_is_not_the_cause():
    """k(lam_star) is unbiased and, unless lam_star = 1, negative for some r, but its variance is lower than
    that of k3."""
    gap = lam_star - 1
    return (
        derive(expectation(k(lam_star), under=q)).equals(KL(q, p)),
        *nonnegative_for_one_alone(lam_star),
        derive(variance(k3) - variance(k(lam_star)), premises=LAM_STAR).equals(
            gap**2 * chi2(p, q), using=[(0, -2 * gap)]
        ),
        derive(variance(k(lam_star)), premises=LAM_STAR).at_most(
            variance(k3),
            rows=[{"b": r - 1, "factor": gap, "at": q}],
            using=[(0, 2 * gap)],
        ),
    )


def bias(a):
    return expectation(a - d, under=q)


def squared(a):
    return a * a


def mean_square_error(a):
    """Of the mean of n samples: of its n^2 pairs, n are a sample with itself, the others independent."""
    return expectation((a - d) ** 2 / n, under=q) + squared(bias(a)) * (1 - 1 / n)


MEAN_OF_N = (
    "MSE_n(a), of the mean of n independent samples of a, is E_q[(a - d)^2]/n + (1 - 1/n) E_q[a - d]^2:"
    " of the n^2 pairs of samples, n are a sample with itself, and in the others the two are independent",
    "d is KL(q||p)",
)


@claim("value.mse-crossover", source="TM fig. 1", reading=MEAN_OF_N)
def mean_square_errors_cross():
    """MSE = bias^2 + Var/n, so k2 has the lower one if n < (Var k1 - Var k2)/bias(k2)^2; it is at least
    bias^2."""
    n_times_the_difference = expectation((k1 - d) ** 2 - (k2 - d) ** 2, under=q) + (
        squared(bias(k1)) - squared(bias(k2))
    ) * (n - 1)
    return (
        derive(mean_square_error(f)).equals(squared(bias(f)) + variance(f) / n, evaluate=True),
        derive(n_times_the_difference, premises=((KL(q, p), d),)).equals(
            variance(k1) - variance(k2) - squared(bias(k2)) * n, using=[(0, bias(k1) * -n)]
        ),
        derive(squared(bias(k2))).at_most(
            mean_square_error(k2), rows=[{"variance": k2, "at": q, "scale": 1 / n}]
        ),
    )
