"""What clips, masks and cut samplers leave of a sample's gradient, as a picture over the ratio."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np

from klsym.language.parser import parse
from klsym.study.figures.style import BLACK, GREY, ORANGE, PAGE, PURPLE, SKY, open_panels
from klsym.worlds.losses import evaluate_at_sample

LOSSES = {  # what multiplies the advantage, as a loss
    "weight alone": "-rho*A",
    "PPO clip": "-min(rho*A, clip(rho, 0.8, 1.2)*A)",
    "cut weight": "-sg(min(rho, 1.5))*A*log_q",
    "mask": "-sg(where(0.5 < rho and rho < 2, rho, 0))*A*log_q",
}
STYLES = {"weight alone": (GREY, "-", 3), "PPO clip": (SKY, "-", 1.5), "cut weight": (PURPLE, "--", 1.5),
          "mask": (BLACK, ":", 2)}  # fmt: skip
CLIPPED = {
    True: "(a) $A>0$: the clip drops large ratios",
    False: "(b) $A<0$: the clip drops small ones",
}
RATIOS = np.geomspace(0.25, 4, 400)


def left_of(loss: str, ratio: float, advantage: float) -> float:
    """The gradient of a sample over -rho A: its weight in the policy gradient of q, 1 without bounds."""
    values = {
        "log_q": mpmath.log(ratio),
        "log_mu": mpmath.mpf(0),
        "log_p": mpmath.mpf(0),
        "A": mpmath.mpf(advantage),
    }
    with mpmath.workdps(30):
        slope = evaluate_at_sample(parse(loss), values).slope
    return float(-slope / (ratio * advantage))


def draw(p_top: float = 0.8, words: int = 14, seed: int = 3) -> Any:
    """Two panels over the ratio, for good and bad samples; one over words, for a sampler that is cut off."""
    with open_panels(PAGE, 2.6, 1, 3) as (figure, axes):
        for ax, advantage in zip(axes, (1.0, -1.0), strict=False):
            for name, loss in LOSSES.items():
                colour, dash, width = STYLES[name]
                counts = [left_of(loss, ratio, advantage) for ratio in RATIOS]
                ax.plot(RATIOS, counts, color=colour, ls=dash, lw=width, label=name)
            ax.set(xscale="log", xlabel=r"$\rho = q/\mu$", ylim=(-0.05, 1.65), yticks=[0, 0.5, 1],
                   xticks=[0.25, 0.5, 1, 2, 4], xticklabels=["1/4", "1/2", "1", "2", "4"])  # fmt: skip
            ax.set_title(CLIPPED[advantage > 0], loc="left")
            ax.minorticks_off()
        axes[0].legend(loc="upper center", ncols=2, fontsize=7, columnspacing=1)
        _cut(axes[2], p_top, words, seed)
    return figure


def cut(p_top: float, words: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Chances in falling order, and 1 at the fewest words that have p_top together: top-p."""
    q = np.sort(np.random.default_rng(seed).dirichlet(np.full(words, 0.6)))[::-1]
    return q, 1.0 * (np.cumsum(q) - q < p_top)


def _cut(ax: Any, p_top: float, words: int, seed: int) -> None:
    q, M = cut(p_top, words, seed)
    places, mass = np.arange(1, words + 1), float(q @ M)
    ax.bar(places, M * q / mass, color=ORANGE, width=0.8, label=f"top-{p_top:g}: $Mq/S$, $S = {mass:.2f}$")
    ax.bar(places, q, color="none", edgecolor=BLACK, width=0.8, lw=0.8, label="the policy $q$")
    ax.bar(
        places, (1 - M) * q, color=GREY, width=0.8, hatch="////", edgecolor="white", lw=0, label="never drawn"
    )
    ax.set(xlabel="words, by their chance", xticks=[1, 5, 10])
    ax.set_title("(c) Top-p never draws the rest", loc="left")
    ax.legend(loc="upper right", fontsize=7)
