"""KL in the reward: the number that is logged, and the push that is followed, of k1, k2 and k3.

Both are left sides of theorems, evaluated exactly: between Gaussians in closed form, and on two outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.engine.proof.derivation import Proof
from klsym.experiments.pictures.models import along_odds, left
from klsym.experiments.pictures.onpolicy import ends
from klsym.study.figures.style import COLOURS, GREY, PAGE, label_ends, open_panels
from klsym.study.gaussian.exact import DIRECTIONS, GaussianModel

LINES: dict[str, Any] = {"k1": "-", "k2": "-", "k3": (0, (4, 1.5))}


@dataclass(frozen=True)
class Penalty:
    """Two theorems on one estimator a, of which the left sides are used: its mean, and its push as a reward.

    value: on E_q[a].  push: on E_q[s sg(a)].
    """

    value: Proof
    push: Proof


def between_gaussians(penalty: Penalty, shift: float) -> tuple[float, dict[str, float]]:
    """The mean, and the push along each parameter of q, for q = N(shift, 1) and p = N(0, 1)."""
    model = GaussianModel((float(shift), 1.0), (0.0, 1.0))
    value, push = (model.evaluate(left(proof))[0] for proof in (penalty.value, penalty.push))
    return float(value[0]), {name: float(x) for name, x in zip(DIRECTIONS, push, strict=True)}


def back(penalty: Penalty, p: Sequence[float], ts: Any) -> Any:
    """How hard descent along the push pulls q back to p along `models.tilted`; below 0 it drives q away.

    sign(t) u.E_q[s sg(a)], u the direction of the path, for each t of it.  Returns shape (ts,).
    """
    return np.sign(ts) * along_odds(left(penalty.push), p, ts)


def draw(penalties: Mapping[str, Penalty], shifts: Any, p: Sequence[float], ts: Any) -> Any:
    """Means and pushes between two Gaussians, and the pull back to p on two outcomes; three panels.

    penalties: "k1", "k2", "k3".  shifts: of the mean.  p, ts: see `models.tilted`.
    """
    gaussian = {name: [between_gaussians(penalty, d) for d in shifts] for name, penalty in penalties.items()}
    values = {name: np.array([value for value, _ in row]) for name, row in gaussian.items()}
    pushes = {name: np.array([push["mean"] for _, push in row]) for name, row in gaussian.items()}
    pulls = {name: back(penalty, p, ts) for name, penalty in penalties.items()}
    with open_panels(PAGE, 2.5, 1, 3) as (figure, axes):
        shift = r"$d$, with $q=\mathcal{N}(d,1)$, $p=\mathcal{N}(0,1)$"
        _panel(axes[0], shifts, values, "(a) $k_1$ and $k_3$ log one number")
        axes[0].set(xlabel=shift, ylabel=r"$\mathbb{E}_q[k_i]$, nats")
        _panel(axes[1], shifts, pushes, "(b) $k_3$ does not move the mean")
        axes[1].set(xlabel=shift, ylabel=r"$\mathbb{E}_q[s\,\mathrm{sg}(k_i)]$ along the mean")
        _panel(axes[2], ts, pulls, "(c) Only $k_1$ always pulls back")
        _sides(axes[2], p)
    return figure


def _sides(ax: Any, p: Sequence[float]) -> None:
    """Names the two sides of the path, and shades where the push has the wrong sign."""
    reference = ", ".join(f"{value:g}" for value in p)
    ax.set(xlabel=f"log odds against $p=({reference})$", ylabel="force towards $p$")
    low = ax.get_ylim()[0]
    ax.axhspan(low, 0, color=GREY, alpha=0.1, lw=0)
    ax.set_ylim(bottom=low)
    ax.axvline(0, color=GREY, lw=0.6, ls=":")
    ax.annotate("driven away", (0.03, 0.03), xycoords="axes fraction", color=GREY, fontsize=8)


def _panel(ax: Any, x: Any, curves: dict[str, Any], title: str) -> None:
    """One curve an estimator; those that end together share a label."""
    for name, curve in curves.items():
        ax.plot(x, curve, color=COLOURS[name], ls=LINES[name])
    ax.axhline(0, color=GREY, lw=0.6, zorder=0)
    ax.set_xlim(x[0], x[-1])
    ax.set_title(title, loc="left")
    label_ends(ax, ends(curves), float(x[-1]))
