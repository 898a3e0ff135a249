"""Variances of policy gradients that are summed over tokens: prefix ratios, and a baseline for each token.

c_t is the product of the importance weights up to token t, c_T that of the whole sequence; s_t is the score
of token t along a direction, G_t the sum of the rewards from t on.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import sympy

from klsym.calculus import (
    A,
    derive,
    future,
    mu,
    now,
    past,
    rho,
    s,
    sum_over_t,
)
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim

PREFIX, WHOLE = past(rho) * now(rho), past(rho) * now(rho) * future(rho)
TERM = past(A) * now(s)  # V: any function of the tokens before t
WORDS = ("a", "b")
Half, Third = Fraction(1, 2), Fraction(1, 3)


@claim(
    "shipped.prefix-ratio",
    source="arXiv 2605.07331 (abstract: unbiased for each token, lower variance than the full ratio)",
    reading=(
        "V is any function of the tokens before t",
        "means over mu of c_t**2 x**2 and c_T**2 x**2, x = V s_t, summed over t: both have the same"
        " mean c_t x, so that their difference is that of the variances",
    ),
)
def prefix_ratio():
    """Each token has the same expectation, and its second moment falls by that of (c_T - c_t) times it."""
    whole, prefix = (sum_over_t(c**2 * TERM**2, under=mu) for c in (WHOLE, PREFIX))
    alone = [sum_over_t(c**2 * now(s) ** 2, under=mu) for c in (WHOLE, PREFIX)]
    return (
        derive(sum_over_t(WHOLE * TERM, under=mu)).equals(sum_over_t(PREFIX * TERM, under=mu)),
        derive(whole - prefix).equals(sum_over_t((WHOLE - PREFIX) ** 2 * TERM**2, under=mu)),
        derive(alone[0]).differs_from(alone[1]),
    )


# ---------------------------------------------------------------------------- sequences of two words
def _scores(chances, directions):
    """The scores of the two words along a direction of their first logit: u (1 - q(a)) and -u q(a)."""
    return {"a": directions * (1 - chances), "b": -directions * chances}


def _tree(first, second, up=1):
    """((words, chance, scores of both), ..) of sequences of two words; second: chances of a after a and b."""
    found = []
    for one, two in product(WORDS, WORDS):
        chance = (first if one == "a" else 1 - first) * (second[one] if two == "a" else 1 - second[one])
        ups = up if isinstance(up, dict) else dict.fromkeys(("first", *WORDS), up)
        found.append(((one, two), chance,
                      (_scores(first, ups["first"])[one], _scores(second[one], ups[one])[two])))  # fmt: skip
    return found


def _mean(tree, value):
    return sum(chance * value(words, scores) for words, chance, scores in tree)


def _variance(tree, value):
    return _mean(tree, lambda *x: value(*x) ** 2) - _mean(tree, value) ** 2


# ---------------------------------------------------------------------------- prefix ratios, summed
Q_SECOND, MU_SECOND = dict.fromkeys(WORDS, Third), dict.fromkeys(WORDS, Half)
SIGN = {"a": 1, "b": -1}  # the advantage of the second token, by the first; that of the first is 1


@claim(
    "shipped.prefix-ratio-variance",
    verdict="refuted",
    source="arXiv 2605.07331 says it of the ratio of a token, where it holds (shipped.prefix-ratio)",
    reading=(
        "printed nowhere: our reading of what it would mean for the gradient that is summed over tokens",
        "Y = sum_t c_t A_t s_t against c_T sum_t A_t s_t, A_t a function of the tokens up to t",
    ),
)
def prefix_ratio_variance():
    """Tokens are correlated, and with c_T their terms can cancel more than with c_t."""
    prefix, whole = (_variance(_sampled(), lambda *x, k=k: _summed(*x)[k]) for k in (0, 1))
    return Evidence(
        "refuted",
        "for all q, mu and A_t the variance of sum_t c_t A_t s_t is at most that of c_T sum_t A_t s_t",
        r"\operatorname{Var}_\mu \sum_t c_t A_t s_t \le \operatorname{Var}_\mu c_T \sum_t A_t s_t",
        "sympy",
        (
            "two words, two tokens: q = mu = (1/2, 1/2) at first, then q = (1/3, 2/3), mu = (1/2, 1/2);"
            " A_1 = 1, A_2 = 1 after the first word and -1 after the second; u = 1 on the first word's logit:"
            f" the variances are {prefix} and {whole}",
        ),
        _prefixes_in_floats,
        (
            ("D = (c_T - c_1) A_1 s_1 has mean zero given the first token",
             r"\operatorname{Var}(Y + D) = \operatorname{Var} Y + \mathbb{E}[D^2] + 2\,\mathbb{E}[Y D]"),
            ("linear in A_2, so of either sign",
             r"\mathbb{E}_\mu[Y D] = \mathbb{E}_\mu[c_1^2\, \rho_2 (\rho_2 - 1)\, A_1 s_1\, A_2 s_2]"),
        ),
        holds=prefix > whole,
    )  # fmt: skip


def _sampled():
    """Sequences from mu, with the scores of q."""
    own = {words: scores for words, _, scores in _tree(Half, Q_SECOND)}
    return [(words, chance, own[words]) for words, chance, _ in _tree(Half, MU_SECOND)]


def _summed(words, scores):
    """Both estimators of one sequence; c_1 = 1, as q = mu at the first token."""
    one, two = words
    ratio = (Q_SECOND[one] if two == "a" else 1 - Q_SECOND[one]) / Half
    first, second = scores[0], SIGN[one] * scores[1]
    return first + ratio * second, ratio * (first + second)


def _log_q(z, words):
    """log q of both tokens; z: logits of the two words, at first, after a and after b (3 x 2)."""
    at = {"a": 0, "b": 1}
    rows = (z[0], z[1 + at[words[0]]])
    return np.array([row[at[w]] - np.logaddexp(*row) for row, w in zip(rows, words, strict=True)])


def _scores_by_differences(z, words):
    up = np.array([[1e-5, 0.0]] * 3)
    return (_log_q(z + up, words) - _log_q(z - up, words)) / 2e-5


def _prefixes_in_floats():
    """The same from logits: scores by differences of log q, all sequences of mu listed."""

    z = np.array([[0.0, 0.0], [0.0, np.log(2)], [0.0, np.log(2)]])
    sums = []
    for one, two in product(WORDS, WORDS):
        scores = _scores_by_differences(z, (one, two))
        ratios = np.cumprod(np.exp(_log_q(z, (one, two))) / 0.5)
        values = scores * [1.0, 1.0 if one == "a" else -1.0]
        sums.append((ratios @ values, ratios[-1] * values.sum()))
    variances = np.var(np.array(sums), axis=0)  # each has the chance 1/4
    exact = [float(_variance(_sampled(), lambda *x, k=k: _summed(*x)[k])) for k in (0, 1)]
    error = float(np.max(np.abs(variances - exact)))
    return error < 1e-8 and variances[0] > variances[1], f"variances {variances}, off by {error:.1g}"


# ---------------------------------------------------------------------------- a baseline for each token
@claim(
    "shipped.optimal-token-baseline",
    verdict="corrected",
    source="arXiv 2602.07078; the formula as verl 0.9 documents it",
    words="the optimal baseline of each token",
    reading=(
        "'optimal' is read as: the numbers b_t for which sum_t (G_t - b_t) s_t varies least",
        "the theorem of the paper was not compared: its hypotheses were not at hand",
    ),
)
def optimal_token_baseline():
    """The least variance weights each reward by all scores of its sequence, not by the squares up to t."""
    weighted, best = (_spread(_example(), REWARDS, b) for b in _baselines(_example(), REWARDS))
    return (
        Evidence(
            "exact",
            "V(b) - V(a) = sum_t E_q[s_t**2] (b_t - a_t)**2 for V(b) = Var_q sum_t (G_t - b_t) s_t and"
            " a_t = E_q[s_t sum_j G_j s_j]/E_q[s_t**2]",
            r"V(b) - V(a) = \sum_t \mathbb{E}_q[s_t^2] (b_t - a_t)^2",
            "sympy",
            ("E_q[s_t**2] > 0 for every t; numbers b_t that do not depend on the sequence",),
            _baselines_in_floats,
            (
                ("a number times s_t has mean zero given the tokens before t",
                 r"\mathbb{E}_q[s_j s_t] = 0 \ (j \ne t), \quad \mathbb{E}_q[b_t s_t] = 0"),
                ("a quadratic in b without mixed terms",
                 r"V(b) = V(0) - 2\sum_t b_t\, \mathbb{E}_q[s_t \sum_j G_j s_j]"
                 r" + \sum_t b_t^2\, \mathbb{E}_q[s_t^2]"),
                ("its least point",
                 r"a_t = \frac{\mathbb{E}_q[s_t \sum_j G_j s_j]}{\mathbb{E}_q[s_t^2]}"),
            ),
            holds=not any(_mixed_terms()) and _gap() == 0,
        ),
        Evidence(
            "refuted",
            "B_t = E_q[W_t G_t]/E_q[W_t], W_t = sum_{j <= t} s_j**2, gives the least variance",
            r"V(B) \le V(b),\ \mathbb{E}_q[W_t] B_t = \mathbb{E}_q[W_t G_t]",
            "sympy",
            (
                "two words, two tokens: q(a) = 1/2 at first, 1/3 after a, 1/2 after b; reward 1 for (a, a)"
                f" alone: the variance is {weighted} with B and {best} with a",
            ),
            _weighted_in_floats,
            (
                ("B_t minimises another mean", r"\mathbb{E}_q[W_t (G_t - B)^2]"),
                ("it leaves out the scores of other tokens",
                 r"\mathbb{E}_q[s_j s_t G_j] \ne 0"),
            ),
            holds=weighted > best,
        ),
    )  # fmt: skip


REWARDS = {("a", "a"): (0, 1)}  # of both tokens; 0 for the other sequences


def _example():
    return _tree(Half, {"a": Third, "b": Half})


def _to_go(rewards, words):
    first, second = rewards.get(words, (0, 0))
    return first + second, second


def _estimate(rewards, baselines):
    """sum_t (G_t - b_t) s_t of a sequence."""
    return lambda words, scores: sum(
        (g - b) * x for g, b, x in zip(_to_go(rewards, words), baselines, scores, strict=True)
    )


def _spread(tree, rewards, baselines):
    return _variance(tree, _estimate(rewards, baselines))


def _baselines(tree, rewards):
    """B_t with the squares up to t as weights, and a_t."""
    whole = _estimate(rewards, (0, 0))
    weighted, best = [], []
    for t in range(2):
        energy = _mean(tree, lambda _, x, t=t: sum(y**2 for y in x[: t + 1]))
        rewarded = _mean(tree, lambda w, x, t=t: sum(y**2 for y in x[: t + 1]) * _to_go(rewards, w)[t])
        square = _mean(tree, lambda _, x, t=t: x[t] ** 2)
        weighted.append(rewarded / energy)
        best.append(_mean(tree, lambda w, x, t=t: x[t] * whole(w, x)) / square)
    return tuple(weighted), tuple(best)


def _mixed_terms():
    """E_q[s_1], E_q[s_2] and E_q[s_1 s_2] for any q and direction of sequences of two words: all 0."""
    first, after_a, after_b, *up = sympy.symbols("x y z u v w")
    tree = _tree(first, {"a": after_a, "b": after_b}, dict(zip(("first", *WORDS), up, strict=True)))
    means = (_mean(tree, lambda _, x, k=k: x[k]) for k in range(2))
    return [sympy.expand(e) for e in (*means, _mean(tree, lambda _, x: x[0] * x[1]))]


def _gap():
    """V(b) - V(a) less the sum of squares, for any numbers b and any rewards, in the tree of the example."""
    tree, b = _example(), sympy.symbols("b_1 b_2")
    first = dict(zip(WORDS, sympy.symbols("R_a R_b"), strict=True))
    rewards = {words: (first[words[0]], sympy.Symbol(f"R_{''.join(words)}")) for words, *_ in tree}
    best = _baselines(tree, rewards)[1]
    squares = (_mean(tree, lambda _, x, t=t: x[t] ** 2) * (b[t] - best[t]) ** 2 for t in range(2))
    return sympy.expand(_spread(tree, rewards, b) - _spread(tree, rewards, best) - sum(squares))


def _baselines_in_floats():
    """The least variance over a grid around a, of sequences with three words, by listing them."""
    rng = np.random.default_rng(5)
    q = np.exp(rng.normal(size=(4, 3)))
    q /= q.sum(axis=1, keepdims=True)  # of the first token, and after each of three
    up, reward = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    scores = up - (q * up).sum(axis=1, keepdims=True)
    chances = (q[0][:, None] * q[1:]).ravel()
    one, two = np.repeat(scores[0], 3), scores[1:].ravel()
    go = np.array([reward.ravel() + np.repeat(reward.sum(axis=1), 3), reward.ravel()])

    def variance(b):
        value = (go[0] - b[0]) * one + (go[1] - b[1]) * two
        return chances @ value**2 - (chances @ value) ** 2

    both = go[0] * one + go[1] * two
    best = np.array([chances @ (x * both) / (chances @ x**2) for x in (one, two)])
    least = variance(best)
    worst = min(variance(best + 0.1 * np.array(step)) - least for step in ((1, 0), (-1, 0), (0, 1), (0, -1)))
    expected = 0.01 * min(chances @ one**2, chances @ two**2)
    return abs(worst - expected) < 1e-12, f"0.1 away from a the variance grows by {worst:.3g} at least"


def _weighted_in_floats():
    """The variances of the example from logits, at B and at a grid of other baselines."""
    z = np.array([[0.0, 0.0], [0.0, np.log(2)], [0.0, 0.0]])
    words = [*product(WORDS, WORDS)]
    chances = np.array([np.exp(_log_q(z, pair).sum()) for pair in words])
    scores = np.array([_scores_by_differences(z, pair) for pair in words])
    reward = np.array([float(pair == ("a", "a")) for pair in words])
    energy = np.cumsum(scores**2, axis=1)
    weighted = (chances @ (energy * reward[:, None])) / (chances @ energy)

    def variance(b):
        value = ((reward[:, None] - b) * scores).sum(axis=1)
        return chances @ value**2 - (chances @ value) ** 2

    grid = [np.array(b) for b in product(np.linspace(0, 1, 21), repeat=2)]
    gap = variance(weighted) - min(map(variance, grid))
    return gap > 0.01, f"some baselines on a grid have a variance lower by {gap:.3g}"
