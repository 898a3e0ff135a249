"""Regions and inverses in the numeric oracle, against sums and differences that are written out here."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from klsym.engine.explain import explain
from klsym.errors import UsageError
from klsym.kernel.intervals import Interval
from klsym.kernel.statements import LOG, REGION, Definition
from klsym.language.abbreviations import E, Point, with_coefficient
from klsym.numeric.evaluation import enclose, evaluate
from klsym.numeric.exact import check_theorem
from klsym.numeric.model_variables import Frame
from klsym.numeric.models import FiniteModel, random_model
from klsym.numeric.number_systems import EXACT, FLOAT, NESTED
from klsym.numeric.random_models import allowed
from support.oracle_atoms import *

Q = ["1/2", "1/3", "1/6"]
P = ["1/5", "2/5", "2/5"]
MU = ["1/4", "1/2", "1/4"]
U = [1, -2, 3]
MODEL = FiniteModel(
    Q, P, U, MU, parameters={"lam": "1/2"}, rewards={"A": ["2", "-1", "3"], "R": ["1", "0", "2"]}
)  # rho is 2, 2/3 and 2/3
A, R, high, inv = V("A"), V("R"), V("high"), (-V("inv")).exp()
TOP = rho("x") - Fraction(6, 5)


def where(e: ExpPoly, kind: str = REGION, name: str = "high", **more: Any) -> Context:
    return Context(parameters=("lam",), definitions=(Definition(name, kind, e),), **more)


def side(atom: Any) -> Side:
    return Side.atom(atom)


def both(of: Side, context: Context, model: FiniteModel = MODEL) -> float:
    """The value in floats, which is that of the enclosure too."""
    claim = Statement(of, Side(), context)
    number, (enclosure, _) = evaluate(claim, model)[0], enclose(claim, model)
    assert float(enclosure.lower) - 1e-12 <= number <= float(enclosure.upper) + 1e-12
    return number


# ---------------------------------------------------------------------------- by hand
def softmax(t: float, along: Any = U, q: Any = None) -> list[float]:
    weights = [x * math.exp(t * u) for x, u in zip(q or [1 / 2, 1 / 3, 1 / 6], along, strict=True)]
    return [x / sum(weights) for x in weights]


def rows(q: Any) -> list[dict[str, float]]:
    p, mu = ([float(Fraction(x)) for x in row] for row in (P, MU))
    rewards = zip((2, -1, 3), (1, 0, 2), strict=True)
    return [
        {"q": a, "p": b, "mu": c, "rho": a / c, "k1": math.log(a / b), "A": adv, "R": reward}
        for a, b, c, (adv, reward) in zip(q, p, mu, rewards, strict=True)
    ]


def slope(function: Any, h: float = 1e-5) -> float:
    return float((8 * (function(h) - function(-h)) - function(2 * h) + function(-2 * h)) / (12 * h))


def surrogate(x: Any) -> float:
    """min(rho A, clip(rho, 4/5, 6/5) A)."""
    return min(x["rho"] * x["A"], min(max(x["rho"], 0.8), 1.2) * x["A"])


# ---------------------------------------------------------------------------- values
SIGNS = [
    (TOP, [1, 0, 0]), (-TOP, [0, 1, 1]), (rho("x") - 2, [0, 0, 0]), (2 - rho("x"), [0, 1, 1]),
    (rho("x") - Fraction(199, 100), [1, 0, 0]), (R, [1, 0, 1]), (-R, [0, 0, 0]), (A, [1, 0, 1]),
    (at("w", "x"), [1, 0, 0]), (k1("x"), [1, 0, 0]), (V("lam") - Fraction(1, 2), [0, 0, 0]),
    (V("lam") - Fraction(1, 3), [1, 1, 1]), (ExpPoly.number(0), [0, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("e", "expected"), SIGNS, ids=range(len(SIGNS)))
@pytest.mark.parametrize("name", ["high", "sg(high)"])
def test_a_region_is_1_where_e_is_positive_and_0_elsewhere(e, expected, name):
    """So it is on the bound, at rho = 2 and R = 0, in three number systems."""
    context = where(e)
    for system, element in product((FLOAT, EXACT, NESTED), (V(name), V(name) ** 2)):
        found = Frame(MODEL, system, context, {}).rows().polynomial(element).value
        values = [x.value.value if system is NESTED else x.value if system is EXACT else x for x in found]
        assert values == [x if system is FLOAT else Interval.exact(x) for x in expected]
    wanted = sum(float(Fraction(m)) * 3 * a * b for m, a, b in zip(MU, (2, -1, 3), expected, strict=True))
    assert math.isclose(both(side(E("mu", A * V(name) * 3)), context), wanted, abs_tol=1e-15)
    assert [both(side(Point(V(name))), context, replace(MODEL, outcome=x)) for x in range(3)] == expected


def test_a_tie_is_a_tie_in_floats_and_a_sign_that_is_not_decided_is_told():
    """On-policy w is 0 at every sample, whatever rounding does; logs that are enclosed may differ."""
    for e in (at("w", "x"), rho("x") - 1, 1 - rho("x")):
        context = where(e, on_policy=True)
        for seed in range(20):
            model = random_model(seed, 2 + seed % 5, context)
            assert evaluate(Statement(side(E("q", high)), Side(), context), model)[0] == 0
    context, same = where(k1("x") - at("w", "x")), replace(MODEL, mu=P)
    claim = Statement(side(E("q", high)), Side(), context)
    assert evaluate(claim, same)[0] == 0
    with pytest.raises(UsageError, match="the sign of what defines high is not decided"):
        enclose(claim, same)


# ---------------------------------------------------------------------------- slopes
def test_regions_are_constant_and_logs_move():
    """d/dt of sum mu L, and of sum q_t L, by differences."""
    cases = [
        (REGION, TOP, high * k1("x") ** 2 + (high * k1("x")).exp(),
         lambda x: (x["rho"] > 1.2) * x["k1"] ** 2 + math.exp((x["rho"] > 1.2) * x["k1"])),
        (LOG, 1 + rho("x"), inv * k1("x") * A, lambda x: x["k1"] * x["A"] / (1 + x["rho"])),
        (LOG, (k1("x") * A) ** 2 + 1, inv**2 + V("inv"),
         lambda x: 1 / (1 + (x["k1"] * x["A"]) ** 2) ** 2 + math.log(1 + (x["k1"] * x["A"]) ** 2)),
        (LOG, A * A, inv * k1("x"), lambda x: x["k1"] / x["A"] ** 2),
    ]  # fmt: skip
    for kind, e, loss, literal in cases:
        context = where(e, kind, "high" if kind == REGION else "inv")
        moves = {
            m: slope(lambda t, m=m, f=literal: sum(x[m] * f(x) for x in rows(softmax(t))))
            for m in ("q", "mu")
        }
        for m in ("q", "mu"):
            assert math.isclose(both(grad(side(E(m, loss))), context), moves[m], rel_tol=1e-9)
        found = both(side(ExpectedGradient("mu", loss)), context)
        assert math.isclose(found, moves["mu"], rel_tol=1e-9)
        assert both(side(ExpectedGradient("mu", sg(loss))), context) == 0


def test_the_clipped_surrogate_has_the_slope_of_the_loss_that_trainers_write():
    definitions = tuple(
        Definition(name, REGION, e)
        for name, e in (("high", TOP), ("low", Fraction(4, 5) - rho("x")), ("gain", A))
    )
    context = Context(definitions=definitions)
    stopped = V("gain") * high + (1 - V("gain")) * V("low")
    bound = V("gain") * high * Fraction(6, 5) + (1 - V("gain")) * V("low") * Fraction(4, 5)
    loss = A * (rho("x") * (1 - stopped) + bound)
    expected = slope(lambda t: sum(x["mu"] * surrogate(x) for x in rows(softmax(t))))
    assert math.isclose(both(grad(side(E("mu", loss))), context), expected, rel_tol=1e-9)
    assert abs(expected) > 0.1
    for n, wrong in ((0, -TOP), (0, rho("x") - 3), (1, 1 - 2 * rho("x")), (2, -A)):
        other = replace(context, definitions=(*definitions[:n], definitions[n]._replace(e=wrong),
                                              *definitions[n + 1 :]))  # fmt: skip
        found = both(grad(side(E("mu", loss))), other)
        assert not math.isclose(found, expected, rel_tol=1e-3)


def test_where_a_region_changes_a_mean_has_no_gradient_that_is_told():
    """A jump is not taken for a continuous change: differences grow as 1/h, and it is refused."""
    context = where(rho("x") - 2)

    def jump(t: float) -> float:
        return sum(x["mu"] * (x["rho"] > 2) for x in rows(softmax(t)))

    growing = [(jump(h) - jump(-h)) / (2 * h) for h in (1e-3, 1e-6)]
    assert abs(growing[1]) > 100 * abs(growing[0]) > 0
    for of in (grad(side(E("mu", high))), grad(side(E("q", high * A))), grad(side(Point(high)))):
        claim = Statement(of, Side(), context)
        for function in (evaluate, enclose):
            with pytest.raises(UsageError, match="a sample lies where high changes"):
                function(claim, MODEL)
    assert both(side(ExpectedGradient("mu", high)), context) == 0  # what autograd takes
    assert both(grad(side(E("mu", high))), where(R)) == 0  # on the bound at R = 0, which does not move
    assert both(grad(side(E("mu", high))), where(rho("x") - Fraction(201, 100))) == 0


@pytest.mark.parametrize("e", [R, rho("x") - 2, V("lam") * 2 - 1, A], ids=["R", "rho", "lam", "A"])
def test_logs_of_what_is_not_positive_are_refused(e):
    claim = Statement(side(E("mu", inv)), Side(), where(e, LOG, "inv"))
    for function in (evaluate, enclose):
        with pytest.raises(UsageError, match="inv is log\\(e\\), and e <= 0"):
            function(claim, MODEL)


# ---------------------------------------------------------------------------- tokens and batches
TREE = FiniteModel(
    q=["1/3", "2/3", "1/4", "3/4"], p=["1/2", "1/2", "1/3", "2/3"], mu=["3/5", "2/5", "1/2", "1/2"],
    u=[1, 0, 2, -1], v=[0, 1, 1, 0], shape=(None, (None, None)),
    rewards={"R": [1, 2, -1, 3], "A": [1, -2, 3]},
)  # fmt: skip
PATHS = ((0,), (1, 2), (1, 3))


def test_regions_of_tokens_and_of_what_came_before():
    q, p, mu, reward = ([float(x) for x in row] for row in (TREE.q, TREE.p, TREE.mu, TREE.rewards["R"]))
    prefix = Definition("over", REGION, at("w", "past") + at("w", "now") - Fraction(1, 5))
    context = Context(definitions=(Definition("high", REGION, TOP), prefix))
    total = 0.0
    for path in PATHS:
        chance = math.prod(q[b] for b in path)
        for t, b in enumerate(path):
            ratio = math.prod(q[c] / mu[c] for c in path[: t + 1])
            here = 10 * (q[b] / mu[b] > 1.2) + (math.log(ratio) > 0.2) * math.log(q[b] / p[b])
            total += chance * (here + reward[b] * (math.prod(q[c] / mu[c] for c in path) > 1.2))
    loss = at("high", "now") * 10 + V("over") * k1("now") + at("R", "now") * high
    assert math.isclose(both(mean("t", "q", loss), context, TREE), total, rel_tol=1e-12)
    moved = replace(context, definitions=(context.definitions[0], prefix._replace(e=prefix.e - 1)))
    assert not math.isclose(both(mean("t", "q", loss), moved, TREE), total, rel_tol=1e-3)


def test_regions_of_batches():
    win = Definition("win", REGION, at("R", "self") - at("R", "others"))
    context = Context(parameters=("n",), definitions=(Definition("high", REGION, TOP), win))
    model, found = replace(MODEL, parameters={"n": 2}), rows(softmax(0))
    expected = sum(
        x["mu"] * y["mu"] * ((x["R"] > y["R"]) * 3 + (x["rho"] > 1.2) * y["R"])
        for x, y in product(found, found)
    )
    of = mean("i", "mu", V("win") * 3 + at("high", "self") * at("R", "others"))
    assert math.isclose(both(of, context, model), expected, rel_tol=1e-12)
    flipped = replace(context, definitions=(context.definitions[0], win._replace(e=-win.e + 1)))
    assert not math.isclose(both(of, flipped, model), expected, rel_tol=1e-3)


def test_the_curl_of_a_field_with_a_region():
    """E_q[sum_t over_t sg(k1_past) s_t]: the derivatives of both components by differences."""
    over = Definition("over", REGION, at("w", "past") + at("w", "now") - Fraction(1, 5))
    p, mu = ([float(x) for x in row] for row in (TREE.p, TREE.mu))
    nodes = (slice(0, 2), slice(2, 4))

    def field(s: float, over_: Any, along: Any) -> float:
        q = [x for node in nodes for x in softmax(s, over_[node], [float(x) for x in TREE.q[node]])]
        mean_u = [sum(a * u for a, u in zip(q[n], along[n], strict=True)) for n in nodes for _ in range(2)]
        total = 0.0
        for path in PATHS:
            for t, b in enumerate(path):
                inside = math.prod(q[c] / mu[c] for c in path[: t + 1]) > math.exp(0.2)
                past = sum(math.log(q[c] / p[c]) for c in path[:t])
                total += math.prod(q[c] for c in path) * inside * past * (float(along[b]) - mean_u[b])
        return total

    u, v = ([float(x) for x in row] for row in (TREE.u, TREE.v))
    expected = slope(lambda s: field(s, v, u)) - slope(lambda s: field(s, u, v))
    assert abs(expected) > 1e-3
    loss = V("over") * sg(k1("past")) * k1("now")
    context = Context(definitions=(over,))
    assert math.isclose(both(side(Curl("t", "q", loss)), context, TREE), expected, rel_tol=1e-7)
    below = replace(context, definitions=(over._replace(e=-over.e),))
    assert not math.isclose(both(side(Curl("t", "q", loss)), below, TREE), expected, rel_tol=1e-2)


# ---------------------------------------------------------------------------- models
def theorem(context: Context, *hypotheses: Any) -> Any:
    return SimpleNamespace(statement=Statement(Side(), Side(), context), hypotheses=hypotheses)


@pytest.mark.parametrize("kind", ["off", "apart", "away"])
def test_models_stay_off_the_bounds_that_a_theorem_excludes(kind):
    context = where(rho("x") - 2)
    for e in (rho("x") - 2, R, V("lam") * 2 - 1):
        found = allowed(theorem(context, (kind, "mu", e)), MODEL, {})
        values = [float(x.value.lower) for x in Frame(found, EXACT, context, {}).rows().polynomial(e).value]
        assert 0 not in values and found.exact
    assert allowed(theorem(context, (kind, "mu", rho("x") - 7)), MODEL, {}) == MODEL
    with pytest.raises(UsageError, match="has samples where the theorem excludes"):
        allowed(
            theorem(replace(context, on_policy=True), (kind, "q", at("w", "x"))), replace(MODEL, mu=Q), {}
        )


def test_models_stay_where_logs_have_a_value():
    context = where(1 + R, LOG, "inv")
    for e in (rho("x") - Fraction(3, 5), R, R + V("lam") * 2 - 1):
        found = allowed(theorem(context, ("above", "mu", e)), MODEL, {})
        values = [x.value for x in Frame(found, EXACT, context, {}).rows().polynomial(e).value]
        assert all(x.lower > 0 for x in values), e
    with pytest.raises(UsageError, match="has samples where the theorem excludes"):
        allowed(theorem(context, ("above", "mu", -R * R)), MODEL, {})


def test_models_satisfy_the_facts_that_a_theorem_assumes():
    context = where(TOP, facts=(V("lam"), 1 - R), witness=(("R", 0), ("lam", 1)))
    below = replace(MODEL, parameters={"lam": -3})
    found = allowed(theorem(context, ("fact", V("lam")), ("fact", 1 - R)), below, {})
    assert found.parameters["lam"] >= 0 and max(found.rewards["R"]) <= 1 < max(MODEL.rewards["R"])
    assert allowed(theorem(context), below, {}) == below  # what is not assumed may fail


@pytest.mark.parametrize("level", ["sample", "token"])
@pytest.mark.parametrize("bound", ["4/5, 6/5", "1 - eps, 1 + eps"])
def test_theorems_on_clipped_losses_pass_and_their_neighbours_fail(level, bound):
    """A neighbour has another region on its right side: flipped, or with its bound moved."""
    verdict = explain(f"-min(rho*A, clip(rho, {bound})*A)", sampling="off-policy", level=level)
    proved = verdict.proofs[0].theorem
    assert check_theorem(proved).passed
    statement, tried = proved.statement, 0
    for name, kind, e in statement.context.definitions:
        for wrong in (-e, e - 1, e + 1):
            definitions = (*statement.context.definitions, Definition("wrong", kind, wrong))
            context = replace(statement.context, definitions=definitions)
            right = renamed(statement.right, name)
            assert right != statement.right
            neighbour = replace(statement, right=right, context=context)
            hypotheses = proved.hypotheses
            found = SimpleNamespace(kind="proved", statement=neighbour, hypotheses=hypotheses, zeros=())
            assert not check_theorem(found, range(12)).passed, (name, wrong)
            tried += 1
    assert tried >= 6


def renamed(of: Side, name: str) -> Side:
    """The side with the name `wrong` in place of another, in whichever slot."""
    terms = []
    for coefficient, atoms in of.terms:
        changed = (
            with_coefficient(a, a.coefficient.rename(lambda n: re.sub(rf"\b{name}\b", "wrong", n)))
            for a in atoms
        )
        terms.append((coefficient, tuple(changed)))
    return Side.of(*terms)
