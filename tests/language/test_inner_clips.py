"""GMPO: a clip of each token's ratio inside a mean over tokens, against differences of the loss itself."""

from __future__ import annotations

import numpy as np
import pytest

from klsym import explain
from klsym.errors import UsageError
from klsym.language.expressions import clip

SEQUENCES = ([0], [1, 0], [1, 1])  # of words; logits: two at the first token, two at the second
A = np.array([0.9, -0.5, 0.4])
THETA = np.array([0.3, -0.2, 0.1, 0.5])


def log_densities(theta: np.ndarray) -> list[np.ndarray]:
    log_q = theta.reshape(2, 2) - np.log(np.exp(theta.reshape(2, 2)).sum(1, keepdims=True))
    return [np.array([log_q[t, word] for t, word in enumerate(words)]) for words in SEQUENCES]


def loss(theta: np.ndarray, low: float, high: float) -> float:
    """-E_mu[exp(mean_t clip(log rho_t, low, high)) A], mu = q at THETA, held."""
    sampler = log_densities(THETA)
    return -sum(
        np.exp(mu.sum()) * np.exp(np.clip(now - mu, low, high).mean()) * a
        for mu, now, a in zip(sampler, log_densities(theta), A, strict=True)
    )


def objective(theta: np.ndarray) -> float:
    """-E_q[A/T]."""
    return -sum(np.exp(x.sum()) * a / len(x) for x, a in zip(log_densities(theta), A, strict=True))


def slope(function, *more: float) -> np.ndarray:
    steps = 1e-6 * np.eye(4)
    return np.array([(function(THETA + e, *more) - function(THETA - e, *more)) / 2e-6 for e in steps])


@pytest.mark.parametrize(("low", "high"), [(-0.4, 0.4), (-0.01, 2.0)])
def test_on_policy_the_bounds_never_act(low: float, high: float) -> None:
    text = f"-exp(seqmean(clip(log(rho), {low}, {high})))*A"
    answer = explain(text, sampling="on-policy", level="sequence")
    assert slope(loss, low, high) == pytest.approx(slope(objective), abs=1e-8)
    assert answer.gradient.score_text == "-A/T" and answer.trust == "sympy"
    assert answer.loss.written.expression.has(clip)  # which a check with numbers runs
    assert "does nothing near theta" in str(answer).replace("\n           ", " ")


def test_parameters_in_bounds_are_positive_and_the_answer_says_so() -> None:
    answer = explain("-exp(seqmean(clip(log(rho), -eps, eps)))*A", sampling="on-policy", level="sequence")
    assert answer.gradient.score_text == "-A/T" and "parameters are positive" in answer.text(full=True)


@pytest.mark.parametrize(
    "bounds",
    ["0, 0.2", "-0.2, 0", "0.1, 0.2", "eps, 1", "-1, -eps", "-A, A", "-R, R", "-log_q, log_q", "-k3, k3"],
)
def test_a_bound_that_the_ratio_meets_is_kept(bounds: str) -> None:
    try:
        answer = explain(f"-exp(seqmean(clip(log(rho), {bounds})))*A", sampling="on-policy", level="sequence")
    except UsageError:
        return
    assert "does nothing near theta" not in answer.text(full=True)


def test_terms_and_fixes_with_such_a_clip_are_not_called_proved() -> None:
    clipped = "exp(seqmean(clip(log(rho), -eps, eps)))*A"
    text = str(explain(f"-{clipped} + beta*k2", sampling="on-policy", level="sequence"))
    assert "policy gradient                                         by SymPy alone" in text
    rewritten = explain(f"-{clipped} + whole(k3)", sampling="on-policy", level="sequence")
    assert rewritten.trust == "sympy" and rewritten.loss.written.expression.has(clip)
    fix = str(explain(clipped, sampling="on-policy", level="sequence")).split("fix")[1]
    assert "by SymPy alone" in fix and "proved" not in fix


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_off_policy_it_is_refused(level: str) -> None:
    with pytest.raises(UsageError, match=r"whole\(clip\(log\(rho\), -1/5, 1/5\)\) is no sum"):
        explain("-exp(seqmean(clip(log(rho), -0.2, 0.2)))*A", sampling="off-policy", level=level)
