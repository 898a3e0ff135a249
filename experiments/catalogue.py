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

    point: what its figure shows, for a caption; findings say it with numbers.
    stated: numbers of the findings that a caption prints, from 0.
    settings: what draws the picture NAME-settings, the results in other set-ups.
    """

    title: str
    run: str
    draw: str
    point: str
    stated: tuple[int, ...] = (0,)
    settings: str = ""


TM, DRAW = "klsym.experiments.tang_munos.experiment", "klsym.experiments.tang_munos.figures"
EXPERIMENTS: dict[str, Experiment] = {
    "gaussian-estimators": Experiment(
        "bias and spread of k1, k2, k3 between Gaussians",
        "klsym.experiments.gaussians.experiment:gaussian_estimators",
        "klsym.experiments.gaussians.figure:draw",
        "between close policies k3 has a smaller spread than k1, between distant ones a larger one"),
    "tm-fig1": Experiment(
        "error of the KL estimates", f"{TM}:figure1", f"{DRAW}:draw1",
        "the error of k1 and k3 keeps falling; that of k2 levels off at its bias", (1, 2)),
    "tm-fig2": Experiment(
        "error of the gradient estimates", f"{TM}:figure2", f"{DRAW}:draw2",
        "the k1 and k3 losses level off at their bias; vanilla and leave-one-out keep falling", (0, 1)),
    "tm-fig3": Experiment(
        "descending the KL divergence", f"{TM}:figure3", f"{DRAW}:draw3",
        "vanilla and leave-one-out lower the divergence; the k1 loss raises it", (0, 1)),
    "tm-fig4": Experiment(
        "KL-regularised reward maximisation", f"{TM}:figure4", f"{DRAW}:draw4",
        "leave-one-out approaches the optimum; vanilla levels off, lower with more samples", (0,)),
    "tm-fig5": Experiment(
        "what the estimates converge to", f"{TM}:figure5", f"{DRAW}:draw5",
        "the k1 and k3 losses end away from the optimum for any n; the level of vanilla falls with n", (0,)),
    "tm-fig6": Experiment(
        "the true target of the k3 loss", f"{TM}:figure6", f"{DRAW}:draw6",
        "the k3 loss converges to the optimum with the forward KL as its penalty", (1,)),
    "tm-fig8": Experiment(
        "sequence KL under token and sequence estimates",
        "klsym.experiments.distillation.experiment:figure8", "klsym.experiments.distillation.figures:draw",
        "which estimate ends lowest depends on whether the policy can equal the reference", (),
        "klsym.experiments.distillation.figures:draw_settings"),
    "reward-collapse": Experiment(
        "k1, k2 and k3 in the reward",
        "klsym.experiments.reward_collapse.experiment:reward_collapse",
        "klsym.experiments.reward_collapse.figures:draw",
        "k1 returns to the optimum; k3 loses arms", (1,),
        "klsym.experiments.reward_collapse.figures:draw_settings"),
    "sh-off-policy": Experiment(
        "learning from samples of an older policy",
        "klsym.experiments.off_policy_runs.experiment:off_policy_runs",
        "klsym.experiments.off_policy_runs.figures:draw",
        "without importance weights a penalty saves runs; with them a strong one makes large steps fail",
        (0, 3)),
}  # fmt: skip


SETTINGS = "-settings"  # the end of the name of a picture of other set-ups
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


def pictures(name: str) -> list[str]:
    """Return the names of the pictures of an experiment.

    >>> pictures("tm-fig1"), pictures("tm-fig8")
    (['tm-fig1'], ['tm-fig8', 'tm-fig8-settings'])
    """
    return [name, f"{name}{SETTINGS}"] if EXPERIMENTS[name].settings else [name]


def drawer(picture: str) -> Any:
    """Return the function that makes a picture of an experiment from its data.

    >>> drawer("tm-fig1").__name__, drawer("tm-fig8-settings").__name__
    ('draw1', 'draw_settings')
    """
    experiment = EXPERIMENTS[picture.removesuffix(SETTINGS)]
    return _function(experiment.settings if picture.endswith(SETTINGS) else experiment.draw)


def picture(name: str) -> Any:
    """Return a picture of an experiment, drawn from its data."""
    return drawer(name)(result(name.removesuffix(SETTINGS)))


def print_findings(name: str) -> None:
    """Print the findings of an experiment, each with its comparison with the source.

    Raises AssertionError: the data do not bear a finding out.
    """
    for finding in result(name).findings:
        assert finding.holds, finding.text
        print(textwrap.fill(finding.text, WIDTH, initial_indent="- ", subsequent_indent="  "))
        said = f"{finding.mark}: {finding.paper}" if finding.paper else finding.mark
        print(textwrap.fill(f"[{said}]", WIDTH, initial_indent="      ", subsequent_indent="      "))


def count_failures(name: str, seeds: int, **size: int) -> list[int]:
    """Return how often each finding fails with the seeds 1 to `seeds`; size: such as repeats=25."""
    run = _function(EXPERIMENTS[name].run)
    every = [run(seed=seed, **size).findings for seed in range(1, seeds + 1)]
    return [sum(not finding.holds for finding in same) for same in zip(*every, strict=True)]


def _function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
