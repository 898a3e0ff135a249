"""tests/bad is refused for the right reason; what a closing accepts is true in numbers."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from bad_derivations import (
    FOLDER,
    NOTHING,
    OPEN,
    QUADRATIC,
    TABLE,
    Em,
    a,
    apart,
    b,
    beta,
    g1,
    k1,
    k2,
    r,
    solved,
    text,
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
)  # fmt: skip

from klsym.errors import NotInRing, Refused
from klsym.kernel import RULES, check
from klsym.kernel.closing import CLOSINGS
from klsym.kernel.model import Model, enclose
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


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.xfail(reason="accepted today")) for row in OPEN],
    ids=lambda row: row.file_name.removesuffix(".json"),
)
def test_a_false_derivation_that_should_be_refused(row):
    with pytest.raises(Refused):
        check(json.loads(text(row)))


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
VARIABLES = ("k1", "w", "log_q", "R", "A", "beta", "sg(k1)")


def accepts(by: str, left: Side, right: Side, data: dict[str, Any], statement: Statement) -> bool:
    try:
        CLOSINGS[by].verify(left, right, data, statement)
    except (Refused, NotInRing):
        return False
    return True


def values(left: Side, right: Side, world: World) -> tuple[float, float]:
    return world.side(left, world.theta), world.side(right, world.theta)


def at_most(left: Side, right: Side) -> bool:
    pairs = [values(left, right, World(seed)) for seed in range(4)]
    return all(x <= y + 1e-9 * (1 + abs(x) + abs(y)) for x, y in pairs)


ERRORS = st.sampled_from([NOTHING, NOTHING, Em("q", k1), Em("p", r)])


@CHECK
@given(st.data())
def test_what_tangent_accepts_is_an_inequality(data):
    left, total, rows = Em("q", data.draw(elements())), data.draw(ERRORS), []
    for _ in range(data.draw(st.integers(0, 2))):
        scale, m = data.draw(st.one_of(SMALL, st.just(0))), data.draw(MEASURE)
        u, v = (data.draw(st.sampled_from([k1, -k1, w * 2, k2, beta * w])) for _ in range(2))
        total = total + Em(m, v.exp() * (u.exp() - 1 - u) * scale)
        rows.append({"scale": str(scale), "measure": m, "u": u.to_json(), "v": v.to_json()})
    right = left + total
    honest = accepts("tangent", left, right, {"terms": rows}, Statement(left, right, BETA, "<="))
    assert not honest or at_most(left, right)
    assert not accepts("tangent", left, right, {"terms": rows}, Statement(left, right, BETA, "="))


@CHECK
@given(elements(), MEASURE, SCORE, SCORE, ERRORS)
def test_what_square_accepts_is_an_inequality(element, measure, score, other, error):
    mean = Side.atom(E(measure, element, score))
    left, right = mean.times(mean), Side.atom(E(measure, element * element, score + other)) + error
    data = {"b": element.to_json(), "measure": measure, "score": list(score)}
    honest = accepts("square", left, right, data, Statement(left, right, BETA, "<="))
    fits = other == score or not element
    assert honest == (measure != "count" and fits and not error.terms)
    assert not honest or at_most(left, right)


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
    q, p, mu = ([f"{x}/{sum(row)}" for x in row] for row in weights)
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
        element = draw(elements(VARIABLES, 2))
        kinds = [E(draw(MEASURE), element, draw(SCORE)), Point(element, draw(SCORE))]
        atoms = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2))
        total = total + Side.of((draw(SMALL), tuple(atoms)))
    return total


VALUES = values_to_compare()


@CHECK
@given(VALUES, VALUES, models(), st.sampled_from(["=", "<="]), st.booleans())
def test_what_a_finite_model_refutes_is_false_in_it(left, right, model, relation, equal):
    right = left if equal else right
    read = Model.from_json(model, BETA)
    ends = {n: enclose(side, read) for n, side in (("left", left), ("right", right))}
    data = {"model": model} | {n: [str(i.lower), str(i.upper)] for n, i in ends.items()}
    x, y = values(left, right, world_of(model))
    for value, name in ((x, "left"), (y, "right")):
        slack = 1e-9 * (1 + abs(value))
        assert float(ends[name].lower) - slack <= value <= float(ends[name].upper) + slack
    if accepts("finite model", left, right, data, Statement(left, right, BETA, relation)):
        assert not equal and x != y
        assert relation == "=" or x > y
    else:
        assert same(x, y) or (relation == "<=" and x < y)


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


class Grid(World):
    """Independent values of k1, w, log_q, R and A; `theta` moves log q at all of them."""

    def __init__(self) -> None:
        super().__init__(0)
        stream = np.random.default_rng(7)
        self.live = dict(zip(("k1", "w", "log_q"), stream.normal(size=(3, 60)), strict=True))
        self.free = dict(zip(("R", "A"), stream.normal(size=(2, 60)), strict=True))
        self.p = np.zeros(60)

    def variable(self, name: str, theta: Any) -> Any:
        if name in self.live:
            return self.live[name] + theta
        return {**self.parameters, **self.free}[name]


def is_combination(c: ExpPoly) -> bool:
    """c = x k1 + y r + (free of theta) iff dc/dlog q = x - y r."""
    grid = Grid()
    slope = np.imag(grid.value(c, 1e-30j)) / 1e-30
    basis = np.stack([np.ones(60), np.exp(-grid.live["k1"])], axis=1)
    solution = np.linalg.lstsq(basis, slope, rcond=None)[0]
    return bool(np.abs(basis @ solution - slope).max() <= 1e-7 * (1 + np.abs(slope).max()))


def test_the_oracle_knows_combinations():
    assert is_combination(k1 * 2 - r * beta + w - k1) and not is_combination(k2)


@CHECK
@given(elements(("k1", "R", "A", "beta")), st.data())
def test_what_independence_accepts_is_no_combination(c, data):
    key, value = data.draw(st.sampled_from(sorted(c.terms.items()) or [(((), ()), 1)]))
    draft = apart(c, ExpPoly({key: value}), parameters=("beta",))
    statement = Statement(Em("q", c, 1), NOTHING, BETA)
    close = {"term": draft.part["close"]["term"]}
    if accepts("independence", statement.left, statement.right, close, statement):
        assert not is_combination(c)
