"""The mean over all tokens of a batch, off-policy: objectives and refusals against an enumeration.

The expected gradient of two sequences of one or two tokens is written down from its definition, as a function
of the logits, and its Jacobian is taken by differences: it is symmetric where an objective is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from klsym import explain

# Word 0 ends a sequence.  Logits: two at the first token, two at the second; 3 sequences.
SEQUENCES = ([0], [1, 0], [1, 1])
REFERENCE = np.log(np.array([[0.3, 0.7], [0.6, 0.4]]))
SAMPLER = np.log(np.array([[0.55, 0.45], [0.2, 0.8]]))
REWARDS = ([0.7], [-0.4, 1.1], [0.3, 0.2])
A = (0.9, -0.5, 0.4)
Push = Callable[[Any], np.ndarray]  # of a sequence: what multiplies the score of each token


class Sequence:
    """Log densities of the tokens of one sequence at theta, and the scores."""

    def __init__(self, number: int, theta: np.ndarray) -> None:
        words, nodes = SEQUENCES[number], range(len(SEQUENCES[number]))
        log_q = theta.reshape(2, 2) - np.log(np.exp(theta.reshape(2, 2)).sum(1, keepdims=True))
        self.log_q = np.array([log_q[node, words[node]] for node in nodes])
        self.log_p = np.array([REFERENCE[node, words[node]] for node in nodes])
        self.log_mu = np.array([SAMPLER[node, words[node]] for node in nodes])
        self.k1, self.rho = self.log_q - self.log_p, np.exp(self.log_q - self.log_mu)
        self.r, self.k3 = np.exp(-self.k1), np.exp(-self.k1) - 1 + self.k1
        self.R, self.A, self.T = np.array(REWARDS[number]), A[number], len(words)
        self.scores = np.zeros((len(words), 4))
        for node in nodes:
            self.scores[node, 2 * node : 2 * node + 2] = -np.exp(log_q[node])
            self.scores[node, 2 * node + words[node]] += 1


def pairs(theta: np.ndarray) -> Any:
    """Yield the probability of each pair of sequences from mu, and the two."""
    for one, other in product(range(3), repeat=2):
        first, second = Sequence(one, theta), Sequence(other, theta)
        yield np.exp(first.log_mu.sum() + second.log_mu.sum()), first, second


def gradient(theta: np.ndarray, push: Push) -> np.ndarray:
    return sum(
        weight * sum((push(x)[:, None] * x.scores).sum(0) for x in (one, other)) / (one.T + other.T)
        for weight, one, other in pairs(theta)
    )  # fmt: skip


def differences(function: Callable[[np.ndarray], Any], theta: np.ndarray, step: float = 1e-5) -> np.ndarray:
    return np.array(
        [(function(theta + step * e) - function(theta - step * e)) / (2 * step) for e in np.eye(4)]
    )


def to_go(x: np.ndarray) -> np.ndarray:
    return np.cumsum(x[::-1])[::-1]


def mean_of(loss: Callable[[Any], float]) -> Callable[[np.ndarray], float]:
    return lambda theta: sum(
        weight * (loss(one) + loss(other)) / (one.T + other.T) for weight, one, other in pairs(theta)
    )


REWARD = {"use": "reward"}
MIXED = "E_mu[sum_i (k1**2/2 + sum_t (k1_now**2/2))/sum_i T_i]"
WITH_OBJECTIVE = [
    ("sg(rho)*k2", {}, lambda x: x.rho * x.k1, lambda x: (x.rho * x.k1 - x.rho).sum(),
     "E_mu[sum_i sum_t (rho_now*k1_now - rho_now)/sum_i T_i]"),
    ("sg(k1)*log_q", {}, lambda x: x.k1, lambda x: (x.k1**2 / 2).sum(),
     "E_mu[sum_i sum_t (k1_now**2/2)/sum_i T_i]"),
    ("k1", REWARD | {"credit": "same-token"}, lambda x: x.k1, lambda x: (x.k1**2 / 2).sum(),
     "E_mu[sum_i sum_t (k1_now**2/2)/sum_i T_i]"),
    ("k1", REWARD | {"credit": "total"}, lambda x: x.k1.sum() + 0 * x.k1, lambda x: x.k1.sum() ** 2 / 2,
     "E_mu[sum_i (k1**2/2)/sum_i T_i]"),
    ("-r", REWARD | {"level": "sequence"}, lambda x: -np.exp(-x.k1.sum()) + 0 * x.k1,
     lambda x: np.exp(-x.k1.sum()), "E_mu[sum_i (r)/sum_i T_i]"),
    ("A", REWARD | {"credit": "to-go"}, lambda x: x.A + 0 * x.k1, lambda x: x.A * x.log_q.sum(),
     "E_mu[sum_i (A*log_q)/sum_i T_i]"),
]  # fmt: skip
WITH_OBJECTIVE += [  # a term that does not depend on theta adds nothing
    (loss, {}, lambda x: x.k1.sum() + x.k1, lambda x: x.k1.sum() ** 2 / 2 + (x.k1**2 / 2).sum(), MIXED)
    for loss in ("sg(whole(k1))*log_q + k2", "sg(whole(k1))*log_q + k2 + R", "sg(whole(k1))*log_q + k2 + 3")
]
WITHOUT = [
    ("k1", REWARD | {"credit": "to-go", "weights": "token"}, lambda x: to_go(x.k1)),
    ("sg(rho)*k2", {"weights": "prefix"}, lambda x: np.cumprod(x.rho) * x.k1),
    ("past(sg(k1))*log_q", {}, lambda x: np.cumsum(x.k1) - x.k1),
    ("-r", REWARD | {"credit": "to-go"}, lambda x: -to_go(x.r)),
]  # fmt: skip
THETAS = (np.array([0.3, -0.2, 0.1, 0.5]), np.array([-0.7, 0.4, 0.9, -0.1]))


def explained(loss: str, options: dict[str, str]) -> Any:
    setting = {"level": "token", **options}
    return explain(loss, sampling="off-policy", aggregate="batch", **setting)


@pytest.mark.parametrize(("loss", "options", "push", "objective", "text"), WITH_OBJECTIVE)
def test_the_objective_has_the_gradient_of_the_enumeration(loss, options, push, objective, text):
    answer = explained(loss, options)
    assert answer.target == "objective" and answer.to_json()["objective"]["text"] == text
    for theta in THETAS:
        assert differences(mean_of(objective), theta) == pytest.approx(gradient(theta, push), abs=1e-8)


@pytest.mark.parametrize(("loss", "options", "push"), WITHOUT)
def test_where_none_is_claimed_the_jacobian_is_not_symmetric(loss, options, push):
    answer = explained(loss, options)
    assert answer.target == "no-objective" and answer.trust == "kernel"
    jacobian = differences(lambda theta: gradient(theta, push), THETAS[0])
    assert np.abs(jacobian - jacobian.T).max() > 1e-3


@pytest.mark.parametrize(("loss", "options", "push"), [(x, o, p) for x, o, p, *_ in WITH_OBJECTIVE])
def test_where_one_is_claimed_the_jacobian_is_symmetric(loss, options, push):
    for theta in THETAS:
        jacobian = differences(lambda at: gradient(at, push), theta)
        assert np.abs(jacobian - jacobian.T).max() < 1e-7


@pytest.mark.parametrize("loss", ["clip(sg(rho), 0, 2)*k2", "where(sg(rho) < 2, sg(k1)*log_q, 0)"])
def test_an_objective_that_jumps_at_a_bound_is_not_claimed(loss):
    assert explained(loss, {}).target is None
