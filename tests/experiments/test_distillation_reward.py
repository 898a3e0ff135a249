"""Reward against the KL divergence: the optimum by enumeration, and where the losses end."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from klsym.experiments.distillation.reward import (
    BETAS,
    LOSSES,
    PAPER_BETA,
    ascend,
    optimum,
    payoff,
    reward_against_kl,
)
from klsym.experiments.distillation.runs import Setup, start
from klsym.study.sequences import autoregressive


def test_the_optimum_by_enumeration():
    setup = Setup("small", vocabulary=2, memory=1, student_memory=1, max_length=4)
    space, (_, log_p) = setup.space, start(setup, 2, seed=0)
    for m, beta in product(range(2), (0.2, 1.0, 5.0)):
        p = autoregressive.Autoregressive(log_p[:, :, m], 1, 4)
        y = autoregressive.enumerate_sequences(p)
        # reward 1 where stop was drawn, before the last step, right after token 0
        right = [
            float(2 <= length < 4 and symbols[length - 2] == 0)
            for symbols, length in zip(y.symbols, y.lengths, strict=True)
        ]
        base = np.exp(autoregressive.compute_log_probabilities(p, y))
        best = base * np.exp(np.array(right) / beta)
        best /= best.sum()
        kl, reward = optimum(space, log_p, payoff(space), beta)
        assert reward[m] == pytest.approx(best @ right)
        assert kl[m] == pytest.approx(best @ np.log(best / base))


@pytest.fixture(scope="module")
def low():
    return reward_against_kl(repeats=40)


def test_no_policy_passes_the_frontier(low):
    for kl, reward in zip(
        low.kl.mean(axis=-1).reshape(12, -1), low.reward.mean(axis=-1).reshape(12, -1), strict=True
    ):
        assert (reward < np.interp(kl, *low.frontier) + 1e-9).all()


def test_k3_and_vanilla_trace_one_curve_at_different_places(low):
    assert np.abs(low.gaps("token k3")).max() < 0.15 < np.abs(low.gaps("token k1")).max()
    vanilla, k3, _ = low.last_kl[:, 1:]  # the first beta is too light to tell
    assert (k3 > vanilla).all() and (k3[1:] > 1.5 * vanilla[1:]).all()


def test_k1_as_a_loss_does_not_hold_the_policy(low):
    assert (low.last_kl[2, 1:] > low.last_kl[0, 1:]).all()
    assert (low.gaps("token k1").mean(axis=1)[1:] < 0).all()


def test_at_the_beta_of_the_paper_the_losses_are_not_told_apart(low):
    assert BETAS[0] == PAPER_BETA == 0.001
    assert max(np.abs(low.gaps(loss)[0]).max() for loss in LOSSES) < 0.03
    assert low.findings[-1].holds and low.findings[-1].agrees
    heavier = replace(low, kl=low.kl[:, ::-1], reward=low.reward[:, ::-1])
    assert not heavier.findings[-1].holds  # the curves of beta = 1 in its place


def test_without_penalty_weight_all_losses_agree():
    setup = Setup("tiny", vocabulary=2, memory=1, student_memory=1, max_length=4, iterations=8)
    ends = [ascend(setup, loss, [1e-12], 3, seed=0) for loss in LOSSES]
    for kl, reward in ends[1:]:
        assert kl == pytest.approx(ends[0][0], abs=1e-5)
        assert reward == pytest.approx(ends[0][1], abs=1e-5)
    assert len(BETAS) == 4
