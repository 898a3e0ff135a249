"""Each rule at each index, against enumeration (oracle.statements).

Whatever a rule puts in place of an atom must have the value of that atom in every world: in trees of
sequences of random length, and in batches of 2 to 4 independent samples; and, where densities are 0, in every
world that satisfies the supports that the rule records.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from drafts import *
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed_cases import CASES, PLAIN, of, swap
from indexed_strategies import CONSTANTS, MAKERS, Case, atoms, data_for, elements, in_slots, likely
from kernel_words import PLAIN as DECLARED
from kernel_words import Mg, step
from one_sample_cases import CASES as OF_ONE
from one_sample_cases import ELSEWHERE
from oracle.numbers import Undefined, Unsupported
from oracle.values import same, worth
from oracle.worlds import DEEP, END, THREE, TWO, WIDE, kept_world
from slotted import future, lone, mean_i, n, now, only, other, others, own, past, rest, sum_t

from klsym.errors import NotInRing, Refused
from klsym.kernel import EQUATION, RULES, apply_step
from klsym.kernel.batches import OWN, SIZES
from klsym.ring import ZERO, ExpPoly
from klsym.slots import SLOTS
from klsym.statements import Atom, Context, Curl, Gradient, Mean, MeanGradient, Side

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=60,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
SHAPES = {  # index -> tree and batch size of a few worlds
    "": ((DEEP, 2), (THREE, 2), (WIDE, 2)),
    "t": ((DEEP, 2), (WIDE, 2)),
    "i": ((THREE, 3), (TWO, 4), (DEEP, 2)),
    "ij": ((THREE, 2), (TWO, 3), (TWO, 4)),
    "it": ((DEEP, 2), ((TWO, END), 3), (WIDE, 2)),
}


def apply(rule: str, side: Side, data: dict[str, Any], context: Context, term: int = 0) -> tuple[Side, Any]:
    """What a rule makes of a side, and what it assumes."""
    step = {"rule": rule, "side": "left", "term": term, "factor": 0, "data": data, "result": None}
    return apply_step({"left": side}, step, context, {})


def index_of(atom: Atom) -> str:
    """The index of an atom; of a gradient that of most slots."""
    if isinstance(atom, Gradient):
        inside = [index_of(inner) for _, found in atom.of.terms for inner in found]
        return max(inside, key=lambda index: len(SLOTS[index]), default="")
    return atom.index


def assert_preserved(rule: str, atom: Atom, after: Side, context: Context, count: int = 2) -> None:
    for seed, (shape, size) in enumerate(SHAPES[index_of(atom)][:count]):
        world = kept_world(seed, shape, size)
        values = worth(atom, world), worth(after, world)
        assert same(*values), f"{rule}: {atom} is {values[0]}, got {values[1]} from {after.to_json()}"


ROWS = [
    pytest.param(rule, *case, id=f"{rule}-{name}") for rule, cases in CASES.items() for name, *case in cases
]


@pytest.mark.parametrize(("rule", "atom_data", "context", "expected"), ROWS)
def test_named_case(rule, atom_data, context, expected):
    atom, data = atom_data
    if isinstance(expected, str):
        with pytest.raises((Refused, NotInRing)) as refusal:
            apply(rule, Side.atom(atom), data, context)
        assert re.search(expected, str(refusal.value))
        return
    result, _ = apply(rule, Side.atom(atom), data, context)
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
WHOLE = Em("q", k1 + r * 2, 1).times(Em("p", w)) * beta + Em("mu", R) + constant(3)


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


# ---------------------------------------------------------------------------- random atoms
INDICES = {  # where a rule applies
    "sum over t": {""}, "parts of a sum": {"t", "it"}, "exchange of sums": {"t", "it"},
    "independence": {"i", "ij", "it"}, "normalisation": {"", "i", "ij"},
}  # fmt: skip


def test_the_slots_of_a_sample_are_those_that_no_other_sample_has():
    others = {*SIZES, "other"}
    assert {i: set(own) for i, own in OWN.items()} == {i: set(SLOTS[i]) - others for i in ("i", "ij", "it")}


@pytest.mark.parametrize("rule", CASES)
def test_what_replaces_an_atom_has_its_value(rule):
    counts: Counter[str] = Counter()
    seen: set[str] = set()

    @settings(CHECK, max_examples=150)
    @given(likely(rule))
    def run(case: Case) -> None:
        try:
            result, _ = apply(rule, Side.atom(case.atom), case.data, PLAIN)
        except (Refused, NotInRing):
            return
        counts[rule] += 1
        seen.add(index_of(case.atom))
        assert_preserved(rule, case.atom, result, PLAIN)

    run()
    assert counts[rule] >= 20, counts
    assert seen == INDICES.get(rule, set(SLOTS)), seen


# ---------------------------------------------------------------------------- where densities are 0
MEANS = [rule for rule in CASES if RULES[rule].on is Mean]
NARROW = {"change of measure", "ratio mean one"}  # these alone speak of supports
SMALL = (DEEP, (TWO, END), (THREE, TWO, END), TWO)


def values_with_gaps(atom: Atom, after: Side, assumed: Any) -> list[tuple[Any, Any]]:
    """Before and after, in worlds with zeros that satisfy the supports assumed, where both have values."""
    found = []
    for seed in range(16):
        world = kept_world(seed, SMALL[seed % 4], 2 + seed % 2 * (index_of(atom) in ("i", "ij")), gaps=0.3)
        if all(world.supports(*h[1:]) for h in assumed if h[0] == "support"):
            with contextlib.suppress(Undefined):
                found.append((worth(atom, world), worth(after, world)))
    return found


@pytest.mark.parametrize("rule", MEANS)
def test_the_supports_that_a_rule_records_suffice(rule):
    counts: Counter[str] = Counter()

    @CHECK
    @given(likely(rule))
    def run(case: Case) -> None:
        try:
            result, assumed = apply(rule, Side.atom(case.atom), case.data, PLAIN)
        except (Refused, NotInRing):
            return
        supports = [h for h in assumed if h[0] == "support"]
        assert not supports or rule in NARROW
        for before, after in values_with_gaps(case.atom, result, assumed):
            assert same(before, after), f"{rule}: {case} is {before}, got {after} from {result.to_json()}"
            counts["compared"] += 1
        if supports:
            pairs = values_with_gaps(case.atom, result, ())
            counts["needed"] += any(not same(*pair) for pair in pairs)

    run()
    assert counts["compared"] >= 40, counts
    assert (counts["needed"] >= 3) == (rule in NARROW), counts


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
    ("chain rule", only(mean_grad("i", "q", own(k1) - others(k1))),
        {exists(mean_i("q", ONE, "self")), exists(mean_i("q", -ONE, "others"))}),
    ("stop-gradient", only(sum_t("q", past(sg(k1)))), set()),
    ("log-derivative", only(grad(sum_t("q", now(R)))), {exchange(sum_t("q", now(R))), ENDS_Q}),
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
    ("parts of a sum", only(sum_t("q", R + k1), of=["k1"], part=k1), {exists(sum_t("q", k1))}),
    ("change of measure", only(MOVED, to="q"), {Q_IN_MU, MU_IN_Q, ENDS_Q, ENDS_MU}),
    ("change of measure", only(MOVED, to="mu"), {ENDS_MU}),
    ("change of measure", only(mean_i("mu", own(rho)), to="q"), {Q_IN_MU, MU_IN_Q, BATCH, BATCH_MU}),
    ("change of measure", only(mean_i("mu", own(rho) * others(rho)), to="q"), {Q_IN_MU, BATCH, BATCH_MU}),
    ("change of measure", only(mean("it", "mu", now(A)), to="mu"), {ENDS_MU, BATCH_MU}),
    ("score mean zero", only(sum_t("q", PAST, "now"), slot="now"), {exchange(sum_t("q", PAST)), ENDS_Q}),
    ("score mean zero", only(sum_t("q", PAST, "now", "past"), slot="now"),
        {exchange(sum_t("q", PAST, "past")), ENDS_Q}),
    ("score mean zero", only(sum_t("q", beta, "now"), slot="now"), {exchange(sum_t("q", ONE)), ENDS_Q}),
    ("score mean zero", only(mean_i("q", others(R), "self"), slot="self"),
        {exchange(mean_i("q", others(R))), BATCH}),
    ("score mean zero", only(sum_t("q", PAST + now(R), "now"), slot="now", part=PAST),
        {exchange(sum_t("q", PAST)), ENDS_Q, exists(sum_t("q", PAST, "now"))}),
    ("score mean zero", only(sum_t("q", now(R) - 1, "now"), slot="now", part=-ONE),  # sum_t |s_t|
        {exchange(STEPS), ENDS_Q, exists(sum_t("q", -ONE, "now"))}),
    ("score mean zero", only(Em("q", R - 1, 1), slot="x", part=-ONE), {exchange(Em("q", ONE))}),
    ("ratio mean one", only(MOVED, of="q", slot="now"), {Q_IN_MU, ENDS_Q, ENDS_MU}),
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
    ("curl", only(curl("t", "q", now(k2))), {exchange(sum_t("q", now(k2))), ENDS_Q,
        exists(sum_t("q", now(k1), "now", "x'")), exists(sum_t("q", -now(k1), "now'", "x"))}),
    ("curl", only(curl("t", "mu", now(k2))), {exchange(sum_t("mu", now(k2))), ENDS_MU}),
    ("curl", only(curl("i", "mu", own(k1) * others(sg(w)))), {
        exchange(mean_i("mu", own(k1) * others(w))), BATCH_MU,
        exists(mean_i("mu", ONE, "others'", "self")), exists(mean_i("mu", -ONE, "others", "self'"))}),
    ("normalisation", only(mean_i("q", beta)), set()),
    ("linearity", only(sum_t("q", beta * now(k1)), constant=beta), {exists(sum_t("q", now(k1)))}),
    ("linearity", only(sum_t("q", now(k1)), constant=ONE * 2), set()),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "atom_data", "assumed"), ASSUMED)
def test_a_rule_records_what_it_assumes(rule, atom_data, assumed):
    atom, data = atom_data
    assert apply(rule, Side.atom(atom), data, PLAIN)[1] == assumed


# ---------------------------------------------------------------------------- chains of steps
AT_SLOTS = ["score mean zero", "ratio mean one", "parts of a sum", "exchange of sums", "change of measure"]
SUITED = {
    Mean: [*AT_SLOTS, *AT_SLOTS, "independence", "stop-gradient", "sum over t", "linearity", "normalisation"],
    Gradient: ["log-derivative"],
    MeanGradient: ["chain rule"],
    Curl: ["curl"],
}
START = st.one_of(atoms(), st.sampled_from([*CASES]).flatmap(likely).map(lambda case: case.atom))


# Premises that hold in every world and for every theta, so that their gradients agree too.
TRUE = (
    (Em("q", k1), Em("q", k3)), (Em("q", r), constant(1)), (Em("q", ONE, 1), Side()),
    (Em("p", -k1) * beta, Em("q", -k1 * r) * beta), (Em("mu", rho * R), Em("q", R)),
)  # fmt: skip
FACTS = Context(PLAIN.parameters, PLAIN.functions, TRUE)


@st.composite
def equations(draw: Any) -> dict[str, Any]:
    """A multiple of a premise, or of its gradient unless it holds a score function."""
    of = draw(st.integers(0, 5))
    times = draw(st.one_of(CONSTANTS.map(constant), atoms().map(Side.atom)))
    return step(EQUATION, of=of, times=times, gradient=draw(st.integers(0, int(of != 2))))


def test_a_chain_of_random_steps_preserves_the_value():
    counts: Counter[str] = Counter()

    @settings(CHECK, max_examples=120)
    @given(st.data())
    def run(data: Any) -> None:
        side = Side()
        for atom in data.draw(st.lists(START, min_size=1, max_size=2)):
            side = side + Side.of((data.draw(CONSTANTS), (atom,)))
        for _ in range(5):
            if not any(found for _, found in side.terms):
                return
            term = data.draw(st.sampled_from([i for i, (_, found) in enumerate(side.terms) if found]))
            atom = side.terms[term][1][0]
            rule = data.draw(st.sampled_from([EQUATION, *SUITED[type(atom)] * 2]))
            try:
                if rule == EQUATION:
                    after, _ = apply_step({"left": side}, data.draw(equations()), FACTS, {})
                else:
                    after, _ = apply(rule, side, data.draw(data_for(rule, atom)), PLAIN, term)
            except (Refused, NotInRing):
                continue
            for seed in range(2):
                world = kept_world(seed, *(((END, TWO), 3), (DEEP, 2))[seed])
                values = worth(side, world), worth(after, world)
                assert same(*values), f"{rule}: {side.to_json()} is {values[0]}, got {values[1]}"
            counts[rule] += 1
            side = after

    run()
    assert sum(counts.values()) >= 120 and len(counts) >= 9 and counts[EQUATION] >= 10, counts


@CHECK
@given(st.lists(st.tuples(CONSTANTS, st.lists(atoms(), max_size=2)), max_size=3))
def test_the_canonical_form_of_a_side_has_the_value_of_what_was_written(terms):
    world = kept_world(3, (END, TWO))
    side = Side.of(*((c, tuple(found)) for c, found in terms))
    written = sum(
        worth(Side.constant(c), world) * math.prod(worth(x, world) for x in found) for c, found in terms
    )
    assert same(written, worth(side, world))
    assert Side.from_json(side.to_json()) == side


# ---------------------------------------------------------------------------- premises
@st.composite
def true_premises(draw: Any) -> tuple[Side, Side]:
    """Two sides with the same value for every theta, as the author of a premise may see it."""
    index, m = draw(st.sampled_from(["", "t", "i", "it"])), draw(st.sampled_from(["q", "q", "p", "mu"]))
    bases = draw(st.sampled_from([("sg(k1)", "sg(w)")] * 2 + [("k1", "f", "R"), ("log_q", "g", "w")]))
    element, kept = draw(elements(in_slots(SLOTS[index], bases))), draw(st.booleans())
    value = element if kept else element.rename(lambda name: name.replace("sg(", "").replace(")", ""))
    left, right = mean(index, m, element), mean(index, m, value)
    zero = draw(st.sampled_from([Side(), Em("q", nu, 1), sum_t("q", past(R), "now")]))
    return left, right + (Side() if draw(st.booleans()) else zero)


def test_an_equation_that_holds_for_every_theta_preserves_the_value():
    counts: Counter[Any] = Counter()

    @settings(CHECK, max_examples=100)
    @given(true_premises(), atoms(), st.sampled_from([ONE, beta, n - 1]), st.booleans(), st.integers(0, 1))
    def run(premise: Any, atom: Atom, times: Any, product: bool, gradient: int) -> None:
        context = Context(PLAIN.parameters, PLAIN.functions, premises=(premise,))
        multiple = Side.constant(times).times(mean_i("mu", own(H)) if product else Side.constant(1))
        data = {"of": 0, "times": multiple.to_json(), "gradient": gradient}
        nowhere = {"side": "left", "term": None, "factor": None, "result": None}
        side, step = Side.atom(atom), {"rule": "equation", "data": data, **nowhere}
        worlds = [kept_world(seed, (END, TWO)) for seed in range(2)]
        try:
            after, assumed = apply_step({"left": side}, step, context, {})
        except Refused:
            counts[gradient, False] += 1
            return
        counts[gradient, True] += 1
        assert ("premise" if gradient else "equal", *premise) in assumed
        assert any(h[0] == "exists" for h in assumed) == product
        with contextlib.suppress(Unsupported):  # the gradient of a mean of scores
            assert all(same(worth(side, world), worth(after, world)) for world in worlds)

    run()
    assert min(counts[0, True], counts[1, True], counts[1, False]) >= 8, counts
