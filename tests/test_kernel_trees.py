"""Finite models of sequences: read or refused, their enclosures hold, and what they refute is false."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from bad_trees import NODE, node
from drafts import KL, A, Em, R, beta, grad, k1, k2, r, rho
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed_strategies import elements, in_slots
from sequence_worlds import World, same, world_of
from slotted import curl, mean_i, now, others, own, past, sum_t

from klsym import calculus as c
from klsym.errors import NotInRing, Refused
from klsym.kernel import check_part
from klsym.kernel.closing import CLOSINGS
from klsym.kernel.model import enclose
from klsym.kernel.trees import LARGEST, Tree
from klsym.statements import Context, E, Indexed, Side, Statement

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=50,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
PLAIN = Context(parameters=("beta", "n"))
VALUES = {"beta": "3/2", "n": "3"}
NUMBER = st.sampled_from(["0", "1", "-2", "1/3", "5/2"])
MEASURE = st.sampled_from(["q", "p", "mu"])
ENTRIES = ("past", "now", "future", "x", "past'", "now'", "future'", "x'")


@st.composite
def trees(draw: Any, depth: int = 3) -> dict[str, Any]:
    """A node of 1 to 3 tokens, and what follows them."""
    size = draw(st.integers(1, 3))
    weights = st.lists(st.integers(1, 6), min_size=size, max_size=size)
    found: dict[str, Any] = {}
    for name in ("q", "p", "mu"):
        row = draw(weights)
        found[name] = [str(Fraction(x, sum(row))) for x in row]
    for name in ("u", "v", "R"):
        found[name] = draw(st.lists(NUMBER, min_size=size, max_size=size))
    after = st.one_of(st.none(), trees(depth - 1)) if depth > 1 else st.none()
    found["next"] = draw(st.lists(after, min_size=size, max_size=size))
    return found


@st.composite
def means(draw: Any) -> Any:
    """A mean over sequences, of what a tree has values for."""
    bases = ("k1", "w", "log_q", "R", "length")
    if draw(st.booleans()):
        score = ("x",) * draw(st.integers(0, 2))
        return E(draw(MEASURE), draw(elements(in_slots(["x"], bases))), score)
    names = in_slots(("past", "now", "future", "x"), bases)
    score = draw(st.lists(st.sampled_from(ENTRIES), max_size=2))
    return Indexed("t", draw(MEASURE), draw(elements(names)), tuple(sorted(score)))


@st.composite
def sides(draw: Any) -> Side:
    total = Side.constant(draw(elements(["beta"], 1)))
    for _ in range(draw(st.integers(1, 2))):
        total = total + Side.of((draw(st.integers(-2, 2)), tuple(draw(st.lists(means(), max_size=2)))))
    return total


def model(tree: Any, parameters: Any = None) -> dict[str, Any]:
    return {"tree": tree, "parameters": VALUES if parameters is None else parameters}


# ---------------------------------------------------------------------------- what is accepted
def test_what_a_tree_refutes_is_false_in_it():
    counts: Counter[bool] = Counter()

    @CHECK
    @given(trees(), sides(), sides(), st.sampled_from(["=", "<="]), st.booleans())
    def run(tree: Any, left: Side, right: Side, relation: str, equal: bool) -> None:
        context, right = Context(parameters=("beta", "n", "nu")), left if equal else right
        read, world = Tree.from_json(model(tree), context), world_of(tree, VALUES)
        try:
            ends = [enclose(side, read) for side in (left, right)]
        except Refused as refusal:
            assert "no value for nu" in str(refusal)
            return
        values = [world.side(side) for side in (left, right)]
        for end, value in zip(ends, values, strict=True):
            slack = 1e-9 * (1 + abs(value))
            assert float(end.lower) - slack <= value <= float(end.upper) + slack
        recorded = {name: [str(end.lower), str(end.upper)]
                    for name, end in zip(("left", "right"), ends, strict=True)}  # fmt: skip
        refuted = closes({"model": model(tree), **recorded}, left, right, context, relation)
        x, y = values
        counts[refuted] += 1
        assert refuted or same(x, y) or (relation == "<=" and x < y)
        assert not refuted or (not equal and (x > y or relation == "="))

    run()
    assert min(counts[True], counts[False]) >= 10, counts


def closes(data: Any, left: Side, right: Side, context: Context, relation: str = "=") -> bool:
    try:
        CLOSINGS["finite model"].verify(left, right, data, Statement(left, right, context, relation))
    except Refused:
        return False
    return True


LATER = node(next=[None, node(q=["1/3", "2/3"], next=[node(u=["2", "0"]), None])])
EXACT = [  # in the tree of one node: q = 1/2, 1/2; p = 1/4, 3/4; mu = 1/3, 2/3; R = 1, 3
    ("a reward", sum_t("q", now(R)), NODE, 2),
    ("under p", sum_t("p", now(R)), NODE, Fraction(5, 2)),
    ("a ratio under p", sum_t("p", now(r)), NODE, Fraction(5, 4)),
    ("a ratio of the past", sum_t("q", past(r)), NODE, 1),
    ("a score", sum_t("q", R, "now"), NODE, Fraction(-1, 2)),
    ("the second direction", sum_t("q", R, "now'"), NODE, Fraction(1, 2)),
    ("both directions", sum_t("q", R, "x", "x'"), NODE, Fraction(-1, 2)),
    ("a parameter", sum_t("mu", beta * now(rho)), NODE, Fraction(3, 2)),
    ("steps", sum_t("q", R * 0 + 1), LATER, Fraction(5, 3)),  # 1/2 + 2 * 1/3 + 3 * 1/6
    ("pairs of steps", sum_t("q", past(R)), LATER, Fraction(13, 6)),  # 3 * 1/3 + (3 + 4) * 1/6
]  # fmt: skip


@pytest.mark.parametrize(("side", "tree", "value"), [pytest.param(*row, id=name) for name, *row in EXACT])
def test_a_rational_value_is_enclosed(side, tree, value):
    found = enclose(side, Tree.from_json(model(tree), PLAIN))
    assert found.lower <= value <= found.upper < found.lower + Fraction(1, 2**80)
    assert same(world_of(tree, VALUES).side(side), float(value))


# ---------------------------------------------------------------------------- what is refused
def branches(count: int) -> dict[str, Any]:
    """One node of many tokens."""
    even = {name: [f"1/{count}"] * count for name in ("q", "p", "mu")}
    return {**even, **{name: ["0"] * count for name in ("u", "v", "R")}, "next": [None] * count}


def chain(length: int) -> Any:
    """A sequence of that many steps, one token at each."""
    found = None
    for _ in range(length):
        found = {**branches(1), "q": ["1"], "p": ["1"], "mu": ["1"], "next": [found]}
    return found


MALFORMED = [
    ("no object", [], "the keys \\['parameters', 'tree'\\] expected"),
    ("no parameters", {"tree": NODE}, "the keys .* expected"),
    ("an outcome", {**model(NODE), "outcome": 0}, "the keys .* expected"),
    ("an empty tree", model(None), "a node has the keys"),
    ("a list of nodes", model([NODE]), "a node has the keys"),
    ("a key too many", model(node(A=["0", "0"])), "a node has the keys"),
    ("no rewards", model({k: v for k, v in NODE.items() if k != "R"}), "a node has the keys"),
    ("more than one", model(node(q=["1/2", "2/3"])), "q is no full-support distribution"),
    ("a negative probability", model(node(p=["-1/2", "3/2"])), "p is no full-support distribution"),
    ("zero", model(node(mu=["0", "1"])), "mu is no full-support distribution"),
    ("a later node", model(node(next=[None, node(mu=["1", "1"])])), "mu is no full-support distribution"),
    ("no branches", model({key: [] for key in NODE}), "q is no full-support distribution"),
    ("a decimal", model(node(q=["0.5", "0.5"])), "an exact number such as .* expected"),
    ("a float", model(node(u=[0.5, "1"])), "an exact number such as .* expected"),
    ("a direction too long", model(node(v=["1", "0", "0"])), "the lists of a node differ in length"),
    ("a child too few", model(node(next=[None])), "the lists of a node differ in length"),
    ("a text for a list", model(node(u="10")), "the lists of a node differ in length"),
    ("an end that is no null", model(node(next=[None, "end"])), "a node has the keys"),
    ("an undeclared parameter", model(NODE, {"nu": "1"}), "a value for an undeclared parameter"),
    ("too many sequences", model(branches(LARGEST + 1)), "more than 2000 sequences"),
]


@pytest.mark.parametrize(("data", "message"), [pytest.param(*row, id=name) for name, *row in MALFORMED])
def test_a_malformed_tree_is_refused(data, message):
    with pytest.raises((Refused, NotInRing), match=message):
        Tree.from_json(data, PLAIN)


def test_the_largest_tree_is_read():
    assert len(Tree.from_json(model(branches(LARGEST)), PLAIN).sequences) == LARGEST
    assert len(Tree.from_json(model(chain(60)), PLAIN).sequences[0]) == 60


def test_a_tree_that_is_too_deep_is_refused_in_one_line():
    part = honest("token k3").part
    deep = {**part, "close": {**part["close"], "model": model(chain(990), {})}}
    with pytest.raises(Refused, match=r"nested too deeply|recorded") as refusal:
        check_part(deep)
    assert "\n" not in str(refusal.value)


def test_on_policy_the_sampler_is_q_at_each_node():
    on = Context(parameters=("beta", "n"), on_policy=True)
    same_mu = node(mu=NODE["q"], next=[None, node(mu=NODE["q"])])
    assert len(Tree.from_json(model(same_mu), on).sequences) == 3
    with pytest.raises(Refused, match="on-policy, mu must equal q"):
        Tree.from_json(model(node(mu=NODE["q"], next=[None, node()])), on)


UNREAD = [
    ("a batch", mean_i("q", own(R)), "Indexed must be reduced to means over sequences first"),
    ("one sequence", sum_t("sample", now(R)), "Indexed must be reduced"),
    ("a curl", curl("q", now(k2)), "Curl must be reduced"),
    ("a gradient", grad(Em("q", k1)), "Gradient must be reduced"),
    ("a divergence", KL("q", "p"), "Divergence must be reduced"),
    ("the counting measure", Em("count", k1), "E must be reduced"),
    ("an advantage", sum_t("q", now(A)), "no value for A\\[now\\]"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "message"), [pytest.param(*row, id=name) for name, *row in UNREAD])
def test_what_has_no_value_in_a_tree_is_refused(side, message):
    with pytest.raises(Refused, match=message):
        enclose(side, Tree.from_json(model(NODE), PLAIN))


# ---------------------------------------------------------------------------- batches
SIZES = [("3", True), ("2", True), ("1", False), ("0", False), ("-2", False), ("5/2", False)]


@pytest.mark.parametrize(("size", "accepted"), SIZES)
def test_the_size_of_a_batch_is_two_or_more(size, accepted):
    """E[sum over the others of R] = 2 (n - 1) is not 1, but at a size that no batch has it may be."""
    n = Fraction(size)
    context, reduced = Context(parameters=("n",)), Side.constant(2 * (n - 1))
    statement = Statement(mean_i("q", others(R)), Side.constant(1), context)
    value = str(2 * (n - 1))
    data = {"model": model(NODE, {"n": size}), "left": [value] * 2, "right": ["1"] * 2}
    try:
        CLOSINGS["finite model"].verify(reduced, Side.constant(1), data, statement)
        assert accepted
    except Refused as refusal:
        assert not accepted and f"a batch of size {size}" in str(refusal)


# ---------------------------------------------------------------------------- certificates
def honest(name: str) -> Any:
    """A statement that a finite model refutes."""
    match name:
        case "token k3":
            left, right = c.token_gradient(c.now(c.k3), under="q"), c.grad(c.KL("p", "q"))
        case "token weight":
            left = c.sum_over_t(c.now(c.rho * c.k1), under="mu")
            right = c.sum_over_t(c.now(c.k1), under="q")
        case "curl":
            left, right = c.curl(c.now(c.k2), under="q"), 0
        case "length":
            left, right = c.token_gradient(c.now(c.k1) / c.length, under="q"), 0
        case _:
            left = c.mean_over_i(c.own(c.k1) * c.others(c.k1), under="q")
            right = c.expectation(c.k1, under="q") * c.expectation(c.k1, under="q") * c.parameter("n")
    return c.derive(left).differs_from(right)


@pytest.mark.parametrize("name", ["token k3", "token weight", "curl", "length", "batch"])
def test_what_a_certificate_refutes_with_a_tree_is_false_there(name):
    part = honest(name).part
    theorem = check_part(part)
    assert theorem.kind == "refuted"
    found = theorem.close["model"]
    if "tree" not in found:
        assert name == "batch"  # a tree is needed for sums over t only
        return
    world: World = world_of(found["tree"], found["parameters"])
    values = world.side(theorem.statement.left), world.side(theorem.statement.right)
    assert abs(values[0] - values[1]) > 1e-6
    for name_of_side, value in zip(("left", "right"), values, strict=True):
        lower, upper = (float(Fraction(end)) for end in theorem.close[name_of_side])
        assert lower - 1e-9 <= value <= upper + 1e-9
