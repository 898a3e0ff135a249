"""The curve of variances against baselines: exact, with its least point at b*."""

from __future__ import annotations

import numpy as np
import pytest

from klsym.abbreviations import Context
from klsym.figures.variance import baseline_curve, coefficient, draw
from klsym.language import k1, k2, k3, rho
from klsym.numeric.models import random_model


def literal_variance(q: list[float], p: list[float], b: float) -> float:
    """sum_i Var((k1 - b) s_i), outcome by outcome and logit by logit."""
    total = 0.0
    for i in range(len(q)):
        values = [(np.log(q[x] / p[x]) - b) * ((x == i) - q[i]) for x in range(len(q))]
        mean = sum(w * v for w, v in zip(q, values, strict=True))
        total += sum(w * (v - mean) ** 2 for w, v in zip(q, values, strict=True))
    return total


@pytest.mark.parametrize("seed", range(4))
def test_the_curve_is_the_total_variance(seed):
    model = random_model(seed, 3 + seed, Context(on_policy=True))
    b, variance, points = baseline_curve(model)
    q, p = list(model.q), list(model.p)
    for at, value in [*zip(b[::50], variance[::50], strict=True), *points.values()]:
        assert value == pytest.approx(literal_variance(q, p, at), rel=1e-12)
    assert points["b*"][1] <= variance.min() * (1 + 1e-12) and points["none"][0] == 0
    assert points["KL"][0] == pytest.approx(sum(a * np.log(a / c) for a, c in zip(q, p, strict=True)))


def test_the_figure_has_two_labelled_panels():
    figure = draw(random_model(3, 8, Context(on_policy=True)))
    assert len(figure.axes) == 2 and all(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes)


@pytest.mark.parametrize("loss", [rho * k1, rho * k3])
def test_the_coefficient_is_the_slope_of_the_literal_loss(loss):
    # rho k1 and rho k3 at mu = q: with log q moved by h, rho = exp(h) and r falls by the same factor
    def literal(h: float, r: float) -> float:
        moved = r * np.exp(-h)
        return np.exp(h) * (-np.log(moved) if loss == rho * k1 else moved - 1 - np.log(moved))

    for r in (0.2, 1.0, 5.0):
        slope = (literal(1e-6, r) - literal(-1e-6, r)) / 2e-6
        assert coefficient(loss, np.array([r]))[0] == pytest.approx(slope, abs=1e-8)


def test_a_loss_that_the_claim_does_not_speak_of_is_refused():
    with pytest.raises(ValueError, match="does not speak of"):
        coefficient(k2 * k1, np.array([1.0]))
