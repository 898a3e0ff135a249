"""The experiments of the ledger by name: what runs each, and what draws it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from klsym.errors import UsageError


@dataclass(frozen=True)
class Experiment:
    """Where an experiment is run and drawn: "module:function" each, called as run() and draw(data)."""

    title: str
    run: str
    draw: str


TM, DRAW = "klsym.experiments.tang_munos.experiment", "klsym.experiments.tang_munos.figures"
EXPERIMENTS: dict[str, Experiment] = {
    "gaussian-estimators": Experiment(
        "bias and spread of k1, k2, k3 between Gaussians",
        "klsym.experiments.gaussians.experiment:gaussian_estimators",
        "klsym.experiments.gaussians.figure:draw"),
    "tm-fig1": Experiment("error of the KL estimates", f"{TM}:figure1", f"{DRAW}:draw1"),
    "tm-fig2": Experiment("error of the gradient estimates", f"{TM}:figure2", f"{DRAW}:draw2"),
    "tm-fig3": Experiment("descending the KL divergence", f"{TM}:figure3", f"{DRAW}:draw3"),
    "tm-fig4": Experiment("KL-regularised reward maximisation", f"{TM}:figure4", f"{DRAW}:draw4"),
    "tm-fig5": Experiment("what the estimates converge to", f"{TM}:figure5", f"{DRAW}:draw5"),
    "tm-fig6": Experiment("the true target of the k3 loss", f"{TM}:figure6", f"{DRAW}:draw6"),
    "tm-fig8": Experiment(
        "sequence KL under token and sequence estimates",
        "klsym.experiments.distillation.experiment:figure8", "klsym.experiments.distillation.figures:draw"),
    "reward-collapse": Experiment(
        "k1, k2 and k3 in the reward",
        "klsym.experiments.reward_collapse.experiment:reward_collapse",
        "klsym.experiments.reward_collapse.figures:draw"),
}  # fmt: skip


ELSEWHERE: dict[
    str, Callable[[], Any]
] = {}  # what waits for the data of an experiment that another process runs


@cache
def result(name: str) -> Any:
    """The data of an experiment at its default set-up, run once a process, or once in another one."""
    run = ELSEWHERE.pop(name, None) or _function(EXPERIMENTS[name].run)
    return run()


def select(names: list[str]) -> list[str]:
    """The experiments with these names, all when there are none; `experiment.` in front is allowed."""
    chosen = [name.removeprefix("experiment.") for name in names] or list(EXPERIMENTS)
    for name in chosen:
        if name not in EXPERIMENTS:
            raise UsageError(f"unknown figure {name[:60]!r}: known are {', '.join(EXPERIMENTS)}")
    return list(dict.fromkeys(chosen))


def drawer(name: str) -> Any:
    """What makes the figure of an experiment from its data.

    >>> drawer("tm-fig1").__name__
    'draw1'
    """
    return _function(EXPERIMENTS[name].draw)


def _function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
