"""Regions and inverses: certificates and what they assume, contexts, slots, what moves, and the budget."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from klsym.errors import NotInRing, Refused
from klsym.kernel import certify, check, read, show
from klsym.kernel.definitions import Definition
from klsym.kernel.derivatives import is_live, list_moving_names
from klsym.kernel.regions import list_moving_regions, reduce_powers
from klsym.kernel.replay import BUDGET
from klsym.kernel.ring import ONE, ZERO, ExpPoly, set_budget
from klsym.kernel.slots import SLOTS
from klsym.kernel.statements import Context, Mean, Side
from support.certificates.faulty_certificates import *
from support.certificates.region_certificates import *
from support.certificates.region_words import KNOWN, log, region, win
from support.certificates.slot_helpers import lone, mean_i, now, others, own, past, sum_t
from support.faulty.definitions import PAIRS as OF_SAMPLES
from support.faulty.expectations import PAIRS as OF_EXPECTATIONS


def lipschitz(of: Side) -> tuple[Any, ...]:
    return "lipschitz", lone(of)


def exchange(of: Side) -> tuple[Any, ...]:
    return "exchange", lone(of)


def exists(of: Side) -> tuple[Any, ...]:
    return "exists", lone(of)


def support(*pairs: str) -> set[tuple[str, ...]]:
    """ "q mu" is q << mu."""
    return {("support", *pair.split()) for pair in pairs}


def off(measure: str, *bounds: ExpPoly) -> set[tuple[Any, ...]]:
    return {("off", measure, e) for e in bounds}


def away(measure: str, *bounds: ExpPoly) -> set[tuple[Any, ...]]:
    return {("away", measure, e) for e in bounds}


def above(measure: str, *inside: ExpPoly) -> set[tuple[Any, ...]]:
    return {("above", measure, e) for e in inside}


def apart(measure: str, *bounds: ExpPoly) -> set[tuple[Any, ...]]:
    return {("apart", measure, e) for e in bounds}


CLIPS, OVER_TEN = (rho - 1 - nu, 1 - nu - rho), k3 - 10
KEPT_PREFIX = -now(R) * (1 - over) * (-V("w[future]")).exp()
CAPPED_PREFIX = -now(R) * beta * over * (-V("w[future]") - V("w[now]") - V("w[past]")).exp()
CURLED = now((1 - r) * (1 - out))
LOSS = k3 - out * OVER_TEN
KL_TERMS = {exchange(Em("q", k1)), exists(Em("q", k1, 1))}

WHOLE: dict[str, set[Any]] = {
    "ppo": support("q mu"),
    "ppo objective": {lipschitz(Em("mu", CLIPPED))} | off("mu", *CLIPS),
    "ppo token": set(),
    "ppo token objective": {lipschitz(sum_t("mu", TOKEN)), ("ends", "mu")} | off("mu", *map(now, CLIPS)),
    "ppo on policy": {("fact", nu)},
    "as typed": {("fact", nu)},
    "gspo": set(),
    "gspo objective": {lipschitz(Em("mu", clipped(MEAN_RATIO))), ("ends", "mu")}
        | off("mu", MEAN_RATIO - 1 - nu, 1 - nu - MEAN_RATIO),
    "not kl": {lipschitz(Em("mu", CLIPPED))} | off("mu", *CLIPS) | KL_TERMS,
    "cispo": support("q mu", "mu q"),
    "tis": support("q mu"),
    "tis objective": {exchange(Em("mu", -STALE * o.exp() * A))},
    "icepop": support("q mu") | {("fact", lam - a)},
    "mask objective": {lipschitz(Em("mu", MASKED))} | apart("mu", a - rho, rho - lam),
    "prefix ratio": support("q mu", "mu q") | {("ends", "q"), ("ends", "mu")}
        | {exists(sum_t("q", KEPT_PREFIX + CAPPED_PREFIX, "now"))},
    "causal": {exchange(sum_t("q", over)), ("ends", "q"), exists(sum_t("q", over, "future"))},
    "mask of tokens": support("mu q", "mu p") | {("fact", 1 - M)},
    "clamped k3": set(),
    "clamped k3 bias": {exchange(Em("q", ONE))},
    "clamped k3 no ties": support("q p") | away("q", OVER_TEN),
    "clamped k3 objective": {lipschitz(Em("q", LOSS)), exists(Em("q", LOSS, 1))} | off("q", OVER_TEN),
    "token field": {lipschitz(sum_t("q", CURLED, "now")), ("ends", "q")} | apart("q", now(k3 - TENTH))
        | {exists(sum_t("q", CURLED, "now", "x'")), exists(sum_t("q", -CURLED, "now'", "x"))},
    "never chosen": support("q p"),
    "absolute": set(),
    "absolute objective": {lipschitz(Em("mu", k1 * (up - down)))} | off("mu", k1, -k1),
    "never negative": support("p q"),
    "batch of regions": {("batch", "q"), exists(Em("q", R)), exists(Em("q", out, 1))},
    "sigmoid": support("mu q", "mu p"),
    "sigmoid is not kl": KL_TERMS,
    "kept token mean": set(),
    "kept token mean of one": above("mu", M),
    "divided by a region": support("q p") | above("q", pos),
}  # fmt: skip


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_true_certificate_assumes_this_and_nothing_else(name):
    """Replayed from its text; each hypothesis, definition and fact is printed."""
    [theorem] = check(read(json.dumps(CERTIFICATES[name]().certificate())))
    assert set(theorem.hypotheses) == WHOLE[name]
    context, shown = theorem.statement.context, show(theorem, full=True)
    assert context.definitions and shown.count("\n  if ") == len(WHOLE[name])
    assert shown.count("\n  where ") == len(context.definitions)
    assert shown.count("\n  given that ") == len(context.facts)


def test_there_is_no_certificate_without_its_hypotheses():
    assert set(WHOLE) == set(CERTIFICATES) and len(WHOLE) >= 27


PAIRS = [*OF_SAMPLES, *OF_EXPECTATIONS]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.rule}-{pair.mistake}")
def test_beside_each_false_certificate_there_is_a_true_one(pair):
    """What is refused differs from what is accepted: the mistake alone is refused (test_kernel_refusals)."""
    right, wrong = pair.right().certificate(), pair.wrong()
    check(right)
    assert (wrong.certificate() if isinstance(wrong, Draft) else wrong)["digest"] != right["digest"]


def test_there_are_many_pairs():
    assert len(PAIRS) >= 140 and len({(pair.rule, pair.mistake) for pair in PAIRS}) == len(PAIRS)


# ---------------------------------------------------------------------------- contexts
ALL = Context(("beta", "nu", "n"), (("f", ("k1",)),), **KNOWN)


@pytest.mark.parametrize(
    "context", [ALL, *(CERTIFICATES[name]().context for name in CERTIFICATES)], ids=["all", *CERTIFICATES]
)
def test_a_context_is_read_as_it_was_written(context):
    data = json.loads(json.dumps(context.to_json()))
    assert Context.from_json(data) == context and Context.from_json(data).to_json() == data


def test_a_context_without_definitions_is_written_as_it_always_was():
    """Certificates that were made before there were definitions keep their digests."""
    assert set(Context(("beta",)).to_json()) == {"parameters", "functions", "premises"}
    written = Context(("nu",), (), (), (region("up", k1),), (nu,), (("nu", Fraction(1, 2)),)).to_json()
    assert written["definitions"] == [["up", "region", [["1", {"k1": 1}]]]]
    assert written["facts"] == [[["1", {"nu": 1}]]] and written["witness"] == {"nu": "1/2"}


def test_what_a_name_stands_for():
    """In its slot; a detached copy has the same value, and a nested name is moved along."""
    at = {"up": k1, "sg(up)": k1, "up[now]": now(k1), "sg(up[self])": own(k1), "flip[now]": 2 * now(up) - 1}
    assert {name: ALL.find_definition(name) for name in at} == at
    assert ALL.find_definition("high[now]") == now(rho) - 1 - nu  # parameters have no slot
    assert [ALL.find_definition(name) for name in ("k1", "beta", "f", "R[now]")] == [None] * 4
    assert ALL.find_definition("up", "region") == k1 and ALL.find_definition("up", "log") is None
    assert (
        ALL.find_definition("inv", "log") == ALL.find_definition("inv")
        and ALL.find_definition("inv", "region") is None
    )
    assert Context(("up",)).find_definition("up") is None


SPOKEN = [
    ("up", {"x"}), ("up[now]", {"now"}), ("sg(up[self])", {"self"}), ("flip[other]", {"other"}),
    ("over", {"past", "now"}), ("win", {"self", "others"}), ("small", set()), ("sg(small)", set()),
    ("nu", set()), ("k1[past]", {"past"}), ("quot", {"x"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "slots"), SPOKEN)
def test_the_slots_of_a_name(name, slots):
    assert ALL.find_slots(name) == slots and ALL.is_sample(name) == bool(slots)
    assert ALL.collect_slots(V(name) * (V(name) * nu).exp() + nu) == slots
    assert ALL.is_constant(V(name) + nu) == (not slots)


READABLE = [
    ("", ["up", "sg(up)", "small", "inv", "flip"]),
    ("t", ["up", "up[now]", "sg(inv[now])", "over", "sg(over)", "small"]),
    ("i", ["up[self]", "win", "flip[self]"]),
    ("ij", ["up[self]", "up[other]", "sg(flip[other])"]),
    ("it", ["up", "up[now]", "over"]),
]
NAMES_AT = ("", "[now]", "[past]", "[future]", "[self]", "[other]", "[others]", "[rest]")


@pytest.mark.parametrize(("index", "names"), READABLE)
def test_where_a_name_may_stand(index, names):
    """A name that speaks of x at each single position, one that names slots bare, and nowhere else."""
    for base in ("up", "over", "win", "small", "flip", "inv"):
        for slot in NAMES_AT:
            name, slots = base + slot, SLOTS[index]
            single = slot[1:-1] in ("now", "self", "other")
            fine = not slot or (single and base in ("up", "flip", "inv"))
            fine = bool(fine and ALL.find_slots(name) <= set(slots))
            try:
                ALL.check(V(name), slots)
                assert fine, name
            except (Refused, NotInRing):
                assert not fine, name
    for name in names:
        ALL.check(V(name), SLOTS[index])


def test_a_witness_is_written_in_the_order_of_its_names():
    one = Context((), (), (), (), (R + A + M,), (("A", 0), ("M", 1), ("R", 2)))
    data = one.to_json()
    for names in (("R", "A", "M"), ("M", "R", "A")):
        assert Context.from_json({**data, "witness": {n: data["witness"][n] for n in names}}) == one


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"definitions": (region("up", k1 * beta.invert()),)}, {("nonzero", "beta")}),
        ({"definitions": (log("inv", R + beta.invert()),)}, {("nonzero", "beta")}),
        ({"facts": (R * beta.invert(),), "witness": (("R", 0), ("beta", 1))}, {("nonzero", "beta")}),
        ({"definitions": (region("up", T - 3),)}, {("ends", "q")}),
        ({"facts": (T - 3,), "witness": (("length", 3),)}, {("ends", "q")}),
        ({"definitions": (region("up", R - beta),)}, set()),
        (
            {"definitions": (Definition("m", "E_mu", T),)},
            {("ends", "q"), ("ends", "mu"), ("exists", Mean("", "mu", T))},
        ),
    ],
)
def test_what_definitions_and_facts_divide_by_and_speak_of(context, expected):
    """Also where no step uses them; a sequence of which the length is told must end."""
    draft = Draft(Em("q", beta), constant(beta), parameters=("beta",), **context).step("normalisation")
    _, theorem = certify(draft.part, {})
    assert set(theorem.hypotheses) == expected


# ---------------------------------------------------------------------------- what moves
MOVING = Context(
    ("nu",), (("f", ("k1",)), ("z", ())), (),
    (region("up", k1), region("pos", A), region("fixed", k1 - w), region("also", (k1 - w).exp() * R - nu),
     region("flip", V("up") - HALF), region("still", V("pos") - HALF), log("inv", k1), log("one", A),
     region("pole", V("inv")), region("step", now(k1) + past(R)), region("prefix", past(k1) - past(w)),
     region("made", f), log("deep", V("flip") + 1), region("other_policy", V("o") - k1)),
)  # fmt: skip
MOVE = {
    "up": {"up"}, "sg(up)": set(), "pos": set(), "fixed": set(), "also": set(), "flip": {"flip", "up"},
    "still": set(), "inv": {"inv"}, "sg(inv)": set(), "one": set(), "pole": {"pole", "inv"},
    "step": {"step"}, "sg(flip)": set(), "sg(pole)": set(), "sg(deep)": set(), "prefix": set(),
    "made": {"made"}, "deep": {"deep", "flip", "up"},
    "other_policy": set(), "up[now]": {"up[now]"}, "flip[self]": {"flip[self]", "up[self]"}, "k1": set(),
}  # fmt: skip
LOGS = {"inv", "one", "deep"}


@pytest.mark.parametrize("name", MOVE)
def test_what_theta_moves(name):
    """Where e is a combination of log ratios that does not depend on q, nothing moves."""
    found = MOVE[name]
    assert list_moving_names(V(name) * R + (V(name) * 2).exp(), MOVING) == found
    assert list_moving_regions(V(name), MOVING) == {n for n in found if n.partition("[")[0] not in LOGS}
    assert is_live(V(name), MOVING) == (bool(found) or name == "k1")


def test_a_quotient_within_a_region_is_not_differentiated():
    """A loss holds regions constant: of inverses, those alone count that are reached through inverses."""
    assert list_moving_names(V("pole"), MOVING, "log") == set()
    assert list_moving_names(V("deep") + V("inv"), MOVING, "log") == {"deep", "inv"}


def test_powers_of_regions():
    """Each region, detached or in a slot, to the power 1; inverses, variables and exponents stay."""
    element = V("up") ** 3 * k1**2 + V("sg(up)") ** 2 * now(V("up")) ** 4 + inv**2 + (V("up") * k1).exp() ** 2
    expected = V("up") * k1**2 + V("sg(up)") * now(V("up")) + inv**2 + (V("up") * k1).exp() ** 2
    assert reduce_powers(element, MOVING) == expected
    assert reduce_powers(V("up") ** 2 - V("up"), MOVING) == ZERO
    assert reduce_powers(V("small") ** 2, ALL) == V("small")  # of parameters alone


# ---------------------------------------------------------------------------- in a batch
def test_a_region_of_a_batch_stays_in_its_index():
    """What names a sample and the others is refused by independence; what names steps of one is not."""
    context = {"parameters": ("beta", "nu", "n"), **KNOWN}
    draft = Draft(mean("it", "q", over * others(R), "now"), NOTHING, **context).step("independence")
    assert draft.sides["left"] == sum_t("q", over, "now").multiply(Em("q", R)) * (V("n") - 1)
    with pytest.raises(Refused, match="names slots of a batch"):
        Draft(mean_i("q", win), NOTHING, **context).step("independence")
    draft = Draft(mean("ij", "q", own(up) * V("pos[other]")), NOTHING, **context).step("independence")
    assert draft.sides["left"] == Em("q", up).multiply(Em("q", pos))


MIXED = (region("mine", own(k1)), region("mixed", R - others(R)), region("whole", past(R) + now(R) + R))


@pytest.mark.parametrize(
    ("index", "name", "fine"),
    [("i", "mine", False), ("it", "mixed", False), ("it", "whole", True), ("ij", "mine", False)],
)
def test_a_bare_name_belongs_to_the_sample_whose_steps_it_names(index, name, fine):
    """Its slots would not be those of a mean over one sample."""
    draft = Draft(mean(index, "q", V(name)), NOTHING, parameters=("n",), definitions=MIXED)
    if fine:
        assert draft.step("independence").sides["left"] == sum_t("q", V(name))
        return
    with pytest.raises(Refused, match="names slots of a batch"):
        draft.step("independence")


def test_a_region_of_two_samples_has_the_scores_of_both():
    context = {"parameters": ("beta", "nu", "n"), **KNOWN}
    for slot in ("self", "others"):
        with pytest.raises(Refused, match=f"may depend on the slot {slot}"):
            Draft(mean_i("q", win, slot), NOTHING, **context).step("score mean zero", slot=slot)
    Draft(mean_i("q", own(up), "others"), NOTHING, **context).step("score mean zero", slot="others")


# ---------------------------------------------------------------------------- budget
def test_looking_a_name_up_costs_its_terms():
    e = sum(((R * (i + 1)).exp() for i in range(100)), R)
    context = Context((), (), (), (region("up", e),))
    price = e.measure_work()[0]
    with set_budget(2 * price), pytest.raises(Refused, match="the budget of work"):
        assert context.find_definition("up") == context.find_definition("sg(up)") == e
        context.find_definition("k1")  # is free
        context.find_definition("up")


def nest(depth: int, second: Any = log) -> dict[str, Any]:
    """Two names at each level, each of which speaks of both below: as many paths as 2^depth."""
    rows = [region("a0", k1), region("b0", A)]
    for i in range(1, depth):
        both = V(f"a{i - 1}") + V(f"b{i - 1}")
        rows += [region(f"a{i}", both), second(f"b{i}", both + 1)]
    return {"definitions": tuple(rows)}


def test_nested_definitions_are_read_in_the_time_of_their_length():
    started, product = time.process_time(), Em("q", V("a29") * V("b29"))
    _, theorem = certify(Draft(product, product, **nest(30)).part, {})
    assert theorem.statement.context.find_slots("b29") == {"x"}
    draft = Draft(grad(Em("q", V("a9"))), NOTHING, **nest(10)).step("log-derivative")
    assert sum(h[0] == "apart" for h in draft.hypotheses) == 10  # a0 to a9 move
    assert sum(h[0] == "above" for h in draft.hypotheses) == 8  # b1 to b8
    assert time.process_time() - started < 5


MANY = tuple(region(f"c{i}", R) for i in range(3000))
LONG = (region("up", sum(((R * (i + 1)).exp() for i in range(5000)), R)),)
USED = sum((mean("t", "q", now(up) * now(R) ** i, "now") for i in range(1, 40)), NOTHING)


@pytest.mark.parametrize(
    ("definitions", "side"), [(MANY, NOTHING), (LONG, USED)], ids=["too many", "one that is too long"]
)
def test_definitions_are_paid_for(definitions, side):
    started = time.process_time()
    with pytest.raises(Refused, match="the budget of work"):
        certify(Draft(side, side, definitions=definitions).part, {})
    assert time.process_time() - started < 10


def test_a_model_pays_for_each_name_that_it_looks_up():
    """Each level is looked up twice; a log is kept."""
    draft, tree = Draft(Em("q", V("a39")), NOTHING, **nest(40, region)), node(rewards={"A": ["1", "1"]})
    with set_budget(BUDGET), pytest.raises(Refused, match="the budget of work"):
        refuted(draft, tree)
