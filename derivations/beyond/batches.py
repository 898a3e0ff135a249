"""Batches: centring off-policy, a penalty in the centred reward at the optimum, large normalised groups.

Sources: WZ2 = Wang & Zhang 2025, second version; TM = Tang & Munos 2025.
"""

from itertools import product
from math import prod
from statistics import pstdev

import mpmath
import sympy

from klsym.calculus import (
    KL,
    beta,
    covariance,
    derive,
    expectation,
    grad,
    k1,
    mean_over_i,
    mu,
    others,
    own,
    p,
    q,
    rho,
    s,
    variance_of_mean,
)
from klsym.derivations.batches import SIZE, batch_mean, leave_one_out, m, n
from klsym.derivations.variances import ALONG
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

SAMPLES_OF_MU = ("x_1..x_n are independent samples of mu, n at least 2; mean_i is the mean over them",)


@claim(
    "beyond.offpolicy-group-centring",
    source="new (the form in use: the weight outside, the centring inside)",
    reading=(*SAMPLES_OF_MU, "m stands for n - 1"),
)
def centre_first_and_weight_outside():
    """A mean of the others is independent of rho_i s_i, whose mean is 0; the sample's own share is 1/n."""

    def field(centred):
        return derive(mean_over_i(own(rho) * centred * own(s), under=mu))

    return (
        field(own(k1) - batch_mean(k1)).equals((1 - 1 / n) * grad(KL(q, p))),
        field(own(k1) - leave_one_out(k1)).equals(grad(KL(q, p))),
    )


@claim(
    "beyond.centred-reward-optimum",
    source="new (decides WZ2 8.2; TM fig. 4: 'its noise vanishes at pi*')",
    reading=(
        *ALONG,
        "the last part: beta k2 as a loss beside leave-one-out rewards R, whose coefficient of s_i is R_i"
        " less the mean of the others less beta k1_i; at q* R = beta log Z + beta k1",
        "m is n - 1; x_1..x_n are independent samples of q",
    ),
)
def a_penalty_in_the_centred_reward_is_noiseless():
    """h = R - beta k1 is a number at q*; with the penalty as a loss, the mean of the others' k1 is left."""
    beside_rewards = (own(beta * k1) - beta * others(k1) / m - beta * own(k1)) * own(s)
    spread = expectation(s**2, under=q) * (KL(q, p) * KL(q, p) + covariance(k1, k1, under=q) / m) / n
    slope = expectation(k1 * s, under=q)
    return (
        _reward_is_a_number(),
        derive(variance_of_mean(beside_rewards, under=q), premises=SIZE).equals(
            beta**2 * (spread + slope * slope / (n * m)), using=[(0, None)]
        ),
    )


def _reward_is_a_number():
    """R - beta log(q*/p) = beta log Z at each of three outcomes."""
    p1, p2, p3, scale = sympy.symbols("p_1 p_2 p_3 beta", positive=True)
    rewards = sympy.symbols("R_1 R_2 R_3", real=True)
    reference = (p1, p2, p3)
    weights = [p * sympy.exp(R / scale) for p, R in zip(reference, rewards, strict=True)]
    total = sum(weights)
    shaped = [
        R - scale * sympy.expand_log(sympy.log(weight / total / p), force=True)
        for p, R, weight in zip(reference, rewards, weights, strict=True)
    ]
    gaps = [sympy.simplify(sympy.expand_log(h - scale * sympy.log(total), force=True)) for h in shaped]

    def oracle():
        reference, rewards, scale = (0.2, 0.3, 0.5), (1.0, -1.0, 0.25), 0.7
        weights = [p * mpmath.exp(R / scale) for p, R in zip(reference, rewards, strict=True)]
        policy = [weight / sum(weights) for weight in weights]
        shaped = [R - scale * mpmath.log(q / p) for R, q, p in zip(rewards, policy, reference, strict=True)]
        worst = max(
            abs(shaped[batch[0]] - sum(shaped[i] for i in batch[1:]) / 2)
            for batch in product(range(3), repeat=3)
        )
        return worst < 1e-14, f"27 batches of three: the largest centred reward is {float(worst):.0e}"

    return Evidence(
        "exact",
        "at q* = p exp(R/beta)/Z the reward h = R - beta k1 is beta log Z at every sample, so that h_i"
        " less the mean of the batch, or of the others, is 0 at every batch: the gradient has no noise"
        " there",
        r"R - \beta \log \frac{q^*}{p} = \beta \log Z,"
        r" \quad h_i - \frac{1}{m} \sum_{j \ne i} h_j = h_i - \frac{1}{n} \sum_j h_j = 0",
        "sympy",
        ("Z = E_p[exp(R/beta)] is finite",),
        oracle,
        (("log q* = log p + R/beta - log Z", r"\beta k_1 = R - \beta \log Z"),),
        holds=gaps == [0, 0, 0],
    )


# ---------------------------------------------------------------------------- large groups
@claim(
    "beyond.std-limit",
    verdict="exact",
    source="WZ2 (normalisation modulates the KL); GRPO",
)
def normalised_rewards_of_large_groups():
    """A function of J times grad J for two rewards, constant for n = 2 and 3; it turns for three rewards."""
    return _two_rewards(), _small_groups(), _three_rewards()


def _two_rewards():
    share = sympy.Symbol("J", positive=True)
    potential = 2 * sympy.asin(sympy.sqrt(share))

    def oracle():
        worst = 0.0
        for x in (0.05, 0.3, 0.8):
            slope = mpmath.diff(lambda y: 2 * mpmath.asin(mpmath.sqrt(y)), x)
            worst = max(worst, abs(float(slope - 1 / mpmath.sqrt(x * (1 - x)))))
        return worst < 1e-12, f"slopes at three success rates: within {worst:.0e}"

    return Evidence(
        "exact",
        "for R in {0, 1} with J = E_q[R]: grad E_q[R]/sd_q(R) = grad 2 arcsin(sqrt J)",
        r"\frac{\nabla J}{\sqrt{J (1 - J)}} = \nabla\, 2 \operatorname{arcsin} \sqrt{J}",
        "sympy",
        ("0 < J < 1; the limit n -> infinity of a group, where its mean and deviation are those of q",),
        oracle,
        (("R^2 = R", r"\operatorname{Var}_q R = J - J^2"),
         ("the chain rule", r"\frac{d}{dJ} 2 \operatorname{arcsin} \sqrt{J} = \frac{1}{\sqrt{J (1 - J)}}")),
        holds=sympy.simplify(sympy.diff(potential, share) - 1 / sympy.sqrt(share * (1 - share))) == 0,
    )  # fmt: skip


def _compute_factor(size, share):
    """Return the factor of grad J in E[mean_i (R_i - mean R)/std(R) s_i], for R in {0, 1} and groups of n.

    In a group with k successes the advantage is (R - k/n)/std, where std^2 = (k/n)(1 - k/n).
    """
    factor = 0
    for k in range(1, size):
        spread = sympy.sqrt(sympy.Rational(k * (size - k), size**2))
        won, lost = (1 - sympy.Rational(k, size)) / spread, -sympy.Rational(k, size) / spread
        factor += won * sympy.binomial(size - 1, k - 1) * share ** (k - 1) * (1 - share) ** (size - k)
        factor -= lost * sympy.binomial(size - 1, k) * share**k * (1 - share) ** (size - 1 - k)
    return sympy.expand(factor)


def _enumerate_groups(size, chance):
    """Return that expectation along the logit of a success, J (1 - J) times the factor, over all groups."""
    total = 0.0
    for group in product((1, 0), repeat=size):
        deviation = pstdev(group)
        if deviation:
            mean = sum(group) / size
            pushes = ((R - mean) / deviation * ((1 - chance) if R else -chance) for R in group)
            total += prod(chance if R else 1 - chance for R in group) * sum(pushes) / size
    return total


def _small_groups():
    """The factor, summed over the number of successes in a group of 2, 3 and 4."""
    share = sympy.Symbol("J", positive=True)
    root = sympy.sqrt(3)
    wanted = {2: sympy.Integer(1), 3: sympy.sqrt(2), 4: root - (2 * root - 3) * share * (1 - share)}

    def oracle():
        gaps = [
            abs(_enumerate_groups(size, J) - float(factor.subs(share, J)) * J * (1 - J))
            for size, factor in wanted.items()
            for J in (0.2, 0.5, 0.9)
        ]
        return max(gaps) < 1e-12, f"all groups of 2, 3 and 4 at three success rates: within {max(gaps):.0e}"

    return Evidence(
        "exact",
        "for R in {0, 1} and groups of n, E[mean_i (R_i - mean R)/std(R) s_i] is grad J for n = 2 and"
        " sqrt(2) grad J for n = 3; for n = 4 it is (sqrt 3 - (2 sqrt 3 - 3) J (1 - J)) grad J",
        r"\mathbb{E}\left[\frac{1}{n} \sum_i"
        r" \frac{R_i - \frac{1}{n} \sum_j R_j}{\mathrm{std}(R)}\, s_i\right]"
        r" = \nabla J,\ \sqrt{2}\, \nabla J,\ \left(\sqrt{3} - (2 \sqrt{3} - 3) J (1 - J)\right) \nabla J"
        r"\quad (n = 2, 3, 4)",
        "sympy",
        ("0 < J < 1; std^2 is the mean square of the deviations; a group of equal rewards has no gradient",),
        oracle,
        (("a group with k successes", r"\frac{1 - k/n}{\mathrm{std}},\ -\frac{k/n}{\mathrm{std}}"),
         ("n = 3", r"\sqrt{2} \left((1 - J)^2 + 2 J (1 - J) + J^2\right) = \sqrt{2}")),
        holds=all(sympy.simplify(_compute_factor(size, share) - x) == 0 for size, x in wanted.items()),
    )  # fmt: skip


LEVELS = (0, 1, 3)
LOGITS = sympy.symbols("z1 z2", real=True)


def _three_rewards():
    """The curl of grad J/sd in two logits of three outcomes, the third logit 0."""
    weights = [*map(sympy.exp, LOGITS), sympy.Integer(1)]
    policy = [weight / sum(weights) for weight in weights]
    mean = sum(q * R for q, R in zip(policy, LEVELS, strict=True))
    spread = sympy.sqrt(sum(q * R**2 for q, R in zip(policy, LEVELS, strict=True)) - mean**2)
    field = [sympy.diff(mean, z) / spread for z in LOGITS]
    start = {LOGITS[0]: sympy.log(2), LOGITS[1]: 0}  # q = (1/2, 1/4, 1/4)
    curl = sympy.simplify((sympy.diff(field[0], LOGITS[1]) - sympy.diff(field[1], LOGITS[0])).subs(start))

    def oracle():
        def at(z):
            weights = [mpmath.exp(z[0]), mpmath.exp(z[1]), mpmath.mpf(1)]
            q = [weight / sum(weights) for weight in weights]
            mean = sum(x * R for x, R in zip(q, LEVELS, strict=True))
            spread = mpmath.sqrt(sum(x * (R - mean) ** 2 for x, R in zip(q, LEVELS, strict=True)))
            return [q[j] * (LEVELS[j] - mean) / spread for j in (0, 1)]

        step, z = mpmath.mpf(10) ** -6, (mpmath.log(2), mpmath.mpf(0))
        ends = {
            (j, sign): at([z[0] + (j == 0) * sign * step, z[1] + (j == 1) * sign * step])
            for j, sign in product((0, 1), (1, -1))
        }
        turn = (ends[1, 1][0] - ends[1, -1][0] - ends[0, 1][1] + ends[0, -1][1]) / (2 * step)
        return abs(turn - float(curl)) < 1e-8, f"differences of the field: curl {mpmath.nstr(turn, 6)}"

    return Evidence(
        "exact",
        f"for R in {{0, 1, 3}} and q = (1/2, 1/4, 1/4) the field grad E_q[R]/sd_q(R) has the curl {curl} in"
        " the"
        " first two logits, so that it is the gradient of no function",
        rf"\operatorname{{curl}} \frac{{\nabla \mathbb{{E}}_q[R]}}{{\operatorname{{sd}}_q(R)}}"
        rf" = {sympy.latex(curl)} \ne 0",
        "sympy",
        ("softmax logits z_1, z_2 of the first two outcomes, that of the third is 0",),
        oracle,
        (("the deviation is no function of the mean",
          r"\nabla \tfrac{1}{\operatorname{sd}} \ne c\, \nabla J"),),
        holds=curl != 0,
    )  # fmt: skip
