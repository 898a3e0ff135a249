"""The oracle of losses, itself judged: by differences of plain means, by hand, and by what books say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.oracle.grammar import evaluate, parsed
from support.oracle.losses import Forest, Node, Setting, Tree, samples, trees

STEP = 1e-5
DEEP = ((), ((), ((), ())))
LOSSES = (
    "k1", "k2*rho", "rho*k3 - k1*log_mu", "k(lam)**2 - beta*R*A", "exp(-k1/2)/rho", "r**-2 + A",
    "sqrt(r)*log(1 + r)", "abs(k1)*k2", "clip(rho, 0.7, 1.3)*k1", "min(rho*A, clip(rho, 0.8, 1.2)*A)",
    "max(k1, r, rho) - -log_q**3", "r**lam", "3/7",
)  # fmt: skip
TOKENS = [Setting("off-policy", "loss", "token", weights=w, aggregate=a)
          for w in ("token", "prefix", "sequence") for a in ("sum", "mean")]  # fmt: skip
SETTINGS = [Setting("off-policy"), Setting("off-policy", level="sequence", aggregate="mean"), *TOKENS]
REWARDS = [replace(s, use="reward", credit=c) for s in SETTINGS for c in ("same-token", "to-go", "total")]
BATCHES = [Setting(on, use, level, batch, n=n)
           for on in ("on-policy", "off-policy") for use in ("loss", "reward")
           for level in ("sample", "sequence") for batch in ("mean", "leave-one-out", "std")
           for n in (2, 3)]  # fmt: skip


def worlds(setting: Setting) -> list[Tree]:
    return trees(3, ((),) * 3 if setting.level == "sample" else DEEP, 2)


def moved(at: Node, step: Any, first: int = 0) -> tuple[Node, int]:
    """The logits of a tree, numbered depth first, moved by a step."""
    after, size = [], first + len(at.logits)
    for then in at.after:
        new, size = moved(then, step, size) if then else (None, size)
        after.append(new)
    return replace(at, logits=at.logits + step[first : first + len(at.logits)], after=tuple(after)), size


def differences(of: Any, found: list[Tree], logits: int) -> np.ndarray:
    """d of(worlds) along every logit, last."""
    columns = []
    for unit in np.eye(logits) * STEP:
        ends = [
            of([replace(tree, root=moved(tree.root, sign * unit)[0]) for tree in found]) for sign in (1, -1)
        ]
        columns.append((ends[0] - ends[1]) / (2 * STEP))
    return np.array(columns)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("text", LOSSES)
@pytest.mark.share(4)
def test_fields_are_differences_of_means_under_a_fixed_measure(text: str, setting: Setting) -> None:
    found = worlds(setting)
    forest = Forest(found, ("off-policy",))
    exact = np.broadcast_to(forest.field(text, setting).a, (forest.logits, 1, 2))[:, 0]
    plain = differences(lambda w: Forest(w, ("off-policy",)).value(text, setting).value, found, forest.logits)
    np.testing.assert_allclose(exact, plain, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("setting", SETTINGS + REWARDS + BATCHES, ids=str)
@pytest.mark.parametrize("text", ["rho*k3 - sg(k1)*log_q*R", "r*A - k2"])
@pytest.mark.share(4)
def test_jacobians_are_differences_of_fields(text: str, setting: Setting) -> None:
    """On-policy the measure and everything detached move as well."""
    for sampling in ("on-policy", "off-policy"):
        found = worlds(setting)
        forest = Forest(found, (sampling,), second=True)
        exact = np.broadcast_to(forest.field(text, setting).ab, (forest.logits, forest.logits, 2))
        plain = differences(
            lambda w, m=sampling: Forest(w, (m,)).field(text, setting).a[:, 0], found, forest.logits
        )
        np.testing.assert_allclose(exact, plain.transpose(1, 0, 2), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("text", ["rho*k3", "k1*log_mu + rho**2", "abs(k1)*rho*A"])
def test_on_policy_the_sampler_is_a_detached_copy_of_q(text: str) -> None:
    def copied(at: Node) -> Node:
        q = at.logits - np.log(np.exp(at.logits).sum())
        return replace(at, log_mu=q, after=tuple(then and copied(then) for then in at.after))

    for setting in SETTINGS:
        found = worlds(setting)
        copies = [replace(tree, root=copied(tree.root)) for tree in found]
        on, off = Forest(found, ("on-policy",)), Forest(copies, ("off-policy",))
        np.testing.assert_allclose(on.field(text, setting).a, off.field(text, setting).a, atol=1e-14)


def test_what_is_detached_is_a_number() -> None:
    """sg(k1) at the outcomes is what A is set to; a reward is its own mean times the score."""
    for tree in samples(seed=9):
        forest = Forest([tree], ("off-policy",))
        k1 = forest.atom("k1", forest.whole, "x").value
        other = Forest([replace(tree, A=k1)], ("off-policy",))
        for text in ("sg(k1)*rho*k2", "exp(sg(k1))*r"):
            plain = other.field(text.replace("sg(k1)", "A"), Setting("off-policy")).a
            np.testing.assert_allclose(forest.field(text, Setting("off-policy")).a, plain, atol=1e-14)
            form = other.form("A*rho", "mu").a
            np.testing.assert_allclose(
                forest.field("k1*rho", Setting("off-policy", "reward")).a, form, atol=1e-14
            )


def test_the_textbook_gradients() -> None:
    """Well-known cases, traps among them; divergences of whole sequences are moved themselves."""
    whole, token = Setting(level="sequence"), Setting(level="token")
    for seed in range(3):
        found = trees(seed, DEEP, 3)
        on, off = Forest(found), Forest(found, ("off-policy",))
        reverse, forward = on.slope("k1").a, on.slope("-k1", "p").a
        for text, setting, forest, gradient in (
            ("k1", whole, on, 0 * reverse), ("k2", whole, on, reverse), ("k3", whole, on, forward),
            ("k3", replace(whole, use="reward"), on, reverse - forward),
            ("rho*k3", whole, off, reverse), ("sg(rho)*k2", whole, off, reverse),
            ("k1", token, on, 0 * reverse), ("k1", replace(token, use="reward"), on, reverse),
            ("rho*k3", replace(token, weights="prefix"), off, reverse),
            ("R", replace(token, use="reward"), on, on.slope("R").a),
            ("A", replace(token, use="reward"), on, on.slope("A").a),
            ("1", replace(token, use="reward", aggregate="mean", credit="same-token"), on, on.slope("1/T").a),
        ):  # fmt: skip
            np.testing.assert_allclose(forest.field(text, setting).a + 0 * reverse, gradient, atol=1e-13)
        np.testing.assert_allclose(on.form("k1_now*s_now + k1_future*s_now").a, reverse, atol=1e-13)


def test_centring_by_hand() -> None:
    """Two draws of two outcomes: leave-one-out changes no expectation on-policy, the mean halves it."""
    [tree] = trees(5, ((), ()), 1)
    forest = Forest([tree])
    plain = forest.field("R", Setting(use="reward")).a
    for batch, factor in (("leave-one-out", 1), ("mean", 1 / 2)):
        found = forest.field("R", Setting(use="reward", batch=batch)).a
        np.testing.assert_allclose(found, factor * plain, atol=1e-15)
    q = np.exp(tree.root.logits - np.log(np.exp(tree.root.logits).sum()))
    better = 1 if tree.root.R[1] > tree.root.R[0] else -1  # only the sign is left: P(the two differ), halved
    slope = q[0] * q[1] * better * np.array([-1, 1])
    np.testing.assert_allclose(
        forest.field("R", Setting(use="reward", batch="std")).a[:, 0, 0], slope, atol=1e-15
    )


@pytest.mark.parametrize("text", ["now(past(k1))", "k4", "k1(r)", "'r'", "k1 if r else 1", "[k1]"])
def test_what_is_no_loss_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Forest(samples(1, 1)).field(text)


def test_numbers_are_exact_where_they_can_be() -> None:
    assert evaluate("2**3 - 1/4", lambda name: None) == 7.75
    assert parsed(" k1 ").id == "k1"  # type: ignore[attr-defined]
