"""On-policy gradients of differentiable losses: what each estimator really descends.

Sources: WZ1, WZ2 = Wang & Zhang 2025 (two versions); TM = Tang & Munos 2025; SH = Shah et al. 2025.
"""

from math import e

from klsym.calculus import (
    KL,
    Function,
    count,
    derive,
    exp,
    expectation,
    expected_gradient,
    grad,
    k,
    k1,
    k2,
    k3,
    lam,
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
from klsym.study.ledger.registry import claim

f = Function("f")(log_q, log_p, log_mu)  # any differentiable function of the sample and theta
g = Function("g")(k1)  # any differentiable function of k1
a, b = parameter("a"), parameter("b")


@claim("gradient.score-mean-zero", source="WZ1 True gradients; WZ2 2.1; TM eq. 2")
def score_has_mean_zero():
    """The total mass of q is one for every theta, so the score function has expectation zero."""
    return (
        derive(expectation(s, under=q)).drop_score_mean().equals(0),
        derive(expectation(b * s, under=q)).drop_score_mean().equals(0),
    )


@claim("gradient.reverse-kl", source="WZ1 True gradients; WZ2 2.1; TM 3")
def reverse_kl_gradient():
    """grad KL(q||p) has the score form k1 s; the constant has expectation zero."""

    def chain():
        return derive(grad(KL(q, p))).log_derivative().differentiate().drop_score_mean(part=1)

    return (
        chain().equals(expectation(k1 * s, under=q)),
        chain().equals(expectation(-log(r) * s, under=q)),
    )


@claim("gradient.forward-kl", source="WZ1 True gradients; WZ2 2.1; TM app. A")
def forward_kl_gradient():
    """p does not depend on theta, so only the integrand of grad KL(p||q) is differentiated."""

    def chain():
        return derive(grad(KL(p, q))).log_derivative().differentiate()

    return (
        chain().equals(-expectation(s, under=p)),
        chain().change_measure(to=q).equals(-expectation(r * s, under=q)),
        chain().change_measure(to=q).equals(expectation((1 - r) * s, under=q)),
    )


@claim("gradient.per-sample", source="WZ1 Gradients of the three estimators; WZ2 6.1")
def gradients_at_one_sample():
    """The gradient that automatic differentiation computes at each sample."""
    return (
        derive(sample_gradient(k1)).differentiate().equals(sample(s)),
        derive(sample_gradient(k2)).differentiate().equals(sample(k1 * s)),
        derive(sample_gradient(k2)).differentiate().equals(sample(-log(r) * s)),
        derive(sample_gradient(k3)).differentiate().equals(sample((1 - r) * s)),
    )


@claim("gradient.k1-loss", source="WZ1 trap 1; WZ2 9.4; TM eq. 2; SH")
def k1_as_a_loss():
    """The loss k1 has expected gradient zero: it only adds noise."""
    return derive(expected_gradient(k1, under=q)).differentiate().drop_score_mean().equals(0)


@claim("gradient.k2-loss", source="WZ1 Gradients of the three estimators; WZ2 6; TM 3")
def k2_as_a_loss():
    """k2, whose value is biased, has the gradient of the reverse KL."""
    return derive(expected_gradient(k2, under=q)).differentiate().equals(grad(KL(q, p)))


@claim("gradient.k3-loss", source="WZ1 trap 2; WZ2 9.4; TM eq. 3; SH")
def k3_as_a_loss():
    """k3, whose value estimates the reverse KL, has the gradient of the forward KL."""
    return derive(expected_gradient(k3, under=q)).differentiate().equals(grad(KL(p, q)))


@claim("gradient.k3-loss-not-reverse", verdict="refuted", source="WZ1 trap 2; WZ2 9.4; TM eq. 3; SH")
def k3_as_a_loss_is_not_the_reverse_kl():
    """The two gradients differ in a model with two outcomes."""
    return derive(expected_gradient(k3, under=q)).differentiate().differs_from(grad(KL(q, p)))


@claim(
    "gradient.k-lambda-loss", verdict="corrected", source="TM 3 (the gradient sign is left out)", slip=True
)
def k_lambda_as_a_loss():
    """The gradient comes from the control variate alone, and is proportional to lam."""
    chain = derive(expected_gradient(k(lam), under=q)).differentiate()
    return (
        chain.equals(lam * grad(KL(p, q))),
        chain.differs_from(lam * KL(p, q)),
    )


@claim("gradient.orders-differ", source="WZ1 Expectation-then-grad; WZ2 6.1")
def orders_of_differentiation_differ():
    """Under q, the gradient of the expectation and the expectation of the gradient differ."""
    return (
        derive(grad(expectation(k1, under=q))).equals(grad(KL(q, p))),
        derive(grad(expectation(k3, under=q))).equals(grad(KL(q, p))),
        derive(expected_gradient(k1, under=q)).differentiate().equals(0),
        derive(expected_gradient(k3, under=q)).differentiate().equals(grad(KL(p, q))),
    )


@claim("gradient.two-parts", source="TM app. B", instances={"f": lambda k1, log_q, w: e ** (-k1) - 1 + k1})
def score_part_and_path_part():
    """grad E_q[f] has a pathwise part and a score part.

    With both, any unbiased estimator has the right gradient.
    """
    both = expected_gradient(f, under=q) + expectation(f * s, under=q)
    unbiased = (KL(q, p), expectation(f, under=q))
    return (
        derive(grad(expectation(f, under=q))).log_derivative().equals(both),
        derive(both, premises=(unbiased,)).equals(grad(KL(q, p))),
    )


@claim("gradient.surrogate", source="TM 3")
def surrogate_loss():
    """sg(k1) log q has the same gradient as k2 at every sample."""
    chain = derive(sample_gradient(sg(k1) * log_q)).differentiate()
    return chain.equals(sample_gradient(k2)), chain.equals(sample(k1 * s))


@claim("gradient.k2-unique", source="WZ1 (only correct choice); WZ2 6; TM 6; proof new")
def k2_is_the_only_choice():
    """A loss g(k1) has the gradient of the reverse KL if and only if g = k2 + a k1 + b.

    E_q[(g' - k1) s] = 0 for all q and p makes g' - k1 constant, and two integrations give the family.
    """
    excess = expected_gradient(g, under=q) - grad(KL(q, p))
    return derive(excess).differentiate().iff("g", is_=k2 + a * k1 + b, constants=(b, a))


@claim("gradient.straight-through", source="new")
def straight_through():
    """The value of k3 with the gradient of k2."""
    loss = k2 - sg(k2) + sg(k3)
    return (
        derive(sample(loss)).drop_stop_gradients().equals(sample(k3)),
        derive(expected_gradient(loss, under=q)).differentiate().equals(grad(KL(q, p))),
    )


@claim("gradient.explicit-rho", source="WZ2 2.1, 6.2, 9.4")
def explicit_weight_on_policy():
    """On-policy, rho = q/sg(q) has the value one and the gradient s; the constant 1 has no gradient."""

    def with_weight(loss):
        return derive(expected_gradient(loss, under=mu), on_policy=True).differentiate()

    return (
        with_weight(rho * k1).equals(grad(KL(q, p))),
        with_weight(sg(rho) * k2).equals(grad(KL(q, p))),
        with_weight(rho * k3).equals(grad(KL(q, p))),
        with_weight(rho * k2).equals(grad(expectation(k2, under=q))),
        derive(expected_gradient(k1, under=q)).differentiate().equals(0),
        derive(expected_gradient(k2, under=q)).differentiate().equals(grad(KL(q, p))),
        derive(expected_gradient(k3, under=q)).differentiate().equals(grad(KL(p, q))),
    )


@claim("gradient.appendix-a-sign", verdict="corrected", source="TM app. A step (c)", slip=True)
def sign_in_the_forward_gradient():
    """The formula has one minus sign, not two: -E_q[r s] = -E_p[s] = grad KL(p||q)."""
    return (
        derive(-expectation(r * s, under=q)).change_measure(to=p).equals(-expectation(s, under=p)),
        derive(-expectation(s, under=p)).equals(grad(KL(p, q))),
        derive(-expectation(-r * s, under=q)).differs_from(grad(KL(p, q))),
    )


@claim("gradient.analytic", source="TM eq. 5")
def analytic_gradient():
    """The sum over all outcomes is the expectation of the vanilla estimate, which has a variance in addition.
    The sum itself is not random; Var((k1 s).u) >= 0 in every direction u."""
    mean, square = expectation(k1 * s, under=q), expectation((k1 * s) ** 2, under=q)
    return (
        derive(expectation(exp(log_q) * k1 * s, under=count)).change_measure(to=q).equals(grad(KL(q, p))),
        derive(mean * mean).at_most(square, rows=[{"variance": k1, "at": q, "power": 1}]),
    )
