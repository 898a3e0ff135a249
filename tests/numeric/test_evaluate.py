"""Evaluating a statement: generic functions, premises, batch sizes, and all that is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from klsym.errors import UsageError
from klsym.kernel.definitions import LOG, REGION, Definition
from klsym.kernel.intervals import Interval
from klsym.kernel.slots import SLOTS
from klsym.language.abbreviations import Bregman, E, ExpectedGradient, Point
from klsym.numeric.exact import draw_models, enclose, evaluate, measure_agreement
from klsym.numeric.indices import STRUCTURES, Structure
from klsym.numeric.model_variables import Frame
from klsym.numeric.models import FiniteModel, random_model, random_tree
from klsym.numeric.number_systems import EXACT, FLOAT, NESTED
from klsym.numeric.random_models import Needs, find_needs
from support.oracle_atoms import *

F1 = {"functions": (("g", ("k1",)),)}
F = {"functions": (("f", ("k1", "log_q", "w")),)}
TREE = replace(random_tree(1, exact=True), parameters={"lam": Fraction(1, 2)}, rewards={})
MODEL = FiniteModel(
    ["1/2", "1/3", "1/6"], ["1/5", "2/5", "2/5"], [1, -2, 3], ["1/4", "1/2", "1/4"],
    parameters={"lam": "1/2"}, rewards={"A": ["2", "-1", "3"], "R": ["1", "0", "2"]},
)  # fmt: skip
TWO = FiniteModel(["1/2", "1/2"], ["1/4", "3/4"], [1, 0], mu=["1/3", "2/3"], parameters={"n": 2})


# ---------------------------------------------------------------------------- refusals
ONE_SAMPLE = {
    "a second derivative": (E("q", V("g''")), "differentiated once more"),
    "grad of a derivative": (ExpectedGradient("q", V("g'")), "differentiated once more"),
    "another slot": (E("q", V("k1[self]")), "no such slot"),
    "another score": (E("q", V("k1"), ("self",)), "no such slot"),
    "an unknown name": (E("q", V("k7")), "no value for 'k7'"),
    "a measure": (E("nu", V("k1")), "unknown measure 'nu'"),
    "a divergence": (Divergence("TV", "q", "p"), "unknown divergence 'TV'"),
    "phi of w": (Bregman(V("w")), "bregman: a function of r alone"),
    "grad grad": (Gradient(Side.from_atom(ExpectedGradient("q", V("k1")))), "gradient inside a gradient"),
    "grad of a score": (Gradient(Side.from_atom(E("q", V("k1"), ("x",)))), "gradient of a score function"),
    "division by k1": (E("q", V("k1").invert()), "division by k1"),
}
SEQUENCES = {
    "A of a certificate": (over_t(at("A", "past")), "no value for A"),
    "H without a value": (over_t(at("H", "now")), "no value for 'H'"),
    "an unknown slot": (over_t(k1("self")), "'t' has no such slot"),
    "an unknown name": (over_t(at("k7", "now")), "no value for 'k7'"),
    "gradient of a field": (grad(gradient_over("t", k1("now"))), "a gradient inside a gradient"),
    "gradient of token gradients": (grad(tokens("q", "p", gradient=True)), "a gradient inside a gradient"),
    "gradient of a curl": (grad(curl(k2("now"))), "the gradient of a curl"),
    "gradient of a score": (grad(over_t(k1("now"), "now")), "gradient of a score"),
    "division by a log ratio": (over_t(k1("now").invert()), "division by"),
    "division by part of a length": (over_t(at("length", "past").invert()), "division by"),
    "an unknown measure": (over_t(k1("now"), m="nu"), "unknown measure"),
}
BATCHES = {
    "half a sample": (over_i(k1("self")), Fraction(5, 2), "a whole number of samples"),
    "no sample": (over_i(k1("self")), 0, "a whole number of samples"),
    "no pair": (mean("ij", "q", k1("other")), 1, "no two samples"),
    "too many": (over_i(k1("self")), 20, "rows are too many"),
    "a slot of pairs": (over_i(k1("other")), 2, "'i' has no such slot"),
    "a score of pairs": (over_i(1, "rest"), 2, "'i' has no such slot"),
    "a slot of sequences": (over_i(k1("past")), 2, "'i' has no such slot"),
    "a second direction": (over_i(1, "self'"), 2, "no direction 'v'"),
    "a curl without it": (curl(k2("now")), 2, "no direction 'v'"),
    "division by a sum": (over_i(k1("others").invert()), 2, "division by"),
    "a gradient of a score": (grad(over_i(1, "self")), 2, "gradient of a score function"),
    "A of others": (over_i(at("A", "others")), 2, "no value for A"),
}
REFUSED = {
    **{f"sample: {k}": (Side.from_atom(x), random_model(0, 3), why) for k, (x, why) in ONE_SAMPLE.items()},
    **{f"sequence: {k}": (x, TREE, why) for k, (x, why) in SEQUENCES.items()},
    **{f"batch: {k}": (x, replace(TWO, parameters={"n": n}), why) for k, (x, n, why) in BATCHES.items()},
    "a random coefficient": (Side.combine((V("k1"), (Divergence("KL", "q", "p"),))), TWO, "stands outside"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused(name):
    side, model, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        evaluate(claim(side, **F1), model)


def test_given_values_of_one_another_and_of_tokens_are_refused():
    circular = (("A", at("R", "x")), ("R", at("A", "x")))
    with pytest.raises(UsageError, match="given values name one another"):
        evaluate(claim(whole(at("R", "x")), given=circular), random_model(0, 3))
    setting = {"given": (("R", k1("x")),)}
    assert evaluate(claim(whole(at("R", "x")), KL("q", "p"), **setting), TREE)[0] > 0
    with pytest.raises(UsageError, match="given at whole samples, and asked for at a token"):
        evaluate(claim(over_t(at("R", "now")), **setting), TREE)


# ---------------------------------------------------------------------------- generic functions
FIELD = claim(whole_gradient(V("g")), REVERSE, **F1)


def test_generic_functions_follow_the_caller():
    model = random_model(5, 4)
    left, right = evaluate(FIELD, model, {"g": lambda x: x**2 / 2 + 7 * x})
    assert left == pytest.approx(right, abs=1e-14)
    left, right = evaluate(FIELD, model, {"g": lambda x: np.exp(-x) + x})
    assert left == pytest.approx(evaluate(claim(FORWARD), model)[0], abs=1e-14)
    assert abs(left - right) > 1e-3
    assert evaluate(claim(whole(V("g"), m="p"), 2, **F1), model, {"g": lambda x: 2.0}) == (2.0, 2.0)
    assert evaluate(claim(whole(V("g")), **F1), model, {"g": ExpPoly({})}) == (0, 0)  # zero is a function


def test_ring_functions_are_enclosed_and_callables_are_not():
    model = random_model(2, 3, exact=True)
    left, right = enclose(FIELD, model, {"g": k2("x")})
    assert left.lower <= right.upper and right.lower <= left.upper
    with pytest.raises(UsageError, match="function g is a callable, known in floats only"):
        enclose(FIELD, model, {"g": lambda x: x})
    with pytest.raises(UsageError, match="known in floats only"):
        enclose(FIELD, model)


BAD = {
    "np.abs": ({"g": np.abs}, "not smooth in complex arithmetic"),
    "a kink": ({"g": lambda x: np.maximum(np.real(x), 0)}, "not smooth in complex arithmetic"),
    "nan": ({"g": lambda x: x * np.nan}, "not smooth in complex arithmetic"),
    "np.real": ({"g": np.real}, "not smooth in complex arithmetic"),
    "w": ({"g": at("w", "x")}, "function g: may depend on k1 only"),
    "another name": ({"f": np.sin}, "the statement has no function f"),
}


@pytest.mark.parametrize("name", BAD)
def test_functions_of_the_wrong_kind_are_refused(name):
    functions, message = BAD[name]
    with pytest.raises(UsageError, match=message):
        evaluate(FIELD, random_model(2, 4), functions)


# ---------------------------------------------------------------------------- premises
def test_premises_are_checked_on_the_model():
    statement = claim(
        whole_gradient(V("f")) + whole(V("f"), 1), REVERSE, premises=((KL("q", "p"), whole(V("f"))),), **F
    )
    good = {"f": lambda k1, log_q, w: k1}
    assert measure_agreement(statement, draw_models(statement, range(3)), good).difference < 1e-14
    for bad in (None, {"f": lambda k1, log_q, w: -k1}, {"f": lambda k1, log_q, w: k1 + 1e-6}):
        with pytest.raises(UsageError, match=r"premise 1 fails on this model .*pass functions"):
            evaluate(statement, random_model(0, 3), bad)


def test_premises_hold_for_every_theta():
    """k1 less its mean at theta has the right value at theta, and a wrong one elsewhere."""
    model = random_model(0, 3)
    centre = float(np.array(model.q) @ np.log(np.array(model.q) / np.array(model.p)))
    statement = claim(grad(whole(V("f"))), premises=((whole(V("f")), NOTHING),), **F)
    with pytest.raises(UsageError, match="premise 1 fails"):
        evaluate(statement, model, {"f": lambda k1, log_q, w: k1 - centre})


# ---------------------------------------------------------------------------- batches and sequences
def test_without_a_size_a_batch_is_a_pair():
    statement = claim(over_i(k1("others"), m="p"))
    both = [evaluate(statement, replace(TWO, parameters=given))[0] for given in ({}, {"n": 2})]
    assert both[0] == both[1] != 0


def test_nobody_is_left_of_a_pair():
    """n = 2: sums over the rest are 0, products are 1."""
    assert enclose(claim(mean("ij", "q", r("rest") + k1("rest"))), TWO)[0] == Interval.from_number(1)


def test_a_pair_in_fractions():
    """E_q[mean_i r_others s_self^2] = E_q[r] E_q[s^2] = 1 * 1/4; under mu, r has the mean 7/6."""
    assert enclose(claim(over_i(r("others"), "self", "self")), TWO)[0] == Interval.from_number(Fraction(1, 4))
    assert enclose(claim(over_i(r("others"), m="mu")), TWO)[0] == Interval.from_number(Fraction(7, 6))
    half = (Fraction(4, 9) / 3 + Fraction(1, 9) * Fraction(2, 3)) / 2  # Var(r)/n, r is 1/2 or 3/2
    assert enclose(claim(variance(r("self"), m="mu")), TWO)[0] == Interval.from_number(half)


def test_a_slot_structure_is_one_row_of_a_table(monkeypatch):
    """Three samples of a batch: E[k1_i k1_j k1_l] = KL^3; a statement about them needs a batch."""
    monkeypatch.setitem(SLOTS, "ijl", ("self", "other", "third", "rest"))
    monkeypatch.setitem(STRUCTURES, "ijl", Structure(("self", "other", "third"), "rest"))
    product_ = k1("self") * k1("other") * at("k1", "third")
    statement = claim(mean("ijl", "q", product_), mean("ijl", "q", product_ + at("k1", "rest"), "third"))
    kl, _ = evaluate(claim(KL("q", "p")), TWO)
    assert evaluate(statement, replace(TWO, parameters={"n": 3}))[0] == pytest.approx(kl**3, rel=1e-12)
    assert find_needs(statement) == Needs(False, True)
    with pytest.raises(UsageError, match="no two samples"):
        evaluate(statement, TWO)


def test_a_single_sample_is_a_sequence_of_one_token():
    for side in (over_t(k1("now")), tokens("q", "p"), whole(length * k1("x")), over_t(k1("x") + k1("past"))):
        assert enclose(claim(side), TWO) == enclose(claim(KL("q", "p")), TWO)
    left, _ = enclose(claim(curl(k2("now"))), replace(TWO, v=[0, 3]))  # one free number: a gradient
    assert left.lower <= 0 <= left.upper and left.upper - left.lower < 1e-20


# ---------------------------------------------------------------------------- regions and logs
SIGNS = [
    (rho("x") - Fraction(6, 5), [1, 0, 0]), (Fraction(6, 5) - rho("x"), [0, 1, 1]), (rho("x") - 2, [0, 0, 0]),
    (2 - rho("x"), [0, 1, 1]), (rho("x") - Fraction(199, 100), [1, 0, 0]), (at("R", "x"), [1, 0, 1]),
    (-at("R", "x"), [0, 0, 0]), (at("w", "x"), [1, 0, 0]), (lam - HALF, [0, 0, 0]),
    (lam - Fraction(1, 3), [1, 1, 1]), (ExpPoly.from_number(0), [0, 0, 0]),
]  # fmt: skip


def where(e: ExpPoly, kind: str = REGION, name: str = "high", **more) -> Context:
    return Context(parameters=("lam",), definitions=(Definition(name, kind, e),), **more)


@pytest.mark.parametrize(("e", "expected"), SIGNS, ids=range(len(SIGNS)))
@pytest.mark.parametrize("name", ["high", "sg(high)"])
def test_a_region_is_1_where_e_is_positive_and_0_elsewhere(e, expected, name):
    """So it is on the bound, at rho = 2 and R = 0, in three number systems."""
    for system, element in product((FLOAT, EXACT, NESTED), (V(name), V(name) ** 2)):
        found = Frame(MODEL, system, where(e), {}).get_rows().evaluate_element(element).value
        values = [x.value.value if system is NESTED else x.value if system is EXACT else x for x in found]
        assert values == [x if system is FLOAT else Interval.from_number(x) for x in expected]
    points = [replace(MODEL, outcome=x) for x in range(3)]
    statement = replace(claim(Side.from_atom(Point(V(name)))), context=where(e))
    assert [evaluate(statement, model)[0] for model in points] == expected


def test_a_tie_is_a_tie_in_floats_and_a_sign_that_is_not_decided_is_told():
    """On-policy w is 0 at every sample, whatever rounding does; logs that are enclosed may differ."""
    for e in (at("w", "x"), rho("x") - 1, 1 - rho("x")):
        statement = replace(claim(whole(V("high"))), context=where(e, on_policy=True))
        assert all(evaluate(statement, model)[0] == 0 for model in draw_models(statement, range(20)))
    statement = replace(claim(whole(V("high"))), context=where(k1("x") - at("w", "x")))
    same = replace(MODEL, mu=MODEL.p)
    assert evaluate(statement, same)[0] == 0
    with pytest.raises(UsageError, match="the sign of what defines high is not decided"):
        enclose(statement, same)


def test_where_a_region_changes_a_mean_has_no_gradient_that_is_told():
    """A jump is not taken for a continuous change: it is refused, but autograd takes 0."""
    high = V("high")
    for side in (
        grad(whole(high, m="mu")),
        grad(whole(high * at("A", "x"))),
        grad(Side.from_atom(Point(high))),
    ):
        for function in (evaluate, enclose):
            with pytest.raises(UsageError, match="a sample lies where high changes"):
                function(replace(claim(side), context=where(rho("x") - 2)), MODEL)
    still = [(whole_gradient(high, "mu"), rho("x") - 2), (grad(whole(high, m="mu")), at("R", "x")),
             (grad(whole(high, m="mu")), rho("x") - Fraction(201, 100))]  # fmt: skip
    for side, e in still:  # R = 0 is on the bound, and does not move
        assert evaluate(replace(claim(side), context=where(e)), MODEL)[0] == 0


@pytest.mark.parametrize("e", [at("R", "x"), rho("x") - 2, lam * 2 - 1, at("A", "x")], ids=range(4))
def test_logs_of_what_is_not_positive_are_refused(e):
    statement = replace(claim(whole((-V("inv")).exp(), m="mu")), context=where(e, LOG, "inv"))
    for function in (evaluate, enclose):
        with pytest.raises(UsageError, match="inv is log\\(e\\), and e <= 0"):
            function(statement, MODEL)
