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
from typing import Any

from klsym.errors import Refused
from klsym.kernel.intervals import LARGEST_EXPONENT, Interval, exp_of_interval, log_enclosure
from klsym.normal_form import Exponent, ExpPoly, Monomial, read_number
from klsym.statements import THETA_FREE, Atom, Context, E, Point, Side, parse_name

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


def enclose(side: Side, model: Model) -> Interval:
    """The value of a side, whose atoms must be expectations or sample values by now."""
    total = Interval.exact(0)
    for coefficient, atoms in side.terms:
        product = _coefficient(coefficient, model, 0)
        for atom in atoms:
            product = product * _atom(atom, model)
        total = total + product
    return total.rounded()


def _atom(atom: Atom, model: Model) -> Interval:
    match atom:
        case E(measure, a, score):
            total = Interval.exact(0)
            for x in range(len(model.q)):
                weight = model.density(measure, x) * model.score(x) ** len(score)
                total = total + Interval.exact(weight) * _coefficient(a, model, x)
            return total
        case Point(a, score):
            x = model.outcome
            return Interval.exact(model.score(x) ** len(score)) * _coefficient(a, model, x)
    raise Refused(f"finite model: {type(atom).__name__} must be reduced to expectations first")


def _coefficient(a: ExpPoly, model: Model, x: int) -> Interval:
    total = Interval.exact(0)
    for (monomial, exponent), value in a.terms.items():
        term = Interval.exact(value)
        if monomial:
            term = term * _monomial(monomial, model, x)
        total = total + (_exponential(exponent, model, x) * term if exponent else term)
    return total


def _monomial(monomial: Monomial, model: Model, x: int) -> Interval:
    product = ONE
    for name, power in monomial:
        product = product * _variable(name, model, x) ** power
    return product


def _variable(name: str, model: Model, x: int) -> Interval:
    if name in model.parameters:
        return Interval.exact(model.parameters[name])
    base = parse_name(name).base
    if base in THETA_FREE and base in model.rewards:
        return Interval.exact(model.rewards[base][x])
    if base in ("k1", "w", "log_q"):
        return log_enclosure(model.ratio(base, x))
    raise Refused(f"finite model: no value for {name}")


def _exponential(exponent: Exponent, model: Model, x: int) -> Interval:
    """exp(Q); an integer multiple of a log ratio gives an exact rational power."""
    exact, rest = Fraction(1), Interval.exact(0)
    for monomial, value in exponent:
        if not -LARGEST_EXPONENT <= value <= LARGEST_EXPONENT:
            raise Refused(f"finite model: a power beyond {LARGEST_EXPONENT}")
        if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(value, int):
            base = parse_name(monomial[0][0]).base
            if monomial[0][0] not in model.parameters and base in ("k1", "w", "log_q"):
                exact *= model.ratio(base, x) ** value
                continue
        rest = rest + Interval.exact(value) * _monomial(monomial, model, x)
    if rest == Interval.exact(0):
        return Interval.exact(exact)
    return Interval.exact(exact) * exp_of_interval(rest)
