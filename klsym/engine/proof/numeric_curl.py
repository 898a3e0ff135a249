"""Compute the curl of an expected gradient on small trees and batches, if no theorem decides it.  Untrusted.

    F.u = E_m[sum_t sum_z h_z s_z.u]        curl = d_v F.u - d_u F.v

A batch is a row of n samples, each with the slots self and others, as a sequence is one of tokens with the
slots past, now and future; the mean over its samples is that of the first, by symmetry.  h is evaluated as it
is; d_v is a difference quotient in sixty digits, along the logits v.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import islice, product
from typing import Any

import mpmath

from klsym.engine.proof.counterexamples import add_rows, choose_rows, generate_models, generate_tree_models
from klsym.kernel.names import HELD, SAMPLE_BASES, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Monomial
from klsym.kernel.slots import name_in_slot
from klsym.kernel.statements import LOG, REGION, Context
from klsym.language.unfolding import PLAIN

DIFFERENCE_STEPS = tuple(mpmath.mpf(10) ** -power for power in (12, 14))  # both give a slope
CURL_DIGITS = 60
CURL_TOLERANCE = 1e-9
MAX_MODELS = 24
UNDER = {"k1": "p", "w": "mu", "o": "old"}  # the denominators of the ratios whose logs they are
SIZES = ("n", "m")


@dataclass(frozen=True)
class ScoreCoefficients:
    """h of each slot of tokens, or of the samples of a batch; on-policy, mu is q and depends on theta.

    sums: H, H2, .. -> their values at one position.  normalised: names -> h, for names of normalised(h).
    """

    by_slot: Mapping[str, ExpPoly]
    tokens: bool
    on_policy: bool
    sums: Mapping[str, ExpPoly] = field(default_factory=dict)
    normalised: Mapping[str, ScoreCoefficients] = field(default_factory=dict)
    defined: Context = PLAIN

    @cached_property
    def bases(self) -> set[str]:
        """The names in the coefficients, without their slots."""
        all_elements = self.defined.walk_definitions(*self.by_slot.values(), *self.sums.values())
        bases = {parse_name(name).base for e in all_elements for name in e.names()}
        bases -= {definition.name for definition in self.defined.definitions}
        return bases.union(*(pushes.bases for pushes in self.normalised.values()))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(sorted(self.bases - {*SAMPLE_BASES, *SIZES}))

    @property
    def batch_size(self) -> int:
        """The size of a batch: 3 for normalised(h), since (h - mean)/std is a constant sign at n = 2."""
        return 3 if self.normalised else 2


@dataclass(frozen=True)
class Sample:
    """One token, or one sample of a batch: log densities, rewards and length, scores, probability."""

    logs: Mapping[str, Any]
    rewards: Mapping[str, Any]
    scores: Mapping[str, Any]
    mass: Any  # under the sampler


@dataclass
class SampleRow:
    """A sequence of tokens, or a batch of samples, and the values of names at its positions."""

    samples: list[Sample]
    coefficients: ScoreCoefficients
    parameters: Mapping[str, Any]
    cache: dict[tuple[str, int], Any] = field(default_factory=dict)

    def list_positions(self, slot: str, t: int) -> Sequence[int]:
        """Return the positions in a slot of position t."""
        size = len(self.samples)
        slots = {"now": [t], "self": [t], "past": range(t), "future": range(t + 1, size)}
        if slot == "x":
            return range(size) if self.coefficients.tokens else [t]
        return slots[slot] if slot in slots else [u for u in range(size) if u != t]

    def compute_value(self, name: str, t: int) -> Any:
        if (name, t) not in self.cache:
            self.cache[name, t] = self._compute_value(name, t)
        return self.cache[name, t]

    def _compute_value(self, name: str, t: int) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        if (e := self.coefficients.defined.find_definition(name)) is not None:
            return self._evaluate_definition(name, self.compute_element(e, t))
        parsed = parse_name(name)
        return mpmath.fsum(self._compute_summand(parsed.base, u) for u in self.list_positions(parsed.slot, t))

    def _evaluate_definition(self, name: str, value: Any) -> Any:
        if self.coefficients.defined.find_definition(name, REGION) is not None:
            return mpmath.mpf(value > 0)
        return (
            mpmath.log(value) if self.coefficients.defined.find_definition(name, LOG) is not None else value
        )

    def _compute_summand(self, base: str, u: int) -> Any:
        """Return the value at one position of a variable that is summed over a slot."""
        position, own_slot = self.samples[u], "now" if self.coefficients.tokens else "x"
        if base in UNDER:
            return position.logs["q"] - position.logs[UNDER[base]]
        if base in self.coefficients.normalised:
            return self._normalise(self.coefficients.normalised[base], u)
        if base in HELD:
            return self.compute_element(self.coefficients.sums[name_in_slot(base, own_slot)], u)
        return position.logs["q"] if base == "log_q" else position.rewards[base]

    def _normalise(self, coefficients: ScoreCoefficients, u: int) -> Any:
        row = SampleRow(self.samples, coefficients, self.parameters)
        values = [row.compute_element(coefficients.by_slot["self"], v) for v in range(len(self.samples))]
        mean = mpmath.fsum(values) / len(values)
        deviation = mpmath.sqrt(mpmath.fsum((x - mean) ** 2 for x in values) / len(values))
        return (values[u] - mean) / deviation if deviation > CURL_TOLERANCE**2 else mpmath.mpf(0)

    def compute_element(self, e: ExpPoly, t: int) -> Any:
        return mpmath.fsum(
            _to_mpf(scale) * self._compute_monomial(monomial, t) * self._compute_exponential(exponent, t)
            for (monomial, exponent), scale in e.terms.items()
        )

    def _compute_monomial(self, monomial: Monomial, t: int) -> Any:
        return mpmath.fprod(self.compute_value(name, t) ** _to_mpf(power) for name, power in monomial)

    def _compute_exponential(self, exponent: Exponent, t: int) -> Any:
        return mpmath.exp(
            mpmath.fsum(_to_mpf(x) * self._compute_monomial(inside, t) for inside, x in exponent)
        )


def find_curl(coefficients: ScoreCoefficients, start: str) -> dict[str, Any] | None:
    """Return a model on which the expected gradient has a curl; None if none was found."""
    candidates = (generate_tree_models if coefficients.tokens else generate_models)(
        Context(parameters=coefficients.parameters), coefficients.on_policy
    )
    for model in islice(
        (m for m in candidates if coefficients.tokens or len(m["tree"]["q"]) > 2), MAX_MODELS
    ):
        model = add_rows(model, choose_rows(coefficients.bases, coefficients.defined))
        if not coefficients.tokens:  # two logits of one node have a curl where there are three outcomes
            model["tree"]["v"] = choose_second_direction(model["tree"]["u"])
        with mpmath.workdps(CURL_DIGITS):
            value = compute_curl(coefficients, model)
        if value is not None and abs(value) > CURL_TOLERANCE:
            return _describe_model(model, coefficients, start, mpmath.nstr(value, 15))
    return None


def choose_second_direction(u: list[str]) -> list[str]:
    """Return one logit other than u: with v = u every curl is 0."""
    zeros = ["0"] * (len(u) - 2)
    second = ["0", "1", *zeros]
    return second if u != second else ["1", "0", *zeros]


def compute_curl(coefficients: ScoreCoefficients, model: dict[str, Any]) -> Any | None:
    """Return d_v F.u - d_u F.v; None if h has a kink or a jump, so that difference quotients disagree."""
    total = mpmath.mpf(0)
    for move, direction, sign in (("v", "u", 1), ("u", "v", -1)):
        try:
            value, slopes = _compute_directional(coefficients, model, move, 0, direction), []
            for step in DIFFERENCE_STEPS:
                before, after = (
                    _compute_directional(coefficients, model, move, side * step, direction)
                    for side in (-1, 1)
                )
                if abs(after - 2 * value + before) > CURL_TOLERANCE * step:
                    return None
                slopes.append((after - before) / (2 * step))
        except (ArithmeticError, ValueError, TypeError):  # a log of what is not positive, 1/0
            return None
        if abs(slopes[0] - slopes[1]) > CURL_TOLERANCE:
            return None
        total += sign * slopes[-1]
    return total


def _compute_directional(
    coefficients: ScoreCoefficients, model: dict[str, Any], move: str, step: Any, along: str
) -> Any:
    """Return F along a direction, after a step of the logits."""
    parameters = {name: _to_mpf(Fraction(model["parameters"][name])) for name in coefficients.parameters}
    parameters |= {name: mpmath.mpf(coefficients.batch_size - i) for i, name in enumerate(SIZES)}
    total = mpmath.mpf(0)
    for samples in _generate_rows(model["tree"], move, step, coefficients):
        mass, row = (
            mpmath.fprod(place.mass for place in samples),
            SampleRow(samples, coefficients, parameters),
        )
        for t in range(len(samples) if coefficients.tokens else 1):
            for slot, h in coefficients.by_slot.items():
                score = mpmath.fsum(samples[u].scores[along] for u in row.list_positions(slot, t))
                total += mass * row.compute_element(h, t) * score if score else 0
    return total


# ---------------------------------------------------------------------------- rows of places
def _list_samples(node: dict[str, Any], move: str, step: Any, on_policy: bool) -> list[Sample]:
    """Return the outcomes at a node, after a step of its logits along a direction."""
    rows = {name: [_to_mpf(Fraction(x)) for x in node[name]] for name in ("q", "u", "v")}
    q = rows.pop("q")
    weights = [a * mpmath.exp(step * b) for a, b in zip(q, rows[move], strict=True)]
    q = [w / mpmath.fsum(weights) for w in weights]
    means = {d: mpmath.fsum(a * b for a, b in zip(q, row, strict=True)) for d, row in rows.items()}
    samples = []
    for k, probability in enumerate(q):
        fixed = {name: _to_mpf(Fraction(node[name][k])) for name in ("p", "mu", "old") if name in node}
        logs = {name: mpmath.log(x) for name, x in (fixed | {"q": probability}).items()}
        if on_policy:
            logs["mu"] = logs["q"]
        rewards = {
            name: _to_mpf(Fraction(node["rewards"].get(name, ["0"] * len(q))[k])) for name in ("R", "M")
        }
        rewards["A"] = _to_mpf(Fraction(node["rewards"].get("A", node["rewards"]["R"])[k]))
        scores = {d: row[k] - means[d] for d, row in rows.items()}
        samples.append(Sample(logs, rewards, scores, probability if on_policy else fixed["mu"]))
    return samples


def _to_mpf(x: Any) -> Any:
    return mpmath.mpf(x.numerator) / x.denominator


def _generate_rows(
    node: dict[str, Any], move: str, step: Any, coefficients: ScoreCoefficients
) -> Iterator[list[Sample]]:
    """Yield sequences of tokens; or batches of samples, where the k-th outcome has k + 1 tokens."""
    outcomes = _list_samples(node, move, step, coefficients.on_policy)
    if coefficients.tokens:
        for sample, next_node in zip(outcomes, node["next"], strict=True):
            token = _add_length(sample, 1)
            yield from (
                [token, *row]
                for row in (_generate_rows(next_node, move, step, coefficients) if next_node else [[]])
            )
    else:
        samples = [_add_length(sample, k + 1) for k, sample in enumerate(outcomes)]
        yield from map(list, product(samples, repeat=coefficients.batch_size))


def _add_length(sample: Sample, length: int) -> Sample:
    return Sample(sample.logs, {**sample.rewards, "length": mpmath.mpf(length)}, sample.scores, sample.mass)


# ---------------------------------------------------------------------------- printed model
def _describe_model(
    model: dict[str, Any], coefficients: ScoreCoefficients, start: str, left: str
) -> dict[str, Any]:
    """Describe the model by the rows in use; the A of a sequence is printed as R, whose sum it is."""
    bases = coefficients.bases
    rows = {"q", "u", "v"} | {row for base, row in UNDER.items() if base in bases and row != "mu"}
    rows |= set() if coefficients.on_policy else {"mu"}
    rows |= {"R"} if {"R", "A"} & bases else set()
    rows |= {"M"} & bases
    rows |= set() if coefficients.tokens else {"A"} & bases
    rows |= {"T"} if "length" in bases and not coefficients.tokens else set()

    def select_rows(node: dict[str, Any]) -> dict[str, Any]:
        count = len(node["q"])
        all_rows = {
            "A": node["rewards"]["R"],
            "T": [str(k + 1) for k in range(count)],
            **node,
            **node["rewards"],
        }
        selected = {name: [str(Fraction(x)) for x in all_rows[name]] for name in all_rows if name in rows}
        return selected | {
            "next": [after and select_rows(after) for after in node.get("next", [None] * count)]
        }

    parameters = {name: str(model["parameters"][name]) for name in coefficients.parameters}
    parameters |= {} if coefficients.tokens else {"n": str(coefficients.batch_size)}
    return {
        "refutes": f"curl {start} = 0",
        "tree": select_rows(model["tree"]),
        **({"parameters": parameters} if parameters else {}),
        "left": [left, left],
        "right": ["0", "0"],
    }
