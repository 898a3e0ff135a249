"""Known identities agree on every model; what comes close to them does not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from klsym.language.abbreviations import Covariance, Side
from klsym.language.unfolding import list_given_means, unfold
from klsym.numeric.exact import draw_models, enclose, evaluate, measure_agreement
from klsym.numeric.models import FiniteModel, random_model
from support.oracle_atoms import *

ON = {"on_policy": True}
LAM = {"parameters": ("lam",)}
SIZE = {"parameters": ("m", "n"), "premises": ((Side.from_constant(n), Side.from_constant(m + 1)),)}
F = {"functions": (("f", ("k1", "log_q", "w")),)}
ENTROPY = {"given": (("H[now]", k1("now") * at("length", "past") + lam),), **LAM}
GIVEN = {"given": (("R", k1("x") * lam),), "parameters": ("lam", "n")}
OPTIMUM = {"given": (("R", V("nu") + V("beta") * k1("x")),), "parameters": ("beta", "nu")}

ALL = k1("past") + k1("now") + k1("future")
LEFT_OUT = k1("self") - k1("others") * m.invert()
TOKEN_CURL = over_t(k1("now"), "now", "past'") - over_t(k1("now"), "now'", "past")
SURPRISE = k2("x") * V("beta") - (at("R", "x") - V("nu")) * at("log_q", "x")


# left = right, and left != wrong; test_literal.py judges the values themselves
ROWS = {
    # one sample
    "k3 in the loss": (whole_gradient(k3("x")), FORWARD, REVERSE),
    "on-policy weight": (
        whole_gradient(rho("x") * k1("x"), "mu"), REVERSE, whole_gradient(sg(rho("x")) * k1("x"), "mu"), ON,
    ),
    "no log of the weight": (whole(at("w", "x"), m="mu"), NOTHING, 1, ON),
    "a hair": (KL("q", "p"), whole(k3("x")), KL("q", "p") + Side.from_constant(Fraction(1, 10**6))),
    "a variance": (
        Side.from_atom(Covariance("q", r("x"), r("x"))), Side.from_atom(Divergence("chi2", "p", "q")),
        whole(r("x") ** 2),
    ),
    "counting": (
        whole(at("log_q", "x").exp() * k1("x"), 0, "count"), KL("q", "p"), whole(k1("x"), 0, "count"),
    ),
    "policy gradient": (
        whole_gradient(rho("x") * at("A", "x"), "mu"), whole(at("A", "x"), 1), whole(at("R", "x"), 1),
    ),
    "the optimum": (whole_gradient(SURPRISE, "mu"), NOTHING, REVERSE, OPTIMUM),
    "a given reward is held": (
        whole_gradient(at("R", "x") * at("log_q", "x")), REVERSE * V("beta"),
        grad(whole(at("R", "x"))) * 2, OPTIMUM,
    ),
    "functions": (
        grad(whole(V("f"))), whole_gradient(V("f")) + whole(V("f"), 1), whole_gradient(V("f")), F,
    ),
    "scores": (whole(k1("x"), 2, "mu"), whole(k1("x") * rho("x").invert(), 2), whole(k1("x"), 2)),
    # sequences
    "functions of the past": (over_t(V("f[past]"), "now"), NOTHING, over_t(V("f[future]"), "now"), F),
    "a curl, by a hair": (curl(k2("now")), TOKEN_CURL, TOKEN_CURL * Fraction(1001, 1000)),
    "a curl on-policy": (curl(k2("now"), m="mu"), curl(k2("now")), NOTHING, ON),
    "given at a step": (
        over_t(at("H", "now")), over_t(k1("now") * at("length", "past") + lam),
        over_t(k1("now") * at("length", "now") + lam), ENTROPY,
    ),
    "given, summed": (
        over_t(at("H", "past"), "x"),
        over_t((k1("now") * at("length", "past") + lam) * at("length", "future"), "x"),
        over_t(at("H", "now"), "now"), ENTROPY,
    ),
    # batches
    "leave one out": (over_i(LEFT_OUT, "self"), REVERSE, over_i(LEFT_OUT, "others"), SIZE),
    "a given reward": (
        over_i(at("R", "others"), m="mu"), over_i(k1("others"), m="mu") * lam, over_i(k1("others")) * lam,
        GIVEN,
    ),
    "sequences of a batch": (
        mean("it", "q", ALL - k1("others") * m.invert(), "now"), REVERSE, mean("it", "q", k1("now"), "now"),
        SIZE,
    ),
}  # fmt: skip


def statements(name):
    """The identity, and what comes close to it."""
    left, right, wrong, *setting = ROWS[name]
    return [claim(left, side, **(setting[0] if setting else {})) for side in (right, wrong)]


def models(statement, seeds, exact=False):
    found = draw_models(statement, seeds, exact)
    if not statement.context.premises:
        return found
    return [
        replace(model, parameters={**model.parameters, "m": model.parameters["n"] - 1}) for model in found
    ]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.share(3)
def test_identities_agree_and_near_misses_do_not(name):
    true, false = statements(name)
    assert measure_agreement(true, models(true, range(2))).difference < 1e-13
    assert measure_agreement(false, models(false, range(2))).difference > 1e-8
    if true.context.functions:
        return
    for model in models(true, (1, 3), exact=True):
        left, right = enclose(true, model)
        assert max(left.lower, right.lower) <= min(left.upper, right.upper)
        assert max(left.upper - left.lower, right.upper - right.lower) < Fraction(1, 10**20)
    enclosures = (enclose(false, model) for model in models(false, (3, 1, 6), exact=True))
    assert any(x.lower > y.upper or x.upper < y.lower for x, y in enclosures)


def test_means_of_what_is_given_have_those_of_its_value():
    claimed = claim(over_t(at("H", "now") * k1("past")) + over_t(at("H", "now"), "past", m="mu"), **ENTROPY)
    pairs = list_given_means(unfold(claimed.left, claimed.context), claimed.context)
    assert len(pairs) == 2
    for left, right in pairs:
        both = replace(claimed, left=left, right=right)
        assert measure_agreement(both, draw_models(both, range(2))).difference < 1e-13
        assert left != right


def test_the_curl_of_a_generic_function_is_that_of_its_slope():
    """curl f(k1_now) = E_q[sum_t f' (s_now.u s_past.v - s_now.v s_past.u)], for callables and in the ring."""
    right = over_t(V("f'[now]"), "now", "past'") - over_t(V("f'[now]"), "now'", "past")
    statement = claim(curl(V("f[now]")), right, functions=(("f", ("k1",)),))
    curved = {"f": lambda x: np.sin(x) + x**3}
    assert measure_agreement(statement, models(statement, range(2)), curved).difference < 1e-13
    assert measure_agreement(statement, models(statement, range(2)), {"f": k3("x")}).difference < 1e-13
    wrong = replace(statement, right=right * Fraction(1001, 1000))
    assert measure_agreement(wrong, models(wrong, range(2)), curved).difference > 1e-8
    for model in models(statement, (1, 2), exact=True):
        left, found = enclose(statement, model, {"f": k3("x")})
        assert left.lower <= found.upper and found.lower <= left.upper


# ---------------------------------------------------------------------------- how agreement is measured
def test_agreement_is_that_of_the_worst_model():
    statement = claim(KL("q", "p"), KL("p", "q"))
    mirrored = FiniteModel(q=["1/3", "2/3"], p=["2/3", "1/3"], u=[1, 0])
    assert measure_agreement(statement, [mirrored]).difference < 1e-15
    both = measure_agreement(statement, [mirrored, random_model(0, 3)])
    assert both.difference > 1e-3 and both.models == 2


def test_the_scale_is_that_of_the_terms():
    """Ten digits cancel; the difference is judged by the terms, and is still seen when real."""
    big = 10**10
    left = whole(r("x") * big) - Side.from_constant(big) + whole(k1("x"))
    for extra, small in ((0, True), (Fraction(1, 100), False)):
        statement = claim(left, KL("q", "p") + Side.from_constant(extra))
        assert (measure_agreement(statement, models(statement, range(6))).difference < 1e-14) is small


@pytest.mark.parametrize("name", ["k3 in the loss", "scores", "policy gradient"])
def test_directions_that_move_nothing_are_no_disagreement(name):
    """Along a constant u every gradient is rounding noise."""
    statement, _ = statements(name)
    model = replace(random_model(0, 5, statement.context), u=[0.1] * 5)
    assert measure_agreement(statement, [model]).difference < 1e-14


@pytest.mark.parametrize("left", [
    KL("q", "mu"), Side.from_atom(Divergence("chi2", "mu", "q")),
    grad(Side.from_atom(Divergence("J", "q", "mu"))),
    Side.from_atom(Covariance("p", at("w", "x"), k1("x"))),
])  # fmt: skip
def test_noise_around_zero_is_no_disagreement(left):
    statement = claim(left, on_policy=True)
    assert measure_agreement(statement, models(statement, range(6))).difference < 1e-14


def test_infinite_sides_never_agree():
    statement = claim(whole((k1("x") * V("eps")).exp()), parameters=("eps",))
    model = replace(random_model(0, 3, Context(("eps",))), parameters={"eps": 1e9})
    assert measure_agreement(statement, [model]).difference == float("inf")


@pytest.mark.parametrize("name", ["k3 in the loss", "a variance", "policy gradient"])
def test_statements_without_logarithms_are_enclosed_in_points(name):
    statement, _ = statements(name)
    for model in models(statement, range(3), exact=True):
        left, right = enclose(statement, model)
        assert left.lower == left.upper == right.lower == right.upper


def test_pointwise_quantities_are_those_of_the_outcome():
    model = FiniteModel(q=["1/2", "1/4", "1/4"], p=["1/8", "3/8", "1/2"], u=[1, 0, 2], outcome=2)
    left, right = evaluate(claim(mean("", "sample", r("x"), "x"), gradient_over("", r("x"), "sample")), model)
    assert (left, right) == (2, -2)  # p/q = 2, u_x - (1/2 + 0 + 2/4) = 1
