"""The pictures of KL penalties in the reward: branches, flows on the simplex, collapse; other set-ups."""

from __future__ import annotations

from typing import Any

import numpy as np

from klsym.experiments.reward_collapse.experiment import CRITERIA, RewardCollapse
from klsym.experiments.reward_collapse.theory import branch
from klsym.experiments.softmax import PENALTIES, penalty
from klsym.study.figures import cells, style
from klsym.study.figures.style import CORNERS, NAMES

LEVEL = 1.0  # (R - nu)/beta at which the branches are marked
SMALLEST = 1e-4  # KL below which curves are cut off


def draw(data: RewardCollapse) -> Any:
    """Branches, the flow without reward, KL and lost arms over time, stationary points.

    Returns a matplotlib Figure.
    """
    with style.open_panels(style.PAGE, 4.5, 2, 3) as (figure, axes):
        _branches(axes[0, 0])
        for ax, letter, name in zip(axes[0, 1:], "bc", ("k1", "k3"), strict=True):
            _simplex(ax, data, letter, name)
        _distance(axes[1, 0], data)
        _lost(axes[1, 1], data)
        _points(axes[1, 2], data)
    return figure


def draw_settings(data: RewardCollapse) -> Any:
    """Per cent of the runs that meet each criterion at the horizon, in every set-up.

    Returns a matplotlib Figure.
    """
    with style.open_panels(style.PAGE, 3.7) as (figure, ax):
        _matrix(ax, data)
    return figure


def _branches(ax: Any) -> None:
    x = np.linspace(-2.2, 3, 400)
    for name in PENALTIES:
        up = x >= 0 if name != "k1" else np.full(x.shape, True)
        y = penalty(name, x)
        ax.plot(x[up], y[up], color=style.COLOURS[name])
        ax.plot(x[~up], y[~up], color=style.COLOURS[name], ls=(0, (3, 1.5)))
        places = [LEVEL] if name == "k1" else [float(branch(name, LEVEL, side)) for side in (1, -1)]
        for k1, face in zip(places, (style.COLOURS[name], "white"), strict=False):
            ax.plot(k1, LEVEL, "o", color=style.COLOURS[name], mfc=face, ms=4.5, zorder=3)
    ax.axhline(LEVEL, color=style.GREY, lw=0.6, zorder=0)
    ax.text(-0.15, LEVEL + 0.06, r"$(R-\nu)/\beta$", color=style.GREY, fontsize=8, ha="center", va="bottom")
    for name, k1, value in (("k1", 2.8, 2.35), ("k2", 1.75, 2.4), ("k3", 2.8, 1.35)):
        ax.text(k1, value, NAMES[name], color=style.COLOURS[name], ha="center", fontsize=9)
    ax.set(xlim=(-2.2, 3), ylim=(-1, 3), xlabel=r"$k_1=\log\,q/p$", ylabel="penalty")
    ax.text(-2.1, -0.9, "below $p$:\npushed\naway", fontsize=8, color=style.GREY)
    ax.text(1.0, -0.8, "above $p$:\npushed back", fontsize=8, color=style.GREY)
    ax.set_title("(a) branches", loc="left")


def _simplex(ax: Any, data: RewardCollapse, letter: str, name: str) -> None:
    style.draw_simplex(ax, style.BLACK)
    for path in np.moveaxis(data.portrait.q[PENALTIES.index(name)], 2, 0):
        x, y = (path @ CORNERS).T
        ax.plot(x, y, color=style.COLOURS[name], lw=0.7, alpha=0.8)
        ax.plot(x[0], y[0], ".", color=style.GREY, ms=2.5)
        ax.plot(x[-1], y[-1], "o", color=style.COLOURS[name], ms=3.5, zorder=3)
        _arrow(ax, x, y, style.COLOURS[name])
    ax.plot(*(data.portrait.p @ CORNERS), "+", color=style.BLACK, ms=9, mew=1.4, zorder=4)
    for corner, share in zip(CORNERS, data.portrait.p, strict=True):
        high = corner[1] > 0
        at = (corner[0], corner[1] + (0.03 if high else -0.03))
        ax.text(*at, f"$p={share:g}$", ha="center", va="bottom" if high else "top", fontsize=8)
    ax.set(xlim=(-0.1, 1.1), ylim=(-0.14, 1.0))
    ax.set_title(f"({letter}) {NAMES[name]} in the reward, $R=0$", loc="left")


def _arrow(ax: Any, x: Any, y: Any, colour: str) -> None:
    """An arrow head at half the length of the path."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    if along[-1] < 0.08:
        return
    a, b = (np.array([np.interp(f * along[-1], along, z) for z in (x, y)]) for f in (0.48, 0.52))
    ax.annotate("", b, a, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 0, "mutation_scale": 6})


def _distance(ax: Any, data: RewardCollapse) -> None:
    for name, runs in zip(PENALTIES, data.exact.kl, strict=True):
        low, middle, high = (
            np.maximum(np.quantile(runs, f, axis=1), SMALLEST / 10) for f in (0.25, 0.5, 0.75)
        )
        ax.plot(data.exact.times, middle, color=style.COLOURS[name])
        ax.fill_between(data.exact.times, low, high, color=style.COLOURS[name], alpha=0.2, linewidth=0)
    for name, runs in zip(PENALTIES, data.sampled.kl, strict=True):
        middle = np.maximum(np.median(runs, axis=1), SMALLEST / 10)
        ax.plot(data.sampled.times, middle, color=style.COLOURS[name], ls=(0, (3, 1.5)), lw=1)
    ax.set(
        yscale="log", ylim=(SMALLEST, 5), xlim=(0, data.exact.times[-1]),
        xlabel=r"time $\times\,\beta$ (dashed: sampled)", ylabel=r"KL$(q\,\Vert\,q^\star)$, nats",
    )  # fmt: skip
    ax.text(150, 1.9, NAMES["k3"], color=style.COLOURS["k3"])
    ax.text(150, 0.18, NAMES["k2"], color=style.COLOURS["k2"])
    ax.text(150, 2.5e-3, NAMES["k1"], color=style.COLOURS["k1"])
    ax.set_title("(d) distance from the optimum", loc="left")


def _lost(ax: Any, data: RewardCollapse) -> None:
    for paths, line in ((data.exact, "-"), (data.sampled, (0, (3, 1.5)))):
        for name, runs in zip(PENALTIES, paths.lost, strict=True):
            ax.plot(paths.times, 100 * runs.mean(axis=1), color=style.COLOURS[name], ls=line, clip_on=False)
    ax.set(
        xlim=(0, data.exact.times[-1]), ylim=(0, 100),
        xlabel=r"time $\times\,\beta$ (dashed: sampled)", ylabel="runs that lost an arm, %",
    )  # fmt: skip
    ax.text(120, 88, NAMES["k3"], color=style.COLOURS["k3"])
    ax.text(120, 4, "$k_1$ and $k_2$", color=style.GREY)
    ax.set_title("(e) collapse", loc="left")


def _points(ax: Any, data: RewardCollapse) -> None:
    ax.axhline(0, color=style.GREY, lw=0.6)
    ax.axvline(0.5, color=style.GREY, lw=0.6, ls=(0, (2, 2)))
    for points in data.points:
        ax.plot(points.largest, points.rate, ".", color=style.COLOURS[points.name], ms=2.5, alpha=0.7, mew=0)
    ax.set_yscale("symlog", linthresh=1e-3, linscale=0.6)
    ax.set_ylim(-1, 3)
    ax.set_yticks([-0.1, -1e-3, 0, 1e-3, 0.1], ["$-10^{-1}$", "$-10^{-3}$", "0", "$10^{-3}$", "$10^{-1}$"])
    ax.set(xlim=(0.33, 1), xlabel="largest arm of the reference, $p_x$", ylabel=r"growth rate $/\,\beta$")
    ax.text(0.345, -0.02, "none\nstable", color=style.GREY, fontsize=8, va="center")
    ax.text(0.98, -0.3, "stable", color=style.GREY, fontsize=8, va="center", ha="right")
    ax.set_title("(f) stationary points, $k_2$ and $k_3$", loc="left")


def _matrix(ax: Any, data: RewardCollapse) -> None:
    """One column a set-up, one row a criterion and penalty; percentages of runs at the horizon."""
    split, size = sum(paths.setup.step is None for paths in data.rows), len(PENALTIES)
    columns = cells.place_groups(len(data.rows), [split, len(data.rows) - split])
    rows = cells.place_groups(size * len(CRITERIA), [size] * len(CRITERIA))
    for x, paths in zip(columns, data.rows, strict=True):
        for y, share in zip(rows, paths.shares().ravel(), strict=True):
            cells.draw_cell(ax, x, y, f"{100 * share:.0f}", _shade(float(share)))
    names = [paths.setup.name for paths in data.rows]
    cells.draw_frame(ax, columns, names, rows, [NAMES[name] for name in PENALTIES] * len(CRITERIA))
    for label, name in zip(ax.get_yticklabels(), list(PENALTIES) * len(CRITERIA), strict=True):
        label.set_color(style.COLOURS[name])
    for middle, text in zip(rows[1::size], CRITERIA, strict=True):
        cells.label_rows(ax, middle, text.replace("q*", r"$q^\star$"))
    for part, text in ((columns[:split], "exact update"), (columns[split:], "sampled updates")):
        cells.label_columns(ax, (part[0] + part[-1]) / 2, text)
    ax.set_title("Per cent of the runs at the horizon, one change at a time", loc="left", pad=20)


def _shade(share: float) -> tuple[float, ...]:
    """From light grey to orange."""
    from matplotlib.colors import to_rgb

    return tuple(share * c + (1 - share) * 0.94 for c in to_rgb(style.ORANGE))
