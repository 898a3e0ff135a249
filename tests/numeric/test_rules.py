"""What a rule puts in the place of an atom has the atom's value, at every index; the oracle knows no rule."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from klsym.engine.proof.lemmas import lemmas
from klsym.errors import NotInRing, Refused
from klsym.kernel import EQUATION, RULES, apply_step
from klsym.kernel.names import parse_name
from klsym.kernel.statements import LOG, REGION, Definition
from klsym.language.abbreviations import (
    NAMED,
    Bregman,
    Context,
    Covariance,
    Curl,
    Divergence,
    Gradient,
    MeanVariance,
    Side,
    Statement,
    TokenDivergence,
    elements,
)
from klsym.language.unfolding import means_given, unfold, written_out
from klsym.numeric.exact import agreement, models_for
from support.certificates.region_words import bound, cell
from support.oracle_atoms import *

DEFINED = (
    Definition("high", REGION, rho("x") - Fraction(6, 5)),
    Definition("low", REGION, Fraction(4, 5) - rho("x")),
    Definition("up", REGION, k1("x")), Definition("down", REGION, -k1("x")),
    Definition("gain", REGION, at("A", "x")), Definition("over", REGION, k1("past") + k1("now") - V("lam")),
    Definition("inv", LOG, 1 + r("x")), Definition("quot", LOG, V("up") * at("R", "x") ** 2 + r("x")),
)  # fmt: skip
CONTEXT = Context(
    definitions=DEFINED,
    parameters=("lam", "n"),
    functions=(("f", ("k1", "log_q", "w")), ("g", ("k1",))),
    given=(("H[now]", k1("past") + lam * k1("now")),),
)
F = V("f[now]")
STEPS = [
    k1("now") * k1("past"), sg(rho("now")) * k3("now") + lam,
    rho("past") * k1("now") + r("now") * at("R", "past"),
    k1("x") * at("R", "now"), F * sg(k1("past")), at("A", "past") * at("length", "future") + r("future"),
    at("H", "now") * k1("now"), (-at("w", "now")).exp() * k2("past"),
    k1("future") + at("R", "future") * k1("now"),
    k1("now") * length.inverse(), lam, at("high", "now") * at("low", "now") * k1("now") + V("over"),
    at("up", "now") * k1("now") - at("inv", "now") * k1("past"), at("quot", "now") * at("gain", "now"),
]  # fmt: skip
SCORES = [(), ("now",), ("past",), ("x",), ("future",), ("now", "past"), ("now'", "past"), ("x", "x'")]
BATCH = [
    k1("self") * k1("others") + lam, sg(k1("others")) * r("self"), rho("self") * k1("others") ** 2,
    at("A", "others") * k1("self"), n.inverse() * k1("others") - at("R", "self"), r("others") * k2("self"),
    lam, lam * n, at("high", "self") * k1("self") + sg(at("low", "self")) * at("R", "others"),
    at("up", "self") * at("inv", "self") * k1("self") + at("down", "self") * r("others"),
]  # fmt: skip
SAMPLES = [
    sg(rho("x")) * k3("x") + lam * at("log_q", "x"), rho("x") * sg(r("x")) ** 2 + at("R", "x") * k1("x"),
    lam + 2 * r("x"), 3 + lam, rho("x").inverse() * k2("x") + sg(V("g")) * V("f"),
    V("g") * (lam * k1("x")).exp(), at("high", "x") * k1("x") + (at("low", "x") * k1("x")).exp(),
    at("gain", "x") * at("quot", "x") * k1("x") + V("up") * V("down"), sg(V("inv")) * k1("x") + V("inv"),
]  # fmt: skip
PAIRS = [k1("self") * k1("other"), k1("rest") * r("other"), k1("rest") ** 2 * k1("self") + lam, n, lam * lam]
OF_STEPS = [
    k1("others") * k1("now"),
    r("others") * k1("past") + lam,
    k1("others") * at("R", "x") * rho("now"),
]


def atoms():
    for m in ("q", "p", "mu", "sample"):
        for a in STEPS:
            yield from (mean("t", m, a, *score) for score in SCORES)
            yield gradient_over("t", a, m=m)
        for a in BATCH:
            yield from (mean("i", m, a, *score) for score in ((), ("self",), ("others",), ("self", "self")))
            yield gradient_over("i", a, m=m)
        for a in PAIRS:
            yield from (mean("ij", m, a, *score) for score in ((), ("other",), ("rest", "self")))
        for a in OF_STEPS:
            yield from (mean("it", m, a, *score) for score in ((), ("now",), ("others",), ("others", "x")))
            yield gradient_over("it", a, m=m)
        for a in SAMPLES:
            yield from (mean("", m, a, *score) for score in ((), ("x",), ("x", "x")))
            yield gradient_over("", a, m=m)
    yield from named()


def named():
    for m in ("q", "p", "mu"):
        for pair in (("q", "p"), ("p", "q"), ("mu", "q"), ("q", "mu")):
            yield from (tokens(*pair, m=m), tokens(*pair, m=m, gradient=True), grad(tokens(*pair, m=m) * 2))
        weights = (sg(k1("past")), rho("past"), r("past") * lam)
        for a in (k2("now"), k3("now") * at("R", "now"), *(weight * k1("now") for weight in weights)):
            yield curl(a, m=m)
        for a in (k1("self"), k1("self") - k1("others") * lam, r("self") * k1("others"), at("A", "others")):
            yield from (variance(a, m=m), variance(a, "self", m=m))
        for a in (k1("now") * k1("past"), r("now"), k1("self") * k1("others")):
            index = "i" if a == k1("self") * k1("others") else "t"
            yield from (grad(mean(index, m, a)), grad(mean(index, m, a) * lam + mean(index, m, a * a)))
        for a in (k1("x") * at("R", "x"), k1("x"), at("length", "x") * k1("x"), at("H", "x")):
            yield from (whole(a, 0, m), whole(a, 1, m), whole(a, 2, m))
        for a in SAMPLES[:3]:
            yield from (Side.atom(Covariance(m, a, k1("x") + lam)), grad(whole(a, 0, m) * lam))
    for kind, pair in product(("KL", "chi2", "J"), ("qp", "pq", ("mu", "q"), ("q", "mu"))):
        divergence = Side.atom(Divergence(kind, *pair))
        yield from (divergence, grad(divergence * 2))
    yield from (Side.atom(Bregman(phi)) for phi in (k1("x") ** 2, r("x") ** 3 - lam * k1("x")))
    yield whole(at("log_q", "x").exp() * k3("x"), 0, "count")
    yield grad(whole(k1("x")) + whole(k1("x"), 0, "p"))


PARTS = (lam, lam + 2, r("x") * 2, rho("x").inverse(), sg(rho("x")) * k2("x"))
SUMS = ("s", "k1", "R", "length", "H", "w")
DATA = [
    {}, *({"slot": slot} for slot in ("now", "past", "future", "self", "other", "others", "rest")),
    *({"to": m} for m in ("q", "p", "mu", "count")),
    *({"of": m, "slot": z} for m in ("q", "p") for z in ("now", "future", "others", "x")),
    *({"of": name} for name in SUMS), *({"of": [name]} for name in SUMS), {"of": ["s", "k1"]},
    *({"constant": c.to_json()} for c in (lam, lam**2 * 2)),
    *({"slot": "x", "part": part.to_json()} for part in PARTS), *({"part": part.to_json()} for part in PARTS),
    *({"now": x, "other": y, "slot": z} for x, y in (("k1", "s"), ("s", "R"), ("R", "k1"), ("length", "s"))
      for z in ("past", "future")),
]  # fmt: skip
for z in ("x", "now", "self"):
    high, low, up, down = (at(name, z) for name in ("high", "low", "up", "down"))
    names = [next(iter(held.names())) for held in (high, low, up, down)]
    apart = [bound(names[0]), bound(names[1]), bound(weight=Fraction(2, 5))]
    DATA += [
        cell({}, times=0),
        *(cell({names[0]: 1, names[1]: 1}, *apart, times=b) for b in (1, lam, k1(z))),
        *(cell({names[2]: 1, names[3]: 1}, bound(names[2]), bound(names[3]), times=b) for b in (1, r(z))),
        cell({names[2]: 0, names[3]: 0}, bound(names[2], names[3]), of=k1(z), times=r(z)),
        cell({names[2]: 0, names[3]: 0}, bound(names[2]), bound(names[3]), times=r(z), apart=[names[2]]),
        *({"name": next(iter(at(v, z).names())), "times": b.to_json()} for v in ("inv", "quot")
          for b in (ONE, k1(z))),
    ]  # fmt: skip
MOST = 25  # applications of one rule that are judged
SETTINGS = [CONTEXT, replace(CONTEXT, on_policy=True)]


def one(side):
    [(_, (atom,))] = side.terms
    return atom


ATOMS = [one(side) for side in atoms() if side.terms]


def unfolded(setting):
    """What the atoms abbreviate; A of all others is no sum, so that no variance of a mean holds it."""
    for atom in ATOMS:
        try:
            yield atom, unfold(Side.atom(atom), setting)
        except Refused:
            assert isinstance(atom, MeanVariance) and "A[others]" in atom.coefficient.names()


def applications(rule, setting):
    """What the rule makes of the atoms, with any data that it takes."""
    sides = dict.fromkeys(side for _, side in unfolded(setting) if side.terms)
    for side, data in product(sides, DATA):
        step = {"rule": rule, "side": "left", "term": 0, "factor": 0, "data": data, "result": None}
        try:
            yield side, apply_step({"left": side}, step, written_out(setting), {})[0]
        except (Refused, NotInRing):
            continue


def off(left, right, context, seed):
    claim = Statement(left, right, context)
    return agreement(claim, models_for(claim, (2 + seed % 2,))).difference


@pytest.mark.parametrize("setting", SETTINGS, ids=["off-policy", "on-policy"])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_keeps_the_value(rule, setting):
    found = list(applications(rule, setting))
    assert len(found) >= 10
    for seed, (side, result) in enumerate(found[:: 1 + len(found) // MOST]):
        assert off(side, result, setting, seed) < 1e-13, side


@pytest.mark.parametrize("setting", SETTINGS, ids=["off-policy", "on-policy"])
def test_what_an_atom_abbreviates_has_its_value(setting):
    found = [(atom, side) for atom, side in unfolded(setting) if Side.atom(atom) != side]
    named = [pair for pair in found if isinstance(pair[0], (*NAMED, Gradient, Curl))]
    others = [pair for pair in found if pair not in named]
    for seed, (atom, side) in enumerate(named + others[:: 1 + len(others) // MOST]):
        assert off(Side.atom(atom), side, setting, seed) < 1e-13, atom


@pytest.mark.parametrize("setting", SETTINGS, ids=["off-policy", "on-policy"])
def test_means_of_what_is_given_have_those_of_its_value(setting):
    pairs = [pair for _, side in unfolded(setting) for pair in means_given(side, setting)]
    assert len(pairs) > 10
    for seed, (left, right) in enumerate(pairs):
        assert off(left, right, setting, seed) < 1e-13, left


def test_what_rewards_are_given_is_put_in():
    for setting in (replace(x, given=(("R", k1("x") * lam + 2),)) for x in SETTINGS):
        for seed, atom in enumerate(x for x in ATOMS if getattr(x, "index", "") == ""):
            bases = {parse_name(n).base for part in elements(Side.atom(atom)) for n in part.names()}
            if bases & {"H", "length"} or isinstance(atom, TokenDivergence | MeanVariance):
                continue  # of sequences and batches, where R is a sum
            written = unfold(Side.atom(atom), setting)
            assert off(Side.atom(atom), written, setting, seed) < 1e-13, atom
            assert not {"R", "sg(R)"} & {n for part in elements(written) for n in part.names()}


# ---------------------------------------------------------------------------- equations
MEAN_OF_R = (whole(r("x")), Side.constant(1))
LEMMAS = [[name, number] for name, proved in lemmas().known.items() for number in range(len(proved))]


@pytest.mark.parametrize("of", [0, *LEMMAS], ids=["premise", *(f"lemma {i}" for i in range(len(LEMMAS)))])
@pytest.mark.parametrize("gradient", [0, 1])
@pytest.mark.parametrize(
    "times",
    [Side.constant(1), Side.constant(lam * -2), whole(k1("x") * r("x"), 1, "p")],
    ids=["1", "lam", "mean"],
)
def test_what_an_equation_adds_is_zero(of, gradient, times):
    context, start = Context(("lam",), premises=(MEAN_OF_R,)), whole(k2("x"))
    data = {"of": of, "times": times.to_json(), "gradient": gradient}
    step = {"rule": EQUATION, "side": "left", "term": None, "factor": None, "data": data, "result": None}
    try:
        result, _ = apply_step({"left": start}, step, context, lemmas().known)
    except Refused as refusal:
        assert of != 0 and gradient and "gradient" in str(refusal)
        return
    assert result != start and off(start, result, context, 0) < 1e-13
