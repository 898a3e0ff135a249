"""Counts as bars: what the losses of released packages, of trainers, and of public threads minimise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from klsym.study.figures.style import BLACK, COLOURS, GREY, ORANGE, PAGE, SKY, open_panels

SMALLEST, GREEN = 1e-16, 1e-7  # of a distance: what is drawn, and what a gate lets through
TARGETS = {  # of a loss, in the order of the bars: words, colour
    "reverse-kl": ("the reverse KL", COLOURS["k2"]),
    "forward-kl": ("the forward KL", COLOURS["k3"]),
    "zero": ("nothing", COLOURS["k1"]),
    "combination": ("a sum of named objectives", SKY),
    "f-divergence": ("another divergence", ORANGE),
    "own-mean": ("its own mean, samples held fixed", ORANGE),
    "objective": ("an objective without a name", GREY),
    "no-objective": ("no objective", BLACK),
}


def draw_survey() -> Any:
    """What the KL terms of released packages that stand in a loss minimise, on samples of the policy."""
    from klsym.study.tables.survey import stored

    read = [row for row in stored() if "refused" not in row and "loss" in row["place"]]
    verdicts = [row["verdicts"]["loss on-policy"] for row in read]
    counts = Counter((verdict["inside"] or verdict)["target"] for verdict in verdicts)
    title = f"{counts['reverse-kl']} of {len(read)} KL terms in released losses follow the reverse KL"
    return draw_bars(counts, title, "functions and choices, on-policy, inside the clip range")


def draw_trainers() -> Any:
    """What whole losses of trainers minimise."""
    from klsym.study.tables.trainers import stored

    counts = Counter(answer["target"] for answer in stored().values())
    title = f"{counts['no-objective']} of {counts.total()} losses of trainers have no objective"
    return draw_bars(counts, title, "whole losses, each with the samples that the trainer draws")


def draw_questions() -> Any:
    """What the losses minimise that people asked about in public threads."""
    from klsym.study.write_up.questions import load_questions

    counts = Counter(str(question.verdict.target) for question in load_questions())
    title = f"{counts['reverse-kl']} of {counts.total()} losses that people ask about follow the reverse KL"
    return draw_bars(counts, title, "losses of public threads")


def draw_bars(counts: Mapping[str, int], title: str, what: str) -> Any:
    """One bar a target, with its count."""
    rows = sorted(counts, key=[*TARGETS].index)
    with open_panels(PAGE * 0.75, 0.28 * len(rows) + 0.8) as (figure, ax):
        numbers, colours = [counts[row] for row in rows], [TARGETS[row][1] for row in rows]
        ax.bar_label(ax.barh(range(len(rows)), numbers, color=colours, height=0.7), padding=3)
        _finish(ax, [TARGETS[row][0] for row in rows], title, what)
    return figure


def draw_measured() -> Any:
    """For each trainer, how many of its measured settings have an objective, and how many have none."""
    from klsym.study.tables.measured_data import read_trainers

    rows = read_trainers()
    packages = sorted({row["package"] for row in rows})
    with open_panels(PAGE * 0.75, 0.28 * len(packages) + 1.0) as (figure, ax):
        starts: Sequence[int] = [0] * len(packages)
        for holds, label, colour in ((True, "an objective", SKY), (False, "none", BLACK)):
            counts = Counter(row["package"] for row in rows if bool(row["has_objective"]) is holds)
            numbers = [counts[package] for package in packages]
            ax.barh(range(len(packages)), numbers, left=starts, color=colour, height=0.7, label=label)
            starts = [a + b for a, b in zip(starts, numbers, strict=True)]
        ax.legend(loc="lower right")
        without = sum(not row["has_objective"] for row in rows)
        title = f"{without} of {len(rows)} settings of trainers have no objective, measured"
        _finish(ax, packages, title, "settings")
    return figure


def draw_distances(distances: Mapping[str, float], title: str) -> Any:
    """How far gradients are from that of the objective that is meant, one bar a loss, on a log axis."""
    with open_panels(PAGE * 0.75, 0.28 * len(distances) + 0.9) as (figure, ax):
        lengths = [max(distance, SMALLEST) for distance in distances.values()]
        colours = [COLOURS["k2"] if distance < GREEN else COLOURS["k3"] for distance in distances.values()]
        ax.barh(range(len(lengths)), lengths, left=SMALLEST / 10, color=colours, height=0.7)
        ax.set(xscale="log", xlim=(SMALLEST / 10, 10))
        _finish(
            ax, list(distances), title, "distance from the intended gradient, relative; 1e-16 is rounding"
        )
    return figure


def _finish(ax: Any, names: Sequence[str], title: str, what: str) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel=what)
    ax.set_title(title, loc="left", x=0)
