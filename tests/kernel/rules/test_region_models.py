"""Finite models of regions, inverses and facts: on both sides of each bound and on it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from klsym.errors import Refused
from klsym.kernel import certify
from klsym.kernel.intervals import Interval
from klsym.kernel.models import Model, Position, enclose_coefficient
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context, Mean
from support.certificates.faulty_certificates import *
from support.certificates.region_certificates import ON_POLICY, PPO, not_kl, setting
from support.certificates.region_words import bound, cell, log, region
from support.certificates.slot_helpers import now, past, sum_t
from support.certificates.small_trees import HALF as EVEN
from support.certificates.small_trees import close, node
from support.certificates.valid_certificates import refuted

M, up, inv = V("M"), V("up"), (-V("inv")).exp()
ONE_TOKEN = node([None, None], q=["2/3", "1/3"], p=EVEN, mu=["1/3", "2/3"],
                 rewards={"R": ["1", "0"], "A": ["-1", "2"], "M": ["0", "1"]})  # fmt: skip


def context(*definitions: Any, **more: Any) -> Context:
    return Context(**setting("nu lam", *definitions), **more)


def read(where: Context, tree: Any = ONE_TOKEN, path: Any = (0,), **parameters: str) -> Model:
    return Model.from_json({"tree": tree, "path": list(path), "parameters": parameters}, where)


def value(
    element: ExpPoly, where: Context, tree: Any = ONE_TOKEN, t: int = 0, path: Any = (0,), **of: str
) -> Any:
    model = read(where, tree, path, **of)
    return enclose_coefficient(element, Position(model.sample, t, model.parameters, where))


# ---------------------------------------------------------------------------- regions
SIDES = [  # rho = 2, k1 = log 4/3 at the first token, rho = 1/2 at the second
    (rho - 1 - nu, "9/10", 1), (rho - 1 - nu, "1", 0), (rho - 1 - nu, "11/10", 0),
    (1 + nu - rho, "9/10", 0), (1 + nu - rho, "1", 0), (1 + nu - rho, "11/10", 1),
    (k1 - nu, "287/1000", 1), (k1 - nu, "36/125", 0), (A, "0", 0), (-A, "0", 1), (R, "0", 1), (M, "0", 0),
    (R - 1, "0", 0), (1 - R, "0", 0), (number(0), "0", 0), (number(1), "0", 1), (nu, "0", 0), (nu, "1/9", 1),
]  # fmt: skip


@pytest.mark.parametrize(("e", "at", "expected"), SIDES)
def test_a_region_is_1_where_e_is_positive_and_0_elsewhere(e, at, expected):
    """So it is on the bound itself; its powers and its detached copy have the same value."""
    where = context(region("up", e))
    exact = Interval.from_number(expected)
    assert value(up, where, nu=at) == value(up**3, where, nu=at) == value(V("sg(up)"), where, nu=at) == exact
    assert value(up * 5 + 1, where, nu=at) == Interval.from_number(5 * expected + 1)
    assert close(value((up * k1).exp(), where, nu=at), (4 / 3) ** expected)


def test_a_sign_that_is_not_decided_is_refused():
    """2 log 2 - log 4 is 0, which no enclosure of logs tells, and so is what is just as small."""
    tree = node([None, None], q=["2/3", "1/3"], p=["1/3", "2/3"], mu=["1/6", "5/6"])
    for sign in (1, -1):
        where = context(region("up", (k1 * 2 - w) * sign))
        with pytest.raises(Refused, match="finite model: the sign of up is not decided"):
            value(up, where, tree)
        where = context(region("up", k1 * 2 - w + nu * sign))
        assert value(up, where, tree, nu="1/100000000") == Interval.from_number((1 + sign) // 2)
        with pytest.raises(Refused, match="the sign of up is not decided"):
            value(up, where, tree, nu=f"1/{10**60}")


def test_a_number_that_an_enclosure_does_not_tell_from_0_has_no_sign():
    """exp(-100) is within [0, 2^-96]."""
    where = context(region("up", nu.exp()))
    assert value(up, where, nu="-60") == Interval.from_number(1)
    with pytest.raises(Refused, match="the sign of up is not decided"):
        value(up, where, nu="-100")


def test_a_region_looks_at_its_own_step():
    """A bare name looks at the whole sequence, one in a slot at the step, one that names slots at these."""
    after = node([None, None], q=EVEN, mu=["1/4", "3/4"], rewards={"R": ["-1", "3"]})
    tree = node([after, None], q=["1/3", "2/3"], mu=EVEN, rewards={"R": ["2", "5"]})
    where = context(region("up", R - 1), region("over", (V("w[past]") + V("w[now]")).exp() - 1))
    rewards = [(0, 0), (0, 1), (1,)]  # R: 2 - 1, 2 + 3, 5
    wholes = [value(up, where, tree, 0, path) for path in rewards]
    assert wholes == [Interval.from_number(x) for x in (0, 1, 1)]
    steps = [[value(now(up), where, tree, t, path) for t in range(len(path))] for path in rewards]
    assert steps == [[Interval.from_number(x) for x in row] for row in ([1, 0], [1, 1], [1])]
    # the ratios are 2/3, and then 2/3 * 2 or 2/3 * 2/3
    prefixes = [[value(V("over"), where, tree, t, path) for t in range(len(path))] for path in rewards]
    assert prefixes == [[Interval.from_number(x) for x in row] for row in ([0, 1], [0, 0], [1])]
    of_steps = read(where, tree, (1,)).enclose_mean(Mean("t", "q", now(up)))
    assert of_steps == Interval.from_number(Fraction(1, 6) + Fraction(2, 6) + Fraction(2, 3))


def test_an_outer_coefficient_may_be_a_region_of_parameters():
    draft = Draft(constant(up), constant(1), **setting("nu", region("up", nu - 1)))
    for at, kind in (("1", "refuted"), ("0", "refuted")):
        assert certify(refuted(draft, ONE_TOKEN, nu=at).part, {})[1].kind == kind
    with pytest.raises(Refused, match="do not contradict the relation"):
        certify(refuted(draft, ONE_TOKEN, nu="2").part, {})


# ---------------------------------------------------------------------------- logs
def test_a_log_is_enclosed():
    where = context(log("inv", 1 + r))
    assert value(inv, where) == Interval.from_number(Fraction(4, 7))
    assert value(inv**2 * 3, where) == Interval.from_number(Fraction(48, 49))
    assert value((-V("sg(inv)")).exp(), where) == Interval.from_number(Fraction(4, 7))
    assert close(value(inv, context(log("inv", 1 + k1))), 1 / 1.2876820724517809)
    assert value(inv, context(log("inv", nu - 3)), nu="5") == Interval.from_number(Fraction(1, 2))
    for name in ("inv", "share"):  # in a product before k1, and after it
        product = k1 * V(name) * R * 2
        assert close(value(product, context(log(name, 1 + r))), 2 * 0.28768207245178090 * math.log(7 / 4))
    found = value(V("inv"), context(log("inv", 1 + k1)))
    assert close(found, math.log(1.2876820724517809)) and found.lower < found.upper
    root = value((V("inv") * Fraction(1, 2)).exp(), where)
    assert close(root, math.sqrt(7 / 4)) and root.lower < root.upper
    nested = context(region("up", k1), log("inv", up + 1))
    assert value(inv, nested) == Interval.from_number(Fraction(1, 2))


@pytest.mark.parametrize("e", [M, nu - 1, k1 * 2 - w, 1 - R, number(0)])
def test_a_log_without_a_value_is_refused(e):
    tree = node([None, None], q=["2/3", "1/3"], p=["1/3", "2/3"], mu=["1/6", "5/6"],
                rewards={"R": ["1", "0"], "M": ["0", "1"]})  # fmt: skip
    with pytest.raises(Refused, match="inv is the log of what is not positive"):
        value(inv, context(log("inv", e)), tree, nu="1")


# ---------------------------------------------------------------------------- what is assumed
@pytest.mark.parametrize("nu_", ["1/10", "49/100", "51/100", "2/3"])
def test_a_model_off_the_bounds_refutes(nu_):
    """rho is 3/2 and 3/4."""
    assert certify(not_kl(nu_).part, {})[1].kind == "refuted"


@pytest.mark.parametrize("nu_", ["1/2", "1/4"])
def test_a_model_with_a_sample_on_a_bound_refutes_nothing(nu_):
    with pytest.raises(Refused, match="a sample on a bound, or too close to it"):
        certify(not_kl(nu_).part, {})


def jumping(e: ExpPoly, index: str = "", m: str = "q") -> Draft:
    """grad E_m[[e > 0] R] against 1."""
    at = now(R) if index else R
    draft = Draft(grad(mean(index, m, up * at)), constant(1), **setting("nu", region("up", e)))
    return draft.step("log-derivative").step("chain rule", term=1)


AFTER = node([None, None], q=["2/3", "1/3"], rewards={"R": ["1", "2"], "A": ["0", "1"]})
TREE = node([AFTER, None], q=["1/3", "2/3"], p=["1/4", "3/4"], rewards={"R": ["3", "1"], "A": ["1", "1"]},
            u=["1", "0"])  # fmt: skip


@pytest.mark.parametrize(
    ("e", "fine"),
    [(now(k1), True), (now(k1) - nu, True), (past(k1), True), (past(r) * 4 - 3, False), (k1, True)],
)  # fmt: skip
def test_each_step_is_looked_at(e, fine):
    """At the first step nothing has happened, so that a sum over the past is 0 there."""
    draft = refuted(jumping(e, "t"), TREE, [0, 0], nu="1")
    if fine:
        assert certify(draft.part, {})[1].kind == "refuted"
        return
    with pytest.raises(Refused, match="a sample on a bound"):
        certify(draft.part, {})


def test_the_bound_of_a_region_that_does_not_move_is_none():
    """A sample with A = 0 is no matter: nothing crosses it."""
    draft = refuted(jumping(A), node([None, None], rewards={"R": ["1", "2"], "A": ["0", "1"]}, u=["1", "0"]))
    assert certify(draft.part, {})[1].kind == "refuted"


@pytest.mark.parametrize("e", [k1 - nu, R - nu])
@pytest.mark.parametrize(("at", "fine"), [("0", False), ("1", True), ("-2", True)])
def test_a_comparison_that_a_proof_uses_off_its_bound_is_decided_at_every_sample(e, at, fine):
    """Neither e > 0 nor e < 0 is assumed away, also where theta moves no e; k1 and R are 0 at one outcome."""
    draft = Draft(Em("q", (1 - up) * (1 - V("down")) * R + R), constant(9),
                  **setting("nu", region("up", e), region("down", -e)))  # fmt: skip
    draft.step("region", **cell({"up": 0, "down": 0}, bound("up"), bound("down"), times=R, apart=["up"]))
    tree = node([None, None, None], q=["1/2", "1/4", "1/4"], p=["1/4", "1/2", "1/4"],
                rewards={"R": ["2", "3", "0"]})  # fmt: skip
    if fine:
        assert certify(refuted(draft, tree, nu=at).part, {})[1].kind == "refuted"
        return
    with pytest.raises(Refused, match="a sample on a bound"):
        certify(refuted(draft, tree, nu=at).part, {})


FACTS = [
    ((R,), {"R": 0}, True), ((-R,), {"R": 0}, False), ((R - 1,), {"R": 1}, False), ((1 - R,), {"R": 0}, True),
    ((nu - 1,), {"nu": 1}, True), ((nu - 2,), {"nu": 2}, False), ((R, nu), {"R": 0, "nu": 0}, True),
    ((R, -nu), {"R": 0, "nu": 0}, False), ((M - M * M,), {"M": 0}, True), ((M * M - M,), {"M": 0}, True),
    ((A * A - 1,), {"A": 1}, True), ((A,), {"A": 0}, False), ((R * nu - nu,), {"R": 1, "nu": 1}, False),
    ((T - 1,), {"length": 1}, True), ((1 - T,), {"length": 1}, True), ((T - 2,), {"length": 2}, False),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "witness", "fine"), FACTS)
def test_a_model_satisfies_the_facts(facts, witness, fine):
    """R is 1 and 0, M is 0 and 1, A is -1 and 2, nu is 1: a fact may be met as an equality."""
    given = {"parameters": ("nu",), "facts": facts, "witness": tuple(sorted(witness.items()))}
    draft = refuted(Draft(Em("q", R), constant(3), **given), ONE_TOKEN, nu="1")
    if fine:
        assert certify(draft.part, {})[1].kind == "refuted"
        return
    with pytest.raises(Refused, match="a fact fails in the model"):
        certify(draft.part, {})


STEPS = [
    (now(M), True), (M - 1, True), (now(M) - 1, False), (M - 2, False), (1 - now(M), True), (-now(M), False),
]  # fmt: skip
OF_OTHER_STEPS = [
    past(M),
    -past(M),
    1 - V("M[future]"),
    V("M[others]"),
]  # empty at the first step, or the last


@pytest.mark.parametrize(("fact", "fine"), STEPS)
def test_a_fact_about_steps_is_looked_at_at_each_step(fact, fine):
    """M is 0 and then 1: their sum is 1."""
    tree = node([node([None, None], rewards={"M": ["1", "1"]})], rewards={"M": ["0"]})
    [name] = fact.names()
    witness = ((name, 5 if fact.terms.get((((name, 1),), ())) == 1 else -5),)
    draft = Draft(sum_t("q", now(M)), constant(3), facts=(fact,), witness=witness)
    if fine:
        assert certify(refuted(draft, tree).part, {})[1].kind == "refuted"
        return
    with pytest.raises(Refused, match="a fact fails in the model"):
        certify(refuted(draft, tree).part, {})


@pytest.mark.parametrize("fact", OF_OTHER_STEPS)
def test_a_fact_about_other_steps_is_refused(fact):
    [name] = fact.names()
    draft = Draft(sum_t("q", now(M)), constant(3), facts=(fact,), witness=((name, 0),))
    with pytest.raises(Refused, match="unknown slot"):
        certify(refuted(draft, node([None, None], rewards={"M": ["1", "1"]})).part, {})


def weighed(**of: str) -> Draft:
    """A comparison with the weights lam and 1/T, in a model."""
    definitions = (region("up", k1 * lam), region("down", -k1))
    draft = Draft(Em("q", up * V("down") + R), constant(9), **setting("lam", *definitions))
    weight = T.invert()
    rows = (bound("up", weight=weight), bound("down", weight=lam * weight))
    draft.step("region", **cell({"up": 1, "down": 1}, *rows))
    return refuted(draft, ONE_TOKEN, **of)


def test_a_weight_is_positive_in_the_model():
    """And a sequence has a step."""
    assert certify(weighed(lam="1/2").part, {})[1].kind == "refuted"
    for at in ("0", "-1"):
        with pytest.raises(Refused, match=f"the model has lam = {at}"):
            certify(weighed(lam=at).part, {})


def test_a_model_of_a_log_that_is_differentiated_has_no_pole():
    context_ = setting("nu", log("inv", nu - rho))
    draft = Draft(mean_grad("", "mu", inv), constant(9), **context_).step("chain rule")
    part = refuted(draft, ONE_TOKEN, nu="3").part
    assert certify(part, {})[1].kind == "refuted"
    part["close"]["model"]["parameters"]["nu"] = "2"
    with pytest.raises(Refused, match="a log of what is not positive"):
        certify(part, {})


def test_ppo_is_refuted_with_and_without_a_fact():
    for where in (PPO, PPO | {"facts": ON_POLICY["facts"], "witness": ON_POLICY["witness"]}):
        assert certify(not_kl("2/3", where).part, {})[1].kind == "refuted"
