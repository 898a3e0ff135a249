"""A bound on the ratio inside k3 turns the sign of its gradient; against descent in floats."""

from __future__ import annotations

import math

import numpy as np
import pytest

import klsym
from support.losses.cases import options

TURNED = {
    "a minimum": ("min(r, 10) - 1 + k1", "", "where r > 10 the bound"),
    "a clip on both sides": ("clip(r, 0.1, 10) - 1 + k1", "", "where r > 10 the bound"),
    "a logarithm that is clipped": ("exp(clip(-k1, -20, 20)) + k1 - 1", "", "where k1 < -20 the bound"),
    "a comparison": ("where(r < 10, r, 10) - 1 + k1", "", "where r > 10 the bound"),
    "with an advantage": ("-A*log_q + beta*(min(r, 10) - 1 + k1)", "", "where r > 10 the bound"),
    "beside PPO": (
        "-min(rho*A, clip(rho, 0.8, 1.2)*A) + 0.04*(min(r, 10) - 1 + k1)", "off", "where r > 10 the bound"),
    "of each token": ("min(r, 10) - 1 + k1", "token", "where r_now > 10 the bound"),
    "a detached weight": ("sg(rho)*(min(r, 2) - 1 + k1)", "off", "where r > 2 the bound"),
    "an attached weight, whose own gradient returns": (
        "rho*(min(r, 10) - 1 + k1)", "off", "next to r > 10 the bound"),
    "half of k3": ("k1 + min(r, 3)/2", "", "where r > 3 the bound"),
}  # fmt: skip
NOT_TURNED = {
    "k3": ("k3", ""),
    "k3 clipped as a whole": ("clip(k3, -10, 10)", ""),
    "both terms clipped": ("exp(clip(-k1, -20, 20)) - clip(-k1, -20, 20) - 1", ""),
    "the ratio alone": ("min(r, 10)", ""),
    "a bound below": ("max(r, 0.1) - 1 + k1", ""),
    "k2 clipped": ("clip(k2, 0, 10)", ""),
    "a kink at q = p": ("abs(k1)", ""),
    "a bound on rho": ("clip(rho, 0, 2)*k1", "off"),
    "no reference": ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "off"),
    "in the reward": ("min(r, 10) - 1 + k1", "reward"),
    "a sign that turns without a bound": ("rho*k2", "off"),
}


def say(loss: str, words: str) -> str:
    answer = klsym.explain(loss, **options(words)).to_json()
    return {one["code"]: one["message"] for one in answer["diagnostics"]}.get("KL008", "")


@pytest.mark.parametrize("name", TURNED)
def test_the_bound_turns_the_sign(name: str) -> None:
    loss, words, place = TURNED[name]
    said = say(loss, words)
    assert place in said and "descent lowers q, which is too small there" in said


@pytest.mark.parametrize("name", NOT_TURNED)
def test_other_bounds_do_not(name: str) -> None:
    assert "turns" not in say(*NOT_TURNED[name])


def step(q: np.ndarray, p: np.ndarray, bound: float) -> np.ndarray:
    """The logits' step of descent on E_q[grad(min(r, bound) - 1 + k1)], by a sum over outcomes."""
    total = np.zeros_like(q)
    for j, (x, y) in enumerate(zip(q, p, strict=True)):
        slope = 1 - (y / x if y / x < bound else 0)
        total -= x * slope * ((np.arange(len(q)) == j) - q)
    return total


def test_descent_lowers_what_is_too_rare_and_k3_raises_it() -> None:
    q, p = np.array([0.001, 0.499, 0.5]), np.array([0.4, 0.3, 0.3])
    assert p[0] / q[0] > 10
    assert step(q, p, 10.0)[0] < 0 < step(q, p, math.inf)[0]


def test_it_comes_with_a_fix_that_has_not_the_finding() -> None:
    answer = klsym.explain("min(r, 10) - 1 + k1").to_json()
    assert answer["remedy"]["loss"] == "k2" and not say(answer["remedy"]["loss"], "")


# ---------------------------------------------------------------------------- a penalty without a lower bound
@pytest.mark.parametrize(
    ("loss", "words", "unbounded"),
    [
        ("k3", "reward", True), ("rho*k3", "reward off", True), ("r - 1", "reward", None),
        ("k2 - k3", "reward", False), ("k2", "reward", False), ("k1 - k3/2", "reward", None),
        ("k1", "reward", None), ("k3", "reward token", None),
    ],
)  # fmt: skip
def test_a_reward_that_is_unbounded_says_so(loss: str, words: str, unbounded: bool | None) -> None:
    """KL005 does for what looks like a KL; for other rewards KL013 does, and never both."""
    found = {x["code"]: x["message"] for x in klsym.explain(loss, **options(words)).to_json()["diagnostics"]}
    assert ("unbounded below" in found.get("KL005", "")) is bool(unbounded)
    assert "unbounded below" not in found.get("KL013", "") or not unbounded


def test_the_penalty_of_k3_in_the_reward_falls_without_end() -> None:
    p = np.array([0.2, 0.3, 0.5])
    values = []
    for x in (1e-10, 1e-100, 1e-300):
        q = np.array([x, *(p[1:] / 0.8 * (1 - x))])
        values.append(float((q * np.log(q / p)).sum() - (p * np.log(p / q)).sum()))
    assert values[0] > values[1] > values[2] and values[2] < -100
