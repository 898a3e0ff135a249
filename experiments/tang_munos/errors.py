"""Figures 1 and 2 of Tang & Munos 2025: errors of the estimates of KL(q||p) and of its gradient against n.

Every repeat is a bandit of its own, with one simulation at each n; the estimates share its samples.
Beside each sampled error stands the exact one, bandit by bandit (`bandit_errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.experiments.softmax import Array, Counted, kl, sample_sizes
from klsym.experiments.summaries import NumberTable, Ticker, error, mean, mostly_below, show, shows, slope
from klsym.experiments.tang_munos.bandit_errors import (
    gradient_bias,
    gradient_mse,
    value_bias_variance,
    value_mse,
)
from klsym.experiments.tang_munos.bandits import (
    GRADIENTS,
    VALUES,
    Bandits,
    draw_bandits,
    gradient_estimates,
    kl_gradient,
    value_estimates,
)
from klsym.study.ledger.experiment_result import Finding, compare_with_source

VALUE_SIZES = tuple(2**k for k in range(11))
GRADIENT_SIZES = tuple(2**k for k in range(1, 13))
FAR = 16  # from here on the slopes are measured


@dataclass(frozen=True, eq=False)
class _Errors:
    """Errors of some estimates over bandits, against the sample sizes ns."""

    seed: int
    arms: int
    ns: Sequence[int]

    def describe(self, repeats: int) -> str:
        """The set-up in one line."""
        return f"{repeats} bandits of {self.arms} arms (seed {self.seed}), one simulation each at every n"

    def rows(self, names: Sequence[str], sampled: Array, exact: Array, digits: int) -> NumberTable:
        """Mean sampled error, its standard error and the exact one, one row for each n."""
        header = ("n", *(f"{name} {what}" for name in names for what in ("sampled", "s.e.", "exact")))
        columns = np.stack([mean(sampled), error(sampled), mean(exact)], axis=1)
        return header, [
            (str(n), *(show(x, digits) for x in columns[:, :, j].ravel())) for j, n in enumerate(self.ns)
        ]


# ---------------------------------------------------------------------------- values
@dataclass(frozen=True, eq=False)
class Figure1(_Errors):
    """Squared errors of k1, k2, k3 as estimates of KL(q||p), against n.

    ns: sample sizes, shape (N,).
    squared: (mean of n samples - KL)^2, one simulation a bandit, nats^2, shape (3, N, repeats), as VALUES.
    exact: its expectation, bias^2 + Var/n, the same shape.
    bias, variance: of one sample, shape (3, repeats).
    """

    squared: Array
    exact: Array
    bias: Array
    variance: Array

    @property
    def setup(self) -> str:
        """The set-up in one line."""
        return self.describe(self.squared.shape[-1])

    def table(self) -> NumberTable:
        """MSE over the simulations, its standard error and the exact MSE, one row for each n."""
        return self.rows(VALUES, self.squared, self.exact, 2)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the data show, beside what section 2.1 says."""
        return (self._small_n(), self._bias(), self._k3(), self._simulations())

    def _small_n(self) -> Finding:
        k1, k2, k3 = self.exact[:, 0]
        return compare_with_source(
            f"exact MSE at n = {self.ns[0]}: "
            + ", ".join(f"{name} {show(mean(x))}" for name, x in zip(VALUES, (k1, k2, k3), strict=True)),
            mostly_below(k2, k1) and mostly_below(k3, k1),
            "at small n the squared and the variance reduced estimates have lower MSE than vanilla",
        )

    def _bias(self) -> Finding:
        squared = float(mean(self.bias[1] ** 2))
        crossing = float(mean(self.variance[0] - self.variance[1])) / squared
        return compare_with_source(
            f"k2 levels off at its squared bias, {show(squared)}; its exact MSE passes that of k1 at "
            f"n = {crossing:.0f}",
            mostly_below(self.exact[0, -1], self.exact[1, -1]),
            "at large n the squared estimate saturates at a higher MSE",
        )

    def _k3(self) -> Finding:
        k1, _, k3 = self.variance
        return compare_with_source(
            f"k3 has {show(mean(k3) / mean(k1))} times the variance of k1 on average, but the larger one in "
            f"{int((k3 > k1).sum())} of {len(k1)} bandits",
            mostly_below(k3, k1),
            "overall the variance reduced estimate has lower MSE",
        )

    def _simulations(self) -> Finding:
        """A mean of so few squared errors is itself noisy; k3 is worst, since r has a heavy tail."""
        ratios = mean(self.squared) / mean(self.exact)
        low, high = ratios.min(axis=1), ratios.max(axis=1)
        spread = ", ".join(f"{v} {show(a)} to {show(b)}" for v, a, b in zip(VALUES, low, high, strict=True))
        return Finding(
            f"sampled over exact MSE, least and largest over n: {spread}; k3 strays furthest",
            holds=bool((high / low).argmax() == 2),
        )


def figure1(
    seed: int = 0,
    repeats: int = 100,
    arms: int = 100,
    ns: Sequence[int] = VALUE_SIZES,
    progress: Counted = None,
) -> Figure1:
    """Figure 1: MSE = E (estimate - KL(q||p))^2 of k1, k2 and k3 against n.

    >>> figure1(repeats=2, arms=5, ns=(1, 4)).squared.shape
    (3, 2, 2)

    Raises UsageError: arms < 2, repeats < 1, n < 1, ns not increasing.
    Source: Tang & Munos 2025, section 2.1, figure 1, appendix C.
    """
    ns, bandits = sample_sizes(ns, 1), draw_bandits(seed, repeats, arms)
    log_q, log_p = bandits.log_q, bandits.log_p
    truth = kl(log_q, log_p)
    squared = _simulated(bandits, ns, (seed, 2), progress, lambda counts: (
        value_estimates(counts, log_q, log_p) - truth) ** 2)  # fmt: skip
    exact = np.array([[value_mse(name, log_q, log_p, n) for n in ns] for name in VALUES])
    moments = np.array([value_bias_variance(name, log_q, log_p) for name in VALUES])
    return Figure1(seed, arms, ns, squared, exact, moments[:, 0], moments[:, 1])


def _simulated(
    bandits: Bandits,
    ns: Sequence[int],
    stream: tuple[int, int],
    progress: Counted,
    measure: Callable[[Any], Any],
) -> Array:
    """What is measured of the counts of the arms at each n, one simulation a bandit."""
    tick, found = Ticker(progress, len(ns)), []
    for n in ns:
        found.append(measure(np.random.default_rng([*stream, n]).multinomial(n, np.exp(bandits.log_q))))
        tick(1)
    return np.stack(found, axis=1)


# ---------------------------------------------------------------------------- gradients
@dataclass(frozen=True, eq=False)
class Figure2(_Errors):
    """Root-MSE of the estimates of grad KL(q||p) in the logits, against n.

    ns: sample sizes, shape (N,).
    norms: |estimate - gradient|, one simulation a bandit, shape (4, N, repeats), as GRADIENTS.
    exact: sqrt(E |estimate - gradient|^2) = sqrt(|bias|^2 + trace Cov), the same shape.  It bounds the mean
    norm from above (Jensen); the gap is wide where the norm has a heavy tail.
    bias: |bias|, shape (4, repeats).
    """

    norms: Array
    exact: Array
    bias: Array

    @property
    def setup(self) -> str:
        """The set-up in one line."""
        return self.describe(self.norms.shape[-1])

    def table(self) -> NumberTable:
        """Mean norm of the error, its standard error and the exact root-MSE, one row for each n."""
        return self.rows(GRADIENTS, self.norms, self.exact, 3)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the data show, beside what section 3.1 says."""
        return (self._plateaus(), self._slopes(), self._leave_one_out(), self._tail())

    def _plateaus(self) -> Finding:
        last, limit = mean(self.norms[:2, -1]), mean(self.bias[:2])
        bare = all(mostly_below(self.exact[2, -1], self.bias[i]) for i in (0, 1))
        return Finding(
            f"at n = {self.ns[-1]} the k1 loss is off by {show(last[0])} and the k3 loss by {show(last[1])}; "
            f"their exact biases are {shows(limit)}",
            holds=bare and bool((np.abs(last / limit - 1) < 0.1).all()),
            paper="both incorrect losses level off at a higher error",
            agrees=bare,
        )

    def _slopes(self) -> Finding:
        far = [j for j, n in enumerate(self.ns) if n >= FAR] or [0, -1]
        ns = [self.ns[j] for j in far]
        slopes = [slope(ns, mean(self.norms[i, far])) for i in (2, 3)]
        return compare_with_source(
            f"from n = {ns[0]} on, log-log slopes: vanilla {slopes[0]:.2f}, leave-one-out {slopes[1]:.2f}",
            all(abs(s + 0.5) < 0.05 for s in slopes),
            "the error of the vanilla estimates falls, straight on a log scale",
        )

    def _leave_one_out(self) -> Finding:
        """One sentence of the source, so one finding: a baseline from few samples is itself noise."""
        vanilla, other = self.exact[2:]
        ratios = mean(other) / mean(vanilla)
        few = [j for j in range(len(ratios)) if mostly_below(vanilla[j], other[j])]
        first = min((n for n, ratio in zip(self.ns, ratios, strict=True) if ratio < 1), default="none")
        text = f"leave-one-out has a lower exact root-MSE than vanilla from n = {first} on: "
        text += f"{show(ratios[-1])} times at n = {self.ns[-1]}"
        if few:
            worse, of = int((other[few[-1]] > vanilla[few[-1]]).sum()), other.shape[-1]
            text += f"; at n = {shows([self.ns[j] for j in few])} it has {shows(ratios[few])} times that of"
            text += f" vanilla, at n = {self.ns[few[-1]]} a larger one in {worse} of {of} bandits"
        lower = mostly_below(other[-1], vanilla[-1])
        return Finding(
            text,
            holds=lower and few == list(range(len(few))),
            paper="the leave-one-out control variate lowers the variance marginally",
            agrees=lower,
            exception=f"except for n <= {self.ns[few[-1]]}" if few else "",
        )

    def _tail(self) -> Finding:
        few = [j for j, n in enumerate(self.ns) if n < FAR] or [0]
        ratios = (mean(self.norms) / mean(self.exact))[:, few].mean(-1)
        return Finding(
            f"for n < {FAR} the mean norm of the error is {show(ratios[1])} of the exact root-MSE for the "
            f"k3 loss, {show(ratios[2])} for vanilla: rare large r",
            holds=bool(ratios[1] < ratios[2] < 1),
        )


def figure2(
    seed: int = 0,
    repeats: int = 100,
    arms: int = 100,
    ns: Sequence[int] = GRADIENT_SIZES,
    progress: Counted = None,
) -> Figure2:
    """Figure 2: root-MSE |estimate - grad KL(q||p)| of four gradient estimates against n.

    >>> figure2(repeats=2, arms=5, ns=(2, 8)).norms.shape
    (4, 2, 2)

    Raises UsageError: arms < 2, repeats < 1, n < 2 (leave-one-out needs another sample), ns not increasing.
    Source: Tang & Munos 2025, section 3.1, figure 2, appendix C (its root-MSE sums over the logits).
    """
    ns, bandits = sample_sizes(ns, 2), draw_bandits(seed, repeats, arms)
    log_q, log_p = bandits.log_q, bandits.log_p
    truth = kl_gradient(log_q, log_p)
    norms = _simulated(bandits, ns, (seed, 3), progress, lambda counts: np.linalg.norm(
        gradient_estimates(counts, log_q, log_p) - truth, axis=-1))  # fmt: skip
    exact = np.sqrt([[gradient_mse(name, log_q, log_p, n) for n in ns] for name in GRADIENTS])
    bias = np.linalg.norm([gradient_bias(name, log_q, log_p) for name in GRADIENTS], axis=-1)
    return Figure2(seed, arms, ns, norms, exact, bias)
