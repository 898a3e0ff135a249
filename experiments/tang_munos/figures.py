"""The six tabular figures of Tang & Munos 2025, from the data of `klsym.experiments.tang_munos`.

Every estimate keeps its colour, line style and marker in all figures, so that they can be told apart without
colour.  Bands and bars are one standard error over repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from klsym.experiments.softmax import Array
from klsym.experiments.summaries import error, mean
from klsym.experiments.tang_munos.bandit_runs import Times
from klsym.experiments.tang_munos.bandits import GRADIENTS, VALUES
from klsym.experiments.tang_munos.descents import FORWARD, K3_LOSS, REVERSE, VANILLA, Figure3, Figure4
from klsym.experiments.tang_munos.errors import Figure1, Figure2
from klsym.experiments.tang_munos.limits import Figure5, Figure6
from klsym.study.figures.style import (
    BLACK,
    COLOURS,
    COLUMN,
    GREY,
    PAGE,
    SKY,
    apply_style,
    draw_band,
    label_ends,
    name,
    open_panels,
)

DASHED, DOTTED, MIXED = (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2))
LOOK = {  # colour, line style, marker
    "k1": (COLOURS["k1"], "-", "o"),
    "k2": (COLOURS["k2"], DASHED, "s"),
    "k3": (COLOURS["k3"], MIXED, "^"),
    "k1 loss": (COLOURS["k1 loss"], DOTTED, "o"),
    "k3 loss": (COLOURS["k3 loss"], MIXED, "^"),
    "vanilla": (COLOURS["vanilla"], "-", "s"),
    "leave-one-out": (COLOURS["leave-one-out"], DASHED, "D"),
    "reversed": (SKY, "-", "o"),
}
THEORY = {"color": BLACK, "linewidth": 0.7, "linestyle": (0, (2, 2)), "zorder": 1}
ANALYTIC = {"color": BLACK, "linewidth": 0.8, "zorder": 3}
MEAN_K3 = {"color": GREY, "linewidth": 0.8, "zorder": 1}


def draw1(data: Figure1) -> Any:
    """Figure 1: MSE of the value estimates against n; lines exact, markers simulated."""
    with open_panels(COLUMN, 2.7) as (figure, ax):
        _errors(ax, data.ns, VALUES, data.squared, mean(data.exact))
        ax.set(ylabel="MSE of the KL estimate (nats$^2$)")
        return figure


def draw2(data: Figure2) -> Any:
    """Figure 2: root-MSE of the gradient estimates against n; lines exact, markers simulated."""
    with open_panels(COLUMN, 2.9) as (figure, ax):
        _errors(ax, data.ns, GRADIENTS, data.norms, mean(data.exact))
        ax.set(ylabel="root-MSE of the gradient estimate")
        return figure


def draw3(data: Figure3) -> Any:
    """Figure 3: mean KL(q||p) over iterations, a panel for each n; of the k3 loss the median and strays."""
    figure = _courses(data.times, data.ns, data.divergence, data.exact, r"KL$(q\,\Vert\,p)$ (nats)")
    medians = np.median(data.divergence[:, K3_LOSS], axis=-1)
    for ax, runs, stray in zip(figure.axes, data.divergence[:, K3_LOSS], data.strays, strict=True):
        strays = {"color": COLOURS["k3 loss"], "linewidth": 0.3, "alpha": 0.5, "zorder": 0}
        ax.plot(data.times, runs[:, stray], **strays)
        with apply_style():
            _note(ax, f"{stray.sum()} of {stray.size} runs of the $k_3$ loss stray", 0.32)
    for ax, median in zip(figure.axes, medians, strict=True):
        ax.plot(data.times, median, color=COLOURS["k3 loss"], linewidth=0.8, linestyle=DASHED, zorder=1)
    figure.axes[0].texts[0].set_text(
        "bands: one standard error\nthin dashes: median of the $k_3$ loss\nhair lines: its stray runs"
    )
    return figure


def draw4(data: Figure4) -> Any:
    """Figure 4: KL(q||pi*) over KL(p||pi*) over iterations, one panel for each n."""
    label = r"KL$(q\,\Vert\,\pi^\star)$ / KL$(p\,\Vert\,\pi^\star)$"
    return _courses(data.times, data.ns, data.normalised, data.exact, label)


def draw5(data: Figure5) -> Any:
    """Figure 5: converged KL(q||pi*) against n; thin lines: linear-noise theory, exact limits."""
    with open_panels(COLUMN, 2.9) as (figure, ax):
        _level(ax, float(mean(data.limit)), r"KL$(\pi^\star_{\rm rev}\,\Vert\,\pi^\star)$")
        _level(ax, float(mean(data.analytic)), "analytic gradient")
        _theory(ax, data.ns, data.theory)
        for i, estimate in enumerate(GRADIENTS):
            _points(ax, data.ns, data.ends[i], estimate)
        _sizes(ax, data.ns)
        ax.set(ylabel=r"converged KL$(q\,\Vert\,\pi^\star)$ (nats)", yscale="log")
        _roomy(ax, mean(data.ends), float(mean(data.analytic)))
        last = mean(data.ends[:, -1])
        ends = [(float(x), name(n), LOOK[n][0]) for n, x in zip(GRADIENTS, last, strict=True)]
        label_ends(ax, ends, ax.get_xlim()[1])
        return figure


def draw6(data: Figure6) -> Any:
    """Figure 6: converged KL of the k3 loss from pi* and from pi*_rev against n.

    Thin lines: KL(pi*_rev||pi*), and the linear-noise value of KL(q||pi*_rev).
    """
    with open_panels(COLUMN, 2.7) as (figure, ax):
        _level(ax, float(mean(data.limit)), r"KL$(\pi^\star_{\rm rev}\,\Vert\,\pi^\star)$")
        _theory(ax, data.ns, data.theory)
        _points(ax, data.ns, data.to_optimum, "k3 loss")
        _points(ax, data.ns, data.to_reversed, "reversed")
        medians = np.median(data.to_reversed, axis=-1)
        ax.plot(data.ns, medians, linestyle="none", marker="_", markersize=9, color=LOOK["reversed"][0])
        _note(ax, "short bars: medians")
        _sizes(ax, data.ns)
        ax.set(ylabel="converged KL of the $k_3$ loss (nats)", yscale="log")
        _roomy(ax, mean(data.to_optimum), mean(data.theory))
        pairs = (
            ("k3 loss", r"to $\pi^\star$", data.to_optimum),
            ("reversed", r"to $\pi^\star_{\rm rev}$", data.to_reversed),
        )
        ends = [(float(mean(x[-1])), text, LOOK[key][0]) for key, text, x in pairs]
        label_ends(ax, ends, ax.get_xlim()[1])
        return figure


# ---------------------------------------------------------------------------- parts
def _errors(ax: Any, ns: Sequence[int], names: Sequence[str], sampled: Array, exact: Array) -> None:
    """Exact lines, with simulated means and their standard errors as markers."""
    for i, estimate in enumerate(names):
        colour, style, marker = LOOK[estimate]
        ax.plot(ns, exact[i], color=colour, linestyle=style)
        look = {"color": colour, "fmt": marker, "markerfacecolor": "white"}
        ax.errorbar(ns, mean(sampled[i]), _bars(sampled[i]), elinewidth=0.7, **look)
    _sizes(ax, ns)
    ax.set(yscale="log")
    _note(ax, f"lines: exact\nmarkers: {sampled.shape[-1]} simulations")
    ends = [(float(exact[i, -1]), name(n), LOOK[n][0]) for i, n in enumerate(names)]
    label_ends(ax, ends, ax.get_xlim()[1])


def _courses(times: Times, ns: Sequence[int], sampled: Array, exact: Array, ylabel: str) -> Any:
    """One panel for each n, on log axes, with bands; the exact descents are thin lines."""
    shape = {"columns": len(ns), "sharex": True, "sharey": True, "squeeze": False}
    with open_panels(PAGE, 2.7, **shape) as (figure, (row,)):
        seen = times > 0  # a log axis has no zero
        for j, (ax, n) in enumerate(zip(row, ns, strict=True)):
            for i, estimate in enumerate(GRADIENTS):
                colour, style, marker = LOOK[estimate]
                every = _evenly(times[seen], 6, 0.4 * i)
                draw_band(
                    ax, times[seen], mean(sampled[j, i])[seen], error(sampled[j, i])[seen], colour,
                    linestyle=style, marker=marker, markevery=every, markerfacecolor="white",
                )  # fmt: skip
            ax.plot(times[seen], mean(exact[REVERSE])[seen], **ANALYTIC)
            ax.plot(times[seen], mean(exact[FORWARD])[seen], **MEAN_K3)
            ax.set(xscale="log", yscale="log", xlabel="iteration", xlim=(1, times[-1]))
            ax.set_title(f"({'abc'[j]}) $n = {n}$", loc="left")
        row[0].set(ylabel=ylabel)
        _note(row[0], "bands: one standard error")
        low = min(mean(sampled[:, VANILLA:]).min(), mean(exact[1:]).min())
        row[0].set_ylim(low / 1.5, 1.5 * mean(sampled).max())
        ends = [(float(mean(sampled[-1, i, -1])), name(n), LOOK[n][0]) for i, n in enumerate(GRADIENTS)]
        ends.append((float(mean(exact[REVERSE, -1])), "analytic", BLACK))
        ends.append((float(mean(exact[FORWARD, -1])), "exact $k_3$ loss", GREY))
        label_ends(row[-1], ends, times[-1], gap=0.085)
        return figure


def _evenly(times: Any, count: int, offset: float) -> list[int]:
    """Indices of about `count` times, evenly spaced in log t; `offset` shifts them by a part of a space."""
    wanted = np.linspace(0, np.log(times[-1]), count + 1)[:-1] + (offset % 1) * np.log(times[-1]) / count
    return sorted({int(np.abs(np.log(times) - x).argmin()) for x in wanted})


def _note(ax: Any, text: str, height: float = 0.04) -> None:
    ax.text(0.04, height, text, transform=ax.transAxes, fontsize=8, va="bottom")


def _points(ax: Any, ns: Sequence[int], values: Array, estimate: str) -> None:
    """Means over bandits with standard errors, joined."""
    colour, style, marker = LOOK[estimate]
    look = {"color": colour, "linestyle": style, "marker": marker, "markerfacecolor": "white"}
    ax.errorbar(ns, mean(values), _bars(values), elinewidth=0.7, **look)


def _bars(values: Array) -> list[Array]:
    """One standard error down and up; on a log axis a bar must end above zero."""
    bar = error(values)
    return [np.minimum(bar, 0.9 * mean(values)), bar]


def _level(ax: Any, height: float, text: str) -> None:
    """A thin horizontal line with its name under it, between the first marker and the middle."""
    ax.axhline(height, **THEORY)
    ax.annotate(
        text, (0.27, height), (0, -4), xycoords=("axes fraction", "data"), textcoords="offset points",
        fontsize=8, va="top", ha="center", color=THEORY["color"],
    )  # fmt: skip


def _theory(ax: Any, ns: Sequence[int], values: Array) -> None:
    """The linear-noise values, with their name above the first segment."""
    heights = mean(values)
    ax.plot(ns, heights, **THEORY)
    middle = (np.sqrt(ns[0] * ns[min(1, len(ns) - 1)]), np.sqrt(heights[0] * heights[min(1, len(ns) - 1)]))
    ax.annotate(
        "linear noise", middle, (10, 4), textcoords="offset points",
        fontsize=8, va="bottom", ha="left", color=THEORY["color"],
    )  # fmt: skip


def _sizes(ax: Any, ns: Sequence[int]) -> None:
    """A log axis of sample sizes, with the sizes themselves as ticks where they fit."""
    ax.set_xscale("log", base=2)
    few = ns if len(ns) <= 6 else ns[:: -(-len(ns) // 6)]
    ax.set_xticks(few, [str(n) for n in few])
    ax.set_xlabel("samples $n$")
    pad = 2**0.3
    ax.set_xlim(ns[0] / pad, ns[-1] * pad)


def _roomy(ax: Any, *heights: Any) -> None:
    """Limits of a log axis around some values, with room for a name under the lowest."""
    values = np.concatenate([np.ravel(h) for h in heights])
    ax.set_ylim(values.min() / 3, values.max() * 2)


DRAW: dict[int, Callable[[Any], Any]] = {1: draw1, 2: draw2, 3: draw3, 4: draw4, 5: draw5, 6: draw6}
