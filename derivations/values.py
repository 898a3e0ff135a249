"""Values of the single-sample estimators: which are unbiased, and for what.

Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions); TM = Tang & Munos 2025; RE = the notes
"Re-understanding KL Approximation from an RL-for-LLM Lens".
"""

from klsym.calculus import (
    KL,
    bregman,
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
    log,
    mu,
    p,
    q,
    r,
    rho,
    sample,
)
from klsym.study.ledger.registry import claim

inverse_ratio = 1 / r  # q/p, which some papers call r


@claim("value.ratio-mean-one", source="WZ1 Three estimators; WZ2 3.1; RE; TM 2.1")
def ratio_mean_one():
    """A density ratio has expectation one under its denominator: change to the numerator's measure."""
    return (
        derive(expectation(r, under=q)).change_measure(to=p).normalise().equals(1),
        derive(expectation(rho, under=mu)).change_measure(to=q).normalise().equals(1),
    )


@claim("value.k1-unbiased", source="WZ1 Bias and variance; WZ2 3.1; TM 2.1; RE")
def k1_is_unbiased():
    """E_q[k1] is the reverse KL by definition."""
    return derive(expectation(k1, under=q)).equals(KL(q, p))


@claim("value.k3-unbiased", source="WZ1 Bias and variance; WZ2 3.1; TM 2.1; RE")
def k3_is_unbiased():
    """k3 is k1 plus r - 1, which has expectation zero."""
    return (
        derive(expectation(k3, under=q))
        .normalise(part=-1)  # E_q[k1 + r] - 1
        .ratio_mean_one(of=p, part=r, term=1)  # E_q[k1]
        .equals(KL(q, p))
    )


@claim("value.k2-biased", verdict="refuted", source="WZ1 Bias and variance; WZ2 3.1; TM 2.1; RE")
def k2_is_biased():
    """k2 is not an unbiased estimate of the reverse KL; two outcomes suffice."""
    return derive(expectation(k2, under=q)).differs_from(KL(q, p))


@claim("value.k-lambda-unbiased", source="WZ1 k3; WZ2 3.1; TM 3; RE")
def k_lambda_is_unbiased():
    """Any multiple of r - 1, which has expectation zero, can be added."""
    return derive(expectation(k(lam), under=q)).equals(KL(q, p))


@claim("value.forward-by-importance", source="WZ1 Bias and variance, note; WZ2 4, note")
def forward_kl_by_importance():
    """The forward KL from samples of q: log r is weighted by r."""
    return derive(expectation(r * log(r), under=q)).change_measure(to=p).equals(KL(p, q))


@claim("value.offpolicy-weighted", source="WZ1 Off-policy gradients; WZ2 6.2")
def off_policy_values_with_weights():
    """The importance weight changes the measure to q, for every estimator."""
    return (
        derive(expectation(rho * k1, under=mu)).change_measure(to=q).equals(KL(q, p)),
        derive(expectation(rho * k3, under=mu)).change_measure(to=q).equals(KL(q, p)),
        derive(expectation(rho * k2, under=mu)).change_measure(to=q).equals(expectation(k2, under=q)),
    )


@claim("value.offpolicy-unweighted", source="WZ1 trap 4; closed form new")
def off_policy_value_without_weight():
    """Without the weight, k1 estimates KL(mu||p) - KL(mu||q)."""
    return derive(expectation(k1, under=mu)).equals(KL(mu, p) - KL(mu, q))


@claim("value.control-variate-covariance", source="RE; WZ1; WZ2 3.1; closed form new")
def control_variate_covariance():
    """k1 and r - 1 are never positively correlated: their covariance is minus the Jeffreys divergence.

    J = E_q[exp(-k1) - 1 + k1] + E_q[exp(-k1) (exp(k1) - 1 - k1)], and exp(u) >= 1 + u.
    """
    tangents = [{"u": -k1, "at": q}, {"u": k1, "v": -k1, "at": q}]
    return (
        derive(covariance(k1, r - 1, under=q)).equals(-jeffreys(p, q)),
        derive(covariance(k1, r - 1, under=q)).at_most(0, rows=tangents),
    )


@claim("value.ratio-direction", verdict="corrected", source="RE (defines r = q/p)")
def ratio_direction():
    """k1 = -log r and k3 = (r - 1) - log r need r = p/q; with q/p they estimate other quantities."""
    return (
        derive(expectation(-log(inverse_ratio), under=q)).equals(-KL(q, p)),
        derive(expectation(inverse_ratio - 1, under=q)).equals(chi2(q, p)),
        derive(expectation(-log(inverse_ratio), under=q)).differs_from(KL(q, p)),
        derive(expectation(inverse_ratio - 1 - log(inverse_ratio), under=q)).differs_from(KL(q, p)),
    )


@claim("value.zero-mean-variable", verdict="corrected", source="TM 2.1")
def zero_mean_variable():
    """The control variate is r - 1 with r = p/q; 1 - q/p has the expectation -chi^2(q||p)."""
    return (
        derive(expectation(r - 1, under=q)).equals(0),
        derive(expectation(1 - inverse_ratio, under=q)).equals(-chi2(q, p)),
        derive(expectation(1 - inverse_ratio, under=q)).differs_from(0),
    )


@claim("value.k3-bregman", source="WZ1 k3; WZ2 3.1")
def k3_is_a_bregman_divergence():
    """k3 is the difference between phi = -log and its tangent at r = 1."""
    return derive(bregman(-log(r))).equals(sample(k3))
