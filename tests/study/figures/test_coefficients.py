"""The curves of score coefficients: against slopes of the literal losses, taken by differences."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klsym.api import explain
from klsym.errors import UsageError
from klsym.study.figures.coefficients import OTHERS, compute_curve, curves, draw

Loss = Callable[[float, float], float]
RATIOS = [1 / 20, 0.3, 0.5, 2.0, 5.0, 13.0, 20.0]
STEP = 1e-6

# on-policy losses, as training code writes them; x is log q, y is log p
LITERAL: dict[str, Loss] = {
    "k1": lambda x, y: x - y,
    "k2": lambda x, y: (x - y) ** 2 / 2,
    "k3": lambda x, y: np.exp(y - x) - 1 - (y - x),
    "0.5*k1**2 - 3*k1": lambda x, y: 0.5 * (x - y) ** 2 - 3 * (x - y),
    "abs(k1)": lambda x, y: abs(x - y),
    "clip(k3, -10, 10)": lambda x, y: np.clip(np.exp(y - x) - 1 - (y - x), -10, 10),
    "exp(clip(-k1, -2, 2)) - clip(-k1, -2, 2)": lambda x, y: (
        np.exp(np.clip(y - x, -2, 2)) - np.clip(y - x, -2, 2)
    ),
}


def slope(loss: Loss, r: float) -> float:
    """dL/dlog q at log q = 0, log p = log r."""
    y = float(np.log(r))
    return (loss(STEP, y) - loss(-STEP, y)) / (2 * STEP)


@pytest.mark.parametrize("text", LITERAL)
def test_a_curve_is_the_slope_of_the_loss_up_to_a_constant(text: str) -> None:
    loss = LITERAL[text]
    level = (slope(loss, np.exp(1e-4)) + slope(loss, np.exp(-1e-4))) / 2
    expected = [slope(loss, r) - level for r in RATIOS]
    assert compute_curve(explain(text), RATIOS) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("text", "value"), [("rho*k3", LITERAL["k3"]), ("rho*k1", LITERAL["k1"])])
def test_the_coefficient_of_a_weighted_reward_is_its_value(text: str, value: Loss) -> None:
    found = compute_curve(explain(text, sampling="off-policy", use="reward"), RATIOS)
    assert found == pytest.approx([value(0.0, float(np.log(r))) for r in RATIOS], rel=1e-12)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("k3", {"sampling": "off-policy"}, "log_mu"),
    ("beta*k3", {}, "beta"),
    ("A - k1", {"use": "reward"}, "A"),
    ("k3", {"level": "token"}, "no function of one sample's r"),
]


@pytest.mark.parametrize(("text", "options", "named"), REFUSED)
def test_what_is_no_function_of_r_is_refused(text: str, options: dict[str, Any], named: str) -> None:
    verdict = explain(text, **options)
    for drawn in (lambda: compute_curve(verdict, [2.0]), lambda: draw({text: verdict})):
        with pytest.raises(UsageError) as caught:
            drawn()
        assert named in str(caught.value) and "\n" not in str(caught.value)


def test_equal_coefficients_share_a_curve() -> None:
    verdicts = {text: explain(text) for text in ("k2", "k3", "rho*k3", "k2 - sg(k2) + sg(k3)")}
    assert list(curves(verdicts, [2.0])) == ["k2, rho*k3, k2 - sg(k2) + sg(k3)", "k3"]


def test_the_figure_shows_the_curves_on_both_sides_of_one() -> None:
    verdicts = {text: explain(text) for text in ("k1", "k2", "k3", "clip(k3, -10, 10)")}
    figure = draw(verdicts)
    rare, frequent = figure.axes[1], figure.axes[0]
    assert all(ax.get_xlabel() and ax.get_title("left") for ax in figure.axes)
    written = [text.get_text() for text in rare.texts]
    for line, (name, verdict) in zip(rare.lines, verdicts.items(), strict=True):
        x, y = (np.asarray(data) for data in line.get_data())
        assert (x > 1).all() and re.sub(r"k(\d)", r"$k_\1$", name) in written
        assert y[::40] == pytest.approx(compute_curve(verdict, x[::40].tolist()))
    assert all((np.asarray(line.get_xdata()) < 1).all() for line in frequent.lines)
    assert [line.get_linestyle() for line in rare.lines] == ["-", "-", "-", "--"]


def test_too_many_curves_are_refused() -> None:
    with pytest.raises(UsageError, match="draw fewer"):
        draw({str(n): explain(f"{n}*k2") for n in range(2, len(OTHERS) + 3)})
