"""Tokens: where token penalties end, what a critic's discount adds, and when causality costs variance.

Sources: TM = Tang & Munos 2025; Schulman et al. 2016 (arXiv 1506.02438), generalised advantage estimation.
"""

from fractions import Fraction
from itertools import product

import mpmath
import sympy

from klsym.calculus import (
    R,
    curl,
    derive,
    expectation,
    future,
    grad,
    lam,
    log_q,
    now,
    past,
    q,
    s,
    sg,
    sum_over_t,
)
from klsym.study.ledger.evidence import Evidence
from klsym.study.ledger.registry import claim


# ---------------------------------------------------------------------------- the critic's discount
@claim(
    "beyond.gae-bias",
    source="Schulman et al. 2016; new (completes discount.gae)",
    reading=(
        "g = 1; V_u is a function of the tokens before u, 0 after the end",
        "on sequences of at most two tokens with V = 0 the sum of lambda^(u-t) R_u is R_now + lambda"
        " R_future: by the first part the field is grad E_q[R] less (1 - lambda) times a field that by the"
        " second part is no gradient, so that it is a gradient for lambda = 1 alone",
    ),
)
def the_discount_of_a_critic():
    """A lambda below 1 adds (1 - lambda) times a field of the critic's error, which is no gradient."""
    short = sum_over_t((now(R) + lam * future(R)) * now(s), under=q)
    return (
        derive(short).equals(
            grad(expectation(R, under=q)) - (1 - lam) * sum_over_t(future(R) * now(s), under=q)
        ),
        derive(curl(sg(future(R)) * now(log_q), under=q)).differs_from(0),
        _error_of_the_critic(),
    )


# Two words at each of three steps: chances of the first word and rewards of both, by prefix; any critic.
CHANCES = {
    (): Fraction(1, 3), (0,): Fraction(1, 2), (1,): Fraction(3, 4), (0, 0): Fraction(1, 4),
    (0, 1): Fraction(2, 5), (1, 0): Fraction(1, 6), (1, 1): Fraction(5, 7),
}  # fmt: skip
REWARDS = {prefix: (Fraction(3 * i - 2, 2), Fraction(5 - i * i, 3)) for i, prefix in enumerate(CHANCES)}
CRITIC = {prefix: Fraction(2 * i * i - 7, 3) for i, prefix in enumerate(CHANCES)}
LAMBDA = sympy.Symbol("lambda")


def _list_values():
    """E_q of the rewards to come, after each prefix."""
    values = {}
    for prefix in sorted(CHANCES, key=len, reverse=True):
        chances = (CHANCES[prefix], 1 - CHANCES[prefix])
        values[prefix] = sum(
            chance * (reward + values.get((*prefix, word), 0))
            for word, (chance, reward) in enumerate(zip(chances, REWARDS[prefix], strict=True))
        )
    return values


def _field(coefficient):
    """E_q[sum_t a_t s_t] along the logit of the first word after each prefix; a_t of the words and t."""
    total = dict.fromkeys(CHANCES, 0)
    for words in product((0, 1), repeat=3):
        chance = 1
        for t in range(3):
            first = CHANCES[words[:t]]
            chance *= first if words[t] == 0 else 1 - first
        for t in range(3):
            prefix = words[:t]
            total[prefix] += chance * coefficient(words, t) * ((words[t] == 0) - CHANCES[prefix])
    return {prefix: sympy.expand(value) for prefix, value in total.items()}


def _error_of_the_critic():
    """Both sides of the identity in all seven logits, as polynomials in lambda."""
    values = _list_values()

    def advantage(words, t):
        steps = (
            REWARDS[words[:u]][words[u]] + CRITIC.get(words[: u + 1], 0) - CRITIC[words[:u]]
            for u in range(t, 3)
        )
        return sum(LAMBDA**i * step for i, step in enumerate(steps))

    def error(words, t):
        gaps = (CRITIC.get(words[: u + 1], 0) - values.get(words[: u + 1], 0) for u in range(t, 3))
        return (1 - LAMBDA) * sum(LAMBDA**i * gap for i, gap in enumerate(gaps))

    exact = _field(lambda words, t: sum(REWARDS[words[:u]][words[u]] for u in range(t, 3)))
    left, right = _field(advantage), _field(error)
    holds = all(sympy.expand(left[h] - exact[h] - right[h]) == 0 for h in CHANCES)

    def oracle():
        """grad E_q[R] by differences of the value of the empty prefix."""
        worst, values = 0.0, {name: float(value) for name, value in CHANCES.items()}

        def mean(chances):
            total = 0.0
            for words in product((0, 1), repeat=3):
                weight = 1.0
                for t in range(3):
                    first = chances[words[:t]]
                    weight *= first if words[t] == 0 else 1 - first
                total += weight * sum(float(REWARDS[words[:u]][words[u]]) for u in range(3))
            return total

        for prefix, first in values.items():
            step = 1e-6 * first * (1 - first)
            slope = (mean(values | {prefix: first + step}) - mean(values | {prefix: first - step})) / 2e-6
            at_half = float(left[prefix].subs(LAMBDA, 0.5) - right[prefix].subs(LAMBDA, 0.5))
            worst = max(worst, abs(slope - at_half))
        return worst < 1e-8, f"lambda = 1/2, differences of E_q[R] in 7 logits: largest gap {worst:.0e}"

    return Evidence(
        "exact",
        "three tokens of two words, any lambda: E_q[sum_t s_t GAE_t(lambda)] - grad E_q[R] ="
        " (1 - lambda) E_q[sum_t s_t sum_{u >= t} lambda^(u-t) (V - V^q)(y_1..y_u)]",
        r"\mathbb{E}_q\left[\sum_t s_t\, \mathrm{GAE}_t(\lambda)\right] - \nabla \mathbb{E}_q[R]"
        r" = (1 - \lambda)\, \mathbb{E}_q\left[\sum_t s_t \sum_{u \ge t} \lambda^{u-t} (V - V^q)(y_{\le"
        r" u})\right]",
        "sympy",
        ("V is any function of the prefix, V^q the mean of the rewards to come under q; here one of each",),
        oracle,
        (("the sum of lambda^(u-t) d_u, rearranged",
          r"\mathrm{GAE}_t = \sum_{u \ge t} \lambda^{u-t} \left(R_u + (1 - \lambda) V_{u+1}\right) - V_t"),
         ("V_t has mean zero beside s_t, and with V^q the sum is exact", r"\mathbb{E}_q[V_t s_t] = 0")),
        holds=holds,
    )  # fmt: skip


# ---------------------------------------------------------------------------- causality
@claim(
    "beyond.causality-variance", verdict="refuted", source="TM 4.2 (dropping past terms 'reduces variance')"
)
def dropping_past_terms():
    """Terms that are correlated with what is kept may cancel some of its noise."""
    cumulative, whole = (_total_variance(causal, mpmath.iv) for causal in (True, False))

    def oracle():
        found = [_total_variance(causal, mpmath) for causal in (True, False)]
        inside = all(
            interval.a - 1e-12 <= x <= interval.b + 1e-12
            for x, interval in zip(found, (cumulative, whole), strict=True)
        )
        return inside, f"in floats {mpmath.nstr(found[0], 6)} and {mpmath.nstr(found[1], 6)}"

    shown = [mpmath.nstr(mpmath.mpf(value.mid), 5) for value in (cumulative, whole)]
    return Evidence(
        "refuted",
        "for all q and p the total variance of sum_t s_t sum_{u >= t} k_u is at most that of sum_t s_t"
        " sum_u k_u",
        r"\operatorname{Var} \sum_t s_t \sum_{u \ge t} k_u \le \operatorname{Var} \sum_t s_t \sum_u k_u",
        "sympy",
        (
            "two tokens; the first word goes on with q = 7/10, p = 1/5, else the sequence ends; then two"
            " words, the"
            f" first with q = 1/10, p = 1/2: the total variances are {shown[0]} and {shown[1]}",
        ),
        oracle,
        (("D = s_2 k_1 has mean zero given the first token",
          r"\operatorname{Var}(Y + D) = \operatorname{Var} Y + \mathbb{E}|D|^2 + 2\, \mathbb{E}[Y \cdot D]"),
         ("and the last term has either sign", r"\mathbb{E}[s_2 k_2 \cdot s_2 k_1]")),
        holds=bool(cumulative.a > whole.b),
    )  # fmt: skip


def _total_variance(causal, number):
    """The sum of the variances along the logits of both words, after the start and after the first word."""

    def of(x, y):
        return number.mpf(x) / y

    first, second = (of(7, 10), of(1, 5)), (of(1, 10), of(1, 2))  # q and p of the first word, then and now
    paths = []
    for word, (q1, p1) in enumerate((first, (1 - first[0], 1 - first[1]))):
        k1, score = number.log(q1 / p1), [(word == i) - x for i, x in enumerate((first[0], 1 - first[0]))]
        if word == 1:
            paths.append((q1, [z * k1 for z in score] + [number.mpf(0)] * 2))
            continue
        for last, (q2, p2) in enumerate((second, (1 - second[0], 1 - second[1]))):
            k2 = number.log(q2 / p2)
            later = [(last == i) - x for i, x in enumerate((second[0], 1 - second[0]))]
            kept = k2 if causal else k1 + k2
            paths.append((q1 * q2, [z * (k1 + k2) for z in score] + [z * kept for z in later]))
    total = number.mpf(0)
    for i in range(4):
        mean = sum((chance * row[i] for chance, row in paths), number.mpf(0))
        total += sum((chance * row[i] ** 2 for chance, row in paths), number.mpf(0)) - mean**2
    return total


# ---------------------------------------------------------------------------- where token penalties end
@claim(
    "beyond.token-penalty-optimum",
    source="new (where GRPO's and other token penalties end, tabular, reward at the end)",
    reading=(
        "a coefficient that depends on the tokens before t alone has the field 0: rewards before t drop"
        " out, and a policy is stationary where Q_t less beta times the coefficient of the penalty is a"
        " function of the prefix, Q_t the mean of R given the tokens up to t",
    ),
)
def where_token_penalties_end():
    """Each prefix is a problem of its own: Q - beta c = nu, c the coefficient of its token's penalty."""
    return (derive(sum_over_t(past(R) * now(s), under=q)).equals(0), _ends_on_a_tree())


TREE_REWARDS = {(0, 0): 1.0, (0, 1): -0.5, (1, 0): 0.3, (1, 1): 0.8}
TREE_REFERENCE = {(): 0.3, (0,): 0.6, (1,): 0.2}  # p of the first word after each prefix
BETA = 0.7


def _solve_token(kind, values, first):
    """The chance of the first word where Q - beta c is the same for both words."""
    rows = list(zip(values, (first, 1 - first), strict=True))
    if kind == "k2":
        weights = [p * mpmath.exp(Q / BETA) for Q, p in rows]
        return weights[0] / sum(weights)
    top = max(values)
    level = mpmath.findroot(
        lambda nu: sum(BETA * p / (nu - Q) for Q, p in rows) - 1, (top + 1e-9, top + BETA), solver="anderson"
    )
    return BETA * rows[0][1] / (level - rows[0][0])


def _solve_tree(kind):
    """Chances of the first word by prefix, from the last token to the first; to-go: later KLs count."""
    policy, values = {}, {}
    for prefix in ((0,), (1,), ()):
        below = [values.get((*prefix, w), TREE_REWARDS.get((*prefix, w))) for w in (0, 1)]
        x = policy[prefix] = _solve_token("k2" if kind == "to-go" else kind, below, TREE_REFERENCE[prefix])
        values[prefix] = x * below[0] + (1 - x) * below[1]
        if kind == "to-go":
            pairs = ((x, TREE_REFERENCE[prefix]), (1 - x, 1 - TREE_REFERENCE[prefix]))
            values[prefix] -= BETA * sum(q * mpmath.log(q / p) for q, p in pairs)
    return policy


def _measure_field(kind, policy):
    """The largest entry of the update in the three logits, from all four sequences."""
    total = dict.fromkeys(policy, mpmath.mpf(0))
    for words, reward in TREE_REWARDS.items():
        chances = [policy[words[:t]] if words[t] == 0 else 1 - policy[words[:t]] for t in (0, 1)]
        reference = [
            TREE_REFERENCE[words[:t]] if words[t] == 0 else 1 - TREE_REFERENCE[words[:t]] for t in (0, 1)
        ]
        logs = [mpmath.log(q / p) for q, p in zip(chances, reference, strict=True)]
        for t in (0, 1):
            penalty = {"k2": logs[t], "k3": 1 - mpmath.exp(-logs[t]), "to-go": sum(logs[t:])}[kind]
            score = (words[t] == 0) - policy[words[:t]]
            total[words[:t]] += chances[0] * chances[1] * (reward - BETA * penalty) * score
    return max(map(abs, total.values()))


def _ends_on_a_tree():
    """The three ends on one tree, and that each is stationary for its own penalty alone."""
    kinds = ("k2", "k3", "to-go")
    ends = {kind: _solve_tree(kind) for kind in kinds}
    fields = {(a, b): _measure_field(a, ends[b]) for a, b in product(kinds, repeat=2)}
    own = max(fields[kind, kind] for kind in kinds)
    crossed = min(value for (a, b), value in fields.items() if a != b)
    whole = {
        words: (TREE_REFERENCE[()] if words[0] == 0 else 1 - TREE_REFERENCE[()])
        * (TREE_REFERENCE[words[:1]] if words[1] == 0 else 1 - TREE_REFERENCE[words[:1]])
        * mpmath.exp(reward / BETA)
        for words, reward in TREE_REWARDS.items()
    }
    tilted = (whole[0, 0] + whole[0, 1]) / sum(whole.values())

    def oracle():
        """Ascent of each penalty's field from p ends there."""
        worst = mpmath.mpf(0)
        for kind in kinds:
            logits = {prefix: mpmath.log(x / (1 - x)) for prefix, x in TREE_REFERENCE.items()}
            for _ in range(400):
                policy = {prefix: 1 / (1 + mpmath.exp(-z)) for prefix, z in logits.items()}
                for prefix, slope in _list_slopes(kind, policy).items():
                    logits[prefix] += 8 * slope
            policy = {prefix: 1 / (1 + mpmath.exp(-z)) for prefix, z in logits.items()}
            worst = max(worst, *(abs(policy[h] - ends[kind][h]) for h in policy))
        return worst < 1e-8, f"ascent from p ends within {mpmath.nstr(worst, 2)} of each"

    chances = ", ".join(f"{kind} {mpmath.nstr(ends[kind][()], 6)}" for kind in kinds)
    return Evidence(
        "exact",
        "stationary with full support: token k2 in the loss q_t = p_t exp(Q/beta)/Z; token k3 in the loss"
        " q_t = beta p_t/(nu - Q); k1 to-go in the reward: the sequence p exp(R/beta)/Z; Q is the mean of"
        " R under q given the tokens up to t",
        r"q_t \propto p_t\, e^{Q/\beta},\quad q_t = \frac{\beta\, p_t}{\nu - Q},\quad q(y) \propto p(y)\,"
        r" e^{R/\beta}",
        "sympy",
        ("tabular, reward at the end, policy gradient to-go",
         f"a tree of two tokens of two words, beta = {BETA}: chances of the first word {chances}; no field"
         " of another"
         f" penalty is below {mpmath.nstr(crossed, 2)} there"),
        oracle,
        (("Q - beta log(q_t/p_t) = nu", r"q_t = p_t\, e^{(Q - \nu)/\beta}"),
         ("Q - beta (1 - p_t/q_t) = nu - beta", r"q_t = \frac{\beta\, p_t}{\nu - Q}")),
        holds=own < 1e-12 and crossed > 1e-3 and abs(ends["to-go"][()] - tilted) < 1e-12,
    )  # fmt: skip


def _list_slopes(kind, policy):
    """The field by prefix from the means given the prefix, not from whole sequences."""
    slopes = {}
    for prefix, x in policy.items():
        reach = 1 if not prefix else (policy[()] if prefix[0] == 0 else 1 - policy[()])
        rows = []
        for word, (chance_q, chance_p) in enumerate(
            ((x, TREE_REFERENCE[prefix]), (1 - x, 1 - TREE_REFERENCE[prefix]))
        ):
            path = (*prefix, word)
            penalty = 1 - chance_p / chance_q if kind == "k3" else mpmath.log(chance_q / chance_p)
            value = TREE_REWARDS.get(path)
            if value is None:
                later = list(zip((policy[path], 1 - policy[path]), (0, 1), strict=True))
                value = sum(chance * TREE_REWARDS[(*path, w)] for chance, w in later)
                if kind == "to-go":
                    pairs = zip((policy[path], 1 - policy[path]),
                                (TREE_REFERENCE[path], 1 - TREE_REFERENCE[path]), strict=True)  # fmt: skip
                    value -= BETA * sum(a * mpmath.log(a / b) for a, b in pairs)
            rows.append(value - BETA * penalty)
        slopes[prefix] = reach * x * (1 - x) * (rows[0] - rows[1])
    return slopes
