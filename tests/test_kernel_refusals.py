"""tests/bad is refused for the right reason; what a closing accepts is true in numbers."""

from __future__ import annotations

import json
import re
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from bad_closings import QUADRATIC, solved
from bad_derivations import FOLDER, TABLE, text
from drafts import (
    NOTHING,
    ONE,
    A,
    Em,
    R,
    a,
    b,
    beta,
    g1,
    grad,
    k1,
    k2,
    log_q,
    number,
    r,
    w,
)  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import Polynomial
from test_kernel_rules import (
    CHECK,
    MEASURE,
    SCORE,
    SMALL,
    World,
    elements,
    same,
    softmax,
)  # fmt: skip

from klsym.errors import NotInRing, Refused
from klsym.kernel import RULES, check
from klsym.kernel.closing import CLOSINGS
from klsym.kernel.model import Model, enclose
from klsym.kernel.replay import read_statement
from klsym.normal_form import ExpPoly
from klsym.statements import Context, E, Point, Side, Statement


# ---------------------------------------------------------------------------- the folder
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.file_name.removesuffix(".json"))
def test_a_false_derivation_is_refused(row):
    certificate = json.loads((FOLDER / row.file_name).read_text())
    with pytest.raises(Refused) as refusal:
        check(certificate)
    assert refusal.value.where == row.where
    assert re.search(row.message, str(refusal.value))
    assert "\n" not in str(refusal.value)


def test_the_folder_is_what_the_table_generates():
    expected = {row.file_name: text(row) for row in TABLE}
    assert len(expected) == len(TABLE), "two rows share a file name"
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == expected


def test_each_rule_and_each_closing_has_three():
    counts = Counter(row.rule for row in TABLE)
    assert {name: counts[name] for name in (*RULES, *CLOSINGS) if counts[name] < 3} == {}


def test_a_false_derivation_is_complete():
    """Nothing but the mistake stands in the way: format, claim, parts and digest are in order."""
    for row in TABLE:
        certificate = row.certificate()
        part = certificate["parts"][0]
        assert part["steps"] or part["close"]["by"] in CLOSINGS
        with pytest.raises(Refused) as refusal:
            check(certificate)
        assert "digest" not in str(refusal.value) and "malformed" not in str(refusal.value), row


# ---------------------------------------------------------------------------- what closings accept
BETA = Context(parameters=("beta",))
VARIABLES = ("k1", "w", "log_q", "R", "A", "beta", "sg(k1)", "sg(R)")


def assumed(by: str, left: Side, right: Side, data: dict[str, Any], statement: Statement) -> set[Any] | None:
    """The hypotheses under which a closing accepts, or None."""
    try:
        return CLOSINGS[by].verify(left, right, data, statement)
    except (Refused, NotInRing):
        return None


def accepts(by: str, left: Side, right: Side, data: dict[str, Any], statement: Statement) -> bool:
    return assumed(by, left, right, data, statement) is not None


def values(left: Side, right: Side, world: World) -> tuple[float, float]:
    return world.side(left, world.theta), world.side(right, world.theta)


def world_of(model: dict[str, Any]) -> World:
    """The world that the numbers of a witness describe."""

    def numbers(row: list[str]) -> Any:
        return np.array([fraction(x) for x in row])

    world = World(0)
    world.theta = np.log(numbers(model["q"]))
    world.p, world.mu, world.u = (numbers(model[key]) for key in ("p", "mu", "u"))
    world.free = {name: numbers(row) for name, row in model["rewards"].items()}
    world.parameters = {name: fraction(x) for name, x in model["parameters"].items()}
    world.outcome = model["outcome"]
    return world


def fraction(text: str) -> float:
    over, _, under = text.partition("/")
    return int(over) / int(under or 1)


@st.composite
def models(draw: Any) -> dict[str, Any]:
    size = draw(st.integers(2, 4))
    weights = [draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)) for _ in range(3)]
    q, p, mu = ([str(Fraction(x, sum(row))) for x in row] for row in weights)
    signs = st.lists(st.sampled_from(["0", "1", "-2", "1/3"]), min_size=size, max_size=size)
    return {
        "q": q, "p": p, "mu": mu, "u": draw(signs), "parameters": {"beta": "3/2"},
        "rewards": {"R": draw(signs), "A": draw(signs)}, "outcome": draw(st.integers(0, size - 1)),
    }  # fmt: skip


@st.composite
def values_to_compare(draw: Any) -> Side:
    """Sums of products of expectations and of values at one sample."""
    total = Side.constant(draw(SMALL))
    for _ in range(draw(st.integers(1, 2))):
        element = draw(elements(draw(st.sampled_from([VARIABLES, ("k1", "beta", "sg(R)")])), 2))
        kinds = [E(draw(MEASURE), element, draw(SCORE)), Point(element, draw(SCORE))]
        atoms = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2))
        total = total + Side.of((draw(SMALL), tuple(atoms)))
    return total


VALUES = values_to_compare()
GIVEN = st.sampled_from([(), (), (("R", beta * k1),), (("A", k2), ("R", w - 1))])


@CHECK
@given(VALUES, VALUES, models(), st.sampled_from(["=", "<="]), st.booleans(), GIVEN)
def test_what_a_finite_model_refutes_is_false_in_it(left, right, model, relation, equal, values_given):
    right = left if equal else right
    context = Context(parameters=("beta",), given=values_given)
    read = Model.from_json(model, BETA)
    ends = {n: enclose(side, read) for n, side in (("left", left), ("right", right))}
    data = {"model": model} | {n: [str(i.lower), str(i.upper)] for n, i in ends.items()}
    world = world_of(model)
    x, y = values(left, right, world)
    for value, name in ((x, "left"), (y, "right")):
        slack = 1e-9 * (1 + abs(value))
        assert float(ends[name].lower) - slack <= value <= float(ends[name].upper) + slack
    refuted = accepts("finite model", left, right, data, Statement(left, right, context, relation))
    if not values_given:
        assert refuted or same(x, y) or (relation == "<=" and x < y)
    for name, element in values_given:  # what the statement says of the rewards, not the model
        world.free[name] = world.value(element, world.theta)
    x, y = values(left, right, world)
    assert not refuted or all(map(same, (x, y), [float(end.lower) for end in ends.values()]))
    assert not refuted or (not equal and x != y and (relation == "=" or x > y))


HALF = ExpPoly.number(2).inverse()
X = Polynomial([0, 1])
BEND = X**3 / 10 + X**2
# coefficient, family, letters, how; then a member and functions outside the family, all numeric
SOLVED = [
    ("k2", g1 - k1, QUADRATIC, "ba", {}, X**2 / 2 + 3 * X + 5, 0, [X**2, BEND, 0 * X + 7]),
    ("k3", g1 + r, r + a * k1 + b, "ba", {}, 2 * X - 1, 1, [X, BEND, 0 * X]),
    ("under mu", (-w).exp() * (g1 - k1), k2 + b, "b", {"coordinate": "w", "unit": -w.exp()},
        X**2 / 2 + 7, 0, [X**2 / 2 + X, X**2, 0 * X]),
    ("scaled", g1 * 2 - k1, k2 * HALF + a * k1 + b, "ba",
        {"unit": HALF}, X**2 / 4 - X, 0, [X**2, BEND, 0 * X]),
]  # fmt: skip


def worlds_where(c: ExpPoly, polynomial: Polynomial, exponential: float) -> list[bool]:
    """Is E_q[c s] = 0, world by world, when g is the polynomial plus a multiple of exp(-k1)?"""

    def g(x: Any, n: int) -> Any:
        return polynomial.deriv(n)(x) + exponential * (-1) ** n * np.exp(-x)

    found = []
    for seed in range(4):
        world = World(seed)
        world.g = g
        found.append(same(world.side(Em("q", c, 1), world.theta), 0.0))
    return found


@pytest.mark.parametrize("case", SOLVED, ids=lambda case: case[0])
def test_completeness_finds_exactly_the_solutions(case):
    _, c, family, letters, how, member, exponential, outsiders = case
    draft = solved(c, family, letters, **how)
    statement = Statement(Em("q", c, 1), NOTHING, draft.context)
    close = {key: value for key, value in draft.part["close"].items() if key != "by"}
    assert accepts("completeness", statement.left, statement.right, close, statement)
    assert all(worlds_where(c, member, exponential))
    for outsider in outsiders:
        assert not all(worlds_where(c, outsider, 0))


GOALS = [k1, -r, k2, k1 * 2 - r * 3, k2 * beta + r]  # what g^(n) must be, along k1
SETUPS = [  # the factor of g^(n) - goal, the coordinate that tells it, and the unit that frees it
    (ONE, "k1", ONE), (number(2), "k1", HALF), (beta, "k1", beta.inverse()), (R, "k1", R.inverse()),
    (beta.exp(), "k1", (-beta).exp()), (w, "w", ONE), (w * beta, "w", beta.inverse()),
    (w * R, "w", R.inverse()), ((-w).exp(), "w", -w.exp()), (log_q, "log_q", ONE),
    ((-w).exp() * A, "w", -w.exp() * A.inverse()), (w * R, "w", ONE), (w + k1, "w", ONE),
]  # fmt: skip
EXTRAS = [number(0), number(0), number(0), beta - 2, R, w, log_q * A]


def integral(goal: ExpPoly) -> ExpPoly:
    """One antiderivative along k1 of a sum of powers of k1 and multiples of r."""
    total = number(0)
    for (powers, exponent), value in goal.terms.items():
        n, term = dict(powers).get("k1", 0), ExpPoly({(powers, exponent): value})
        total = total + (-term if exponent else term * k1 * Fraction(1, n + 1))
    return total


def test_what_completeness_accepts_is_the_family():
    """Rewards that vanish and parameters of any value (not zero, where that is assumed) included."""
    counts: Counter[str] = Counter()

    @CHECK
    @given(st.data())
    def run(data: Any) -> None:
        def draw(*rows: Any) -> Any:
            return data.draw(st.sampled_from(rows))

        (factor, how, unit), goal = draw(*SETUPS), draw(*GOALS)
        jet = draw(0, 1, 2) if how == "k1" else draw(1, 2)
        c = (ExpPoly.variable("g" + "'" * jet) - goal) * factor + draw(*EXTRAS)
        family = goal
        for _ in range(jet):
            family = integral(family)
        order = jet + (how == "k1")
        letters = data.draw(st.permutations("ab"[:order] if order < 3 else "abd"))
        free = sum((ExpPoly.variable(x) * k1**i for i, x in enumerate(letters)), number(0))
        relation = draw("=", "=", "=", "=", "<=")
        close = solved(c, family + free, letters, unit=unit, coordinate=how).part["close"]
        context = Context(parameters=("a", "b", "d", "beta"), functions=(("g", ("k1",)),))
        statement = Statement(Em("q", c, 1), NOTHING, context, relation)
        found = assumed("completeness", statement.left, statement.right, close, statement)
        counts["refused" if found is None else "accepted"] += 1
        if found is None:
            return
        assert relation == "="
        for beta_is in (0.7, -2.0, *(() if ("nonzero", "beta") in found else (0.0,))):
            for scale in (1.0, 0.0):  # of the rewards
                cases = [(seed, beta_is, scale) for seed in range(3)]
                assert all(zero_with(c, family + free, *case) for case in cases)
                assert not all(zero_with(c, family + free + k1**order, *case) for case in cases)

    run()
    assert counts["accepted"] >= 10 and counts["refused"] >= 10, counts


def zero_with(c: ExpPoly, member: ExpPoly, seed: int, beta_is: float, scale: float) -> bool:
    """Is E_q[c s] = 0 in a world with this function for g?"""
    world = World(seed)
    world.parameters = {"a": 0.6, "b": -1.1, "d": 0.4, "beta": beta_is}
    world.free = {name: scale * row for name, row in world.free.items()}
    jets = [member]
    for _ in range(4):
        jets.append(jets[-1].derive(lambda n: ONE if n == "k1" else number(0)))
    world.g = lambda x, n: world.value(jets[n], world.theta)
    return same(world.side(Em("q", c, 1), world.theta), 0.0)


class Grid(World):
    """Independent values of k1, w and log_q at each of a few values of the rewards R and A."""

    def __init__(self, beta_is: float) -> None:
        super().__init__(0)
        stream = np.random.default_rng(7)
        self.group = np.repeat(np.arange(5), 16)
        self.live = dict(zip(("k1", "w", "log_q"), stream.uniform(-1, 1.5, (3, 80)), strict=True))
        self.free = dict(zip(("R", "A"), stream.uniform(-1, 1.5, (2, 5))[:, self.group], strict=True))
        self.p, self.parameters = np.zeros(80), {"beta": beta_is}

    def variable(self, name: str, theta: Any) -> Any:
        return {**self.live, **self.parameters, **self.free}[name]


def is_combination(c: ExpPoly, beta_is: float = 0.7310585) -> bool:
    """Is c = x k1 + y r + h(R, A)?  The columns of h say at which rewards a point lies."""
    grid = Grid(beta_is)
    values = grid.value(c, None)
    columns = [grid.live["k1"], np.exp(-grid.live["k1"]), *np.eye(5)[:, grid.group]]
    basis = np.stack(columns, axis=1)
    solution = np.linalg.lstsq(basis, values, rcond=None)[0]
    return bool(np.abs(basis @ solution - values).max() <= 1e-9 * (1 + np.abs(values).max()))


def test_the_oracle_knows_combinations():
    assert all(map(is_combination, (k1 * 2 - r * beta, R.exp() * A - k1, beta.exp() * r + 3)))
    assert not any(map(is_combination, (k2, w - k1, log_q, (w - k1).exp(), R * k1, A * r, w)))
    assert is_combination((beta * k1).exp(), -1) and not is_combination((beta * k1).exp())


FIXED = ("k1", "w", "log_q", "R", "A", "beta")
OTHERS = [  # combinations, and what becomes one for a single beta
    number(0), k1, -r, R.exp(), beta * r, (beta - 1) * k2, (beta.exp() - ONE.exp()) * w,
    (beta * k1).exp() - k1.exp(), (beta * k1).exp() * 2, beta * log_q, (beta * 2 - 4) * w * R,
]  # fmt: skip


def test_independence_accepts_what_is_no_combination():
    counts: Counter[bool] = Counter()

    @CHECK
    @given(st.one_of(elements(FIXED), elements(("R", "A", "beta"))), st.sampled_from(OTHERS))
    def run(c: ExpPoly, other: ExpPoly) -> None:
        c = c + other
        statement, found = Statement(Em("q", c, 1), NOTHING, BETA), []
        for key, value in c.terms.items():
            close = {"term": ExpPoly({key: value}).to_json()}
            found.append(assumed("independence", statement.left, NOTHING, close, statement))
        hypotheses = [some for some in found if some is not None]
        assert bool(hypotheses) == (not is_combination(c))
        counts[bool(hypotheses)] += 1
        for some in hypotheses:
            excluded = {0.0} if "beta" in c.inverted() or ("nonzero", "beta") in some else set()
            special = () if ("generic", "beta") in some else {0.0, 1.0, -1.0, 2.0, -2 / 3} - excluded
            assert not any(is_combination(c, value) for value in special)

    run()
    assert min(counts.values()) >= 8, counts


@pytest.mark.parametrize(
    "change",
    [{"relation": "<="}, {"given": (("R", k2),)}, {"functions": (("f", ("w",)),)}, {"on_policy": True}],
)
def test_independence_speaks_of_equations_in_free_variables(change):
    statement = Statement(Em("q", w * k1, 1), NOTHING, Context(), "=")
    close = {"term": (w * k1).to_json()}
    assert assumed("independence", statement.left, NOTHING, close, statement) == set()
    relation = change.pop("relation", "=")
    other = Statement(statement.left, NOTHING, Context(**change), relation)
    assert not accepts("independence", other.left, NOTHING, close, other)


# ---------------------------------------------------------------------------- premises
class Flat(World):
    """f is h where w is 0, as it is on-policy; h does not move with w."""

    def variable(self, name: str, theta: Any) -> Any:
        if name.startswith("sg("):
            name, theta = name[3:-1], self.theta
        if name.rstrip("'") != "h":
            return super().variable(name, theta)
        q, primes = softmax(theta), name.count("'")
        z = 0.7 * np.log(q / self.p) + 0.3 * np.log(q)
        return np.sin(z + primes * np.pi / 2)


PREMISE_NAMES = [("k1", "w", "log_q", "f", "sg(k1)", "sg(h)"), ("k1", "f", "R"), ("k1", "log_q", "h")]


@st.composite
def true_premises(draw: Any, on_policy: bool) -> tuple[Side, Side]:
    """Two sides with the same value for every theta, as the author of a premise may see it."""
    names, m = draw(st.sampled_from(PREMISE_NAMES)), draw(st.sampled_from(["q", "q", "p", "mu"]))
    element, kept = draw(elements(names, 2)), draw(st.booleans())
    value = element if kept else element.rename(lambda n: n.removeprefix("sg(").removesuffix(")"))
    if not on_policy:
        return Em(m, element), Em(m, value)
    if not kept:
        value = value.substitute({"w": number(0), "f": ExpPoly.variable("h")})
    return Em(m, element), Em("q" if m == "mu" else m, value)


def test_the_premises_that_are_read_hold_for_gradients_too():
    counts: Counter[bool] = Counter()

    @CHECK
    @given(st.data())
    def run(data: Any) -> None:
        on_policy = data.draw(st.booleans())
        left, right = data.draw(true_premises(on_policy))
        functions = (("f", ("k1", "log_q", "w")), ("h", ("k1", "log_q")))
        parameters = ("beta",)
        context = Context(parameters, functions, on_policy, premises=((left, right),))
        worlds = [Flat(seed, context) for seed in range(2)]
        assert all(same(*values(left, right, world)) for world in worlds)
        part = {"context": context.to_json(), "relation": "=", "left": [], "right": []}
        try:
            read_statement(part)
        except Refused:
            counts[False] += 1
            return
        counts[True] += 1
        assert all(same(*values(grad(left), grad(right), world)) for world in worlds)

    run()
    assert min(counts[True], counts[False]) >= 10, counts
