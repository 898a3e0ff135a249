"""Sampled cross-checks: one side of a statement is sampled, the exact value of the other is the judge.

Each trial carries a negative control, sampled from the same draws: the side with k1/10 added to its
coefficient, which must be told apart from the side's own exact value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Mean, Side, Statement
from klsym.study.sampling.means import Deterministic, disturb_mean, expand_side
from klsym.study.sampling.sampler import ROUNDING, Averages, Products, Sampler, Spread, list_means
from klsym.study.sampling.statistics import Level, TooFew
from klsym.study.sampling.streams import Stream

if TYPE_CHECKING:
    from klsym.study.sampling.sample_means import SampleMeans
    from klsym.study.sampling.streams import Plan

CONTROL = Fraction(1, 10)  # how much of k1 the negative control adds to a coefficient


@dataclass(frozen=True)
class Trial:
    """One side to sample, and what its samples must agree with.

    sampler: the model.  side: what is sampled.  reference: the exact value of the other side, (d,).
    relation: how the sampled side stands to the reference; "!=" must be seen to differ.
    name: of what is sampled, for a report.  blur: how far rounding may move the reference, (d,).
    """

    sampler: Sampler
    side: Products
    reference: Any
    relation: str
    samples: int
    stream: Stream
    name: str = "a side"
    blur: Any = 0.0

    @cached_property
    def control(self) -> Products:
        """The side with CONTROL * k1 added to the coefficient of its first mean."""
        first = list_means(self.side)[0]
        return (*self.side, (ExpPoly.from_number(CONTROL), (disturb_mean(first),)))

    @cached_property
    def spread(self) -> Spread:
        return self.sampler.measure_spread(self.side)

    @cached_property
    def control_spread(self) -> Spread:
        return self.sampler.measure_spread(self.control)

    @property
    def comparisons(self) -> int:
        """How many numbers are compared: a true statement and its control along each direction."""
        return 2 * len(np.atleast_1d(self.spread.value))

    @property
    def scale(self) -> float:
        """The size of the gradient or value; where that is zero, of E[k1 s^j], or else 1."""
        value = float(np.max(np.abs(self.spread.value)))
        disturbed_mean = self.sampler.compute_exact_mean(disturb_mean(list_means(self.side)[0]))
        return value if value > 1e-12 else float(np.max(np.abs(disturbed_mean))) or 1.0

    @property
    def shift(self) -> Any:
        """By how much the control's exact value is wrong, shape (d,); 0 within rounding."""
        shift = np.abs(self.control_spread.value - self.spread.value)
        return np.where(shift > self.control_spread.rounding, shift, 0.0)

    def refuse_unless_sound(self) -> None:
        """Raise UsageError: a moment that is infinite, or a control that is none, k1 being constant here."""
        if not np.any(self.shift > 0):
            raise UsageError("sampling: the negative control changes nothing on this model")

    def list_requests(self) -> list[tuple[Any, Plan]]:
        """The work that samples both, for `run_all`."""
        return self.sampler.list_requests(list_means(self.control), self.samples, self.stream)

    def judge(self, level: Level, results: list[SampleMeans]) -> TrialResult:
        """Sample, and compare at the level of the whole run.  Raises TooFew, as `needed` does not."""
        try:
            (threshold, seen), (limit, _) = self._find_limits(level, self.samples)
        except TooFew:
            raise TooFew(self.samples, self.count_needed_samples(level)) from None
        averages = self.sampler.draw_averages(list_means(self.control), self.samples, self.stream, results)
        z = self._compute_z(self.side, averages, self.spread, self.reference, blur=self.blur)
        wrong = self._compute_z(self.control, averages, self.control_spread, self.spread.value)
        error = self.spread.deviation / np.sqrt(self.samples)
        worst = np.argmax(_orient_z(z, self.relation) / threshold)
        return TrialResult(
            float(z[worst]), threshold=float(threshold[worst]), holds=self._has_rejection(z, threshold),
            sees=float(np.max(seen * error)) / self.scale, control=float(np.max(np.abs(wrong))),
            rejected=bool(np.any(np.abs(wrong) > limit)), samples=self.samples, relation=self.relation,
        )  # fmt: skip

    def count_needed_samples(self, level: Level) -> int:
        """How many samples `judge` can do with: the normal law holds, and the control would be seen."""
        samples = self.samples
        while True:
            try:
                self._find_limits(level, samples)
            except TooFew as error:
                samples = max(samples + 1, error.needed)
            else:
                return samples

    def enlarge(self, level: Level, patience: int) -> Trial:
        """The trial with the samples that it needs, up to `patience` times its own."""
        needed = self.count_needed_samples(level)
        return replace(self, samples=needed) if self.samples < needed <= patience * self.samples else self

    def _find_limits(self, level: Level, samples: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """The threshold of z = gap/standard error and the bias that it sees, of the side and of the control.

        The control is the side with an error of known size put in.  Raises TooFew: so few samples would not
        show that error, so that agreement would say nothing.
        """
        side, control = (_find_thresholds(s, level, samples) for s in (self.spread, self.control_spread))
        error = self.control_spread.deviation / math.sqrt(samples)
        if not np.any(self.shift >= control[1] * error):
            self.refuse_unless_sound()
            nearest = float(np.max(self.shift / (control[1] * error)))
            raise TooFew(samples, math.ceil(samples / nearest**2))
        return side, control

    def _compute_z(
        self, products: Products, averages: Averages, spread: Spread, reference: Any, blur: Any = 0.0
    ) -> Any:
        gap = self.sampler.combine(products, averages) - spread.bias / self.samples - reference
        error = spread.deviation / np.sqrt(self.samples)
        is_constant = error <= spread.rounding  # every sample is the same: the gap itself is judged
        certain = np.where(np.abs(gap) <= spread.rounding + blur, 0.0, np.copysign(np.inf, gap))
        return np.where(is_constant, certain, gap / np.where(is_constant, 1.0, error))

    def _has_rejection(self, z: Any, threshold: Any) -> bool:
        match self.relation:
            case "=":
                return bool(np.all(np.abs(z) <= threshold))
            case "<=":
                return bool(np.all(z <= threshold))
            case ">=":
                return bool(np.all(z >= -threshold))
        return bool(np.any(np.abs(z) > threshold))


def _find_thresholds(spread: Spread, level: Level, samples: int) -> tuple[Any, Any]:
    """The threshold and the bias that it sees, along each direction; TooFew asks enough for all of them."""
    limits, needed = [], 0
    for g, k in zip(spread.skewness.tolist(), spread.kurtosis.tolist(), strict=True):
        try:
            z = level.find_threshold(samples, g, k)
            limits.append((z, level.find_detectable_bias(z, samples, g, k)))
        except TooFew as error:
            needed = max(needed, error.needed)
    if needed:
        raise TooFew(samples, needed)
    return np.array([z for z, _ in limits]), np.array([seen for _, seen in limits])


def _orient_z(z: Any, relation: str) -> Any:
    """What speaks against an equation or inequality, or for a difference."""
    return {"<=": z, ">=": -z}.get(relation, np.abs(z))


@dataclass(frozen=True)
class TrialResult:
    """What a trial found.

    z: of the worst direction, against `threshold`.  holds: is the statement borne out?
    sees: the smallest bias that would have been seen, relative to the size of the gradient or value.
    control, rejected: the z of the wrong coefficient, and whether it was told apart.
    """

    z: float
    threshold: float
    holds: bool
    sees: float
    control: float
    rejected: bool
    samples: int
    relation: str

    @property
    def passed(self) -> bool:
        return self.holds and self.rejected

    @property
    def strain(self) -> float:
        """How near the samples come to speaking against the statement, 1 being the threshold."""
        return float(_orient_z(self.z, self.relation)) / self.threshold


def build_trials_both_ways(
    sampler: Sampler, sides: tuple[Side, Side], exact: tuple[Any, Any], relation: str,
    context: Context, samples: int, stream: Stream, sizes: tuple[Any, Any] = (0.0, 0.0),
) -> list[Trial]:  # fmt: skip
    """A trial for each side that can be sampled: it against the exact value of the other.

    sizes: of the terms that each exact value was summed from, by which its rounding is judged.
    Raises Deterministic: neither side can.
    """
    turned = {"<=": ">="}.get(relation, relation)
    chosen = _select_samplable_sides(sides, context)
    built_trials = []
    for i, products in chosen.items():
        name, related = (("left side", relation), ("right side", turned))[i]
        judge = np.asarray(exact[1 - i])
        blur = ROUNDING * np.asarray(sizes[1 - i])
        built_trials.append(
            Trial(
                sampler,
                side=products,
                reference=judge,
                relation=related,
                samples=samples,
                stream=stream.derive_child(i),
                name=name,
                blur=blur,
            )
        )
    return built_trials


def _select_samplable_sides(sides: tuple[Side, Side], context: Context) -> dict[int, Products]:
    samplable_sides: dict[int, Products] = {}
    reason: Deterministic | None = None
    for i, side in enumerate(sides):
        try:
            samplable_sides[i] = expand_side(side, context)
        except Deterministic as error:
            reason = reason or error
    if reason is not None and not samplable_sides:
        raise reason
    return samplable_sides


def list_sampled_means(statement: Statement) -> list[Mean]:
    """Every mean that sampling a statement takes; raises Deterministic where there is none."""
    chosen = _select_samplable_sides((statement.left, statement.right), statement.context)
    return [mean for products in chosen.values() for mean in list_means(products)]
