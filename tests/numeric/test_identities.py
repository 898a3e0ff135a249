"""Known identities of batches and sequences agree on every model; what comes close to them does not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from klsym.kernel.intervals import Interval
from klsym.language.abbreviations import Covariance, E, Side
from klsym.numeric.exact import agreement, enclose, evaluate, models_for
from support.oracle_atoms import *

N = {"parameters": ("n",)}
ON = {"on_policy": True}
SIZE = {"parameters": ("m", "n"), "premises": ((Side.constant(n), Side.constant(m + 1)),)}
F = {"functions": (("f", ("k1", "log_q", "w")),)}
F1 = {"functions": (("f", ("k1",)),)}
ENTROPY = {"given": (("H[now]", k1("now") * at("length", "past") + lam),), "parameters": ("lam",)}
GIVEN = {"given": (("R", k1("x") * lam),), "parameters": ("lam",)}

WEIGHTS = rho("past") * rho("now")
ALL = k1("past") + k1("now") + k1("future")
VARIANCE = Side.atom(Covariance("q", k1("x"), k1("x")))
SQUARE = Side.of((1, (E("q", k1("x")), E("q", k1("x")))))
SQUARED_GRADIENT = Side.of((1, (E("q", k1("x"), ("x",)), E("q", k1("x"), ("x",)))))
SHARE = V("n").inverse()

TRUE = {
    # sequences
    "the KL of a sequence": (over_t(k1("now")), KL("q", "p")),
    "its score form": (over_t(k1("now"), "past") + over_t(k1("now"), "now"), REVERSE),
    "its score form, turned": (over_t(k1("now") + k1("future"), "now"), REVERSE),
    "all of it": (over_t(ALL, "now"), REVERSE),
    "causality": (over_t(at("A", "past"), "now"), 0),
    "causality, future": (over_t(at("A", "now") * k1("past"), "future"), 0),
    "past advantages of all": (over_t(at("A", "past"), "now", "past"), 0),
    "the sum over the future": (over_t(at("R", "now"), "past"), over_t(at("R", "future"), "now")),
    "length, by parts": (
        over_t(length), over_t(1) + over_t(at("length", "past")) + over_t(at("length", "future")),
    ),
    "mean over steps": (over_t(length.inverse()), whole(1)),
    "1/T moves": (over_t(k1("now") * length.inverse(), "x") + over_t(length.inverse(), "now"),
                  grad(whole(k1("x") * length.inverse()))),
    "ratio of the now": (over_t(r("now") * k1("past"), "past"), over_t(k1("past"), "past")),
    "ratio of the future": (over_t(r("future") * k1("now"), "now"), over_t(k1("now"), "now")),
    "slot by slot": (
        over_t(k1("now") * at("R", "past"), m="mu"),
        over_t((k1("now") * at("R", "past")) * (-at("w", "past") - at("w", "now") - at("w", "future")).exp()),
    ),
    "prefix weights": (
        over_t(WEIGHTS * k1("now"), "past", m="mu") + over_t(WEIGHTS * k1("now"), "now", m="mu"), REVERSE,
    ),
    "off-policy, whole weight": (over_t(rho("x") * k1("now"), "x", m="mu"), REVERSE),
    "on-policy": (over_t(k1("now"), "x", m="mu"), REVERSE, ON),
    "tower": (tokens("q", "p"), KL("q", "p")),
    "tower, forward": (tokens("p", "q", m="p"), KL("p", "q")),
    "tower, under mu": (tokens("q", "p", m="mu"), over_t(rho("now") * k1("now"), m="mu")),
    "field of k2": (gradient_over("t", k2("now")), tokens("q", "p", gradient=True)),
    "field of k3": (gradient_over("t", k3("now")), tokens("p", "q", gradient=True)),
    "field and prefixes": (grad(tokens("q", "p")), REVERSE),
    "field and score": (
        REVERSE, tokens("q", "p", gradient=True) + over_t(k1("now"), "past"),
    ),
    "whole k3": (whole_gradient(k3("x")), FORWARD),
    "forward": (over_t(-1 * ONE, "now", m="p"), FORWARD),
    "detached past": (gradient_over("t", sg(k1("past")) * at("log_q", "now")), 0),
    "functions, chain rule": (gradient_over("t", V("f[now]")), over_t(V("f'[now]"), "now"), F),
    "functions, log derivative": (
        grad(over_t(V("f[now]"))), over_t(V("f[now]"), "x") + gradient_over("t", V("f[now]")), F,
    ),
    "functions of the past": (over_t(V("f[past]"), "now"), 0, F),
    "curl of the whole k2": (curl(k2("x") * length.inverse()), 0),
    "curl of the whole KL": (curl(sg(ALL) * at("log_q", "now")), 0),
    "curl of 1/T": (curl(sg(ALL) * at("log_q", "now") * length.inverse()), 0),
    "curl of what mu averages": (curl(k2("now"), m="mu"), 0),
    "curl is linear": (curl(lam * k2("now") + k1("now")), curl(k2("now")) * lam, {"parameters": ("lam",)}),
    "curl on-policy": (curl(k2("now"), m="mu"), curl(k2("now")), ON),
    "curl of k2": (curl(k2("now")), over_t(k1("now"), "now", "past'") - over_t(k1("now"), "now'", "past")),
    "curl of rewards": (
        curl(at("R", "now") * at("log_q", "past")),
        over_t(at("R", "now"), "past", "now'") - over_t(at("R", "now"), "past'", "now"),
    ),
    "given at a step": (over_t(at("H", "now")), over_t(k1("now") * at("length", "past") + lam), ENTROPY),
    "given, summed": (
        over_t(at("H", "past"), "x"),
        over_t((k1("now") * at("length", "past") + lam) * at("length", "future"), "x"), ENTROPY,
    ),
    "given, whole": (whole(at("H", "x"), 1), over_t(at("H", "now"), "x"), ENTROPY),
    # batches
    "no baseline": (over_i(k1("self"), "self"), REVERSE, N),
    "leave one out": (over_i(k1("self") - k1("others") * m.inverse(), "self"), REVERSE, SIZE),
    "mean baseline": (
        over_i(k1("self") - (k1("self") + k1("others")) * SHARE, "self"), REVERSE * (1 - SHARE), N,
    ),
    "scaled back": (
        over_i((k1("self") - (k1("self") + k1("others")) * SHARE) * n * m.inverse(), "self"), REVERSE, SIZE,
    ),
    "independence": (over_i(k1("self") * k1("others")), SQUARE * (n - 1), N),
    "square of the others": (
        over_i(k1("others") ** 2), (whole(k1("x") ** 2) + SQUARE * (n - 2)) * (n - 1), N,
    ),
    "one of the others": (
        over_i(k1("others") * r("self")), mean("ij", "q", k1("other") * r("self")) * (n - 1), N,
    ),
    "others, by parts": (mean("ij", "mu", k1("other") + k1("rest")), over_i(k1("others"), m="mu"), N),
    "exchange": (
        mean("ij", "p", k1("self") * r("other"), "other"),
        mean("ij", "p", k1("other") * r("self"), "self"), N,
    ),
    "ratio of the others": (over_i(r("others") * k1("self"), "self"), REVERSE, N),
    "A of the others": (over_i(at("A", "others"), "self"), 0, N),
    "A of self": (over_i(at("A", "self"), "others"), 0, N),
    "variance of a mean": (variance(k1("self")), VARIANCE * SHARE, N),
    "variance of a score": (
        variance(k1("self"), "self"),
        (whole(k1("x") ** 2, 2) - SQUARED_GRADIENT) * SHARE, N,
    ),
    "variance of a centred mean": (variance(k1("self") - (k1("self") + k1("others")) * SHARE), 0, N),
    "a given reward in a batch": (
        over_i(at("R", "others"), m="mu"), over_i(k1("others"), m="mu") * lam, GIVEN,
    ),
    # batches of sequences
    "leave one out, sequences": (
        mean("it", "q", k1("past") + k1("now") + k1("future") - k1("others") * m.inverse(), "now"),
        REVERSE, SIZE,
    ),
    "a batch of steps": (
        mean("it", "q", k1("now") * at("R", "past"), "now"), over_t(k1("now") * at("R", "past"), "now"), N,
    ),
    "others and steps": (mean("it", "mu", k1("others") * r("now"), "past"), Side.of(
        (n - 1, (E("mu", k1("x")), *over_t(r("now"), "past", m="mu").terms[0][1]))), N),
}  # fmt: skip

FALSE = {
    # sequences
    "the KL under mu": (over_t(k1("now"), m="mu"), KL("q", "p")),
    "the token alone": (over_t(k1("now"), "now"), REVERSE),
    "the wrong side of time": (over_t(k1("now") + k1("past"), "now"), REVERSE),
    "the past twice": (over_t(ALL + k1("past"), "now", "now"), over_t(ALL, "now", "now")),
    "an advantage of the token": (over_t(at("A", "now"), "now"), 0),
    "an advantage of all": (over_t(at("A", "x"), "now"), 0),
    "an advantage of the future": (over_t(at("A", "future"), "now"), 0),
    "the past sees the future": (over_t(at("R", "future"), "past"), 0),
    "the sum over the past": (over_t(at("R", "now"), "past"), over_t(at("R", "past"), "now")),
    "length, one too few": (over_t(length), over_t(at("length", "past")) + over_t(at("length", "future"))),
    "mean over steps": (over_t(length.inverse()), whole(length.inverse())),
    "1/T and the score": (over_t(length.inverse(), "now"), 0),
    "1/T": (over_t(k1("now") * length.inverse(), "x"), whole(k1("x"), 1)),
    "ratio of the past": (over_t(r("past") * k1("now"), "now"), over_t(k1("now"), "now")),
    "ratio with its score": (over_t(r("now") * k1("past"), "now"), 0),
    "one slot forgotten": (
        over_t(k1("now") * at("R", "past"), m="mu"),
        over_t((k1("now") * at("R", "past")) * (-at("w", "now") - at("w", "future")).exp()),
    ),
    "token weights": (over_t(rho("now") * k1("now"), "x", m="mu"), REVERSE),
    "no weights": (over_t(k1("now"), "x", m="mu"), REVERSE),
    "tower": (tokens("q", "p", m="mu"), KL("q", "p")),
    "tower, turned": (tokens("p", "q"), KL("p", "q")),
    "field of k2 is the KL's": (gradient_over("t", k2("now")), REVERSE),
    "field of k3 is the KL's": (gradient_over("t", k3("now")), REVERSE),
    "field of k3 is the forward KL's": (gradient_over("t", k3("now")), FORWARD),
    "prefixes held": (tokens("q", "p", gradient=True), grad(tokens("q", "p"))),
    "token k3": (whole_gradient(k3("x")), gradient_over("t", k3("now"))),
    "sg forgotten": (
        gradient_over("t", sg(k1("past")) * k1("now")), gradient_over("t", k1("past") * k1("now")),
    ),
    "functions, slope": (gradient_over("t", V("f[now]")), over_t(V("f[now]"), "now"), F),
    "functions, prefixes": (grad(over_t(V("f[now]"))), gradient_over("t", V("f[now]")), F),
    "functions of the future": (over_t(V("f[future]"), "now"), 0, F),
    "functions of sums": (over_t(V("f[past]")), whole(V("f") * length), F1),
    "curl of k2": (curl(k2("now")), 0),
    "curl of k3": (curl(k3("now")), 0),
    "curl of tokens over T": (curl(sg(k1("now")) * at("log_q", "now") * length.inverse()), 0),
    "curl of rewards to come": (
        curl(at("R", "future") * at("log_q", "now")), curl(at("R", "past") * at("log_q", "now")),
    ),
    "curl, sign": (curl(k2("now")), over_t(k1("now"), "now'", "past") - over_t(k1("now"), "now", "past'")),
    "curl, one direction": (curl(k2("now")), over_t(k1("now"), "now", "past'")),
    "curl, by a hair": (curl(k2("now")), curl(k2("now")) * Fraction(1001, 1000)),
    "curl under mu": (curl(k2("now"), m="mu"), curl(k2("now"))),
    "curl on-policy": (curl(k2("now"), m="mu"), 0, ON),
    "directions": (over_t(k1("now"), "now", "past'"), over_t(k1("now"), "now'", "past")),
    "given at a step": (over_t(at("H", "now")), over_t(k1("now") * at("length", "now") + lam), ENTROPY),
    "given, whole": (whole(at("H", "x"), 1), over_t(at("H", "now"), "now"), ENTROPY),
    "given moves": (
        gradient_over("t", at("H", "now") * at("log_q", "now")),
        over_t(at("H", "now") + at("length", "past") * at("log_q", "now"), "now"), ENTROPY,
    ),
    # batches
    "leave one out": (over_i(k1("self") - k1("others") * m.inverse(), "others"), REVERSE, SIZE),
    "mean baseline": (over_i(k1("self") - (k1("self") + k1("others")) * SHARE, "self"), REVERSE, N),
    "scaled back": (
        over_i((k1("self") - (k1("self") + k1("others")) * SHARE) * m * n.inverse(), "self"), REVERSE, SIZE,
    ),
    "baseline under mu": (over_i(k1("others"), "self", m="mu"), 0, N),
    "independence": (over_i(k1("self") * k1("others")), SQUARE * n, N),
    "square of the others": (
        over_i(k1("others") ** 2), (whole(k1("x") ** 2) + SQUARE * (n - 1)) * (n - 1), N,
    ),
    "one of the others": (
        over_i(k1("others") * r("self"), m="mu"), mean("ij", "mu", k1("other") * r("self")) * n, N,
    ),
    "others, by parts": (mean("ij", "mu", k1("rest")), over_i(k1("others"), m="mu"), N),
    "exchange": (
        mean("ij", "p", k1("self") * r("other"), "self"),
        mean("ij", "p", k1("self") * r("other"), "other"), N,
    ),
    "ratio of the others": (over_i(r("others") * k1("self"), "others"), 0, N),
    "A of the others": (over_i(at("A", "others"), "others"), 0, N),
    "A of self": (over_i(at("A", "self"), "self"), 0, N),
    "A is no sum": (over_i(at("A", "others")), whole(at("A", "x")) * (n - 1), N),
    "variance of a mean": (variance(k1("self")), VARIANCE, N),
    "variance of a sum": (variance(k1("self")), VARIANCE * n, N),
    "variance of a centred mean": (
        variance(k1("self") - (k1("self") + k1("others")) * SHARE, "self"), variance(k1("self"), "self"), N,
    ),
    "variance of a leave one out": (
        variance(k1("self") - k1("others") * m.inverse(), "self"), variance(k1("self"), "self"), SIZE,
    ),
    "a given reward in a batch": (over_i(at("R", "others")), over_i(k1("self")) * lam * (n - 1) * 2, {
        **GIVEN, "parameters": ("lam", "n")}),
    # batches of sequences
    "others see the steps": (mean("it", "q", k1("others"), "others"), 0, N),
    "a batch of steps": (mean("it", "q", k1("now"), "now"), REVERSE, N),
    "others and steps": (mean("it", "mu", k1("others"), "past"), 0, N),
}  # fmt: skip


def read(row):
    left, right, *setting = row
    return claim(left, right, **(setting[0] if setting else {}))


def models(statement, seeds=range(2), exact=False):
    found = models_for(statement, seeds, exact)
    if not statement.context.premises:
        return found
    return [with_m(model) for model in found]


def with_m(model):
    return replace(model, parameters={**model.parameters, "m": model.parameters["n"] - 1})


def enclosed(statement, model):
    """Both sides enclosed, with the floats inside."""
    both = enclose(statement, model)
    for number, interval in zip(evaluate(statement, model), both, strict=True):
        assert number == pytest.approx(float(interval.lower), rel=1e-11, abs=1e-11)
    return both


@pytest.mark.parametrize("name", TRUE)
def test_identities_agree(name):
    statement = read(TRUE[name])
    assert agreement(statement, models(statement)).difference < 1e-13
    for model in models(statement, (1, 3), exact=True) if not statement.context.functions else []:
        left, right = enclosed(statement, model)
        gap = left + right * Interval.exact(-1)
        assert gap.lower <= 0 <= gap.upper
        assert gap.upper - gap.lower < Fraction(1, 10**20)


@pytest.mark.parametrize("name", FALSE)
def test_near_misses_are_told_apart(name):
    statement = read(FALSE[name])
    assert agreement(statement, models(statement)).difference > 1e-8
    if not statement.context.functions:
        enclosures = (enclosed(statement, model) for model in models(statement, (3, 1, 6), exact=True))
        assert any(x.lower > y.upper or x.upper < y.lower for x, y in enclosures)


def test_as_many_near_misses_as_identities():
    assert len(FALSE) >= len(TRUE)


def test_the_curl_of_a_generic_function_is_that_of_its_slope():
    """curl f(k1_now) = E_q[sum_t f' (s_now.u s_past.v - s_now.v s_past.u)], for callables and in the ring."""
    right = over_t(V("f'[now]"), "now", "past'") - over_t(V("f'[now]"), "now'", "past")
    statement = claim(curl(V("f[now]")), right, **F1)
    assert agreement(statement, models(statement), {"f": lambda x: np.sin(x) + x**3}).difference < 1e-13
    assert agreement(statement, models(statement), {"f": k3("x")}).difference < 1e-13
    wrong = claim(curl(V("f[now]")), right * Fraction(1001, 1000), **F1)
    assert agreement(wrong, models(wrong), {"f": lambda x: np.sin(x) + x**3}).difference > 1e-8
    for model in models(statement, (1, 2), exact=True):
        left, found = enclose(statement, model, {"f": k3("x")})
        assert left.lower <= found.upper and found.lower <= left.upper
