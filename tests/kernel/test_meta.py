"""Completeness, independence and premises in numbers: what the kernel accepts is true."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import Polynomial

from klsym.errors import NotInRing, Refused
from klsym.kernel import Theorem, certify
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.meta import check_completeness
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context, Side, Statement
from support.certificates.applying import CHECK
from support.certificates.faulty_certificates import (
    NOTHING,
    ONE,
    A,
    Draft,
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
    rho,
    sg,
    w,
)
from support.faulty.closings import QUADRATIC, apart, solved
from support.oracle.values import of_k1, same, worth
from support.oracle.worlds import OfK1, softmax_world

SMALL = st.sampled_from([-2, -1, 1, 2, 3, Fraction(1, 2), Fraction(-3, 2)])


@st.composite
def elements(draw: Any, names: tuple[str, ...], largest: int = 3) -> ExpPoly:
    """A sum of up to `largest` terms: powers of names times exp of small multiples of them."""
    total = number(0)
    for _ in range(draw(st.integers(1, largest))):
        term = number(draw(SMALL))
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            term = term * ExpPoly.from_variable(name)
        if "beta" in names and draw(st.integers(0, 4)) == 0:
            term = term * beta.invert()
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            term = term * (ExpPoly.from_variable(name) * draw(SMALL) * Fraction(1, 2)).exp()
        total = total + term
    return total


def accepted(draft: Draft) -> Theorem | None:
    """The theorem of a draft, or None."""
    try:
        return certify(draft.part, {})[1]
    except (Refused, NotInRing):
        return None


# ---------------------------------------------------------------------------- completeness
HALF = ExpPoly.from_number(2).invert()
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

    rows = [(Fraction(value), power, Fraction(0)) for power, value in enumerate(polynomial.coef)]
    found = []
    for seed in range(4):
        world = softmax_world(seed)
        world.functions["g"] = OfK1((*rows, (Fraction(exponential), 0, Fraction(-1))))
        found.append(same(worth(Em("q", c, 1), world), 0.0))
    return found


@pytest.mark.parametrize("case", SOLVED, ids=lambda case: case[0])
def test_completeness_finds_exactly_the_solutions(case):
    _, c, family, letters, how, member, exponential, outsiders = case
    theorem = accepted(solved(c, family, letters, **how))
    assert theorem is not None and theorem.kind == "unique"
    assert all(worlds_where(c, member, exponential))
    for outsider in outsiders:
        assert not all(worlds_where(c, outsider, 0))


GOALS = [k1, -r, k2, k1 * 2 - r * 3, k2 * beta + r]  # what g^(n) must be, along k1
SETUPS = [  # the factor of g^(n) - goal, the coordinate that tells it, and the unit that frees it
    (ONE, "k1", ONE), (number(2), "k1", HALF), (beta, "k1", beta.invert()), (R, "k1", R.invert()),
    (beta.exp(), "k1", (-beta).exp()), (w, "w", ONE), (w * beta, "w", beta.invert()),
    (w * R, "w", R.invert()), ((-w).exp(), "w", -w.exp()), (log_q, "log_q", ONE),
    ((-w).exp() * A, "w", -w.exp() * A.invert()), (w * R, "w", ONE), (w + k1, "w", ONE),
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
        c = (ExpPoly.from_variable("g" + "'" * jet) - goal) * factor + draw(*EXTRAS)
        family = goal
        for _ in range(jet):
            family = integral(family)
        order = jet + (how == "k1")
        letters = data.draw(st.permutations("ab"[:order] if order < 3 else ("a", "b", "nu")))
        free = sum((ExpPoly.from_variable(x) * k1**i for i, x in enumerate(letters)), number(0))
        relation = draw("=", "=", "=", "=", "<=")
        how = {"unit": unit, "coordinate": how, "relation": relation}
        draft = solved(c, family + free, letters, parameters=("a", "b", "nu", "beta"), **how)
        theorem = accepted(draft)
        counts["refused" if theorem is None else "accepted"] += 1
        if theorem is None:
            return
        assert relation == "="
        for beta_is in (0.7, -2.0, *(() if ("nonzero", "beta") in theorem.hypotheses else (0.0,))):
            for scale in (1.0, 0.0):  # of the rewards
                cases = [(seed, beta_is, scale) for seed in range(3)]
                assert all(zero_with(c, family + free, *case) for case in cases)
                assert not all(zero_with(c, family + free + k1**order, *case) for case in cases)

    run()
    assert counts["accepted"] >= 10 and counts["refused"] >= 10, counts


def zero_with(c: ExpPoly, member: ExpPoly, seed: int, beta_is: float, scale: float) -> bool:
    """Is E_q[c s] = 0 in a world with this function for g?"""
    world = softmax_world(seed)
    if not scale:
        world.free_value = lambda key: Fraction(0)  # type: ignore[method-assign]
        for token in {token for path in world.paths for token in path}:
            token.rewards.update(R=Fraction(0), H=Fraction(0))
    values = {"a": 0.6, "b": -1.1, "nu": 0.4, "beta": beta_is}
    world.parameters = {name: Fraction(value) for name, value in values.items()}
    world.functions["g"] = of_k1(member, world.parameters)
    return same(worth(Em("q", c, 1), world), 0.0)


# ---------------------------------------------------------------------------- independence
GROUP = np.repeat(np.arange(5), 16)
POINTS = np.random.default_rng(7)
LIVE = dict(zip(("k1", "w", "log_q"), POINTS.uniform(-1, 1.5, (3, 80)), strict=True))
LIVE |= dict(zip(("R", "A"), POINTS.uniform(-1, 1.5, (2, 5))[:, GROUP], strict=True))


def at_points(c: ExpPoly, beta_is: float) -> Any:
    """At independent values of k1, w and log_q for each of a few values of the rewards R and A."""
    known: dict[str, Any] = {**LIVE, "beta": beta_is}

    def power_product(powers: Any) -> Any:
        return math.prod((known[name] ** float(k) for name, k in powers), start=np.ones(80))

    total = np.zeros(80)
    for (powers, exponent), factor in c.terms.items():
        inside = sum((float(v) * power_product(inner) for inner, v in exponent), np.zeros(80))
        total = total + float(factor) * power_product(powers) * np.exp(inside)
    return total


def is_combination(c: ExpPoly, beta_is: float = 0.7310585) -> bool:
    """Is c = x k1 + y r + h(R, A)?  The columns of h say at which rewards a point lies."""
    values = at_points(c, beta_is)
    columns = [LIVE["k1"], np.exp(-LIVE["k1"]), *np.eye(5)[:, GROUP]]
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
        drafts = [apart(c, ExpPoly({key: value}), parameters=("beta",)) for key, value in c.terms.items()]
        theorems = [theorem for theorem in map(accepted, drafts) if theorem is not None]
        assert bool(theorems) == (not is_combination(c))
        counts[bool(theorems)] += 1
        for theorem in theorems:
            assumed = theorem.hypotheses
            excluded = {0.0} if "beta" in c.collect_divisors() or ("nonzero", "beta") in assumed else set()
            special = () if ("generic", "beta") in assumed else {0.0, 1.0, -1.0, 2.0, -2 / 3} - excluded
            assert not any(is_combination(c, value) for value in special)

    run()
    assert min(counts.values()) >= 8, counts


@pytest.mark.parametrize(
    "change",
    [{"functions": (("f", ("w",)),)}, {"premises": ((NOTHING, NOTHING),)}, {"right": Em("q", k1, 1)}],
)
def test_independence_speaks_of_all_models_and_of_the_left_side(change):
    assert accepted(apart(w * k1, w * k1)) is not None
    assert accepted(apart(w * k1, w * k1, **change)) is None


# ---------------------------------------------------------------------------- premises
NAMES = [("k1", "w", "log_q", "f", "sg(k1)", "sg(f)"), ("k1", "f", "R"), ("k1", "log_q", "sg(w)")]


def attached(x: ExpPoly) -> ExpPoly:
    return x.rename(lambda n: n.removeprefix("sg(").removesuffix(")"))


def test_the_gradient_of_a_premise_is_that_of_its_sides():
    """Two sides with the same value for every theta, as the author of a premise may see it."""
    counts: Counter[bool] = Counter()

    @CHECK
    @given(st.sampled_from(NAMES).flatmap(lambda names: elements(names, 2)), st.booleans(), st.booleans())
    def run(element: ExpPoly, other: bool, forward: bool) -> None:
        second = Em("mu", rho * attached(element)) if other else Em("q", attached(element))
        left, right = (Em("q", element), second) if forward else (second, Em("q", element))
        context: dict[str, Any] = {"parameters": (), "functions": (("f", ("k1", "log_q", "w")),)}
        draft = Draft(grad(left), grad(right), premises=((left, right),), **context)
        worlds = [softmax_world(seed) for seed in range(2)]
        assert all(same(worth(left, world), worth(right, world)) for world in worlds)
        found = accepted(draft.equation(0, grad(right), gradient=1))
        counts[found is not None] += 1
        assert (found is not None) == (not any(name.startswith("sg(") for name in element.names()))
        if found is not None:
            assert all(same(worth(grad(left), world), worth(grad(right), world)) for world in worlds)

    run()
    assert min(counts[True], counts[False]) >= 10, counts


def test_equal_values_with_unlike_gradients_are_told_apart_by_the_oracle():
    world = softmax_world(1)
    assert same(worth(Em("q", sg(k2)), world), worth(Em("q", k2), world))
    assert not same(worth(grad(Em("q", sg(k2))), world), worth(grad(Em("q", k2)), world))


# ---------------------------------------------------------------------------- the theorem, called alone
FREE = ("a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")


def called(
    c: ExpPoly, right: Side = NOTHING, order: int = 1, family: ExpPoly | None = None, **more: Any
) -> Any:
    """completeness for E_q[c s] = 0 in g(k1), with the unit 1 and polynomials as the family."""
    context = Context(parameters=FREE, functions=(("g", ("k1",)),))
    free = sum((ExpPoly.from_variable(x) * k1**i for i, x in enumerate(FREE[:order])), number(0))
    data = {
        "function": "g", "family": (free if family is None else family).to_json(), "unit": ONE.to_json(),
        "coordinate": "k1", "order": order, "constants": list(FREE[:order]),
    } | more  # fmt: skip
    assumed, statement = Assumptions(context), Statement(Em("q", c, 1), NOTHING, context)
    check_completeness(statement.left, right, data, statement, assumed)
    return assumed.found


def test_up_to_eight_constants():
    for order in (1, 2, 7, 8):
        assert called(ExpPoly.from_variable("g" + "'" * (order - 1)), order=order) == set()
    with pytest.raises(Refused, match="order: an integer from 1 to 8"):
        called(ExpPoly.from_variable("g" + "'" * 8), order=9)
    with pytest.raises(Refused, match="order: an integer from 1 to 8"):
        called(ExpPoly.from_variable("g"), order=0)


def test_the_right_side_stays_zero():
    with pytest.raises(Refused, match="the right side is not 0"):
        called(ExpPoly.from_variable("g"), right=Em("q", k1, 1) - Em("q", k1))


def test_a_free_constant_is_new():
    with pytest.raises(Refused, match="a free constant stands in the equation"):
        called(ExpPoly.from_variable("g") + ExpPoly.from_variable("a0"))
    with pytest.raises(Refused, match="a free constant is not declared"):  # k1, which the family cannot see
        called(
            ExpPoly.from_variable("g'") * rho,
            family=k1,
            constants=["k1"],
            unit=rho.invert().to_json(),
            coordinate="w",
        )
    with pytest.raises(Refused, match="unknown name 'c'"):
        called(ExpPoly.from_variable("g"), family=ExpPoly.from_variable("c"), constants=["c"])
    with pytest.raises(Refused, match="family: a function of k1 alone"):
        called(ExpPoly.from_variable("g"), family=ExpPoly.from_variable("w"), constants=["a0"])


def test_the_free_constants_are_a_list():
    """A text of the right length is none, though each letter of it names a constant."""
    part = solved(g1 - k1, QUADRATIC, "ba").part
    assert certify(part, {})[1].kind == "unique"
    with pytest.raises(Refused, match="constants: a list expected"):
        certify({**part, "close": {**part["close"], "constants": "ba"}}, {})
