"""The drawn figures of Tang & Munos: what is on the axes, labels that do not touch, files that repeat."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from klsym.experiments.tang_munos.bandits import GRADIENTS
from klsym.experiments.tang_munos.experiment import FIGURES
from klsym.experiments.tang_munos.figures import DRAW, LOOK
from klsym.study.figures.style import save

RUN = {"repeats": 8, "arms": 10, "iterations": 100}
SMALL = {"repeats": 20, "arms": 20}
CASES = {1: SMALL, 2: SMALL, 3: RUN, 4: RUN, 5: RUN, 6: RUN}
PANELS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 1, 6: 1}


@pytest.fixture(scope="module")
def drawn():
    data = {number: figure(**CASES[number]) for number, figure in FIGURES.items()}
    return {number: (data[number], draw(data[number])) for number, draw in DRAW.items()}


@pytest.mark.parametrize("number", DRAW)
def test_axes_are_named_and_logarithmic(drawn, number):
    _, figure = drawn[number]
    assert len(figure.axes) == PANELS[number]
    assert figure.axes[0].get_ylabel()
    for ax in figure.axes:
        assert ax.get_xlabel() in ("iteration", "samples $n$")
        assert ax.get_xscale() == ax.get_yscale() == "log"


@pytest.mark.parametrize("number", DRAW)
@pytest.mark.share(3)
def test_texts_neither_touch_nor_leave_the_page(drawn, number):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    _, figure = drawn[number]
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    texts = [
        t for ax in figure.axes for t in (*ax.texts, ax.title, ax.xaxis.label, ax.yaxis.label) if t.get_text()
    ]
    boxes = [(t.get_text(), _box(t, renderer)) for t in texts]
    for (a, box), (b, other) in itertools.combinations(boxes, 2):
        assert not box.overlaps(other), f"{a!r} touches {b!r}"
    width, height = figure.canvas.get_width_height()
    for text, box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text


def _box(text, renderer):
    """The letters alone, without the line that leads to them; a pixel of tolerance."""
    from matplotlib.text import Text

    return Text.get_window_extent(text, renderer).padded(-1)


@pytest.mark.parametrize("number", [1, 2])
def test_lines_are_exact_and_markers_sampled(drawn, number):
    data, figure = drawn[number]
    names = ("k1", "k2", "k3") if number == 1 else GRADIENTS
    sampled = data.squared if number == 1 else data.norms
    (ax,) = figure.axes
    for i, name in enumerate(names):
        lines = [line for line in ax.lines if line.get_color() == LOOK[name][0]]
        assert any(np.allclose(line.get_ydata(), data.exact[i].mean(-1)) for line in lines)
        assert any(np.allclose(line.get_ydata(), sampled[i].mean(-1)) for line in lines)


@pytest.mark.parametrize(("number", "field"), [(3, "divergence"), (4, "normalised")])
def test_each_panel_shows_its_own_runs(drawn, number, field):
    data, figure = drawn[number]
    for j, ax in enumerate(figure.axes):
        assert ax.get_title("left") == f"({'abc'[j]}) $n = {data.ns[j]}$"
        for i, name in enumerate(GRADIENTS):
            expected = getattr(data, field)[j, i, data.times > 0].mean(-1)
            (line,) = [x for x in ax.lines if x.get_color() == LOOK[name][0] and x.get_linewidth() > 1]
            assert np.allclose(line.get_ydata(), expected)
            assert (line.get_xdata() == data.times[data.times > 0]).all()
        thin = [x.get_ydata() for x in ax.lines if x.get_color() not in {c for c, _, _ in LOOK.values()}]
        for exact in (data.exact[1], data.exact[2]):
            assert any(np.allclose(y, exact[data.times > 0].mean(-1)) for y in thin)


@pytest.mark.parametrize("number", [5, 6])
def test_points_and_theory_are_the_data(drawn, number):
    data, figure = drawn[number]
    (ax,) = figure.axes
    shown = [np.asarray(line.get_ydata(), float) for line in ax.lines]
    wanted = [data.theory, *(data.ends if number == 5 else (data.to_optimum, data.to_reversed))]
    for values in wanted:
        assert any(y.shape == (len(data.ns),) and np.allclose(y, values.mean(-1)) for y in shown)
    assert any(np.allclose(y, data.limit.mean()) for y in shown)


def test_estimates_differ_without_colour():
    looks = [LOOK[name][1:] for name in GRADIENTS]
    assert len({str(style) for style, _ in looks}) == len({marker for _, marker in looks}) == 4


def test_files_repeat(drawn, tmp_path):
    data, _ = drawn[2]
    first, second = (save(DRAW[2](data), tmp_path / x, "figure") for x in ("a", "b"))
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes() and a.stat().st_size > 5000
