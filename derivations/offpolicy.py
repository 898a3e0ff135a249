"""Off-policy losses: which importance weights, attached or detached, give which gradient.

Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions); TM = Tang & Munos 2025.
"""

from fractions import Fraction

from klsym.calculus import (
    KL,
    Function,
    R,
    beta,
    derive,
    expectation,
    expected_gradient,
    finite_model,
    grad,
    k1,
    k2,
    k3,
    log_mu,
    log_p,
    log_q,
    mu,
    p,
    parameter,
    q,
    rho,
    s,
    sample,
    sample_gradient,
    sg,
)
from klsym.study.ledger.registry import claim

f = Function("f")(log_q, log_p, log_mu)  # any differentiable function of the sample and theta
g = Function("g")(k1)  # any differentiable function of k1
above = Function("I")(log_q, log_p, log_mu)  # the indicator of rho > C
a, b, nu, C = (parameter(name) for name in ("a", "b", "nu", "C"))


@claim("offpolicy.weight-gradient", source="WZ1 Gradients with weights; WZ2 6.2")
def gradient_of_the_weight():
    """rho = q/mu with mu fixed, so its gradient is rho s."""
    return derive(sample_gradient(rho)).differentiate().equals(sample(rho * s))


@claim("offpolicy.per-sample", source="WZ1 Gradients with weights; WZ2 6.2")
def weighted_gradients_at_one_sample():
    """The product rule at each sample; in rho k3 all terms except k1 cancel."""
    return (
        derive(sample_gradient(rho * k1)).differentiate().equals(sample(rho * (k1 + 1) * s)),
        derive(sample_gradient(rho * k2)).differentiate().equals(sample(rho * (k2 + k1) * s)),
        derive(sample_gradient(rho * k3)).differentiate().equals(sample(rho * k1 * s)),
        derive(sample_gradient(sg(rho) * k2)).differentiate().equals(sample(rho * k1 * s)),
    )


@claim("offpolicy.rho-k1", source="WZ1 Gradients with weights; WZ2 6.2")
def weighted_k1():
    """The expectation is right; the 1 in k1 + 1 only adds noise."""
    return (
        derive(expected_gradient(rho * k1, under=mu))
        .differentiate()  # E_mu[rho (k1 + 1) s]
        .change_measure(to=q)  # E_q[(k1 + 1) s]
        .drop_score_mean(part=1)  # E_q[k1 s]
        .equals(grad(KL(q, p)))
    )


@claim("offpolicy.rho-k2", source="WZ1 Gradients with weights; WZ2 6.2")
def weighted_k2():
    """With the weight attached, k2 minimises its own expectation under q."""
    chain = derive(expected_gradient(rho * k2, under=mu)).differentiate().change_measure(to=q)
    return chain.equals(grad(expectation(k2, under=q)))


@claim("offpolicy.rho-k2-not-reverse", verdict="refuted", source="WZ1 trap 4; WZ2 6.2, 9.4")
def weighted_k2_is_not_the_reverse_kl():
    """E_q[k2] differs from the reverse KL, and so do the gradients."""
    chain = derive(expected_gradient(rho * k2, under=mu)).differentiate().change_measure(to=q)
    return chain.differs_from(grad(KL(q, p)))


@claim("offpolicy.sg-rho-k2", source="WZ1 Gradients with weights; WZ2 6.2")
def detached_weight_k2():
    """With a detached weight, the gradient is k1 s, weighted to q."""
    chain = derive(expected_gradient(sg(rho) * k2, under=mu)).differentiate().change_measure(to=q)
    return chain.equals(grad(KL(q, p)))


@claim("offpolicy.rho-k3", source="WZ1 Gradients with weights; WZ2 6.2")
def weighted_k3():
    """rho k3 has the value and the gradient of the reverse KL (the estimate of DeepSeek-V3.2)."""
    return (
        derive(expected_gradient(rho * k3, under=mu))
        .differentiate()  # E_mu[rho k1 s]
        .change_measure(to=q)  # E_q[k1 s]
        .equals(grad(KL(q, p))),
        derive(expectation(rho * k3, under=mu)).change_measure(to=q).equals(KL(q, p)),
    )


@claim("offpolicy.samplewise-equal", source="WZ1 Variance of the three; WZ2 6.2")
def two_losses_with_one_gradient():
    """sg(rho) k2 and rho k3 have the same gradient at every sample, hence the same moments."""
    return (
        derive(sample_gradient(sg(rho) * k2)).differentiate().equals(sample_gradient(rho * k3)),
        derive(sample_gradient(rho * k3)).differentiate().equals(sample(rho * k1 * s)),
    )


@claim("offpolicy.orders-agree", source="WZ1 Crucial observation; WZ2 6.2")
def orders_of_differentiation_agree():
    """mu does not depend on theta, so expectation and gradient commute."""
    return derive(grad(expectation(f, under=mu))).log_derivative().equals(expected_gradient(f, under=mu))


@claim("offpolicy.detach-trap", source="WZ1 trap 5")
def detaching_the_wrong_weight():
    """With a detached weight, k1 has expected gradient zero and k3 has the gradient of the forward KL."""

    def chain(loss):
        return derive(expected_gradient(loss, under=mu)).differentiate().change_measure(to=q)

    return chain(sg(rho) * k1).equals(0), chain(sg(rho) * k3).equals(grad(KL(p, q)))


@claim("offpolicy.unweighted", source="WZ1 trap 4; closed forms new")
def without_a_weight():
    """Unweighted losses descend functionals of mu; k1 even drives q away from mu.

    E_mu[k1] = KL(mu||p) - KL(mu||q) has no lower bound in q: the model with q = (2^-m, 1 - 2^-m) and
    p = mu uniform has the value (log(2 q_1) + log(2 q_2))/2, below -1000 at m = 3000, and
    below any bound for m large enough.
    """
    tiny, half = Fraction(1, 2**3000), "1/2"
    far_model = finite_model(q=[tiny, 1 - tiny], p=[half, half], mu=[half, half], u=[1, 0])
    reverse = grad(KL(q, p))
    k1_loss, k2_loss, k3_loss = (derive(expected_gradient(loss, under=mu)) for loss in (k1, k2, k3))
    return (
        k1_loss.differentiate().equals(-grad(KL(mu, q))),
        k2_loss.differentiate().equals(grad(expectation(k1**2, under=mu)) / 2),
        k3_loss.differentiate().equals(grad(expectation(k3, under=mu))),
        *(loss.differentiate().differs_from(reverse) for loss in (k1_loss, k2_loss, k3_loss)),
        derive(-expectation(k1, under=mu)).differs_from(1000, relation="<=", model=far_model),
    )


@claim(
    "offpolicy.squared-keeps-optimum",
    source="TM 6",
    reading=(
        "R = nu + beta*k1 says that q is the optimum, q proportional to p exp(R/beta) with normaliser nu",
        "a shifts the baseline nu: only a shifted baseline makes room for the affine term a*k1/beta",
    ),
)
def squared_loss_keeps_the_optimum():
    """Off-policy regression with k2 leaves the optimum where it is, for every sampler; no other loss does.

    With nu the exact normaliser g must be k2 + b: an affine term a k1 would leave a E_mu[s], which is not
    zero for mu other than q.  A baseline shifted by a admits k2 + (a/beta) k1 + b and nothing else.
    """
    exact = expected_gradient(beta * g - (R - nu) * log_q, under=mu)
    shifted = expected_gradient(beta * g - (R - nu + a) * log_q, under=mu)
    affine = expected_gradient(beta * (k2 + k1) - (R - nu) * log_q, under=mu)
    optimum = {"R": nu + beta * k1}

    def at_optimum(start):
        return derive(start, given=optimum).differentiate()

    return (
        at_optimum(exact).iff("g", is_=k2 + b, constants=(b,), coordinate="w"),
        at_optimum(shifted).iff("g", is_=k2 + a * k1 / beta + b, constants=(b,), coordinate="w"),
        at_optimum(affine).differs_from(0),
    )


@claim(
    "offpolicy.truncated-weight",
    source="new",
    instances={"I": lambda k1, log_q, w: (w.real > 0.25) * 1.0},
    reading=("I is the indicator of rho > C, so that rho - I*(rho - C) is min(rho, C)",),
)
def truncated_weight():
    """Truncating the weight at C subtracts (1 - C/rho)_+ k1 s from the gradient of the reverse KL."""
    weight = rho - above * (rho - C)
    lost = expectation(above * (1 - C / rho) * k1 * s, under=q)
    chain = derive(expected_gradient(sg(weight) * k2, under=mu)).differentiate()
    return chain.change_measure(to=q).equals(grad(KL(q, p)) - lost)
