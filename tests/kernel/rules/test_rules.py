"""Each rule at each index on named cases: what it makes of them, what it assumes, and what it refuses.

That what it makes has the value of what it is made from is held against enumeration (oracle.statements).
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

from klsym.errors import NotInRing, Refused
from klsym.kernel import EQUATION, RULES, apply_step
from klsym.kernel.batches import OWN, SIZES, _list_moments
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import Atom, Context, Mean, Side
from klsym.kernel.sums import SCORE, SUMS
from support.certificates.applying import apply, assert_preserved
from support.certificates.faulty_certificates import *
from support.certificates.indexed_cases import CASES, PLAIN, of, swap
from support.certificates.indexed_strategies import MAKERS
from support.certificates.kernel_words import PLAIN as DECLARED
from support.certificates.kernel_words import Mg, step
from support.certificates.one_sample_cases import CASES as OF_ONE
from support.certificates.one_sample_cases import ELSEWHERE
from support.certificates.slot_helpers import (
    future,
    lone,
    mean_i,
    now,
    only,
    other,
    others,
    own,
    past,
    rest,
    sum_t,
)
from support.oracle.values import same, worth
from support.oracle.worlds import DEEP, THREE, TWO, kept_world

ROWS = [
    pytest.param(rule, *case, id=f"{rule}-{name}") for rule, cases in CASES.items() for name, *case in cases
]


@pytest.mark.parametrize(("rule", "atom_data", "context", "expected"), ROWS)
def test_named_case(rule, atom_data, context, expected):
    atom, data = atom_data
    if isinstance(expected, str):
        with pytest.raises((Refused, NotInRing)) as refusal:
            apply(rule, Side.from_atom(atom), data, context)
        assert re.search(expected, str(refusal.value))
        return
    result, _ = apply(rule, Side.from_atom(atom), data, context)
    assert result == expected
    assert_preserved(rule, atom, expected, context, 3)


def test_every_rule_has_cases_of_both_kinds():
    assert set(CASES) == set(MAKERS) == set(RULES)
    for rule, cases in CASES.items():
        refusals = sum(isinstance(case[-1], str) for case in cases)
        assert refusals >= 2 and len(cases) - refusals >= 3, rule


# ---------------------------------------------------------------------------- one sample
ACCEPTED, REFUSED = (
    [
        pytest.param(rule, *case, id=f"{rule}-{name}")
        for rule, cases in OF_ONE.items()
        for name, *case in cases
        if isinstance(case[2], str) == refused
    ]
    for refused in (False, True)
)


def applied(rule: str, side: Side, data: dict[str, Any], context: Context = DECLARED, **place: int) -> Any:
    return apply_step({"left": side}, step(rule, **place, **data), context, {})


@pytest.mark.parametrize(("rule", "side", "data", "expected", "assumed"), ACCEPTED)
def test_named_case_of_one_sample(rule, side, data, expected, assumed):
    assert applied(rule, side, data) == (expected, assumed)
    for seed in range(3):
        world = kept_world(seed, (DEEP, THREE, TWO)[seed])
        assert same(worth(side, world), worth(expected, world))


@pytest.mark.parametrize(("rule", "side", "data", "message"), REFUSED)
def test_named_refusal_of_one_sample(rule, side, data, message):
    with pytest.raises((Refused, NotInRing)) as refusal:
        applied(rule, side, data)
    assert re.search(message, str(refusal.value))


def test_every_rule_has_cases_of_one_sample_of_both_kinds():
    """The rest speak of a batch or a sequence alone."""
    assert set(OF_ONE) | set(ELSEWHERE) == set(RULES) and EQUATION not in RULES
    for rule, cases in OF_ONE.items():
        refusals = sum(isinstance(case[3], str) for case in cases)
        assert refusals >= 3 and len(cases) - refusals >= 3, rule


@pytest.mark.parametrize("rule", ELSEWHERE)
@pytest.mark.parametrize("side", [Em("q", k1), Em("p", k1, 2), Em("sample", R), Em("count", R), Mg("q", k1)])
def test_what_speaks_of_a_sequence_or_a_batch_refuses_one_sample(rule, side):
    with pytest.raises(Refused, match=r"a sum over t expected|over batches|Mean expected, got MeanGradient"):
        applied(rule, side, ELSEWHERE[rule])


# ---------------------------------------------------------------------------- a part, in its place
HALF = Fraction(1, 2)
WHOLE = Em("q", k1 + r * 2, 1).multiply(Em("p", w)) * beta + Em("mu", R) + constant(3)


def test_a_part_is_split_off_in_its_product():
    """The other factors, their coefficient and the other terms stay as they are."""
    [(number_of, factor)] = [
        (i, j)
        for i, (_, atoms) in enumerate(WHOLE.terms)
        for j, atom in enumerate(atoms)
        if isinstance(atom, Mean) and atom.score
    ]
    atom = WHOLE.terms[number_of][1][factor]
    one = ExpPoly(dict([min(atom.coefficient.terms.items())]))  # products are monic
    data, place = {"to": "p", "part": one}, {"term": number_of, "factor": factor}
    after, assumed = applied("change of measure", WHOLE, data, **place)
    assert ("exists", Mean("", "q", one, ("x",))) in assumed
    assert len(after.terms) == len(WHOLE.terms) + 1
    for seed in range(3):
        assert same(worth(WHOLE, kept_world(seed)), worth(after, kept_world(seed)))


@pytest.mark.parametrize(
    ("side", "rule", "data", "assumed"),
    [
        (Em("q", k1), "stop-gradient", {"part": k1 - beta}, {Em("q", k1 - beta)}),
        (Em("q", k1), "stop-gradient", {"part": beta}, set()),
        (Em("q", k1, 1), "stop-gradient", {"part": beta}, {Em("q", beta, 1)}),
        (Em("count", k1), "stop-gradient", {"part": beta}, {Em("count", beta)}),
        (Em("sample", k1), "stop-gradient", {"part": k1 - w}, set()),
        (Em("q", k1), "stop-gradient", {"part": k1}, set()),  # all of it
        (Em("q", k1), "stop-gradient", {"part": ZERO}, set()),
        (
            Em("q", k1 + beta, 1),
            "score mean zero",
            {"part": beta, "slot": "x"},
            set(),
        ),  # the exchange says so
        (Em("p", beta + k1, 1), "change of measure", {"part": beta, "to": "mu"}, {Em("p", beta, 1)}),
    ],
)
def test_a_part_that_is_split_off_exists(side, rule, data, assumed):
    """Unless it is all there is, a constant, a value at one sample, or said to exist by an exchange."""
    _, found = applied(rule, side, data)
    assert {h for h in found if h[0] == "exists"} == {("exists", lone(of)) for of in assumed}


def test_nothing_divides_by_a_sum_over_other_samples():
    """No coefficient that is read does; E[1/(V + W)] is no sum of means."""
    for power in (1, 2):
        factor = V("k1[others]").invert() ** power
        with pytest.raises(Refused, match="division by k1"):
            _list_moments(Mean("i", "q", factor), factor, "others", Context(("n",)))


def test_the_slots_of_a_sample_are_those_that_no_other_sample_has():
    others = {*SIZES, "other"}
    assert {i: set(own) for i, own in OWN.items()} == {i: set(SLOTS[i]) - others for i in ("i", "ij", "it")}


Q_IN_MU, MU_IN_Q = ("support", "q", "mu"), ("support", "mu", "q")
WEIGHTS = [  # a mean under mu, and what its move to q needs
    ("whole weight", "t", past(rho) * now(rho) * future(rho) * R, (), {Q_IN_MU}),
    ("weight of the sequence", "t", rho * now(R), (), {Q_IN_MU}),
    ("prefix weight", "t", past(rho) * now(rho) * R, (), {Q_IN_MU, MU_IN_Q}),
    ("weight of this step", "t", now(rho) * R, (), {Q_IN_MU, MU_IN_Q}),
    ("weight of the future", "t", future(rho) * R, (), {Q_IN_MU, MU_IN_Q}),
    ("weight of all samples", "i", own(rho) * others(rho) * own(R), (), {Q_IN_MU}),
    ("weight of one sample", "i", own(rho) * others(R), (), {Q_IN_MU, MU_IN_Q}),
    ("weight of a pair", "ij", own(rho) * other(rho), (), {Q_IN_MU, MU_IN_Q}),
    ("one term without weight", "i", own(rho) * others(rho) + own(rho), (), {Q_IN_MU, MU_IN_Q}),
    ("logs beside the weight", "", rho * k1 * w, (), {Q_IN_MU}),
    ("one score", "t", rho * now(k1), ("now",), {Q_IN_MU}),
    ("two scores", "t", rho * now(k1), ("now", "now"), {Q_IN_MU, MU_IN_Q}),
    ("two scores of two slots", "t", rho * now(k1), ("now", "past"), {Q_IN_MU}),
    ("a score of the whole beside that of a step", "t", rho * now(k1), ("now", "x"), {Q_IN_MU, MU_IN_Q}),
    ("two scores and the square of the weight", "t", rho * rho, ("now", "x"), {Q_IN_MU}),
    ("a function beside the weight", "", rho * f, (), {Q_IN_MU, MU_IN_Q}),
    ("a parameter in the exponent", "", (beta * w).exp(), (), {Q_IN_MU, MU_IN_Q}),
    ("a third policy under q", "", V("o").exp(), (), set()),
    ("a third policy over q", "", (-V("o")).exp(), (), {MU_IN_Q}),
    ("the root of the weight", "", (w * Fraction(1, 2)).exp() * R, (), set()),
    ("the square of the weight", "i", own(rho * rho) * others(rho), (), {Q_IN_MU}),
    ("the weight of the reference over q", "t", r * now(R), (), {MU_IN_Q}),
    ("nothing but a weight", "ij", own(rho) * other(rho) * rest(rho), ("self", "other", "rest"), {Q_IN_MU}),
]


@pytest.mark.parametrize(("index", "a", "score", "needed"), [pytest.param(*x, id=k) for k, *x in WEIGHTS])
def test_a_weight_must_fade_in_every_slot(index, a, score, needed):
    _, assumed = apply("change of measure", mean(index, "mu", a, *score), {"to": "q"}, PLAIN)
    assert {h for h in assumed if h[0] == "support"} == needed


# ---------------------------------------------------------------------------- hypotheses
def exists(side: Side) -> tuple[str, Atom]:
    return "exists", lone(side)


def exchange(side: Side) -> tuple[str, Atom]:
    return "exchange", lone(side)


ENDS_Q, ENDS_MU, BATCH, BATCH_MU = ("ends", "q"), ("ends", "mu"), ("batch", "q"), ("batch", "mu")
PAST, MOVED, PAIR = past(R), sum_t("mu", now(rho)), mean("ij", "q", own(k1) * other(k1))
STEPS, MINE = sum_t("q", ONE), mean_i("q", own(R))
# rule, atom and data, what is assumed
ASSUMED = [
    ("chain rule", only(mean_grad("t", "q", now(k2))), set()),
    ("chain rule", only(mean_grad("t", "q", past(k1) * now(k1))),
        {exists(sum_t("q", past(k1), "now")), exists(sum_t("q", now(k1), "past"))}),
    ("chain rule", only(mean_grad("t", "sample", past(k1) * now(k1))), set()),
    ("chain rule", only(mean_grad("t", "q", past(V("o")) * now(V("M") * k1))),
        {exists(sum_t("q", past(V("o")) * now(V("M")), "now")),
         exists(sum_t("q", now(V("M") * k1), "past"))}),
    ("chain rule", only(mean_grad("i", "q", own(k1) - others(k1))),
        {exists(mean_i("q", ONE, "self")), exists(mean_i("q", -ONE, "others"))}),
    ("stop-gradient", only(sum_t("q", past(sg(k1)))), set()),
    ("log-derivative", only(grad(sum_t("q", now(R)))), {exchange(sum_t("q", now(R))), ENDS_Q}),
    ("log-derivative", only(grad(sum_t("q", beta * now(R)))), {exchange(sum_t("q", beta * now(R))), ENDS_Q}),
    ("log-derivative", only(grad(sum_t("q", now(k1)))),
        {exchange(sum_t("q", now(k1))), ENDS_Q, exists(sum_t("q", now(k1), "x"))}),
    ("log-derivative", only(grad(mean("it", "mu", others(w)))),
        {exchange(mean("it", "mu", others(w))), ENDS_MU, BATCH_MU}),
    ("log-derivative", only(grad(mean_i("q", own(R)))),
        {exchange(MINE), BATCH, exists(mean_i("q", own(R), "self")), exists(mean_i("q", own(R), "others"))}),
    ("log-derivative", only(grad(sum_t("sample", now(k1)))), set()),
    ("log-derivative", only(grad(sum_t("p", now(k1)) + mean_i("p", own(R)))),
        {exchange(sum_t("p", now(k1))), exchange(mean_i("p", own(R))), ("ends", "p"), ("batch", "p")}),
    ("parts of a sum", of(sum_t("q", R, "x"), "s"),
        {exists(sum_t("q", R, z)) for z in ("past", "now", "future")}),
    ("parts of a sum", of(sum_t("q", ONE, "now", "x"), "s"),
        {exists(sum_t("q", ONE, "now", z)) for z in ("past", "now", "future")}),
    ("parts of a sum", of(sum_t("q", T), "length"), set()),
    ("parts of a sum", of(sum_t("q", T), *SUMS, SCORE), set()),
    ("parts of a sum", only(sum_t("q", R + k1), of=["k1"], part=k1), {exists(sum_t("q", k1))}),
    ("change of measure", only(MOVED, to="q"), {Q_IN_MU, MU_IN_Q, ENDS_Q, ENDS_MU}),
    ("change of measure", only(MOVED, to="mu"), {ENDS_MU}),
    ("change of measure", only(mean_i("mu", own(rho)), to="q"), {Q_IN_MU, MU_IN_Q, BATCH, BATCH_MU}),
    ("change of measure", only(mean_i("mu", own(rho) * others(rho)), to="q"), {Q_IN_MU, BATCH, BATCH_MU}),
    ("change of measure", only(mean("it", "mu", now(A)), to="mu"), {ENDS_MU, BATCH_MU}),
    ("score mean zero", only(sum_t("q", PAST, "now"), slot="now"),
        {exchange(sum_t("q", PAST)), ENDS_Q, exists(sum_t("q", PAST, "now"))}),
    ("score mean zero", only(sum_t("q", PAST, "now", "past"), slot="now"),
        {exchange(sum_t("q", PAST, "past")), ENDS_Q, exists(sum_t("q", PAST, "now", "past"))}),
    ("score mean zero", only(sum_t("q", beta, "now"), slot="now"),
        {exchange(sum_t("q", ONE)), ENDS_Q, exists(sum_t("q", beta, "now"))}),
    ("score mean zero", only(mean_i("q", others(R), "self"), slot="self"),
        {exchange(mean_i("q", others(R))), BATCH}),
    ("score mean zero", only(sum_t("q", PAST + now(R), "now"), slot="now", part=PAST),
        {exchange(sum_t("q", PAST)), ENDS_Q, exists(sum_t("q", PAST, "now"))}),
    ("score mean zero", only(sum_t("q", now(R) - 1, "now"), slot="now", part=-ONE),  # sum_t |s_t|
        {exchange(STEPS), ENDS_Q, exists(sum_t("q", -ONE, "now"))}),
    ("score mean zero", only(Em("q", R - 1, 1), slot="x", part=-ONE), {exchange(Em("q", ONE))}),
    ("ratio mean one", only(MOVED, of="q", slot="now"), {Q_IN_MU, ENDS_Q, ENDS_MU, exists(MOVED)}),
    ("ratio mean one", only(mean_i("q", others(r)), of="p", slot="others"),
        {("support", "p", "q"), BATCH, ("batch", "p")}),
    ("sum over t", only(Em("q", R + k1), of="R", part=R), {exists(Em("q", R)), ENDS_Q}),
    ("sum over t", only(point(R), of="R"), set()),
    ("exchange of sums", swap(sum_t("q", future(R), "now"), "s", "R"), set()),
    ("exchange of sums", swap(sum_t("q", future(R) + 1, "now"), "s", "R", part=future(R)),
        {exists(sum_t("q", future(R), "now"))}),
    ("exchange of sums", swap(sum_t("sample", future(R) + 1, "now"), "s", "R", part=future(R)), set()),
    ("independence", only(mean_i("q", own(k1))), {BATCH}),
    ("independence", only(mean_i("q", own(k1) * others(R))),
        {BATCH, exists(Em("q", k1)), exists(Em("q", R))}),
    ("independence", only(mean_i("q", others(k1), "self", "self")),
        {BATCH, exists(Em("q", k1)), exists(Em("q", ONE, 2))}),
    ("independence", only(mean_i("q", ONE, "others", "others")),
        {BATCH, exists(Em("q", ONE, 2)), exists(Em("q", ONE, 1))}),
    ("independence", only(PAIR), {BATCH, exists(Em("q", k1))}),
    ("independence", only(mean("it", "q", others(R))), {BATCH, ENDS_Q, exists(Em("q", R)), exists(STEPS)}),
    ("curl", only(curl("t", "q", now(k2))), {exchange(sum_t("q", now(k1), "now")), ENDS_Q,
        exists(sum_t("q", now(k1), "now", "x'")), exists(sum_t("q", -now(k1), "now'", "x"))}),
    ("curl", only(curl("t", "mu", now(k2))), {exchange(sum_t("mu", now(k1), "now")), ENDS_MU}),
    ("curl", only(curl("i", "mu", own(k1) * others(sg(w)))), {
        exchange(mean_i("mu", others(w), "self")), BATCH_MU,
        exists(mean_i("mu", ONE, "others'", "self")), exists(mean_i("mu", -ONE, "others", "self'"))}),
    ("normalisation", only(mean_i("q", beta)), set()),
    ("linearity", only(sum_t("q", beta * now(k1)), constant=beta), {exists(sum_t("q", now(k1)))}),
    ("linearity", only(sum_t("q", now(k1)), constant=ONE * 2), set()),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "atom_data", "assumed"), ASSUMED)
def test_a_rule_records_what_it_assumes(rule, atom_data, assumed):
    atom, data = atom_data
    assert apply(rule, Side.from_atom(atom), data, PLAIN)[1] == assumed
