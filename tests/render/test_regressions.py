"""Squared losses that a policy can bring to 0, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

import klsym
from klsym.engine.divergences.regressions import find_regression
from klsym.language.expressions import A, R, beta
from klsym.language.parser import parse

OFF = {"sampling": "off-policy"}


@pytest.mark.parametrize(
    ("loss", "policy", "exponent"),
    [
        ("(beta*(log_q - log_mu) - A)**2", "mu", A / beta),
        ("(A - beta*log(rho))**2/2", "mu", A / beta),
        ("0.5*(k1 - R)**2", "p", R),
        ("(log_q - log_old - (R - 1)/beta)**2", "old", (R - 1) / beta),
    ],
)
def test_a_regression_is_recognised(loss: str, policy: str, exponent: object) -> None:
    found = find_regression(parse(loss))
    assert found is not None and found.policy == policy and (found.exponent - exponent).simplify() == 0


@pytest.mark.parametrize(
    "loss",
    [
        "k2", "(log_q - log_mu)**2", "-(beta*(log_q - log_mu) - A)**2", "A*(log_q - log_mu - A)**2",
        "(log_q - log_mu - A)**2 + k3", "(rho - A)**2", "(log_q - 2*log_mu - A)**2",
        "(A*log_q - A*log_mu - R)**2",
        "(log_q - log_mu - A)**4", "(k1 + log_q - log_mu - A)**2",
    ],
)  # fmt: skip
def test_other_losses_are_none(loss: str) -> None:
    assert find_regression(parse(loss)) is None


def test_the_answer_names_its_minimum_and_no_missing_weight() -> None:
    text = " ".join(str(klsym.explain("(beta*(logp - old_logp) - advantages)**2", **OFF)).split())
    assert "the loss is 0, its minimum, at q = mu*exp(A/beta), if E_mu[exp(A/beta)] = 1" in text
    assert "KL004" not in text


@pytest.mark.parametrize("loss", ["(log_q - log_mu - A)**2 + k3", "k3", "(rho*A - 1)**2 + k2"])
def test_elsewhere_a_missing_weight_is_still_said(loss: str) -> None:
    text = str(klsym.explain(loss, **OFF))
    assert "KL004" in text and "a regression" not in text


def test_at_tokens_the_advantage_of_the_sequence_cannot_be_fitted() -> None:
    text = " ".join(str(klsym.explain("(log_q - log_mu - A)**2", level="token", **OFF)).split())
    assert "a regression at each token on A, which depends on later tokens" in text
    assert "a regression" not in str(klsym.explain("(log_q - log_mu - A)**2", use="reward", **OFF))


def test_the_minimum_is_there_if_it_is_a_policy_and_only_then() -> None:
    """The gradient of E_mu[(beta log(q/mu) - A)^2] in the logits, at q = mu*exp(A/beta) normalised."""
    mu, beta_of = np.array([0.2, 0.3, 0.5]), 0.7
    for shift, is_minimum in ((0.0, False), (None, True)):
        rewards = np.array([0.4, -0.2, 0.9])
        log_mass = np.log((mu * np.exp(rewards / beta_of)).sum())
        rewards = rewards - (beta_of * log_mass if shift is None else shift)
        q = mu * np.exp(rewards / beta_of)
        q = q / q.sum()
        slope = 2 * beta_of * mu * (beta_of * np.log(q / mu) - rewards)
        gradient = slope - q * slope.sum()
        assert (np.abs(gradient).max() < 1e-12) == is_minimum
