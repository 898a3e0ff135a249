"""Verdicts on theorems that are no equations: refuted, unique, independent."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np

from klsym.kernel import Theorem
from klsym.kernel.ring import ONE, ExpPoly
from klsym.kernel.statements import Mean
from support.oracle.numbers import Undefined, Unsupported, as_float, as_long, exp
from support.oracle.statements import Oracle, Place
from support.oracle.terms import VALUE, terms_of
from support.oracle.values import of_k1, worth
from support.oracle.worlds import END, OfK1, World, softmax_world, world_of

from .judge import Outside, Verdict, check_hypotheses, judge, wanted_of
from .random_worlds import ODD, VALUES, definitions_of, random_function, random_world

TRUE, FALSE, UNKNOWN = "true", "false", "not judged"


def judged(theorem: Theorem) -> str:
    """`true`, `false`, or `not judged`: no world that was tried satisfies what it assumes."""
    verdict = judge_any(theorem, random.Random(0))
    if verdict.against:
        return FALSE
    return TRUE if verdict.judged["full"] or verdict.judged["boundary"] else UNKNOWN


def judge_any(theorem: Theorem, rng: random.Random) -> Verdict:
    """A verdict on a theorem of any kind."""
    return {"proved": judge, "refuted": refuted, "unique": unique, "independent": independent}[theorem.kind](
        theorem, rng
    )


# ---------------------------------------------------------------------------- refuted
def refuted(theorem: Theorem, rng: random.Random) -> Verdict:
    """The recorded model satisfies the hypotheses and contradicts the statement, within the recorded ends."""
    verdict, statement, close = Verdict(), theorem.statement, theorem.close
    world = world_of(close["model"])
    world.definitions = definitions_of(statement.context)
    world.functions = {
        name: random_function(arguments, rng) for name, arguments in statement.context.functions
    }
    try:
        oracle = Oracle(world, as_long)
        left, right = oracle.side(statement.left), oracle.side(statement.right)
        check_hypotheses(theorem, oracle, lambda x, y, peak: abs(x - y) < 1e-30 * (1 + peak))
    except (Undefined, Unsupported, Outside, ZeroDivisionError) as error:
        verdict.judged[f"refuted, {type(error).__name__} {error}"[:40]] += 1
        if isinstance(error, Outside | ZeroDivisionError):
            verdict.against = {"world": world.describe(), "why": f"outside its own hypotheses: {error}"}
        return verdict
    verdict.judged["full"] += 1
    verdict.judged["T>1"] += any(len(path) > 1 for path in world.paths)
    verdict.nontrivial = True
    wrong = abs(left - right) < 1e-24 if statement.relation == "=" else left < right
    inside = all(_inside(value, close[name]) for name, value in (("left", left), ("right", right)))
    if wrong or not inside:
        verdict.against = {"world": world.describe(), "left": str(left), "right": str(right)}
    return verdict


def _inside(value: Any, ends: list[str]) -> bool:
    lower, upper = (as_long(Fraction(end)) for end in ends)
    slack = (1 + abs(value)) * as_long(Fraction(1, 10**40))
    return bool(lower - slack <= value <= upper + slack)


# ---------------------------------------------------------------------------- unique
def unique(theorem: Theorem, rng: random.Random) -> Verdict:
    """The family satisfies the equation in every world; what differs by more than its constants does not."""
    verdict, close = Verdict(), theorem.close
    family, size, number = ExpPoly.from_json(close["family"]), len(close["constants"]), Fraction(3, 2)
    others = [
        (number, size, Fraction(0)),
        (number, size + 1, Fraction(0)),
        (-number, 0, rng.choice(VALUES[1:])),
    ]
    solved = [True] * len(others)
    while verdict.judged["full"] < 6 or (any(solved) and verdict.judged["full"] < 60):
        world = random_world(wanted_of(theorem, False, False), theorem.statement.context, (), rng)
        rows = of_k1(family, world.parameters).rows
        for i, more in enumerate([(), *((extra,) for extra in others)]):
            world.functions[close["function"]] = OfK1((*rows, *more))  # type: ignore[assignment]
            oracle = Oracle(world, as_long)
            solves = abs(oracle.side(theorem.statement.left)) < 1e-30 * (1 + oracle.peak)
            if not i and not solves:
                verdict.against = {"world": world.describe(), "why": "the family is no solution"}
                return verdict
            if i:
                solved[i - 1] &= solves
        verdict.judged["full"] += 1
    verdict.nontrivial = not any(solved)
    if any(solved):
        verdict.against = {"why": f"other functions solve it too: {others}, {solved}"}
    return verdict


# ---------------------------------------------------------------------------- independent
def independent(theorem: Theorem, rng: random.Random) -> Verdict:
    """No a, b and h give c = a k1 + b exp(-k1) + h(R, A) + constant at random points."""
    verdict, [(_, (mean,))] = Verdict(), theorem.statement.left.terms
    if not isinstance(mean, Mean):
        return _independent_fields(theorem, rng)
    parameters = {name: rng.choice(VALUES) for name in theorem.statement.context.parameters}
    for h in theorem.hypotheses:
        parameters |= {h[1]: rng.choice(ODD if h[0] == "generic" else VALUES[1:])} if len(h) == 2 else {}
    oracle = Oracle(World(((),), (), 1, parameters, {}), as_float)
    rows, values = [], []
    for group in range(4):
        rewards = {name: float(rng.choice(VALUES)) for name in ("R", "A", "H")}
        rewards["length"] = float(rng.choice((1, 2, 3)))
        for _ in range(10):
            point = {"k1": rng.uniform(-1.5, 1.5), "w": rng.uniform(-1.5, 1.5), "log_q": rng.uniform(-2, 0)}
            point["o"] = rng.uniform(-1.5, 1.5)
            rows.append([point["k1"], exp(-point["k1"]), *(float(i == group) for i in range(4))])
            values.append(_at(mean.coefficient, {**point, **rewards}, oracle))
    matrix, target = np.array(rows), np.array(values)
    rest = target - matrix @ np.linalg.lstsq(matrix, target, rcond=None)[0]
    verdict.judged["full"] += 1
    verdict.nontrivial = True
    if np.abs(rest).max() < 1e-9 * (1 + np.abs(target).max()):
        verdict.against = {
            "parameters": {k: str(v) for k, v in parameters.items()},
            "why": "it is a combination",
        }
    return verdict


def _independent_fields(theorem: Theorem, rng: random.Random) -> Verdict:
    """Where rewards are constant, no combination of the two KL gradients fits all worlds."""
    verdict, rows = Verdict(), []
    k1 = ExpPoly.from_variable("k1")
    parameters = {name: rng.choice(ODD) for name in theorem.statement.context.parameters}
    for seed in range(40):
        world = softmax_world(seed, (END,) * 4)
        world.parameters, constant = dict(parameters), rng.choice(VALUES)
        world.free_value = lambda key, value=constant: value  # type: ignore[method-assign, misc]
        for path in world.paths:
            path[0].rewards.update(R=constant, H=constant)
        slopes = (Mean("", "q", k1, ("x",)), Mean("", "p", -ONE, ("x",)))
        rows.append([worth(theorem.statement.left, world), *(worth(slope, world) for slope in slopes)])
    table = np.array(rows)
    rest = table[:, 0] - table[:, 1:] @ np.linalg.lstsq(table[:, 1:], table[:, 0], rcond=None)[0]
    verdict.judged["full"], verdict.nontrivial = 1, True
    if np.abs(rest).max() < 1e-9 * (1 + np.abs(table[:, 0]).max()):
        verdict.against = {"why": "it is a combination in all worlds"}
    return verdict


def _at(element: ExpPoly, values: dict[str, float], oracle: Oracle) -> float:
    """A coefficient at given values of the variables."""
    place = Place({}, {}, ())
    total = 0.0
    for term in terms_of(element, oracle.names):
        variables = [v for v, _ in term.factors] + [v for _, _, v in term.lines]
        variables += [v for _, _, factors in term.wild for v, _ in factors]
        place.cache |= {(v, ""): values[v.base] for v in variables}
        total += oracle.term(term, place, "", VALUE, ())
    return total
