"""Bandits whose reward carries a detached penalty: set-ups, the flow of the expected update, sampled updates.

Time is in units of 1/beta: both the flow and step * updates then depend on the rewards through R/beta alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.experiments.reward_collapse.theory import expected_update
from klsym.experiments.softmax import (
    PENALTIES,
    centred,
    check_penalty,
    check_runs,
    inverse_cdf,
    is_count,
    is_number,
    kl,
    log_softmax,
    penalty,
    positive,
    refuse_unless,
    score_sum,
    snap,
    walk,
)

LOST = 1e-6  # an arm is lost where q is below this share of the optimum q*
LOW_ENTROPY = 0.1  # share of the entropy of q* below which a policy has collapsed
FLOW_STEP = 0.5  # of the integration, in units of 1/max(beta, spread of the rewards)


@dataclass(frozen=True)
class Setup:
    """One set-up: random bandits, starts, and how they are updated.

    log p = log softmax(reference * N(0, 1)), R = reward * N(0, 1), logits of q = those of p + start * N(0,
    1).

    arms: 2 or more.  reference, reward, start: spreads, 0 or more.  beta: positive.
    step: of the sampled updates; None follows the flow of the expected one.  n: samples an update.
    baseline: subtract the mean of the other samples' rewards.  horizon: in units of 1/beta, the time of the
    flow and of step * updates alike.
    Raises UsageError: numbers out of range, a baseline with one sample.
    """

    name: str
    arms: int = 10
    reference: float = 1.0
    reward: float = 1.0
    start: float = 0.0
    beta: float = 1.0
    step: float | None = None
    n: int = 4
    baseline: bool = True
    horizon: float = 300.0

    def __post_init__(self) -> None:
        positive("beta", self.beta)
        refuse_unless(
            is_count(self.arms, 2) and is_count(self.n, 1), f"{self.name}: 2 arms, 1 sample at least"
        )
        spreads = (self.reference, self.reward, self.start)
        fine = all(is_number(x) and x >= 0 for x in spreads)
        refuse_unless(fine, f"{self.name}: spreads {spreads}: 0 or more expected")
        positive(f"{self.name}: horizon", self.horizon)
        positive(f"{self.name}: step", 1.0 if self.step is None else self.step)
        paired = self.n >= 2 or not self.baseline or self.step is None
        refuse_unless(paired, f"{self.name}: a leave-one-out baseline needs 2 samples or more")


def bandits(setup: Setup, repeats: int, seed: int) -> tuple[Any, Any, Any]:
    """The logits at the start, log p and the rewards, each of shape (arms, repeats).

    Raises UsageError: seed or repeats out of range.
    """
    check_runs(seed, repeats, 1)
    draws = np.random.default_rng([seed, 0]).normal(size=(3, setup.arms, repeats))
    log_p = log_softmax(setup.reference * draws[0], 0)
    return log_p + setup.start * draws[1], log_p, setup.reward * draws[2]


def flow(name: str, setup: Setup, logits: Any, log_p: Any, reward: Any, times: Any) -> Any:
    """log q along the flow of the expected update, by the classical Runge-Kutta method.

    times: increasing, from 0, in units of 1/beta.  Returns shape (times, arms, repeats).
    """

    def update(z: Any) -> Any:
        return expected_update(name, log_softmax(z, 0), log_p, reward, setup.beta)

    z, now, kept = logits, 0.0, []
    largest = FLOW_STEP / max(setup.beta, setup.reward)
    for time in np.asarray(times) / setup.beta:
        count = math.ceil((time - now) / largest - 1e-9)
        h = (time - now) / max(count, 1)
        for _ in range(count):
            one = update(z)
            two = update(z + h / 2 * one)
            three = update(z + h / 2 * two)
            z = z + h / 6 * (one + 2 * two + 2 * three + update(z + h * three))
        now = time
        kept.append(log_softmax(z, 0))
    return np.array(kept)


def sampled_update(name: str, setup: Setup, log_q: Any, log_p: Any, reward: Any, uniforms: Any) -> Any:
    """(1/n) sum_i (R_i - beta k_i - baseline) s_i from n arms drawn by inversion; shape (arms, repeats).

    uniforms: on [0, 1), shape (n, repeats).
    """
    at, _ = inverse_cdf(np.exp(log_q), uniforms)
    gain = reward.take(at) - setup.beta * penalty(name, (log_q - log_p).take(at))
    if setup.baseline:
        gain = centred(gain)
    return score_sum(at, gain / len(at), np.exp(log_q))


def sampled(name: str, setup: Setup, logits: Any, log_p: Any, reward: Any, times: Any, seed: int) -> Any:
    """log q along sampled updates of size setup.step; the same uniforms for every penalty.

    times: increasing, from 0, in units of 1/beta.  Returns shape (times, arms, repeats).
    """
    refuse_unless(setup.step is not None, f"{setup.name}: a step expected")
    stream, step = np.random.default_rng([seed, 1]), float(setup.step or 1)

    def update(z: Any) -> Any:
        u = stream.random((setup.n, logits.shape[1]))
        return snap(z + step * sampled_update(name, setup, log_softmax(z, 0), log_p, reward, u))

    path = walk(logits, update, (round(time / setup.beta / step) for time in times))
    return np.array([log_softmax(z, 0) for z in path])


# ---------------------------------------------------------------------------- outcomes
@dataclass(frozen=True, eq=False)
class Paths:
    """Runs of one set-up, one penalty after the other.

    log_q: shape (penalties, times, arms, repeats).  log_p, log_best: of p and q* proportional to p
    exp(R/beta), shape (arms, repeats).  times: units of 1/beta.
    """

    setup: Setup
    times: Any
    log_q: Any
    log_p: Any
    log_best: Any

    @property
    def kl(self) -> Any:
        """KL(q||q*), the shortfall of E_q[R] - beta KL(q||p) over beta; shape (penalties, times, repeats)."""
        return kl(self.log_q, self.log_best, axis=2)

    @property
    def lost(self) -> Any:
        """Has an arm been lost?  q_x < LOST q*_x for some x; shape (penalties, times, repeats)."""
        return (self.log_q - self.log_best).min(axis=2) < np.log(LOST)

    @property
    def low_entropy(self) -> Any:
        """Is the entropy below LOW_ENTROPY times that of q*?"""
        entropy = -(np.exp(self.log_q) * self.log_q).sum(axis=2)
        best = -(np.exp(self.log_best) * self.log_best).sum(axis=0)
        return entropy < LOW_ENTROPY * best

    @property
    def farther(self) -> Any:
        """Is q farther from q* than where it started?"""
        return self.kl > self.kl[:, :1]

    @property
    def arms_left(self) -> Any:
        """How many arms are not lost; shape (penalties, times, repeats)."""
        return (self.log_q - self.log_best >= np.log(LOST)).sum(axis=2)

    def shares(self) -> Any:
        """Shares of runs at the end that lost an arm, have low entropy, are farther; (3, penalties)."""
        return np.array([x[:, -1].mean(axis=-1) for x in (self.lost, self.low_entropy, self.farther)])


def run(
    setup: Setup, repeats: int, seed: int, records: int = 2, penalties: Sequence[str] = PENALTIES
) -> Paths:
    """Run a set-up with every penalty from the same starts.

    >>> found = run(Setup("small", arms=3, horizon=20.0), repeats=4, seed=0)
    >>> found.log_q.shape
    (3, 2, 3, 4)

    records: times at which q is kept, from 0 to the horizon, 2 or more.
    Raises UsageError: seed, repeats or records out of range, another penalty.
    """
    refuse_unless(is_count(records, 2), f"records {records!r}: 2 or more expected")
    for name in penalties:
        check_penalty(name)
    logits, log_p, reward = bandits(setup, repeats, seed)
    times = np.linspace(0.0, setup.horizon, records)
    start = (setup, logits, log_p, reward, times)
    runs = [flow(k, *start) if setup.step is None else sampled(k, *start, seed) for k in penalties]
    return Paths(setup, times, np.array(runs), log_p, log_softmax(log_p + reward / setup.beta, 0))
