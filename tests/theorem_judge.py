"""Is a theorem true?  Its statement in numbers, on models that satisfy what it assumes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from indexed_oracle import DEEP, END, THREE, TWO, NoValue, World, world_of
from test_kernel_rules import World as OneSample

from klsym.kernel import Theorem
from klsym.ring import ExpPoly
from klsym.slots import SLOTS
from klsym.statements import Curl, Gradient, Mean, Side, atoms_of

SHAPES = {"": THREE, "t": DEEP, "i": THREE, "ij": TWO, "it": (TWO, END)}
TRUE, FALSE, UNKNOWN = "true", "false", "not judged"


def judged(theorem: Theorem) -> str:
    """`true`, `false`, or `not judged`: numbers overflow, or its premises hold in no model that was tried."""
    with np.errstate(all="ignore"), contextlib.suppress(OverflowError, NoValue):
        match theorem.kind:
            case "proved":
                return _proved(theorem)
            case "refuted":
                return _refuted(theorem)
            case "unique":
                return _unique(theorem)
            case "independent":
                return _independent(theorem)
        raise AssertionError(theorem.kind)
    return UNKNOWN


# ---------------------------------------------------------------------------- values
def value(side: Side, world: World) -> tuple[float, float]:
    """What a side is worth, and the size of what is added up."""
    total, size = 0.0, 0.0
    for factor, atoms in side.terms:
        product = world.value(factor, world.theta, "")[0]
        for atom in atoms:
            product = product * world.atom(atom, world.theta)
        total, size = total + product, size + abs(product)
    return total, size


def gap(left: Side, right: Side, world: World) -> tuple[float, float]:
    """left - right, and how far rounding may lead it off."""
    (x, large), (y, larger) = value(left, world), value(right, world)
    inside = max((largest(atom, world) for atom in atoms_of(left, right)), default=0.0)
    inside *= max(
        [1.0, *(np.max(np.abs(world.value(c, world.theta, ""))) for c, _ in left.terms + right.terms)]
    )
    rough = any(isinstance(atom, Curl) for atom in atoms_of(left, right))
    return x - y, 1e-6 * (1e-3 + large + larger) + (1e-3 if rough else 1e-11) * inside


def largest(atom: Any, world: World) -> float:
    """The largest term inside a mean, before anything cancels."""
    if isinstance(atom, Gradient):
        return 0.0
    a = atom.coefficient if isinstance(atom, Mean) else atom.loss
    terms = (ExpPoly({key: c}) for key, c in a.terms.items())
    return max((np.max(np.abs(world.value(x, world.theta, atom.index))) for x in terms), default=0.0)


def worlds(theorem: Theorem, count: int = 4) -> Any:
    """Models with full support that satisfy the premises and the hypotheses."""
    statement = theorem.statement
    indices = {atom.index for atom in atoms_of(statement.left, statement.right) if hasattr(atom, "index")}
    index = max(indices, key=lambda name: len(SLOTS[name]), default="")
    positive = {h[1] for h in theorem.hypotheses if h[0] == "positive"}
    for seed in range(count):
        world = World(seed, statement.context, SHAPES[index], 2)
        for k, name in enumerate(statement.context.parameters):
            if name not in positive and name != "n" and (seed >> k % 2) & 1:
                world.parameters[name] *= -1
        _draw_together(world, theorem)
        if all(_holds(pair, world) for pair in statement.context.premises):
            yield world


def _holds(pair: tuple[Side, Side], world: World) -> bool:
    difference, slack = gap(*pair, world)
    return bool(abs(difference) <= slack)


def _draw_together(world: World, theorem: Theorem) -> None:
    """p and mu move towards q until what is assumed to be nonnegative is so at every outcome."""
    q = world.density("q", world.theta)
    regions = [h[2] for h in theorem.hypotheses if h[0] == "nonnegative"]
    for _ in range(200):
        if all(np.min(world.value(a, world.theta, "")) >= 0 for a in regions):
            return
        world.p, world.mu = 0.9 * world.p + 0.1 * q, 0.9 * world.mu + 0.1 * q


# ---------------------------------------------------------------------------- by kind
def _proved(theorem: Theorem) -> str:
    statement, found = theorem.statement, UNKNOWN
    for atom in atoms_of(statement.left, statement.right):
        if isinstance(atom, Curl) and any(abs(power) > 8 for m, _ in atom.loss.terms for _, power in m):
            return UNKNOWN  # too steep for differences
    for world in worlds(theorem):
        difference, slack = gap(statement.left, statement.right, world)
        if not np.isfinite(slack) or slack > 1e6:
            continue
        if difference > slack or (statement.relation == "=" and difference < -slack):
            return FALSE
        found = TRUE
    return found


def _refuted(theorem: Theorem) -> str:
    """Its own model contradicts it."""
    statement, world = theorem.statement, world_of(theorem.close["model"])
    difference, slack = gap(statement.left, statement.right, world)
    if not np.isfinite(slack):
        return UNKNOWN
    if not all(_holds(pair, world) for pair in statement.context.premises):
        return FALSE
    apart = difference > 0 if statement.relation == "<=" else abs(difference) > 0
    return (
        TRUE if apart and abs(difference) > 1e-6 * slack else UNKNOWN if abs(difference) <= slack else FALSE
    )


def _unique(theorem: Theorem) -> str:
    """The family solves it, and with a further power of k1 it does not."""
    statement, close = theorem.statement, theorem.close
    family = ExpPoly.from_json(close["family"])
    extra = ExpPoly.variable("k1") ** close["order"]

    def solves(g: ExpPoly, seed: int) -> bool:
        world = OneSample(seed)
        world.g = lambda x, n: _polynomial(g, n, x, world.parameters)  # type: ignore[assignment]
        with_signs = world.side(statement.left)
        return bool(abs(with_signs) < 1e-7)

    good = all(solves(family, seed) for seed in range(4))
    return TRUE if good and not all(solves(family + extra, seed) for seed in range(4)) else FALSE


def _polynomial(g: ExpPoly, n: int, x: Any, parameters: dict[str, float]) -> Any:
    """The n-th derivative of a function of k1 at x."""
    for _ in range(n):
        g = g.derive(lambda name: ExpPoly.number(1 if name == "k1" else 0))
    total: Any = 0 * x
    for (monomial, exponent), c in g.terms.items():
        inside = sum(float(v) * _powers(m, x, parameters) for m, v in exponent) if exponent else 0.0
        total = total + float(c) * _powers(monomial, x, parameters) * np.exp(inside)
    return total


def _powers(monomial: Any, x: Any, parameters: dict[str, float]) -> Any:
    total: Any = 0 * x + 1
    for name, power in monomial:
        total = total * (x if name == "k1" else parameters[name]) ** float(power)
    return total


def _independent(theorem: Theorem) -> str:
    """Rewards that are constant in each model leave the two KL gradients: no two numbers fit all models."""
    rows = []
    for seed in range(8):
        world = OneSample(seed, size=5)
        world.parameters = dict(
            zip(theorem.statement.context.parameters, [0.9, 1.3, 0.6, 1.1, 0.8, 1.7], strict=False)
        )
        for name in ("R", "A"):
            world.free[name] = 0 * world.p + 0.5 + 0.3 * seed
        for k in range(5):
            world.u = np.eye(5)[k]
            score = world.score(world.theta)
            k1 = np.log(world.q() / world.p)
            rows.append((world.side(theorem.statement.left), world.q() @ (k1 * score), -world.p @ score))
    table = np.array(rows)
    if not np.isfinite(table).all():
        return UNKNOWN
    _, residual, *_ = np.linalg.lstsq(table[:, 1:], table[:, 0], rcond=None)
    scale = float((table[:, 0] ** 2).sum())
    return TRUE if residual.sum() > 1e-12 * scale > 0 else FALSE
