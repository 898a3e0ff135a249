"""Batches of n independent samples: what centring does to a KL penalty (WZ2; TM 3), n symbolic.

A batch mean is kbar = (k_i + sum_{j != i} k_j)/n, the mean of the others kbar_-i = sum_{j != i} k_j/(n - 1).
own(.) speaks of sample i, others(.) of the sum over all j != i.
"""

from klsym.calculus import (
    KL,
    R,
    beta,
    derive,
    expectation,
    grad,
    k1,
    mean_over_i,
    others,
    own,
    p,
    parameter,
    q,
    s,
)
from klsym.study.ledger.registry import claim

n, m = parameter("n"), parameter("m")
SIZE = ((n, m + 1),)  # m = n - 1, so that 1/m is in the ring
PAIR = ((n, 2),)
BATCH = ("x_1..x_n are independent samples of q; mean_i is the mean over them",)


def batch_mean(a):
    return (own(a) + others(a)) / n


def leave_one_out(a):
    """The mean over the n - 1 others, with m = n - 1."""
    return others(a) / m


def penalty(h):
    """E_q[mean_i h_i s_i] for a detached coefficient h of sample i."""
    return derive(mean_over_i(h * own(s), under=q))


@claim("batch.no-centering", source="WZ2 8", reading=BATCH)
def no_centring():
    """Each term of the mean over the batch has the expectation of a single sample."""
    return penalty(own(k1)).equals(grad(KL(q, p)))


@claim("batch.mean-centering", source="WZ2 8", reading=BATCH)
def mean_centring():
    """The mean of the batch contains the sample itself with weight 1/n, which removes 1/n of its penalty."""
    return penalty(own(k1) - batch_mean(k1)).equals((1 - 1 / n) * grad(KL(q, p)))


@claim(
    "batch.leave-one-out",
    source="WZ2 8; TM 3",
    reading=(*BATCH, "m stands for n - 1, n at least 2; the mean is the same for any other m"),
)
def leave_one_out_centring():
    """The mean of the other samples is independent of sample i: its product with s has expectation zero."""
    return penalty(own(k1) - leave_one_out(k1)).equals(grad(KL(q, p)))


@claim(
    "batch.centering-identity",
    source="new",
    reading=("at each i of any n >= 2 numbers k_1..k_n, m = n - 1", "(1 - 1/n) n/(n - 1) = 1"),
)
def centring_is_leave_one_out_scaled():
    """k_i - kbar = (1 - 1/n)(k_i - kbar_-i) for all numbers k_1..k_n."""

    def sample(a):
        return mean_over_i(a, under="sample")

    return (
        derive(sample(own(k1) - batch_mean(k1)), premises=SIZE).equals(
            (1 - 1 / n) * sample(own(k1) - leave_one_out(k1)), using=[(0, None)]
        ),
        derive(sample(n / m * (own(k1) - batch_mean(k1))), premises=SIZE).equals(
            sample(own(k1) - leave_one_out(k1)), using=[(0, None)]
        ),
    )


@claim("batch.reward-only-centering", source="WZ2 8", reading=BATCH)
def centring_the_reward_alone():
    """The factor 1 - 1/n multiplies the terms that are centred by the batch mean, and no others."""
    reward, kl = grad(expectation(R, under=q)), grad(KL(q, p))
    shaped = own(R) - beta * own(k1)
    return (
        penalty(own(R) - batch_mean(R) - beta * own(k1)).equals((1 - 1 / n) * reward - beta * kl),
        penalty(shaped - batch_mean(R) + beta * batch_mean(k1)).equals(
            (1 - 1 / n) * reward - (1 - 1 / n) * beta * kl
        ),
    )


@claim(
    "batch.std-normalisation-pair",
    source="new (group normalisation at n = 2)",
    reading=(
        "others(k1) is the one other k, kbar = (k_1 + k_2)/n and std^2 = mean_i (k_i - kbar)^2",
        "by the second part ((k_i - kbar)/std)^2 = 1 wherever k_1 != k_2, so with the first (k_i - kbar)/std"
        " is the sign of k_i - k_j: 1 or -1, for an advantage -beta k as for k, whatever their size",
        "with the variance over n - 1 = 1 it is that sign over sqrt(2)",
    ),
)
def normalising_a_pair():
    """The two deviations of a pair differ only in sign; each divided by the spread is 1 or -1."""

    def sample(a):
        return mean_over_i(a, under="sample")

    mean = batch_mean(k1)
    variance = ((own(k1) - mean) ** 2 + (others(k1) - mean) ** 2) / n
    return (
        derive(sample(own(k1) - mean), premises=PAIR).equals(
            sample(own(k1) - others(k1)) / 2, using=[(0, None)]
        ),
        derive(sample((own(k1) - mean) ** 2), premises=PAIR).equals(sample(variance), using=[(0, None)]),
    )
