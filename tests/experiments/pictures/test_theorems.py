"""The pictures of theorems on small models: against literal sums, integrals and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klsym.errors import KlsymError
from klsym.experiments.pictures import onpolicy, rewards
from klsym.experiments.pictures.errata import sides
from klsym.experiments.pictures.models import along_logits, along_odds, left, right, tilted
from klsym.experiments.pictures.onpolicy import Loss, targets
from klsym.experiments.pictures.rewards import Penalty, back, between_gaussians
from klsym.experiments.pictures.variance import baseline_curve, coefficient
from klsym.language.abbreviations import Context
from klsym.language.expressions import k1, k2, k3, rho
from klsym.numeric.models import FiniteModel, random_model
from klsym.study.ledger.registry import load
from klsym.study.ledger.settle_claim import recall

MODEL = FiniteModel(q=["1/2", "1/4", "1/4"], p=["1/4", "1/4", "1/2"], u=[1, 0, 0])
P = np.array([0.25, 0.75])
TS = np.array([-5.0, -1.0, 0.5, 4.0])
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "k1": lambda k: k,
    "k2": lambda k: k**2 / 2,
    "k3": lambda k: np.expm1(-k) + k,
}
VALUES = {name: recall(f"value.{name}-{'bi' if name == 'k2' else 'unbi'}ased").proofs[0] for name in NUMBERS}
LOSSES = {name: Loss(VALUES[name], recall(f"gradient.{name}-loss").proofs[0]) for name in NUMBERS}
GRADIENTS = {"reverse": LOSSES["k2"].gradient, "forward": LOSSES["k3"].gradient}
PENALTIES = {name: Penalty(VALUES[name], recall(f"reward.{name}").proofs[0]) for name in NUMBERS}
EACH = pytest.mark.parametrize("name", NUMBERS)


def policy(t: float) -> Any:
    q = P * np.exp([t, 0.0])
    return q / q.sum()


def slope(f: Callable[[float], float], t: float, h: float = 1e-5) -> float:
    return (f(t + h) - f(t - h)) / (2 * h)


# ---------------------------------------------------------------------------- sides of theorems
def test_a_gradient_along_each_logit() -> None:
    q, p = (np.array([float(x) for x in row]) for row in (MODEL.q, MODEL.p))
    proof = recall("gradient.k2-loss").proofs[0]
    literal = (q * np.log(q / p)) @ (np.eye(3) - q)
    for side in (left(proof), right(proof)):
        assert along_logits(side, MODEL) == pytest.approx(literal, abs=1e-12)
    assert np.abs(along_logits(left(recall("gradient.k3-loss").proofs[0]), MODEL) - literal).max() > 0.01


def test_m_is_one_less_than_n() -> None:
    """Otherwise the sides of variance.loo differ: m = n - 1 is put in with n."""
    loo = recall("variance.loo").proofs[0]
    found = [along_logits(side, MODEL, 3) for side in (left(loo), right(loo))]
    assert found[0] == pytest.approx(found[1], rel=1e-10)
    assert along_logits(left(loo), MODEL, 2) != pytest.approx(found[0], rel=1e-2)
    with pytest.raises(KlsymError):
        along_logits(left(loo), MODEL)


def test_the_path_starts_at_p() -> None:
    assert tilted([0.25, 0.75], 0.0).q == pytest.approx([0.25, 0.75])
    q = tilted([0.25, 0.75], 1.0).q
    assert np.log(float(q[0]) / float(q[1])) - np.log(1 / 3) == pytest.approx(1)


def test_a_gradient_along_the_path_is_its_slope() -> None:
    """d/dt KL(q_t||p) = q_0 (1 - q_0) t on two outcomes."""
    ts, p = [-2.0, 0.0, 3.0], [0.25, 0.75]
    first = np.array([float(tilted(p, t).q[0]) for t in ts])
    found = along_odds(right(recall("gradient.k2-loss").proofs[0]), p, ts)
    assert found == pytest.approx(first * (1 - first) * np.array(ts), abs=1e-12)


# ---------------------------------------------------------------------------- losses on-policy
@EACH
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


def test_the_figure_on_policy_names_every_curve() -> None:
    figure = onpolicy.draw(LOSSES, LOSSES["k1"].value, GRADIENTS, P.tolist(), np.linspace(-5, 5, 11))
    logged, followed = figure.axes
    assert {text.get_text() for text in logged.texts} == {"$k_1$, $k_3$", "$k_2$"}  # one value
    assert {text.get_text() for text in followed.texts} == {"$k_1$", "$k_2$", "$k_3$"}  # three gradients
    assert [len(ax.get_legend().get_texts()) for ax in figure.axes] == [1, 2]
    assert all(ax.get_xlabel() and ax.get_ylabel() and ax.get_title(loc="left") for ax in figure.axes)


# ---------------------------------------------------------------------------- in the reward
@pytest.mark.parametrize("shift", [0.0, 0.7, 2.0])
@EACH
def test_means_and_pushes_between_gaussians(name: str, shift: float) -> None:
    """The trapezoidal rule is exact to rounding for smooth functions that die off."""
    x, step = np.linspace(shift - 14, shift + 14, 4001, retstep=True)
    density = np.exp(-((x - shift) ** 2) / 2) / np.sqrt(2 * np.pi)
    estimate = NUMBERS[name]((x**2 - (x - shift) ** 2) / 2)
    value, push = between_gaussians(PENALTIES[name], shift)
    assert value == pytest.approx(step * density @ estimate, abs=1e-10)
    assert push["mean"] == pytest.approx(step * density @ (estimate * (x - shift)), abs=1e-10)
    assert push["log scale"] == pytest.approx(step * density @ (estimate * ((x - shift) ** 2 - 1)), abs=1e-10)


@EACH
def test_the_pull_is_a_literal_sum(name: str) -> None:
    for t, value in zip(TS, back(PENALTIES[name], P.tolist(), TS), strict=True):
        q = policy(t)
        push = q @ (NUMBERS[name](np.log(q / P)) * (np.array([1, 0]) - q[0]))
        assert value == pytest.approx(np.sign(t) * push, rel=1e-9)


def test_the_figure_of_rewards_names_every_curve() -> None:
    figure = rewards.draw(PENALTIES, np.linspace(0, 2, 5), [0.25, 0.75], np.linspace(-5, 5, 11))
    labels = [{text.get_text() for text in ax.texts} for ax in figure.axes]
    assert {"$k_1$, $k_3$", "$k_2$"} <= labels[0]  # one value
    assert {"$k_1$", "$k_2$", "$k_3$"} <= labels[1] & labels[2]  # three pushes


# ---------------------------------------------------------------------------- variances
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


@pytest.mark.parametrize("loss", [rho * k1, rho * k3])
def test_the_coefficient_is_the_slope_of_the_literal_loss(loss):
    # rho k1 and rho k3 at mu = q: with log q moved by h, rho = exp(h) and r falls by the same factor
    def literal(h: float, r: float) -> float:
        moved = r * np.exp(-h)
        return np.exp(h) * (-np.log(moved) if loss == rho * k1 else moved - 1 - np.log(moved))

    for r in (0.2, 1.0, 5.0):
        expected = slope(lambda h, r=r: literal(h, r), 0.0, 1e-6)
        assert coefficient(loss, np.array([r]))[0] == pytest.approx(expected, abs=1e-8)


def test_a_loss_that_the_claim_does_not_speak_of_is_refused():
    with pytest.raises(ValueError, match="does not speak of"):
        coefficient(k2 * k1, np.array([1.0]))


# ---------------------------------------------------------------------------- errata
def refuted():
    for name, claim in load().items():
        if claim.verdict == "corrected":
            yield from ((name, proof) for proof in recall(name).proofs if proof.theorem.kind == "refuted")


def test_the_sides_of_the_zero_mean_variable_by_hand():
    # E_q[1 - q/p] at q = (1/2, 1/2), p = (1/4, 3/4): 1 - (2 + 2/3)/2
    (proof,) = (proof for name, proof in refuted() if name == "value.zero-mean-variable")
    assert sides(proof) == pytest.approx((1 - (2 + 2 / 3) / 2, 0))


def test_a_proved_theorem_has_no_refuting_model():
    with pytest.raises(ValueError, match="no model refutes it"):
        sides(recall("gradient.k3-loss").proofs[0])
