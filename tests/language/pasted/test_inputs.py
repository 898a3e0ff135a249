"""Names of inputs: returns at each step, values that a line changes in place, one-hot labels."""

from __future__ import annotations

import re

import numpy as np
import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.expressions import R, log_q
from klsym.language.spellings import read_loss
from klsym.language.sums import Normalised

IN_PLACE = "{0} -= np.mean({0}); {0} /= np.std({0}); loss = tf.reduce_mean(neg_log_prob * {0})"


@pytest.mark.parametrize("name", ["discounted_ep_rs", "ep_rs", "discounted_rewards", "returns", "rewards"])
def test_returns_that_are_normalised_in_place(name: str) -> None:
    assert read_loss(IN_PLACE.format(name)).expression == -log_q * Normalised(R)


@pytest.mark.parametrize("name", ["vt", "self.tf_vt", "tf_vt"])
def test_a_return_of_each_step_multiplies_alone(name: str) -> None:
    answer = " ".join(str(klsym.explain(f"loss = tf.reduce_mean(neg_log_prob * {name})")).split())
    assert "maximises E_q[R]" in answer and f"{name} is R, the return from each step on" in answer


@pytest.mark.parametrize(
    "code",
    [
        "adv = R - vt; loss = -mean(adv*logp)",
        "loss = mean((vt - R)**2)",
        "delta = r + gamma*vt - v; loss = -mean(delta*logp)",
        "loss = -mean(logp*(A + vt))",
        "vt = vt - 1; loss = vt*logp",
        "loss = -mean(logp*R) + 0.5*mean(exp(vt))",
    ],
)
def test_elsewhere_it_may_be_a_value_of_a_critic(code: str) -> None:
    with pytest.raises(UsageError):
        klsym.explain(code)


def follow(code: str) -> str:
    """Return what the command that a refusal prints answers."""
    with pytest.raises(UsageError) as refusal:
        klsym.explain(code)
    [command] = re.findall(r"klsym explain '([^']*)'", str(refusal.value))
    return str(klsym.explain(command))


@pytest.mark.parametrize(
    "code",
    [
        "y_ = y_ * reward; loss = -mean(y_ * log(y))",
        "loss = -mean(y_ * reward * log(y))",
        "loss = -tf.reduce_mean(tf.reduce_sum(labels*tf.log(probs), 1)*R)",
        "loss = -(y_true * torch.log(pred)).sum(-1).mul(returns).mean()",
    ],
)
def test_one_hot_labels_are_asked_for_with_a_command_that_answers(code: str) -> None:
    assert "maximises E_q[R]" in follow(code)


def test_the_gradient_of_the_one_hot_loss_is_that_of_the_drawn_action() -> None:
    probabilities, reward, drawn = np.array([0.2, 0.5, 0.3]), 1.7, 1
    logits, step = np.log(probabilities), 1e-6

    def loss(x: np.ndarray) -> float:
        q = np.exp(x) / np.exp(x).sum()
        return float(-(np.eye(3)[drawn] * reward * np.log(q)).sum())

    for logit in range(3):
        shift = step * np.eye(3)[logit]
        slope = (loss(logits + shift) - loss(logits - shift)) / (2 * step)
        assert slope == pytest.approx(-reward * ((logit == drawn) - probabilities[logit]), rel=1e-5)


@pytest.mark.parametrize(
    "code",
    ["loss = -mean(labels * logp)", "loss = k1 + y_", "y_ -= 1; loss = y_*k1", "loss = -log(y)*R + target"],
)
def test_labels_without_a_log_are_not_taken_for_one_hot(code: str) -> None:
    with pytest.raises(UsageError) as refusal:
        klsym.explain(code)
    assert "one-hot" not in str(refusal.value)


@pytest.mark.parametrize("code", [IN_PLACE.format("x"), "x = x*2; loss = -logp*x", "w **= 2; loss = -w*logp"])
def test_an_input_of_unknown_meaning_is_asked_for(code: str) -> None:
    name = code[0]
    with pytest.raises(UsageError, match=rf"it is an input: .*`{name} = R; \.\.\.`"):
        klsym.explain(code)
    assert klsym.explain(f"{name} = R; {code}")
