"""The picture of on-policy losses: means and gradients against literal sums and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klsym.figures.onpolicy import Loss, draw, targets
from klsym.ledger import recall

VALUES = {"k1": "k1-unbiased", "k2": "k2-biased", "k3": "k3-unbiased"}
LOSSES = {
    name: Loss(recall(f"value.{value}").proofs[0], recall(f"gradient.{name}-loss").proofs[0])
    for name, value in VALUES.items()
}
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "k1": lambda k: k,
    "k2": lambda k: k**2 / 2,
    "k3": lambda k: np.expm1(-k) + k,
}
P = np.array([0.25, 0.75])
TS = np.array([-5.0, -1.0, 0.5, 4.0])
GRADIENTS = {"reverse": LOSSES["k2"].gradient, "forward": LOSSES["k3"].gradient}


def policy(t: float) -> Any:
    q = P * np.exp([t, 0.0])
    return q / q.sum()


def slope(f: Callable[[float], float], t: float, h: float = 1e-5) -> float:
    return (f(t + h) - f(t - h)) / (2 * h)


@pytest.mark.parametrize("name", LOSSES)
def test_means_and_gradients_are_literal_sums(name: str) -> None:
    values, gradients = LOSSES[name].curves(P.tolist(), TS)
    for t, value, gradient in zip(TS, values, gradients, strict=True):
        q = policy(t)
        assert value == pytest.approx(q @ NUMBERS[name](np.log(q / P)), rel=1e-9)
        held = slope(lambda x, q=q: q @ NUMBERS[name](np.log(policy(x) / P)), t)  # the measure does not move
        assert gradient == pytest.approx(held, abs=1e-8)


def test_targets_are_slopes_of_divergences() -> None:
    found = targets(GRADIENTS, P.tolist(), TS)
    for i, t in enumerate(TS):
        assert found["reverse"][i] == pytest.approx(
            slope(lambda x: policy(x) @ np.log(policy(x) / P), t), abs=1e-8
        )
        assert found["forward"][i] == pytest.approx(slope(lambda x: P @ np.log(P / policy(x)), t), abs=1e-8)


def test_one_value_and_another_gradient() -> None:
    """k1 and k3 log the reverse KL; k2 descends it, k3 the forward KL, k1 nothing."""
    drawn = {name: loss.curves(P.tolist(), TS) for name, loss in LOSSES.items()}
    true, found = targets({"reverse": LOSSES["k1"].value}, P.tolist(), TS), targets(GRADIENTS, P.tolist(), TS)
    for name, (values, gradients) in drawn.items():
        assert (np.abs(values - true["reverse"]).max() < 1e-12) == (name != "k2")
        for target, name_of in (("reverse", "k2"), ("forward", "k3")):
            assert (np.abs(gradients - found[target]).max() < 1e-12) == (name == name_of)
    assert np.abs(drawn["k1"][1]).max() < 1e-15


def test_the_figure_names_every_curve() -> None:
    figure = draw(LOSSES, LOSSES["k1"].value, GRADIENTS, P.tolist(), np.linspace(-5, 5, 11))
    logged, followed = figure.axes
    assert {text.get_text() for text in logged.texts} == {"$k_1$, $k_3$", "$k_2$"}  # one value
    assert {text.get_text() for text in followed.texts} == {"$k_1$", "$k_2$", "$k_3$"}  # three gradients
    assert [len(ax.get_legend().get_texts()) for ax in figure.axes] == [1, 2]
    assert all(ax.get_xlabel() and ax.get_ylabel() and ax.get_title(loc="left") for ax in figure.axes)
