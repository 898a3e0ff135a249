"""Discounts and critics in the gradient of a policy of tokens.

A discount g = exp(-c) enters as exp(-c T_past), since T_past is the number of tokens before one: the first
reward counts whole.  V is any function of the tokens before one, such as a critic or a baseline.
"""

from fractions import Fraction
from itertools import product

from klsym.calculus import (
    A,
    R,
    curl,
    derive,
    exp,
    expectation,
    future,
    grad,
    k1,
    lam,
    length,
    log_q,
    now,
    parameter,
    past,
    q,
    r,
    s,
    sg,
    sum_over_t,
)
from klsym.engine.proof.quantities import Quantity
from klsym.language.abbreviations import Indexed, Side
from klsym.language.convert import to_ring
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

c, g = parameter("c"), parameter("g")
DISCOUNT = exp(-c * past(length))
TO_DATE = past(s) + now(s)  # sum_{u <= t} s_u
STEPS = (
    "the t-th token has discount g^(t-1), g = exp(-c); T_past is t - 1",
    "R_now is the reward of token t",
)


# ---------------------------------------------------------------------------- discounts
@claim(
    "discount.to-go",
    source="Sutton et al. 1999 (policy gradient theorem)",
    reading=(
        *STEPS,
        "g^(t-1) s_t times the discounted sum of rewards from t on is s_t times that of g^(u-1) R_u: the sums"
        " over u and over t <= u are exchanged",
    ),
)
def discounted_rewards_to_go():
    """With g^(t-1) also in front of the score, it is the gradient of the discounted reward, or KL."""
    rewards, penalty = DISCOUNT * now(R), DISCOUNT * now(k1)
    return (
        derive(sum_over_t(rewards * TO_DATE, under=q)).equals(grad(sum_over_t(rewards, under=q))),
        derive(sum_over_t(penalty * TO_DATE, under=q)).equals(grad(sum_over_t(penalty, under=q))),
    )


@claim(
    "discount.missing-weight",
    verdict="refuted",
    source="Nota & Thomas 2020 (Is the policy gradient a gradient?)",
    reading=(
        *STEPS,
        "sequences of at most two tokens, where the discounted sum of later rewards is g R_future; g is any"
        " number but 1",
    ),
)
def discount_without_its_weight():
    """Without g^(t-1) in front of the score it is the gradient of no function, unless g = 1."""
    return derive(curl(sg(now(R) + g * future(R)) * now(log_q), under=q)).differs_from(0)


@claim(
    "discount.kl-in-reward",
    verdict="refuted",
    source="new (trainers that discount the KL with the reward)",
    reading=(
        *STEPS,
        "refuted: that the field is a multiple of grad KL(q||p), by its component along u times that of grad"
        " KL(q||p) along v, less the two exchanged, which is 0 for multiples",
    ),
)
def discounted_penalty():
    """The KL of step t has the weight g^(t-1), so the penalty is stronger for early tokens."""
    return derive(_wedge(DISCOUNT * now(k1), now(k1))).differs_from(0)


def _wedge(first, second):
    """F.u G.v - F.v G.u for the fields E_q[sum_t a sum_{u <= t} s_u] of two coefficients."""
    a, b = to_ring(first), to_ring(second)
    total = Side()
    for one, other in product(("past", "now"), repeat=2):
        for sign, along, across in ((1, one, f"{other}'"), (-1, f"{one}'", other)):
            total = total + Side.combine(
                (sign, (Indexed("t", "q", a, (along,)), Indexed("t", "q", b, (across,))))
            )
    return Quantity(total)


# ---------------------------------------------------------------------------- critics
@claim(
    "discount.gae",
    source="Schulman et al. 2016 (arXiv 1506.02438), generalised advantage estimation; new",
    reading=(
        "g = 1; d_u = R_u + V_(u+1) - V_u, V_u a function of the tokens before u, and 0 after the end",
        "lambda = 1: the sum of d_u from t on is that of R_u less V_t, which is V here",
        "lambda < 1: on sequences of at most two tokens the sum is d_now + lambda d_future; R is d there",
        "r - 1 is one d whose mean is 0 after every prefix",
    ),
)
def generalised_advantages():
    """lambda = 1 is exact for every critic; lambda < 1 is exact if the critic is the value of q."""
    to_go = sum_over_t((now(R) + future(R) - past(A)) * now(s), under=q)
    short = sum_over_t((now(R) + lam * future(R)) * now(s), under=q)
    return (
        derive(to_go).equals(grad(expectation(R, under=q))),
        derive(short).equals(
            grad(expectation(R, under=q)) - (1 - lam) * sum_over_t(future(R) * now(s), under=q)
        ),
        derive(short).differs_from(grad(expectation(R, under=q))),
        derive(sum_over_t((now(r) - 1) * past(A) * past(s), under=q)).equals(0),
        _with_the_value_of_q(),
    )


# Two tokens at each step, three steps: chances of the first token and rewards of both, by prefix.
CHANCES = {
    (): Fraction(1, 3), (0,): Fraction(1, 2), (1,): Fraction(3, 4), (0, 0): Fraction(1, 4),
    (0, 1): Fraction(2, 5), (1, 0): Fraction(1, 6), (1, 1): Fraction(5, 7),
}  # fmt: skip
REWARDS = {prefix: (Fraction(3 * i - 2, 2), Fraction(5 - i * i, 3)) for i, prefix in enumerate(CHANCES)}
LAMBDA = Fraction(1, 2)


def _with_the_value_of_q():
    value, wrong = _values(CHANCES), {prefix: Fraction(len(prefix) + 1) for prefix in CHANCES}
    exact, found, other = _field(Fraction(1), {}), _field(LAMBDA, value), _field(LAMBDA, wrong)
    return Evidence(
        "exact",
        f"sequences of three tokens of two words: with V the value of q the field at lambda = {LAMBDA} is"
        " grad E_q[R] in all of its components; with V_t = t it is not",
        r"\mathbb{E}_q\!\left[\sum_t s_t \sum_{u \ge t} \lambda^{u-t} d_u\right] = \nabla\mathbb{E}_q[R]",
        "sympy",
        (
            "V_t is the mean of R_t + R_(t+1) + .. given the tokens before t",
            "d_u has mean 0 after every prefix, so that what lambda takes off has mean 0, too",
        ),
        _by_differences,
        holds=exact == found != other,
    )


def _values(chances):
    """E_q of the rewards to come, after each prefix."""
    found = {}
    for prefix in sorted(chances, key=len, reverse=True):
        first = chances[prefix]
        found[prefix] = sum(
            weight * (reward + found.get((*prefix, word), 0))
            for word, (weight, reward) in enumerate(zip((first, 1 - first), REWARDS[prefix], strict=True))
        )
    return found


def _field(lambda_, value):
    """E_q[sum_t s_t sum_{u >= t} lambda^(u-t) d_u] along the logit of the first word after each prefix."""
    total = dict.fromkeys(CHANCES, Fraction(0))
    for words in product((0, 1), repeat=3):
        prefixes = [words[:t] for t in range(4)]
        weight = Fraction(1)
        for prefix, word in zip(prefixes, words, strict=False):
            weight *= CHANCES[prefix] if word == 0 else 1 - CHANCES[prefix]
        steps = list(zip(prefixes, prefixes[1:], words, strict=False))
        gaps = [REWARDS[a][word] + value.get(b, 0) - value.get(a, 0) for a, b, word in steps]
        for t, (prefix, _, word) in enumerate(steps):
            score = (word == 0) - CHANCES[prefix]
            total[prefix] += weight * score * sum(lambda_ ** (u - t) * gaps[u] for u in range(t, 3))
    return total


def _by_differences():
    """The gradient of the value of the empty prefix, by differences in each logit."""
    step, worst = Fraction(1, 10**6), 0.0
    for prefix, slope in _field(LAMBDA, _values(CHANCES)).items():
        first = CHANCES[prefix]
        ends = [
            _values(CHANCES | {prefix: first + sign * step * first * (1 - first)})[()] for sign in (1, -1)
        ]
        worst = max(worst, abs(float((ends[0] - ends[1]) / (2 * step) - slope)))
    return worst < 1e-9, f"differences of E_q[R] in 7 logits: largest gap {worst:.0e}"
