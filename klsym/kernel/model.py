"""Finite models: statements enclosed in rational intervals.  Trusted; standard library only.

A model gives rational probabilities q, p, mu on outcomes 0..n-1, a direction u of the softmax
logits, and rational values for parameters and rewards.  Along u the score function is
u.s(x) = u_x - sum_y q_y u_y, a rational number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

from klsym.errors import Refused
from klsym.kernel.derivatives import LOG_RATIOS
from klsym.kernel.intervals import LARGEST_EXPONENT, Interval, exp_of_interval, log_enclosure
from klsym.names import REWARDS, Name, parse_name
from klsym.normal_form import Exponent, ExpPoly, Monomial, read_number
from klsym.statements import Atom, Context, E, Point, Side

ONE = Interval.exact(1)
KEYS = {"q", "p", "mu", "u", "parameters", "rewards", "outcome"}


@dataclass(frozen=True)
class Model:
    """A finite model; `outcome` is where pointwise statements are evaluated."""

    q: tuple[Fraction, ...]
    p: tuple[Fraction, ...]
    mu: tuple[Fraction, ...]
    u: tuple[Fraction, ...]
    parameters: Mapping[str, Fraction]
    rewards: Mapping[str, tuple[Fraction, ...]]
    outcome: int

    @staticmethod
    def from_json(data: Any, context: Context) -> Model:
        """Read and validate; raises Refused unless q, p, mu are full-support distributions."""
        if not isinstance(data, dict) or set(data) != KEYS:
            raise Refused(f"finite model: the keys {sorted(KEYS)} expected")
        lists = {name: _numbers(data[name], name) for name in ("q", "p", "mu", "u")}
        size = len(lists["q"])
        rewards = {name: _numbers(data["rewards"][name], name) for name in data["rewards"]}
        for name, values in (*lists.items(), *rewards.items()):
            if len(values) != size or size < 2:
                raise Refused(f"finite model: {name!r} has {len(values)} entries, q has {size} (2 or more)")
        for name in ("q", "p", "mu"):
            if min(lists[name]) <= 0 or sum(lists[name]) != 1:
                raise Refused(f"finite model: {name} is no full-support distribution")
        if context.on_policy and lists["mu"] != lists["q"]:
            raise Refused("finite model: on-policy, mu must equal q")
        outcome = data["outcome"]
        if isinstance(outcome, bool) or not isinstance(outcome, int) or not 0 <= outcome < size:
            raise Refused(f"finite model: outcome {str(outcome)[:20]} is not one of 0..{size - 1}")
        parameters = {name: Fraction(read_number(v)) for name, v in data["parameters"].items()}
        if set(parameters) - set(context.parameters):
            raise Refused("finite model: a value for an undeclared parameter")
        return Model(**lists, parameters=parameters, rewards=rewards, outcome=outcome)

    def density(self, measure: str, x: int) -> Fraction:
        if measure == "count":
            return Fraction(1)
        values: tuple[Fraction, ...] = getattr(self, measure)
        return values[x]

    def mean(self, atom: Atom) -> Interval:
        """What an expectation or a sample value is worth; raises Refused for other atoms."""
        match atom:
            case E(measure, a, score):
                total = Interval.exact(0)
                for x in range(len(self.q)):
                    weight = self.density(measure, x) * self.score(x) ** len(score)
                    total = total + Interval.exact(weight) * coefficient(a, Outcome(self, x))
                return total
            case Point(a, score):
                here = Outcome(self, self.outcome)
                return Interval.exact(self.score(self.outcome) ** len(score)) * coefficient(a, here)
        raise Refused(f"finite model: {type(atom).__name__} must be reduced to expectations first")

    def score(self, x: int) -> Fraction:
        """u.s(x) for softmax logits."""
        return self.u[x] - self._mean_direction

    @cached_property
    def _mean_direction(self) -> Fraction:
        return sum((a * b for a, b in zip(self.q, self.u, strict=True)), Fraction(0))

    def ratio(self, base: str, x: int) -> Fraction:
        """The positive rational whose log is k1, w or log_q at outcome x."""
        below = {"k1": self.p[x], "w": self.mu[x], "log_q": Fraction(1)}
        return self.q[x] / below[base]


def _numbers(data: Any, name: str) -> tuple[Fraction, ...]:
    if not isinstance(data, list):
        raise Refused(f"finite model: {name}: a list of numbers expected")
    return tuple(Fraction(read_number(item)) for item in data)


# ---------------------------------------------------------------------------- variables
class Place(Protocol):
    """Where a coefficient is evaluated: an outcome, or a step of a sequence."""

    @property
    def parameters(self) -> Mapping[str, Fraction]: ...

    def ratio(self, name: Name) -> Fraction | None:
        """The positive rational whose log the variable is, if it is a log."""

    def number(self, name: Name) -> Fraction | None:
        """The value of a reward or a length."""


@dataclass(frozen=True)
class Outcome:
    """An outcome of a finite model."""

    model: Model
    x: int

    @property
    def parameters(self) -> Mapping[str, Fraction]:
        return self.model.parameters

    def ratio(self, name: Name) -> Fraction | None:
        return self.model.ratio(name.base, self.x) if name.base in LOG_RATIOS else None

    def number(self, name: Name) -> Fraction | None:
        values = self.model.rewards.get(name.base) if name.base in REWARDS else None
        return values[self.x] if values else None


class AnyModel(Protocol):
    def mean(self, atom: Atom) -> Interval: ...

    @property
    def parameters(self) -> Mapping[str, Fraction]: ...


def enclose(side: Side, model: AnyModel) -> Interval:
    """The value of a side, whose atoms must be expectations or sample values by now."""
    total = Interval.exact(0)
    for scale, atoms in side.terms:
        product = coefficient(scale, Constants(model.parameters))
        for atom in atoms:
            product = product * model.mean(atom)
        total = total + product
    return total.rounded()


@dataclass(frozen=True)
class Constants:
    """No place at all: parameters alone have values."""

    parameters: Mapping[str, Fraction]

    def ratio(self, name: Name) -> Fraction | None:
        return None

    def number(self, name: Name) -> Fraction | None:
        return None


def coefficient(a: ExpPoly, at: Place) -> Interval:
    """The value of a coefficient at a place."""
    total = Interval.exact(0)
    for (monomial, exponent), value in a.terms.items():
        term = Interval.exact(value)
        if monomial:
            term = term * _monomial(monomial, at)
        total = total + (_exponential(exponent, at) * term if exponent else term)
    return total


def _monomial(monomial: Monomial, at: Place) -> Interval:
    product = ONE
    for name, power in monomial:
        product = product * _variable(name, at) ** power
    return product


def _variable(name: str, at: Place) -> Interval:
    if name in at.parameters:
        return Interval.exact(at.parameters[name])
    parsed = parse_name(name)
    ratio, number = at.ratio(parsed), at.number(parsed)
    if ratio is not None:
        return log_enclosure(ratio)
    if number is None or parsed.primes:
        raise Refused(f"finite model: no value for {name}")
    return Interval.exact(number)


def _exponential(exponent: Exponent, at: Place) -> Interval:
    """exp(Q); an integer multiple of a log ratio gives an exact rational power."""
    exact, rest = Fraction(1), Interval.exact(0)
    for monomial, value in exponent:
        if not -LARGEST_EXPONENT <= value <= LARGEST_EXPONENT:
            raise Refused(f"finite model: a power beyond {LARGEST_EXPONENT}")
        if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(value, int):
            name = monomial[0][0]
            ratio = None if name in at.parameters else at.ratio(parse_name(name))
            if ratio is not None:
                exact *= ratio**value
                continue
        rest = rest + Interval.exact(value) * _monomial(monomial, at)
    if rest == Interval.exact(0):
        return Interval.exact(exact)
    return Interval.exact(exact) * exp_of_interval(rest)
