"""Parts composed of random statements and steps, closed by what they arrived at."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from klsym.errors import NotInRing, Refused
from klsym.kernel import EQUATION, Theorem, apply_step, certify, digest
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context, Gradient, Mean, Side

from .moves import equation_step, random_step
from .terms import Maker, random_context

EQUALITY = {"by": "equality", "rows": []}


@dataclass
class Accepted:
    """A part that the kernel accepts, what it cites, its theorem, and the rules used at each index."""

    part: dict[str, Any]
    cites: list[Any]
    theorem: Theorem
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    kind: str = "equality"

    def certificate(self) -> dict[str, Any]:
        parts = [self.part]
        return {"format": "klsym-certificate/2", "cites": self.cites, "parts": parts, "digest": digest(parts)}


@dataclass
class Pool:
    """Theorems that may be cited: digest -> theorem, and the parts they come from."""

    known: dict[str, tuple[Theorem, ...]] = field(default_factory=dict)
    bodies: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, accepted: Accepted) -> None:
        if accepted.theorem.kind == "proved" and not accepted.cites and len(self.known) < 400:
            name = digest([accepted.part])
            self.known[name], self.bodies[name] = (accepted.theorem,), [accepted.part]

    def sample(self, context: Context, rng: random.Random) -> list[list[Any]]:
        """Some theorems about what a context declares."""
        names = rng.sample(sorted(self.known), min(6, len(self.known)))
        return [[name, 0] for name in names if self._fits(name, context)]

    def _fits(self, name: str, context: Context) -> bool:
        own = self.known[name][0].statement.context
        spoken_of = ("parameters", "functions", "definitions", "facts")
        return all(set(getattr(own, key)) <= set(getattr(context, key)) for key in spoken_of)


# ---------------------------------------------------------------------------- chains of steps
@dataclass
class Chain:
    """A side and the steps that rewrote it."""

    context: Context
    maker: Maker
    pool: Pool
    side: Side
    name: str = "left"
    steps: list[Any] = field(default_factory=list)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, step: Any) -> bool:
        """Take a step if the kernel does."""
        if step is None:
            return False
        try:
            sides = {"left": Side(), "right": Side(), self.name: self.side}
            result, _ = apply_step(sides, {**step, "result": None}, self.context, self.pool.known)
        except (Refused, NotInRing):
            return False
        if len(result.to_json()) > 12 or sum(len(atoms) for _, atoms in result.terms) > 16:
            return False
        self.used[step["rule"], self._index(step)] += 1
        self.steps.append({**step, "result": result.to_json()})
        self.side = result
        return True

    def _index(self, step: Any) -> str:
        if step["term"] is None:
            return "premise" if isinstance(step["data"]["of"], int) else "cited"
        return index_of(self.side.terms[step["term"]][1][step["factor"]])

    def step(self, rule: str = "", at: tuple[int, int] | None = None) -> Any:
        return random_step(self.side, self.name, self.maker, rule, at)

    def equation_step(self) -> Any:
        cited = self.pool.sample(self.context, self.maker.rng)
        return equation_step(self.context, self.name, cited, self.maker)

    def wander(self, most: int) -> None:
        """Up to so many random steps."""
        for _ in range(self.maker.rng.randint(0, most)):
            for _ in range(4):
                if self.take(self.equation_step() if self.maker.chance(0.12) else self.step()):
                    break

    def part(self, left: Side, right: Side, relation: str = "=", close: Any = EQUALITY) -> dict[str, Any]:
        return {
            "context": self.context.to_json(), "relation": relation, "left": left.to_json(),
            "right": right.to_json(), "steps": self.steps, "close": close, "hypotheses": [],
        }  # fmt: skip

    def certified(self, part: dict[str, Any], kind: str) -> Accepted | None:
        """The part with its hypotheses, if the kernel accepts it."""
        cited = {
            s["data"]["of"][0]
            for s in self.steps
            if s["rule"] == "equation" and isinstance(s["data"]["of"], list)
        }
        try:
            if part["relation"] == "=" and part["left"] == part["right"]:
                return None  # it says nothing
            full, theorem = certify(part, {name: self.pool.known[name] for name in cited})
        except (Refused, NotInRing):
            return None
        return Accepted(full, [self.pool.bodies[n] for n in sorted(cited)], theorem, self.used, kind)


def index_of(atom: Any) -> str:
    """The index of an atom; that of the first mean under a gradient."""
    if isinstance(atom, Gradient):
        return next((a.index for _, atoms in atom.of.terms for a in atoms if isinstance(a, Mean)), "")
    return str(atom.index)


# ---------------------------------------------------------------------------- equations
def equation(
    rule: str, index: str, pool: Pool, rng: random.Random, context: Context | None = None
) -> Accepted | None:
    """A theorem whose proof uses a rule at an index: one side is what the other arrives at."""
    context = context or with_premises(random_context(rng), rng)
    maker = Maker(context, rng)
    atom = maker.suited(rule, index) if rule != EQUATION else maker.atom()
    start = Side.from_atom(atom)
    if maker.chance(0.3):
        start = start.multiply(Side.from_atom(maker.mean(maker.any_index())))
    if maker.chance(0.4):
        start = start * maker.constant()
    if maker.chance(0.35):
        start = start + Side.from_atom(maker.atom()) * maker.constant()
    chain = Chain(context, maker, pool, start, rng.choice(("left", "left", "right")))
    if rule == EQUATION:
        first = any(chain.take(chain.equation_step()) for _ in range(4))
    else:
        places = [
            (i, j) for i, j, a in numbered(start) if (type(a), index_of(a)) == (type(atom), index_of(atom))
        ]
        first = bool(places) and any(chain.take(chain.step(rule, rng.choice(places))) for _ in range(8))
    if not first:
        return None
    chain.wander(4)
    ends = (start, chain.side) if chain.name == "left" else (chain.side, start)
    return chain.certified(chain.part(*ends), "equality")


def numbered(side: Side) -> list[tuple[int, int, Any]]:
    return [(i, j, atom) for i, (_, atoms) in enumerate(side.terms) for j, atom in enumerate(atoms)]


def with_premises(context: Context, rng: random.Random) -> Context:
    """At times: a parameter that is a mean, n = m + 1, or two means that a rule takes into one another."""
    maker, premises, names = Maker(context, rng), [], list(context.parameters)
    if maker.chance(0.25):
        names.append("c")
        mean = maker.mean(maker.any_index())
        premises.append((Side.from_constant(ExpPoly.from_variable("c")), Side.from_atom(mean)))
    if maker.chance(0.3):
        side = Side.from_atom(maker.mean(maker.any_index(), score=maker.chance(0.3)))
        chain = Chain(context, maker, Pool(), side)
        chain.wander(2)
        if chain.steps and chain.side != side:
            premises.append((side, chain.side))
    return replace(context, parameters=tuple(names), premises=tuple(premises))
