"""The numeric oracle of klsym against the literal oracle of the tests, which shares nothing with it.

A random side is evaluated on a random model; the other oracle enumerates the same model as a world.  What a
side abbreviates is written out for it, so that `unfold` is judged by the same numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from klsym.kernel.definitions import LOG, REGION, Definition
from klsym.kernel.slots import SLOTS
from klsym.language.abbreviations import Bregman, Covariance, MeanVariance
from klsym.language.unfolding import expand_context, unfold
from klsym.numeric.exact import draw_models, enclose, evaluate
from support.oracle.numbers import as_float, as_long
from support.oracle.statements import Oracle
from support.oracle.worlds import FUNCTIONS, Step, World, softmax_family
from support.oracle_atoms import *
from support.scale import scaled

SEQUENCES = ("t", "it")
MEASURES = ("q", "p", "mu", "sample")
TINY = Fraction(1, 10**35)
DEFINED = (
    Definition("high", REGION, rho("x") - Fraction(113, 97)), Definition("gain", REGION, at("R", "x")),
    Definition("over", REGION, at("w", "past") + at("w", "now") - Fraction(1, 5)),
    Definition("win", REGION, at("R", "self") - at("R", "others") * HALF),
    Definition("inv", LOG, 1 + r("x")), Definition("quot", LOG, V("high") * at("R", "x") ** 2 + r("x")),
)  # fmt: skip
FLOATS = {
    "f": lambda k1, log_q, w: np.sin(k1 * 0.7 - w * 0.4 + log_q * 0.3),
    "g": lambda k1: np.sin(k1 * 0.9),
}
SETTINGS = {
    "off-policy": Context(("lam", "n"), (("f", ("k1", "log_q", "w")), ("g", ("k1",))), definitions=DEFINED),
    "on-policy": Context(("lam", "n"), on_policy=True, definitions=DEFINED),
    "given": Context(("lam", "n"), given=(("R", k1("x") * lam + at("M", "x")),)),
}


# ---------------------------------------------------------------------------- a model as a world
class ModelWorld(World):
    """A finite model as a world, where A is that of the model."""

    model: Any
    branch: dict[Step, int]

    def free_value(self, key: Any) -> Fraction:
        kind, *at_step, held = key
        if kind in ("others", "rest"):
            return self.model.compute_advantage(kind, tuple(self.paths.index(path) for path in held))
        branches = tuple(self.branch[step] for step in held)
        if kind == "x":
            return self.model.rewards["A"][self.paths.index(held)]
        return self.model.compute_advantage(kind, (*branches, *at_step) if kind == "future" else branches)


def world_of(model: Any, context: Context) -> ModelWorld:
    steps = []
    rewards = model.rewards
    for at_node in model.layout.nodes:
        along = [list(row[at_node]) for row in (model.q, model.u, model.v or [0] * len(model.q))]
        for x, q in zip(range(at_node.start, at_node.stop), softmax_family(*along), strict=True):
            paid = {name: rewards[name][x] for name in ("R", "M", "H")}
            steps.append(Step(q, model.p[x], model.mu[x], False, paid, model.old[x]))
    paths = tuple(tuple(steps[x] for x in path) for path in model.layout.paths)
    size = int(model.parameters["n"])
    sample = tuple(paths[(model.outcome + i) % len(paths)] for i in range(size))
    world = ModelWorld(paths, sample, size, dict(model.parameters), dict(FUNCTIONS))
    world.definitions = {name: (kind, e) for name, kind, e in context.definitions}
    world.model, world.branch = model, {step: x for x, step in enumerate(steps)}
    return world


# ---------------------------------------------------------------------------- random sides
class Draw:
    """Random sides of one index in a setting."""

    def __init__(self, seed: int, index: str, context: Context) -> None:
        self.rng = random.Random(f"{seed} {index}")
        self.index, self.context, self.slots = index, context, list(SLOTS[index])
        self.names = ["k1", "k1", "w", "o", "log_q", "R", "M", "A", "lam", "n"]
        self.names += ["length"] * (index in SEQUENCES) + ["f", "g"] * bool(context.functions)
        self.names += ["high", "gain", "bound"] * bool(context.definitions)

    def factor(self) -> ExpPoly:
        name, slot = self.rng.choice(self.names), self.rng.choice(self.slots)
        if name in ("lam", "n"):
            return V(name) if self.rng.random() < 0.7 else V(name).invert()
        if name == "bound":  # of what came before, or of a sample against the others
            return V({"": "gain", "i": "win", "ij": "gain[other]"}.get(self.index, "over"))
        found = at(name, slot)
        if name in ("k1", "w", "o") and self.rng.random() < 0.5:
            found = (found * self.rng.choice((1, -1, Fraction(1, 2), Fraction(-3, 2)))).exp()
        return sg(found) if self.rng.random() < 0.25 else found

    def element(self) -> ExpPoly:
        total = ExpPoly.from_number(0)
        for _ in range(self.rng.randint(1, 2)):
            term = ExpPoly.from_number(Fraction(self.rng.choice((-2, -1, 1, 2, 3)), 2))
            for _ in range(self.rng.randint(1, 3)):
                term = term * self.factor()
            total = total + term
        if not total.terms:
            return self.element()
        if self.context.definitions and self.rng.random() < 0.2:
            total = total * (-at(self.rng.choice(("inv", "quot")), self.slots[0])).exp()
        return total * (length.invert() if self.index in SEQUENCES and self.rng.random() < 0.2 else 1)

    def scores(self) -> list[str]:
        found = self.rng.sample(self.slots * 2, self.rng.randint(0, 2))
        return [slot + "'" * (self.index == "t" and self.rng.random() < 0.3) for slot in found]

    def mean(self) -> Side:
        self.names += ["f'"] * bool(self.context.functions)
        return mean(self.index, self.rng.choice(MEASURES), self.element(), *self.scores())

    def field(self) -> Side:
        return gradient_over(self.index, self.element(), self.rng.choice(MEASURES))

    def functional(self) -> Side:
        """grad of a combination of products of means."""
        means = [one(mean(self.index, self.rng.choice(("q", "p", "mu")), self.element())) for _ in range(3)]
        return grad(Side.combine((lam, (means[0], means[1])), (Fraction(3, 2), (means[2],))))

    def curl(self) -> Side:
        return curl(self.element() * k1("now"), self.rng.choice(("q", "q", "q", "mu")))

    def named(self) -> Side:
        a, b = self.rng.choice([("q", "p"), ("p", "q"), ("mu", "q"), ("q", "mu"), ("mu", "p")])
        m, kind = self.rng.choice(("q", "p", "mu")), self.rng.randrange(3)
        if self.index == "t":
            return (tokens(a, b, m=m), tokens(a, b, m=m, gradient=True), grad(tokens(a, b, m=m) * 2))[kind]
        if self.index == "i":
            no_sums = ("A", "f", "g", "high", "gain", "bound")
            self.names = [name for name in self.names if name not in no_sums]
            return Side.from_atom(MeanVariance(m, self.element(), ("self",) * self.rng.randrange(2)))
        divergence = Side.from_atom(Divergence(self.rng.choice(("KL", "chi2", "J")), a, b))
        if kind == 0:
            return grad(divergence * 3) + divergence
        if kind == 1:
            return Side.from_atom(Covariance(m, self.element(), k1("x") + lam))
        return Side.from_atom(Bregman(r("x") ** 3 - lam * k1("x") + k1("x") ** 2))


def one(side: Side) -> Any:
    [(_, (atom,))] = side.terms
    return atom


KINDS: dict[str, Callable[[Draw], Side]] = {
    "mean": Draw.mean, "field": Draw.field, "functional": Draw.functional,
    "curl": Draw.curl, "named": Draw.named,
}  # fmt: skip
INDICES = {"curl": ("t",), "named": ("", "i", "t")}


# ---------------------------------------------------------------------------- the judge
def values(side: Side, context: Context, seed: int) -> tuple[float, float]:
    """The value by either oracle on a model, in multiples of the largest term of the literal one."""
    statement = replace(claim(side), context=context)
    [model] = draw_models(statement, [seed], exact=True)
    literal = Oracle(world_of(model, expand_context(context)), as_float)
    expected = float(literal.side(unfold(side, context)))
    found, _ = evaluate(statement, model, FLOATS if context.functions else None)
    return found / max(literal.peak, 1), expected / max(literal.peak, 1)


def enclosed(side: Side, context: Context, seed: int) -> bool:
    """Is the value, with fifty digits, in the enclosure?"""
    statement = replace(claim(side), context=context)
    [model] = draw_models(statement, [seed], exact=True)
    enclosure, _ = enclose(statement, model)
    value = Oracle(world_of(model, expand_context(context)), as_long).side(unfold(side, context))
    return bool(as_long(enclosure.lower - TINY) <= value <= as_long(enclosure.upper + TINY))


CASES = [
    (kind, index, setting)
    for kind in KINDS for index in INDICES.get(kind, SLOTS) for setting in SETTINGS
    if not index or setting != "given"  # in a batch or a sequence, R has no value
]  # fmt: skip


@pytest.mark.parametrize(("kind", "index", "setting"), CASES)
@pytest.mark.share(3)
def test_both_oracles_agree(kind, index, setting):
    """In floats; not all of the values are 0."""
    context, zero, count = SETTINGS[setting], 0, scaled(60, 10)
    for seed in range(count):
        side = KINDS[kind](Draw(seed, index, context))
        found, expected = values(side, context, seed)
        assert abs(found - expected) < 1e-12, side
        zero += abs(expected) < 1e-6
    assert zero < count * 0.9


@pytest.mark.parametrize(("kind", "index", "setting"), [case for case in CASES if case[-1] != "off-policy"])
@pytest.mark.share(3)
def test_enclosures_hold_the_value(kind, index, setting):
    for seed in range(scaled(20, 3)):
        side = KINDS[kind](Draw(seed, index, SETTINGS[setting]))
        assert enclosed(side, SETTINGS[setting], seed), side
