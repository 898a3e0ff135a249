"""The pictures of the distillation experiment: descents, steps, bias and noise, reward; other set-ups."""

from __future__ import annotations

from typing import Any

import numpy as np

from klsym.experiments.distillation.experiment import CLAIMS, Figure8, Runs
from klsym.experiments.distillation.models import ESTIMATORS
from klsym.experiments.distillation.reward import LOSSES
from klsym.experiments.distillation.runs import FIELDS
from klsym.study.figures import cells, style

COLOURS = style.COLOURS | {
    "exact gradient": style.COLOURS["analytic"],
    "expected token vanilla": style.COLOURS["token vanilla"],
    "expected token k3": style.COLOURS["token k3"],
}
NAMES = style.NAMES | {"exact gradient": "analytic"}
TITLES = ("reference out of reach", "reference within reach")
DOTTED = {"expected token vanilla", "expected token k3"}
SHADES = {1: "#78C4ED", -1: "#DE7F33", 0: "#EFEFEF"}  # sky and vermilion, lighter
LINES = (*ESTIMATORS, "exact gradient")


def draw(data: Figure8) -> Any:
    """Descents at each best step, the final KL against the step, bias and noise, reward.

    Returns a matplotlib Figure.
    """
    with style.open_panels(style.PAGE, 4.6, 2, 3, width_ratios=(1.12, 1.12, 1)) as (figure, axes):
        for j, runs in enumerate(data.base):
            _descents(axes[0, j], data, runs)
            _steps(axes[1, j], runs)
            axes[0, j].set_title(f"({'ab'[j]}) {TITLES[j]}", loc="left")
            axes[1, j].set_title(f"({'de'[j]}) {TITLES[j]}", loc="left")
        _share_axes(axes)
        for ax, runs in zip(axes[0, :2], data.base, strict=True):
            _labels(ax, runs)
        _bias_and_noise(axes[0, 2], data)
        _reward(axes[1, 2], data)
    return figure


def draw_settings(data: Figure8) -> Any:
    """Ratios of final KLs in every set-up, at a common step and at each best step.

    Returns a matplotlib Figure.
    """
    with style.open_panels(style.PAGE, 3.6) as (figure, ax):
        _matrix(ax, data)
    return figure


def _share_axes(axes: Any) -> None:
    """The two columns of the base set-ups have the same heights."""
    for pair, top in zip(axes[:, :2], (1.1, 1.7), strict=True):
        low = min(ax.get_ylim()[0] for ax in pair)
        for ax in pair:
            ax.set_ylim(low, top)
    for ax in axes[:, 1]:
        ax.set_ylabel("")


def _share(runs: Runs, name: str, step: int) -> tuple[Any, Any]:
    """Mean KL over the start's mean, and its standard error, over the records."""
    kl = runs.kl[FIELDS.index(name), :, step]
    start = kl[0].mean()
    return kl.mean(axis=-1) / start, kl.std(axis=-1, ddof=1) / np.sqrt(kl.shape[-1]) / start


def _descents(ax: Any, data: Figure8, runs: Runs) -> None:
    for name in LINES:
        mean, error = _share(runs, name, runs.best[FIELDS.index(name)])
        style.draw_band(
            ax, data.iterations, mean, error, COLOURS[name], lw=1.6 if name == "exact gradient" else 1.2
        )
    ax.set(
        yscale="log", xlim=(0, data.iterations[-1]), xlabel="iteration, each at its best step",
        ylabel="sequence KL / at the start",
    )  # fmt: skip


def _labels(ax: Any, runs: Runs) -> None:
    ends = [(runs.lowest(name), NAMES.get(name, name), COLOURS[name]) for name in LINES]
    style.label_ends(ax, ends, float(ax.get_xlim()[1]), gap=0.09)


def _steps(ax: Any, runs: Runs) -> None:
    for name in FIELDS:
        i = FIELDS.index(name)
        at = range(len(runs.steps))
        mean, error = (
            np.array(x) for x in zip(*((v[-1] for v in _share(runs, name, j)) for j in at), strict=True)
        )
        if name in DOTTED:
            ax.plot(runs.steps, mean, color=COLOURS[name], ls=(0, (3, 1.5)), lw=1)
            continue
        style.draw_band(ax, runs.steps, mean, error, COLOURS[name], lw=1.2)
        ax.plot(
            runs.steps[runs.best[i]], mean[runs.best[i]], "o", color=COLOURS[name], ms=4, mec="white", mew=0.5
        )
    ax.set(
        xscale="log", yscale="log", xlabel="step size (dashed: token, $n=\\infty$)",
        ylabel="KL at the end / at the start",
    )  # fmt: skip


def _bias_and_noise(ax: Any, data: Figure8) -> None:
    for j, (noise, filled) in enumerate(zip(data.noise, (True, False), strict=True)):
        for name, (ratio, cosine) in noise.items():
            face = COLOURS[name] if filled else "white"
            ax.plot(cosine, ratio, "os"[j], ms=5, color=COLOURS[name], mfc=face, mew=1.1)
    ax.set(yscale="log", xlim=(0.45, 1.06), xlabel="cos(mean, gradient)", ylabel="noise / signal")
    ax.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    ax.set_yticks([], minor=True)
    ax.set_ylim(1, 14)
    ax.set_title("(c) bias and noise", loc="left")
    for name, (ratio, cosine) in data.noise[0].items():
        at, side = (
            ((-7, 0), "right") if cosine > 0.9 else ((7, 0) if name == "token k3" else (-6, -10), "left")
        )
        ax.annotate(
            NAMES.get(name, name), (cosine, ratio), at, textcoords="offset points", fontsize=8,
            color=COLOURS[name], ha=side, va="center",
        )  # fmt: skip
    ax.plot([], [], "o", color=style.GREY, ms=5, label="out of reach")
    ax.plot([], [], "s", color=style.GREY, mfc="white", ms=5, label="within reach")
    ax.legend(loc="upper left", handletextpad=0.1, borderaxespad=0)


def _reward(ax: Any, data: Figure8) -> None:
    low = data.low
    ax.plot(*low.frontier, color=style.GREY, lw=0.8)
    near = int(np.abs(low.frontier[1] - 0.9).argmin())
    ax.annotate(
        "optimum", (low.frontier[0][near], low.frontier[1][near]), (0.03, 0.97), color=style.GREY, fontsize=8,
        ha="center", va="center", arrowprops={"arrowstyle": "-", "color": style.GREY, "lw": 0.4},
    )  # fmt: skip
    styles = ((0, (5, 1.2, 1, 1.2)), "-", (0, (4, 1.2)), (0, (1.2, 1)))
    for i, loss in enumerate(LOSSES):
        for j in range(len(low.betas)):
            kl, reward = low.kl[i, j].mean(axis=-1), low.reward[i, j].mean(axis=-1)
            ax.plot(kl, reward, color=COLOURS[loss], ls=styles[j], lw=1.2)
            ax.plot(kl[-1], reward[-1], "o", color=COLOURS[loss], ms=3)
    ax.set(xscale="log", xlim=(1e-5, 8), ylim=(0.05, 1), xlabel="sequence KL, nats", ylabel="expected reward")
    ax.set_title("(f) reward against KL", loc="left")
    words = ("dash-dotted", "full", "dashed", "dotted")
    for y, beta, word in zip((0.56, 0.48, 0.4, 0.32), low.betas, words, strict=True):
        ax.text(1.6e-5, y, f"$\\beta={beta:g}$ {word}", fontsize=8, color=style.GREY)
    for loss, y in zip(LOSSES, (0.86, 0.77, 0.68), strict=True):
        ax.text(1.6e-5, y, NAMES.get(loss, loss), color=COLOURS[loss], fontsize=8)


def _matrix(ax: Any, data: Figure8) -> None:
    """One column a set-up, one row a claim: ratios of final KLs, coloured by whether they are clear."""
    split = sum(not runs.setup.within_reach for runs in data.rows)
    columns = cells.place_groups(len(data.rows), [split, len(data.rows) - split])
    rows = cells.place_groups(2 * len(CLAIMS), [len(CLAIMS)] * 2)
    for x, runs in zip(columns, data.rows, strict=True):
        found = [*runs.comparisons(own=False), *runs.comparisons(own=True)]
        for y, one in zip(rows, found, strict=True):
            cells.draw_cell(ax, x, y, _ratio(one.log_ratio), SHADES[one.verdict])
    labels = [f"{NAMES.get(a, a)} < {NAMES.get(b, b)}" for a, b in CLAIMS]
    cells.draw_frame(ax, columns, [runs.setup.name for runs in data.rows], rows, labels * 2)
    for part, text in ((rows[: len(CLAIMS)], "common step"), (rows[len(CLAIMS) :], "best steps")):
        cells.label_rows(ax, (part[0] + part[-1]) / 2, text)
    for part, text in zip((columns[:split], columns[split:]), TITLES, strict=True):
        cells.label_columns(ax, (part[0] + part[-1]) / 2, text)
    words = "blue: the paper's order, red: the reverse, grey: within 3 standard errors"
    ax.set_title(f"Ratios of final KLs ({words})", loc="left", pad=20)


def _ratio(log_ratio: float) -> str:
    """Two digits, the leading zero left out.

    >>> [_ratio(np.log(x)) for x in (0.456, 1.01, 12.3)]
    ['.46', '1.0', '12']
    """
    value = float(np.exp(log_ratio))
    return f"{value:.2f}".lstrip("0") if value < 0.995 else f"{value:#.2g}".rstrip(".")
