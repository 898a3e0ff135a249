"""Bandits that learn from samples of an older policy: set-ups, and sampled updates.

The sampler mu is the policy of up to `age` updates ago: it is renewed every `age` updates, and each update
draws fresh samples from it.  With w = q/mu where the weight is kept, and w = 1 where it is left out,

    theta <- theta + step/n sum_i w_i (R_i - beta k1_i - mean of the others') s_i

so that with the weight the penalty descends KL(q||p).  The exact update is its mean over the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.experiments.softmax import (
    centred,
    check_runs,
    inverse_cdf,
    is_count,
    is_number,
    log_softmax,
    positive,
    refuse_unless,
    score_sum,
    snap,
)


@dataclass(frozen=True)
class Setup:
    """One set-up: random bandits with log p = log softmax(N(0, 1)) and R = N(0, 1), which start at q = p.

    age: updates between two samplers; 1 is on-policy.  beta: weight of the penalty, 0 or more.
    weighted: is each sample weighted by q/mu?  step, n: of the updates; n = 0 for the exact update.
    arms: 2 or more.  updates: of a run.
    Raises UsageError: numbers out of range.
    """

    age: int
    beta: float
    weighted: bool
    step: float = 0.5
    n: int = 8
    arms: int = 10
    updates: int = 2000

    def __post_init__(self) -> None:
        positive("step", self.step)
        sampled = self.n == 0 or is_count(self.n, 2)
        counted = is_count(self.arms, 2) and sampled and is_count(self.age, 1)
        refuse_unless(counted and is_count(self.updates, 1), "2 arms, 2 samples, 1 update at least")
        refuse_unless(is_number(self.beta) and self.beta >= 0, f"beta = {self.beta!r}: 0 or more expected")


@dataclass(frozen=True, eq=False)
class Run:
    """Runs of one set-up.  reward: E_q[R] after each update, shape (1 + updates, repeats).

    most: the largest reward of an arm.  entropy: that of q at the end.  Both of shape (repeats,).
    """

    setup: Setup
    reward: Any
    most: Any
    entropy: Any

    @property
    def fallen(self) -> Any:
        """Which part of what a run had gained at its best it has lost at its end; shape (repeats,)."""
        best, start, end = self.reward.max(axis=0), self.reward[0], self.reward[-1]
        return (best - end) / np.maximum(best - start, 1e-12)

    @property
    def regret(self) -> Any:
        """max R - E_q[R], the mean over the last tenth of the updates; shape (repeats,)."""
        return self.most - self.reward[-max(1, len(self.reward) // 10) :].mean(axis=0)


def run(setup: Setup, repeats: int, seed: int) -> Run:
    """Run a set-up; all set-ups with these arms share their bandits and uniform numbers.

    Raises UsageError: seed or repeats out of range.
    """
    return run_together([setup], repeats, seed)[0]


def run_together(setups: Sequence[Setup], repeats: int, seed: int) -> list[Run]:
    """Run set-ups with the same weights, n, arms and updates, one block of columns for each.

    Raises UsageError: seed or repeats out of range, or set-ups that cannot run together.
    """
    check_runs(seed, repeats, 1)
    first = setups[0]
    alike = {(one.weighted, one.n, one.arms, one.updates) for one in setups}
    refuse_unless(
        len(alike) == 1, "set-ups that run together: the same weights, n, arms and updates expected"
    )
    draws = np.random.default_rng([seed, 0]).normal(size=(2, first.arms, repeats))
    log_p, reward = (np.tile(x, len(setups)) for x in (log_softmax(draws[0], 0), draws[1]))
    beta, step, age = (
        np.repeat([getattr(one, name) for one in setups], repeats) for name in ("beta", "step", "age")
    )
    rewards, logits, log_q, log_mu = [], log_p, log_p, log_p
    q = mu = np.exp(log_q)
    for number, uniforms in enumerate(_draw_uniforms(first, repeats, seed)):
        rewards.append((q * reward).sum(axis=0))
        renewed = number % age == 0
        log_mu, mu = np.where(renewed, log_q, log_mu), np.where(renewed, q, mu)
        gain = reward - beta * (log_q - log_p)
        weight = np.exp(log_q - log_mu) if first.weighted else np.ones_like(log_q)
        push = (
            _average(gain, weight, q, mu, np.tile(uniforms, len(setups)))
            if first.n
            else _expect(gain, weight, q, mu)
        )
        logits = snap(logits + step * push)
        log_q = log_softmax(logits, 0)
        q = np.exp(log_q)
    rewards.append((q * reward).sum(axis=0))
    entropy = -(q * log_q).sum(axis=0)
    blocks = [slice(i * repeats, (i + 1) * repeats) for i in range(len(setups))]
    return [
        Run(setup, np.array([row[block] for row in rewards]), reward[:, block].max(axis=0), entropy[block])
        for setup, block in zip(setups, blocks, strict=True)
    ]


def _average(gain: Any, weight: Any, q: Any, mu: Any, uniforms: Any) -> Any:
    """1/n sum_i w_i (gain_i - mean of the others') s_i, of arms drawn from mu."""
    at, _ = inverse_cdf(mu, uniforms)
    return score_sum(at, weight.take(at) * centred(gain.take(at)) / len(at), q)


def _expect(gain: Any, weight: Any, q: Any, mu: Any) -> Any:
    """E_mu[w (gain - E_mu[gain]) s], the mean of `_average`."""
    pushed = mu * weight * (gain - (mu * gain).sum(axis=0))
    return pushed - q * pushed.sum(axis=0)


def _draw_uniforms(setup: Setup, repeats: int, seed: int) -> Iterable[Any]:
    stream = np.random.default_rng([seed, 1])
    return (stream.random((setup.n, repeats)) for _ in range(setup.updates))
