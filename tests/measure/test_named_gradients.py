"""Named gradients against their definitions: sums over sequences in plain Python, central differences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

# ruff: noqa: E501 (a table of formulas)
from klsym.measure.objectives import NamedGradients
from klsym.measure.world import MeasuredWorld
from klsym.worlds.words import WordTree, draw_tables

STEP = 1e-5
Policy = Callable[[tuple[int, ...], int], float]  # log probability of a word after a prefix
V, T = 3, 2


class Plain:
    """The sequences of a world by their words, with logs of three policies."""

    def __init__(self, world: MeasuredWorld, theta: np.ndarray) -> None:
        self.rows = {prefix: k for k, prefix in enumerate(world.tree.prefixes)}
        self.world = world
        self.tables = {"q": theta, "p": np.array(world.tables.p), "mu": np.array(world.tables.mu)}
        if world.sampling == "on-policy":
            self.tables["mu"] = world.theta
        self.words = [
            y for n in range(1, T + 1) for y in itertools.product(range(V), repeat=n)
            if all(y[:-1]) and (len(y) == T or not y[-1])
        ]  # fmt: skip
        order = {
            tuple(row[:n]): k
            for k, (row, n) in enumerate(zip(world.tree.tokens, world.tree.lengths, strict=True))
        }
        self.rewards = {y: world.tables.rewards[order[y]] for y in self.words}

    def log(self, policy: str, prefix: tuple[int, ...], word: int) -> float:
        row = self.tables[policy][self.rows[prefix]]
        return float(row[word]) - math.log(sum(math.exp(x) for x in row))

    def whole(self, policy: str, y: tuple[int, ...]) -> float:
        return sum(self.log(policy, y[:t], y[t]) for t in range(len(y)))

    def mean(self, policy: str, f: Callable[[tuple[int, ...]], float]) -> float:
        return sum(math.exp(self.whole(policy, y)) * f(y) for y in self.words)

    def steps(self, y: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
        return ((y[:t], y[t]) for t in range(len(y)))

    def k1(self, prefix: tuple[int, ...], word: int) -> float:
        return self.log("q", prefix, word) - self.log("p", prefix, word)

    def rho(self, prefix: tuple[int, ...], word: int) -> float:
        return math.exp(self.log("q", prefix, word) - self.log("mu", prefix, word))

    def next_kl(self, first: str, second: str, prefix: tuple[int, ...]) -> float:
        return sum(
            math.exp(a) * (a - self.log(second, prefix, w))
            for w in range(V) for a in [self.log(first, prefix, w)]
        )  # fmt: skip


def k3(x: float) -> float:
    return math.exp(-x) - 1 + x


NAMES: dict[str, Callable[[Plain], float]] = {
    "policy-gradient": lambda w: w.mean("q", lambda y: w.rewards[y]),
    "reverse-kl": lambda w: w.mean("q", lambda y: w.whole("q", y) - w.whole("p", y)),
    "forward-kl": lambda w: w.mean("p", lambda y: w.whole("p", y) - w.whole("q", y)),
    "entropy": lambda w: -w.mean("q", lambda y: w.whole("q", y)),
    "sampler-kl": lambda w: w.mean("mu", lambda y: w.whole("mu", y) - w.whole("q", y)),
    "sampler-reverse-kl": lambda w: w.mean("q", lambda y: w.whole("q", y) - w.whole("mu", y)),
    "length": lambda w: w.mean("q", len),
    "inverse-length": lambda w: w.mean("q", lambda y: 1 / len(y)),
    "policy-gradient/T": lambda w: w.mean("q", lambda y: w.rewards[y] / len(y)),
    "next-token-reverse-kl": lambda w: w.mean("mu", lambda y: sum(w.next_kl("q", "p", x) for x, _ in w.steps(y))),
    "next-token-forward-kl/T": lambda w: w.mean(
        "mu", lambda y: sum(w.next_kl("p", "q", x) for x, _ in w.steps(y)) / len(y)),
    "log-likelihood": lambda w: w.mean("mu", lambda y: w.rewards[y] * w.whole("q", y)),
    "token-policy-gradient": lambda w: w.mean("mu", lambda y: w.rewards[y] * sum(w.rho(*z) for z in w.steps(y))),
    "E_mu[k3/T]": lambda w: w.mean("mu", lambda y: sum(k3(w.k1(*z)) for z in w.steps(y)) / len(y)),
    "E_mu[rho*k3]": lambda w: w.mean("mu", lambda y: sum(w.rho(*z) * k3(w.k1(*z)) for z in w.steps(y))),
    "E_mu[whole(k1)**2/2]": lambda w: w.mean("mu", lambda y: (w.whole("q", y) - w.whole("p", y)) ** 2 / 2),
    "E_mu[R*exp(seqmean(log_q - log_mu))]": lambda w: w.mean(
        "mu", lambda y: w.rewards[y] * math.exp((w.whole("q", y) - w.whole("mu", y)) / len(y))),
    "E_mu[abs(k1)]": lambda w: w.mean("mu", lambda y: sum(abs(w.k1(*z)) for z in w.steps(y))),
    "next-token-entropy": lambda w: w.mean(
        "mu", lambda y: -sum(math.exp(a) * a for x, _ in w.steps(y) for v in range(V) for a in [w.log("q", x, v)])),
    "E_mu[(log_q - log_mu)**2/2]": lambda w: w.mean(
        "mu", lambda y: sum((w.log("q", *z) - w.log("mu", *z)) ** 2 / 2 for z in w.steps(y))),
}  # fmt: skip


def build_world(sampling: str, group: int = 1) -> MeasuredWorld:
    tree = WordTree(V, T)
    return MeasuredWorld(tree, draw_tables(tree, 3), sampling, group)


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_gradient_of_its_definition(name: str, sampling: str) -> None:
    world = build_world(sampling)
    found = NamedGradients(world, world.theta)[name]
    for i, j in np.ndindex(found.shape):
        step = np.zeros_like(found)
        step[i, j] = STEP
        up, down = (NAMES[name](Plain(world, world.theta + s * step)) for s in (1, -1))
        assert found[i, j] == pytest.approx((up - down) / (2 * STEP), abs=1e-8)


def test_names_of_a_group_weigh_each_sample_by_the_others() -> None:
    """E of sum_i x_i/N over all pairs, and the reward less the mean of the pair."""
    world = build_world("off-policy", group=2)
    named = NamedGradients(world, world.theta)
    plain = Plain(world, world.theta)
    mass = {y: math.exp(plain.whole("mu", y)) for y in plain.words}

    def pairs(weigh: Callable[[Any, Any], float], f: Callable[[Plain, Any], float]) -> np.ndarray:
        gradient = np.zeros_like(world.theta)
        for i, j in np.ndindex(gradient.shape):
            step = np.zeros_like(gradient)
            step[i, j] = STEP
            moved = [Plain(world, world.theta + s * step) for s in (1, -1)]
            slopes = {y: (f(moved[0], y) - f(moved[1], y)) / (2 * STEP) for y in plain.words}
            gradient[i, j] = sum(mass[a] * mass[b] * weigh(a, b) * slopes[a] for a in mass for b in mass)
        return gradient

    def k2(w: Plain, y: Any) -> float:
        return sum(w.k1(*z) ** 2 / 2 for z in w.steps(y))

    by_tokens = pairs(lambda a, b: 2 / (len(a) + len(b)), k2)
    assert np.abs(named["E_mu[k2/N]"] - by_tokens).max() < 1e-8
    R = plain.rewards
    centred = pairs(lambda a, b: (R[a] - R[b]) / 2, lambda w, y: w.whole("q", y))
    assert np.abs(named["E_mu[centred(R)*log_q]"] - centred).max() < 1e-8
    spread = pairs(
        lambda a, b: (R[a] - R[b]) / 2 / (abs(R[a] - R[b]) / math.sqrt(2) + 1e-4),
        lambda w, y: w.whole("q", y),
    )
    assert np.abs(named["E_mu[centred(R)/(std_1(R) + 1e-4)*log_q]"] - spread).max() < 1e-8
    assert np.abs(named["E_mu[k2]"] - by_tokens).max() > 1e-3


def test_a_truncated_sampler_has_no_mass_at_its_least_likely_words() -> None:
    world = build_world("truncated")
    log_mu = world.compute_sampler(world.theta)
    assert (np.isneginf(log_mu).sum(-1) == 1).all()
    assert np.exp(log_mu).sum(-1) == pytest.approx(1)
    groups = [*world.list_groups(world.theta)]
    assert sum(mass for _, mass in groups) == pytest.approx(1) and len(groups) < len(world.tokens)
