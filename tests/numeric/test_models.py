"""Finite models: what they refuse, what is drawn at random, and what a statement needs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from klsym.errors import UsageError
from klsym.kernel.definitions import LOG, REGION, Definition
from klsym.language.abbreviations import Context
from klsym.numeric.exact import draw_models, enclose, evaluate
from klsym.numeric.model_variables import Frame
from klsym.numeric.models import FiniteModel, from_certificate, random_model, random_tree
from klsym.numeric.number_systems import EXACT
from klsym.numeric.random_models import Needs, change_probabilities, find_allowed_model, find_needs
from support.oracle_atoms import *

LATER = {
    "q": ["1/3", "2/3"], "p": ["1/2", "1/2"], "mu": ["1/4", "3/4"],
    "u": ["2", "-1"], "v": ["1", "1/2"], "R": ["3", "5"], "next": [None, None],
}  # fmt: skip
JSON = {"tree": {**LATER, "next": [None, LATER]}, "parameters": {"lam": "1/2"}}
MODEL = from_certificate(JSON)
FLAT = {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "u": [1, 0]}
NAN = float("nan")


def with_root(**rows):
    return {**JSON, "tree": {**JSON["tree"], **rows}}


# ---------------------------------------------------------------------------- refusals
BAD_TREES = {
    "no object": (3, "the keys"),
    "nothing": ({}, "the keys"),
    "None": (None, "the keys"),
    "keys of one sample": ({"q": ["1/2", "1/2"]}, "the keys"),
    "other keys": ({**JSON, "outcome": 0}, "the keys"),
    "no node": ({**JSON, "tree": []}, "a node has the keys"),
    "a key of a node": (with_root(w=["1", "1"]), "a node has the keys"),
    "sizes": (with_root(p=["1"]), "differ in length"),
    "no list": (with_root(next=2), "differ in length"),
    "no branch": (with_root(**{key: [] for key in LATER}), "a node without branches"),
    "no distribution": (with_root(p=["1/2", "1/3"]), "p sums to 5/6, not to 1"),
    "no support": (with_root(q=["0", "1"]), r"q\[0\] = 0 is not positive"),
    "a later node": (with_root(next=[None, {**LATER, "mu": ["1/4", "1/4"]}]), "mu sums to 1/2"),
    "no number": (with_root(u=["x", "1"]), "u: numbers expected"),
    "nan": (with_root(v=[NAN, 1]), "v holds nan"),
    "parameters": ({**JSON, "parameters": []}, "parameters and rewards: name -> value expected"),
    "an empty node below": (with_root(next=[None, {key: [] for key in LATER}]), "a node without branches"),
}
BAD_FIELDS = {
    "nan": ({"q": [NAN, 0.5]}, "q holds nan"),
    "infinite": ({"u": [1, float("inf")]}, "u holds nan or infinity"),
    "sizes": ({"p": ["1/4", "1/4", "1/2"]}, "p has 3 entries, 2 expected"),
    "reward sizes": ({"rewards": {"R": [1]}}, "R has 1 entries, 2 expected"),
    "one outcome": ({"q": [1], "p": [1], "u": [1]}, "q has 1 entries"),
    "negative": ({"p": ["5/4", "-1/4"]}, r"p\[1\] = -1/4 is not positive"),
    "exact sum": ({"mu": ["1/2", "499999999999999/1000000000000000"]}, "mu sums to"),
    "float sum": ({"q": [0.5, 0.5001]}, "q sums to 1.0001, not to 1"),
    "outcome": ({"outcome": 2}, "outcome 2 is not one of 0..1"),
    "shape": ({"shape": (None, None, None)}, "q has 2 entries, 3 expected"),
    "text": ({"q": "1/2"}, "q: a list of numbers expected"),
    "None": ({"u": [1, None]}, "u: numbers expected"),
}
LOGITS = {"p": [0.5, 0.5], "u": [1, 0]}
REFUSED = {
    **{f"tree: {k}": (lambda x=data: from_certificate(x), why) for k, (data, why) in BAD_TREES.items()},
    **{f"sample: {k}": (lambda x=new: FiniteModel(**{**FLAT, **x}), why)
       for k, (new, why) in BAD_FIELDS.items()},
    **{f"logits: {z}": (lambda z=z: FiniteModel.from_logits(z, **LOGITS), "logits: a list of finite numbers")
       for z in ([0.0, NAN], [0.0, -np.inf], [[0.0, 1.0]])},
    "logits too far": (lambda: FiniteModel.from_logits([0.0, -1000.0], **LOGITS), "is not positive"),
    **{f"random: {bad}": (lambda bad=bad: random_tree(**{"seed": 0, **bad}), "model: seed")
       for bad in ({"tokens": 1}, {"depth": 1}, {"seed": -1})},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bad_models_are_refused_in_one_line(name):
    make, message = REFUSED[name]
    with pytest.raises(UsageError, match=message) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_large_trees_are_refused():
    deep, wide = {**LATER, "next": [None, None]}, {**LATER}
    for _ in range(250):
        deep = {**LATER, "next": [None, deep]}
    with pytest.raises(UsageError, match="too deep"):
        from_certificate({**JSON, "tree": deep})
    for _ in range(11):
        wide = {**LATER, "next": [wide, wide]}
    with pytest.raises(UsageError, match="too many branches"):
        from_certificate({**JSON, "tree": wide})


UNFIT = {
    "mu on-policy": (claim(whole(k1("x"), m="mu"), on_policy=True), "on-policy, so mu must equal q"),
    "a parameter": (claim(over_t(k1("now")), parameters=("n",)), "no value for the parameter n"),
    "a reward": (claim(whole(at("A", "x"))), "no value for 'A'"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_models_must_fit_the_statement(name):
    statement, message = UNFIT[name]
    with pytest.raises(UsageError, match=message):
        evaluate(statement, MODEL)


def test_floats_are_not_enclosed_and_zero_is_no_divisor():
    for model in (random_tree(0), random_model(0, 3)):
        with pytest.raises(UsageError, match="rational numbers"):
            enclose(claim(KL("q", "p")), model)
    with pytest.raises(UsageError, match="division by lam, which is zero"):
        statement = claim(KL("q", "p") * lam.invert(), parameters=("lam",))
        evaluate(statement, FiniteModel(**FLAT, parameters={"lam": 0}))


# ---------------------------------------------------------------------------- what is drawn and moved
def test_certificates_are_trees_or_not():
    flat = {**FLAT, "mu": ["1/3", "2/3"], "parameters": {}, "rewards": {}, "outcome": 0}
    assert from_certificate(flat) == FiniteModel(**flat) and from_certificate(flat).lengths == (1, 1)
    assert from_certificate(JSON) == MODEL and MODEL.lengths == (1, 2, 2) and MODEL.exact


def test_logits_and_moves_are_a_softmax():
    z = np.array([0.0, 1.0, -1.0])
    model = FiniteModel.from_logits(z, p=[0.2, 0.3, 0.5], u=[0, 1, 0])
    assert model.q == pytest.approx(np.exp(z) / np.exp(z).sum(), rel=1e-15) and not model.exact
    model = FiniteModel(**FLAT, mu=["1/8", "7/8"])
    moved = model.move_theta(np.log(3), Context())
    assert moved.q == pytest.approx([0.75, 0.25], rel=1e-14)
    assert (moved.p, moved.mu) == (model.p, model.mu)
    on_policy = replace(model, mu=model.q).move_theta(np.log(3), Context(on_policy=True))
    assert on_policy.mu == on_policy.q == moved.q


@pytest.mark.parametrize("exact", [False, True])
def test_random_models_are_reproducible_and_differ(exact):
    context, on = Context(("lam", "n")), Context(on_policy=True)

    def drawn():
        trees = [random_tree(seed, context, exact, tokens=2 + seed % 2) for seed in range(12)]
        return trees, [random_model(seed, size, context, exact) for seed in range(5) for size in (2, 4)]

    trees, samples = drawn()
    assert (trees, samples) == drawn()
    assert all(x.exact is exact and x.parameters["n"] in range(2, 7) for x in trees + samples)
    assert len({(x.q, x.p, x.u) for x in samples}) == 10 and len({x.q for x in trees}) == 12
    assert len({x.shape for x in trees}) > 6
    for model in trees:
        assert set(model.lengths) == {1, 2, 3} and len(model.rewards["A"]) == model.size
    for draw in (lambda *of: random_tree(5, *of), lambda *of: random_model(0, 3, *of)):
        assert draw(on).mu == draw(on).q == draw().q != draw().mu
    sizes = {len(model.q[x]) for model in map(random_tree, range(20)) for x in model.layout.nodes}
    assert sizes == {1, 2, 3}


def test_probabilities_that_are_turned_agree_at_the_outcome_alone():
    for seed in range(6):
        model = random_tree(seed)
        other = change_probabilities(model)
        for node in model.layout.nodes:
            assert sorted(other[node]) == sorted(model.q[node])
        assert all(other[branch] == model.q[branch] for branch in model.layout.paths[model.outcome])


# ---------------------------------------------------------------------------- what a statement needs
NEEDS = {
    "a single sample": (claim(KL("q", "p")), Needs(False, False)),
    "a sequence": (claim(over_t(k1("now"))), Needs(True, False)),
    "under a gradient": (claim(grad(over_t(k1("now")))), Needs(True, False)),
    "tokens": (claim(tokens("q", "p")), Needs(True, False)),
    "a curl": (claim(NOTHING, curl(k2("now"))), Needs(True, False)),
    "a length": (claim(whole(length * k1("x"))), Needs(True, False)),
    "a parameter named length": (claim(whole(length), parameters=("length",)), Needs(False, False)),
    "a premise": (claim(NOTHING, premises=((over_t(k1("now")), NOTHING),)), Needs(True, False)),
    "given at a step": (claim(whole(at("H", "x")), given=(("H[now]", k1("now")),)), Needs(True, False)),
    "a batch": (claim(over_i(k1("self"))), Needs(False, True)),
    "a pair": (claim(mean("ij", "q", k1("self"))), Needs(False, True)),
    "a variance": (claim(variance(k1("self"))), Needs(False, True)),
    "a field": (claim(gradient_over("i", k1("self"))), Needs(False, True)),
    "a batch of sequences": (claim(mean("it", "q", k1("now"))), Needs(True, True)),
    "both": (claim(over_i(k1("self")), over_t(k1("now"))), Needs(True, True)),
}


@pytest.mark.parametrize("name", NEEDS)
def test_models_are_those_that_a_statement_needs(name):
    statement, needs = NEEDS[name]
    assert find_needs(statement) == needs
    for exact in (False, True):
        drawn = draw_models(statement, range(4), exact)
        assert all((model.v is not None) is needs.sequences for model in drawn)
        sizes = {model.parameters.get("n") for model in drawn}
        assert sizes == ({2, 3} if needs.batches else {None})


# ---------------------------------------------------------------------------- what a theorem allows
SAMPLES = FiniteModel(
    ["1/2", "1/3", "1/6"], ["1/5", "2/5", "2/5"], [1, -2, 3], ["1/4", "1/2", "1/4"],
    parameters={"lam": "1/2"}, rewards={"A": ["2", "-1", "3"], "R": ["1", "0", "2"]},
)  # fmt: skip
REWARD, WEIGHT = at("R", "x"), rho("x")  # rho is 2, 2/3 and 2/3
HALF_LAM = V("lam") * 2 - 1


def drawn(context: Context, model: FiniteModel, *hypotheses):
    statement = replace(claim(NOTHING), context=context)
    return find_allowed_model(SimpleNamespace(statement=statement, hypotheses=hypotheses), model, {})


def values(e: ExpPoly, model: FiniteModel, context: Context):
    return [x.value for x in Frame(model, EXACT, context, {}).get_rows().evaluate_element(e).value]


BOUND = Context(("lam",), definitions=(Definition("high", REGION, WEIGHT - 2),))
WITH_LOG = Context(("lam",), definitions=(Definition("inv", LOG, 1 + REWARD),))


@pytest.mark.parametrize("kind", ["off", "apart", "away"])
def test_models_stay_off_the_bounds_that_a_theorem_excludes(kind):
    for e in (WEIGHT - 2, REWARD, HALF_LAM):
        found = drawn(BOUND, SAMPLES, (kind, "mu", e))
        assert 0 not in [float(x.lower) for x in values(e, found, BOUND)] and found.exact
    assert drawn(BOUND, SAMPLES, (kind, "mu", WEIGHT - 7)) == SAMPLES
    with pytest.raises(UsageError, match="has samples where the theorem excludes"):
        drawn(replace(BOUND, on_policy=True), replace(SAMPLES, mu=SAMPLES.q), (kind, "q", at("w", "x")))


def test_models_stay_where_logs_have_a_value():
    for e in (WEIGHT - Fraction(3, 5), REWARD, REWARD + HALF_LAM):
        found = drawn(WITH_LOG, SAMPLES, ("above", "mu", e))
        assert all(x.lower > 0 for x in values(e, found, WITH_LOG)), e
    with pytest.raises(UsageError, match="has samples where the theorem excludes"):
        drawn(WITH_LOG, SAMPLES, ("above", "mu", -REWARD * REWARD))


def test_models_satisfy_the_facts_that_a_theorem_assumes():
    context = replace(BOUND, facts=(lam, 1 - REWARD), witness=(("R", 0), ("lam", 1)))
    below = replace(SAMPLES, parameters={"lam": -3})
    found = drawn(context, below, ("fact", lam), ("fact", 1 - REWARD))
    assert found.parameters["lam"] >= 0 and max(found.rewards["R"]) <= 1 < max(SAMPLES.rewards["R"])
    assert drawn(context, below) == below  # what is not assumed may fail
