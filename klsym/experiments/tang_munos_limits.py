"""Figures 5 and 6 of Tang & Munos 2025: where the runs of figure 4 end, against n.

The converged value is the mean over the last quarter of a run.  Constant steps never come to rest, so the
end point alone would carry the noise of one iteration; `drift` (the last quarter over the one before) tells
a level, near 1, from a curve that still falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from klsym.experiments.bandit_floors import floors
from klsym.experiments.bandit_numbers import (
    Progress,
    Table,
    below,
    converged,
    drift,
    error,
    mean,
    show,
    shows,
    slope,
)
from klsym.experiments.bandit_runs import Problem
from klsym.experiments.bandits import GRADIENTS, Array, kl
from klsym.experiments.tang_munos_runs import (
    FORWARD,
    K1_LOSS,
    K3_LOSS,
    LEAVE_ONE_OUT,
    NONE,
    REVERSE,
    SIZES,
    VANILLA,
    courses,
)
from klsym.finding import Finding


@dataclass(frozen=True, eq=False)
class Figure5:
    """Converged KL(q||pi*) against n, in nats.

    ends: shape (4, N, repeats), estimates as GRADIENTS.  drift: shape (4, N).
    analytic: the exact gradient, the same quarter of the run, shape (repeats,).
    limit: KL(pi*_rev||pi*), exact, shape (repeats,).
    theory: the linear-noise value for vanilla, shape (N, repeats).
    unpenalised: exact ascent of the reward alone, the same quarter of the run, shape (repeats,).
    """

    problem: Problem
    ns: tuple[int, ...]
    ends: Array
    drift: Array
    analytic: Array
    limit: Array
    theory: Array
    unpenalised: Array

    @property
    def setup(self) -> str:
        """The set-up in one line."""
        return self.problem.describe(self.ns)

    def table(self) -> Table:
        """Converged KL(q||pi*), standard error, and last quarter over the one before; a row for each n."""
        header = ["n"]
        for name in GRADIENTS:
            header += [name, "s.e.", "drift"]
        means, errors = mean(self.ends), error(self.ends)
        rows = []
        for j, n in enumerate(self.ns):
            cells = [(means[i, j], errors[i, j], self.drift[i, j]) for i in range(len(GRADIENTS))]
            rows.append((str(n), *(show(x) for cell in cells for x in cell), show(mean(self.theory[j]))))
        return (*header, "vanilla, theory"), rows

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the data show, beside what section 3.1 says."""
        return (self._vanilla(), self._theory(), self._leave_one_out(), self._k3(), self._k1())

    def _vanilla(self) -> Finding:
        ends = self.ends[VANILLA]
        falls = all(below(b, a) for a, b in pairwise(ends))
        power = f", slope {slope(self.ns, mean(ends)):.1f}" if len(self.ns) > 1 else ""
        return Finding(
            f"vanilla ends at {shows(mean(ends))} nats for n = {shows(self.ns)}{power}",
            holds=falls,
            paper="as n grows the vanilla estimates obtain lower values",
            agrees=falls,
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
        level = bool((np.abs(ratios - 1) < 0.1).all()) and below(self.ends[VANILLA, -1], ends[-1])
        return Finding(
            f"the k3 loss ends at {shows(mean(ends))} nats: {shows(ratios)} times KL(pi*_rev||pi*)",
            holds=level,
            paper="variance reduced (incorrect) plateaus at a higher value",
            agrees=level,
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


def figure5(
    seed: int = 0,
    repeats: int = 100,
    arms: int = 100,
    ns: Sequence[int] = SIZES,
    beta: float = 1.0,
    step: float = 1.0,
    iterations: int = 4000,
    start: str = "reference",
    progress: Progress = None,
) -> Figure5:
    """Figure 5: converged KL(q||pi*) against the number n of samples an update.

    >>> figure5(repeats=2, arms=5, ns=(4, 8), iterations=4).ends.shape
    (4, 2, 2)

    Raises UsageError: arms < 2, repeats < 1, n < 2, beta or step not positive, iterations < 4.
    Source: Tang & Munos 2025, section 3.1, figure 5, appendix C.
    """
    problem = Problem(seed, repeats, arms, beta, step, iterations, start)
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
class Figure6:
    """Converged divergences of the k3 loss from the two optima, against n, in nats.

    to_optimum, to_reversed: KL(q||pi*) and KL(q||pi*_rev), shape (N, repeats).
    exact: KL(q||pi*_rev) under the mean update, the same quarter of the run, shape (repeats,).
    limit: KL(pi*_rev||pi*), shape (repeats,).
    theory: the linear-noise value of KL(q||pi*_rev), shape (N, repeats).
    """

    problem: Problem
    ns: tuple[int, ...]
    to_optimum: Array
    to_reversed: Array
    exact: Array
    limit: Array
    theory: Array

    @property
    def setup(self) -> str:
        """The set-up in one line."""
        return self.problem.describe(self.ns)

    def table(self) -> Table:
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
        return Finding(
            f"KL(q||pi*_rev) has mean {shows(mean(ends))} and median {shows(np.median(ends, -1))} nats for "
            f"n = {shows(self.ns)}; it falls at each step in {100 * share:.0f}% of the bandits",
            holds=share > 0.9,
            paper="the divergence from pi*_rev decreases as n grows",
            agrees=share > 0.9,
        )

    def _level(self) -> Finding:
        ratios = mean(self.to_optimum) / mean(self.limit)
        level = bool((np.abs(ratios - 1) < 0.1).all())
        return Finding(
            f"KL(q||pi*) ends at {shows(mean(self.to_optimum))} nats; KL(pi*_rev||pi*) is "
            f"{show(mean(self.limit))}",
            holds=level,
            paper="the divergence from pi* plateaus: the limit is pi*_rev",
            agrees=level,
        )

    def _theory(self) -> Finding:
        """r = p/q has a heavy tail, and a rare arm that pi*_rev wants is slow to come up."""
        medians, left = np.median(self.to_reversed / self.theory, axis=-1), self.exact
        return Finding(
            f"that is {shows(medians)} times the linear-noise value in the median bandit; the exact update "
            f"leaves {show(mean(left))} nats at this horizon, over 0.01 in {(left > 0.01).sum()} bandits",
            holds=bool((np.abs(np.log(medians)) < np.log(2)).all()),
        )


def figure6(
    seed: int = 0,
    repeats: int = 100,
    arms: int = 100,
    ns: Sequence[int] = SIZES,
    beta: float = 1.0,
    step: float = 1.0,
    iterations: int = 4000,
    start: str = "reference",
    progress: Progress = None,
) -> Figure6:
    """Figure 6: converged KL(q||pi*) and KL(q||pi*_rev) of the k3 loss against n, pi*_rev = beta p/(nu - R).

    >>> figure6(repeats=2, arms=5, ns=(4, 8), iterations=4).to_reversed.shape
    (2, 2)

    Raises UsageError: arms < 2, repeats < 1, n < 2, beta or step not positive, iterations < 4.
    Source: Tang & Munos 2025, section 3.1, figure 6, appendix C.
    """
    problem = Problem(seed, repeats, arms, beta, step, iterations, start)
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
