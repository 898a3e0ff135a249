"""The pictures of the distillation and the reward experiments: drawn, labelled, and the same every time."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from klsym.experiments.distillation import figures as draws_distillation
from klsym.experiments.distillation.experiment import BASE, CLAIMS, OTHERS, figure8
from klsym.experiments.distillation.models import ESTIMATORS
from klsym.experiments.reward_collapse import figures as draws_collapse
from klsym.experiments.reward_collapse.experiment import CRITERIA, FREE, SAMPLED, reward_collapse
from klsym.experiments.softmax import PENALTIES


@pytest.fixture(scope="module")
def eight():
    base = tuple(replace(setup, iterations=6) for setup in BASE)
    others = tuple(replace(setup, iterations=3) for setup in (OTHERS[0], OTHERS[-1]))
    return figure8(repeats=3, other_repeats=2, base=base, others=others)


@pytest.fixture(scope="module")
def collapse():
    others = tuple(replace(setup, horizon=20.0) for setup in (FREE, replace(SAMPLED, name="short")))
    return reward_collapse(repeats=3, other_repeats=2, bandits=10, others=others)


def texts(figure):
    """Everything written in a figure, subfigures included."""
    import matplotlib.text

    return [t.get_text() for t in figure.findobj(matplotlib.text.Text) if t.get_text()]


@pytest.fixture(scope="module")
def pictures(eight, collapse):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph, an empty log axis
        drawn = [(module.draw(data), module.draw_settings(data)) for module, data in
                 ((draws_distillation, eight), (draws_collapse, collapse))]  # fmt: skip
        for figure in (figure for both in drawn for figure in both):
            figure.draw_without_rendering()
    return drawn


def test_panels(pictures):
    for figure, _ in pictures:
        titles = sorted(t[:3] for t in texts(figure) if t[:1] == "(" and t[2:3] == ")")
        assert len(figure.axes) == 6 and titles == [f"({letter})" for letter in "abcdef"]


def test_letters_are_large_enough_in_print(pictures):
    """A page of the paper has nine tenths of the width of a figure: 7 points from 7.8."""
    import matplotlib.text

    for figure in (figure for both in pictures for figure in both):
        assert min(text.get_fontsize() for text in figure.findobj(matplotlib.text.Text)) >= 7.8


def test_every_estimator_is_named_beside_its_line(pictures):
    written = texts(pictures[0][0])
    for name in ESTIMATORS:
        assert written.count(draws_distillation.NAMES.get(name, name)) >= 2, name


def test_the_cells_hold_the_ratios(eight, pictures):
    cells = pictures[0][1].axes[0].texts
    expected = [
        draws_distillation._ratio(found.log_ratio)
        for runs in eight.rows
        for own in (False, True)
        for found in runs.comparisons(own)
    ]
    written = [text.get_text() for text in cells]
    assert written[: len(expected)] == expected and len(expected) == 4 * 2 * len(CLAIMS)


def test_the_cells_hold_the_percentages(collapse, pictures):
    written = [text.get_text() for text in pictures[1][1].axes[0].texts]
    expected = [f"{100 * share:.0f}" for paths in collapse.rows for share in paths.shares().ravel()]
    assert written[: len(expected)] == expected and len(expected) == 4 * len(CRITERIA) * len(PENALTIES)


def test_lines_are_the_data(eight, collapse, pictures):
    runs = eight.base[0]
    exact = pictures[0][0].axes[0].lines[-1]
    share = runs.kl[5, :, runs.best[5]].mean(axis=-1) / runs.kl[5, 0].mean()
    assert np.allclose(exact.get_ydata(), share) and exact.get_color() == "#000000"
    lost = [line.get_ydata() for line in pictures[1][0].axes[4].lines]
    assert np.allclose(lost[2], 100 * collapse.exact.lost[2].mean(axis=-1))


def test_importing_a_picture_does_not_load_matplotlib():
    modules = "klsym.experiments.distillation.figures, klsym.experiments.reward_collapse.figures"
    code = f"import sys, {modules}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
