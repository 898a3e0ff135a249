"""Finite models: read or refused, their enclosures hold, and what they refute is false."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klsym.errors import NotInRing, Refused
from klsym.kernel import check, check_part
from klsym.kernel.models import LARGEST, Model, enclose
from klsym.kernel.statements import Context, Mean, Side
from support.certificates.faulty_certificates import *
from support.certificates.indexed_strategies import elements, in_slots
from support.certificates.slot_helpers import future, mean_i, n, now, others, own, past, sum_t
from support.faulty.trees import NODE, node
from support.oracle.values import same, worth
from support.oracle.worlds import world_of
from support.scale import scaled

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=scaled(80, 25),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
PLAIN = Context(parameters=("beta", "n"))
VALUES = {"beta": "3/2", "n": "3"}
NUMBER = st.sampled_from(["0", "1", "-2", "1/3", "5/2"])
MEASURE = st.sampled_from(["q", "p", "mu", "sample"])
ENTRIES = ("past", "now", "future", "x", "past'", "now'", "future'", "x'")
BASES = ("k1", "w", "log_q", "R", "H", "length")


# ---------------------------------------------------------------------------- random models and sides
@st.composite
def trees(draw: Any, depth: int = 3) -> dict[str, Any]:
    """A node of 1 to 3 tokens, and what follows them."""
    size = draw(st.integers(1, 3))
    weights = st.lists(st.integers(1, 6), min_size=size, max_size=size)
    found: dict[str, Any] = {}
    for name in ("q", "p", "mu"):
        row = draw(weights)
        found[name] = [str(Fraction(x, sum(row))) for x in row]
    numbers = st.lists(NUMBER, min_size=size, max_size=size)
    for name in ("u", "v"):
        found[name] = draw(numbers)
    found["rewards"] = {name: draw(numbers) for name in ("R", "H", "A")}
    after = st.one_of(st.none(), trees(depth - 1)) if depth > 1 else st.none()
    found["next"] = draw(st.lists(after, min_size=size, max_size=size))
    return found


@st.composite
def models(draw: Any) -> dict[str, Any]:
    """A tree, one of its sequences, and parameters."""
    tree = draw(st.one_of(trees(1), trees()))
    path, at = [], tree
    while at is not None:
        path.append(draw(st.integers(0, len(at["next"]) - 1)))
        at = at["next"][path[-1]]
    return model(tree, path=path)


@st.composite
def means(draw: Any) -> Any:
    """A mean over sequences, of what a tree has values for."""
    if draw(st.booleans()):
        under, score = (
            st.one_of(MEASURE, st.just("count")),
            draw(st.lists(st.sampled_from(["x", "x'"]), max_size=2)),
        )
        return Mean("", draw(under), draw(elements(in_slots(["x"], BASES))), tuple(sorted(score)))
    names = [*in_slots(("past", "now", "future", "x"), BASES), "A[now]"]
    score = draw(st.lists(st.sampled_from(ENTRIES), max_size=2))
    return Mean("t", draw(MEASURE), draw(elements(names)), tuple(sorted(score)))


@st.composite
def sides(draw: Any) -> Side:
    total = Side.from_constant(draw(elements(["beta"], 1)))
    for _ in range(draw(st.integers(1, 2))):
        total = total + Side.combine((draw(st.integers(-2, 2)), tuple(draw(st.lists(means(), max_size=2)))))
    return total


def model(tree: Any, parameters: Any = None, path: Any = ()) -> dict[str, Any]:
    return {"tree": tree, "path": list(path), "parameters": VALUES if parameters is None else parameters}


def recorded(left: Side, right: Side, read: Model) -> dict[str, list[str]]:
    """The enclosures of two sides, as a certificate records them."""
    ends = {"left": enclose(left, read), "right": enclose(right, read)}
    return {name: [str(end.lower), str(end.upper)] for name, end in ends.items()}


def refutation(
    data: Any, left: Side, right: Side, context: Context = PLAIN, relation: str = "="
) -> dict[str, Any]:
    """A certificate that says with a model that a relation fails."""
    how = {"parameters": context.parameters, "premises": context.premises}
    return Draft(left, right, relation, **how).close("finite model", **data).certificate()


def closes(certificate: dict[str, Any]) -> bool:
    try:
        (theorem,) = check(certificate)
    except Refused as refusal:
        assert refusal.where == "part 1, close"
        return False
    assert theorem.kind == "refuted"
    return True


# ---------------------------------------------------------------------------- what is accepted
def test_what_a_model_refutes_is_false_in_it():
    counts: Counter[bool] = Counter()

    @CHECK
    @given(models(), sides(), sides(), st.sampled_from(["=", "<="]), st.booleans())
    def run(found: Any, left: Side, right: Side, relation: str, equal: bool) -> None:
        context, right = Context(parameters=("beta", "n", "nu")), left if equal else right
        read, world = Model.from_json(found, context), world_of(found)
        try:
            data = {"model": found, **recorded(left, right, read)}
        except Refused as refusal:
            assert "no value for nu" in str(refusal)
            return
        x, y = (worth(side, world) for side in (left, right))
        for name, value in (("left", x), ("right", y)):
            lower, upper = (float(Fraction(end)) for end in data[name])
            slack = 1e-9 * (1 + abs(value))
            assert lower - slack <= value <= upper + slack
            assert upper - lower <= 1e-12 * (1 + abs(value))
        refuted = closes(refutation(data, left, right, context, relation))
        counts[refuted] += 1
        assert refuted or same(x, y) or (relation == "<=" and x < y)
        assert not refuted or (not equal and (x > y or relation == "="))

    run()
    assert min(counts[True], counts[False]) >= scaled(10, 3), counts


def test_another_enclosure_is_refused():
    """Every recorded end is recomputed, also where the other enclosure would refute as well."""
    left, right = sum_t("q", now(k1)), constant(5)
    data = {"model": model(LATER), **recorded(left, right, Model.from_json(model(LATER), PLAIN))}
    assert closes(refutation(data, left, right))
    for name in ("left", "right"):
        for k in (0, 1):
            for shift in (Fraction(1, 2**96), Fraction(-1, 2**96), Fraction(1)):
                ends = list(data[name])
                ends[k] = str(Fraction(ends[k]) + shift)
                assert not closes(refutation({**data, name: ends}, left, right)), (name, k, shift)


LATER = node(next=[None, node(q=["1/3", "2/3"], next=[node(u=["2", "0"]), None])])
EXACT = [  # in the tree of one node: q = 1/2, 1/2; p = 1/4, 3/4; mu = 1/3, 2/3; R = 1, 3
    ("a reward", sum_t("q", now(R)), NODE, 2),
    ("one sample", Em("q", R), NODE, 2),
    ("the sum over all outcomes", Em("count", R), NODE, 4),
    ("under p", sum_t("p", now(R)), NODE, Fraction(5, 2)),
    ("a ratio under p", Em("p", r), NODE, Fraction(5, 4)),
    ("a density", Em("count", (-w).exp() * R), NODE, Fraction(2, 3) + 4),
    ("a ratio of the past", sum_t("q", past(r)), NODE, 1),
    ("a score", sum_t("q", R, "now"), NODE, Fraction(-1, 2)),
    ("a score of one sample", Em("q", R, 1), NODE, Fraction(-1, 2)),
    ("the second direction", sum_t("q", R, "now'"), NODE, Fraction(1, 2)),
    ("both directions", sum_t("q", R, "x", "x'"), NODE, Fraction(-1, 2)),
    ("a parameter", sum_t("mu", beta * now(rho)), NODE, Fraction(3, 2)),
    ("steps", sum_t("q", ONE), LATER, Fraction(5, 3)),  # 1/2 + 2 * 1/3 + 3 * 1/6
    ("the length", Em("q", T), LATER, Fraction(5, 3)),
    ("one over the length", Em("q", T.invert()), LATER, Fraction(13, 18)),  # 1/2 + 1/2 * 1/3 + 1/3 * 1/6
    ("pairs of steps", sum_t("q", past(R)), LATER, Fraction(13, 6)),  # 3 * 1/3 + (3 + 4) * 1/6
    ("what remains", sum_t("q", future(T)), LATER, Fraction(5, 6)),  # 1/3 + 3 * 1/6
    ("at one sample", point(R * R), NODE, 9),
    ("a score at one sample", point(ONE, 1), NODE, Fraction(-1, 2)),
    ("at the steps of one sequence", sum_t("sample", past(T)), LATER, 3),
    ("a product of means", Em("q", R).multiply(sum_t("p", now(R))), NODE, 5),
]  # fmt: skip
CHOSEN = {id(NODE): [1], id(LATER): [1, 0, 1]}  # the paths that "sample" means


@pytest.mark.parametrize(("side", "tree", "value"), [pytest.param(*row, id=name) for name, *row in EXACT])
def test_a_rational_value_is_enclosed(side, tree, value):
    data = model(tree, path=CHOSEN[id(tree)])
    found = enclose(side, Model.from_json(data, PLAIN))
    assert found.lower <= value <= found.upper < found.lower + Fraction(1, 2**80)
    assert same(worth(side, world_of(data)), float(value))


def test_an_enclosure_by_another_series():
    """E_q[k1] = 1/2 log 2 + 1/2 log 2/3 in the tree of one node, log x as a sum of Fractions."""

    def log(x: Fraction) -> Fraction:
        t = (x - 1) / (x + 1)
        return 2 * sum(t ** (2 * i + 1) / (2 * i + 1) for i in range(120))

    value = (log(Fraction(2)) + log(Fraction(2, 3))) / 2
    found = enclose(sum_t("q", now(k1)), Model.from_json(model(NODE), PLAIN))
    assert found.lower - Fraction(1, 2**100) <= value <= found.upper + Fraction(1, 2**100)
    assert found.upper - found.lower < Fraction(1, 2**80)


# ---------------------------------------------------------------------------- what is refused
def branches(count: int) -> dict[str, Any]:
    """One node of many tokens."""
    even = {name: [f"1/{count}"] * count for name in ("q", "p", "mu")}
    return {**even, **{name: ["0"] * count for name in ("u", "v")}, "rewards": {}, "next": [None] * count}


def chain(length: int) -> Any:
    """A sequence of that many steps, one token at each."""
    found = None
    for _ in range(length):
        found = {**branches(1), "q": ["1"], "p": ["1"], "mu": ["1"], "next": [found]}
    return found


EMPTY = {**{key: [] for key in NODE}, "rewards": {}}
MALFORMED = [
    ("no object", [], "the keys \\['parameters', 'path', 'tree'\\] expected"),
    ("no parameters", {"tree": NODE, "path": []}, "the keys .* expected"),
    ("no path", {"tree": NODE, "parameters": {}}, "the keys .* expected"),
    ("an outcome", {**model(NODE), "outcome": 0}, "the keys .* expected"),
    ("an empty tree", model(None), "a node has the keys"),
    ("a list of nodes", model([NODE]), "a node has the keys"),
    ("a key too many", model(node(A=["0", "0"])), "a node has the keys"),
    ("no rewards", model({k: v for k, v in NODE.items() if k != "rewards"}), "a node has the keys"),
    ("a reward of no such name", model(node(rewards={"k1": ["0", "0"]})), "rewards: .* expected"),
    ("the length as a reward", model(node(rewards={"length": ["0", "0"]})), "rewards: .* expected"),
    ("more than one", model(node(q=["1/2", "2/3"])), "q is no full-support distribution"),
    ("a negative probability", model(node(p=["-1/2", "3/2"])), "p is no full-support distribution"),
    ("zero", model(node(mu=["0", "1"])), "mu is no full-support distribution"),
    ("a later node", model(node(next=[None, node(mu=["1", "1"])])), "mu is no full-support distribution"),
    ("no branches", model(EMPTY), "q is no full-support distribution"),
    ("a decimal", model(node(q=["0.5", "0.5"])), "an exact number such as .* expected"),
    ("a float", model(node(u=[0.5, "1"])), "an exact number such as .* expected"),
    ("a direction too long", model(node(v=["1", "0", "0"])), "the lists of a node differ in length"),
    ("a reward too short", model(node(rewards={"R": ["1"]})), "the lists of a node differ in length"),
    ("a child too few", model(node(next=[None])), "the lists of a node differ in length"),
    ("a text for a list", model(node(u="10")), "the lists of a node differ in length"),
    ("an end that is no null", model(node(next=[None, "end"])), "a node has the keys"),
    ("an undeclared parameter", model(NODE, {"nu": "1"}), "an undeclared parameter"),
    ("too many sequences", model(branches(LARGEST + 1)), "more than 2000 sequences"),
    ("a path that is no list", {**model(NODE), "path": "0"}, "path: a list of branches expected"),
    ("a path that ends early", model(LATER, path=[1]), "path: the sequence goes on"),
    ("a path that goes on", model(NODE, path=[0, 0]), "a node has the keys"),
    ("a branch that is not there", model(NODE, path=[2]), "there is no branch 2"),
    ("a branch before the first", model(NODE, path=[-1]), "there is no branch -1"),
    ("a text for a branch", model(NODE, path=["0"]), "there is no branch 0"),
    ("a truth value for a branch", model(NODE, path=[True]), "there is no branch True"),
]


@pytest.mark.parametrize(("data", "message"), [pytest.param(*row, id=name) for name, *row in MALFORMED])
def test_a_malformed_model_is_refused(data, message):
    with pytest.raises((Refused, NotInRing), match=message):
        Model.from_json(data, PLAIN)


def test_the_largest_models_are_read():
    assert len(Model.from_json(model(branches(LARGEST)), PLAIN).sequences) == LARGEST
    assert len(Model.from_json(model(chain(316)), PLAIN).sequences[0]) == 316
    with pytest.raises(Refused, match="too long ones"):
        Model.from_json(model(chain(317)), PLAIN)


@pytest.mark.parametrize("length", [400, 990, 20_000])
def test_a_tree_that_is_too_deep_is_refused_in_one_line(length, at_most):
    certificate = refutation(
        {"model": model(NODE), "left": ["2"] * 2, "right": ["0"] * 2}, sum_t("q", now(R)), NOTHING
    )
    part = {**certificate["parts"][0]}
    part["close"] = {**part["close"], "model": model(chain(length))}
    with (
        at_most(20),
        pytest.raises(Refused, match=r"nested too deeply|too long ones|no value for") as refusal,
    ):
        check_part(part, {}, "part 1")
    assert "\n" not in str(refusal.value)


UNREAD = [
    ("a batch", mean_i("q", own(R)), "reduce both sides to means over single samples and sequences first"),
    ("a pair", mean("ij", "q", own(R)), "reduce both sides to means"),
    ("a batch of sequences", mean("it", "q", now(R)), "reduce both sides to means"),
    ("one batch", mean_i("sample", own(R)), "reduce both sides to means"),
    ("one sequence", sum_t("sample", now(R)), "path: a value at one sample needs one"),
    ("one sample", point(R), "path: a value at one sample needs one"),
    ("a curl", curl("t", "q", now(k2)), "reduce both sides to means"),
    ("a gradient", grad(Em("q", k1)), "reduce both sides to means"),
    ("a gradient of a loss", mean_grad("", "q", k1), "reduce both sides to means"),
    ("an advantage", sum_t("q", now(A)), "no value for A\\[now\\]"),
    ("another reward", Em("q", H), "no value for H"),
    ("an advantage of the past", sum_t("q", past(A)), "A is given for single steps alone"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "message"), [pytest.param(*row, id=name) for name, *row in UNREAD])
def test_what_has_no_value_in_a_model_is_refused(side, message):
    with pytest.raises(Refused, match=message):
        enclose(side, Model.from_json(model(NODE), PLAIN))


def test_an_advantage_has_a_value_at_single_steps_alone():
    paid = {"A": ["1", "2"]}
    one, two = node(rewards=paid), node(rewards=paid, next=[None, node(rewards=paid)])
    assert enclose(Em("q", A), Model.from_json(model(one), PLAIN)).lower == Fraction(3, 2)
    assert enclose(sum_t("q", now(A)), Model.from_json(model(two), PLAIN)).lower == Fraction(9, 4)
    for side in (Em("q", A), sum_t("q", A), sum_t("q", future(A))):
        with pytest.raises(Refused, match="A is given for single steps alone"):
            enclose(side, Model.from_json(model(two), PLAIN))


# ---------------------------------------------------------------------------- batches
SIZES = [("3", True), ("2", True), ("1", False), ("0", False), ("-2", False), ("5/2", False), ("3/2", False)]


@pytest.mark.parametrize(("size", "accepted"), SIZES)
@pytest.mark.parametrize("batch", [True, False])
def test_the_size_of_a_batch_is_a_whole_number_of_two_or_more(size, accepted, batch):
    """E[sum over the others of R] = 2 (n - 1) is not 7; n means the same where nothing is drawn n times."""
    value = str(2 * (Fraction(size) - 1)) if batch else "2"
    draft = Draft(mean_i("q", others(R)) if batch else Em("q", R), constant(7), parameters=("n",))
    draft = draft.step("independence") if batch else draft
    draft.close("finite model", model=model(NODE, {"n": size}), left=[value] * 2, right=["7"] * 2)
    if accepted:
        assert closes(draft.certificate())
        return
    with pytest.raises(Refused, match=f"a batch of size {size}:"):
        check(draft.certificate())


def test_a_parameter_n_without_a_value_is_no_batch():
    """Nothing is said of n here: any model does."""
    draft = Draft(Em("q", R), constant(7), parameters=("n",))
    draft.close("finite model", model=model(NODE, {}), left=["2"] * 2, right=["7"] * 2)
    assert closes(draft.certificate())


# ---------------------------------------------------------------------------- certificates
def reduced(name: str) -> Draft:
    """A false statement, reduced to means."""
    match name:
        case "token k3":
            draft = Draft(mean_grad("t", "q", now(k3)), grad(Em("p", -k1))).step("chain rule")
            return draft.right("log-derivative").right("chain rule")
        case "token weight":
            return Draft(sum_t("mu", now(rho * k1)), sum_t("q", now(k1)))
        case "curl":
            return Draft(curl("t", "q", now(k2)), NOTHING).step("curl")
        case "length":
            return Draft(mean_grad("t", "q", now(k1) * T.invert()), NOTHING).step("chain rule")
        case "inequality":
            return Draft(sum_t("q", now(k1)), sum_t("p", now(k1)), "<=")
        case "one sample":
            return Draft(point(k1), NOTHING)
    left, right = mean_i("q", own(k1) * others(k1)), Em("q", k1).multiply(Em("q", k1)) * n
    return Draft(left, right, parameters=("n",)).step("independence")


@pytest.mark.parametrize(
    "name", ["token k3", "token weight", "curl", "length", "inequality", "one sample", "batch"]
)
def test_what_a_certificate_refutes_with_a_tree_is_false_there(name):
    draft = reduced(name)
    found = model(LATER, {"n": "3"} if name == "batch" else {}, [1, 0, 1])
    draft.close(
        "finite model", model=found, **recorded(*draft.sides.values(), Model.from_json(found, draft.context))
    )
    (theorem,) = check(draft.certificate())
    assert theorem.kind == "refuted"
    world = world_of(theorem.close["model"])
    values = worth(theorem.statement.left, world), worth(theorem.statement.right, world)
    assert abs(values[0] - values[1]) > 1e-6 and (theorem.statement.relation == "=" or values[0] > values[1])
    for name_of_side, value in zip(("left", "right"), values, strict=True):
        lower, upper = (float(Fraction(end)) for end in theorem.close[name_of_side])
        assert lower - 1e-9 <= value <= upper + 1e-9


PREMISES = [  # a premise, and whether the model may be used
    ("about parameters, true", (constant(beta * 2), constant(3)), None),
    ("about parameters, false", (constant(beta), constant(3)), "the model does not satisfy the premises"),
    ("about a mean that is so", (Em("q", R), constant(2)), "a model need not satisfy the premises"),
    ("about a mean that is not", (Em("q", R), constant(1)), "a model need not satisfy the premises"),
    ("that says nothing", (Em("q", R), Em("q", R)), None),
]


@pytest.mark.parametrize(("premise", "message"), [pytest.param(*row, id=name) for name, *row in PREMISES])
def test_a_model_satisfies_the_premises(premise, message):
    context = Context(parameters=("beta", "n"), premises=(premise,))
    data = {"model": model(NODE), "left": ["2"] * 2, "right": ["7"] * 2}
    certificate = refutation(data, sum_t("q", now(R)), constant(7), context)
    if message is None:
        assert closes(certificate)
        return
    with pytest.raises(Refused, match=message):
        check(certificate)
