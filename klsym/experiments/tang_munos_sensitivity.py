"""How figures 4 to 6 depend on what the paper leaves open: beta, the horizon, the step, the start, the seed.

One thing is changed at a time.  With step e the k3 loss jumps by e beta (r - 1)/n on a sample whose ratio r
is large, so small n, large steps and large beta are where it strays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from klsym.experiments.bandit_runs import Problem, flow, sampled
from klsym.experiments.bandits import GRADIENTS
from klsym.experiments.softmax import Array, Progress, at_least, kl
from klsym.experiments.summaries import NumberTable, Ticker, converged, mean, show
from klsym.experiments.tang_munos_descents import K1_LOSS, K3_LOSS, LEAVE_ONE_OUT, REVERSE, VANILLA
from klsym.finding import Finding

CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"beta": 0.25},
    {"beta": 0.5},
    {"beta": 2.0},
    {"beta": 4.0},
    {"step": 0.25},
    {"step": 2.0},
    {"step": 4.0},
    {"start": "policy"},
    {"iterations": 500},
    {"seed": 1},
)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Converged divergences under one change at a time.

    problems: the set-up of each row.  changes: what differs from the first, as text.
    start: mean KL(q||pi*) at the start, nats, shape (rows,).
    ends: mean converged KL(q||pi*) over the mean at the start, shape (rows, 4), estimates as GRADIENTS.
    least: the least of the same mean curve over the run, shape (rows, 4).
    analytic: the exact gradient's, shape (rows,).  limit: KL(pi*_rev||pi*), the same unit, shape (rows,).
    reversed: converged KL(q||pi*_rev) of the k3 loss in nats, median over bandits, shape (rows,).
    """

    n: int
    problems: tuple[Problem, ...]
    changes: tuple[str, ...]
    start: Array
    ends: Array
    least: Array
    analytic: Array
    limit: Array
    reversed: Array

    @property
    def setup(self) -> str:
        """The set-up of the first row."""
        return self.problems[0].describe([self.n])

    def table(self) -> NumberTable:
        """One row for each change; divergences from pi* in units of their start."""
        ends = ("least of k1 loss", "least of k3 loss", "limit of k3 loss", "k3 loss to pi*_rev, nats")
        header = ("change", "KL at the start", *GRADIENTS, "analytic", *ends)
        rows = []
        for i, change in enumerate(self.changes):
            cells = (self.start[i], *self.ends[i], self.analytic[i])
            cells += (self.least[i, K1_LOSS], self.least[i, K3_LOSS], self.limit[i], self.reversed[i])
            rows.append((change, *map(show, cells)))
        return header, rows

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What holds under every change, and what does not."""
        return (self._vanilla(), self._order(), self._incorrect("k1 loss"), self._incorrect("k3 loss"))

    def _where(self, rows: Any) -> str:
        return ", ".join(change for change, row in zip(self.changes, rows, strict=True) if row) or "no change"

    def _vanilla(self) -> Finding:
        ends = self.ends[:, VANILLA]
        above = ends >= 1
        return Finding(
            f"vanilla ends between {show(ends.min())} and {show(ends.max())} of the start, above it under: "
            f"{self._where(above)}",
            holds=not above.all(),
            paper="the vanilla estimates decrease the divergence from pi*",
            agrees=not above.any(),
        )

    def _order(self) -> Finding:
        wrong = self.ends[:, LEAVE_ONE_OUT] >= self.ends[:, VANILLA]
        wrong |= self.ends[:, VANILLA] >= self.ends[:, [K1_LOSS, K3_LOSS]].min(-1)
        return Finding(
            f"leave-one-out < vanilla < both incorrect losses, except under: {self._where(wrong)}",
            holds=not wrong[0],
        )

    def _incorrect(self, name: str) -> Finding:
        better = self.ends[:, GRADIENTS.index(name)] < 1
        return Finding(
            f"the {name} improves upon the start under: {self._where(better)}",
            holds=not better[0],
            paper="the incorrect estimates do not improve upon the divergence from pi*",
            agrees=not better.any(),
        )


def sensitivity(
    seed: int = 0,
    repeats: int = 100,
    arms: int = 100,
    n: int = 4,
    iterations: int = 2000,
    changes: Sequence[dict[str, Any]] = CHANGES,
    progress: Progress = None,
) -> Sensitivity:
    """Converged divergences of figures 4 to 6 under one change of the set-up at a time.

    >>> small = sensitivity(repeats=2, arms=5, iterations=4, changes=({}, {"beta": 2.0}))
    >>> small.changes
    ('as documented', 'beta = 2')

    changes: fields of `Problem` and their values, one row each.
    Raises UsageError: what `Problem` refuses, n < 2.
    Source: Tang & Munos 2025, appendix C, which leaves beta and the horizon open.
    """
    at_least("n", n, 2)
    base = Problem(seed, repeats, arms, iterations=iterations)
    problems = tuple(replace(base, **change) for change in changes)
    tick = Ticker(progress, sum(2 * problem.updates for problem in problems))
    names = tuple(", ".join(map(_written, c.items())) or "as documented" for c in changes)
    columns = [_row(problem, n, tick) for problem in problems]
    return Sensitivity(n, problems, names, *(np.array(column) for column in zip(*columns, strict=True)))


def _row(problem: Problem, n: int, tick: Ticker) -> tuple[Any, ...]:
    run, exact, targets = sampled(problem, n, tick), flow(problem, tick), problem.targets(problem.bandits())
    curves, best = run.divergence["optimum"], exact.divergence["optimum"]
    start = mean(curves[0, 0])
    return (
        start,
        mean(converged(run.times, curves)) / start,
        mean(curves).min(-1) / start,
        mean(converged(run.times, best[REVERSE])) / start,
        mean(kl(targets["reversed"], targets["optimum"])) / start,
        np.median(converged(run.times, run.divergence["reversed"][K3_LOSS])),
    )


def _written(item: tuple[str, Any]) -> str:
    name, value = item
    return f"{name} = {value if isinstance(value, str) else show(value, 6)}"
