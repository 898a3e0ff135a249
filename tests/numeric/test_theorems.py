"""The oracle's judgement of theorems: those of the kernel pass, and wrong ones that no kernel made fail."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sympy import Function

from klsym import calculus as c
from klsym.calculus import derive
from klsym.errors import UsageError
from klsym.kernel import Theorem
from klsym.kernel.closings import Zero
from klsym.kernel.definitions import REGION, Definition
from klsym.language.abbreviations import Statement
from klsym.numeric.exact import check_theorem, draw_models
from klsym.numeric.random_models import find_allowed_model
from support.oracle_atoms import *

f, g = (Function(name)(*of) for name, of in (("f", (c.log_q, c.log_p, c.log_mu)), ("g", (c.k1,))))
a, b = V("a"), V("b")
VANISHING = c.expectation(f, under=c.q), c.expected_gradient(f) + c.expectation(f * c.s, under=c.q)
SCORED = c.expectation(c.k1 * c.s, under=c.q)


# ---------------------------------------------------------------------------- theorems of the kernel
def of_the_kernel():
    reverse, q, mu = c.grad(c.KL(c.q, c.p)), c.q, c.mu
    yield derive(c.expected_gradient(c.rho * c.k3, under=mu)).equals(reverse)
    yield derive(c.expected_gradient(c.k3)).differs_from(reverse)
    yield derive(c.expected_gradient(c.sg(c.rho) * c.k2, under=mu), on_policy=True).equals(reverse)
    yield derive(c.covariance(c.k1, c.r - 1, under=q)).equals(-c.jeffreys(c.p, q))
    family = c.k2 + c.parameter("a") * c.k1 + c.parameter("b")
    constants = (c.parameter("b"), c.parameter("a"))
    yield derive(c.expected_gradient(g) - reverse).iff("g", family, constants)
    yield derive(c.expected_gradient(c.rho * c.k2, under=mu)).is_no_combination()
    yield derive(c.expected_gradient(c.k3 + c.R * c.k2 + c.A * c.log_q)).is_no_combination()
    yield derive(c.grad(VANISHING[0])).equals(VANISHING[1])
    square, second = SCORED * SCORED, c.expectation((c.k1 * c.s) ** 2, under=q)
    yield derive(square).at_most(second, rows=[{"variance": c.k1, "at": "q", "power": 1}])
    yield derive(square).differs_from(second)
    yield derive(c.expectation(c.k3, under=mu)).differs_from(0, relation="<=")


@pytest.mark.parametrize("number", range(11))
def test_theorems_of_the_kernel_pass(number):
    proof = list(of_the_kernel())[number]
    outcome = check_theorem(proof.theorem)
    assert outcome.passed and outcome.kind == proof.theorem.kind, outcome.text


def test_premises_in_theorems_need_functions():
    reverse = c.grad(c.KL(c.q, c.p))
    proof = derive(VANISHING[1], premises=((c.KL(c.q, c.p), VANISHING[0]),)).equals(reverse)
    functions = {"f": lambda k1, log_q, w: k1, "of another theorem": np.sin}
    assert check_theorem(proof.theorem, functions=functions).passed
    with pytest.raises(UsageError, match="premise 1 fails"):
        check_theorem(proof.theorem)


# ---------------------------------------------------------------------------- theorems that no kernel made
def theorem(kind, left, right=0, close=None, relation="=", hypotheses=(), zeros=(), **setting):
    statement = replace(claim(left, right, **setting), relation=relation)
    return Theorem(kind, statement, (), hypotheses, close or {}, zeros)


def premise(left, right, *names):
    return {
        "premises": ((Side.from_constant(left), Side.from_constant(right)),),
        "parameters": tuple(sorted(names)),
    }


def vanishing(u):
    """An inequality by one row, an equality where u = 0."""
    return (Zero("", "q", ONE, u, (), ONE, False),)


FLAT = {
    "q": ["1/2", "1/4", "1/4"], "p": ["1/4", "1/4", "1/2"], "mu": ["1/3", "1/3", "1/3"],
    "u": ["1", "0", "0"], "parameters": {}, "rewards": {}, "outcome": 0,
}  # fmt: skip
LATER = {
    "q": ["1/3", "2/3"], "p": ["1/2", "1/2"], "mu": ["1/4", "3/4"],
    "u": ["2", "-1"], "v": ["1", "1/2"], "R": ["3", "5"], "next": [None, None],
}  # fmt: skip
TREE = {"tree": {**LATER, "next": [None, LATER]}, "parameters": {"lam": "1/2"}}
TURNED = {**TREE, "tree": {**TREE["tree"], "v": ["0", "3"]}}
ONE_NODE = {**TREE, "tree": LATER}
THREE = {**TREE, "parameters": {"n": "3"}}


def refuted(model, left, right=0, relation="="):
    return theorem("refuted", left, right, {"model": model}, relation)


def unique(left, family, order, *constants, hypotheses=(), more=()):
    close = {"function": "g", "family": family.to_json(), "order": order, "constants": list(constants)}
    names = tuple(sorted({*constants, *more}))
    setting = {"functions": (("g", ("k1",)),), "parameters": names}
    return theorem("unique", left, 0, close, hypotheses=hypotheses, **setting)


HAIR = 1 + Fraction(1, 10**8)
UNSEEN = 1 + Fraction(1, 10**12)  # what no float shows
LAM = {"parameters": ("lam",)}
SIZE = premise(n, m + 1, "m", "n")
LOO = over_i(k1("self") - k1("others") * m.invert(), "self")
F = {"functions": (("f", ("k1", "log_q", "w")),)}
G = {"functions": (("g", ("k1",)),)}
ON_G = whole_gradient(V("g")) - REVERSE
W_G = whole(at("w", "x") * V("g") * k1("x"), 1)
SQUARED_G = whole_gradient(sg(at("w", "x")) * V("g") ** 2 * HALF) - W_G
TOKEN_G = gradient_over("t", V("g[now]")) - tokens("q", "p", gradient=True)
LINE = a * k1("x") + b
POSITIVE = (("positive", "lam"),)
K3_NOW = over_t(k3("now"))

PASS = {
    "a sequence": theorem("proved", over_t(k1("now"), "x"), REVERSE),
    "a curl": theorem("proved", curl(k2("x") * length.invert())),
    "leave one out": theorem("proved", LOO, REVERSE, **SIZE),
    "a premise for n alone": theorem("proved", KL("q", "p") * n, KL("q", "p") * (m + 1), **SIZE),
    "two premises": theorem(
        "proved", over_t(1 * m) * a, over_t(n - 1) * a,
        premises=(*SIZE["premises"], (Side.from_constant(a), Side.from_constant(m * 2))),
        parameters=("a", "m", "n"),
    ),
    "a mean": theorem("proved", KL("q", "p"), K3_NOW, relation="<="),
    "a term that vanishes where q = p": theorem(
        "proved", NOTHING, tokens("q", "p"), zeros=vanishing(k1("x")), relation="<=",
    ),
    "positive": theorem("proved", NOTHING, K3_NOW * lam, relation="<=", hypotheses=POSITIVE, **LAM),
    "functions": theorem(
        "proved", grad(over_t(V("f[now]"))), over_t(V("f[now]"), "x") + gradient_over("t", V("f[now]")), **F,
    ),
    "refuted: tokens are not the sequence": refuted(TREE, over_t(k1("now"), "now"), REVERSE),
    "refuted: a curl": refuted(TURNED, curl(k2("now"))),
    "refuted: an order": refuted(TREE, KL("q", "p"), 0, "<="),
    "refuted: a batch": refuted(FLAT, over_i(k1("self"), "others"), REVERSE),
    "refuted: a batch of sequences": refuted(THREE, mean("it", "q", k1("others"))),
    "independent: tokens": theorem("independent", gradient_over("t", k2("now"))),
    "independent: token k3": theorem("independent", gradient_over("t", k3("now"))),
    "independent: off-policy": theorem("independent", gradient_over("t", sg(rho("now")) * k2("now"), m="mu")),
    "unique: tokens": unique(TOKEN_G, k2("x") + LINE, 2, "b", "a"),
    "unique: beta is not 0": unique(
        ON_G * V("beta"), k2("x") + LINE, 2, "b", "a", hypotheses=(("nonzero", "beta"),), more=("beta",)
    ),
}  # fmt: skip
FAIL = {
    "one sample": theorem("proved", whole_gradient(k3("x")), REVERSE),
    "by a hair": theorem("proved", KL("q", "p") * HAIR, KL("q", "p")),
    "but for what no float shows": theorem("proved", KL("q", "p") * UNSEEN, KL("q", "p")),
    "the same from below": theorem("proved", KL("q", "p"), KL("q", "p") * UNSEEN),
    "a sequence, but for what no float shows": theorem("proved", over_t(k1("now")), KL("q", "p") * UNSEEN),
    "a curl, but for what no float shows": theorem("proved", curl(k2("now")) * UNSEEN, curl(k2("now"))),
    "generic": theorem("proved", whole(V("g")), whole(V("g")) + Side.from_constant(1), **G),
    "generic, above": theorem("proved", whole(V("g")) + Side.from_constant(1), whole(V("g")), **G),
    "<=": theorem("proved", KL("q", "p"), KL("p", "q"), relation="<="),
    "a sequence": theorem("proved", over_t(k1("now"), "now"), REVERSE),
    "a curl": theorem("proved", curl(k2("now"))),
    "leave one out": theorem("proved", LOO * m, REVERSE * n, **SIZE),
    "an order": theorem("proved", K3_NOW, KL("q", "p") * HALF, relation="<="),
    "a sign": theorem("proved", NOTHING, K3_NOW * lam, relation="<=", **LAM),
    "functions": theorem("proved", grad(over_t(V("f[now]"))), gradient_over("t", V("f[now]")), **F),
    "equality elsewhere": theorem(
        "proved", NOTHING, tokens("q", "p"), zeros=vanishing(k1("x") - 5), relation="<=",
    ),
    "equality everywhere": theorem(
        "proved", NOTHING, tokens("q", "p"), zeros=vanishing(lam * 0), relation="<=",
    ),
    "refuted: one sample": refuted(FLAT, whole_gradient(k3("x")), FORWARD),
    "refuted: <=": refuted(FLAT, NOTHING, KL("q", "p"), "<="),
    "refuted by a silent model": refuted({**FLAT, "p": FLAT["q"]}, whole(k1("x"), 1), whole(r("x"), 1)),
    "refuted: the same": refuted(TREE, over_t(k1("now"), "x"), REVERSE),
    "refuted: a curl": refuted(TURNED, curl(k2("x") * length.invert())),
    "refuted: a curl in one plane": refuted(TREE, curl(k2("now"))),  # u and v are parallel
    "refuted: an order": refuted(TREE, -1 * KL("q", "p"), 0, "<="),
    "refuted: silent": refuted(ONE_NODE, over_t(k1("now"), "now"), REVERSE),
    "refuted: a batch": refuted(THREE, mean("it", "q", r("others") * length.invert()), 1),
    "unique, wrong family": unique(ON_G, k2("x") * 2, 1, "b"),
    "unique, a constant too few": unique(ON_G, k2("x") + b, 1, "b"),
    "unique, anything goes": unique(whole_gradient(sg(V("g"))), k2("x") + b, 1, "b"),
    "unique, g = 0 forgotten": unique(SQUARED_G, k2("x") + b, 1, "b"),
    "unique, beta = 0 forgotten": unique(ON_G * V("beta"), k2("x") + LINE, 2, "b", "a", more=("beta",)),
    "unique: tokens": unique(TOKEN_G, k3("x") + LINE, 2, "b", "a"),
    "independent": theorem("independent", whole_gradient(k3("x") + k2("x") * 2)),
    "independent, rewards": theorem("independent", whole_gradient(k3("x") + at("R", "x") * at("log_q", "x"))),
    "independent, parameter": theorem("independent", whole_gradient(k3("x") * lam), **LAM),
    "independent, zero": theorem("independent", whole_gradient(k1("x"))),
    "independent, on-policy": theorem(
        "independent", whole_gradient(k1("x") * (1 + at("w", "x"))), on_policy=True
    ),
    "independent: a reward": theorem("independent", over_t(at("R", "now"), "now") + REVERSE * 2),
    "independent: an advantage": theorem("independent", over_t(at("A", "now"), "now") + FORWARD),
    "independent: the sequence": theorem("independent", over_t(k1("now"), "x")),
    "independent: both": theorem("independent", over_t(k1("now"), "x") - over_t(2, "now", m="p")),
}  # fmt: skip


@pytest.mark.parametrize("name", PASS)
@pytest.mark.share(3)
def test_true_theorems_pass(name):
    outcome = check_theorem(PASS[name])
    assert outcome.passed, outcome.text
    if outcome.kind == "proved":
        assert ("enclosures" in outcome.text) is (name != "functions")


@pytest.mark.parametrize("name", FAIL)
@pytest.mark.share(3)
def test_wrong_theorems_fail_without_raising(name):
    outcome = check_theorem(FAIL[name])
    assert not outcome.passed, outcome.text
    assert name != "unique, beta = 0 forgotten" or "when beta = 0" in outcome.text


def test_an_enclosure_too_wide_to_tell_is_no_pass():
    big = 10**30
    outcome = check_theorem(theorem("proved", whole(k1("x") * big) - KL("q", "p") * big))
    assert outcome.measured["difference"] < 1e-14 and outcome.measured["width"] > 1e-15
    assert not outcome.passed


def test_premises_are_met_by_the_other_parameter():
    for name in ("leave one out", "a premise for n alone", "two premises"):
        for exact in (False, True):
            for model in draw_models(PASS[name].statement, range(6), exact):
                found = find_allowed_model(PASS[name], model, {})
                known = found.parameters
                assert known["n"] == model.parameters["n"] == known["m"] + 1 and found.exact is exact
                assert known.get("a", 2 * known["m"]) == 2 * known["m"]


def test_a_premise_that_cannot_be_met_is_refused():
    square = theorem("proved", KL("q", "p"), KL("q", "p"), **premise(m * m, n.exp(), "m", "n"))
    with pytest.raises(UsageError, match="premise 1 fails"):
        check_theorem(square)


@pytest.mark.parametrize("side", [over_t(at("A", "now"), "now"), over_i(at("A", "others"), "others")])
def test_no_certificate_says_what_a_is(side):
    with pytest.raises(UsageError, match="A"):
        check_theorem(refuted({**TREE, "parameters": {}}, side))


# ---------------------------------------------------------------------------- regions
HIGH = Definition("high", REGION, rho("x") - Fraction(6, 5))
LOW = Definition("low", REGION, Fraction(4, 5) - rho("x"))


@pytest.mark.parametrize("level", ["sample", "token"])
@pytest.mark.parametrize("moved", [None, -1, 1], ids=str)
def test_the_gradient_of_a_clamp_is_that_inside_its_bounds(level, moved):
    """grad E_mu[A clip(rho, 4/5, 6/5)] = E_mu[A rho s], but for what is outside; not with a bound moved."""
    index, reward, slot = ("", at("A", "x"), "x") if level == "sample" else ("t", at("R", "now"), "now")
    high, low, wrong = (at(name, slot) for name in ("high", "low", "wrong"))
    clipped = rho(slot) * (1 - high - low) + high * Fraction(6, 5) + low * Fraction(4, 5)
    outside = high + low if moved is None else wrong + low
    right = mean(index, "mu", reward * rho(slot) * (1 - outside), slot)
    definitions = (HIGH, LOW, Definition("wrong", REGION, HIGH.e + (moved or 0)))
    context = Context(definitions=definitions)
    bounds = tuple(("off", "mu", e) for _, _, e in definitions)
    statement = Statement(gradient_over(index, reward * clipped, "mu"), right, context)
    outcome = check_theorem(Theorem("proved", statement, (), bounds, {}), range(8))
    assert outcome.passed is (moved is None), outcome.text
