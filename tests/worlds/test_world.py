"""Sequences, batches, masses and scores of a world, against enumeration by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import pytest

from klsym.worlds.draw import draw_tree_models
from klsym.worlds.numbers import DIGITS, FLOATS, build_duals
from klsym.worlds.world import Place, World, read_model

Steps = tuple[dict[str, float], ...]


def list_sequences(node: dict[str, Any], before: Steps = ()) -> Iterator[Steps]:
    """Each sequence of a tree in JSON, a step a dictionary of its numbers."""
    for k, after in enumerate(node["next"]):
        step = {name: float(Fraction(node[name][k])) for name in ("q", "p", "mu", "u", "v")}
        for d in ("u", "v"):
            step["s" + d] = step[d] - sum(
                float(Fraction(a)) * float(Fraction(b)) for a, b in zip(node["q"], node[d], strict=True)
            )
        step["R"] = float(Fraction(node["rewards"]["R"][k]))
        path = (*before, step)
        yield from [path] if after is None else list_sequences(after, path)


MODELS = [model for model, _ in zip(draw_tree_models(lambda step: {}), range(8), strict=False)]


@pytest.mark.parametrize("model", MODELS, ids=range(8))
def test_sequences_masses_scores_and_rewards(model: dict[str, Any]) -> None:
    world, steps = read_model(model["tree"], system=FLOATS), list(list_sequences(model["tree"]))
    assert [len(path) for path in world.paths] == [len(path) for path in steps]
    for measure in ("q", "p", "mu"):
        for batch, mass in world.enumerate_batches(2, measure):
            chances = [math.prod(step[measure] for step in steps[k]) for k in batch]
            assert mass == pytest.approx(math.prod(chances))
    assert sum(mass for _, mass in world.enumerate_batches(2, "p")) == pytest.approx(1)
    for k, sequence in enumerate(steps):
        for along in "uv":
            whole = sum(step["s" + along] for step in sequence)
            assert world.compute_score(Place((k,)), along) == pytest.approx(whole, abs=1e-15)
        for t, step in enumerate(sequence):
            assert world.compute_score(Place((k,), t=t)) == pytest.approx(step["su"], abs=1e-15)
            past = sum(world.rows["R"][b] for b in world.list_branches(Place((k,), t=t), "past"))
            assert past == sum(before["R"] for before in sequence[:t])


def test_batches_are_all_tuples_in_order() -> None:
    world = read_model(MODELS[0]["tree"], system=FLOATS)
    found = [batch for batch, _ in world.enumerate_batches(3, "q")]
    assert found == list(product(range(len(world.paths)), repeat=3))


def move_by_step(world: World, along: str, step: float) -> list[float]:
    """log q of each branch at theta + step u, by the definition of a softmax."""
    logs = []
    for node in world.layout.nodes:
        weights = [
            math.exp(q + step * u)
            for q, u in zip(world.rows["log_q"][node], world.directions[along][node], strict=True)
        ]
        logs += [math.log(weight / sum(weights)) for weight in weights]
    return logs


@pytest.mark.parametrize("model", MODELS[:4], ids=range(4))
def test_a_moved_world_has_the_slopes_of_its_logs_and_scores(model: dict[str, Any]) -> None:
    world, h = read_model(model["tree"], system=FLOATS), 1e-5
    moved = world.move("v")
    assert moved.system is build_duals(FLOATS)
    ends = [move_by_step(world, "v", step) for step in (-h, h)]
    for x, before, after in zip(moved.rows["log_q"], *ends, strict=True):
        assert x.slope == pytest.approx((after - before) / (2 * h), abs=1e-9)
    rows = [
        World(world.layout, {"log_q": log_q}, world.directions, FLOATS).list_scores("u") for log_q in ends
    ]
    for x, before, after in zip(moved.list_scores("u"), *rows, strict=True):
        assert x.slope == pytest.approx((after - before) / (2 * h), abs=1e-9)
    twice = moved.move("u")  # d_u d_v log q = d_v s_u, of dual numbers over dual numbers
    for x, score in zip(twice.rows["log_q"], moved.list_scores("u"), strict=True):
        assert x.slope.slope == pytest.approx(score.slope)


def test_on_policy_the_sampler_moves_along() -> None:
    tree = MODELS[0]["tree"]
    fixed, moving = (read_model(tree, on_policy).move("u") for on_policy in (False, True))
    assert moving.rows["log_mu"] == moving.rows["log_q"]
    assert all(x.slope == 0 for x in fixed.rows["log_mu"])


def test_logs_add_up_to_1_in_all_digits() -> None:
    with mpmath.workdps(50):
        world = read_model(MODELS[5]["tree"], system=DIGITS)
        for node in world.layout.nodes:
            assert abs(mpmath.fsum(map(mpmath.exp, world.rows["log_p"][node])) - 1) < 1e-48
