"""Piecewise losses, many of which meet a tie at every sample.

On-policy rho is 1 and log q - log mu is 0, and x - sg(x) is 0 in any case: clip, min, max and abs of these
sit on a kink at each sample, where the slope is a convention.  Any other bound is met with probability zero.
"""

from __future__ import annotations

from support.losses.random_losses import Case, generate

ON_POLICY_TIES = (
    "clip(rho, 1, 2)*A", "clip(rho, 0.5, 1)*A", "clip(log_q - log_mu, 0, 3)*A", "clip(rho, 1, 1)*A",
    "min(rho*A, clip(rho, 1, 1.2)*A)", "min(rho, 1)*A", "max(rho, 1)*k1", "abs(rho - 1)*A + rho*R",
    "min(rho*A, A)", "max(rho*A, A)", "min(rho, 1, sg(rho))", "max(min(rho, 1), 0.9)*A", "min(rho, 1)**2*A",
    "clip(min(rho, 1), 1, 2)*A", "clip(rho, 1, 2)*clip(rho, 0.5, 1)*A", "rho*clip(rho, 1, 3)*k1",
    "clip(2*rho, 2, 3)*A", "clip(-rho, -1, 0)*A", "clip(1, rho, 2)*A", "clip(1/2, 0, rho)*A",
    "clip(3, 0, rho)*k1", "abs(log_q - log_mu)*k1", "exp(abs(log_q - log_mu))*A",
    "exp(clip(log_q - log_mu, 0, 1))*k1", "log(1 + max(rho, 1))*A", "sqrt(max(rho, 1))*A",
    "min(rho, 1)/max(rho, 1)*A", "max(k1*rho, k1)", "min(k3*rho, k3)", "min(1/rho, 1, 1 + k1)",
    "min(2*rho, 2, 2 + k1)*sg(k3) + rho*k1", "max(rho, 2 - rho)*k1", "min(rho**2, rho)*A",
)  # fmt: skip
TIES = (
    "max(k1, sg(k1))", "abs(k1 - sg(k1))", "min(k2, sg(k2))", "max(k3, sg(k3))*2", "max(rho, sg(rho))*k1",
    "clip(k1, sg(k1), sg(k1) + 1)", "clip(k1, sg(k1) - 1, sg(k1))*A", "min(k1, sg(k1), 0.2)",
    "abs(k2 - sg(k2)) + k2", "clip(r, sg(r), 2*sg(r))", "min(rho*k1, sg(rho)*k1)", "max(sg(k1), k1, -0.1)",
    "clip(k1, sg(k1), sg(k1))*rho", "max(2*k1 - sg(k1), k1)", "clip(sg(k1), k1, 3)*A",
    "max(k1 - sg(k1), min(k1, 0))", "clip(max(k1 - sg(k1), min(k1, 0)), 0, 1)*A",
)  # fmt: skip
HIDDEN = (  # a named target, or a constant coefficient
    "clip(k2 - sg(log_q) + 3*k3 + rho + log_q, -0.4, 0.9)", "max(k1, 0) + min(k1, 0)", "max(r - 1, -k1)",
    "clip(k1, -1, 1) + max(k1, 1) + min(k1, -1)", "min(k1, r) + max(k1, r) - r", "abs(k1) - 2*max(k1, 0)",
    "max(k2, k3) + min(k2, k3) - k3", "abs(k1)*max(k1, 0) - abs(k1)*min(-k1, 0)", "max(k1, -r) + k3",
    "max(k1, 0)*min(k1, 0) + k2", "max(max(k1, 0), -1)*2 - abs(k1) - k1 + k2", "min(rho, 1 + log(rho))",
    "clip(clip(k1, -0.5, 0.5), -1, 1) - clip(k1, -0.5, 0.5) + k2", "sg(min(rho, 1.1))*k2",
    "exp(abs(k1)) + exp(-abs(k1)) - 1/r - r + k2", "min(abs(k1), 0.3) + max(abs(k1), 0.3) - abs(k1) + k3",
    "clip(A, -1, 1)*log_q",
    "-min(rho*A, clip(rho, 0.8, 1.2)*A) + beta*rho*k3", "max(A, 0)*rho + min(A, 0)*log_q",
)  # fmt: skip
UNNAMED = (
    "sqrt(2)*abs(k1)", "sqrt(2)*clip(k1, -0.3, 0.3)", "log(2)*max(k2, 0.1)", "abs(A)*k1*rho", "min(R, A)*k1",
    "max(min(rho*A, clip(rho, 0.8, 1.2)*A), 3*A)", "clip(k3, 0, 0.2)", "abs(k1)", "abs(k1)*rho*A",
    "min(rho*A, clip(rho, 0.8, 1.2)*A)", "min(rho, 1.1)*k3", "clip(k1, -0.4, 0.4)*rho", "max(k2, 0.1)",
    "clip(R, -1, 1) - beta*k1", "exp(-abs(k1))", "log(1 + abs(k1))", "1/(1 + max(k1, 0))", "abs(k1 + A)",
    "min(k3, 1/2, r)", "clip(max(k1, 0), 0, 0.5)", "min(k1, -r/5)*max(rho, r)", "max(r, 1/r)",
    "clip(1/r, 0.7, 1.4)", "abs(A - 1/3)*rho*k3", "max(clip(k1, -0.3, 0.3), k2)*rho",
)  # fmt: skip
CROSSING = (  # lo > hi at some samples, or at all
    "clip(k1, r, 1)", "clip(k1, k2, k3)", "clip(r, 2*k3, 0.9)", "clip(k1, sg(k1) + A, 0.5)", "clip(A, k1, r)",
    "clip(rho, r, 1.1)*A", "clip(k2, 0.3, sg(r))", "clip(k1, log_q, log_p)", "clip(rho, 1.5*r, r)*R",
    "clip(k1, abs(k1), r)", "clip(k1, r, 2)", "clip(rho, r + 1, sg(r))*k1",
)  # fmt: skip
PARAMETERS = (
    "clip(rho, 1 - eps, 1 + eps)*A", "min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)", "clip(k1, -eps, beta)*rho",
    "clip(rho, 1 - eps, 1 + alpha)*A", "clip(k2, 0, lam)", "clip(rho, 1 - eps**2, 1 + eps**2)*k1",
    "max(k1, eps)*A", "clip(rho, eps, beta)*k1",
)  # fmt: skip


def cases(seed: int, count: int) -> list[Case]:
    """The written losses on-policy where ties are met there, otherwise in turn; and random ones."""
    on_policy = [Case(text, "on-policy", "loss", ring=False) for text in (*ON_POLICY_TIES, *TIES, *HIDDEN)]
    others = (*UNNAMED, *CROSSING, *PARAMETERS, *TIES)
    turns = [
        Case(text, ("off-policy", "on-policy")[i % 2], "loss", ring=False) for i, text in enumerate(others)
    ]
    random = [generate("ties", seed, number) for number in range(count)]
    return [*dict.fromkeys(on_policy + turns), *random]
