"""Sequences: the oracle against sums over all sequences written out here, with nothing shared."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from klsym.kernel.intervals import Interval
from klsym.language.abbreviations import Context
from klsym.numeric.exact import enclose, evaluate
from klsym.numeric.models import from_certificate
from support.oracle_atoms import *
from support.oracle_atoms import at as slot

LATER = {
    "q": ["1/3", "2/3"], "p": ["1/2", "1/2"], "mu": ["1/4", "3/4"],
    "u": ["2", "-1"], "v": ["1", "1/2"], "R": ["3", "5"], "next": [None, None],
}  # fmt: skip
ROOT = {
    "q": ["1/2", "1/4", "1/4"], "p": ["1/4", "1/4", "1/2"], "mu": ["1/5", "2/5", "2/5"],
    "u": ["1", "0", "3"], "v": ["0", "2", "-1"], "R": ["1", "-1", "2"], "next": [None, LATER, {
        "q": ["1"], "p": ["1"], "mu": ["1"], "u": ["7"], "v": ["-3"], "R": ["1/2"], "next": [LATER],
    }],
}  # fmt: skip
JSON = {"tree": ROOT, "parameters": {}}
MODEL = from_certificate(JSON)


class Token:
    """One step: probabilities, scores and the reward."""

    def __init__(self, node, i, shift):
        q = moved(node, shift)
        self.q, self.p, self.mu = q[i], float(Fraction(node["p"][i])), float(Fraction(node["mu"][i]))
        self.R, self.k1, self.w = (
            float(Fraction(node["R"][i])),
            math.log(q[i] / self.p),
            math.log(q[i] / self.mu),
        )
        d = {a: [float(Fraction(x)) for x in node[a]] for a in "uv"}
        self.u, self.v = (d[a][i] - sum(x * y for x, y in zip(q, d[a], strict=True)) for a in "uv")


def moved(node, shift):
    """q at theta + a u + b v."""
    a, b = shift
    rows = zip(node["q"], node["u"], node["v"], strict=True)
    weights = [float(Fraction(q)) * math.exp(a * Fraction(u) + b * Fraction(v)) for q, u, v in rows]
    return [weight / sum(weights) for weight in weights]


def sequences(node, shift=(0, 0)):
    for i, after in enumerate(node["next"]):
        token = Token(node, i, shift)
        for rest in [[]] if after is None else sequences(after, shift):
            yield [token, *rest]


def prob(path, name="q"):
    return math.prod(getattr(token, name) for token in path)


def prefixes(path):
    return [path[:t] for t in range(len(path))]


def total(path, name):
    return sum(getattr(token, name) for token in path)


def sum_over_steps(f, m="q"):
    """sum_y m(y) sum_t f(past, now, future)."""
    return sum(prob(y, m) * f(y[:t], y[t], y[t + 1 :]) for y in sequences(ROOT) for t in range(len(y)))


def test_the_tree_is_the_one_that_is_written():
    assert MODEL.lengths == (1, 2, 2, 3, 3) and MODEL.exact
    assert [prob(y) for y in sequences(ROOT)] == pytest.approx([1 / 2, 1 / 12, 1 / 6, 1 / 12, 1 / 6])


# E_m[sum_t f]: coefficient, scores, measure, f(past, now, future)
VALUES = {
    "k1 now": (k1("now"), (), "q", lambda a, b, c: b.k1),
    "k1 past": (k1("past"), (), "mu", lambda a, b, c: total(a, "k1")),
    "k1 future": (k1("future"), (), "p", lambda a, b, c: total(c, "k1")),
    "k1 of all": (k1("x"), (), "q", lambda a, b, c: total([*a, b, *c], "k1")),
    "ratio of the past": (rho("past") * k1("now"), (), "mu", lambda a, b, c: prob(a) / prob(a, "mu") * b.k1),
    "half a ratio": (
        (k1("future") * Fraction(1, 2)).exp(), (), "q", lambda a, b, c: (prob(c) / prob(c, "p")) ** 0.5
    ),
    "log q": (slot("log_q", "past"), (), "q", lambda a, b, c: math.log(prob(a))),
    "rewards": (
        slot("R", "past") + 2 * slot("R", "now") - slot("R", "future") * slot("R", "x"), (), "q",
        lambda a, b, c: total(a, "R") + 2 * b.R - total(c, "R") * total([*a, b, *c], "R"),
    ),
    "lengths": (
        slot("length", "past") + 10 * slot("length", "now") + 100 * slot("length", "future"), (), "mu",
        lambda a, b, c: len(a) + 10 + 100 * len(c),
    ),
    "1/length": (k1("now") * length.inverse(), (), "q", lambda a, b, c: b.k1 / (len(a) + 1 + len(c))),
    "score now": (k1("past"), ("now", "now"), "p", lambda a, b, c: total(a, "k1") * b.u**2),
    "score past": (k1("now"), ("past",), "q", lambda a, b, c: b.k1 * total(a, "u")),
    "score future": (slot("R", "now"), ("future", "now"), "q", lambda a, b, c: b.R * b.u * total(c, "u")),
    "score of all": (k1("now"), ("x",), "q", lambda a, b, c: b.k1 * total([*a, b, *c], "u")),
    "second direction": (
        k1("now"), ("now'", "past"), "q", lambda a, b, c: b.k1 * b.v * total(a, "u"),
    ),
    "second direction of all": (
        r("now"), ("x'", "now"), "q", lambda a, b, c: b.p / b.q * total([*a, b, *c], "v") * b.u
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_sums_over_steps(name):
    a, score, m, literal = VALUES[name]
    found, _ = evaluate(claim(over_t(a, *score, m=m)), MODEL)
    assert found == pytest.approx(sum_over_steps(literal, m), rel=1e-12, abs=1e-13)
    lower, _ = enclose(claim(over_t(a, *score, m=m)), MODEL)
    assert float(lower.lower) == pytest.approx(found, rel=1e-12, abs=1e-13)


def test_a_sum_in_fractions():
    """E_q[sum_t R_past s_now]: R_past is 0, -1 or 2, 5/2 and s_now is u less its mean."""
    at_later = Fraction(1, 3) * 2 + Fraction(2, 3) * -1  # mean of u
    scores = [2 - at_later, -1 - at_later]
    second = Fraction(1, 4) * -1 * (scores[0] / 3 + scores[1] * Fraction(2, 3))
    third = Fraction(1, 4) * Fraction(5, 2) * (scores[0] / 3 + scores[1] * Fraction(2, 3))
    left, _ = enclose(claim(over_t(slot("R", "past"), "now")), MODEL)
    assert left == Interval.exact(second + third) == Interval.exact(0)
    squared = Fraction(1, 4) * (Fraction(5, 2) - 1) * (scores[0] ** 2 / 3 + scores[1] ** 2 * Fraction(2, 3))
    left, _ = enclose(claim(over_t(slot("R", "past"), "now", "now")), MODEL)
    assert left == Interval.exact(squared)  # the step of one branch has score 0
    left, _ = enclose(claim(whole(slot("R", "x") * length)), MODEL)
    assert left == Interval.exact(
        Fraction(1, 2) + Fraction(2 * 2, 12) + Fraction(2 * 4, 6) + Fraction(3, 12) * Fraction(11, 2)
        + Fraction(3, 6) * Fraction(15, 2)
    )  # fmt: skip


# E_m[sum_t grad L]: loss, measure, L(live, detached), each (past, now, future)
LOSSES = {
    "k1 now": (k1("now"), "q", lambda x, y: x[1].k1),
    "k2 now": (k2("now"), "q", lambda x, y: x[1].k1 ** 2 / 2),
    "k2 of all": (k2("x"), "q", lambda x, y: total([*x[0], x[1], *x[2]], "k1") ** 2 / 2),
    "k3 now": (k3("now"), "mu", lambda x, y: x[1].p / x[1].q - 1 + x[1].k1),
    "past now": (k1("past") * k1("now"), "p", lambda x, y: total(x[0], "k1") * x[1].k1),
    "detached past": (sg(k1("past")) * k1("now"), "q", lambda x, y: total(y[0], "k1") * x[1].k1),
    "prefix weight": (
        rho("past") * sg(rho("now")) * k1("now"), "mu",
        lambda x, y: prob(x[0]) / prob(x[0], "mu") * y[1].q / y[1].mu * x[1].k1,
    ),
    "future, 1/T": (
        k2("future") * length.inverse(), "q",
        lambda x, y: total(x[2], "k1") ** 2 / 2 / (len(x[0]) + 1 + len(x[2])),
    ),
    "rewards": (
        slot("R", "future") * slot("log_q", "now"), "q", lambda x, y: total(x[2], "R") * math.log(x[1].q)
    ),
}  # fmt: skip


def field(name, along, base=(0.0, 0.0), h=1e-4):
    """d/dt of sum_y m(y) sum_t L at theta + base, along a direction; m and sg(.) are those of t = 0."""
    _, m, literal = LOSSES[name]

    def value(t):
        shift = (base[0] + t * (along == "u"), base[1] + t * (along == "v"))
        pairs = zip(sequences(ROOT, shift), sequences(ROOT, base), strict=True)
        return sum(
            prob(y, m) * literal((x[:t], x[t], x[t + 1 :]), (y[:t], y[t], y[t + 1 :]))
            for x, y in pairs for t in range(len(y))
        )  # fmt: skip

    return (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)


@pytest.mark.parametrize("name", LOSSES)
def test_expected_gradients_are_central_differences(name):
    loss, m, _ = LOSSES[name]
    found, _ = evaluate(claim(gradient_over("t", loss, m=m)), MODEL)
    assert found == pytest.approx(field(name, "u"), rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_curls_are_central_differences_of_the_field(name):
    """The field at theta + s v has its own sg(.), and its own q where that is the measure."""
    loss, m, _ = LOSSES[name]
    h = 1e-2

    def slope(along, over):
        def at(s):
            return field(name, along, (s * (over == "u"), s * (over == "v")))

        return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)

    expected = slope("u", "v") - slope("v", "u")
    statement = claim(curl(loss, m=m))
    found, _ = evaluate(statement, MODEL)
    exact, _ = enclose(statement, MODEL)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert found == pytest.approx(float(exact.lower), rel=1e-10, abs=1e-12)
    assert exact.upper - exact.lower < Fraction(1, 10**18)


def test_curls_are_not_all_zero():
    values = [evaluate(claim(curl(loss, m=m)), MODEL)[0] for loss, m, _ in LOSSES.values()]
    assert sum(abs(value) > 1e-3 for value in values) >= 4


# gradients of functionals: side, value at the q of theta + t u
FUNCTIONALS = {
    "E_q[sum_t k2 now]": (over_t(k2("now")), lambda y: prob(y) * sum(token.k1**2 for token in y) / 2),
    "E_mu[sum_t k3 past]": (
        over_t(k3("past"), m="mu"),
        lambda y: prob(y, "mu") * sum(prob(x, "p") / prob(x) - 1 + total(x, "k1") for x in prefixes(y)),
    ),
    "E_q[T]": (over_t(1), lambda y: prob(y) * len(y)),
    "E_q[R/T]": (whole(slot("R", "x") * length.inverse()), lambda y: prob(y) * total(y, "R") / len(y)),
    "KL(q||p)": (KL("q", "p"), lambda y: prob(y) * math.log(prob(y) / prob(y, "p"))),
    "KL(mu||q)": (KL("mu", "q"), lambda y: prob(y, "mu") * math.log(prob(y, "mu") / prob(y))),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_functionals_move_with_theta_at_every_node(name):
    side, literal = FUNCTIONALS[name]

    def value(t):
        return sum(literal(y) for y in sequences(ROOT, (t, 0)))

    found, slope = evaluate(claim(side, grad(side)), MODEL)
    assert found == pytest.approx(value(0), rel=1e-12)
    h = 1e-4
    central = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    assert slope == pytest.approx(central, rel=1e-9, abs=1e-10)


def node_weights(node, m, weight=1.0):
    """Each node and the probability of its prefix."""
    yield node, weight
    for i, after in enumerate(node["next"]):
        if after is not None:
            yield from node_weights(after, m, weight * float(Fraction(node[m][i])))


PAIRS = [
    ("q", "q", "p"),
    ("mu", "q", "p"),
    ("p", "p", "q"),
    ("mu", "p", "q"),
    ("q", "mu", "p"),
    ("q", "q", "mu"),
]


@pytest.mark.parametrize(("m", "a", "b"), PAIRS)
def test_token_divergences(m, a, b):
    def next_kl(node, t):
        row = {name: [float(Fraction(x)) for x in node[name]] for name in ("p", "mu")} | {
            "q": moved(node, (t, 0))
        }
        return sum(x * math.log(x / y) for x, y in zip(row[a], row[b], strict=True))

    def value(t):
        return sum(weight * next_kl(node, t) for node, weight in node_weights(ROOT, m))

    found, slope = evaluate(claim(tokens(a, b, m=m), tokens(a, b, m=m, gradient=True)), MODEL)
    assert found == pytest.approx(value(0), rel=1e-12)
    assert slope == pytest.approx((value(1e-5) - value(-1e-5)) / 2e-5, rel=1e-8, abs=1e-10)


def test_prefixes_move_under_a_gradient_and_not_in_a_field():
    whole_, held = evaluate(claim(grad(tokens("q", "p")), tokens("q", "p", gradient=True)), MODEL)
    assert whole_ == pytest.approx(evaluate(claim(grad(KL("q", "p"))), MODEL)[0], rel=1e-13)
    assert abs(whole_ - held) > 1e-3


def test_one_sequence():
    model = replace(MODEL, outcome=3)
    path = list(sequences(ROOT))[3]
    found, _ = evaluate(claim(mean("t", "sample", k1("past") * slot("R", "now"), "now")), model)
    expected = sum(total(path[:t], "k1") * path[t].R * path[t].u for t in range(3))
    assert found == pytest.approx(expected, rel=1e-12) and abs(expected) > 0.01
    found, _ = evaluate(claim(gradient_over("t", k2("now"), m="sample")), model)
    assert found == pytest.approx(sum(token.k1 * token.u for token in path), rel=1e-12)


def test_a_tree_is_a_model_of_single_samples():
    """Its outcomes are the sequences; the moved q is no softmax over them along u."""
    found, score = evaluate(claim(whole_gradient(k2("x")), whole(k1("x"), 1)), MODEL)
    expected = sum(prob(y) * total(y, "k1") * total(y, "u") for y in sequences(ROOT))
    assert found == pytest.approx(expected, rel=1e-12) == score


def test_the_sampler_moves_along_on_policy_in_a_curl_alone():
    on = {**JSON, "tree": on_policy(ROOT)}
    model, same = from_certificate(on), curl(k3("now"), m="q")
    setting = {"on_policy": True}
    a, b = evaluate(claim(curl(k3("now"), m="mu"), same, **setting), model)
    assert a == pytest.approx(b, rel=1e-9) and abs(a) > 1e-3
    x, y = enclose(claim(curl(k3("now"), m="mu"), same, **setting), model)
    assert x == y
    held, moves = evaluate(claim(grad(over_t(k3("now"), m="mu")), grad(over_t(k3("now"))), **setting), model)
    assert abs(held - moves) > 1e-3
    assert model.moved(0.3, Context(on_policy=True)).mu == model.moved(0.3, Context(on_policy=True)).q
    assert model.moved(0.3, Context()).mu == model.mu


def on_policy(node):
    after = [None if x is None else on_policy(x) for x in node["next"]]
    return {**node, "mu": node["q"], "next": after}
