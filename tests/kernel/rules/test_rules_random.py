"""Each rule on random atoms, and chains of random steps, against enumeration (oracle.statements).

Whatever a rule puts in place of an atom must have the value of that atom in every world: in trees of
sequences of random length, and in batches of 2 to 4 independent samples; and, where densities are 0, in every
world that satisfies the supports that the rule records.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klsym.errors import NotInRing, Refused
from klsym.kernel import EQUATION, RULES, apply_step
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import Atom, Context, Curl, Gradient, Mean, MeanGradient, Side
from support.certificates.applying import CHECK, apply, assert_preserved, index_of
from support.certificates.faulty_certificates import *
from support.certificates.indexed_cases import CASES, PLAIN
from support.certificates.indexed_strategies import (
    CONSTANTS,
    Case,
    atoms,
    data_for,
    elements,
    in_slots,
    likely,
)
from support.certificates.kernel_words import step
from support.certificates.slot_helpers import mean_i, n, own, past, sum_t
from support.oracle.definitions import signs
from support.oracle.numbers import Undefined, Unsupported, as_float
from support.oracle.statements import Oracle
from support.oracle.values import same, worth
from support.oracle.worlds import DEEP, END, THREE, TWO, kept_world
from support.scale import scaled

# ---------------------------------------------------------------------------- random atoms
INDICES = {  # where a rule applies
    "sum over t": {""}, "parts of a sum": {"t", "it"}, "exchange of sums": {"t", "it"},
    "independence": {"i", "ij", "it"}, "normalisation": {"", "i", "ij"},
}  # fmt: skip


@pytest.mark.parametrize("rule", CASES)
def test_what_replaces_an_atom_has_its_value(rule):
    counts: Counter[str] = Counter()
    seen: set[str] = set()

    @settings(CHECK, max_examples=scaled(200, 80))
    @given(likely(rule))
    def run(case: Case) -> None:
        try:
            result, _ = apply(rule, Side.from_atom(case.atom), case.data, PLAIN)
        except (Refused, NotInRing):
            return
        counts[rule] += 1
        seen.add(index_of(case.atom))
        assert_preserved(rule, case.atom, result, PLAIN)

    run()
    assert counts[rule] >= scaled(20, 8), counts
    where = INDICES.get(rule, set(SLOTS))
    assert seen <= where and len(seen) >= scaled(len(where), 1), seen


# ---------------------------------------------------------------------------- where densities are 0
MEANS = [rule for rule in CASES if RULES[rule].on is Mean]
NARROW = {"change of measure", "ratio mean one", "region", "definition"}  # these alone speak of supports
SMALL = (DEEP, (TWO, END), (THREE, TWO, END), TWO)


def values_with_gaps(atom: Atom, after: Side, assumed: Any) -> list[tuple[Any, Any]]:
    """Before and after, in worlds with zeros that satisfy the supports assumed, where both have values."""
    found = []
    for seed in range(16):
        world = kept_world(seed, SMALL[seed % 4], 2 + seed % 2 * (index_of(atom) in ("i", "ij")), gaps=0.3)
        if all(world.supports(*h[1:]) for h in assumed if h[0] == "support"):
            with contextlib.suppress(Undefined):
                values, oracle = (worth(atom, world), worth(after, world)), Oracle(world, as_float)
                if not any(0 in signs(oracle, *h[1:]) for h in assumed if h[0] == "away"):
                    found.append(values)
    return found


@pytest.mark.parametrize("rule", MEANS)
def test_the_supports_that_a_rule_records_suffice(rule):
    counts: Counter[str] = Counter()

    @CHECK
    @given(likely(rule))
    def run(case: Case) -> None:
        try:
            result, assumed = apply(rule, Side.from_atom(case.atom), case.data, PLAIN)
        except (Refused, NotInRing):
            return
        supports = [h for h in assumed if h[0] == "support"]
        assert not supports or rule in NARROW
        for before, after in values_with_gaps(case.atom, result, assumed):
            assert same(before, after), f"{rule}: {case} is {before}, got {after} from {result.to_json()}"
            counts["compared"] += 1
        if supports:
            pairs = values_with_gaps(case.atom, result, [h for h in assumed if h[0] == "away"])
            counts["needed"] += any(not same(*pair) for pair in pairs)

    run()
    assert counts["compared"] >= 40, counts
    assert (counts["needed"] >= 3) == (rule in NARROW), counts


# ---------------------------------------------------------------------------- chains of steps
AT_SLOTS = ["score mean zero", "ratio mean one", "parts of a sum", "exchange of sums", "change of measure"]
SUITED = {
    Mean: [*AT_SLOTS, *AT_SLOTS, "independence", "stop-gradient", "sum over t", "linearity", "normalisation"],
    Gradient: ["log-derivative", "product rule"],
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
    times = draw(st.one_of(CONSTANTS.map(constant), atoms().map(Side.from_atom)))
    return step(EQUATION, of=of, times=times, gradient=draw(st.integers(0, int(of != 2))))


def test_a_chain_of_random_steps_preserves_the_value():
    counts: Counter[str] = Counter()

    @settings(CHECK, max_examples=scaled(120, 30))
    @given(st.data())
    def run(data: Any) -> None:
        side = Side()
        for atom in data.draw(st.lists(START, min_size=1, max_size=2)):
            side = side + Side.combine((data.draw(CONSTANTS), (atom,)))
        worlds = [kept_world(seed, *shape) for seed, shape in enumerate([((END, TWO), 3), (DEEP, 2)])]
        before = [worth(side, world) for world in worlds]
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
            values = [worth(after, world) for world in worlds]
            assert all(map(same, before, values)), f"{rule}: {side.to_json()} is {before}, got {values}"
            counts[rule] += 1
            side, before = after, values

    run()
    assert sum(counts.values()) >= scaled(120, 30) and len(counts) >= scaled(9, 7), counts
    assert counts[EQUATION] >= scaled(10, 2), counts


@CHECK
@given(st.lists(st.tuples(CONSTANTS, st.lists(atoms(), max_size=2)), max_size=3))
def test_the_canonical_form_of_a_side_has_the_value_of_what_was_written(terms):
    world = kept_world(3, (END, TWO))
    side = Side.combine(*((c, tuple(found)) for c, found in terms))
    written = sum(
        worth(Side.from_constant(c), world) * math.prod(worth(x, world) for x in found) for c, found in terms
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

    @settings(CHECK, max_examples=scaled(100, 60))
    @given(true_premises(), atoms(), st.sampled_from([ONE, beta, n - 1]), st.booleans(), st.integers(0, 1))
    def run(premise: Any, atom: Atom, times: Any, product: bool, gradient: int) -> None:
        context = Context(PLAIN.parameters, PLAIN.functions, premises=(premise,))
        multiple = Side.from_constant(times).multiply(
            mean_i("mu", own(H)) if product else Side.from_constant(1)
        )
        data = {"of": 0, "times": multiple.to_json(), "gradient": gradient}
        nowhere = {"side": "left", "term": None, "factor": None, "result": None}
        side, step = Side.from_atom(atom), {"rule": "equation", "data": data, **nowhere}
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
    assert min(counts[0, True], counts[1, True], counts[1, False]) >= scaled(5, 2), counts
