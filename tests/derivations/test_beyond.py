"""What the sources leave open: wrong versions are refused, and numbers that share no code with the proofs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.calculus import *
from klsym.derivations.batches import SIZE, leave_one_out, m, n
from klsym.derivations.beyond import batches, optima, samples, thresholds, tokens
from klsym.derivations.variances import variance
from klsym.errors import ProofError
from klsym.language.expressions import beta
from support.ledger_table import BEYOND

Make = Callable[[], Any]
a, b_star, c = (parameter(name) for name in ("a", "b_star", "c"))
BASELINE = ((expectation(R * s**2, under=q), b_star * expectation(s**2, under=q)),)
OTHERS = variance_of_mean(beta * others(k1) / m * own(s), under=q)
SPREAD = covariance(k1, k1, under=q)


def over_mu(value: Any) -> Any:
    return derive(mean_over_i(value * own(s), under=mu))


# Wrong versions, each of which the kernel refuses.
WRONG: dict[str, Make] = {
    "beyond.k1-loss-baseline": lambda: derive(
        variance(R - beta, q) - variance(R, q), premises=BASELINE
    ).equals(beta * (beta - b_star) * expectation(s**2, under=q), using=[(0, 2 * beta)]),
    "beyond.clipped-ratio": lambda: derive(sample_gradient(M * r + (1 - M) * c - 1 + k1))
    .differentiate()
    .equals(sample((M - M * r) * s)),
    "beyond.old-policy-direction": lambda: derive(expected_gradient(log_mu - log_q, under=mu))
    .differentiate()
    .equals(grad(KL(q, mu))),
    "beyond.weight-growth": lambda: derive(
        expectation(exp(2 * a), under=q), premises=((KL(q, mu), a),)
    ).at_most(
        expectation(rho, under=q), rows=[{"u": log_q - log_mu - a, "v": a, "at": q}], using=[(0, exp(a))]
    ),
    "beyond.offpolicy-group-centring": lambda: over_mu(own(rho * k1) - leave_one_out(rho * k1)).equals(
        grad(KL(q, p))
    ),
    "beyond.centred-reward-optimum": lambda: derive(OTHERS, premises=SIZE).equals(
        beta**2 * (expectation(s**2, under=q) * (KL(q, p) * KL(q, p) + SPREAD) / n), using=[(0, None)]
    ),
    "beyond.k3-reward-unstable": lambda: derive(expectation(k3 * s, under=q)).equals(grad(KL(q, p))),
    "beyond.adaptive-beta": lambda: derive(covariance(1 / r, k1, under=q)).at_most(
        sample(0), rows=[{"u": a - k1, "v": k1, "at": q}, {"u": k1 - a, "v": a, "at": q}]
    ),
    "beyond.mass-covering": lambda: derive(
        expectation(c, under=q), premises=((expectation(r - k1**2, under=q), c),)
    ).at_most(expectation(r / 2, under=q), rows=[{"b": k1, "at": q}], using=[(0, 1)]),
    "beyond.gae-bias": lambda: derive(
        sum_over_t((now(R) + lam * future(R)) * now(s), under=q)
    ).equals(grad(expectation(R, under=q))),
    "beyond.token-penalty-optimum": lambda: derive(sum_over_t(future(R) * now(s), under=q)).equals(0),
}  # fmt: skip
BY_CALCULATION = {  # refuted or calculated: their numbers are found again below
    "beyond.sign-probability", "beyond.no-kl-threshold", "beyond.batch-reuse", "beyond.std-limit",
    "beyond.causality-variance",
}  # fmt: skip


def test_each_claim_has_a_wrong_version_or_numbers_of_its_own() -> None:
    assert {*WRONG} | BY_CALCULATION == {*BEYOND} == {*klsym.claims("beyond")}
    assert not {*WRONG} & BY_CALCULATION


@pytest.mark.parametrize("name", WRONG)
def test_wrong_versions_are_refused(name: str) -> None:
    with pytest.raises(ProofError):
        WRONG[name]()


@pytest.mark.parametrize("name", BEYOND)
def test_each_calculation_agrees_with_its_oracle(name: str) -> None:
    for part in klsym.claim(name).parts:
        if (oracle := getattr(part, "oracle", None)) is not None:
            passed, text = oracle()
            assert passed, text


# ---------------------------------------------------------------------------- numbers of their own
def draw(seed: int, size: int = 4) -> tuple[Any, ...]:
    stream = np.random.default_rng(seed)
    return tuple(row / row.sum() for row in np.exp(stream.normal(size=(3, size))))


def score(policy: Any) -> Any:
    """s of each outcome along each logit: [outcome, logit]."""
    return np.eye(len(policy)) - policy


@pytest.mark.parametrize("seed", range(5))
def test_k1_as_a_loss_is_a_baseline(seed: int) -> None:
    policy, _, rewards = draw(seed)
    along = score(policy) @ np.random.default_rng(seed + 9).normal(size=len(policy))

    def spread(weight: Any) -> float:
        push = weight * along
        return float(policy @ push**2 - (policy @ push) ** 2)

    best = (policy @ (rewards * along**2)) / (policy @ along**2)
    for share in (0.5, 1.5, 2.5, -0.5):
        assert (spread(rewards - share * best) < spread(rewards)) == (0 < share < 2), share


@pytest.mark.parametrize("seed", range(5))
def test_the_kl_falls_in_beta_for_both_penalties(seed: int) -> None:
    reference, _, rewards = draw(seed)
    tilted = [reference * np.exp(rewards / x) for x in (0.3, 0.4)]
    reverse = [row / row.sum() for row in tilted]
    forward = []
    for x in (0.3, 0.4):
        low, high = rewards.max() + 1e-12, rewards.max() + x
        for _ in range(200):
            level = (low + high) / 2
            low, high = (level, high) if (x * reference / (level - rewards)).sum() > 1 else (low, level)
        forward.append(x * reference / (level - rewards))
        bound = reference * x / (x + rewards.max() - rewards)
        assert (forward[-1] >= bound * (1 - 1e-9)).all()
    for before, after in (reverse, forward):
        kl_before, kl_after = (q @ np.log(q / reference) for q in (before, after))
        assert kl_after < kl_before


@pytest.mark.parametrize("size", [2, 3])
def test_the_variance_at_the_optimum_over_all_batches(size: int) -> None:
    """beta k2 beside leave-one-out rewards at q* against the formula, in one logit, over all batches."""
    reference, _, rewards = draw(3, 3)
    coefficient = 0.6
    weights = reference * np.exp(rewards / coefficient)
    policy = weights / weights.sum()
    logs, along = np.log(policy / reference), score(policy)[:, 0]
    mean = square = 0.0
    for batch in product(range(3), repeat=size):
        chosen = list(batch)
        chance = np.prod(policy[chosen])
        loo = (rewards[chosen].sum() - rewards[chosen]) / (size - 1)
        push = ((rewards[chosen] - loo - coefficient * logs[chosen]) * along[chosen]).mean()
        mean, square = mean + chance * push, square + chance * push**2
    d, g = policy @ logs, policy @ (logs * along)
    spread = policy @ logs**2 - d**2
    formula = (policy @ along**2) * (d**2 + spread / (size - 1)) / size + g**2 / (size * (size - 1))
    assert np.isclose(square - mean**2, coefficient**2 * formula, rtol=1e-12)


def test_the_weighted_centred_reward_over_all_batches() -> None:
    """Weight outside, centring inside: (1 - 1/n) grad KL; the weight inside gives another field."""
    policy, reference, sampler = draw(1, 3)
    ratio, logs, along = policy / sampler, np.log(policy / reference), score(policy)
    right = wrong = np.zeros(3)
    for batch in product(range(3), repeat=3):
        chosen = list(batch)
        chance = np.prod(sampler[chosen])
        outside = ratio[chosen] * (logs[chosen] - logs[chosen].mean())
        inside = ratio[chosen] * logs[chosen] - (ratio * logs)[chosen].mean()
        right = right + chance * (outside[:, None] * along[chosen]).mean(0)
        wrong = wrong + chance * (inside[:, None] * along[chosen]).mean(0)
    target = policy * (logs - policy @ logs)
    assert np.allclose(right, (1 - 1 / 3) * target, atol=1e-14)
    assert not np.allclose(wrong, (1 - 1 / 3) * target, atol=1e-3)


def test_two_valued_rewards_have_no_curl_and_three_have_one() -> None:
    def field(logits: Any, rewards: Any) -> Any:
        weights = np.exp(np.append(logits, 0.0))
        policy = weights / weights.sum()
        mean = policy @ rewards
        return (policy * (rewards - mean) / np.sqrt(policy @ (rewards - mean) ** 2))[:2]

    def turn(rewards: Any) -> float:
        at, step = np.array([np.log(2), 0.0]), 1e-5
        moved = [[field(at + sign * step * np.eye(2)[j], rewards) for sign in (1, -1)] for j in (0, 1)]
        return float((moved[1][0] - moved[1][1])[0] - (moved[0][0] - moved[0][1])[1]) / (2 * step)

    assert abs(turn(np.array([0.0, 1.0, 0.0]))) < 1e-9
    assert abs(turn(np.array([0.0, 1.0, 3.0])) + np.sqrt(6) / 48) < 1e-8


def test_the_parts_name_their_files() -> None:
    for module in (batches, optima, samples, thresholds, tokens):
        assert any(module.__name__ == claim.build.__module__ for claim in klsym.claims("beyond").values())
