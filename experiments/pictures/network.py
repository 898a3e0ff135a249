"""The gradients of losses on a small transformer: what klsym predicts against automatic differentiation."""

from __future__ import annotations

from typing import Any

from klsym.study.figures.style import COLOURS, GREY, open_panels

OFF, TOKEN, REWARD = {"sampling": "off-policy"}, {"level": "token"}, {"use": "reward"}
LOSSES: tuple[tuple[str, dict[str, str]], ...] = (
    ("k1", {}), ("k2", {}), ("k3", {}), ("k3", OFF), ("rho*k3", OFF), ("sg(rho)*k2", OFF), ("k3", REWARD),
    ("k2", TOKEN), ("k3", TOKEN), ("rho*k3", TOKEN | OFF), ("R - beta*k1", TOKEN | REWARD),
)  # fmt: skip


def list_points(seed: int = 1) -> tuple[list[Any], list[Any], float]:
    """Predicted and exact derivatives of LOSSES along random directions, and the largest difference."""
    from klsym.experiments.network.network import World

    world = World(seed=seed, parameters={"beta": 0.3})
    settings: list[tuple[str, Any]] = [(loss, {"level": "sequence"} | options) for loss, options in LOSSES]
    compared = [world.compare(loss, samples=None, **setting) for loss, setting in settings]
    along = [one for comparison in compared for one in comparison.along]
    difference = max(comparison.difference for comparison in compared)
    return [one.predicted for one in along], [one.exact for one in along], difference


def draw() -> Any:
    """Each point is a loss along a direction of the parameters."""
    predicted, exact, _ = list_points()
    with open_panels(3.6, 3.0) as (figure, ax):
        ax.axline((0, 0), slope=1, color=GREY, lw=0.7, ls=":")
        ax.plot(exact, predicted, "o", color=COLOURS["k1"], ms=4, mfc="none")
        ax.set(xlabel="gradient by automatic differentiation", ylabel="gradient that klsym predicts")
        ax.set_title(f"{len(LOSSES)} losses of a transformer: no difference", loc="left")
    return figure
