"""KL as a detached reward: the estimator multiplies the score function and is not differentiated.

Sources: WZ2 = Wang & Zhang 2025 (the later version); SH = Shah et al. 2025.
"""

from klsym.calculus import (
    KL,
    Function,
    beta,
    derive,
    expectation,
    grad,
    k,
    k1,
    k2,
    k3,
    lam,
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

h = Function("h")(k1)  # any reward that is a function of k1
b = parameter("b")


def rewarded(estimator):
    """E_q[s sg(estimator)], and sg dropped."""
    return derive(expectation(s * sg(estimator), under=q)).drop_stop_gradients()


@claim("reward.k1", source="WZ2 7.1; SH")
def k1_in_the_reward():
    """As a reward, k1 has the gradient of the reverse KL."""
    return rewarded(k1).equals(grad(KL(q, p)))


@claim("reward.k2", source="WZ2 7.1")
def k2_in_the_reward():
    """The pathwise part of grad E_q[k2], which is the gradient of the reverse KL, is missing."""
    return rewarded(k2).equals(grad(expectation(k2, under=q)) - grad(KL(q, p)))


@claim("reward.k3", source="WZ2 7.1; SH")
def k3_in_the_reward():
    """k3 as a reward has the gradient of the reverse KL minus that of the forward KL."""
    return rewarded(k3).equals(grad(KL(q, p)) - grad(KL(p, q)))


@claim("reward.k-lambda", source="new")
def k_lambda_in_the_reward():
    """The error is proportional to lam, the coefficient of the control variate."""
    return rewarded(k(lam)).equals(grad(KL(q, p)) - lam * grad(KL(p, q)))


@claim("reward.k1-unique", source="WZ2 7.2 (for k1, k2, k3); general case new")
def k1_is_the_only_reward():
    """A reward h(k1) has the gradient of the reverse KL if and only if h = k1 + b."""
    excess = expectation(s * sg(h), under=q) - grad(KL(q, p))
    return derive(excess).drop_stop_gradients().iff("h", is_=k1 + b, constants=(b,))


@claim("reward.offpolicy", source="WZ2 7.1")
def k1_in_the_reward_off_policy():
    """Off-policy the weight multiplies the policy-gradient term once."""
    chain = derive(expectation(rho * s * sg(k1), under=mu)).drop_stop_gradients()
    return chain.change_measure(to=q).equals(grad(KL(q, p)))


@claim("reward.double-weight", verdict="refuted", source="WZ2 7.1")
def weighting_twice():
    """A second weight inside the reward leaves one additional factor rho."""
    chain = derive(expectation(rho * s * sg(rho * k1), under=mu)).drop_stop_gradients()
    return chain.change_measure(to=q).differs_from(grad(KL(q, p)))


@claim("reward.samplewise-loss-equivalence", source="WZ2 8.1")
def loss_and_reward_agree_sample_by_sample():
    """The low-variance losses have the gradient of k1 in the reward, at every sample."""
    penalty = sample(-beta * rho * s * sg(k1))
    return (
        derive(-beta * sample_gradient(sg(rho) * k2)).differentiate().equals(penalty),
        derive(-beta * sample_gradient(rho * k3)).differentiate().equals(penalty),
    )
