"""Tables of coloured cells: one column a set-up in two groups, one row a quantity in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klsym.study.figures import style

BETWEEN = 0.6  # gap between groups of columns and blocks of rows, in cells


def place_groups(count: int, sizes: Sequence[int]) -> list[float]:
    """Where `count` columns or rows stand, in groups of the given sizes.

    >>> place_groups(4, [2, 2])
    [0.0, 1.0, 2.6, 3.6]
    """
    starts = [group for group, size in enumerate(sizes) for _ in range(size)]
    return [j + BETWEEN * group for j, group in zip(range(count), starts, strict=True)]


def draw_cell(ax: Any, x: float, y: float, text: str, colour: Any) -> None:
    """One cell with its text; the colour must be light."""
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", lw=1))
    ax.text(x, y, text, ha="center", va="center", fontsize=8, color=style.BLACK)


def draw_frame(
    ax: Any, columns: Sequence[float], names: Sequence[str], rows: Sequence[float], labels: Sequence[str]
) -> None:
    """Names under the columns, labels left of the rows, and no axes."""
    ax.set_yticks(rows, labels, fontsize=8)
    ax.set_xticks(columns, names, rotation=40, ha="right", fontsize=8, rotation_mode="anchor")
    ax.set_xlim(-0.6, columns[-1] + 0.6)
    ax.set_ylim(rows[-1] + 0.6, -0.6)
    ax.tick_params(length=0, pad=2)
    for side in ax.spines.values():
        side.set_visible(False)


def label_columns(ax: Any, x: float, text: str) -> None:
    """The name of a group of columns, centred above x."""
    ax.annotate(
        text, (x, 1), (0, 4), xycoords=("data", "axes fraction"), textcoords="offset points",
        ha="center", va="bottom", fontsize=8,
    )  # fmt: skip


def label_rows(ax: Any, y: float, text: str) -> None:
    """The name of a block of rows, upright at the right of y."""
    ax.annotate(
        text, (1, y), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
        rotation=-90, va="center", fontsize=8, color=style.GREY,
    )  # fmt: skip
