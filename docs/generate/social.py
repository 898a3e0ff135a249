"""The picture that other sites show beside a link: what k1, k2 and k3 minimise as a loss."""

from __future__ import annotations

from pathlib import Path

import klsym
from generate.cheat_sheet import PLAIN, SHOWN

SIZE = (12, 6.3)  # inches of 100 pixels: the ratio that sites expect


def draw(path: Path) -> None:
    """Draw the sentence of the front page and three answers of `klsym explain`."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=SIZE, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, 12), ylim=(6.3, 0))
    axes.text(0.7, 1.0, "klsym", size=46, weight="bold", color=INK, va="center")
    axes.text(0.7, 1.95, "proves what a KL penalty really optimises", size=27, color=INK, va="center")
    for number, loss in enumerate(("k1", "k2", "k3")):
        colour, words = SHOWN[str(klsym.explain(loss).target)]
        y = 2.75 + 1.1 * number
        axes.text(0.7, y + 0.45, f"klsym explain {loss}", size=24, family="monospace", color=INK, va="center")
        axes.add_patch(Rectangle((6.2, y), 5.1, 0.9, facecolor=PLAIN[colour], edgecolor="none"))
        said = "is only noise" if colour == "zero" else f"minimises {words}"
        axes.text(8.75, y + 0.45, said, size=24, color=INK, ha="center", va="center")
    figure.savefig(path, dpi=100, metadata={"Software": None})


INK = "#16302a"
