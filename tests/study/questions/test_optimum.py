"""Where training ends with random penalties, against a simulation of training and Newton's method; by hand.

Each run has to end at a policy that is listed, and to come back to each that is listed as stable; Newton's
method finds no stationary policy that is not listed.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import sympy

from klsym.errors import UsageError
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import beta, k1, k2, log_mu, log_p, log_q, r
from klsym.study.api import optimum
from klsym.study.questions.optimum import find_optimum
from support.losses.training_flow import end, jacobian, softmax
from support.scale import scaled

LOSSES = (
    "k1", "k2", "k3", "r", "k(0.5)", "rho*k3", "rho*k2", "sg(rho)*k3", "2*k2 - k3", "k2 - 2*k3", "k1*k3",
    "r**2", "k1**2*r", "k3 - k2/2", "sqrt(r)", "rho**2", "k1/rho", "rho*k1 - k3", "log_q", "log_q**2",
    "k2 + r/3", "k1**3", "k1**3/3 - k1", "1/r - k1", "rho*k1**2",
)  # fmt: skip
SEEDS = range(scaled(100, 16))
BETAS = ("0.1", "0.3", "0.5", "1", "2", "5")


@cache
def drawn(seed):
    """Rewards, an answer, and C = R - beta c as a function of q."""
    rng = np.random.default_rng([28, seed])
    size = 2 + seed % 3
    rewards = [Fraction(int(x), 100) for x in rng.normal(size=size) * 70]
    p, mu = ([Fraction(int(x), int(w.sum())) for x in w] for w in rng.integers(1, 9, size=(2, size)))
    beta = Fraction(str(rng.choice(BETAS)))
    sampling, use = str(rng.choice(["on-policy", "off-policy"])), str(rng.choice(["loss", "reward"]))
    found = optimum(LOSSES[seed % len(LOSSES)], beta, rewards, p, mu, sampling, use)
    c = sympy.lambdify((log_q, log_p, log_mu), to_sympy(found.coefficient).doit(), "numpy")
    paid, of_p, of_mu = (np.array([float(x) for x in row]) for row in (rewards, p, mu))

    def level(q):
        return paid - float(beta) * np.broadcast_to(c(np.log(q), np.log(of_p), np.log(of_mu)), q.shape)

    return size, found.optimum, level


def newton(level, x):
    """A zero of C_j - C_n from these logits, or None."""

    def gap(x):
        found = level(softmax(x))
        return found[:-1] - found[-1]

    steps = np.eye(len(x))[:-1] * 1e-6
    for _ in range(80):
        columns = [(gap(x + h) - gap(x - h)) / 2e-6 for h in steps]
        try:
            move = np.linalg.solve(np.array(columns).T, gap(x))
        except np.linalg.LinAlgError:
            return None
        x = x - np.append(np.clip(move, -1, 1), 0)
        if not np.abs(x).max() < 25:
            return None
        if np.abs(move).max() < 1e-11:
            scale = 1 + np.abs(level(softmax(x))).max()
            return softmax(x) if np.abs(gap(x)).max() < 1e-9 * scale else None
    return None


def near(policy, listed, width):
    return any(np.abs(policy - np.array(s.policy)).max() < width for s in listed)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.share(3)
def test_training_ends_where_the_list_says(seed):
    (size, found, level), rng = drawn(seed), np.random.default_rng(seed)
    ends = [s for s in (*found.stationary, *found.boundary) if s.stable is not False]
    for _ in range(3):
        last = end(level, rng.normal(size=size) * 1.5)
        assert last is None or found.continua or near(last, ends, 1e-3), (last, found)
    for s in ends:
        if s.stable:
            policy = np.array(s.policy)
            start = np.log(np.maximum(policy, 1e-9)) + rng.normal(size=size) * 1e-4
            last = end(level, start)
            assert last is None or near(last, [s], 1e-3), (last, s)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.share(3)
def test_newton_finds_no_other_policy(seed):
    (size, found, level), rng = drawn(seed), np.random.default_rng(seed)
    for s in found.stationary:
        levels = level(np.array(s.policy))
        assert min(s.policy) < 1e-9 or np.ptp(levels) < 1e-6 * (1 + np.abs(levels).max())
    for _ in range(25):
        zero = newton(level, np.append(rng.normal(size=size - 1) * 2.5, 0))
        assert zero is None or not found.complete or near(zero, found.stationary, 1e-5), (zero, found)


RISING = {"the reverse KL": k1, "the forward KL": -r, "both": k1 - 2 * r, "the entropy": log_q}


@pytest.mark.parametrize("name", RISING)
def test_a_coefficient_that_rises_has_one_optimum(name):
    rng = np.random.default_rng(3)
    p = softmax(rng.normal(size=3) * 0.6)
    found = find_optimum(to_ring(RISING[name]), 0.7, list(rng.normal(size=3)), list(p), list(p))
    assert found.unique and found.stationary[0].stable and not found.boundary


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_stability_is_that_of_the_jacobian():
    judged = 0
    for seed in SEEDS:
        _, found, level = drawn(seed)
        for s in found.stationary:
            if s.stable is not None and min(s.policy) > 1e-4:
                values = np.sort(np.linalg.eigvals(jacobian(level, np.log(s.policy))).real)
                assert s.stable == (values[-2] < -1e-7 and values[-1] < 1e-6), (seed, s, values)
                judged += 1
    assert judged > len(SEEDS) / 2


def test_closed_forms():
    rewards, p, scale = np.array([1.0, 0.0, 0.5]), np.array([0.2, 0.3, 0.5]), 0.7
    tilt = p * np.exp(rewards / scale)
    [found] = find_optimum(to_ring(k1), scale, list(rewards), list(p)).stationary
    assert np.abs(np.array(found.policy) - tilt / tilt.sum()).max() < 1e-12
    assert abs(found.multiplier - scale * np.log(tilt.sum())) < 1e-12
    [found] = find_optimum(to_ring(-r), scale, list(rewards), list(p)).stationary
    assert np.abs(scale * p / (found.multiplier - rewards) - np.array(found.policy)).max() < 1e-12


def test_constant_rewards_have_a_second_policy_with_k2_in_the_reward():
    found = find_optimum(to_ring(k2), 1.0, [0.0, 0.0], [1 / 3, 2 / 3])
    policies = [s.policy for s in found.stationary]
    assert any(abs(a - 2 / 3) < 1e-7 for a, _ in policies) and any(abs(a - 1 / 3) < 1e-7 for a, _ in policies)
    assert not any(s.stable for s in found.stationary)


def test_without_a_penalty_there_is_no_interior_optimum():
    found = find_optimum(to_ring(k1), 0.0, [1.0, 0.0, 0.5], [0.2, 0.3, 0.5])
    assert not found.stationary and [s.policy for s in found.boundary] == [(1.0, 0.0, 0.0)]


def test_a_constant_coefficient_is_no_penalty():
    """k1 in the loss: the best outcome alone attracts; with equal rewards every policy is stationary."""
    found = find_optimum(to_ring(0 * k1 + 3), 1.0, [1.0, 0.0, 0.5], [0.2, 0.3, 0.5])
    assert found.complete and not found.stationary
    assert [s.policy for s in found.boundary] == [(1.0, 0.0, 0.0)]
    assert not find_optimum(to_ring(0 * k1 + 3), 1.0, [0.5, 0.5], [0.2, 0.8]).complete


def test_bad_input():
    with pytest.raises(UsageError, match="a number for beta"):
        find_optimum(to_ring(beta * k1), 1.0, [1.0, 0.0], [0.5, 0.5])
    with pytest.raises(UsageError, match="fewer outcomes"):
        find_optimum(to_ring(k1**3 - 3 * k1), 1.0, [0.0] * 12, [1 / 12] * 12)
