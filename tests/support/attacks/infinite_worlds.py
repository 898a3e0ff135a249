"""Infinite worlds: sequences without a longest one, on which a theorem about sums over t may fail.

At stage k = 0, 1, 2, .. a token wins, which ends the sequence, or loses; a forced token, of probability 1,
may follow each.  So there is one sequence for each k, and a mean is a series over k.  The probabilities of a
win are constant (geometric lengths), 1/(k + 2) (sequences end, E[length] is infinite) or 1/(k + 2)^2 (half of
them never end).  The stakes A[past] = 2^k, taken back by the forced token, are those of a player who doubles
until the first win.

It shares nothing with the kernel but names and normal forms; gradients are complex steps.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from klsym.kernel import Theorem
from klsym.kernel.definitions import MEANS
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Atom, Curl, Gradient, Mean, MeanGradient, Side, walk_atoms, walk_elements

STAGES = 128
NEAR = 1e-12  # what is closer to 0 is 0: the numbers of these worlds are larger
STEP = 1e-30  # of the complex step: too small for its square to count
FAMILIES = {  # the probability of a win at stage k; do the sequences end?
    "1/2": (lambda k: 1 / 2 + 0 * k, True),
    "1/3": (lambda k: 1 / 3 + 0 * k, True),
    "4/5": (lambda k: 4 / 5 + 0 * k, True),
    "heavy": (lambda k: 1 / (k + 2), True),
    "endless": (lambda k: 1 / (k + 2) ** 2, False),
}
Array = Any


class Unjudged(Exception):
    """What this world has no value for."""


def compensated(terms: list[Array]) -> Array:
    """A sum that keeps what is small beside large terms that cancel (Neumaier)."""
    total = lost = np.zeros(())
    for term in terms:
        new = total + term
        lost = lost + np.where(np.abs(total) >= np.abs(term), (total - new) + term, (term - new) + total)
        total = new
    return total + lost


class InfiniteWorld:
    """Sequences by the stage k at which they are won.

    Arrays of shape (STAGES, longest), masked where a sequence is over; `whole` has the sums over its tokens.
    """

    def __init__(
        self, names: dict[str, str], forced: bool, stake: float, parameters: dict[str, float]
    ) -> None:
        self.ends = {m: FAMILIES[name][1] for m, name in names.items()}
        self.names, self.parameters = names | {"forced": forced, "stake": stake}, parameters
        each = 2 if forced else 1
        token = np.arange(each * STAGES)
        stage, is_forced = token // each, token % each == 1
        last = np.arange(STAGES)[:, None]
        self.there = stage[None, :] <= last
        won = (stage[None, :] == last) & ~is_forced
        self.tokens: dict[str, Array] = {"length": self.there * 1.0}
        log: dict[str, Array] = {}
        for m, name in names.items():
            win = FAMILIES[name][0](stage * 1.0)
            probability = np.where(is_forced, 1.0, np.where(won, win, 1 - win))
            log[m] = np.where(self.there, np.log(probability), 0.0)
            if m == "q":
                self.score = np.where(self.there & ~is_forced, np.where(won, 1 - win, -win), 0.0)
        self.tokens |= {"log_q": log["q"], "k1": log["q"] - log["p"], "w": log["q"] - log["mu"],
                        "o": log["q"] - log["old"]}  # fmt: skip
        self.tokens |= {"R": np.where(self.there, np.where(won, 1.0, -0.5) + is_forced, 0.0)}
        self.weight = {m: np.exp(log[m].sum(1)) for m in ("q", "p", "mu")}
        self.tokens["H"], self.tokens["M"] = self.tokens["R"] ** 2, 1.0 * won
        stakes = np.where(is_forced, -1.0, 1.0) * float(stake) ** stage
        whole = np.broadcast_to(1 / (1.0 + last), self.there.shape)
        self.advantage = {"past": stakes * self.there, "now": stakes * won, "future": whole, "x": whole}
        self.definitions: dict[str, tuple[str, ExpPoly]] = {}

    # -- variables --------------------------------------------------------------------------
    def _at(self, tokens: Array, slot: str) -> Array:
        """The sum over the tokens of a slot, at each step of each sequence."""
        until = np.cumsum(tokens, axis=1)
        whole = until[:, -1:]
        return {"past": until - tokens, "now": tokens, "future": whole - until, "x": whole + 0 * until}[slot]

    def variable(self, name: str, live: bool) -> Array:
        parsed = parse_name(name)
        if parsed.slot not in self.advantage:
            raise Unjudged("a batch")
        if parsed.base == "A":
            return self.advantage[parsed.slot]
        if parsed.base in self.definitions:
            return self._defined(parsed.base, parsed.slot, live and not parsed.detached)
        if parsed.base not in self.tokens:
            raise Unjudged(name)
        found = self._at(self.tokens[parsed.base], parsed.slot)
        if live and not parsed.detached and parsed.base in ("log_q", "k1", "w", "o"):
            found = found + 1j * STEP * self._at(self.score, parsed.slot)
        return found

    def _defined(self, base: str, slot: str, live: bool) -> Array:
        """1 where e > 0 and 0 elsewhere, or log(e): of the slot of the name, or of the slots that e names."""
        kind, e = self.definitions[base]
        known = set(self.parameters)
        moved = e.rename(lambda n: n if slot == "x" or n in known else f"{n}[{slot}]")
        if kind in MEANS:
            return self._mean(e, MEANS[kind], live)
        value = self.element(moved, live)
        if kind == "region":
            return (value.real > NEAR) * 1.0
        if kind == "let":
            return np.where(self.there, value, 1)
        if np.any(self.there & (value.real < NEAR)):
            raise Unjudged("a log of what is not positive")
        return np.log(np.where(self.there, value, 1))

    def _mean(self, e: ExpPoly, measure: str, live: bool) -> Array:
        """E_m[e] of whole sequences, the same number everywhere."""
        mean = Mean("", measure, e)
        value = self.value(mean)[0] + 0 * self.there
        if not live:
            return value
        return value + 1j * STEP * self.value(Gradient(Side.from_atom(mean)))[0]

    def values(self, e: ExpPoly) -> Array:
        """e at each step of each sequence."""
        return self.element(e)[self.there]

    def element(self, a: ExpPoly, live: bool = False) -> Array:
        terms = [np.zeros(self.there.shape, dtype=complex if live else float)]
        for (monomial, exponent), value in a.terms.items():
            inside = sum((float(v) * self._monomial(m, live) for m, v in exponent), np.zeros(()))
            terms.append(float(value) * self._monomial(monomial, live) * np.exp(inside))
        if not live:
            return compensated(terms)
        return compensated([term.real for term in terms]) + 1j * compensated([term.imag for term in terms])

    def _monomial(self, monomial: Any, live: bool) -> Array:
        product = np.ones(())
        for name, power in monomial:
            known = self.parameters.get(name)
            product = product * (self.variable(name, live) if known is None else known) ** power
        return product

    # -- means ------------------------------------------------------------------------------
    def series(self, atom: Atom) -> tuple[Array, Array]:
        """The terms over k of a mean, and those with absolute values inside the sum over t."""
        if isinstance(atom, Gradient):
            found = [self._moved(factors, c) for c, factors in atom.of.terms if factors]
            return sum(a for a, _ in found), sum(b for _, b in found)
        if isinstance(atom, Curl) or atom.index not in ("", "t") or atom.measure not in self.weight:
            raise Unjudged(str(atom))
        if isinstance(atom, MeanGradient):
            inside = self.element(atom.loss, live=True).imag / STEP
        else:
            inside = self._scored(self.element(atom.coefficient), atom.score)
        return self._over_t(atom.index, inside, self.weight[atom.measure])

    def _scored(self, inside: Array, score: tuple[str, ...]) -> Array:
        for slot in score:
            if slot.endswith("'"):
                raise Unjudged(slot)
            inside = inside * self._at(self.score, slot)
        return inside

    def _over_t(self, index: str, inside: Array, weight: Array) -> tuple[Array, Array]:
        inside = np.where(self.there, inside, 0)
        terms = inside.sum(1) if index else inside[:, 0]
        sizes = np.abs(inside).sum(1) if index else np.abs(inside[:, 0])
        return weight * terms, weight * sizes

    def _moved(self, factors: tuple[Atom, ...], c: ExpPoly) -> tuple[Array, Array]:
        """The derivative of the terms of a mean; it is dominated where its absolute values add up."""
        if len(factors) > 1:
            raise Unjudged("the gradient of a product")
        [mean] = factors
        if not isinstance(mean, Mean) or mean.index not in ("", "t") or mean.measure not in self.weight:
            raise Unjudged("a gradient")
        weight = self.weight[mean.measure]
        if mean.measure == "q":
            weight = weight * (1 + 1j * STEP * self.score.sum(1))
        inside = self._scored(self.element(mean.coefficient, live=True), mean.score)
        terms, _ = self._over_t(mean.index, inside, weight)
        value = self.constant(c)
        return value * terms.imag / STEP, abs(value) * (np.abs(terms.imag) / STEP + np.abs(terms.real))

    def constant(self, c: ExpPoly) -> float:
        return float(self.element(c)[0, 0])

    def value(self, atom: Atom, absolute: bool = True) -> tuple[float, float]:
        """A mean and a bound on what its tail adds; Unjudged where absolute values do not add up.

        absolute: those inside the sum over t, as theorems ask; else those of the sums over whole sequences.
        """
        terms, sizes = self.series(atom)
        sizes = sizes if absolute else np.abs(terms)
        quarter, half, whole = (sizes[: STAGES // i].sum() for i in (4, 2, 1))
        first, second = half - quarter, whole - half
        if not np.isfinite(whole):
            raise Unjudged("too large")
        tail = 1e-11 * (1 + whole)
        if second > tail:
            if second > 0.6 * first:
                raise Unjudged("does not add up")
            tail += second * second / (first - second)
        return float(terms.sum()), float(tail)

    def side(self, side: Side, absolute: bool = True) -> tuple[float, float]:
        total, doubt = 0.0, 0.0
        for c, atoms in side.terms:
            product, off = self.constant(c), 0.0
            for atom in atoms:
                value, tail = self.value(atom, absolute)
                product, off = product * value, off * (abs(value) + tail) + abs(product) * tail
            total, doubt = total + product, doubt + off
        return total, doubt


def random_infinite_world(parameters: tuple[str, ...], rng: random.Random) -> InfiniteWorld:
    names = {m: rng.choice(list(FAMILIES)) for m in ("q", "p", "mu", "old")}
    values = {name: rng.choice((1.0, 2.0, 0.5, -1.0)) for name in parameters}
    return InfiniteWorld(names, rng.random() < 0.7, rng.choice((1, 2, 2, 1.5, -2)), values)


def contradicted(theorem: Theorem, world: InfiniteWorld, absolute: bool = True) -> bool:
    """Is a theorem false here?  Unjudged where a hypothesis fails, or where this world cannot tell.

    absolute: how the means that the statement names exist.
    """
    with np.errstate(all="ignore"):
        return _contradicted(theorem, world, absolute)


def _contradicted(theorem: Theorem, world: InfiniteWorld, absolute: bool) -> bool:
    statement = theorem.statement
    if statement.context.functions or statement.context.premises or theorem.kind != "proved":
        raise Unjudged("another kind")
    world.definitions = {name: (kind, e) for name, kind, e in statement.context.definitions}
    sides = (statement.left, statement.right)
    sequences = any("t" in getattr(atom, "index", "") for atom in walk_atoms(*sides))
    sequences = sequences or any("length" in element.names() for element in walk_elements(*sides))
    if not sequences and not all(world.ends.values()):
        raise Unjudged("one sample, and its densities have mass 1")
    for hypothesis in theorem.hypotheses:
        match hypothesis:
            case ("ends", m) if not world.ends[m]:
                raise Unjudged("does not end")
            case ("exists", atom):
                world.value(atom)
            case ("exchange" | "lipschitz", mean):
                world.value(Gradient(Side.from_atom(mean)))
            case ("away" | "off" | "apart", _, e) if np.abs(world.values(e)).min() < 1e-6:
                raise Unjudged("at a bound")
            case ("above", _, e) if world.values(e).min() < 1e-6:
                raise Unjudged("a log of what is not positive")
            case ("fact", e) if world.values(e).min() < -NEAR:
                raise Unjudged("a fact fails")
            case ("positive", name) if world.parameters.get(name, 1) <= 0:
                raise Unjudged("not positive")
            case ("nonnegative" | "batch", *_):
                raise Unjudged("another kind")
    (left, a), (right, b) = world.side(statement.left, absolute), world.side(statement.right, absolute)
    gap, doubt = left - right, 10 * (a + b)
    return gap > doubt or (statement.relation == "=" and -gap > doubt)
