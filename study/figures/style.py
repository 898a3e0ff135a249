"""The look of every figure: fonts, sizes, colours that colour-blind readers can tell apart, labels at lines.

matplotlib is imported inside the functions, and drawn without a display.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from klsym.files import make_folder, write_whole

# Okabe & Ito 2008, Color universal design: eight colours told apart with any kind of colour vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#767676"
# One estimator, one colour, in every figure.  A loss has the colour of its estimator; "vanilla", k1 s, is the
# gradient of k2.
COLOURS = {
    "k1": BLUE, "k2": GREEN, "k3": VERMILION,
    "k1 loss": BLUE, "k3 loss": VERMILION, "vanilla": GREEN, "leave-one-out": PURPLE, "analytic": BLACK,
    "token k1": BLUE, "token k3": VERMILION, "token vanilla": GREEN,
    "sequence vanilla": SKY, "cumulative": ORANGE,
}  # fmt: skip
NAMES = {
    "k1": "$k_1$", "k2": "$k_2$", "k3": "$k_3$", "k1 loss": "$k_1$ loss", "k3 loss": "$k_3$ loss",
    "token k1": "token $k_1$", "token k3": "token $k_3$",
}  # fmt: skip
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])  # of the simplex of three outcomes
COLUMN, PAGE = 3.4, 7.0  # widths of one and two columns, inches
PLACES = 2  # of a coordinate in a drawing, in points
DIGITS = 6  # of the points of a line
ROUNDING = 1e-9  # of heights of labels

_PATHS = re.compile(r'\b(?:d|x|y|points)="[^"]*"')  # where coordinates stand in a drawing
_NUMBERS = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
SETTINGS: Any = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "figure.dpi": 100,
    "savefig.dpi": 300,
}


@contextmanager
def apply_style() -> Iterator[Any]:
    """matplotlib's Figure class, with the house style set while the block runs.

    >>> with apply_style() as Figure:
    ...     figure = Figure(figsize=(COLUMN, 2.4), layout="constrained")
    >>> len(figure.subplots(1, 2))
    2
    """
    import matplotlib as mpl

    with mpl.rc_context(SETTINGS):
        yield _build_figure_class()


@contextmanager
def open_panels(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> Iterator[Any]:
    """A figure of some inches and its axes, with the house style set while the block runs.

    >>> with open_panels(PAGE, 2.4, 1, 2) as (figure, (left, right)):
    ...     right.set_xlabel("n")
    Text(0.5, 0, 'n')

    rows, columns, options: as `Figure.subplots` takes them.
    """
    with apply_style() as Figure:
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(rows, columns, **options)


def name(estimator: str) -> str:
    """How an estimator is written beside its line.

    >>> name("k3 loss"), name("vanilla")
    ('$k_3$ loss', 'vanilla')
    """
    return NAMES.get(estimator, estimator)


def draw_simplex(ax: Any, colour: str) -> None:
    """The frame of the simplex, and no axes."""
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color=colour, lw=0.7)
    ax.set_aspect("equal")
    ax.set_axis_off()


@cache
def _build_figure_class() -> Any:
    """matplotlib's Figure, shown by Jupyter as a picture without a display or pyplot."""
    from matplotlib.figure import Figure as Plain

    class Figure(Plain):
        def savefig(self, *args: Any, **options: Any) -> None:
            round_lines(self)
            super().savefig(*args, **options)

        def _repr_svg_(self) -> tuple[str, dict[str, str]]:
            """The picture, and what is seen in it for those who do not see it: the attribute `alt`."""
            return draw_svg(self), {"alt": getattr(self, "alt", "")}

    return Figure


def draw_svg(figure: Any) -> str:
    """The figure as a drawing for pages: the same figure gives the same text on every processor.

    No point of a line is left out, since which ones would be is a matter of last bits.

    >>> with open_panels(1, 1) as (figure, ax):
    ...     _ = ax.plot([0, 1])
    >>> draw_svg(figure) == draw_svg(figure)
    True
    """
    import matplotlib as mpl

    drawing = io.StringIO()
    with mpl.rc_context(SETTINGS | {"svg.hashsalt": "klsym", "path.simplify": False}):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # each layout would start from the last one
        figure.savefig(drawing, format="svg", metadata={"Date": None, "Creator": None})
    return _PATHS.sub(lambda path: _NUMBERS.sub(_shorten_number, path[0]), drawing.getvalue())


def _shorten_number(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), PLACES) + 0:.{PLACES}f}".rstrip("0").rstrip(".")


def round_lines(figure: Any) -> None:
    """Round the points of all lines to DIGITS digits, far below a pixel, in place.

    The last bits of exp and log differ between CPUs.  Where a line is straight they decide which way it
    bends at a point, hence how the corner is painted: without this the same figure gave other bytes there.

    >>> with apply_style() as Figure:
    ...     figure = Figure()
    >>> (line,) = figure.subplots().plot([0, 1], [1 / 3, float("nan")])
    >>> round_lines(figure)
    >>> list(line.get_ydata())
    [0.333333, nan]
    """
    for ax in figure.axes:
        for line in ax.lines:
            x, y = line.get_data(orig=False)
            line.set_data(_shorten(x), _shorten(y))


def _shorten(values: Any) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def draw_band(ax: Any, x: Any, mean: Any, error: Any, colour: str, **line: Any) -> Any:
    """A line with a band of plus and minus `error` around it; the line is returned."""
    (drawn,) = ax.plot(x, mean, color=colour, **line)
    ax.fill_between(x, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
    return drawn


def label_ends(
    ax: Any, entries: Sequence[tuple[float, str, str]], x: float, gap: float = 0.075, fontsize: int = 8
) -> None:
    """Write the name of each line beside its right end, pushed apart where they would touch.

    entries: (y at the right end, text, colour).  x: the right end, in data units.
    gap: the least distance of two labels, as a fraction of the height of the axes.
    """
    to_axes = (ax.transData + ax.transAxes.inverted()).transform
    heights = sorted((float(to_axes((x, y))[1]), text, colour) for y, text, colour in entries)
    placed = _separate_heights([h for h, _, _ in heights], gap)
    edge = float(to_axes((x, entries[0][0]))[0])
    no_gap = {"shrinkA": 0, "shrinkB": 0}
    for height, (start, text, colour) in zip(placed, heights, strict=True):
        ax.annotate(
            text, (edge, min(max(start, 0), 1)), (edge + 0.03, height), xycoords="axes fraction",
            textcoords="axes fraction", color=colour, va="center", ha="left", fontsize=fontsize,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.4, "relpos": (0, 0.5), **no_gap},
            annotation_clip=False,
        )  # fmt: skip


def _separate_heights(heights: list[float], gap: float) -> list[float]:
    """The nearest heights to the given sorted ones, within [0, 1], at least `gap` apart.

    >>> [round(h, 3) for h in _separate_heights([0.5, 0.5], 0.1)]
    [0.45, 0.55]
    >>> [round(h, 3) for h in _separate_heights([0.84, 0.99, 1.0], 0.1)]
    [0.8, 0.9, 1.0]
    """
    groups: list[tuple[float, int]] = []  # centre of a run of touching labels, and how many
    for height in heights:
        centre, count = _keep_within(height, 1, gap), 1
        while groups and groups[-1][0] + groups[-1][1] * gap / 2 > centre - count * gap / 2 + ROUNDING:
            before, group_size = groups.pop()
            centre, count = (before * group_size + centre * count) / (group_size + count), group_size + count
            centre = _keep_within(centre, count, gap)
        groups.append((centre, count))
    return [c + (i - (n - 1) / 2) * gap for c, n in groups for i in range(n)]


def _keep_within(centre: float, count: int, gap: float) -> float:
    """The nearest centre at which so many labels stay within [0, 1]."""
    half = (count - 1) * gap / 2
    return min(max(centre, half), max(1 - half, half))


KINDS: dict[str, Any] = {  # without what changes from one run to the next
    "pdf": {"CreationDate": None, "Producer": None, "Creator": "klsym"},
    "png": {"Software": None},
}


def render_figure(figure: Any, kind: str) -> bytes:
    """The figure as the bytes of a file; the same figure gives the same bytes.  kind: pdf or png."""
    import matplotlib as mpl

    picture = io.BytesIO()
    with mpl.rc_context(SETTINGS):  # resolution and fonts are read on saving
        figure.savefig(picture, format=kind, metadata=KINDS[kind])
    return picture.getvalue()


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write name.pdf and name.png into a folder.

    Raises UsageError: a folder that cannot be written.
    """
    pictures = {kind: render_figure(figure, kind) for kind in KINDS}
    make_folder(folder)
    return [write_whole(folder / f"{name}.{kind}", picture) for kind, picture in pictures.items()]
