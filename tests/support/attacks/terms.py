"""Random contexts, coefficients and atoms, and atoms that suit a rule."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SLOTS, UPSTREAM, name_in_slot
from klsym.kernel.statements import Atom, Context, Curl, Gradient, Mean, MeanGradient, Side

from .defined import compared, names_in, with_definitions

INDICES = ("", "i", "ij", "t", "it")
PROBABILITIES = ("q", "p", "mu")
LOGS = ("k1", "w", "log_q", "o")
LOG = {"q": {"log_q": 1}, "p": {"log_q": 1, "k1": -1}, "mu": {"log_q": 1, "w": -1}, "count": {}}
NUMBERS = [Fraction(x) for x in ("1", "1", "-1", "2", "-1/2", "3")]
POWERS = [Fraction(x) for x in ("1", "-1", "1", "-1", "2", "-2", "1/2", "-1/2", "3/2")]
FUNCTIONS = (("f", ("k1",)), ("g", ("k1", "w", "log_q")), ("h", ("w",)), ("z", ()))


def variable(name: str) -> ExpPoly:
    return ExpPoly.from_variable(name)


def random_context(rng: random.Random, premises: tuple[tuple[Side, Side], ...] = ()) -> Context:
    names = [name for name in ("lam", "beta", "b") if rng.random() < 0.5]
    names += ["n"] if rng.random() < 0.8 else []
    functions = tuple(row for row in FUNCTIONS if rng.random() < 0.3)
    context = Context(tuple(names), functions, premises)
    return with_definitions(context, rng) if rng.random() < 0.4 else context


class Maker:
    """Random coefficients and atoms in a context."""

    def __init__(self, context: Context, rng: random.Random) -> None:
        self.context, self.rng = context, rng

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # -- coefficients ---------------------------------------------------------------------
    def constant(self) -> ExpPoly:
        """A number, a parameter, or a product of both."""
        value = ExpPoly.from_number(self.rng.choice(NUMBERS))
        for name in self.context.parameters:
            if self.chance(0.25):
                value = value * variable(name) ** self.rng.choice((1, 1, 2, -1))
        return value

    def name(self, slots: tuple[str, ...], bases: tuple[str, ...] = ()) -> str:
        """A variable of one of the slots."""
        slot = self.rng.choice(slots)
        if not bases and self.context.definitions and self.chance(0.35):
            defined = names_in(self.context, slots)
            if defined:
                return self.rng.choice(defined)
        if not bases:
            bases = (*LOGS, *LOGS, "R", "H", "A", *("M",) * bool(self.context.definitions))
            bases += ("length",) if self.chance(0.3) else ()
            bases += tuple(n + "'" * self.rng.choice((0, 0, 1)) for n, _ in self.context.functions)
        name = self.rng.choice(bases)
        return name_in_slot(f"sg({name})" if self.chance(0.12) else name, slot)

    def factor(self, slots: tuple[str, ...]) -> ExpPoly:
        return variable(self.name(slots)) ** self.rng.choice((1, 1, 1, 2))

    def exponent(self, slots: tuple[str, ...]) -> ExpPoly:
        """Sums of multiples of log ratios, with parameters at times, and rarely something else."""
        total = ZERO
        for _ in range(self.rng.choice((1, 1, 2))):
            item = variable(self.name(slots, LOGS)) * self.rng.choice(POWERS)
            if self.chance(0.12) and self.context.parameters:
                item = item * variable(self.rng.choice(self.context.parameters))
            if self.chance(0.06):
                item = item * variable(self.name(slots))
            total = total + item
        return total

    def term(self, slots: tuple[str, ...]) -> ExpPoly:
        value = self.constant() if self.chance(0.4) else ExpPoly.from_number(self.rng.choice(NUMBERS))
        if not slots:
            return value
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            value = value * self.factor(slots)
        if self.chance(0.55):
            value = value * self.exponent(slots).exp()
        if self.chance(0.03) and "x" in slots:
            value = value * variable("length").invert()
        return value

    def element(self, slots: tuple[str, ...], most: int = 3) -> ExpPoly:
        total = ZERO
        for _ in range(self.rng.randint(1, most)):
            total = total + self.term(slots)
        return total

    def ratio(self, over: str, under: str, slot: str) -> ExpPoly:
        """over/under at a slot."""
        inside = ZERO
        for name in LOGS:
            power = LOG[over].get(name, 0) - LOG[under].get(name, 0)
            inside = inside + variable(name_in_slot(name, slot)) * power
        return inside.exp()

    # -- atoms ----------------------------------------------------------------------------
    def score(self, index: str, most: int = 2) -> tuple[str, ...]:
        size = self.rng.choice([0, 1, 1, most])
        mark = "'" if self.chance(0.1) else ""
        return tuple(sorted(self.rng.choice(SLOTS[index]) + self.rng.choice(("", mark)) for _ in range(size)))

    def measure(self, index: str, more: tuple[str, ...] = ("sample", "count")) -> str:
        found = self.rng.choice((*PROBABILITIES, *PROBABILITIES, *more))
        return "q" if found == "count" and index else found

    def mean(self, index: str, score: bool = True) -> Mean:
        found = self.score(index) if score else ()
        return Mean(index, self.measure(index), self.element(SLOTS[index]), found)

    def any_index(self) -> str:
        return self.rng.choice(("", "", *INDICES))

    def atom(self) -> Atom:
        """Any atom."""
        index, kind = self.any_index(), self.rng.random()
        if kind < 0.6:
            return self.mean(index)
        if kind < 0.8:
            return MeanGradient(index, self.measure(index), self.loss(index))
        if kind < 0.95:
            return Gradient(Side.from_atom(self.mean(index, False)))
        return Curl(index, self.measure(index, ()), self.loss(index))

    def loss(self, index: str) -> ExpPoly:
        """A coefficient whose gradient is a multiple of scores: functions stand in single slots alone."""
        while True:
            found = self.element(SLOTS[index])
            plain = all(
                n.split("'")[0].split("[")[0].removeprefix("sg(") not in "fghz" for n in found.names()
            )
            if plain or index in ("", "ij") or self.chance(0.2):
                return found

    # -- atoms that suit a rule ------------------------------------------------------------
    def suited(self, rule: str, index: str) -> Atom:
        """An atom to which a rule is likely to apply."""
        made: dict[str, Any] = {
            "chain rule": lambda: MeanGradient(index, self.measure(index), self.loss(index)),
            "log-derivative": lambda: Gradient(self.sum_of_means(index)),
            "product rule": lambda: Gradient(self.product_of_means(index)),
            "curl": lambda: Curl(index, self.measure(index, ()), self.loss(index)),
            "score mean zero": lambda: self.upstream_mean(index, ""),
            "ratio mean one": lambda: self.upstream_mean(index, self.rng.choice(PROBABILITIES)),
            "normalisation": lambda: Mean(index, self.measure(index), self.constant()),
            "sum over t": lambda: self.with_factor("", ("x",)),
            "parts of a sum": lambda: self.with_factor(index, ("x",)),
            "exchange of sums": lambda: self.double_sum(index),
            "independence": lambda: self.separate(index),
            "change of measure": lambda: self.fading(index),
            "region": lambda: compared(index, self)[0],
        }
        return made.get(rule, lambda: self.mean(index))()

    def product_of_means(self, index: str) -> Side:
        side = self.sum_of_means(index)
        for _ in range(self.rng.choice((1, 1, 2))):
            side = side.multiply(self.sum_of_means(self.rng.choice((index, ""))))
        return side if self.chance(0.7) else side + self.sum_of_means(index)

    def sum_of_means(self, index: str) -> Side:
        side = Side()
        for _ in range(self.rng.choice((1, 1, 2))):
            side = side + Side.from_atom(self.mean(index, False)) * self.constant()
        return (
            side
            if side.terms
            else Side.from_atom(Mean(index, "q", variable("k1" if index == "" else "k1[now]")))
        )

    def upstream_mean(self, index: str, over: str) -> Mean:
        """A mean of c s_z (or of c times a ratio at z), where c does not depend on z."""
        slot = self.rng.choice(list(UPSTREAM[index]))
        before = UPSTREAM[index][slot]
        c = self.element(before, 2)
        score = [self.rng.choice(before)] if before and self.chance(0.3) else []
        if not over:
            return Mean(index, "q", c, tuple(sorted([*score, slot + self.rng.choice(("", "", "'"))])))
        m = self.rng.choice(PROBABILITIES)
        c = c * self.ratio(over, m, slot)
        return Mean(index, m, c, tuple(score))

    def with_factor(self, index: str, slots: tuple[str, ...]) -> Mean:
        """Each term holds a quantity that is a sum over steps."""
        base = self.rng.choice((*LOGS, "R", "H", "length", "s"))
        a = self.element(SLOTS[index], 2)
        score = self.score(index)
        if base == "s":
            score = tuple(sorted((*score, "x")))
        else:
            a = a * variable(base)
        return Mean(index, self.measure(index, ("sample",)), a, score)

    def double_sum(self, index: str) -> Mean:
        x, y = (self.summand() for _ in range(2))
        slot = self.rng.choice(("past", "future"))
        whole = ("x", "others") if index == "it" else ("x",)
        a, score = self.element(whole, 2), []
        for name, at in ((x, "now"), (y, slot)):
            if name == "s":
                score.append(at)
            elif (name, at) != ("length", "now"):
                a = a * variable(name_in_slot(name, at))
        score += [self.rng.choice(whole)] if self.chance(0.2) else []
        return Mean(index, self.measure(index, ("sample",)), a, tuple(sorted(score)))

    def summand(self) -> str:
        names = [n + "'" * self.rng.choice((0, 1)) for n, _ in self.context.functions]
        return self.rng.choice((*LOGS, "R", "H", "length", "s", "s", *names))

    def separate(self, index: str) -> Mean:
        """Products of something of the sample itself and something of the others."""
        own = {"i": ("self",), "ij": ("self",), "it": ("past", "now", "future", "x")}[index]
        total = ZERO
        sums = {"others": "others", "rest": "rest"}
        for _ in range(self.rng.choice((1, 1, 2))):
            value = self.term(own)
            value = value * self.term(("other",)) if index == "ij" and self.chance(0.7) else value
            for _ in range(self.rng.choice((0, 1, 1, 2))):
                base = self.name(("x",), (*LOGS, "R", "H", "A", *(n for n, _ in self.context.functions)))
                value = value * variable(name_in_slot(base, sums["rest" if index == "ij" else "others"]))
            total = total + value
        score = tuple(z for z in self.score(index) if not z.endswith("'"))
        return Mean(index, self.rng.choice(PROBABILITIES), total, score)

    def fading(self, index: str) -> Mean:
        """A mean in which densities stand with positive powers in every slot, at times but for one."""
        mean, weight = self.mean(index), ONE
        over, under = self.rng.choice((*PROBABILITIES, "count")), self.rng.choice(PROBABILITIES)
        slots = [z for z in SLOTS[index] if z != "x"] or ["x"]
        if "t" in index and self.chance(0.5):
            slots = [z for z in SLOTS[index] if z not in ("past", "now", "future")]
        for slot in slots:
            if self.chance(0.3):
                over, under = self.rng.choice((*PROBABILITIES, "count")), self.rng.choice(PROBABILITIES)
            weight = weight * self.ratio(over, under, slot)
        if self.chance(0.3):
            weight = weight * self.ratio(under, over, self.rng.choice(SLOTS[index]))
        if self.chance(0.3):  # a power that is no number
            slot = self.rng.choice(SLOTS[index])
            unknown = self.rng.choice(
                (*self.context.parameters, name_in_slot("R", slot), name_in_slot("k1", slot))
            )
            power = variable(unknown) * self.rng.choice((-2, -1, 1))
            weight = weight * (variable(name_in_slot(self.rng.choice(LOGS), slot)) * power).exp()
        return Mean(mean.index, mean.measure, mean.coefficient * weight, mean.score)

    # -- parts of a coefficient -------------------------------------------------------------
    def part(self, a: ExpPoly, slots: tuple[str, ...]) -> ExpPoly:
        """Some of the terms of a coefficient, or anything."""
        if self.chance(0.15):
            return self.element(slots, 1)
        keys = [key for key in a.terms if self.chance(0.5)] or list(a.terms)[:1]
        return ExpPoly({key: a.terms[key] for key in keys})
