"""The spread of k1, k2, k3 between two Gaussians: where k3 stops helping, and where its variance ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from klsym.experiments.gaussians.experiment import ESTIMATORS, GaussianEstimators
from klsym.study.figures.style import COLOURS, GREY, NAMES, PAGE, label_ends, open_panels

MARKS = {"k1": "o", "k2": "s", "k3": "^"}
EQUAL_WIDTHS = r"KL$(q\,\Vert\,p)$ in nats, $q=\mathcal{N}(0,1)$, $p=\mathcal{N}(d,1)$"
EQUAL_MEANS = r"variance $v$, $q=\mathcal{N}(0,1)$, $p=\mathcal{N}(0,v)$"
MARKERS: dict[str, Any] = {"ms": 3.5, "mfc": "white", "lw": 0.8}


def draw(data: GaussianEstimators) -> Any:
    """Lines are closed forms, markers are sampled; two panels side by side."""
    with open_panels(PAGE, 2.6, 1, 2) as (figure, (left, right)):
        _shift(left, data)
        _width(right, data)
    return figure


def _shift(ax: Any, data: GaussianEstimators) -> None:
    for k in ESTIMATORS:
        exact, seen = data.shift[k], data.shift_sampled[k]
        ax.plot(exact.at**2 / 2, exact.sd, color=COLOURS[k])
        ax.errorbar(seen.at**2 / 2, seen.sd, seen.error, fmt=MARKS[k], color=COLOURS[k], **MARKERS)
    ax.set(xscale="log", yscale="log", xlabel=EQUAL_WIDTHS, ylabel="standard deviation / KL")
    ax.set_title(f"(a) Below KL = {data.crossover:.3f}, $k_3$ spreads less than $k_1$", loc="left")
    ax.axvline(data.crossover, color=GREY, lw=0.6, ls=":")
    ax.annotate(
        f"KL = {data.crossover:.3f}:\n$k_3$ overtakes $k_1$", (data.crossover, 12), (-5, 0),
        textcoords="offset points", ha="right", color=GREY, fontsize=8,
    )  # fmt: skip
    end = data.shift["k1"].at[-1] ** 2 / 2
    label_ends(ax, [(data.shift[k].sd[-1], NAMES[k], COLOURS[k]) for k in ESTIMATORS], end)


def _width(ax: Any, data: GaussianEstimators) -> None:
    top = 40.0
    for k in ESTIMATORS:
        exact, seen = data.width[k], data.width_sampled[k]
        shown = np.where(np.isfinite(exact.sd) & (exact.sd < top), exact.sd, np.nan)
        shown = np.where(np.abs(exact.at - 1) < 0.04, np.nan, shown)
        for side in (exact.at < 1, exact.at > 1):
            ax.plot(exact.at[side], shown[side], color=COLOURS[k])
        ax.errorbar(seen.at, seen.sd, seen.error, fmt=MARKS[k], color=COLOURS[k], **MARKERS)
    ax.axvline(2, color=GREY, lw=0.6, ls=":")
    ax.annotate("Var $k_3$ is infinite\nfrom $v=2$ on", (2.08, 17), color=GREY, fontsize=8)
    ax.annotate("$k_3$", (1.93, 22), color=COLOURS["k3"], fontsize=8, ha="right")
    ax.set(yscale="log", ylim=(0.9, top), xlabel=EQUAL_MEANS, ylabel="standard deviation / KL")
    ax.set_title("(b) From $v=2$ on, the spread of $k_3$ is infinite", loc="left")
    ends = [(data.width[k].sd[-1], NAMES[k], COLOURS[k]) for k in ("k1", "k2")]
    label_ends(ax, ends, float(data.width["k1"].at[-1]))
