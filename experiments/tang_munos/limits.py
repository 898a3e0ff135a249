"""Figures 5 and 6 of Tang & Munos 2025: where the runs of figure 4 end, against n.

The converged value is the mean over the last quarter of a run.  Constant steps never come to rest, so the
end point alone would carry the noise of one iteration; `drift` (the last quarter over the one before) tells
a level, near 1, from a curve that still falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from klsym.experiments.softmax import Array, Counted, kl
from klsym.experiments.summaries import (
    NumberTable,
    below,
    converged,
    drift,
    error,
    mean,
    show,
    shows,
    slope,
)
from klsym.experiments.tang_munos.bandit_floors import floors
from klsym.experiments.tang_munos.bandit_runs import Problem
from klsym.experiments.tang_munos.bandits import GRADIENTS
from klsym.experiments.tang_munos.descents import (
    FORWARD,
    K1_LOSS,
    K3_LOSS,
    LEAVE_ONE_OUT,
    NONE,
    REVERSE,
    SIZES,
    VANILLA,
    Descents,
    courses,
)
from klsym.study.ledger.experiment_result import Finding, compare_with_source


@dataclass(frozen=True, eq=False)
class Figure5(Descents):
    """Converged KL(q||pi*) against n, in nats.

    ends: shape (4, N, repeats), estimates as GRADIENTS.  drift: shape (4, N).
    analytic: the exact gradient, the same quarter of the run, shape (repeats,).
    limit: KL(pi*_rev||pi*), exact, shape (repeats,).
    theory: the linear-noise value for vanilla, shape (N, repeats).
    unpenalised: exact ascent of the reward alone, the same quarter of the run, shape (repeats,).
    """

    ends: Array
    drift: Array
    analytic: Array
    limit: Array
    theory: Array
    unpenalised: Array

    def table(self) -> NumberTable:
        """Converged KL(q||pi*), standard error, and last quarter over the one before; a row for each n."""
        header = ("n", *(x for name in GRADIENTS for x in (name, "s.e.", "drift")), "vanilla, theory")
        columns, theory = np.stack([mean(self.ends), error(self.ends), self.drift], axis=1), mean(self.theory)
        return header, [
            (str(n), *map(show, (*columns[:, :, j].ravel(), theory[j]))) for j, n in enumerate(self.ns)
        ]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the data show, beside what section 3.1 says."""
        return (self._vanilla(), self._theory(), self._leave_one_out(), self._k3(), self._k1())

    def _vanilla(self) -> Finding:
        ends = self.ends[VANILLA]
        power = f", slope {slope(self.ns, mean(ends)):.1f}" if len(self.ns) > 1 else ""
        return compare_with_source(
            f"vanilla ends at {shows(mean(ends))} nats for n = {shows(self.ns)}{power}",
            all(below(b, a) for a, b in pairwise(ends)),
            "as n grows the vanilla estimates obtain lower values",
        )

    def _theory(self) -> Finding:
        """The analytic gradient's remainder is what the horizon leaves to any estimate."""
        ratios = (mean(self.ends[VANILLA]) - mean(self.analytic)) / mean(self.theory)
        return Finding(
            f"less what the analytic gradient leaves, that is {shows(ratios)} times the linear-noise value",
            holds=bool((np.abs(np.log(ratios)) < np.log(1.5)).all()),
        )

    def _leave_one_out(self) -> Finding:
        ends, exact = self.ends[LEAVE_ONE_OUT], self.analytic
        ratios = mean(ends) / mean(exact)
        no_floor = bool((mean(ends) < mean(self.ends[VANILLA]) / 2).all() and (ratios < 3).all())
        return Finding(
            f"leave-one-out ends at {shows(mean(ends))} nats whatever n, {shows(ratios)} times the analytic "
            f"gradient's {show(mean(exact))}: the horizon, not n",
            holds=no_floor,
        )

    def _k3(self) -> Finding:
        ends = self.ends[K3_LOSS]
        ratios = mean(ends) / mean(self.limit)
        return compare_with_source(
            f"the k3 loss ends at {shows(mean(ends))} nats: {shows(ratios)} times KL(pi*_rev||pi*)",
            bool((np.abs(ratios - 1) < 0.1).all()) and below(self.ends[VANILLA, -1], ends[-1]),
            "variance reduced (incorrect) plateaus at a higher value",
        )

    def _k1(self) -> Finding:
        ends = self.ends[K1_LOSS]
        ratios = mean(ends) / mean(self.unpenalised)
        return Finding(
            f"the k1 loss ends at {shows(mean(ends))} nats; exact ascent of the reward with no penalty "
            f"ends at {show(mean(self.unpenalised))}",
            holds=bool((np.abs(ratios - 1) < 0.1).all()) and below(self.limit, ends[-1]),
            paper="vanilla (incorrect) adds a zero-mean noise and no regularisation",
            agrees=bool((np.abs(ratios - 1) < 0.1).all()),
        )


def figure5(ns: Sequence[int] = SIZES, progress: Counted = None, **choices: Any) -> Figure5:
    """Figure 5: converged KL(q||pi*) against the number n of samples an update.

    >>> figure5(repeats=2, arms=5, ns=(4, 8), iterations=4).ends.shape
    (4, 2, 2)

    choices: of Problem.  Raises UsageError: n < 2, and what Problem refuses.
    Source: Tang & Munos 2025, section 3.1, figure 5, appendix C.
    """
    problem = Problem(**choices)
    ns, runs, exact = courses(problem, ns, progress)
    curves = np.stack([run.divergence["optimum"] for run in runs], axis=1)
    targets = problem.targets(problem.bandits())
    return Figure5(
        problem,
        ns,
        ends=converged(exact.times, curves),
        drift=drift(exact.times, curves),
        analytic=converged(exact.times, exact.divergence["optimum"][REVERSE]),
        limit=kl(targets["reversed"], targets["optimum"]),
        theory=floors("vanilla", problem, ns),
        unpenalised=converged(exact.times, exact.divergence["optimum"][NONE]),
    )


# ---------------------------------------------------------------------------- figure 6
@dataclass(frozen=True, eq=False)
class Figure6(Descents):
    """Converged divergences of the k3 loss from the two optima, against n, in nats.

    to_optimum, to_reversed: KL(q||pi*) and KL(q||pi*_rev), shape (N, repeats).
    exact: KL(q||pi*_rev) under the mean update, the same quarter of the run, shape (repeats,).
    limit: KL(pi*_rev||pi*), shape (repeats,).
    theory: the linear-noise value of KL(q||pi*_rev), shape (N, repeats).
    """

    to_optimum: Array
    to_reversed: Array
    exact: Array
    limit: Array
    theory: Array

    def table(self) -> NumberTable:
        """Both divergences, their standard errors, the median of the second and theory; a row for each n."""
        header = ("n", "to pi*", "s.e.", "to pi*_rev", "s.e.", "median", "theory")
        rows = []
        for j, n in enumerate(self.ns):
            a, b = self.to_optimum[j], self.to_reversed[j]
            cells = (mean(a), error(a), mean(b), error(b), np.median(b), mean(self.theory[j]))
            rows.append((str(n), *map(show, cells)))
        return header, rows

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the data show, beside what section 3.1 says."""
        return (self._falls(), self._level(), self._theory())

    def _falls(self) -> Finding:
        ends = self.to_reversed
        falls = sum((b < a) for a, b in pairwise(ends)) == len(self.ns) - 1
        share = float(np.mean(falls))
        return compare_with_source(
            f"KL(q||pi*_rev) has mean {shows(mean(ends))} and median {shows(np.median(ends, -1))} nats for "
            f"n = {shows(self.ns)}; it falls at each step in {100 * share:.0f}% of the bandits",
            share > 0.9,
            "the divergence from pi*_rev decreases as n grows",
        )

    def _level(self) -> Finding:
        ratios = mean(self.to_optimum) / mean(self.limit)
        return compare_with_source(
            f"KL(q||pi*) ends at {shows(mean(self.to_optimum))} nats; KL(pi*_rev||pi*) is "
            f"{show(mean(self.limit))}",
            bool((np.abs(ratios - 1) < 0.1).all()),
            "the divergence from pi* plateaus: the limit is pi*_rev",
        )

    def _theory(self) -> Finding:
        """r = p/q has a heavy tail, and a rare arm that pi*_rev wants is slow to come up."""
        medians, left = np.median(self.to_reversed / self.theory, axis=-1), self.exact
        return Finding(
            f"that is {shows(medians)} times the linear-noise value in the median bandit; the exact update "
            f"leaves {show(mean(left))} nats at this horizon, over 0.01 in {(left > 0.01).sum()} bandits",
            holds=bool((np.abs(np.log(medians)) < np.log(2)).all()),
        )


def figure6(ns: Sequence[int] = SIZES, progress: Counted = None, **choices: Any) -> Figure6:
    """Figure 6: converged KL(q||pi*) and KL(q||pi*_rev) of the k3 loss against n, pi*_rev = beta p/(nu - R).

    >>> figure6(repeats=2, arms=5, ns=(4, 8), iterations=4).to_reversed.shape
    (2, 2)

    choices: of Problem.  Raises UsageError: n < 2, and what Problem refuses.
    Source: Tang & Munos 2025, section 3.1, figure 6, appendix C.
    """
    problem = Problem(**choices)
    ns, runs, exact = courses(problem, ns, progress)
    targets = problem.targets(problem.bandits())
    ends = {
        name: np.array([converged(run.times, run.divergence[name][K3_LOSS]) for run in runs])
        for name in targets
    }
    return Figure6(
        problem,
        ns,
        to_optimum=ends["optimum"],
        to_reversed=ends["reversed"],
        exact=converged(exact.times, exact.divergence["reversed"][FORWARD]),
        limit=kl(targets["reversed"], targets["optimum"]),
        theory=floors("k3 loss", problem, ns),
    )
