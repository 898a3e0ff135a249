"""The picture of learning from old samples: what a penalty saves, and where a strong one fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from klsym.experiments.off_policy_runs.experiment import AGES, BETAS, FALL, STEPS, OffPolicyRuns
from klsym.study.figures import style

SHOWN = BETAS[:3]
SHADES = dict(zip(SHOWN, (style.GREY, style.COLOURS["k3"], style.COLOURS["k1"]), strict=True))


def draw(data: OffPolicyRuns) -> Any:
    """Left: the shortfall of the reward against the age of the sampler.  Right: the runs that have fallen.

    Returns a matplotlib Figure.
    """
    with style.open_panels(style.PAGE, 2.9, 1, 2) as (figure, (shortfall, fallen)):
        _draw_shortfall(shortfall, data)
        _draw_fallen(fallen, data)
    return figure


def _draw_shortfall(ax: Any, data: OffPolicyRuns) -> None:
    for beta in SHOWN:
        heights = [data.find_regret(False, age, beta).mean() for age in AGES]
        ax.plot(AGES, heights, "o-", color=SHADES[beta], ms=3.5, label=rf"$\beta$ = {beta:g}")
    ax.set(xscale="log", xticks=AGES, xticklabels=AGES, ylim=(0, None))
    ax.set(xlabel="updates between two samplers", ylabel="best reward $-\\ \\mathbb{E}_q[R]$")
    ax.legend(frameon=False, loc="upper left")
    ax.set_title(f"without weights, a penalty helps (step {STEPS[0]:g})", loc="left")


def _draw_fallen(ax: Any, data: OffPolicyRuns) -> None:
    places = np.arange(len(BETAS))
    for side, (weighted, name) in enumerate(((False, "no weights"), (True, r"weights $q/\mu$"))):
        shares = [100 * data.find_fallen(weighted, AGES[-1], beta) for beta in BETAS]
        colour = style.COLOURS["k1" if weighted else "k3"]
        ax.bar(places + 0.4 * side - 0.2, shares, 0.36, color=colour, label=name)
    ax.set(xticks=places, xticklabels=[f"{beta:g}" for beta in BETAS], xlabel=r"$\beta$")
    ax.set(ylabel=f"% of runs that lost over {FALL:.0%}")
    ax.legend(frameon=False, loc="upper center")
    ax.set_title(f"with weights, a strong penalty fails (step {STEPS[-1]:g})", loc="left")
