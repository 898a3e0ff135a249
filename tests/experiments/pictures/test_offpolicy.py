"""The picture of the importance weight: gradients by finite differences, ends of descent, what agrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klsym.calculus import *
from klsym.engine.proof.derivation import Proof
from klsym.experiments.pictures import offpolicy
from klsym.experiments.tang_munos.bandits import optimum
from klsym.numeric.models import FiniteModel

MODEL = FiniteModel(
    q=[0.4, 0.5, 0.1], p=[0.8, 0.1, 0.1], mu=[0.1, 0.2, 0.7], u=[1, 0, 0],
    parameters={"beta": 0.5}, rewards={"R": [0, 0, 1]},
)  # fmt: skip
P, MU = (np.array([float(v) for v in row]) for row in (MODEL.p, MODEL.mu or ()))

# name -> (loss, what it descends, the loss in numbers at (q, q detached))
Numbers = Callable[[Any, Any], Any]
LOSSES: dict[str, tuple[Any, Any, Numbers]] = {
    "rho*k1": (rho * k1, KL(q, p), lambda x, y: x / MU * np.log(x / P)),
    "rho*k2": (rho * k2, expectation(k2, under=q), lambda x, y: x / MU * np.log(x / P) ** 2 / 2),
    "rho*k3": (rho * k3, KL(q, p), lambda x, y: x / MU * (P / x - 1 - np.log(P / x))),
    "sg(rho)*k2": (sg(rho) * k2, KL(q, p), lambda x, y: y / MU * np.log(x / P) ** 2 / 2),
    "sg(rho)*k3": (sg(rho) * k3, KL(p, q), lambda x, y: y / MU * (P / x - 1 - np.log(P / x))),
    "k2": (k2, expectation(k2, under=mu), lambda x, y: np.log(x / P) ** 2 / 2),
    "k3": (k3, expectation(k3, under=mu), lambda x, y: P / x - 1 - np.log(P / x)),
}
RIGHT = ["rho*k1", "rho*k3", "sg(rho)*k2"]


def alone(name: str) -> Proof:
    loss, target, _ = LOSSES[name]
    return derive(expected_gradient(loss, under=mu)).differentiate().equals(grad(target))


def rewarded(name: str) -> Proof:
    loss, target, _ = LOSSES[name]
    total = expected_gradient(beta * loss - rho * R, under=mu)
    return derive(total).differentiate().equals(beta * grad(target) - grad(expectation(R, under=q)))


def by_differences(loss: Numbers, policy: Any, weights: Any = MU, h: float = 1e-6) -> Any:
    """d/dz of sum_x mu(x) loss(softmax(z), policy detached), by central differences."""

    def value(z: Any) -> float:
        x = np.exp(z) / np.exp(z).sum()
        return float(weights @ loss(x, policy))

    rows = np.log(policy) + h * np.eye(3), np.log(policy) - h * np.eye(3)
    return np.array([(value(a) - value(b)) / (2 * h) for a, b in zip(*rows, strict=True)])


@pytest.mark.parametrize("name", LOSSES)
def test_the_expected_gradient_is_that_of_the_loss_as_written(name: str) -> None:
    policy = np.array([float(v) for v in MODEL.q])
    found = offpolicy.expected_gradient(alone(name), MODEL)
    assert found == pytest.approx(by_differences(LOSSES[name][2], policy), abs=1e-8)
    paid = offpolicy.expected_gradient(rewarded(name), MODEL)
    reward = by_differences(lambda x, y: x / MU * np.array([0.0, 0.0, 1.0]), policy)
    assert paid == pytest.approx(0.5 * found - reward, abs=1e-8)


def test_the_sampler_moves_from_q_to_mu() -> None:
    for t, expected in ((0.0, MODEL.q), (1.0, MODEL.mu)):
        assert offpolicy.away(MODEL, t).mu == pytest.approx(expected)
    half = offpolicy.away(MODEL, 0.5).mu or ()
    assert half[0] / half[2] == pytest.approx(np.sqrt(0.4 * 0.1 / (0.1 * 0.7)))


def test_errors_against_the_reverse_kl() -> None:
    ts = np.array([0.0, 0.5, 1.0])
    found = offpolicy.errors({name: alone(name) for name in LOSSES}, alone("rho*k3"), MODEL, ts)
    for name in RIGHT:
        assert found[name] == pytest.approx(0, abs=1e-12)
    for name in ("rho*k2", "sg(rho)*k3"):  # wrong, wherever the samples come from
        assert np.ptp(found[name]) < 1e-12 < 0.1 < found[name][0]
    assert found["k2"][0] < 1e-12 < 0.1 < found["k2"][1] < found["k2"][2]
    assert found["k3"][0] == pytest.approx(found["sg(rho)*k3"][0]) and found["k3"][2] > found["k3"][0]
    policy = np.array([float(v) for v in MODEL.q])
    truth = by_differences(lambda x, y: x * np.log(x / P), policy, np.ones(3))
    gap = by_differences(LOSSES["k3"][2], policy) - truth
    assert found["k3"][2] == pytest.approx(np.linalg.norm(gap) / np.linalg.norm(truth), rel=1e-6)


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_losses_end_at_the_optimum(name: str) -> None:
    path, rests = offpolicy.descend(rewarded(name), MODEL, rate=2.0, steps=120)
    best = np.exp(optimum(np.log(P), np.array([0.0, 0.0, 1.0]), 0.5))
    assert path.shape == (121, 3) and path[0] == pytest.approx(MODEL.q)
    assert rests and path[-1] == pytest.approx(best, abs=1e-5)


def test_descent_that_is_cut_off_does_not_rest() -> None:
    assert not offpolicy.descend(rewarded("rho*k3"), MODEL, rate=1.0, steps=2)[1]


def test_names_of_what_agrees() -> None:
    ends = {"rho*k3": np.ones(2), "k2": np.zeros(2), "rho*k1": np.ones(2) + 1e-9, "k3": np.full(2, 1e-3)}
    assert offpolicy.together(ends) == [["rho*k3", "rho*k1"], ["k2"], ["k3"]]
    looks = [offpolicy.look(name)[:2] for name in LOSSES]
    assert len(set(map(repr, looks))) == len(LOSSES)
    with pytest.raises(KeyError):
        offpolicy.look("mu*k1")


def test_the_figure_names_every_loss() -> None:
    losses = {name: alone(name) for name in LOSSES}
    paths = {name: offpolicy.descend(rewarded(name), MODEL, rate=2.0, steps=8) for name in LOSSES}
    figure = offpolicy.draw(losses, losses["rho*k3"], MODEL, np.array([0.0, 0.5, 1.0]), paths, MODEL.p)
    for ax in figure.axes:
        shown = [text.get_text() for text in ax.texts]
        assert ", ".join(offpolicy.look(name)[2] for name in RIGHT) in shown
        assert {offpolicy.look(name)[2] for name in LOSSES.keys() - set(RIGHT)} <= set(shown)
