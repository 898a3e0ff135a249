"""Clamps and clipped surrogates: what a bound does to the KL that stands inside it.

Outside the clip range a clamp is a number independent of theta, and its gradient is 0.  So a clamped loss is
M L + (1 - M) b with M = 1 inside the clip range, 0 outside, and b the bound; autograd does not differentiate
M.  The theorems hold for every mask M that is free of theta, hence, at each theta, for the
region of any clamp.  At a bound itself M is what the code has: torch.clamp passes the slope on up to 2.13.
"""

from klsym.calculus import (
    KL,
    A,
    Function,
    M,
    beta,
    derive,
    expectation,
    expected_gradient,
    finite_model,
    grad,
    k1,
    k3,
    log_mu,
    log_p,
    log_q,
    mu,
    p,
    q,
    r,
    rho,
    s,
    sg,
)
from klsym.study.ledger.registry import claim

bound = sg(Function("b")(log_q, log_p, log_mu))  # the clamp outside its range
outside = 1 - M  # 1 outside the clip range


@claim("clip.clamped-k3-loss", source="NEW (clamps found in training code)")
def clamped_k3_loses_the_forward_kl_outside():
    """clamp(k3, lo, hi) is k3 between its bounds and constant outside, where its gradient is zero.

    On a model in which one of two outcomes is clamped, the gradient is that of neither KL.
    """
    clamped = expected_gradient(M * k3 + outside * bound, under=q)
    lost = expectation(outside * (1 - r) * s, under=q)
    model = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0], M=[1, 0])
    return (
        derive(clamped).differentiate().equals(grad(KL(p, q)) - lost),
        derive(expected_gradient(M * k3, under=q)).differs_from(grad(KL(p, q)), model=model),
        derive(expected_gradient(M * k3, under=q)).differs_from(grad(KL(q, p)), model=model),
    )


@claim("clip.ppo-reward", source="SH review (asked there): NEW")
def the_clip_masks_a_kl_in_the_advantage():
    """A clipped surrogate is -(M rho + (1 - M) b) times the advantage, with M = 1 where the clip does not
    bind. With A - beta k1 as the advantage, the KL has a gradient only where M = 1; a separate KL loss has
    one at every sample."""
    weight = M * rho + outside * bound
    inside = expected_gradient(-weight * (A - beta * sg(k1)), under=mu)
    beside = expected_gradient(-weight * A + beta * rho * k3, under=mu)
    surrogate = -expectation(M * A * s, under=q)
    masked = beta * expectation(rho * M * k1 * s, under=mu)
    lost = beta * expectation(outside * k1 * s, under=q)
    model = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0], M=[1, 0])
    return (
        derive(inside).differentiate().equals(masked - expectation(rho * M * A * s, under=mu)),
        derive(inside).differentiate().change_measure(to=q).equals(surrogate + beta * grad(KL(q, p)) - lost),
        derive(beside).differentiate().change_measure(to=q).equals(surrogate + beta * grad(KL(q, p))),
        derive(expectation(rho * M * k1 * s, under=mu)).differs_from(grad(KL(q, p)), model=model),
    )
