"""Losses that trainers ship: clips, truncated weights, masks, means over kept tokens, truncated samplers.

A bound splits the samples: is_high is 1 where the upper one binds, is_low where the lower one does, is_above
and is_below where one of two values is the greater, and 0 elsewhere.  Autograd does not differentiate them.
"""

import itertools
from fractions import Fraction

import numpy as np

from klsym.calculus import (
    KL,
    A,
    M,
    beta,
    curl,
    derive,
    eps,
    expectation,
    grad,
    k1,
    k2,
    length,
    loss_gradient,
    mu,
    now,
    p,
    q,
    r,
    region,
    rho,
    s,
    token_gradient,
)
from klsym.notation.printers import LATEX
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

high, low, pos, neg, above, below = map(region, ("high", "low", "pos", "neg", "above", "below"))
NOT_CLIPPED = 1 - high * pos - low * neg
CLIP = "-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)"
ADVANTAGE = grad(expectation(A, under=q))


# ---------------------------------------------------------------------------- bounds
@claim("shipped.ppo-clip", source="Schulman et al. 2017 (arXiv 1707.06347, eq. 7)")
def clipped_surrogate():
    """A clipped sample has gradient zero; the others have the gradient of the advantage with the weight q/mu.
    The loss is continuous, so its gradient is also that of its own expectation."""
    start = loss_gradient(CLIP, sampling="off-policy")
    surrogate = -rho * A + high * pos * A * (rho - 1 - eps) + low * neg * A * (rho - 1 + eps)
    lost = expectation((1 - NOT_CLIPPED) * rho * A * s, under=mu)
    return (
        start.differentiate().equals(-expectation(NOT_CLIPPED * rho * A * s, under=mu)),
        start.differentiate().equals(grad(expectation(surrogate, under=mu))),
        start.differentiate().equals(lost - ADVANTAGE),
        start.differentiate().differs_from(-ADVANTAGE),
    )


@claim(
    "shipped.truncated-weight",
    source="CISPO (arXiv 2506.13585) and truncated importance sampling; new",
    reading=("beta is the bound on the weight; is_above is 1 where rho < beta",),
)
def truncated_weight():
    """Where the weight is truncated, the gradient lacks (rho - bound) times the advantage."""
    start = loss_gradient("-sg(min(rho, beta))*A*log_q", sampling="off-policy").differentiate()
    missed = expectation((1 - above) * (rho - beta) * A * s, under=mu)
    return start.equals(missed - ADVANTAGE), start.differs_from(-ADVANTAGE)


@claim(
    "shipped.clamped-k3",
    source="new (clamps of the penalty in released trainers)",
    reading=(
        "beta is the bound; is_above is 1 where k3 < beta, is_below where k3 > beta; a sample at the"
        " bound itself has half of its gradient, as torch.minimum has it",
    ),
)
def clamped_penalty():
    """If k3 exceeds its bound the penalty has gradient zero, and there the two policies differ most."""
    start = loss_gradient("min(k3, beta)").differentiate()
    kept = (1 + above - below) / 2
    return (
        start.equals(expectation(kept * (1 - r) * s, under=q)),
        start.equals(grad(KL(p, q)) - expectation((1 - kept) * (1 - r) * s, under=q)),
        start.differs_from(grad(KL(p, q))),
    )


# ---------------------------------------------------------------------------- masks
@claim(
    "shipped.ratio-mask",
    source="IcePop, KPop, DPPO (masks of a ratio); new",
    reading=(
        "the ratio is kept within 1 - eps and 1 + eps: is_case is 1 where rho < 1 + eps, is_case2 where"
        " rho > 1 - eps; is_high and is_low are 1 outside",
        "M is 0 or 1 at every sample, and free of theta",
    ),
)
def mask_of_a_ratio():
    """A detached mask of the ratio has the gradient of a clipped surrogate; a fixed mask has that of E_q[M
    A]."""
    mask = "sg(where(1 - eps < rho and rho < 1 + eps, rho, 0))*A*log_q"
    masked = loss_gradient(mask, sampling="off-policy").differentiate()
    clipped = loss_gradient("clip(rho, 1 - eps, 1 + eps)*A", sampling="off-policy").differentiate()
    bounded = rho - high * (rho - 1 - eps) - low * (rho - 1 + eps)
    fixed = derive(expectation(M * rho * A * s, under=mu))
    return (
        masked.equals(expectation(region("case") * region("case2") * rho * A * s, under=mu)),
        clipped.equals(expectation((1 - high - low) * rho * A * s, under=mu)),
        clipped.equals(grad(expectation(bounded * A, under=mu))),
        fixed.equals(grad(expectation(M * A, under=q))),
        masked.differs_from(ADVANTAGE),
        fixed.differs_from(ADVANTAGE),
    )


@claim(
    "shipped.kept-token-mean",
    verdict="refuted",
    source="new (means over kept tokens)",
    reading=("M is the mask of a token; the counterexample keeps every token, so that whole(M) is T",),
)
def mean_over_kept_tokens():
    """The mean over the kept tokens is the gradient of no function; with M = 1 it is the mean over T."""
    return derive(curl(now(k2) / length, under=q)).differs_from(0)


# ---------------------------------------------------------------------------- samplers
@claim(
    "shipped.truncated-sampler",
    source="new (top-p and top-k samplers; TRL issues 6789, 7269)",
    reading=(
        "the sampler is M mu/S, S = E_mu[M]: its mean of f is E_mu[M f]/S, and its ratio to q is S rho where"
        " it draws, so that S goes out of its weighted mean",
        "A is any function of the sample that is free of theta",
    ),
)
def truncated_sampler():
    """The weight q/sampler corrects the outcomes that the sampler draws; E_q[(1 - M) f] is missing."""
    lost = expectation((1 - M) * A * s, under=q)
    return (
        derive(expectation(M * rho * A, under=mu)).equals(expectation(M * A, under=q)),
        derive(expectation(M * rho * A * s, under=mu)).equals(ADVANTAGE - lost),
        derive(expectation(M * rho * A, under=mu)).differs_from(expectation(A, under=q)),
    )


# ---------------------------------------------------------------------------- rewards
@claim(
    "shipped.two-normalised-rewards",
    verdict="refuted",
    source="GDPO (arXiv 2601.05242): each reward normalised in its group, then added",
    reading=(
        "printed nowhere: our reading of what adding normalised rewards would have to mean",
        "normalised(x) is x less its mean over the group, over its standard deviation; 0 where all are equal",
    ),
)
def two_normalised_rewards():
    """In a group of two, normalised rewards are signs, and their expected gradient has a curl."""
    return _turning()


LEVELS = ((0, 1, 2), (0, 0, 1))  # two rewards of three outcomes, which are drawn alike


def _turning():
    curl_of = _curl_of_signs(LEVELS, (Fraction(1, 3),) * 3)
    return Evidence(
        "refuted",
        "for every n the expected gradient of normalised(R1) + normalised(R2) is the gradient of a function",
        r"\mathbb{E}_q[(\mathrm{normalised}(R_1) + \mathrm{normalised}(R_2))\, s] = \nabla J",
        "sympy",
        (
            f"n = 2, three outcomes with q = 1/3 each, R1 = {LEVELS[0]}, R2 = {LEVELS[1]}: the field"
            f" F_k = q_k sum_j q_j K_kj, K_kj = sign(R1_k - R1_j) + sign(R2_k - R2_j), has"
            f" dF_3/dz_1 - dF_1/dz_3 = {curl_of}",
        ),
        _turns_in_floats,
        (
            ("of softmax logits z",
             r"\partial_j F_k - \partial_k F_j = 2 K_{kj} q_k q_j - 2 (q_j F_k - q_k F_j)"),
            ("there", rf"\partial_1 F_3 - \partial_3 F_1 = {LATEX.number(curl_of)}"),
        ),
        holds=curl_of != 0,
    )  # fmt: skip


def _signs(rewards, k, j):
    return sum((x[k] > x[j]) - (x[k] < x[j]) for x in rewards)


def _curl_of_signs(rewards, chances):
    """dF_3/dz_1 - dF_1/dz_3, exactly."""
    field = [x * sum(y * _signs(rewards, k, j) for j, y in enumerate(chances)) for k, x in enumerate(chances)]
    first, last = chances[0], chances[2]
    return 2 * _signs(rewards, 2, 0) * first * last - 2 * (first * field[2] - last * field[0])


def _turns_in_floats():
    """The field by its definition, over all pairs that can be drawn, differentiated by differences."""

    def field(z):
        chances = np.exp(z) / np.exp(z).sum()
        total = np.zeros(3)
        for pair in itertools.product(range(3), repeat=2):
            values = np.array([[x[i] for i in pair] for x in LEVELS], float)
            spread = values.std(axis=1, keepdims=True)
            pushes = np.divide(values - values.mean(axis=1, keepdims=True), spread, where=spread > 0,
                               out=np.zeros_like(values)).sum(axis=0)  # fmt: skip
            for i, push in zip(pair, pushes, strict=True):
                total += chances[pair[0]] * chances[pair[1]] * push / 2 * (np.eye(3)[i] - chances)
        return total

    step = 1e-5
    slopes = np.array([(field(step * e) - field(-step * e)) / (2 * step) for e in np.eye(3)])
    found, stated = slopes[0, 2] - slopes[2, 0], float(_curl_of_signs(LEVELS, (Fraction(1, 3),) * 3))
    return abs(found - stated) < 1e-8, f"differences of the field over all pairs: {found:.9f}"


@claim(
    "shipped.weights-of-sequences",
    source="new (losses of sequences that are weighted; cf. arXiv 2601.05002, shared prefixes)",
    reading=("A is the weight of a sequence, free of theta; now(.) is of one token",),
)
def weights_of_sequences():
    """The sampled k1 of every token, weighted by sequence, minimises the mean weight for every p."""
    loss = token_gradient(A * now(k1), under=q)
    reward = expectation(A * k1 * s, under=q)
    return (
        derive(loss).equals(grad(expectation(A, under=q))),
        derive(reward).equals(grad(expectation(A * (k1 - 1), under=q))),
        derive(reward).differs_from(grad(KL(q, p))),
    )
