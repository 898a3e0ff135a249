"""R - (R.sum() - R)/(n - 1) of pasted code, against the numbers that NumPy computes of it."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import klsym
from klsym.errors import UsageError
from klsym.language.expressions import R, log_q, parameter
from klsym.language.spellings import read_loss
from klsym.language.sums import OverBatch

REWARDS = np.array([0.7, -1.2, 0.4, 2.0])
LOGS = np.array([-0.3, -1.1, -0.5, -2.0])

READ = [
    ("A = R - (R.sum() - R)/(n - 1); loss = -A.detach()*logp", "R", "n"),
    ("baseline = (R.sum() - R)/(n - 1); loss = -((R - baseline)*logp).mean()", "R", "n"),
    ("A = n/(n - 1)*(R - R.mean()); loss = -A.detach()*logp", "R", "n"),
    ("A = n/(n - 1)*(R - R.sum()/n); loss = -A.detach()*logp", "R", "n"),
    (
        "b = (rewards.sum(-1, keepdims=True) - rewards) / (n_samples_per_prompt - 1);"
        " loss = -((rewards - b)*logp).mean()",
        "rewards",
        "n_samples_per_prompt",
    ),
    ("b = (scores.sum(0) - scores)/(rloo_k - 1); loss = -((scores - b)*logp).mean()", "scores", "rloo_k"),
    ("b = (R.sum() - R)/(len(R) - 1); loss = -((R - b)*logp).mean()", "R", "n"),
]


class Held(np.ndarray):
    """An array with .detach()."""

    def detach(self) -> np.ndarray:
        return self


def run(code: str, reward: str, count: str) -> np.ndarray:
    """Return what NumPy makes of these lines, without the mean of the loss."""
    lines = code.replace(".mean()\n", "\n").split(";")
    names = {reward: REWARDS.view(Held), count: len(REWARDS), "logp": LOGS, "len": len}
    for line in lines:
        name, _, formula = line.strip().partition(" = ")
        is_mean = name == "loss" and formula.endswith(".mean()")
        tree = compile(formula.removesuffix(".mean()") if is_mean else formula, "test", "eval")
        names[name] = eval(tree, {}, names)
    return np.asarray(names["loss"])


def at_samples(e: sympy.Expr) -> np.ndarray:
    """Return an expression at each sample of the batch."""
    values = []
    for i, (reward, log) in enumerate(zip(REWARDS, LOGS, strict=True)):
        rest = REWARDS.sum() - reward
        opened = e.replace(lambda x: isinstance(x, OverBatch), lambda x, rest=rest: x.combine(R, rest))
        opened = opened.replace(lambda x: type(x).__name__ == "sg", lambda x: x.args[0])
        values.append(float(opened.subs({R: reward, log_q: log, parameter("n"): len(REWARDS)})))
        assert i < len(REWARDS)
    return np.array(values)


@pytest.mark.parametrize(("code", "reward", "count"), READ)
def test_what_is_read_has_the_values_of_the_code(code: str, reward: str, count: str) -> None:
    assert at_samples(read_loss(code).expression) == pytest.approx(run(code, reward, count))


@pytest.mark.parametrize(("code", "reward", "count"), READ)
def test_each_has_the_gradient_of_loo(code: str, reward: str, count: str) -> None:
    comparison = klsym.compare(code, "-sg(loo(R))*log_q")
    assert "the same at each sample" in str(comparison)


OTHER = [
    "-(R - (R.sum() - R)/n)*logp",
    "-(R - (R.sum() - R)/(n + 1))*logp",
    "-(R - (R.sum() - 2*R)/(n - 1))*logp",
    "-(R - (R.sum() + R)/(n - 1))*logp",
    "-(R - (R.sum() - R)/(T - 1))*logp",
    "-((R - (R.sum() - R)/(batch_size - 1))*logp).mean()",
    "-((R - (R.sum() - R)/(num_tokens - 1))*logp).mean()",
    "-((R - (R.sum() - R)/(n - 2))*logp).mean()",
]


@pytest.mark.parametrize("code", OTHER)
def test_other_sums_are_refused_with_what_to_type(code: str) -> None:
    with pytest.raises(UsageError, match=r"type loo\(R\)"):
        read_loss(code)


@pytest.mark.parametrize(
    "code",
    [
        "-(R - (logp.sum() - logp)/(n - 1))*logp",
        "-(k3.sum() - k3)/(n - 1)",
        "-((R - ((R*mask).sum() - R)/(n - 1))*logp).mean()",
        "-(R - beta*k1 - ((R - beta*k1).sum() - (R - beta*k1))/(n - 1))*logp",
    ],
)
def test_sums_of_other_than_rewards_are_refused(code: str) -> None:
    with pytest.raises(UsageError):
        read_loss(code)


def test_the_mean_of_others_of_other_rewards_is_no_loo() -> None:
    assert "loo" not in str(read_loss("-(A - (R.sum() - R)/(n - 1))*logp").expression)


def test_a_sum_that_is_read_is_not_said_to_be_left_out() -> None:
    answer = str(klsym.explain(READ[4][0]))
    assert "n_samples_per_prompt is n, the size of a group" in " ".join(answer.split())
    assert "sum()" not in answer
