"""The curl of a field, enumerated on small trees and batches where no theorem speaks of it.  Untrusted.

    F.u = E_m[sum_t sum_z h_z s_z.u]        curl = d_v F.u - d_u F.v

A batch is a row of n samples, each with the slots self and others, as a sequence is one of tokens with the
slots past, now and future; the mean over its samples is that of the first, since all are drawn alike.  What h
holds is put in word for word; d_v is a difference in sixty digits, along logits that move by v.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import islice, product
from typing import Any

import mpmath

from klsym.engine.proof.counterexamples import completed, models, rows_of, tree_models
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Monomial
from klsym.kernel.slots import at_slot
from klsym.kernel.statements import LOG, REGION, Context
from klsym.language.unfolding import PLAIN

DIFFERENCE_STEPS = tuple(mpmath.mpf(10) ** -power for power in (12, 14))  # both give a slope
CURL_DIGITS = 60
TWISTED = 1e-9
MAX_MODELS = 24
UNDER = {"k1": "p", "w": "mu", "o": "old"}  # the denominators of the ratios whose logs they are
SIZES = ("n", "m")


@dataclass(frozen=True)
class Pushes:
    """h of each slot of tokens, or of the samples of a batch; sampled from q, which moves, or from mu.

    sums: H, H2, .. -> what they are at one position.  spread: names -> h of self, where they stand for
    normalised(h).
    """

    of: Mapping[str, ExpPoly]
    tokens: bool
    on_policy: bool
    sums: Mapping[str, ExpPoly] = field(default_factory=dict)
    spread: Mapping[str, Pushes] = field(default_factory=dict)
    defined: Context = PLAIN

    @cached_property
    def bases(self) -> set[str]:
        """The names that are spoken of, without their slots."""
        told = self.defined.within(*self.of.values(), *self.sums.values())
        found = {parse_name(name).base for e in told for name in e.names()}
        found -= {definition.name for definition in self.defined.definitions}
        return found.union(*(pushes.bases for pushes in self.spread.values()))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(sorted(self.bases - {*SAMPLE_BASES, *SIZES}))

    @property
    def size(self) -> int:
        """Of a batch: what is divided by its standard deviation is at n = 2 a sign, which does not move."""
        return 3 if self.spread else 2


@dataclass(frozen=True)
class Place:
    """One token, or one sample of a batch: densities, rewards and its number of tokens, scores, its mass."""

    logs: Mapping[str, Any]
    paid: Mapping[str, Any]
    scores: Mapping[str, Any]
    mass: Any  # under the sampler


@dataclass
class Row:
    """A sequence of tokens, or a batch of samples, and what names are worth at its positions."""

    places: list[Place]
    pushes: Pushes
    given: Mapping[str, Any]
    found: dict[tuple[str, int], Any] = field(default_factory=dict)

    def at(self, slot: str, t: int) -> Sequence[int]:
        """The positions in a slot of position t."""
        size = len(self.places)
        slots = {"now": [t], "self": [t], "past": range(t), "future": range(t + 1, size)}
        if slot == "x":
            return range(size) if self.pushes.tokens else [t]
        return slots[slot] if slot in slots else [u for u in range(size) if u != t]

    def value(self, name: str, t: int) -> Any:
        if (name, t) not in self.found:
            self.found[name, t] = self._value(name, t)
        return self.found[name, t]

    def _value(self, name: str, t: int) -> Any:
        if name in self.given:
            return self.given[name]
        if (e := self.pushes.defined.defined(name)) is not None:
            return self._defined(name, self.element(e, t))
        parsed = parse_name(name)
        return mpmath.fsum(self._one(parsed.base, u) for u in self.at(parsed.slot, t))

    def _defined(self, name: str, value: Any) -> Any:
        if self.pushes.defined.defined(name, REGION) is not None:
            return mpmath.mpf(value > 0)
        return mpmath.log(value) if self.pushes.defined.defined(name, LOG) is not None else value

    def _one(self, base: str, u: int) -> Any:
        """What a sum over positions adds up."""
        place, own = self.places[u], "now" if self.pushes.tokens else "x"
        if base in UNDER:
            return place.logs["q"] - place.logs[UNDER[base]]
        if base in self.pushes.spread:
            return self._normalised(self.pushes.spread[base], u)
        if base in HELD:
            return self.element(self.pushes.sums[at_slot(base, own)], u)
        return place.logs["q"] if base == "log_q" else place.paid[base]

    def _normalised(self, of: Pushes, u: int) -> Any:
        row = Row(self.places, of, self.given)
        values = [row.element(of.of["self"], v) for v in range(len(self.places))]
        mean = mpmath.fsum(values) / len(values)
        spread = mpmath.sqrt(mpmath.fsum((x - mean) ** 2 for x in values) / len(values))
        return (values[u] - mean) / spread if spread > TWISTED**2 else mpmath.mpf(0)

    def element(self, e: ExpPoly, t: int) -> Any:
        return mpmath.fsum(
            _mp(scale) * self._monomial(monomial, t) * self._exponential(exponent, t)
            for (monomial, exponent), scale in e.terms.items()
        )

    def _monomial(self, monomial: Monomial, t: int) -> Any:
        return mpmath.fprod(self.value(name, t) ** _mp(power) for name, power in monomial)

    def _exponential(self, exponent: Exponent, t: int) -> Any:
        return mpmath.exp(mpmath.fsum(_mp(x) * self._monomial(inside, t) for inside, x in exponent))


def twisted(pushes: Pushes, start: str) -> dict[str, Any] | None:
    """A model on which the field has a curl; None where none was found."""
    found = (tree_models if pushes.tokens else models)(
        Context(parameters=pushes.parameters), pushes.on_policy
    )
    for model in islice((m for m in found if pushes.tokens or len(m["tree"]["q"]) > 2), MAX_MODELS):
        model = completed(model, rows_of(pushes.bases, pushes.defined))
        if not pushes.tokens:  # two logits of one node have a curl where there are three outcomes
            model["tree"]["v"] = across(model["tree"]["u"])
        with mpmath.workdps(CURL_DIGITS):
            value = curl_on_model(pushes, model)
        if value is not None and abs(value) > TWISTED:
            return _shown(model, pushes, start, mpmath.nstr(value, 15))
    return None


def across(u: list[str]) -> list[str]:
    """One logit, and not the one that u moves: along u twice every curl is 0."""
    rest = ["0"] * (len(u) - 2)
    second = ["0", "1", *rest]
    return second if u != second else ["1", "0", *rest]


def curl_on_model(pushes: Pushes, model: dict[str, Any]) -> Any | None:
    """d_v F.u - d_u F.v; None where h has a kink or jumps: where differences differ."""
    total = mpmath.mpf(0)
    for move, along, sign in (("v", "u", 1), ("u", "v", -1)):
        try:
            here, slopes = _field(pushes, model, move, 0, along), []
            for step in DIFFERENCE_STEPS:
                before, after = (_field(pushes, model, move, side * step, along) for side in (-1, 1))
                if abs(after - 2 * here + before) > TWISTED * step:
                    return None
                slopes.append((after - before) / (2 * step))
        except (ArithmeticError, ValueError, TypeError):  # a log of what is not positive, 1/0
            return None
        if abs(slopes[0] - slopes[1]) > TWISTED:
            return None
        total += sign * slopes[-1]
    return total


def _field(pushes: Pushes, model: dict[str, Any], move: str, step: Any, along: str) -> Any:
    """F along a direction, where the logits have moved."""
    given = {name: _mp(Fraction(model["parameters"][name])) for name in pushes.parameters}
    given |= {name: mpmath.mpf(pushes.size - i) for i, name in enumerate(SIZES)}
    total = mpmath.mpf(0)
    for places in _rows(model["tree"], move, step, pushes):
        mass, row = mpmath.fprod(place.mass for place in places), Row(places, pushes, given)
        for t in range(len(places) if pushes.tokens else 1):
            for slot, h in pushes.of.items():
                score = mpmath.fsum(places[u].scores[along] for u in row.at(slot, t))
                total += mass * row.element(h, t) * score if score else 0
    return total


# ---------------------------------------------------------------------------- rows of places
def _places(node: dict[str, Any], move: str, step: Any, on_policy: bool) -> list[Place]:
    """The branches of a node whose logits have moved by so much along a direction."""
    rows = {name: [_mp(Fraction(x)) for x in node[name]] for name in ("q", "u", "v")}
    q = rows.pop("q")
    weights = [a * mpmath.exp(step * b) for a, b in zip(q, rows[move], strict=True)]
    q = [w / mpmath.fsum(weights) for w in weights]
    means = {d: mpmath.fsum(a * b for a, b in zip(q, row, strict=True)) for d, row in rows.items()}
    found = []
    for k, chance in enumerate(q):
        fixed = {name: _mp(Fraction(node[name][k])) for name in ("p", "mu", "old") if name in node}
        logs = {name: mpmath.log(x) for name, x in (fixed | {"q": chance}).items()}
        if on_policy:
            logs["mu"] = logs["q"]
        paid = {name: _mp(Fraction(node["rewards"].get(name, ["0"] * len(q))[k])) for name in ("R", "M")}
        paid["A"] = _mp(Fraction(node["rewards"].get("A", node["rewards"]["R"])[k]))
        scores = {d: row[k] - means[d] for d, row in rows.items()}
        found.append(Place(logs, paid, scores, chance if on_policy else fixed["mu"]))
    return found


def _mp(x: Any) -> Any:
    return mpmath.mpf(x.numerator) / x.denominator


def _rows(node: dict[str, Any], move: str, step: Any, pushes: Pushes) -> Iterator[list[Place]]:
    """Sequences, each step a token; or batches of samples of which the k-th outcome has k + 1 tokens."""
    places = _places(node, move, step, pushes.on_policy)
    if pushes.tokens:
        for place, after in zip(places, node["next"], strict=True):
            one = _with_length(place, 1)
            yield from ([one, *row] for row in (_rows(after, move, step, pushes) if after else [[]]))
    else:
        samples = [_with_length(place, k + 1) for k, place in enumerate(places)]
        yield from map(list, product(samples, repeat=pushes.size))


def _with_length(place: Place, length: int) -> Place:
    return Place(place.logs, {**place.paid, "length": mpmath.mpf(length)}, place.scores, place.mass)


# ---------------------------------------------------------------------------- as it is shown
def _shown(model: dict[str, Any], pushes: Pushes, start: str, left: str) -> dict[str, Any]:
    """The rows that are spoken of; R stands in for the A of a sequence, of which it is the sum."""
    spoken = pushes.bases
    rows = {"q", "u", "v"} | {row for base, row in UNDER.items() if base in spoken and row != "mu"}
    rows |= set() if pushes.on_policy else {"mu"}
    rows |= {"R"} if {"R", "A"} & spoken else set()
    rows |= {"M"} & spoken
    rows |= set() if pushes.tokens else {"A"} & spoken
    rows |= {"T"} if "length" in spoken and not pushes.tokens else set()

    def tree(node: dict[str, Any]) -> dict[str, Any]:
        count = len(node["q"])
        flat = {"A": node["rewards"]["R"], "T": [str(k + 1) for k in range(count)], **node, **node["rewards"]}
        kept = {name: [str(Fraction(x)) for x in flat[name]] for name in flat if name in rows}
        return kept | {"next": [after and tree(after) for after in node.get("next", [None] * count)]}

    parameters = {name: str(model["parameters"][name]) for name in pushes.parameters}
    parameters |= {} if pushes.tokens else {"n": str(pushes.size)}
    return {
        "refutes": f"curl {start} = 0",
        "tree": tree(model["tree"]),
        **({"parameters": parameters} if parameters else {}),
        "left": [left, left],
        "right": ["0", "0"],
    }
