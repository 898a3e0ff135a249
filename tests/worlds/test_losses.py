"""Losses at the places of a world: slopes in several systems, against difference quotients."""

from __future__ import annotations

from typing import Any

import mpmath
import pytest

from klsym.language.parser import parse
from klsym.worlds.draw import draw_tree_models
from klsym.worlds.losses import LossWorld
from klsym.worlds.means import compute_curl
from klsym.worlds.numbers import DIGITS, FLOATS, System, Tie
from klsym.worlds.world import Place

MODELS = [model for model, _ in zip(draw_tree_models(lambda step: {"beta": "2/3"}), range(4), strict=False)]
KINKED = ("min(rho, 2)*A", "abs(k1)*R", "clip(k1, -1/3, 1/3)")  # models on a bound are refused
LOSSES = (
    "k2", "beta*k3 - R*log_q", "rho*k3", "sg(rho)*k2", "exp(-k1)*log(1 + r)", "past(sg(rho))*k2",
    "full(k3)*R", "past(k1)*now(k1)", "future(R)*k1 + k1/T", *KINKED,
)  # fmt: skip
WITH_CURL = ("past(sg(rho))*k2",)  # the gradient of a next-token KL at prefixes that theta weighs


def compute_field(world: LossWorld, e: Any) -> Any:
    """E_mu[sum_t grad L_t] along the direction of the world."""
    terms = [
        mass * world.evaluate_at(e, Place(batch, 0, t)).slope
        for batch, mass in world.enumerate_batches(1, "mu")
        for t in range(len(world.paths[batch[0]]))
    ]
    return world.system.add(terms)


def read_world(model: dict[str, Any], system: System, along: str = "u", **rows: Any) -> LossWorld:
    world = LossWorld.from_model(model, system=system)
    world.along, world.rows = along, {**world.rows, **rows}
    return world


def move_by_step(model: dict[str, Any], move: str, step: float) -> list[Any]:
    """log q at theta + step v, in mpmath."""
    world = LossWorld.from_model(model)
    logs = []
    for node in world.layout.nodes:
        weights = [
            mpmath.exp(q + step * v)
            for q, v in zip(world.rows["log_q"][node], world.directions[move][node], strict=True)
        ]
        logs += [mpmath.log(weight / mpmath.fsum(weights)) for weight in weights]
    return logs


@pytest.mark.parametrize("loss", LOSSES)
def test_curls_of_losses_are_differences_of_their_slopes(loss: str) -> None:
    """h is a slope already: its slope along v is one of dual numbers over dual numbers."""
    e, compared, largest = parse(loss, ["beta"]), 0, 0.0
    for model in MODELS:
        with mpmath.workdps(50):
            step, expected = mpmath.mpf(10) ** -12, mpmath.mpf(0)
            for move, along, sign in (("v", "u", 1), ("u", "v", -1)):
                ends = [
                    compute_field(read_world(model, DIGITS, along, log_q=move_by_step(model, move, h)), e)
                    for h in (-step, step)
                ]
                expected += sign * (ends[1] - ends[0]) / (2 * step)
            try:
                found = compute_curl(LossWorld.from_model(model), lambda world, u: field_along(world, u, e))
            except Tie:
                assert loss in KINKED
                continue
            assert abs(found - expected) < 1e-18
            compared, largest = compared + 1, max(largest, abs(found))
    assert compared >= 2 and (largest > 1e-3) == (loss in WITH_CURL)


def field_along(world: LossWorld, along: str, e: Any) -> Any:
    world.along = along
    return compute_field(world, e)


@pytest.mark.parametrize("loss", LOSSES)
def test_floats_and_digits_agree(loss: str) -> None:
    e = parse(loss, ["beta"])
    for model in MODELS:
        with mpmath.workdps(50):
            exact = float(compute_field(read_world(model, DIGITS), e))
        assert compute_field(read_world(model, FLOATS), e) == pytest.approx(exact, abs=1e-12)
