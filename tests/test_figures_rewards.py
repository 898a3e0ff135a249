"""The picture of KL in the reward: means and pushes by integration, pulls by literal sums."""

from __future__ import annotations

import numpy as np
import pytest

from klsym.figures.rewards import Penalty, back, between_gaussians, draw
from klsym.ledger import recall

VALUES = {"k1": "k1-unbiased", "k2": "k2-biased", "k3": "k3-unbiased"}
PENALTIES = {
    name: Penalty(recall(f"value.{value}").proofs[0], recall(f"reward.{name}").proofs[0])
    for name, value in VALUES.items()
}
NUMBERS = {"k1": lambda k: k, "k2": lambda k: k**2 / 2, "k3": lambda k: np.expm1(-k) + k}


@pytest.mark.parametrize("shift", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("name", PENALTIES)
def test_means_and_pushes_between_gaussians(name: str, shift: float) -> None:
    """The trapezoidal rule is exact to rounding for smooth functions that die off."""
    x, step = np.linspace(shift - 14, shift + 14, 4001, retstep=True)
    density = np.exp(-((x - shift) ** 2) / 2) / np.sqrt(2 * np.pi)
    estimate = NUMBERS[name]((x**2 - (x - shift) ** 2) / 2)
    value, push = between_gaussians(PENALTIES[name], shift)
    assert value == pytest.approx(step * density @ estimate, abs=1e-10)
    assert push["mean"] == pytest.approx(step * density @ (estimate * (x - shift)), abs=1e-10)
    assert push["log scale"] == pytest.approx(step * density @ (estimate * ((x - shift) ** 2 - 1)), abs=1e-10)


def test_one_value_and_another_push() -> None:
    found = {name: between_gaussians(penalty, 1.0) for name, penalty in PENALTIES.items()}
    assert found["k1"][0] == pytest.approx(found["k3"][0]) and found["k2"][0] > found["k1"][0] + 0.1
    assert found["k1"][1]["mean"] > 0.9 and abs(found["k3"][1]["mean"]) < 1e-12


@pytest.mark.parametrize("name", PENALTIES)
def test_the_pull_is_a_literal_sum(name: str) -> None:
    p, ts = np.array([0.25, 0.75]), np.array([-5.0, -0.5, 0.5, 2.0])
    found = back(PENALTIES[name], p.tolist(), ts)
    for t, value in zip(ts, found, strict=True):
        q = p * np.exp([t, 0])
        q /= q.sum()
        push = q @ (NUMBERS[name](np.log(q / p)) * (np.array([1, 0]) - q[0]))
        assert value == pytest.approx(np.sign(t) * push, rel=1e-9)


def test_only_k1_pulls_back_from_everywhere() -> None:
    ts = np.array([-5.0, -2.0, 2.0, 5.0])
    pulls = {name: back(penalty, [0.25, 0.75], ts) for name, penalty in PENALTIES.items()}
    assert (pulls["k1"] > 0).all()
    assert pulls["k2"].min() < 0 and pulls["k3"].min() < 0 and (pulls["k3"][[0, -1]] < -0.2).all()


def test_the_figure_has_three_labelled_panels() -> None:
    figure = draw(PENALTIES, np.linspace(0, 2, 5), [0.25, 0.75], np.linspace(-5, 5, 11))
    assert len(figure.axes) == 3
    labels = [{text.get_text() for text in ax.texts} for ax in figure.axes]
    assert {"$k_1$, $k_3$", "$k_2$"} <= labels[0]  # one value
    assert {"$k_1$", "$k_2$", "$k_3$"} <= labels[1] & labels[2]  # three pushes
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes)
