"""Tree models: what they refuse, what is drawn at random, and the theorems judged on them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from klsym.errors import UsageError
from klsym.kernel import Theorem
from klsym.kernel.closings import Zero
from klsym.kernel.ring import ONE
from klsym.language.abbreviations import Context, Side
from klsym.numeric.exact import agreement, check_theorem, enclose, evaluate, models_for
from klsym.numeric.models import FiniteModel, from_certificate, random_tree
from klsym.numeric.random_models import Needs, allowed, needs_of, turned
from support.oracle_atoms import *

LATER = {
    "q": ["1/3", "2/3"], "p": ["1/2", "1/2"], "mu": ["1/4", "3/4"],
    "u": ["2", "-1"], "v": ["1", "1/2"], "R": ["3", "5"], "next": [None, None],
}  # fmt: skip
JSON = {"tree": {**LATER, "next": [None, LATER]}, "parameters": {"lam": "1/2"}}
MODEL = from_certificate(JSON)


# ---------------------------------------------------------------------------- models
def with_root(**rows):
    return {**JSON, "tree": {**JSON["tree"], **rows}}


BAD = {
    "no object": (3, "the keys"),
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
    "nan": (with_root(v=[float("nan"), 1]), "v holds nan"),
    "parameters": ({**JSON, "parameters": []}, "parameters and rewards: name -> value expected"),
    "an empty node below": (with_root(next=[None, {key: [] for key in LATER}]), "a node without branches"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_trees_are_refused_in_one_line(name):
    data, message = BAD[name]
    with pytest.raises(UsageError, match=message) as refusal:
        from_certificate(data)
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


def test_models_must_fit_the_statement():
    with pytest.raises(UsageError, match=r"outcome 3 is not one of 0\.\.2"):
        replace(MODEL, outcome=3)
    with pytest.raises(UsageError, match="q has 4 entries, 2 expected"):
        replace(MODEL, shape=(None, None))
    with pytest.raises(UsageError, match="on-policy, so mu must equal q"):
        evaluate(claim(over_t(k1("now")), on_policy=True), MODEL)
    with pytest.raises(UsageError, match="no value for the parameter n"):
        evaluate(claim(over_t(k1("now")), parameters=("n",)), MODEL)
    with pytest.raises(UsageError, match="rational numbers"):
        enclose(claim(over_t(k1("now"))), random_tree(0))


REFUSED = {
    "A of a certificate": (over_t(at("A", "past")), "no value for A"),
    "A of the whole": (whole(at("A", "x")), "no value for 'A'"),
    "a slot of a batch": (whole(k1("self")), "'' has no such slot"),
    "H without a value": (over_t(at("H", "now")), "no value for 'H'"),
    "an unknown slot": (over_t(k1("self")), "'t' has no such slot"),
    "an unknown name": (over_t(at("k7", "now")), "no value for 'k7'"),
    "gradient of a field": (grad(gradient_over("t", k1("now"))), "a gradient inside a gradient"),
    "gradient of token gradients": (grad(tokens("q", "p", gradient=True)), "a gradient inside a gradient"),
    "gradient of a curl": (grad(curl(k2("now"))), "the gradient of a curl"),
    "gradient of a score": (grad(over_t(k1("now"), "now")), "gradient of a score"),
    "division by a log ratio": (over_t(k1("now").inverse()), "division by"),
    "division by part of a length": (over_t(at("length", "past").inverse()), "division by"),
    "an unknown measure": (over_t(k1("now"), m="nu"), "unknown measure"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused(name):
    side, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        evaluate(claim(side), MODEL)


def test_a_single_sample_is_a_sequence_of_one_token():
    finite = FiniteModel(["1/2", "1/2"], ["1/4", "3/4"], [1, 0])
    for side in (over_t(k1("now")), tokens("q", "p"), whole(length * k1("x")), over_t(k1("x") + k1("past"))):
        assert enclose(claim(side), finite) == enclose(claim(KL("q", "p")), finite)
    assert evaluate(claim(mean("it", "q", k1("now") * k1("others")), KL("q", "p")), finite)[0] > 0
    with pytest.raises(UsageError, match="no direction 'v'"):
        evaluate(claim(curl(k2("now"))), finite)
    left, _ = enclose(claim(curl(k2("now"))), replace(finite, v=[0, 3]))  # one free number: a gradient
    assert left.lower <= 0 <= left.upper and left.upper - left.lower < 1e-20


def test_a_value_given_for_whole_samples_says_nothing_of_tokens():
    setting = {"given": (("R", k1("x")),)}
    assert evaluate(claim(whole(at("R", "x")), KL("q", "p"), **setting), MODEL)[0] > 0
    with pytest.raises(UsageError, match="given at whole samples, and asked for at a token"):
        evaluate(claim(over_t(at("R", "now")), **setting), MODEL)


def test_certificates_are_trees_or_not():
    flat = {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"]}
    flat |= {"parameters": {}, "rewards": {}, "outcome": 0}
    assert from_certificate(flat) == FiniteModel(**flat) and from_certificate(flat).lengths == (1, 1)
    assert from_certificate(JSON) == MODEL
    for bad in ({}, None, {"tree": None}, {**JSON, "mu": []}):
        with pytest.raises(UsageError):
            from_certificate(bad)


# ---------------------------------------------------------------------------- random trees
def test_random_trees_are_reproducible_and_differ():
    context = Context(("lam", "n"))
    for exact_ in (False, True):
        drawn = [random_tree(seed, context, exact_, tokens=2 + seed % 2) for seed in range(12)]
        assert drawn == [random_tree(seed, context, exact_, tokens=2 + seed % 2) for seed in range(12)]
        assert len({model.q for model in drawn}) == 12 and len({model.shape for model in drawn}) > 6
        for model in drawn:
            assert model.exact is exact_ and {1, 2, 3} <= set(model.lengths) and max(model.lengths) == 3
            assert model.parameters["n"] in range(2, 7) and len(model.rewards["A"]) == model.size
    on = random_tree(5, Context(on_policy=True))
    assert on.mu == on.q != random_tree(5).mu
    sizes = {len(model.q[x]) for model in map(random_tree, range(20)) for x in model.layout.nodes}
    assert sizes == {1, 2, 3}


@pytest.mark.parametrize("bad", [{"tokens": 1}, {"depth": 1}, {"seed": -1}])
def test_random_trees_refuse(bad):
    with pytest.raises(UsageError, match="model: seed"):
        random_tree(**{"seed": 0, **bad})


def test_probabilities_that_are_turned_agree_at_the_outcome_alone():
    for seed in range(6):
        model = random_tree(seed)
        other = turned(model)
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
    assert needs_of(statement) == needs
    for exact_ in (False, True):
        drawn = models_for(statement, range(4), exact_)
        assert all((model.v is not None) is needs.sequences for model in drawn)
        sizes = {model.parameters.get("n") for model in drawn}
        assert sizes == ({2, 3} if needs.batches else {None})


# ---------------------------------------------------------------------------- theorems
def theorem(kind, left, right=0, close=None, relation="=", hypotheses=(), zeros=(), **setting):
    """A theorem that no kernel made."""
    statement = replace(claim(left, right, **setting), relation=relation)
    return Theorem(kind, statement, (), hypotheses, close or {}, zeros)


def premise(left, right, *names):
    return {"premises": ((Side.constant(left), Side.constant(right)),), "parameters": tuple(sorted(names))}


SIZE = premise(n, m + 1, "m", "n")
LOO = over_i(k1("self") - k1("others") * m.inverse(), "self")
F = {"functions": (("f", ("k1", "log_q", "w")),)}


def vanishing(u):
    """An inequality by one row, an equality where u = 0."""
    return (Zero("", "q", ONE, u, (), ONE, False),)


PROVED = {
    "a sequence": theorem("proved", over_t(k1("now"), "x"), REVERSE),
    "a curl": theorem("proved", curl(k2("x") * length.inverse())),
    "leave one out": theorem("proved", LOO, REVERSE, **SIZE),
    "a premise for n alone": theorem("proved", KL("q", "p") * n, KL("q", "p") * (m + 1), **SIZE),
    "two premises": theorem(
        "proved", over_t(1 * m) * V("a"), over_t(n - 1) * V("a"),
        premises=(*SIZE["premises"], (Side.constant(V("a")), Side.constant(m * 2))),
        parameters=("a", "m", "n"),
    ),
    "a mean": theorem("proved", KL("q", "p"), over_t(k3("now")), relation="<="),
    "a term that vanishes where q = p": theorem(
        "proved", NOTHING, tokens("q", "p"), zeros=vanishing(k1("x")), relation="<=",
    ),
    "positive": theorem(
        "proved", NOTHING, over_t(k3("now")) * lam, relation="<=", parameters=("lam",),
        hypotheses=(("positive", "lam"),),
    ),
    "functions": theorem(
        "proved", grad(over_t(V("f[now]"))), over_t(V("f[now]"), "x") + gradient_over("t", V("f[now]")), **F,
    ),
}  # fmt: skip
WRONG = {
    "a sequence": theorem("proved", over_t(k1("now"), "now"), REVERSE),
    "by a hair": theorem("proved", over_t(k1("now")), KL("q", "p") * (1 + Fraction(1, 10**8))),
    "but for what no float shows": theorem(
        "proved", over_t(k1("now")), KL("q", "p") * (1 + Fraction(1, 10**12))
    ),
    "a curl": theorem("proved", curl(k2("now"))),
    "a curl, but for what no float shows": theorem(
        "proved", curl(k2("now")) * (1 + Fraction(1, 10**12)), curl(k2("now"))
    ),
    "leave one out": theorem("proved", LOO * m, REVERSE * n, **SIZE),
    "an order": theorem("proved", over_t(k3("now")), KL("q", "p") * Fraction(1, 2), relation="<="),
    "a sign": theorem("proved", NOTHING, over_t(k3("now")) * lam, relation="<=", parameters=("lam",)),
    "functions": theorem("proved", grad(over_t(V("f[now]"))), gradient_over("t", V("f[now]")), **F),
    "equality elsewhere": theorem(
        "proved", NOTHING, tokens("q", "p"), zeros=vanishing(k1("x") - 5), relation="<=",
    ),
    "equality everywhere": theorem(
        "proved", NOTHING, tokens("q", "p"), zeros=vanishing(lam * 0), relation="<=",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_theorems_pass(name):
    outcome = check_theorem(PROVED[name])
    assert outcome.passed, outcome.text
    assert ("enclosures" in outcome.text) is (name != "functions")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_theorems_fail(name):
    outcome = check_theorem(WRONG[name])
    assert not outcome.passed, outcome.text


def test_premises_are_met_by_the_other_parameter():
    for name in ("leave one out", "a premise for n alone", "two premises"):
        context = PROVED[name].statement.context
        for exact_ in (False, True):
            for model in models_for(PROVED[name].statement, range(6), exact_):
                found = allowed(PROVED[name], model, {})
                assert found.parameters["n"] == model.parameters["n"] == found.parameters["m"] + 1
                assert found.exact is exact_
                assert "a" not in context.parameters or found.parameters["a"] == 2 * found.parameters["m"]


def test_a_premise_that_cannot_be_met_is_refused():
    square = theorem("proved", KL("q", "p"), KL("q", "p"), **premise(m * m, n.exp(), "m", "n"))
    with pytest.raises(UsageError, match="premise 1 fails"):
        check_theorem(square)


REFUTATIONS = {
    "tokens are not the sequence": theorem("refuted", over_t(k1("now"), "now"), REVERSE, {"model": JSON}),
    "a curl": theorem("refuted", curl(k2("now")), 0, {"model": with_root(v=["0", "3"])}),
    "an order": theorem("refuted", KL("q", "p"), 0, {"model": JSON}, relation="<="),
    "a batch": theorem(
        "refuted", over_i(k1("self"), "others"), REVERSE,
        {"model": {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/2", "1/2"], "u": ["1", "0"],
                   "parameters": {}, "rewards": {}, "outcome": 0}},
    ),
    "a batch of sequences": theorem(
        "refuted", mean("it", "q", k1("others")), 0, {"model": {**JSON, "parameters": {"n": "3"}}}
    ),
}  # fmt: skip
NO_REFUTATIONS = {
    "the same": theorem("refuted", over_t(k1("now"), "x"), REVERSE, {"model": JSON}),
    "a curl": theorem("refuted", curl(k2("x") * length.inverse()), 0, {"model": with_root(v=["0", "3"])}),
    "a curl in one plane": theorem("refuted", curl(k2("now")), 0, {"model": JSON}),  # u and v are parallel
    "an order": theorem("refuted", -1 * KL("q", "p"), 0, {"model": JSON}, relation="<="),
    "silent": theorem("refuted", over_t(k1("now"), "now"), REVERSE, {"model": with_root(next=[None, None])}),
    "a batch": theorem(
        "refuted", mean("it", "q", r("others") * length.inverse()), 1,
        {"model": {**JSON, "parameters": {"n": "3"}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUTATIONS)
def test_refutations_are_judged_on_their_own_model(name):
    assert check_theorem(REFUTATIONS[name]).passed


@pytest.mark.parametrize("name", NO_REFUTATIONS)
def test_refutations_that_refute_nothing_fail(name):
    assert not check_theorem(NO_REFUTATIONS[name]).passed


def test_no_certificate_says_what_a_is():
    for side in (over_t(at("A", "now"), "now"), over_i(at("A", "others"), "others")):
        model = (
            {"model": JSON}
            if side == over_t(at("A", "now"), "now")
            else {"model": {**JSON, "parameters": {}}}
        )
        with pytest.raises(UsageError, match="A"):
            check_theorem(theorem("refuted", side, 0, model))


INDEPENDENT = {
    "tokens": (gradient_over("t", k2("now")), True),
    "token k3": (gradient_over("t", k3("now")), True),
    "off-policy": (gradient_over("t", sg(rho("now")) * k2("now"), m="mu"), True),
    "a reward": (over_t(at("R", "now"), "now") + REVERSE * 2, False),
    "an advantage": (over_t(at("A", "now"), "now") + FORWARD, False),
    "the sequence": (over_t(k1("now"), "x"), False),
    "both": (over_t(k1("now"), "x") - over_t(2, "now", m="p"), False),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_combinations_of_both_kl_gradients(name):
    left, independent = INDEPENDENT[name]
    assert check_theorem(theorem("independent", left)).passed is independent


def test_unique_functions_of_tokens():
    """E_q[sum_t grad g(k1_t)] is the field of k2 for g = k2 + a k1 + b alone."""
    left = gradient_over("t", V("g[now]")) - tokens("q", "p", gradient=True)
    setting = {"functions": (("g", ("k1",)),), "parameters": ("a", "b")}
    line = V("a") * k1("x") + V("b")
    for family, expected in ((k2("x") + line, True), (k3("x") + line, False)):
        close = {"function": "g", "family": family.to_json(), "order": 2, "constants": ["b", "a"]}
        assert check_theorem(theorem("unique", left, 0, close, **setting)).passed is expected


# ---------------------------------------------------------------------------- the oracle itself
def test_disagreement_is_that_of_the_worst_model():
    statement = claim(over_t(k1("now"), "now"), REVERSE)
    flat = from_certificate(with_root(next=[None, None]))
    assert agreement(statement, [flat]).difference < 1e-15
    assert agreement(statement, [flat, MODEL]).difference > 1e-3
