"""Schulman's table as curves: bias and spread of k1, k2, k3 between two Gaussians, exact and sampled.

q = N(0, 1).  Moving the mean of p, p = N(d, 1) and KL = d^2/2, shows where k3 stops helping; widening p,
p = N(0, v), shows where its variance ends (v = 2) and k1's does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from klsym.errors import UsageError
from klsym.experiments.gaussians.schulman import PRINTED, agrees
from klsym.experiments.summaries import NumberTable
from klsym.language.abbreviations import Mean
from klsym.language.convert import to_ring
from klsym.language.expressions import k1, k2, k3
from klsym.study.gaussian.exact import GaussianModel
from klsym.study.gaussian.models import Divergent
from klsym.study.ledger.experiment_result import Finding, compare_with_source
from klsym.study.sampling.gaussians import GaussianSampler
from klsym.study.sampling.streams import Stream

ESTIMATORS = ("k1", "k2", "k3")
ELEMENTS = {"k1": to_ring(k1), "k2": to_ring(k2), "k3": to_ring(k3)}
SHIFTS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.4)  # sampled; the first and the fifth are Schulman's
WIDTHS = (0.4, 0.7, 1.3, 1.6)
BATCHES = 20  # by whose scatter the sampled figures are given an error


@dataclass(frozen=True)
class Curve:
    """bias/KL and sd/KL of one estimator at the places `at`; `error` that of a sampled sd/KL.

    A standard error needs a finite fourth moment; without one, `error` is nan.
    """

    at: Any
    bias: Any
    sd: Any
    error: Any

    def places(self, other: Curve) -> Any:
        """Where the places of another curve are among those of this one."""
        return np.searchsorted(self.at, other.at)


@dataclass(frozen=True)
class GaussianEstimators:
    """Exact and sampled curves of each estimator, against the shift d of p and against its variance v.

    shift, shift_sampled, width, width_sampled: estimator -> Curve.  samples: of each sampled figure.
    """

    samples: int
    shift: dict[str, Curve]
    shift_sampled: dict[str, Curve]
    width: dict[str, Curve]
    width_sampled: dict[str, Curve]

    @property
    def setup(self) -> str:
        return (
            f"q = N(0, 1), p = N(d, 1) and N(0, v); closed forms, and {self.samples:,} samples a figure with"
            f" standard errors from {BATCHES} batches, where the fourth moment is finite"
        )

    @cached_property
    def crossover(self) -> float:
        """The KL at which Var k3 overtakes Var k1, by bisection of the closed forms in d^2."""
        low, high = 0.5, 3.0
        for _ in range(80):
            middle = (low + high) / 2
            p = (float(np.sqrt(middle)), 1.0)
            low, high = (middle, high) if _sd("k3", p) < _sd("k1", p) else (low, middle)
        return low / 2

    @property
    def findings(self) -> tuple[Finding, ...]:
        near, far = self.shift_sampled["k2"].bias[[0, SHIFTS.index(1.0)]]
        at = self.shift["k2"].places(self.shift_sampled["k2"])
        exact = self.shift["k2"].bias[at][[0, SHIFTS.index(1.0)]]
        printed = [PRINTED[place]["k2"][0] for place in ("near", "far")]
        pairs = [(self.shift[k], self.shift_sampled[k]) for k in ("k1", "k2")]
        worst = max(np.max(np.abs(seen.sd - one.sd[one.places(seen)]) / seen.error) for one, seen in pairs)
        return (
            compare_with_source(
                f"Var k3 < Var k1 up to KL = {self.crossover:.3f}, and not beyond",
                self._crosses(),
                "k3 varies less than k1 when q is near p",
            ),
            Finding(
                f"the sampled sd of k1 and k2 lie within {np.ceil(worst):.0f} errors of the closed form",
                bool(worst < 6),
            ),
            Finding(
                f"bias/true of k2 is {exact[1]:.4g} at d = 1 and {exact[0]:.4g} at d = {SHIFTS[0]}"
                f" (sampled {far:.2f} and {near:.2f})",
                bool(abs(far - exact[1]) < 0.02 and abs(near - exact[0]) < 0.03),
                f"bias/true of k2 is {printed[1]} and {printed[0]}",
                all(agrees(text, _twelve_digits(value)) for text, value in zip(printed, exact, strict=True)),
            ),
        )  # fmt: skip

    def _crosses(self) -> bool:
        kl = self.shift["k1"].at ** 2 / 2
        below = self.shift["k3"].sd < self.shift["k1"].sd
        return bool(np.all(below == (kl < self.crossover)))

    def table(self) -> NumberTable:
        """p, KL, then bias/KL and sd/KL of each estimator, exact and sampled; nan: no error exists."""
        header = ["p", "KL", "estimator", "bias/KL exact", "bias/KL sampled", "sd/KL exact", "sd/KL sampled",
                  "standard error"]  # fmt: skip
        rows = []
        for name, family, exact, sampled in (
            ("N({:g}, 1)", _shifted, self.shift, self.shift_sampled),
            ("N(0, {:g})", _widened, self.width, self.width_sampled),
        ):
            for estimator in ESTIMATORS:
                one, other = exact[estimator], sampled[estimator]
                js = one.places(other)
                columns = (one.bias[js], other.bias, one.sd[js], other.sd, other.error)
                for at, *values in zip(other.at, *columns, strict=True):
                    cells = ["0" if abs(v) <= 1e-12 else f"{v:.4g}" for v in values]
                    rows.append((name.format(at), f"{_kl(family(at)):.6g}", estimator, *cells))
        return tuple(header), rows


def gaussian_estimators(seed: int = 0, samples: int = 10**6) -> GaussianEstimators:
    """Closed forms along both families, and samples at some places.

    >>> data = gaussian_estimators(samples=2000)
    >>> round(data.crossover, 4)
    0.6282

    seed: 0 or more.  samples: of each sampled figure, at least 40.
    Raises UsageError: numbers out of range.
    Source: J. Schulman, "Approximating KL divergence" (2020).
    """
    if samples < 2 * BATCHES:
        raise UsageError(f"gaussian estimators: {samples} samples: at least {2 * BATCHES} expected")
    shifts = np.unique([*np.geomspace(0.05, 2.0, 60), *SHIFTS])
    runs = ((0.2, 0.95, 40), (1.05, 1.99, 60), (2.0, 4.0, 20))
    widths = np.unique([*(v for run in runs for v in np.linspace(*run)), *WIDTHS])
    stream = Stream(seed)
    return GaussianEstimators(
        samples,
        {k: _exact(k, shifts, _shifted) for k in ESTIMATORS},
        _sampled(SHIFTS, _shifted, samples, stream.derive_child(0)),
        {k: _exact(k, widths, _widened) for k in ESTIMATORS},
        _sampled(WIDTHS, _widened, samples, stream.derive_child(1)),
    )


def _twelve_digits(value: float) -> sympy.Rational:
    """A closed form that was evaluated in floats, without their last digits."""
    return sympy.Rational(str(round(float(value), 12)))


def _shifted(d: float) -> tuple[float, float]:
    return float(d), 1.0


def _widened(v: float) -> tuple[float, float]:
    return 0.0, float(v)


def _mean(estimator: str, p: tuple[float, float], power: int = 1) -> float:
    element = ELEMENTS[estimator] ** power
    return float(GaussianModel((0.0, 1.0), p).build_setting().compute_expectation("q", element))


def _kl(p: tuple[float, float]) -> float:
    return _mean("k1", p)


def _sd(estimator: str, p: tuple[float, float]) -> float:
    """The standard deviation of one sample; infinite where its second moment is."""
    try:
        return float(np.sqrt(_mean(estimator, p, 2) - _mean(estimator, p) ** 2))
    except Divergent:
        return float("inf")


def _has_moment(estimator: str, p: tuple[float, float], power: int) -> bool:
    """Is E_q |k|^power finite?"""
    try:
        _mean(estimator, p, power)
    except Divergent:
        return False
    return True


def _exact(estimator: str, places: Any, family: Any) -> Curve:
    ps = [family(at) for at in places]
    bias = np.array([_mean(estimator, p) / _kl(p) - 1 for p in ps])
    sd = np.array([_sd(estimator, p) / _kl(p) for p in ps])
    return Curve(np.asarray(places), bias, sd, np.zeros(len(ps)))


def _sampled(places: tuple[float, ...], family: Any, samples: int, stream: Stream) -> dict[str, Curve]:
    means = [Mean("", "q", ELEMENTS[k] ** power) for k in ESTIMATORS for power in (1, 2)]
    found = np.empty((len(places), BATCHES, len(ESTIMATORS), 2))
    for i, at in enumerate(places):
        sampler = GaussianSampler(GaussianModel((0.0, 1.0), family(at)))
        for batch in range(BATCHES):
            seen = sampler.draw_averages(means, samples // BATCHES, stream.derive_child(i, batch))
            found[i, batch] = np.reshape([seen[mean][0] for mean in means], (len(ESTIMATORS), 2))
    kl = np.array([_kl(family(at)) for at in places])
    curves = {}
    for j, k in enumerate(ESTIMATORS):
        first, second = found[:, :, j, 0], found[:, :, j, 1]
        sds = np.sqrt(second - first**2) / kl[:, None]
        mean, square = first.mean(axis=1), second.mean(axis=1)
        known = [_has_moment(k, family(at), 4) for at in places]
        error = np.where(known, sds.std(axis=1, ddof=1) / np.sqrt(BATCHES), np.nan)
        curves[k] = Curve(np.array(places), mean / kl - 1, np.sqrt(square - mean**2) / kl, error)
    return curves
