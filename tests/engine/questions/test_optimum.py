"""Where training ends, against Newton's method from everywhere and against the flow of the field."""

from __future__ import annotations

import numpy as np
import pytest

from klsym.engine.questions.optimum import optimum
from klsym.errors import UsageError
from klsym.language.convert import to_ring
from klsym.language.expressions import beta, k1, k2, k3, log_q, r, rho
from support.losses.training_flow import end, softmax

# the score coefficient of a penalty, in words of the ring and as a function of q, p and mu
PENALTIES = {
    "reverse": (k1, lambda q, p, mu: np.log(q / p)),
    "forward": (-r, lambda q, p, mu: -p / q),
    "both": (k1 - 2 * r, lambda q, p, mu: np.log(q / p) - 2 * p / q),
    "k2": (k2, lambda q, p, mu: np.log(q / p) ** 2 / 2),
    "k3": (k3, lambda q, p, mu: p / q - 1 + np.log(q / p)),
    "rho*k2": (k1 + k2, lambda q, p, mu: np.log(q / p) + np.log(q / p) ** 2 / 2),
    "entropy": (log_q, lambda q, p, mu: np.log(q)),
    "k1/rho": (k1 / rho, lambda q, p, mu: np.log(q / p) * mu / q),
    "rho*k1": (rho * k1, lambda q, p, mu: np.log(q / p) * q / mu),
}
RISING = ("reverse", "forward", "both", "entropy")


def world(seed, size=3):
    stream = np.random.default_rng(seed)
    p, mu = softmax(stream.normal(size=size) * 0.6), softmax(stream.normal(size=size) * 0.6)
    return stream, stream.normal(size=size), p, mu, float(stream.uniform(0.3, 2))


def field(name, logits, rewards, p, mu, scale):
    """dV/dtheta_j = q_j (C_j - sum q C) with C = R - beta c."""
    q = softmax(logits)
    level = rewards - scale * PENALTIES[name][1](q, p, mu)
    return q * (level - (q * level).sum())


def flow(name, starts, rewards, p, mu, scale):
    """Where training ends from each start."""
    ends = [end(lambda q: rewards - scale * PENALTIES[name][1](q, p, mu), start) for start in starts]
    assert all(one is not None for one in ends)
    return np.array(ends)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", RISING)
def test_a_coefficient_that_rises_has_one_optimum_where_the_flow_ends(name, seed):
    stream, rewards, p, mu, scale = world(seed)
    found = optimum(to_ring(PENALTIES[name][0]), scale, list(rewards), list(p), list(mu))
    assert found.unique and found.stationary[0].stable and not found.boundary
    policy = np.array(found.stationary[0].policy)
    assert np.abs(field(name, np.log(policy), rewards, p, mu, scale)).max() < 1e-12
    ends = flow(name, stream.normal(size=(3, 3)) * 2, rewards, p, mu, scale)
    assert np.abs(ends - policy).max() < 1e-8


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["k2", "k3", "rho*k2", "k1/rho", "rho*k1"])
def test_the_flow_ends_at_a_predicted_policy(name, seed):
    stream, rewards, p, mu, scale = world(10 + seed)
    found = optimum(to_ring(PENALTIES[name][0]), scale, list(rewards), list(p), list(mu))
    ends = [s for s in (*found.stationary, *found.boundary) if s.stable]
    for last in flow(name, stream.normal(size=(6, 3)) * 1.5, rewards, p, mu, scale):
        assert min(np.abs(last - np.array(s.policy)).max() for s in ends) < 1e-6, (last, found)


def newton(name, starts, rewards, p, mu, scale):
    """The zeros of C_j - C_3 that Newton's method finds from the starts."""

    def policies(x):
        return softmax(np.concatenate([x, np.zeros((len(x), 1))], axis=1))

    def gap(x):
        level = rewards - scale * PENALTIES[name][1](policies(x), p, mu)
        return level[:, :-1] - level[:, -1:]

    x, settled = np.array(starts, dtype=float), np.zeros(len(starts), dtype=bool)
    for _ in range(60):
        columns = [(gap(x + h) - gap(x - h)) / 2e-6 for h in np.eye(2) * 1e-6]
        (a, c), (b, d) = (column.T for column in columns)
        u, v = gap(x).T
        with np.errstate(all="ignore"):
            move = np.stack([d * u - b * v, a * v - c * u], axis=1) / (a * d - b * c)[:, None]
        step = np.where(settled[:, None], 0, np.clip(move, -1, 1))
        settled |= np.abs(move).max(axis=1) < 1e-13
        x = x - step
        kept = np.isfinite(x).all(axis=1) & (np.abs(x) <= 30).all(axis=1)
        x, settled = x[kept], settled[kept]
    return policies(x[settled & (np.abs(gap(x)) < 1e-9).all(axis=1)])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["k2", "k3", "rho*k2", "k1/rho", "rho*k1", "both"])
def test_no_interior_policy_is_missed(name, seed):
    """Newton's method from a grid of starts finds nothing that is not listed, and all that is."""
    _, rewards, p, mu, scale = world(20 + seed)
    found = optimum(to_ring(PENALTIES[name][0]), scale, list(rewards), list(p), list(mu))
    listed = [np.array(s.policy) for s in found.stationary]
    seen = set()
    grid = np.stack(np.meshgrid(*[np.linspace(-6, 6, 9)] * 2), axis=-1).reshape(-1, 2)
    for zero in newton(name, grid, rewards, p, mu, scale):
        near = [i for i, policy in enumerate(listed) if np.abs(zero - policy).max() < 1e-6]
        assert near, (zero, listed)
        seen.add(near[0])
    assert found.complete and len(seen) >= len(listed) - 1


def test_stability_is_that_of_the_jacobian():
    for seed in range(6):
        _, rewards, p, mu, scale = world(30 + seed)
        for name in ("k2", "rho*k2", "rho*k1"):
            for s in optimum(to_ring(PENALTIES[name][0]), scale, list(rewards), list(p), list(mu)).stationary:
                logits = np.log(s.policy)
                ends = [
                    field(name, logits + way * h, rewards, p, mu, scale)
                    for h in np.eye(3) * 1e-6
                    for way in (1, -1)
                ]
                columns = [(up - down) / 2e-6 for up, down in zip(ends[::2], ends[1::2], strict=True)]
                values = np.linalg.eigvals(np.array(columns).T).real
                assert s.stable == (np.sort(values)[-2] < -1e-7 and np.max(values) < 1e-6)


def test_closed_forms():
    rewards, p, scale = np.array([1.0, 0.0, 0.5]), np.array([0.2, 0.3, 0.5]), 0.7
    tilt = p * np.exp(rewards / scale)
    [found] = optimum(to_ring(k1), scale, list(rewards), list(p)).stationary
    assert np.abs(np.array(found.policy) - tilt / tilt.sum()).max() < 1e-12
    assert abs(found.multiplier - scale * np.log(tilt.sum())) < 1e-12
    [found] = optimum(to_ring(-r), scale, list(rewards), list(p)).stationary
    assert np.abs(scale * p / (found.multiplier - rewards) - np.array(found.policy)).max() < 1e-12


def test_constant_rewards_have_a_second_policy_with_k2_in_the_reward():
    found = optimum(to_ring(k2), 1.0, [0.0, 0.0], [1 / 3, 2 / 3])
    policies = [s.policy for s in found.stationary]
    assert any(abs(a - 2 / 3) < 1e-7 for a, _ in policies) and any(abs(a - 1 / 3) < 1e-7 for a, _ in policies)
    assert not any(s.stable for s in found.stationary)


def test_without_a_penalty_there_is_no_interior_optimum():
    found = optimum(to_ring(k1), 0.0, [1.0, 0.0, 0.5], [0.2, 0.3, 0.5])
    assert not found.stationary and [s.policy for s in found.boundary] == [(1.0, 0.0, 0.0)]


def test_a_constant_coefficient_is_no_penalty():
    """k1 in the loss: the best outcome alone attracts; with equal rewards every policy is stationary."""
    found = optimum(to_ring(0 * k1 + 3), 1.0, [1.0, 0.0, 0.5], [0.2, 0.3, 0.5])
    assert found.complete and not found.stationary
    assert [s.policy for s in found.boundary] == [(1.0, 0.0, 0.0)]
    assert not optimum(to_ring(0 * k1 + 3), 1.0, [0.5, 0.5], [0.2, 0.8]).complete


def test_bad_input():
    with pytest.raises(UsageError, match="a number for beta"):
        optimum(to_ring(beta * k1), 1.0, [1.0, 0.0], [0.5, 0.5])
    with pytest.raises(UsageError, match="fewer outcomes"):
        optimum(to_ring(k1**3 - 3 * k1), 1.0, [0.0] * 12, [1 / 12] * 12)
