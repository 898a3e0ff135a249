"""Each rule at an index of a batch or a sequence, against enumeration (sequence_worlds.py).

Whatever a rule puts in place of an atom must have the value of that atom in every world: in trees of
sequences of random length, and in batches of 2 to 4 independent samples.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from drafts import ONE, ZERO, A, Em, R, grad, k1, k2, point, r, rho, sg, w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed_cases import CASES, FUNCTIONS, GIVEN, ON, PLAIN, TRUE, H, T, lone, of, only, swap
from indexed_strategies import CONSTANTS, MAKERS, Case, atoms, contexts, data_for, elements, in_slots, likely
from sequence_worlds import DEEP, END, THREE, TWO, WIDE, World, same
from slotted import (
    at_index,
    curl,
    future,
    gradient_of,
    mean_i,
    now,
    others,
    own,
    past,
    spread,
    sum_t,
    token_gradient_KL,
    token_KL,
)  # fmt: skip
from test_kernel_rules import CASES as ONE_SAMPLE

from klsym.errors import NotInRing, Refused
from klsym.kernel import RULES, apply_step
from klsym.kernel.replay import read_statement
from klsym.slots import SLOTS, at_slot
from klsym.statements import (
    Atom,
    Context,
    Curl,
    Gradient,
    Indexed,
    IndexedGradient,
    MeanVariance,
    Side,
    TokenDivergence,
)

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=60,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
SHAPES = {  # index -> tree and batch size of a few worlds
    "t": ((DEEP, 2), (WIDE, 2)),
    "i": ((THREE, 3), (TWO, 4), (DEEP, 2)),
    "ij": ((THREE, 2), (TWO, 3), (TWO, 4)),
    "it": ((DEEP, 2), ((TWO, END), 3), (WIDE, 2)),
}


def index_of(atom: Atom) -> str:
    match atom:
        case Indexed() | IndexedGradient():
            return atom.index
        case MeanVariance():
            return "i"
        case Gradient(Side(((_, (inner,)),))):
            return index_of(inner)
    return "t"


def assert_preserved(rule: str, atom: Atom, after: Side, context: Context, count: int = 2) -> None:
    for seed, (shape, n) in enumerate(SHAPES[index_of(atom)][:count]):
        world = World(seed, context, shape, n)
        values = world.atom(atom, world.theta), world.side(after)
        assert same(*values), f"{rule}: {atom} is {values[0]}, got {values[1]} from {after.to_json()}"


ROWS = [
    pytest.param(rule, *case, id=f"{rule}-{name}") for rule, cases in CASES.items() for name, *case in cases
]


@pytest.mark.parametrize(("rule", "atom_data", "context", "expected"), ROWS)
def test_named_case(rule, atom_data, context, expected):
    atom, data = atom_data
    if isinstance(expected, str):
        with pytest.raises((Refused, NotInRing)) as refusal:
            RULES[rule].apply(atom, data, context)
        assert re.search(expected, str(refusal.value))
        return
    result, _ = RULES[rule].apply(atom, data, context)
    assert result == expected
    assert_preserved(rule, atom, expected, context, 3)


def test_every_rule_has_cases_of_both_kinds():
    """Here or among those of single samples; whatever speaks of an index has three of each here."""
    assert set(CASES) | set(ONE_SAMPLE) == set(RULES) and set(CASES) == set(MAKERS)
    for rule, cases in CASES.items():
        refusals = sum(isinstance(case[-1], str) for case in cases)
        assert refusals >= 3 and len(cases) - refusals >= 3, rule


# ---------------------------------------------------------------------------- random atoms
@pytest.mark.parametrize("rule", CASES)
def test_what_replaces_an_atom_at_an_index_has_its_value(rule):
    counts: Counter[bool] = Counter()

    @CHECK
    @given(contexts(), likely(rule))
    def run(context: Context, case: Case) -> None:
        try:
            result, _ = RULES[rule].apply(case.atom, case.data, context)
        except (Refused, NotInRing):
            counts[False] += 1
            return
        counts[True] += 1
        assert_preserved(rule, case.atom, result, context)

    run()
    assert min(counts[True], counts[False]) >= 10, counts


# ---------------------------------------------------------------------------- hypotheses
def moment(side: Side) -> tuple[str, Atom]:
    return "moment", lone(side)


ENDS_Q, ENDS_MU, EXCHANGE, BATCH = ("ends", "q"), ("ends", "mu"), ("exchange", "q"), ("batch", "q")
Q_IN_MU, MU_IN_Q = ("support", "q", "mu"), ("support", "mu", "q")
PAST, MOVED = past(R), sum_t("mu", now(rho))
# rule, atom and data, what is assumed
ASSUMED = [
    ("chain rule", only(gradient_of("t", "q", now(k2))), set()),
    ("stop-gradient", only(sum_t("q", past(sg(k1)))), set()),
    ("log-derivative", only(grad(sum_t("q", now(k1)))), {EXCHANGE, ENDS_Q}),
    ("log-derivative", only(grad(at_index("it", "mu", others(w)))), {("exchange", "mu"), ENDS_MU}),
    ("log-derivative", only(grad(mean_i("q", own(k1)))),
        {EXCHANGE, moment(mean_i("q", own(k1), "self")), moment(mean_i("q", own(k1), "others"))}),
    ("chain rule", only(gradient_of("t", "q", past(k1) * now(k1))),
        {moment(sum_t("q", past(k1), "now")), moment(sum_t("q", now(k1), "past"))}),
    ("chain rule", only(gradient_of("t", "sample", past(k1) * now(k1))), set()),
    ("parts of a sum", of(sum_t("q", R, "x"), "s"),
        {moment(sum_t("q", R, z)) for z in ("past", "now", "future")}),
    ("change of measure", only(MOVED, to="q"), {Q_IN_MU, MU_IN_Q, ENDS_Q, ENDS_MU}),
    ("change of measure", only(MOVED, to="mu"), {ENDS_MU}),
    ("change of measure", only(mean_i("mu", own(rho)), to="q"), {Q_IN_MU, MU_IN_Q}),
    ("score mean zero", only(sum_t("q", PAST, "now"), slot="now"), {EXCHANGE, ENDS_Q}),
    ("score mean zero", only(mean_i("q", others(R), "self"), slot="self"), {EXCHANGE}),
    ("score mean zero", only(sum_t("q", PAST + now(R), "now"), slot="now", part=PAST),
        {EXCHANGE, ENDS_Q, moment(sum_t("q", PAST, "now"))}),
    ("score mean zero", only(sum_t("q", now(R) - 1, "now"), slot="now", part=-ONE),  # sum_t |s_t|
        {EXCHANGE, ENDS_Q, moment(sum_t("q", -ONE, "now"))}),
    ("score mean zero", only(mean_i("q", own(R) - 1, "self"), slot="self", part=-ONE), {EXCHANGE}),
    ("ratio mean one", only(MOVED, of="q", slot="now"), {Q_IN_MU, ENDS_Q, ENDS_MU}),
    ("ratio mean one", only(mean_i("q", others(r)), of="p", slot="others"), {("support", "p", "q")}),
    ("sum over t", only(Em("q", R + k1), of="R", part=R), {moment(Em("q", R))}),
    ("sum over t", only(point(R), of="R"), set()),
    ("parts of a sum", of(sum_t("q", T), "length"), set()),
    ("parts of a sum", only(sum_t("q", R + k1), of=["k1"], part=k1), {moment(sum_t("q", k1))}),
    ("exchange of sums", swap(sum_t("q", future(R), "now"), "s", "R"), set()),
    ("exchange of sums", swap(sum_t("q", future(R) + 1, "now"), "s", "R", part=future(R)),
        {moment(sum_t("q", future(R), "now"))}),
    ("exchange of sums", swap(sum_t("sample", future(R) + 1, "now"), "s", "R", part=future(R)), set()),
    ("tower", only(token_KL("q", "q", "p")), {("support", "q", "p"), ENDS_Q}),
    ("tower", only(token_KL("mu", "q", "p")), {("support", "q", "p"), Q_IN_MU, MU_IN_Q, ENDS_MU}),
    ("tower", only(token_gradient_KL("q", "q", "p")), {("support", "q", "p"), ENDS_Q, EXCHANGE}),
    ("independence", only(mean_i("q", own(k1))), {BATCH}),
    ("independence", only(mean_i("q", own(k1) * others(R))),
        {BATCH, moment(Em("q", k1)), moment(Em("q", R))}),
    ("independence", only(mean_i("q", others(k1), "self")), {BATCH, moment(Em("q", k1))}),
    ("independence", only(at_index("it", "q", others(R))),  # its steps are counted: E_q[T]
        {BATCH, moment(Em("q", R)), moment(sum_t("q", ONE))}),
    ("variance of a mean", only(spread("q", own(R), "self")),
        {BATCH, ("nonzero", "n"), moment(mean_i("q", own(R * R), "self", "self"))}),
    ("curl", only(curl("q", now(k2))), {EXCHANGE, ENDS_Q}),
    ("curl", only(curl("mu", now(k2))), {("exchange", "mu"), ENDS_MU}),
    ("on-policy", only(sum_t("mu", now(rho))), {("on-policy",)}),
    ("given", only(sum_t("q", now(H))), {("given",)}),
    ("premise", only(token_KL("q", "q", "p"), number=0), {("premise", 0)}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "atom_data", "assumed"), ASSUMED)
def test_a_rule_records_what_it_assumes(rule, atom_data, assumed):
    atom, data = atom_data
    context = {"on-policy": ON, "given": GIVEN, "premise": TRUE}.get(rule, PLAIN)
    assert RULES[rule].apply(atom, data, context)[1] == assumed


def test_a_curl_on_policy_says_so():
    assumed = RULES["curl"].apply(lone(curl("mu", now(rho * k1))), {}, ON)[1]
    assert assumed == {EXCHANGE, ENDS_Q, ("on-policy",)}


# ---------------------------------------------------------------------------- the oracle
def test_the_oracle_knows_sequences():
    world = World(0)
    assert sorted(len(path) for path in world.paths) == [1, 2, 3, 3]
    assert same(world.side(sum_t("q", ONE)), world.side(Em("q", T)))
    assert same(world.mass("q", world.theta).sum(), 1)
    mean_length = grad(Em("q", T))
    for score in ("past", "x"):  # not 0: how many steps follow a token depends on it
        assert not same(world.side(sum_t("q", ONE, score)), 0)
    assert same(world.side(sum_t("q", ONE, "past")), world.side(mean_length))
    up, down = (world.at(world.theta + e * 1e-5 * world.u).side(Em("q", T)) for e in (1, -1))
    assert abs((up - down) / 2e-5 - world.side(mean_length)) < 1e-8


def test_the_oracle_knows_batches():
    world = World(1, shape=THREE, n=3)
    each = world.side(Em("q", k1))
    assert same(world.side(mean_i("q", own(k1))), each)
    assert same(world.side(mean_i("q", others(k1))), 2 * each)
    plain = world.side(Em("q", k1 * k1)) - each**2
    assert same(world.side(spread("q", own(k1))), plain / 3)
    assert same(world.side(mean_i("q", own(k1) * others(A))), each * world.side(mean_i("q", others(A))))
    assert not same(world.side(mean_i("q", others(A))), 2 * world.side(Em("q", A)))


def test_the_oracle_knows_curls():
    """Of k2 of a sequence and of k2 of its tokens; sg is constant inside a gradient and moves outside."""
    world = World(2)
    assert abs(world.side(curl("q", k2))) < 1e-10 < 1e-4 < abs(world.side(curl("q", now(k2))))
    live, held = (world.side(curl("p", past(of) * now(k1))) for of in (w, sg(w)))
    assert abs(live) < 1e-10 < 1e-4 < abs(held)


# ---------------------------------------------------------------------------- chains of steps
AT_SLOTS = ["score mean zero", "ratio mean one", "parts of a sum", "exchange of sums", "change of measure"]
SUITED = {
    Indexed: [*AT_SLOTS, *AT_SLOTS, "independence", "stop-gradient", "on-policy", "given"],
    Gradient: ["linearity", "log-derivative", "premise", "tower"],
    IndexedGradient: ["chain rule"],
    TokenDivergence: ["tower", "premise"],
    MeanVariance: ["variance of a mean"],
    Curl: ["curl"],
}


SUMS = [
    "parts of a sum",
    "exchange of sums",
    "score mean zero",
    "ratio mean one",
    "independence",
    "sum over t",
]
START = st.one_of(atoms(), st.sampled_from(SUMS).flatmap(likely).map(lambda case: case.atom))


def test_a_chain_of_random_steps_at_an_index_preserves_the_value():
    counts: Counter[str] = Counter()

    @CHECK
    @given(st.data())
    def run(data: Any) -> None:
        context, side = data.draw(contexts()), Side()
        for atom in data.draw(st.lists(START, min_size=1, max_size=2)):
            side = side + Side.of((data.draw(CONSTANTS), (atom,)))
        for _ in range(5):
            places = [(i, j) for i, (_, found) in enumerate(side.terms) for j in range(len(found))]
            if not places:
                return
            term, factor = data.draw(st.sampled_from(places))
            atom = side.terms[term][1][factor]
            rule = data.draw(st.sampled_from(SUITED.get(type(atom), sorted(CASES))))
            step = {"rule": rule, "side": "left", "term": term, "factor": factor}
            step["data"] = data.draw(data_for(rule, atom))
            try:
                after, _ = apply_step({"left": side}, step, context)
            except (Refused, NotInRing):
                continue
            for seed in range(2):
                world = World(seed, context, *(((END, TWO), 3), (DEEP, 2))[seed])
                values = world.side(side), world.side(after)
                assert same(*values), f"{rule}: {side.to_json()} is {values[0]}, got {values[1]}"
            counts[rule] += 1
            side = after

    run()
    assert sum(counts.values()) >= 60 and len(counts) >= 6, counts


@CHECK
@given(st.lists(st.tuples(CONSTANTS, st.lists(atoms(), max_size=2)), max_size=3))
def test_the_canonical_form_of_a_side_at_an_index_has_the_value_of_what_was_written(terms):
    world = World(3, PLAIN, (END, TWO))
    side = Side.of(*((c, tuple(found)) for c, found in terms))
    written = sum(
        world.value(c, world.theta, "x")[0] * np.prod([world.atom(x, world.theta) for x in found])
        for c, found in terms
    )
    assert same(written, world.side(side))
    assert Side.from_json(side.to_json()) == side


# ---------------------------------------------------------------------------- premises
@st.composite
def true_premises(draw: Any, on_policy: bool) -> tuple[Side, Side]:
    """Two sides with the same value for every theta, as the author of a premise may see it."""
    index, m = draw(st.sampled_from(["t", "i", "it"])), draw(st.sampled_from(["q", "q", "p", "mu"]))
    bases = draw(st.sampled_from([("k1", "w", "log_q", "sg(k1)"), ("k1", "f", "R"), ("k1", "g", "w")]))
    element, kept = draw(elements(in_slots(SLOTS[index], bases))), draw(st.booleans())
    value = element if kept else element.rename(lambda name: name.replace("sg(", "").replace(")", ""))
    if not on_policy or kept:
        return at_index(index, m, element), at_index(index, m, value)
    value = value.substitute({at_slot("w", slot): ZERO for slot in SLOTS[index]})
    return at_index(index, m, element), at_index(index, "q" if m == "mu" else m, value)


def test_the_premises_at_an_index_that_are_read_hold_for_gradients_too():
    counts: Counter[bool] = Counter()

    @CHECK
    @given(st.data())
    def run(data: Any) -> None:
        on_policy = data.draw(st.booleans())
        left, right = data.draw(true_premises(on_policy))
        context = Context(("beta", "nu", "n"), FUNCTIONS, on_policy, premises=((left, right),))
        worlds = [World(seed, context, (END, TWO)) for seed in range(2)]
        assert all(same(world.side(left), world.side(right)) for world in worlds)
        part = {"context": context.to_json(), "relation": "=", "left": [], "right": []}
        try:
            read_statement(part)
        except Refused:
            counts[False] += 1
            return
        counts[True] += 1
        assert all(same(world.side(grad(left)), world.side(grad(right))) for world in worlds)

    run()
    assert min(counts[True], counts[False]) >= 10, counts
