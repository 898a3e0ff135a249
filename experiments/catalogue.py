"""The experiments of the ledger by name: what runs each, and what draws it."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from klsym.errors import UsageError


@dataclass(frozen=True)
class Experiment:
    """Where an experiment is run and drawn: "module:function" each, called as run() and draw(data).

    set_ups: draws every set-up, where an experiment has more than its own.
    """

    title: str
    run: str
    draw: str
    set_ups: str = ""


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
        "klsym.experiments.distillation.experiment:figure8", "klsym.experiments.distillation.figures:draw",
        "klsym.experiments.distillation.figures:draw_set_ups"),
    "reward-collapse": Experiment(
        "k1, k2 and k3 in the reward",
        "klsym.experiments.reward_collapse.experiment:reward_collapse",
        "klsym.experiments.reward_collapse.figures:draw",
        "klsym.experiments.reward_collapse.figures:draw_set_ups"),
}  # fmt: skip


SET_UPS = "-set-ups"  # behind the name of an experiment, its figure of every set-up
WIDTH = 112  # of a printed finding
# what waits for the data of an experiment that another process runs
ELSEWHERE: dict[str, Callable[[], Any]] = {}


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


def pictures(name: str) -> dict[str, Any]:
    """Return the figures of an experiment by name: its own, and that of every set-up where there is one."""
    experiment, data = EXPERIMENTS[name], result(name)
    further = {f"{name}{SET_UPS}": _function(experiment.set_ups)(data)} if experiment.set_ups else {}
    return {name: drawer(name)(data), **further}


def picture(name: str) -> Any:
    """Return one of these figures; name: of an experiment, or with -set-ups behind it."""
    return pictures(name.removesuffix(SET_UPS))[name]


def findings(name: str) -> None:
    """Print the findings of an experiment, each with its comparison with the source.

    Raises AssertionError: the data do not bear a finding out.
    """
    for finding in result(name).findings:
        assert finding.holds, finding.text
        print(textwrap.fill(finding.text, WIDTH, initial_indent="- ", subsequent_indent="  "))
        said = f"{finding.mark}: {finding.paper}" if finding.paper else finding.mark
        print(textwrap.fill(f"[{said}]", WIDTH, initial_indent="      ", subsequent_indent="      "))


def failures(name: str, seeds: int, **size: int) -> list[int]:
    """Return how often each finding fails with the seeds 1 to `seeds`; size: such as repeats=25."""
    run = _function(EXPERIMENTS[name].run)
    every = [run(seed=seed, **size).findings for seed in range(1, seeds + 1)]
    return [sum(not finding.holds for finding in same) for same in zip(*every, strict=True)]


def _function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
