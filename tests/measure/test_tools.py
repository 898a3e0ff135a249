"""Words of a tool inside a sequence: no policy draws them, and no objective depends on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from klsym.errors import UsageError
from klsym.measure.measuring import measure
from klsym.measure.objectives import NamedGradients
from klsym.measure.world import MeasuredWorld
from klsym.worlds.words import WordTree, draw_tables

TREE = WordTree(3, 3, tool=2)


def policy_gradient(b: Any) -> Any:
    return -(b.rewards[:, None] * b.logp * b.mask).sum()


def without_a_mask(b: Any) -> Any:
    return -(b.rewards[:, None] * b.logp).sum()


def k1_in_the_reward(b: Any) -> Any:
    reward = ((b.logp.detach() - b.ref_logp) * b.mask).sum(-1)
    return (reward * (b.logp * b.mask).sum(-1)).sum()


def mean_k3(b: Any) -> Any:
    log_ratio = b.ref_logp - b.logp
    return (((log_ratio.exp() - 1 - log_ratio) * b.mask).sum(-1) / b.mask.sum(-1)).sum()


@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize(
    ("loss", "multiples", "has_objective"),
    [
        (policy_gradient, {"policy-gradient": -1.0}, True),
        (k1_in_the_reward, {"reverse-kl": 1.0}, True),
        (mean_k3, {"E_mu[k3/T]": 1.0}, False),
        (without_a_mask, {}, False),  # it trains on the words of the tool, which have other probabilities
    ],
)
def test_what_a_loss_does_with_the_words_of_a_tool(
    loss: Callable[[Any], Any], multiples: dict[str, float], has_objective: bool, length: int
) -> None:
    answer = measure(loss, tool=True, length=length)
    assert answer.multiples == multiples and answer.has_objective is has_objective


def softmax(row: list[float]) -> list[float]:
    total = math.fsum(map(math.exp, row))
    return [math.exp(x) / total for x in row]


def mean_over_sequences(theta: list[list[float]], tables: Any, term: str) -> float:
    """E_q[R] or KL(q||p), sequence by sequence, word by word; the environment draws after a call."""
    total = 0.0
    for k, words in enumerate(TREE.sequences):
        mass, log_ratio = 1.0, 0.0
        for t, word in enumerate(words):
            row = TREE.prefixes.index(words[:t])
            if t and words[t - 1] == 2:
                mass *= softmax(tables.environment[row])[word]
            else:
                q, p = softmax(theta[row])[word], softmax(tables.p[row])[word]
                mass, log_ratio = mass * q, log_ratio + math.log(q / p)
        total += mass * (tables.rewards[k] if term == "policy-gradient" else log_ratio)
    return total


@pytest.mark.parametrize("name", ["policy-gradient", "reverse-kl"])
def test_named_gradients_are_differences_of_the_literal_means(name: str) -> None:
    tables, step = draw_tables(TREE, 4), 1e-5
    named = NamedGradients(MeasuredWorld(TREE, tables), np.array(tables.q))[name]
    for row, entry in [(0, 0), (0, 2), (1, 1), (2, 0), (len(tables.q) - 1, 1)]:
        values = []
        for sign in (1, -1):
            moved = [list(x) for x in tables.q]
            moved[row][entry] += sign * step
            values.append(mean_over_sequences(moved, tables, name))
        assert named[row, entry] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-9)


def test_the_masses_of_all_sequences_are_1() -> None:
    world = MeasuredWorld(TREE, draw_tables(TREE, 2))
    assert sum(mass for _, mass in world.list_groups(world.theta)) == pytest.approx(1)


def test_there_has_to_be_a_word_beside_the_end_and_the_call() -> None:
    with pytest.raises(UsageError, match="3 words and a length of 2"):
        measure(policy_gradient, tool=True, words=2)


def test_sequences_of_one_length_have_no_padding() -> None:
    answer = measure(without_a_mask, fixed_length=True)
    assert answer.multiples == {"policy-gradient": -1.0} and answer.has_objective
    assert not measure(without_a_mask).multiples
