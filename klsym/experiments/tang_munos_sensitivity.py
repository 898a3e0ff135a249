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
from klsym.experiments.softmax import Array, Counted, at_least, kl
from klsym.experiments.summaries import NumberTable, Ticker, converged, mean, show
from klsym.experiments.tang_munos_descents import K1_LOSS, K3_LOSS, REVERSE
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
    columns: name -> shape (rows,), see `_row`; divergences from pi* but the first in units of the start.
    """

    n: int
    problems: tuple[Problem, ...]
    changes: tuple[str, ...]
    columns: dict[str, Array]

    @property
    def setup(self) -> str:
        """The set-up of the first row."""
        return self.problems[0].describe([self.n])

    def table(self) -> NumberTable:
        """One row for each change."""
        rows = zip(*self.columns.values(), strict=True)
        return ("change", *self.columns), [
            (change, *map(show, row)) for change, row in zip(self.changes, rows, strict=True)
        ]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What holds under every change, and what does not."""
        return (self._vanilla(), self._order(), self._incorrect("k1 loss"), self._incorrect("k3 loss"))

    def _where(self, rows: Any) -> str:
        return ", ".join(change for change, row in zip(self.changes, rows, strict=True) if row) or "no change"

    def _vanilla(self) -> Finding:
        ends = self.columns["vanilla"]
        return Finding(
            f"vanilla ends between {show(ends.min())} and {show(ends.max())} of the start, above it under: "
            f"{self._where(ends >= 1)}",
            holds=not (ends >= 1).all(),
            paper="the vanilla estimates decrease the divergence from pi*",
            agrees=not (ends >= 1).any(),
        )

    def _order(self) -> Finding:
        k1, k3, vanilla, other = (self.columns[name] for name in GRADIENTS)
        wrong = (other >= vanilla) | (vanilla >= np.minimum(k1, k3))
        return Finding(
            f"leave-one-out < vanilla < both incorrect losses, except under: {self._where(wrong)}",
            holds=not wrong[0],
        )

    def _incorrect(self, name: str) -> Finding:
        better = self.columns[name] < 1
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
    progress: Counted = None,
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
    rows = [_row(problem, n, tick) for problem in problems]
    return Sensitivity(n, problems, names, {key: np.array([row[key] for row in rows]) for key in rows[0]})


def _row(problem: Problem, n: int, tick: Ticker) -> dict[str, Any]:
    """Converged KL(q||pi*), the least on the way, KL(pi*_rev||pi*): means over bandits; last, a median."""
    run, exact, targets = sampled(problem, n, tick), flow(problem, tick), problem.targets(problem.bandits())
    curves, best = run.divergence["optimum"], exact.divergence["optimum"]
    start, least = mean(curves[0, 0]), mean(curves).min(-1)
    ends = mean(converged(run.times, curves)) / start
    return {
        "KL at the start": start,
        **dict(zip(GRADIENTS, ends, strict=True)),
        "analytic": mean(converged(run.times, best[REVERSE])) / start,
        "least of k1 loss": least[K1_LOSS] / start,
        "least of k3 loss": least[K3_LOSS] / start,
        "limit of k3 loss": mean(kl(targets["reversed"], targets["optimum"])) / start,
        "k3 loss to pi*_rev, nats": np.median(converged(run.times, run.divergence["reversed"][K3_LOSS])),
    }


def _written(item: tuple[str, Any]) -> str:
    name, value = item
    return f"{name} = {value if isinstance(value, str) else show(value, 6)}"
