"""Figures 3 and 4 of Tang & Munos 2025: descending the estimates, without and with a reward.

The paper gives step 1, n = 4 (16 and 64 in ablations), 100 arms, 100 repeats and unit normal rewards.  It
gives neither beta nor the number of iterations, and it reports means.  The choices here:

    500 repeats             in figure 3, where the mean of the k3 loss is that of a few runs in a hundred

    beta = 1                the reward and the penalty weigh the same
    4000 iterations         both exact descents have then come to rest, but for bandits whose best arm is
                            rare in p: figure 6 counts them
    2000 iterations         in figure 3: the exact gradient has then brought the divergence below a hundredth

Figures 4, 5 and 6 look at the same runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from klsym.experiments.softmax import Array, Counted, kl, sample_sizes
from klsym.experiments.summaries import NumberTable, Ticker, below, converged, drift, error, mean, show, shows
from klsym.experiments.tang_munos.bandit_runs import FLOWS, Course, Problem, Times, flow, sampled
from klsym.experiments.tang_munos.bandits import GRADIENTS, kl_gradient, optimum, reversed_optimum
from klsym.study.ledger.experiment_result import Finding, compare_with_source

DISTANCE_SIZES, SIZES = (4, 16), (4, 16, 64)
K1_LOSS, K3_LOSS, VANILLA, LEAVE_ONE_OUT = range(len(GRADIENTS))
NONE, FORWARD, REVERSE = range(len(FLOWS))
ROWS = 12  # of a table over iterations
SHARES = {0.05: "5%", 0.5: "median", 0.95: "95%"}  # of the runs that lie below
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # values of beta at which limits are compared


@dataclass(frozen=True, eq=False)
class Descents:
    """What figures 3 to 6 are seen in: runs of one problem at each n, shape (N,)."""

    problem: Problem
    ns: Sequence[int]

    @property
    def setup(self) -> str:
        """The set-up in one line."""
        return self.problem.describe(self.ns)


def courses(
    problem: Problem, ns: Sequence[int], progress: Counted
) -> tuple[Sequence[int], list[Course], Course]:
    """The sizes, the sampled courses at each, and the exact one."""
    ns = sample_sizes(ns, 2)
    tick = Ticker(progress, (len(ns) + 1) * problem.updates)
    exact = flow(problem, tick)
    return ns, [sampled(problem, n, tick) for n in ns], exact


def _over_time(times: Times, ns: Sequence[int], sampled_: Array, exact: Array, unit: str) -> NumberTable:
    """Mean over repeats at some iterations: a column for each n and estimate, and for each exact descent."""
    picked = np.unique(np.linspace(0, len(times) - 1, ROWS).round().astype(int))
    header = ["iteration", *(f"{name}, n = {n}" for n in ns for name in GRADIENTS)]
    header += ["analytic", "exact descent of KL(p||q)"]
    columns = [*mean(sampled_).reshape(-1, len(times)), mean(exact[REVERSE]), mean(exact[FORWARD])]
    rows = [(str(times[k]), *(show(column[k]) for column in columns)) for k in picked]
    return (header[0], *(f"{name}, {unit}" for name in header[1:])), rows


# ---------------------------------------------------------------------------- figure 3
@dataclass(frozen=True, eq=False)
class Figure3(Descents):
    """KL(q||p) over iterations when each estimate of its gradient is descended.

    times: shape (K,).  divergence: shape (N, 4, K, repeats), nats, estimates as GRADIENTS.
    exact: the same for the mean updates, shape (3, K, repeats), as FLOWS; "reverse" is the analytic gradient.
    downhill: how far the k1 loss moved the logits along minus the first gradient of KL(q||p), in logits,
    shape (N, repeats).
    """

    times: Times
    divergence: Array
    exact: Array
    downhill: Array

    def table(self) -> NumberTable:
        """Mean KL(q||p) at some iterations; of the k3 loss and vanilla quantiles too."""
        header, rows = _over_time(self.times, self.ns, self.divergence, self.exact, "nats")
        at = {str(time): k for k, time in enumerate(self.times)}
        columns = [(j, i, share) for j in range(len(self.ns)) for i in (K3_LOSS, VANILLA) for share in SHARES]
        names = [f"{GRADIENTS[i]} {SHARES[share]}, n = {self.ns[j]}, nats" for j, i, share in columns]
        found = [np.quantile(self.divergence[j, i], share, axis=-1) for j, i, share in columns]
        return (*header, *names), [(*row, *(show(x[at[row[0]]]) for x in found)) for row in rows]

    def reaches(self, curve: Array) -> int | None:
        """The first recorded iteration at which a mean curve, shape (K,), is a tenth of the start."""
        done = np.flatnonzero(curve <= curve[0] / 10)
        return int(self.times[done[0]]) if len(done) else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the data show, beside what section 3.1 says."""
        return (
            self._vanilla(),
            self._k1(),
            self._drift(),
            self._clock(),
            self._k3(),
            self._k3_exact(),
            self._medians(),
            self._strayed(),
        )

    def _vanilla(self) -> Finding:
        start, last = self.divergence[0, 0, 0], self.divergence[:, [VANILLA, LEAVE_ONE_OUT], -1]
        exact = self.exact[REVERSE, -1]
        fell = all(below(x, start / 10) for x in last.reshape(-1, last.shape[-1]))
        return compare_with_source(
            f"vanilla and leave-one-out fall from {show(mean(start))} to {shows(mean(last[0]))} nats at "
            f"n = {self.ns[0]}, the analytic gradient to {show(mean(exact))}",
            fell,
            "the vanilla estimates behave as expected next to the analytic gradient",
        )

    def _k1(self) -> Finding:
        start, last = self.divergence[0, K1_LOSS, 0], self.divergence[:, K1_LOSS, -1]
        return compare_with_source(
            f"the k1 loss raises the divergence to {shows(mean(last))} nats at n = {shows(self.ns)}",
            all(below(start, x) for x in last),
            "vanilla (incorrect) makes the divergence grow: a zero-mean update drifts randomly",
        )

    def _drift(self) -> Finding:
        """Its logits are a martingale: no mean displacement along the gradient."""
        moved, noise = mean(self.downhill), error(self.downhill)
        return compare_with_source(
            f"yet its logits move downhill by {shows(moved)} with standard errors {shows(noise)}: no drift",
            bool((np.abs(moved) < 4 * noise).all()),
            "the update is zero-mean",
        )

    def _clock(self) -> Finding:
        """A walk with steps of variance 1/n: its clock is t/n."""
        clock = self.times[-1] / self.ns[-1]
        at = [int(np.abs(self.times - clock * n).argmin()) for n in self.ns]
        values = np.array([mean(self.divergence[j, K1_LOSS, k]) for j, k in enumerate(at)])
        return Finding(
            f"its divergence is a matter of iterations over n: {shows(values)} nats at iteration "
            f"{shows(self.times[at], 4)} for n = {shows(self.ns)}",
            holds=len(self.ns) > 1 and bool(np.ptp(values) < 0.1 * values.mean()),
        )

    @property
    def strays(self) -> Array:
        """Which runs of the k3 loss at some time double the divergence they began with, shape (N, repeats).

        A rare arm with large r = p/q, once sampled, can jump to the top.
        """
        return self._doubled(K3_LOSS)

    def _doubled(self, i: int) -> Array:
        return np.asarray(self.divergence[:, i].max(1) > 2 * self.divergence[:, i, 0])

    def _k3(self) -> Finding:
        """Means against means, as the paper has them, at its n: a few stray runs own that of the k3 loss."""
        start, ends = self.divergence[0, K3_LOSS, 0], self.divergence[0, [K3_LOSS, VANILLA], -1]
        gap, falls = ends[0] - ends[1], below(ends[0], start)
        slower, faster = below(ends[1], ends[0]), below(ends[0], ends[1])
        return Finding(
            f"in the mean at n = {self.ns[0]} the k3 loss falls to {show(mean(ends[0]))} nats, vanilla to "
            f"{show(mean(ends[1]))}: a difference of {show(mean(gap) / error(gap))} standard errors",
            holds=falls,
            paper="variance reduced (incorrect) lowers the divergence too, at a slower rate (means, n = 4)",
            agrees=(falls and slower) if slower or faster or not falls else None,
        )

    def _medians(self) -> Finding:
        k3, vanilla = self.divergence[:, K3_LOSS, -1], self.divergence[:, VANILLA, -1]
        ranges = [", ".join(map(_range, x)) for x in (k3, vanilla)]
        return Finding(
            f"median (middle 90%) at the end: k3 loss {ranges[0]} nats, vanilla {ranges[1]}, for "
            f"n = {shows(self.ns)}",
            holds=bool((np.median(k3, -1) < np.median(vanilla, -1)).all()),
        )

    def _strayed(self) -> Finding:
        runs = self.strays
        rates, others = runs.mean(-1), max(self._doubled(i).sum() for i in (VANILLA, LEAVE_ONE_OUT))
        spread = np.sqrt(rates * (1 - rates) / self.problem.repeats)
        left = self.divergence[0, K3_LOSS, -1, ~runs[0]].sum() / max(1, (~runs[0]).sum())
        return Finding(
            f"{shows(100 * rates)}% of {self.problem.repeats} runs of the k3 loss stray (double some time; "
            f"s.e. {shows(100 * spread)}%), n = {shows(self.ns)}; without them its mean ends at {show(left)} "
            f"nats; of vanilla and leave-one-out {others} stray",
            holds=bool(rates[0] > 0 and runs[0].sum() > others),
        )

    def _k3_exact(self) -> Finding:
        forward, reverse = (self.reaches(mean(self.exact[i])) for i in (FORWARD, REVERSE))
        falls = forward is not None and (reverse is None or forward < reverse)
        return Finding(
            f"without noise the descent of KL(p||q) brings KL(q||p) to a tenth in {forward} iterations, "
            f"that of KL(q||p) itself in {reverse}",
            holds=falls,
            paper="it falls because the k3 loss descends the reversed divergence, which pulls q to p as well",
            agrees=forward is not None,
        )


def _range(values: Array) -> str:
    """The median, and from the 5% to the 95% quantile.

    >>> _range(np.arange(101.0))
    '50 (5 to 95)'
    """
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    return f"{show(middle)} ({show(low)} to {show(high)})"


def figure3(ns: Sequence[int] = DISTANCE_SIZES, progress: Counted = None, **choices: Any) -> Figure3:
    """Figure 3: KL(q||p) over iterations, from logits eps1 + eps2 and p = softmax(eps1).

    >>> figure3(repeats=2, arms=5, ns=(4,), iterations=4).divergence.shape
    (1, 4, 5, 2)

    choices: seed, repeats, arms, step and iterations, as in Problem.
    Raises UsageError: n < 2, and what Problem refuses.
    Source: Tang & Munos 2025, section 3.1, figure 3, appendix C.
    """
    chosen = {"repeats": 500, "iterations": 2000, **choices}
    problem = Problem(**chosen, start="policy", rewarded=False)
    ns, runs, exact = courses(problem, ns, progress)
    bandits = problem.bandits()
    gradient = kl_gradient(bandits.log_q, bandits.log_p)
    unit = gradient / np.linalg.norm(gradient, axis=-1, keepdims=True)
    # The sum of the logits never changes and the gradient sums to zero: log q will do for the logits once
    # both are centred.
    moved = [course.last[K1_LOSS] - bandits.log_q for course in runs]
    downhill = -np.array([((x - x.mean(-1, keepdims=True)) * unit).sum(-1) for x in moved])
    divergence = np.array([course.divergence["optimum"] for course in runs])
    return Figure3(problem, ns, exact.times, divergence, exact.divergence["optimum"], downhill)


# ---------------------------------------------------------------------------- figure 4
@dataclass(frozen=True, eq=False)
class Figure4(Descents):
    """KL(q||pi*) over KL(p||pi*) during KL-regularised reward maximisation, from q = p.

    times: shape (K,).  normalised: shape (N, 4, K, repeats).  exact: mean updates, shape (3, K, repeats), as
    FLOWS; "reverse" is the analytic gradient.
    limits: beta -> mean over bandits of KL(pi*_rev||pi*) over mean of KL(p||pi*), exact, no run needed.
    """

    times: Times
    normalised: Array
    exact: Array
    limits: dict[float, float]

    def table(self) -> NumberTable:
        """Mean normalised KL(q||pi*) at some iterations."""
        return _over_time(self.times, self.ns, self.normalised, self.exact, "of the start")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the data show, beside what section 3.1 says."""
        return (self._vanilla(), self._leave_one_out(), self._incorrect(), self._beta())

    def _end(self, i: int) -> Array:
        return converged(self.times, self.normalised[:, i])

    def _vanilla(self) -> Finding:
        ends = self._end(VANILLA)
        return compare_with_source(
            f"vanilla falls and levels off at {shows(mean(ends))} of the start for n = {shows(self.ns)}",
            all(below(b, a) for a, b in pairwise(ends)) and below(ends[0], np.ones_like(ends[0])),
            "the vanilla estimates converge to a value that depends on n",
        )

    def _leave_one_out(self) -> Finding:
        ends, change = self._end(LEAVE_ONE_OUT), drift(self.times, self.normalised[:, LEAVE_ONE_OUT])
        falling = bool((change < 0.9).all()) and bool((mean(ends) < mean(self._end(VANILLA))).all())
        return Finding(
            f"leave-one-out does not level off: {shows(mean(ends))} and still falling (last quarter over the "
            f"one before: {shows(change)}), since its noise vanishes at pi*",
            holds=falling,
        )

    def _incorrect(self) -> Finding:
        k1, k3 = mean(self._end(K1_LOSS)), mean(self._end(K3_LOSS))
        curves = mean(self.normalised[:, [K1_LOSS, K3_LOSS]])
        least, when = curves.min(-1), self.times[curves.argmin(-1)]
        farther, nearer = bool((k1 > 1).all() and (k3 > 1).all()), bool((least < 0.95).all())
        return Finding(
            f"the k1 loss ends at {shows(k1)} and the k3 loss at {shows(k3)} of the start; on the way both "
            f"come closer to pi*: the k1 loss to {shows(least[:, 0])} at iterations {shows(when[:, 0])}, the "
            f"k3 loss to {shows(least[:, 1])} at {shows(when[:, 1])}",
            holds=farther and nearer,
            paper="the incorrect estimates do not improve upon the divergence from pi* (beta is not given)",
            agrees=farther,
            exception=", ".join(filter(None, ["after a transient" if nearer else "", self._where()])),
        )

    def _where(self) -> str:
        """The values of beta at which the k3 loss ends farther from pi* than it starts, if not at all."""
        farther = [beta for beta, ratio in self.limits.items() if ratio > 1]
        if len(farther) == len(self.limits):
            return ""
        shown = f"at beta = {shows(farther)} of {shows(self.limits)} alone"
        return f"and for the k3 loss {shown}: it depends on beta"

    def _beta(self) -> Finding:
        ratios = list(self.limits.values())
        return Finding(
            f"the k3 loss's exact limit is at {shows(ratios)} of the start for beta = {shows(self.limits)}: "
            "whether it improves depends on beta, which the paper does not give",
            holds=min(ratios) < 1 < max(ratios),
        )


def figure4(ns: Sequence[int] = SIZES, progress: Counted = None, **choices: Any) -> Figure4:
    """Figure 4: KL(q||pi*)/KL(p||pi*) over iterations of theta + step (l - beta g), pi* = p exp(R/beta)/Z.

    >>> figure4(repeats=2, arms=5, ns=(4,), iterations=4).normalised.shape
    (1, 4, 5, 2)

    choices: of Problem.  Raises UsageError: n < 2, and what Problem refuses.
    Source: Tang & Munos 2025, section 3.1, figure 4, appendix C.
    """
    problem = Problem(**choices)
    ns, runs, exact = courses(problem, ns, progress)
    bandits = problem.bandits()
    initial = kl(bandits.log_p, problem.targets(bandits)["optimum"])
    limits = {}
    for weight in WEIGHTS:
        best = optimum(bandits.log_p, bandits.rewards, weight)
        reached = reversed_optimum(bandits.log_p, bandits.rewards, weight)
        limits[weight] = float(mean(kl(reached, best)) / mean(kl(bandits.log_p, best)))
    normalised = np.array([course.divergence["optimum"] / initial for course in runs])
    return Figure4(problem, ns, exact.times, normalised, exact.divergence["optimum"] / initial, limits)
