"""Verdicts on theorems that are no equations: refuted, unique, independent."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from oracle.numbers import Undefined, Unsupported, as_float, as_long, exp
from oracle.statements import VALUE, Oracle, Place, terms_of
from oracle.worlds import Node, Step, World, paths_of, softmax_family

from klsym.kernel import Theorem
from klsym.ring import ExpPoly
from klsym.statements import Mean

from .judge import Outside, Verdict, check_hypotheses, judge, wanted_of
from .random_worlds import ODD, VALUES, random_function, random_world


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


def world_of(model: dict[str, Any]) -> World:
    """A recorded model as a world; A has a value for what holds a single step."""
    tokens: dict[Step, Fraction] = {}
    tree = _node_of(model["tree"], tokens)
    paths = tuple(paths_of(tree))
    parameters = {name: Fraction(value) for name, value in model["parameters"].items()}
    n, chosen, node = int(parameters.get("n", 2)), [], tree
    for branch in model["path"]:
        step, after = node[branch]
        chosen, node = [*chosen, step], after
    world = World(paths, (tuple(chosen),) * n, n, parameters, {})
    for path in paths:
        for t, step in enumerate(path):
            world.table["now", t, path[: t + 1]] = tokens[step]
        world.table["past", 1, path[:1]] = tokens[path[0]]
        world.table["future", len(path) - 2, path] = tokens[path[-1]]
        world.table |= {("x", path): tokens[path[0]]} if len(path) == 1 else {}
    return world


def _node_of(data: Any, tokens: dict[Step, Fraction]) -> Node:
    columns = {name: [Fraction(x) for x in data[name]] for name in ("q", "p", "mu", "u", "v")}
    q = softmax_family(columns["q"], columns["u"], columns["v"])
    node: Node = []
    for i, after in enumerate(data["next"]):
        paid = {name: Fraction(row[i]) for name, row in data["rewards"].items()}
        step = Step(q[i], columns["p"][i], columns["mu"][i], False, paid)
        tokens[step] = paid.get("A", Fraction(0))
        node.append((step, _node_of(after, tokens) if after is not None else None))
    return node


# ---------------------------------------------------------------------------- unique
@dataclass(frozen=True)
class OfK1:
    """A function of k1 given as sum of c k1^m exp(slope k1)."""

    rows: tuple[tuple[Fraction, int, Fraction], ...]
    arguments: tuple[str, ...] = ("k1",)
    kind: str = "sum"

    def __call__(self, values: dict[str, Any], order: int, of: Any) -> Any:
        rows = list(self.rows)
        for _ in range(order):
            rows = [(c * slope, m, slope) for c, m, slope in rows] + [
                (c * m, m - 1, s) for c, m, s in rows if m
            ]
        k1, total = values["k1"], of(Fraction(0))
        for c, m, slope in rows:
            total = total + of(c) * (k1**m if m else 1) * exp(k1 * of(slope))
        return total


def of_k1(element: ExpPoly, parameters: dict[str, Fraction]) -> OfK1:
    rows = []
    for term in terms_of(element, frozenset(parameters)):
        if term.wild or any(v.base != "k1" for v, _ in term.factors):
            raise Unsupported("a family beyond k1^m exp(slope k1)")
        c, slope = term.scale, Fraction(0)
        for name, power in term.constants:
            c *= parameters[name] ** power
        for scale, constants, _ in term.lines:
            for name, power in constants:
                scale *= parameters[name] ** power
            slope += scale
        rows.append((c, sum(power for _, power in term.factors), slope))
    return OfK1(tuple(rows))


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
    assert isinstance(mean, Mean)
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
