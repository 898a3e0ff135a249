"""Rewards of a group: divided by their mean (MaxRL), and less a mean that is weighted by lengths (OPO)."""

from fractions import Fraction
from itertools import product
from math import prod

import sympy

from klsym.calculus import R, derive, expectation, grad, mean_over_i, others, own, q, s
from klsym.derivations.batches import n
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim
from klsym.worlds.draw import build_one_node

J = expectation(R, under=q)
SUCCEEDING = others(R)  # the successes among the other samples
SLOPE = expectation(R * s, under=q)  # grad J
TWO, THREE = ((n, 2),), ((n, 3),)
SUCCESSES = (
    "x_1..x_n are independent samples of q; R is 0 or 1, so that E_q[R^2] = E_q[R] = J",
    "K is the sum of R over the batch: 1 + R_others where R_self = 1",
    "at n = 2, 1/(1 + R_others) is 1 - R_others/2; at n = 3 it is 1 - 2 R_others/3 + R_others^2/6",
)
WORLD = (Fraction(1, 5), Fraction(1, 2), Fraction(3, 10)), (1, 0, 1)  # chances and rewards


def _sum_over_batches(chances, size, coefficient):
    """E[mean_i c_i s_i] along the logit of each outcome, over all batches; c of the batch and i."""
    total = [Fraction(0)] * len(chances)
    for batch in product(range(len(chances)), repeat=size):
        chance = prod(chances[y] for y in batch)
        for i, y in enumerate(batch):
            push = chance * coefficient(batch, i) / size
            for j, x in enumerate(chances):
                total[j] += push * ((y == j) - x)
    return total


def _compute_gradient(chances, rewards):
    """grad E_q[R] along the logit of each outcome."""
    mean = sum(x * R for x, R in zip(chances, rewards, strict=True))
    return [x * (R - mean) for x, R in zip(chances, rewards, strict=True)]


def _compare_over_batches(coefficient, order):
    """Is E[mean_i c_i s_i] = (1 + .. + (1-J)^(order(n) - 1)) grad J at n = 2..5?"""
    chances, rewards = WORLD
    failure = 1 - sum(x * R for x, R in zip(chances, rewards, strict=True))
    for size in range(2, 6):
        factor = sum(failure**k for k in range(order(size)))
        found = _sum_over_batches(
            chances, size, lambda batch, i, n=size: coefficient([rewards[y] for y in batch], i, n)
        )
        if found != [factor * x for x in _compute_gradient(chances, rewards)]:
            return False, f"all batches of {size}: {[str(x) for x in found]}"
    return True, "all batches of 2, 3, 4 and 5 over three outcomes, in exact fractions: equal"


# ---------------------------------------------------------------------------- rewards over their mean
@claim(
    "methods.maxrl-order",
    source="MaxRL (arXiv 2602.02710), made exact",
    reading=(
        *SUCCESSES,
        "the second part is 3 - 3 J + J^2 times grad J, as E_q[R^2] = J; the third is for every n",
    ),
)
def rewards_over_their_mean():
    """The other samples are independent of R_i s_i, and the mean of n/(1 + K') is a geometric sum."""
    return (
        derive(mean_over_i(own(R) * (2 - SUCCEEDING) * own(s), under=q), premises=TWO).equals(
            2 * grad(J) - J * grad(J), using=[(0, None)]
        ),
        derive(
            mean_over_i(own(R) * (3 - 2 * SUCCEEDING + SUCCEEDING**2 / 2) * own(s), under=q), premises=THREE
        ).equals(
            3 * grad(J) - 4 * J * grad(J) + grad(J) * expectation(R**2, under=q) + J * J * grad(J),
            using=[(0, SLOPE * (2 * J - J * J * (n / 2) - expectation(R**2, under=q) / 2))],
        ),
        _order_of_a_group(),
    )


def _order_of_a_group():
    """n E[1/(1 + K')] for K' successes of n - 1, as an integral over t; then its sum and its potential."""
    share, t = sympy.symbols("J t", positive=True)
    size, k = sympy.symbols("n k", positive=True, integer=True)
    potential = (1 - share + share * t) ** size / share
    gaps = (
        sympy.integrate(t ** (k - 1), (t, 0, 1)) - 1 / k,
        sympy.diff(potential, t) - size * (1 - share + share * t) ** (size - 1),
        potential.subs(t, 1) - potential.subs(t, 0) - (1 - (1 - share) ** size) / share,
        share * (1 - share) ** k - (1 - share) ** k + (1 - share) ** (k + 1),
        sympy.diff(-((1 - share) ** k) / k, share) - (1 - share) ** (k - 1),
    )
    return Evidence(
        "exact",
        "for every n, E[(1/K) sum_i R_i s_i], 0 where K = 0, is (1 + (1-J) + .. + (1-J)^(n-1)) grad J, the"
        " gradient of -sum_{k=1}^n (1-J)^k/k",
        r"\mathbb{E}\left[\frac{1}{K} \sum_i R_i s_i\right] = \sum_{k=0}^{n-1} (1 - J)^k\, \nabla J"
        r" = \nabla \sum_{k=1}^{n} -\frac{(1 - J)^k}{k}",
        "sympy",
        ("0 < J < 1",),
        lambda: _compare_over_batches(
            lambda rewards, i, n: Fraction(n * rewards[i], max(sum(rewards), 1)), order=lambda n: n
        ),
        (("K = 1 + K' where R_i = 1, and the K' of the other samples is independent of R_i s_i",
          r"n\, \mathbb{E}\left[\frac{R_1 s_1}{1 + K'}\right]"
          r" = n\, \mathbb{E}\left[\frac{1}{1 + K'}\right] \nabla J"),
         ("1/(1 + K') is an integral, and t^R has the expectation 1 - J + J t",
          r"\mathbb{E}\left[\frac{1}{1 + K'}\right] = \int_0^1 \mathbb{E}[t^{K'}]\, dt"
          r" = \int_0^1 (1 - J + J t)^{n-1}\, dt"),
         ("its value", r"n \int_0^1 (1 - J + J t)^{n-1}\, dt = \frac{1 - (1 - J)^n}{J}"
          r" = \sum_{k=0}^{n-1} (1 - J)^k")),
        holds=not any(map(sympy.simplify, gaps)),
    )  # fmt: skip


HALVES = {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/2", "1/2"], "u": ["1", "0"]}


@claim(
    "methods.maxrl-centred",
    verdict="corrected",
    source="new (MaxRL as shipped, with r - mean over the mean; TRL pull 5026)",
    words="centring leaves the expected gradient unchanged",
    reading=(
        *SUCCESSES,
        "(R_self - Rbar)/Rbar, 0 where K = 0, is R_self - R_others at n = 2, the first part; at n = 3 it is"
        " R_self (2 - R_others/2), the second part, less (3 R_others - R_others^2)/2, which depends on the"
        " other samples alone and changes no expectation",
        "the third part is for every n; the refuted form is for n = 2: on the left what methods.maxrl-order"
        " finds for R_self/Rbar, on the right what the first part finds with centring",
    ),
)
def centred_rewards_over_their_mean():
    """Centring takes off a baseline that is 0 where K = 0, so that it depends on the sample itself."""
    model = build_one_node(HALVES, {"R": ["1", "0"]}, {})
    return (
        derive(mean_over_i((own(R) - SUCCEEDING) * own(s), under=q)).equals(grad(J)),
        derive(mean_over_i(own(R) * (2 - SUCCEEDING / 2) * own(s), under=q), premises=THREE).equals(
            2 * grad(J) - J * grad(J), using=[(0, None)]
        ),
        _order_of_a_centred_group(),
        derive(2 * grad(J) - J * grad(J)).differs_from(grad(J), model=model),
    )


def _order_of_a_centred_group():
    """The 1 that is taken off where K > 0 has the mean of s_i less that where K = 0."""
    share = sympy.Symbol("J", positive=True)
    last = sympy.Symbol("y", positive=True)  # (1 - J)^(n - 1)
    whole, shorter = (1 - (1 - share) * last) / share, (1 - last) / share

    def coefficient(rewards, i, n):
        mean = Fraction(sum(rewards), n)
        return (rewards[i] - mean) / mean if mean else Fraction(0)

    return Evidence(
        "exact",
        "for every n, E[mean_i (R_i - Rbar)/Rbar s_i], 0 where K = 0, is"
        " (1 + (1-J) + .. + (1-J)^(n-2)) grad J: n samples give the order n - 1",
        r"\mathbb{E}\left[\frac{1}{n} \sum_i \frac{R_i - K/n}{K/n}\, s_i\right]"
        r" = \sum_{k=0}^{n-2} (1 - J)^k\, \nabla J",
        "sympy",
        ("0 < J < 1; Rbar = K/n", "n at least 2"),
        lambda: _compare_over_batches(coefficient, order=lambda n: n - 1),
        (("(R_i - Rbar)/Rbar is n R_i/K less 1 where K > 0, and E[s_i] = 0",
          r"-\mathbb{E}[1_{K > 0}\, s_1] = \mathbb{E}[1_{K = 0}\, s_1]"),
         ("K = 0 if and only if R_1 = 0 and all others are 0",
          r"\mathbb{E}[1_{K = 0}\, s_1] = \mathbb{E}[(1 - R_1)\, s_1]\, (1 - J)^{n-1}"
          r" = -(1 - J)^{n-1}\, \nabla J"),
         ("which is the last term of the sum",
          r"\sum_{k=0}^{n-1} (1 - J)^k - (1 - J)^{n-1} = \sum_{k=0}^{n-2} (1 - J)^k")),
        holds=sympy.simplify(whole - last - shorter) == 0,
    )  # fmt: skip


# ---------------------------------------------------------------------------- a baseline weighted by lengths
@claim(
    "methods.length-weighted-baseline",
    verdict="refuted",
    source="new (OPO, as shipped: b = sum_i T_i R_i/sum_i T_i, the sample itself included)",
    reading=(
        "x_1..x_n are independent samples of q, T_i is the length of x_i, and R_i its reward",
        "were the sample itself left out of b, the baseline would be independent of s_i, and the mean grad J",
    ),
)
def a_baseline_weighted_by_lengths():
    """The baseline contains the share T_i/sum_j T_j of the sample's own reward: more of a long sequence."""
    return _no_multiple(), _may_lower_the_reward()


def _compute_length_weighted(chances, rewards, lengths, size=2):
    """E[mean_i (R_i - b) s_i] along the logit of each outcome, over all batches."""

    def centre(batch, i):
        total = sum(lengths[y] for y in batch)
        return rewards[batch[i]] - Fraction(sum(lengths[y] * rewards[y] for y in batch), total)

    return _sum_over_batches(chances, size, centre)


def _estimate_length_weighted(chances, rewards, lengths):
    """That for two samples in floats: i and j push x_i by T_j (R_i - R_j)/(T_i + T_j)."""
    pushes = [
        sum(
            float(x) * T * (own_reward - R) / (T + own_length)
            for x, R, T in zip(chances, rewards, lengths, strict=True)
        )
        for own_reward, own_length in zip(rewards, lengths, strict=True)
    ]
    mean = sum(float(x) * push for x, push in zip(chances, pushes, strict=True))
    return [float(x) * (push - mean) for x, push in zip(chances, pushes, strict=True)]


def _describe(chances, rewards, lengths):
    return (
        f"n = 2, three sequences with q = ({', '.join(map(str, chances))}), rewards {rewards}, lengths"
        f" {lengths}; along the logits of the sequences"
    )


def _compare_with_pairs(model, exact):
    found = _estimate_length_weighted(*model)
    gap = max(abs(x - float(y)) for x, y in zip(found, exact, strict=True))
    return gap < 1e-15, f"pairs of sequences in floats: within {gap:.0e}"


def _no_multiple():
    model = (Fraction(1, 3),) * 3, (1, 0, 0), (1, 1, 2)
    field, slope = _compute_length_weighted(*model), _compute_gradient(*model[:2])
    shown = [f"({', '.join(map(str, row))})" for row in (field, slope)]
    return Evidence(
        "refuted",
        "for every n, E[mean_i (R_i - b) s_i] is a multiple of grad E_q[R]",
        r"\mathbb{E}\left[\frac{1}{n} \sum_i (R_i - b)\, s_i\right] = c\, \nabla \mathbb{E}_q[R],"
        r" \quad b = \frac{\sum_j T_j R_j}{\sum_j T_j}",
        "sympy",
        (f"{_describe(*model)} the mean is {shown[0]}, and grad E_q[R] is {shown[1]}",),
        lambda: _compare_with_pairs(model, field),
        (("of two samples", r"R_1 - b = \frac{T_2}{T_1 + T_2}\, (R_1 - R_2)"),
         ("the factor T_2/(T_1 + T_2) depends on the sample", r"\mathbb{E}[(R_1 - b)\, s_1]"
          r" = \mathbb{E}\left[\frac{T_2}{T_1 + T_2}\, (R_1 - R_2)\, s_1\right]")),
        holds=slope[1] == slope[2] and field[1] != field[2],
    )  # fmt: skip


def _may_lower_the_reward():
    model = (Fraction(1, 100), Fraction(97, 100), Fraction(1, 50)), (3, 2, 0), (1, 1, 100)
    field, slope = _compute_length_weighted(*model), _compute_gradient(*model[:2])
    rate = sum(x * y for x, y in zip(field, slope, strict=True))
    return Evidence(
        "refuted",
        "a small step along E[mean_i (R_i - b) s_i] never lowers E_q[R]",
        r"\mathbb{E}\left[\frac{1}{n} \sum_i (R_i - b)\, s_i\right] \cdot \nabla \mathbb{E}_q[R] \ge 0",
        "sympy",
        (f"{_describe(*model)} the product is {rate}",),
        lambda: _compare_with_pairs(model, field),
        (("the long sequence has the reward 0: beside it a short one keeps nearly all of its own",
          r"\frac{100}{101}\, R_1"),
         ("and beside the other short one it keeps half of the difference",
          r"\frac{1}{2}\, (R_1 - R_2)")),
        holds=rate < 0,
    )  # fmt: skip
