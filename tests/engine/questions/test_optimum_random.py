"""`klsym optimum` on random penalties, against a simulation of training and Newton's method.

Each run has to end at a policy that is listed; each policy that is listed as stable has to be come back to;
Newton's method finds no stationary policy that is not listed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy

from klsym.api import where_training_ends
from klsym.language.convert import to_sympy
from klsym.language.expressions import log_mu, log_p, log_q
from support.losses.training_flow import end, softmax

LOSSES = (
    "k1", "k2", "k3", "r", "k(0.5)", "rho*k3", "rho*k2", "sg(rho)*k3", "2*k2 - k3", "k2 - 2*k3", "k1*k3",
    "r**2", "k1**2*r", "k3 - k2/2", "sqrt(r)", "rho**2", "k1/rho", "rho*k1 - k3", "log_q", "log_q**2",
    "k2 + r/3", "k1**3", "k1**3/3 - k1", "1/r - k1", "rho*k1**2",
)  # fmt: skip
BETAS = ("0.1", "0.3", "0.5", "1", "2", "5")


def drawn(seed):
    """The question, its answer, and C = R - beta c as a function of q."""
    rng = np.random.default_rng([28, seed])
    size = 2 + seed % 3
    rewards = [Fraction(int(x), 100) for x in rng.normal(size=size) * 70]
    p, mu = ([Fraction(int(x), int(w.sum())) for x in w] for w in rng.integers(1, 9, size=(2, size)))
    beta = Fraction(str(rng.choice(BETAS)))
    sampling, use = str(rng.choice(["on-policy", "off-policy"])), str(rng.choice(["loss", "reward"]))
    found = where_training_ends(LOSSES[seed % len(LOSSES)], beta, rewards, p, mu, sampling, use)
    c = sympy.lambdify((log_q, log_p, log_mu), to_sympy(found.coefficient).doit(), "numpy")
    paid, of_p, of_mu = (np.array([float(x) for x in row]) for row in (rewards, p, mu))

    def level(q):
        return paid - float(beta) * np.broadcast_to(c(np.log(q), np.log(of_p), np.log(of_mu)), q.shape)

    return rng, size, found.optimum, level


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
@pytest.mark.parametrize("seed", range(50))
def test_training_ends_where_the_list_says(seed):
    rng, size, found, level = drawn(seed)
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
@pytest.mark.parametrize("seed", range(50))
def test_newton_finds_no_other_policy(seed):
    rng, size, found, level = drawn(seed)
    for s in found.stationary:
        levels = level(np.array(s.policy))
        assert min(s.policy) < 1e-9 or np.ptp(levels) < 1e-6 * (1 + np.abs(levels).max())
    for _ in range(25):
        zero = newton(level, np.append(rng.normal(size=size - 1) * 2.5, 0))
        assert zero is None or not found.complete or near(zero, found.stationary, 1e-5), (zero, found)
