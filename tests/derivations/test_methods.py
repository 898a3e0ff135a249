"""Losses of methods of 2026: wrong versions are refused, and numbers that share no code with the proofs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.calculus import *
from klsym.derivations.batches import n
from klsym.derivations.methods import groups, ratios, words
from klsym.engine.fields.field import start_derivation
from klsym.errors import ProofError
from klsym.language.expressions import A, R, log_mu, log_q, rho, s
from klsym.study.ledger.settle_all import judge
from support.ledger_table import METHODS

Make = Callable[[], Any]
ADVANTAGE, MEAN_REWARD = grad(expectation(A, under=q)), expectation(R, under=q)
GEOMETRIC = rho ** (1 / length) * A
b = parameter("b")


def read_sapo() -> Any:
    return ratios.read_loss(ratios.SAPO, sampling="off-policy")


def wrong_weight_of_vespo() -> Any:
    loss = ratios.read_loss(ratios.VESPO, sampling="off-policy")
    weight = rho**alpha * exp(lam + ratios._find_definition(loss))
    return start_derivation(loss).differentiate().equals(-expectation(weight * A * s, under=q))


def refute_with_a_clamp_at(bound: str) -> Any:
    low = region("low")
    model = finite_model(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/2", "1/2"], u=[1, 0], c=bound)
    loss = expectation(low * words.TERM + (1 - low) * words.c, under=count)
    defined = words.define_region("low", words.c - words.TERM, words.c)
    return derive(sample(0), defined=defined).differs_from(
        grad(loss) * grad(KL(q, p)), relation="<=", model=model
    )


# Wrong versions, each of which the kernel refuses.
WRONG: dict[str, Make] = {
    "methods.sapo-temperature": lambda: derive(
        sample_gradient(read_sapo().expression), defined=read_sapo().defined
    )
    .differentiate()
    .equals(sample(-rho * A * s)),
    "methods.gmpo-geometric": lambda: derive(
        expected_gradient(GEOMETRIC, under=q), on_policy=True
    ).equals(expectation(A * s, under=q)),
    "methods.luspo-length": lambda: derive(
        expected_gradient(length**2 * GEOMETRIC, under=q), on_policy=True
    ).equals(ADVANTAGE),
    "methods.vespo-weight": wrong_weight_of_vespo,
    "methods.maxrl-order": lambda: derive(
        mean_over_i(own(R) * (2 - others(R)) * own(s), under=q), premises=groups.TWO
    ).equals(2 * grad(MEAN_REWARD), using=[(0, None)]),
    "methods.maxrl-centred": lambda: derive(
        mean_over_i((own(R) - others(R)) * own(s), under=q), premises=groups.TWO
    ).equals(2 * grad(MEAN_REWARD) - MEAN_REWARD * grad(MEAN_REWARD), using=[(0, None)]),
    "methods.clamped-words": lambda: refute_with_a_clamp_at("1/2"),  # above both terms: it never acts
    "methods.binary-kl": lambda: derive(
        expectation(A, under=mu), premises=((expectation(exp(A), under=q), 1),)
    ).at_most(KL(q, mu), rows=[{"u": log_q - log_mu + A, "at": mu}], using=[(0, -1)]),
    "methods.two-directions": lambda: derive(b * KL(p, q) + (1 - b) * KL(q, p)).equals(
        expectation((1 - b) * r * log(r) - b * log(r), under=q)
    ),
}  # fmt: skip
BY_CALCULATION = {"methods.length-weighted-baseline"}  # its numbers are found again below


def test_each_claim_has_a_wrong_version_or_numbers_of_its_own() -> None:
    assert {*WRONG} | BY_CALCULATION == {*METHODS} == {*klsym.claims("methods")}
    assert not {*WRONG} & BY_CALCULATION


@pytest.mark.parametrize("name", WRONG)
def test_wrong_versions_are_refused(name: str) -> None:
    with pytest.raises(ProofError):
        WRONG[name]()


@pytest.mark.parametrize("name", METHODS)
def test_each_part_agrees_with_an_oracle(name: str) -> None:
    """The oracle evaluates each theorem on random models; each calculation has an oracle of its own."""
    settled = klsym.claim(name)
    for part in settled.parts:
        passed, text = judge(part, settled.claim)
        assert passed, text


def test_at_three_samples_the_square_of_the_rewards_counts() -> None:
    """The mean of R_others^2 holds that of R^2, which is J only if R is 0 or 1."""
    weighted = derive(
        mean_over_i(own(R) * (3 - 2 * others(R) + others(R) ** 2 / 2) * own(s), under=q),
        premises=groups.THREE,
    )
    reward, square = MEAN_REWARD, expectation(R**2, under=q)
    using = [(0, groups.SLOPE * (2 * reward - reward * reward * (n / 2) - square / 2))]
    slope, rest = grad(reward), 3 * grad(reward) + reward * reward * grad(reward)
    assert weighted.equals(rest - 4 * reward * slope + slope * square, using=using).trust == "kernel"
    with pytest.raises(ProofError):
        weighted.equals(rest - 3 * reward * slope, using=using)


# ---------------------------------------------------------------------------- numbers of their own
def softmax(logits: Any) -> Any:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def slope(value: Callable[[Any], float], logits: Any, step: float = 1e-5) -> Any:
    """The gradient along the logits, by differences."""
    return np.array([(value(logits + step * e) - value(logits - step * e)) / (2 * step)
                     for e in np.eye(len(logits))])  # fmt: skip


def draw(seed: int, size: int = 4) -> tuple[Any, ...]:
    return tuple(np.random.default_rng(seed).normal(size=(3, size)))


def policy_gradient(logits: Any, weights: Any) -> Any:
    """E_q[weight s], s of each outcome along each logit."""
    chances = softmax(logits)
    return (chances * weights) @ (np.eye(len(logits)) - chances)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.05, 8.0])
def test_the_gate_of_sapo(seed: int, temperature: float) -> None:
    logits, moved, advantage = draw(seed)

    def loss(sampler: Any) -> Callable[[Any], float]:
        def value(at: Any) -> float:
            ratio = softmax(at) / sampler
            return float(sampler @ (-4 / temperature / (1 + np.exp(-temperature * (ratio - 1))) * advantage))

        return value

    assert np.allclose(slope(loss(softmax(logits)), logits), -policy_gradient(logits, advantage), atol=1e-8)
    ratio = softmax(logits) / softmax(moved)
    gate = 1 / (1 + np.exp(-temperature * (ratio - 1)))
    weight = 4 * gate * (1 - gate) * ratio
    assert ((weight > 0) & (weight < ratio)).all()
    expected = -policy_gradient(logits, weight / ratio * advantage)
    assert np.allclose(slope(loss(softmax(moved)), logits), expected, atol=1e-8)


class Tree:
    """A word that ends the sequence, or one of two that go on with one of two words: five sequences."""

    paths = ((0, None), (1, 3), (1, 4), (2, 5), (2, 6))
    lengths = np.array([1, 2, 2, 2, 2])

    @classmethod
    def chances(cls, logits: Any) -> Any:
        """The chances of both tokens of each sequence; 1 where there is none."""
        words = np.concatenate([softmax(logits[i:j]) for i, j in ((0, 3), (3, 5), (5, 7))])
        return np.array([[words[first], 1 if last is None else words[last]] for first, last in cls.paths])


@pytest.mark.parametrize("seed", range(4))
def test_geometric_means_on_a_tree(seed: int) -> None:
    logits, moved, advantage = draw(seed, 7)
    advantage = advantage[:5]
    start = Tree.chances(logits)

    def mean_of(weights: Any) -> Callable[[Any], float]:
        return lambda at: float(Tree.chances(at).prod(1) @ weights)

    def loss(sampler: Any, low: float, high: float, factor: Any = 1) -> Callable[[Any], float]:
        def value(at: Any) -> float:
            logs = np.clip(np.log(Tree.chances(at) / sampler), low, high)
            return float(sampler.prod(1) @ (factor * np.exp(logs.sum(1) / Tree.lengths) * advantage))

        return value

    per_length = slope(mean_of(advantage / Tree.lengths), logits)
    assert np.allclose(slope(loss(start, -0.2, 0.3), logits), per_length, atol=1e-8)
    assert np.allclose(slope(loss(start, -9, 9, Tree.lengths), logits), slope(mean_of(advantage), logits),
                       atol=1e-8)  # fmt: skip
    assert not np.allclose(per_length, slope(mean_of(advantage), logits), atol=1e-3)
    # off-policy: the tokens inside the bounds, times the clipped mean
    sampler, low, high = Tree.chances(moved), -0.21, 0.34
    logs = np.log(start / sampler)
    inside = (logs > low) & (logs < high)
    weights = advantage / Tree.lengths * np.exp(np.clip(logs, low, high).sum(1) / Tree.lengths)

    def surrogate(at: Any) -> float:
        return float(sampler.prod(1) @ (weights * (inside * np.log(Tree.chances(at))).sum(1)))

    assert np.allclose(slope(loss(sampler, low, high), logits), slope(surrogate, logits), atol=1e-7)


@pytest.mark.parametrize("constants", [(1.0, 0.0), (2.0, 1.0), (0.5, -0.7), (3.0, 4.0)])
def test_the_weight_of_vespo(constants: tuple[float, float]) -> None:
    logits, moved, advantage = draw(5)
    power, rate = constants

    def field(sampler: Any) -> Any:
        ratio = softmax(logits) / sampler
        weight = ratio**power * np.exp(rate * (1 - ratio)) * advantage
        return slope(lambda at: float(-sampler @ (weight * np.log(softmax(at)))), logits)

    target = -policy_gradient(logits, advantage)
    assert np.allclose(field(softmax(logits)), target, atol=1e-8)
    ratio = softmax(logits) / softmax(moved)
    weighted = policy_gradient(logits, ratio ** (power - 1) * np.exp(rate * (1 - ratio)) * advantage)
    assert np.allclose(field(softmax(moved)), -weighted, atol=1e-8)
    assert np.allclose(weighted, -target, atol=1e-8) == (constants == (1.0, 0.0))


@pytest.mark.parametrize("size", [2, 3, 5, 9])
@pytest.mark.parametrize("share", [0.05, 0.4, 0.9])
def test_rewards_over_their_mean_by_the_number_of_successes(size: int, share: float) -> None:
    """Along the logit of a success among two outcomes s is 1 - J or -J, and the slope of J is J (1 - J)."""
    plain = centred = 0.0
    for successes in range(1, size + 1):
        chance = comb(size, successes) * share**successes * (1 - share) ** (size - successes)
        won, mean = successes * (1 - share), successes / size
        lost = -(size - successes) * share
        plain += chance * won / successes
        centred += chance * ((1 - mean) / mean * won - lost) / size

    def potential(order: int) -> Any:
        return lambda at: -sum((1 - 1 / (1 + np.exp(-at[0]))) ** k / k for k in range(1, order + 1))

    logit = np.array([np.log(share / (1 - share))])
    assert np.isclose(plain, slope(potential(size), logit)[0], atol=1e-9)
    assert np.isclose(centred, slope(potential(size - 1), logit)[0], atol=1e-9)


def test_the_length_weighted_baseline_over_all_batches() -> None:
    def field(chances: Any, rewards: Any, lengths: Any, size: int, skip_own: bool = False) -> Any:
        total = np.zeros(3)
        for batch in product(range(3), repeat=size):
            at = list(batch)
            for i in range(size):
                kept = [y for j, y in enumerate(at) if not (skip_own and j == i)]
                baseline = lengths[kept] @ rewards[kept] / lengths[kept].sum()
                push = (rewards[at[i]] - baseline) / size
                total += np.prod(chances[at]) * push * (np.eye(3)[at[i]] - chances)
        return total

    third, rewards, lengths = np.full(3, 1 / 3), np.array([1.0, 0, 0]), np.array([1.0, 1, 2])
    for size in (2, 3, 4):
        found = field(third, rewards, lengths, size)
        assert abs(found[1] - found[2]) > 5e-3  # of grad E_q[R] these two are equal
        assert np.allclose(field(third, rewards, lengths, size, skip_own=True), [2 / 9, -1 / 9, -1 / 9])
    assert np.allclose(field(third, rewards, lengths, 2), np.array([19, -11, -8]) / 162)
    chances, rewards, lengths = np.array([0.01, 0.97, 0.02]), np.array([3.0, 2, 0]), np.array([1.0, 1, 100])
    start = np.log(chances)
    step = field(chances, rewards, lengths, 2)
    after = softmax(start + 0.01 * step / np.abs(step).max())
    assert after @ rewards < chances @ rewards


def test_descent_of_clamped_words_raises_the_kl() -> None:
    reference = np.array([0.25, 0.75])

    def kl(at: Any) -> float:
        return float(softmax(at) @ np.log(softmax(at) / reference))

    def clamped(bound: float) -> Callable[[Any], float]:
        return lambda at: float(np.minimum(softmax(at) * np.log(softmax(at) / reference), bound).sum())

    start = np.zeros(2)
    for bound, raises in ((0.1, True), (0.5, False)):
        after = start - 0.01 * slope(clamped(bound), start)
        assert (kl(after) > kl(start)) == raises


@pytest.mark.parametrize("seed", range(20))
def test_the_kl_of_two_outcomes_is_between_0_and_that_of_all_words(seed: int) -> None:
    old, new = (softmax(2 * row) for row in draw(seed, 6)[:2])
    whole = old @ np.log(old / new)
    for a, other in zip(old, new, strict=True):
        part = a * np.log(a / other) + (1 - a) * np.log((1 - a) / (1 - other))
        assert 0 <= part <= whole
    assert not all(  # not of the other direction
        a * np.log(a / c) + (1 - a) * np.log((1 - a) / (1 - c)) <= new @ np.log(new / old)
        for seed in range(20) for old, new in [tuple(softmax(2 * row) for row in draw(seed, 6)[:2])]
        for a, c in zip(old, new, strict=True)
    )  # fmt: skip


@pytest.mark.parametrize("share", [0.0, 0.25, 0.7, 1.0])
def test_both_directions_as_one_divergence(share: float) -> None:
    policy, reference = (softmax(row) for row in draw(3)[:2])
    ratio = reference / policy

    def f(x: Any) -> Any:
        return (1 - share) * x * np.log(x) - share * np.log(x)

    value = share * policy @ np.log(policy / reference) + (1 - share) * reference @ np.log(ratio)
    assert np.isclose(policy @ f(ratio), value, rtol=1e-13)
    points = np.array([0.05, 0.5, 1.0, 3.0, 20.0])
    bends = (f(points * 1.001) + f(points * 0.999) - 2 * f(points)) / (0.001 * points) ** 2
    assert (bends > 0).all() and np.isclose(bends[2], 1, atol=1e-5)


def test_the_parts_name_their_files() -> None:
    for module in (groups, ratios, words):
        assert any(module.__name__ == claim.build.__module__ for claim in klsym.claims("methods").values())
