"""Theorems on samples of an older policy say that theta does not depend on them; others do not."""

from __future__ import annotations

import math

import pytest

import klsym
from klsym.calculus import KL, derive, expectation, expected_gradient, grad, k1, k3, mu, p, q, rho
from klsym.kernel.printer import CONVENTIONS
from support.losses.cases import options

SAID = "neither theta nor mu depends on the samples; after the first step on a batch theta does"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("rho*k3", "off"), ("k3", "off"), ("rho*k1", "off reward"), ("k2", "off token"), ("ppo", ""),
        ("grpo", ""),
        ("rho*k3", "off token prefix"), ("rho*(k1 - A)", "off loo reward"), ("min(rho, 2)*k1", "off"),
    ],
)  # fmt: skip
def test_off_policy_it_is_a_hypothesis(loss: str, words: str) -> None:
    answer = klsym.explain(loss, **options(words))
    assert SAID in answer.to_json()["hypotheses"] and f"- {SAID}" in answer.text(full=True)
    assert f"- {SAID}" in answer.text(proof=True) and SAID not in answer.text()


@pytest.mark.parametrize(
    ("loss", "words"), [("k3", ""), ("rho*k3", ""), ("k1", "reward"), ("k2", "token"), ("k1", "reward loo")]
)
def test_on_policy_it_is_not(loss: str, words: str) -> None:
    answer = klsym.explain(loss, **options(words))
    assert SAID not in answer.to_json()["hypotheses"] and SAID not in answer.text(full=True)


def test_it_belongs_to_the_statement() -> None:
    of_mu = derive(expected_gradient(rho * k3, under=mu)).differentiate().equals(grad(KL(q, p)))
    of_q = derive(expectation(k1, under=q)).equals(KL(q, p))
    assert of_mu.hypotheses.count(SAID) == 1 and SAID not in of_q.hypotheses
    assert any(
        "at a fixed theta: neither theta nor a density depends on the samples" in x for x in CONVENTIONS
    )


def test_after_a_step_on_the_sample_the_gradient_is_biased() -> None:
    """beyond.batch-reuse in floats: n = 1, two outcomes, a step of 1e-4 on each sample."""
    weights, p, eta = (0.3, 0.7), (0.6, 0.4), 1e-4

    def slope(z: float, y: int) -> float:
        """d/dz of rho k3 at the sample y, which is rho k1 s; z is the first logit, the second 0."""
        q = (1 / (1 + math.exp(-z)), 1 / (1 + math.exp(z)))
        return q[y] / weights[y] * math.log(q[y] / p[y]) * ((y == 0) - q[0])

    start = math.log(weights[0] / weights[1])

    def kl_slope(z: float) -> float:
        q = (1 / (1 + math.exp(-z)), 1 / (1 + math.exp(z)))
        return sum(q[y] * math.log(q[y] / p[y]) * ((y == 0) - q[0]) for y in (0, 1))

    fresh = sum(weights[y] * slope(start, y) for y in (0, 1)) - kl_slope(start)
    used = sum(
        weights[y] * (slope(start - eta * slope(start, y), y) - kl_slope(start - eta * slope(start, y)))
        for y in (0, 1)
    )
    assert abs(fresh) < 1e-15 and abs(used / eta) > 0.01
