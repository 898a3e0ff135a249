"""Reward against KL in regularised reward maximisation: a stand-in for figure 7 of Tang & Munos 2025.

The policy starts at the reference and ascends E_q[R] - beta KL(q||p), with the KL part of each update one
of the token-level losses.  R is 1 where a sequence stops, of its own accord, after one chosen token, and 0
elsewhere: the likeness of an answer that does or does not match.  Both coordinates are exact; so is the
frontier, which
no policy passes: q*(y) = p(y) exp(R/beta) / Z for each beta, by soft dynamic programming.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.experiments.distillation.models import ESTIMATORS, Draws, Space, draw, expected_sum, sequence_kl
from klsym.experiments.distillation.runs import Setup, start, uniforms
from klsym.experiments.softmax import (
    centred,
    check_runs,
    log_softmax,
    positive,
    positive_numbers,
    refuse_unless,
    score_sum,
    slope,
    snap,
    walk,
)
from klsym.study.ledger.experiment_result import Finding, compare_with_source

LOSSES = ("token vanilla", "token k3", "token k1")  # k1 as a loss: score coefficient 1, no KL force at all
SETUP = Setup("at the reference", memory=1, reference=1.0, policy=0.0, near=True, iterations=200)
PAPER_BETA = 0.001  # that of the paper's figure 7, for rewards and divergences of a language model
BETAS = (PAPER_BETA, 0.1, 0.3, 1.0)
STEP, EVERY = 0.3, 4  # step size; iterations between two records
RIGHT = 0  # the token to stop after
LEVELS = np.linspace(0.1, 1.0, 10)  # where curves are compared, as shares of the KL that both reach


@dataclass(frozen=True, eq=False)
class RewardAgainstKL:
    """Curves of reward against sequence KL.

    kl, reward: shape (losses, betas, records, repeats), exact.  frontier: (KL, reward) of the exact optimum
    for ever smaller beta, shape (2, points), means over repeats.
    """

    setup: Setup
    betas: Any
    kl: Any
    reward: Any
    frontier: Any

    def gaps(self, loss: str) -> Any:
        """Reward less that of token vanilla at equal KL, over the latter's gain, shape (betas, levels)."""
        found = [
            _gap(*(self._curve(name, j) for name in (loss, "token vanilla"))) for j in range(len(self.betas))
        ]
        return np.array(found)

    def _curve(self, loss: str, beta: int) -> Any:
        """Mean KL and mean reward over the iterations, shape (2, records)."""
        i = LOSSES.index(loss)
        return np.stack([self.kl[i, beta].mean(axis=-1), self.reward[i, beta].mean(axis=-1)])

    @property
    def last_kl(self) -> Any:
        """The mean KL after the last update, shape (losses, betas)."""
        return self.kl[:, :, -1].mean(axis=-1)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the curves show, beside figure 7 and section 5.1 of the paper."""
        k3, k1 = (np.abs(self.gaps(loss)).max() for loss in ("token k3", "token k1"))
        vanilla, other = self.last_kl[:2]
        heavy = self.betas > PAPER_BETA
        vanilla_, other_, betas = vanilla[heavy], other[heavy], self.betas[heavy]
        ratios = ", ".join(f"{r:.1f} at beta = {b:g}" for r, b in zip(other_ / vanilla_, betas, strict=True))
        mean = self.gaps("token k1").mean(axis=1)[heavy]
        light = [float(np.abs(self.gaps(loss)[~heavy]).max(initial=0)) for loss in ("token k3", "token k1")]
        return (
            compare_with_source(
                f"at equal KL, up to {vanilla.max():.0f} nats, token k3 and token vanilla gain the same "
                f"reward within {np.ceil(100 * k3):.0f}%",
                bool(k3 < 0.1),
                "similar curves, because the KL is low",
            ),
            Finding(
                f"at equal beta they do not stand at equal KL: token k3 ends at a multiple of {ratios}",
                bool((other_ > 1.1 * vanilla_).all()),
            ),
            Finding(
                "k1 as a loss earns least at equal KL: its gain falls short by "
                + ", ".join(f"{_percent(-m)} at beta = {b:g}" for m, b in zip(mean, betas, strict=True)),
                bool((mean < -0.03).all() and k1 > 2 * k3),
                "the least KL-efficient whatever beta is",
                bool((mean < -0.03).all()),
            ),
            Finding(
                f"at the paper's own beta = {PAPER_BETA:g} the penalty is too light to tell losses apart: "
                f"at equal KL token k3 gains what token vanilla does within {np.ceil(100 * light[0]):.0f}%, "
                f"token k1 within {np.ceil(100 * light[1]):.0f}%",
                max(light) < 0.03,
                f"at beta = {PAPER_BETA:g} token k3 and token vanilla trace similar curves",
                light[0] < 0.1,
            ),
        )


def _percent(share: float) -> str:
    """A share to the nearest five percent.

    >>> _percent(0.031), _percent(0.42)
    ('5%', '40%')
    """
    return f"{5 * round(20 * share)}%"


def _gap(curve: Any, standard: Any) -> Any:
    levels = LEVELS * min(curve[0].max(), standard[0].max())
    ours, theirs = (np.interp(levels, np.maximum.accumulate(c[0]), c[1]) for c in (curve, standard))
    return (ours - theirs) / (theirs - standard[1, 0])


def payoff(space: Space) -> Any:
    """The reward of each draw: 1 for stop right after the chosen token, shape (states, symbols, 1).

    >>> payoff(Space(2, 1, 1, 4))[:, :, 0].tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    found = np.zeros((space.states, space.symbols, 1))
    found[np.unique(space.successors[:, RIGHT]), -1] = 1
    return found


def optimum(space: Space, log_p: Any, rewards: Any, beta: float) -> tuple[Any, Any]:
    """KL(q*||p) and E_q*[R] of q* = p exp(R/beta)/Z among all policies, both of shape (models,).

    Z_t(s) = sum_a p(a|s) exp(f/beta) Z_{t+1}(next)      q*_t(a|s) = p(a|s) exp(f/beta) Z_{t+1}(next) / Z_t(s)
    KL = E_q*[R]/beta - log Z_1

    rewards: f, shape (states, symbols, 1).  beta: positive.
    Raises UsageError: beta not positive.  Source: Ziebart et al. 2008.
    """
    positive("beta", beta)
    p, shape = np.exp(log_p), log_p[:, 0].shape
    log_z, value = np.zeros(shape), np.zeros(shape)
    for _ in range(space.max_length - 1):
        log_weight = log_p + rewards / beta
        log_weight[:, :-1] += log_z[space.successors]
        top = log_weight.max(axis=1)
        weight = np.exp(log_weight - top[:, None])
        gained = np.broadcast_to(rewards, p.shape).copy()
        gained[:, :-1] += value[space.successors]
        value = (weight * gained).sum(axis=1) / weight.sum(axis=1)
        log_z = top + np.log(weight.sum(axis=1))
    return value[0] / beta - log_z[0], value[0]


def _penalty(loss: str, draws: Draws, ratio: Any) -> Any:
    """The score coefficient of the token-level loss."""
    return slope("k1", ratio) if loss == "token k1" else ESTIMATORS[loss](draws, ratio)


def ascend(setup: Setup, loss: str, betas: Any, repeats: int, seed: int) -> tuple[Any, Any]:
    """KL and E_q[R] along logits <- logits + STEP (leave-one-out policy gradient - beta loss gradient).

    loss: one of LOSSES.  betas: positive.  Returns two arrays of shape (betas, records, repeats).
    Raises UsageError: another loss, numbers out of range.
    Source: Tang & Munos 2025, appendix C (the update), section 5.1.
    """
    refuse_unless(loss in LOSSES, f"loss {loss!r}: one of {', '.join(LOSSES)} expected")
    check_runs(seed, repeats)
    weight = np.repeat(positive_numbers("betas", betas), repeats)
    space, stream = setup.space, np.random.default_rng([seed, 3])
    z, log_p = (np.tile(x, len(betas)) for x in start(setup, repeats, seed))
    rewards = payoff(space)

    def update(z: Any) -> Any:
        log_q = log_softmax(z, 1)
        draws = draw(space, np.exp(log_q), uniforms(setup, repeats, stream))
        ratio = log_q.ravel()[draws.in_q] - log_p.ravel()[draws.in_p]
        got = rewards.ravel()[draws.in_p // draws.models]
        advantage = centred(draws.totals(got)).ravel()[draws.sequence]
        coefficient = advantage - weight[draws.sequence % draws.models] * _penalty(loss, draws, ratio)
        return snap(z + STEP * score_sum(draws.in_q, coefficient / setup.n, np.exp(log_q), axis=1))

    kept = []
    for x in walk(z, update, range(0, setup.iterations + 1, EVERY)):
        log_q = log_softmax(x, 1)
        earned = expected_sum(space, log_q, rewards, gradient=False)[0]
        kept.append((sequence_kl(space, log_q, log_p), earned))
    kl, reward = np.moveaxis(np.array(kept).reshape(len(kept), 2, len(betas), repeats), 0, 2)
    return kl, reward


def reward_against_kl(seed: int = 0, repeats: int = 100, setup: Setup = SETUP) -> RewardAgainstKL:
    """Run every loss at every beta, and the exact frontier.

    >>> found = reward_against_kl(repeats=3, setup=Setup("tiny", memory=1, student_memory=1, iterations=8))
    >>> found.kl.shape
    (3, 4, 3, 3)

    repeats: independent references, 2 or more.  Raises UsageError: numbers out of range.
    """
    check_runs(seed, repeats)
    runs = [ascend(setup, loss, BETAS, repeats, seed) for loss in LOSSES]
    log_p, space = start(setup, repeats, seed)[1], setup.space
    best = [optimum(space, log_p, payoff(space), b) for b in np.geomspace(10, 0.05, 60)]
    frontier = np.array([[x.mean() for x in pair] for pair in best]).T
    kl, reward = (np.array(part) for part in zip(*runs, strict=True))
    return RewardAgainstKL(setup, np.array(BETAS), kl, reward, frontier)
