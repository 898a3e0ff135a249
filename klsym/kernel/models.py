"""Finite models: token trees of rational conditional probabilities, on which sides are enclosed.

Each node holds q, p, mu on its branches, two directions u and v of the softmax logits of q, rewards, and
what follows each branch: another node, or nothing, which ends the sequence.  A sequence is a path from the
root to an end; a log ratio, a reward, the length and the score function are sums over it.  A single sample is
a tree of one node.  `path` is the sequence whose values "sample" means.  Trusted; standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

from klsym.errors import Refused
from klsym.kernel.assumptions import Assumptions, Data, refuse_unless
from klsym.kernel.definitions import LET, LOG, REGION
from klsym.kernel.derivatives import is_live
from klsym.kernel.intervals import (
    LARGEST_EXPONENT,
    Interval,
    enclose_exp_of_interval,
    enclose_log_of_interval,
    weigh_number,
)
from klsym.kernel.names import LOG_RATIOS, PROBABILITIES, REWARDS, SAMPLE, Name, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Monomial, Number, charge, read_number
from klsym.kernel.slots import SEQUENCE, find_slot, is_second
from klsym.kernel.statements import Atom, Context, Mean, Side, Statement

NODE = {"q", "p", "mu", "u", "v", "rewards", "next"}
OLD = {"old"}  # the one row that a node may do without
LARGEST = 2000  # sequences, and steps of one
MOST_WORK = 100_000  # sum of T^2 over sequences: each step looks at all others
UNDER = {"k1": "p", "w": "mu", "o": "old"}  # the denominators of the ratios whose logs they are


@dataclass(frozen=True)
class Step:
    """A token: its probability given the prefix under each measure, the scores along u and v, its rewards."""

    values: Mapping[str, Fraction]  # q, p, mu, u, v
    rewards: Mapping[str, Fraction]


Path = tuple[Step, ...]


@dataclass(frozen=True)
class Model:
    """All sequences of a tree, the one that "sample" means, and the values of parameters."""

    sequences: tuple[Path, ...]
    sample: Path
    parameters: Mapping[str, Fraction]
    context: Context = field(default_factory=Context)

    @staticmethod
    def from_json(data: Any, context: Context) -> Model:
        """Read and validate; raises Refused unless every node holds full-support distributions."""
        keys = ["parameters", "path", "tree"]
        refuse_unless(sorted(data) == keys, f"finite model: the keys {keys} expected")
        sequences, work = [], 0
        for path in _walk_paths(data["tree"], ()):
            sequences.append(path)
            work += len(path) ** 2
            small = len(sequences) <= LARGEST and work <= MOST_WORK
            refuse_unless(small, f"finite model: more than {LARGEST} sequences, or too long ones")
        parameters = {name: Fraction(read_number(v)) for name, v in data["parameters"].items()}
        refuse_unless(set(parameters) <= set(context.parameters), "finite model: an undeclared parameter")
        n = parameters.get("n")
        batch = n is None or (n.denominator == 1 and n >= 2)
        refuse_unless(batch, f"finite model: a batch of size {n}: 2 or more expected")
        return Model(tuple(sequences), _read_path(data["tree"], data["path"]), parameters, context)

    @cached_property
    def places(self) -> dict[str, list[list[Position]]]:
        """By index, where a mean looks on the path "sample" and on each sequence."""
        paths = (self.sample, *self.sequences)
        steps = [
            [Position(path, t, self.parameters, self.context) for t in range(len(path))] for path in paths
        ]
        return {"": [[Position(path, 0, self.parameters, self.context)] for path in paths], "t": steps}

    def enclose_values(self, element: ExpPoly, moving: bool = False) -> Iterator[Interval]:
        """Yield what an element is worth everywhere, or only where theta moves it."""
        along = "t" if self.context.collect_slots(element) & {*SEQUENCE} else ""
        live = [n for n in element.names() if is_live(ExpPoly.from_variable(n), self.context)]
        slots = {slot for n in live for slot in self.context.find_slots(n)}
        places = (at for places in self.places[along] for at in places if at.path)
        return (
            enclose_coefficient(element, at) for at in places if not moving or any(map(at.has_step, slots))
        )

    def enclose_mean(self, atom: Atom) -> Interval:
        """Return what a mean is worth; raises Refused for other atoms, and for batches."""
        if not isinstance(atom, Mean) or atom.index not in ("", "t"):
            raise Refused("finite model: reduce both sides to means over single samples and sequences first")
        total, is_single = Interval.from_number(0), atom.measure == SAMPLE
        refuse_unless(
            bool(self.sample) or not is_single, "finite model: path: a value at one sample needs one"
        )
        for places in self.places[atom.index][:1] if is_single else self.places[atom.index][1:]:
            weight = Fraction(1)
            if atom.measure not in (SAMPLE, "count"):
                weight = weigh_number(
                    prod((step.values[atom.measure] for step in places[0].path), start=weight)
                )
            for at in places:
                scores = prod((at.compute_score(entry) for entry in atom.score), start=Fraction(1))
                exact = Interval.from_number(weigh_number(weight * scores))
                total = total + (exact * enclose_coefficient(atom.coefficient, at)).shorten()
        return total


def _walk_paths(node: Any, prefix: Path) -> Iterator[Path]:
    for step, after in _read_branches(node):
        if after is None:
            yield (*prefix, step)
        else:
            yield from _walk_paths(after, (*prefix, step))


def _read_branches(node: Any) -> list[tuple[Step, Any]]:
    """Return the branches of one node, their scores u - sum_x q u, and what follows each."""
    has_keys = isinstance(node, dict) and set(node) - OLD == NODE
    refuse_unless(has_keys, f"finite model: a node has the keys {sorted(NODE)}")
    following, rewards = node["next"], node["rewards"]
    refuse_unless(isinstance(following, list), "finite model: next: a list expected")
    count = len(following)
    refuse_unless(set(rewards) <= set(REWARDS), f"finite model: rewards: {REWARDS} expected")
    rows = {name: _read_numbers(node[name], count) for name in node if name not in ("rewards", "next")}
    paid = {name: _read_numbers(row, count) for name, row in rewards.items()}
    for name in (name for name in (*PROBABILITIES, *OLD) if name in rows):
        full = all(value > 0 for value in rows[name]) and sum(rows[name]) == 1
        refuse_unless(full, f"finite model: {name} is no full-support distribution")
    for name in ("u", "v"):
        mean = sum((a * b for a, b in zip(rows["q"], rows[name], strict=True)), Fraction(0))
        rows[name] = [value - weigh_number(mean) for value in rows[name]]
    steps = [Step(*({n: row[i] for n, row in group.items()} for group in (rows, paid))) for i in range(count)]
    return list(zip(steps, following, strict=True))


def _read_numbers(data: Any, count: int) -> list[Fraction]:
    fitting = isinstance(data, list) and len(data) == count
    refuse_unless(fitting, "finite model: the lists of a node differ in length")
    return [Fraction(read_number(item)) for item in data]


def _read_path(node: Any, path: Any) -> Path:
    """Return the sequence that a list of branches leads to."""
    refuse_unless(isinstance(path, list), "finite model: path: a list of branches expected")
    steps: list[Step] = []
    for branch in path:
        branches = _read_branches(node)
        exists = type(branch) is int and 0 <= branch < len(branches)
        refuse_unless(exists, f"finite model: there is no branch {str(branch)[:20]}")
        step, node = branches[branch]
        steps.append(step)
    refuse_unless(not path or node is None, "finite model: path: the sequence goes on")
    return tuple(steps)


@dataclass(frozen=True)
class Position:
    """A step of a sequence, counted from 0; without a path, parameters alone have values."""

    path: Path
    t: int
    parameters: Mapping[str, Fraction]
    context: Context = field(default_factory=Context)
    logs: dict[str, Interval | None] = field(default_factory=dict)  # those that were asked for

    @cached_property
    def _slots(self) -> dict[str, Path]:
        past, now, future = self.path[: self.t], self.path[self.t : self.t + 1], self.path[self.t + 1 :]
        return dict(zip((*SEQUENCE, "x"), (past, now, future, self.path), strict=True))

    def has_step(self, slot: str) -> bool:
        """Is there a step in the slot?"""
        return bool(self._slots[slot])

    def find_argument(self, name: str) -> Interval | None:
        """Return the positive number whose log the variable is: of a ratio a product over the steps of its
        slot.
        """
        if name not in self.logs:
            self.logs[name] = self._compute_argument(name)
        return self.logs[name]

    def _compute_argument(self, name: str) -> Interval | None:
        if (e := self.context.find_definition(name, LOG)) is not None:
            value = enclose_coefficient(e, self)
            refuse_unless(value.lower > 0, f"finite model: {name} is the log of what is not positive")
            return value
        parsed = parse_name(name)
        if parsed.base not in LOG_RATIOS:
            return None
        steps = self._get_steps(parsed)
        under = UNDER.get(parsed.base)
        has_row = under is None or all(under in step.values for step in steps)
        refuse_unless(has_row, f"finite model: no row {under}, which {name} needs")
        ratios = (step.values["q"] / (step.values[under] if under else 1) for step in steps)
        return Interval.from_number(weigh_number(prod(ratios, start=Fraction(1))))

    def _get_steps(self, name: Name) -> Path:
        if not self.path:
            raise Refused(f"finite model: no value for {name.base} outside of a mean, or path is missing")
        refuse_unless(name.slot in self._slots, f"finite model: {name.base} has no such slot here")
        return self._slots[name.slot]

    def compute_number(self, name: str) -> Fraction:
        """Return the value of a parameter, a region, a reward or a length."""
        if name in self.parameters:
            return self.parameters[name]
        if (e := self.context.find_definition(name, REGION)) is not None:
            value = enclose_coefficient(e, self)
            refuse_unless(
                value.lower > 0 or value.upper <= 0, f"finite model: the sign of {name} is not decided"
            )
            return Fraction(value.lower > 0)
        parsed = parse_name(name)
        steps, base = self._get_steps(parsed), parsed.base
        if base == "length":
            return Fraction(len(steps))
        refuse_unless(base != "A" or len(steps) == 1, "finite model: A is given for single steps alone")
        refuse_unless(all(base in step.rewards for step in steps), f"finite model: no value for {name}")
        return sum((step.rewards[base] for step in steps), Fraction(0))

    def compute_score(self, entry: str) -> Fraction:
        """Return the score function of a slot along u, or along v where it is marked so."""
        along, steps = "v" if is_second(entry) else "u", self._slots[find_slot(entry)]
        return weigh_number(sum((step.values[along] for step in steps), Fraction(0)))


# ---------------------------------------------------------------------------- enclosures
def enclose(side: Side, model: Model) -> Interval:
    """Return the value of a side, whose atoms must be means by now."""
    total = Interval.from_number(0)
    for scale, atoms in side.terms:
        product = enclose_coefficient(scale, Position((), 0, model.parameters, model.context))
        for atom in atoms:
            product = product * model.enclose_mean(atom)
        total = total + product
    return total.round_outwards()


def enclose_coefficient(a: ExpPoly, at: Position) -> Interval:
    """Return the value of a coefficient at a position."""
    total = Interval.from_number(0)
    for (monomial, exponent), value in a.terms.items():
        charge(20 + 20 * len(at.path) * (len(monomial) + len(exponent)))
        term = _enclose_monomial(value, monomial, at)
        total = total + (_enclose_exponential(exponent, at) * term if exponent else term)
    return total


def _enclose_monomial(scale: Number, monomial: Monomial, at: Position) -> Interval:
    """Return a multiple of a monomial: exact numbers are multiplied first, then logs."""
    exact, logs = Fraction(scale), Interval.from_number(1)
    for name, power in monomial:
        inside = at.find_argument(name)
        if (e := at.context.find_definition(name, LET)) is not None:
            logs = logs * enclose_coefficient(e, at) ** power
        elif inside is None:
            exact = weigh_number(exact * (Interval.from_number(at.compute_number(name)) ** power).lower)
        else:
            logs = logs * enclose_log_of_interval(inside) ** power
    return Interval.from_number(exact) * logs


def _enclose_exponential(exponent: Exponent, at: Position) -> Interval:
    """Return exp(Q); an integer multiple of the log of a rational gives an exact power."""
    exact, exponent_sum = Interval.from_number(1), Interval.from_number(0)
    for monomial, value in exponent:
        if not -LARGEST_EXPONENT <= value <= LARGEST_EXPONENT:
            raise Refused(f"finite model: a power beyond {LARGEST_EXPONENT}")
        if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(value, int):
            inside = at.find_argument(monomial[0][0])
            if inside is not None:
                exact = exact * inside**value
                continue
        exponent_sum = exponent_sum + _enclose_monomial(value, monomial, at)
    return exact * enclose_exp_of_interval(exponent_sum.round_outwards())


# ---------------------------------------------------------------------------- refutation
def check_finite_model(
    left: Side, right: Side, data: Data, statement: Statement, assumed: Assumptions
) -> None:
    """Check the recorded enclosures: recomputed, they contradict the relation where what is assumed holds.

    Of what steps assume, divisors and weights, bounds and facts are looked at; all else holds in every model.
    There are finitely many samples: none is near a bound at any theta nearby if none is on it.
    """
    model = Model.from_json(data["model"], statement.context)
    for kind, name in (h for h in assumed.found if h[0] in ("nonzero", "positive")):
        value = 1 if name == "length" else model.parameters.get(name, 0)
        refuse_unless(value > 0 or (kind == "nonzero" and value < 0), f"the model has {name} = {value}")
    for kind, e in ((h[0], h[2]) for h in assumed.found if h[0] in ("away", "off", "apart")):
        clear = all(value.lower > 0 or value.upper < 0 for value in model.enclose_values(e, kind != "away"))
        refuse_unless(clear, "the model has a sample on a bound, or too close to it")
    for e in (h[2] for h in assumed.found if h[0] == "above"):
        inside = all(value.lower > 0 for value in model.enclose_values(e))
        refuse_unless(inside, "the model has a log of what is not positive, or too close to 0")
    for fact in statement.context.facts:
        refuse_unless(
            all(value.lower >= 0 for value in model.enclose_values(fact)), "a fact fails in the model"
        )
    for first, second in statement.context.premises:
        gap = first - second
        refuse_unless(all(not atoms for _, atoms in gap.terms), "a model need not satisfy the premises")
        refuse_unless(
            enclose(gap, model) == Interval.from_number(0), "the model does not satisfy the premises"
        )
    got = {"left": enclose(left, model), "right": enclose(right, model)}
    for name, interval in got.items():
        ends = [str(interval.lower), str(interval.upper)]
        refuse_unless(
            data[name] == ends, f"{name} side: enclosed in {ends}, recorded {str(data[name])[:200]}"
        )
    above = got["left"].lower > got["right"].upper
    below = got["left"].upper < got["right"].lower
    contradicted = above or (below and statement.relation == "=")
    refuse_unless(contradicted, "the enclosures do not contradict the relation")
