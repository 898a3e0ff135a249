"""klsym's per-sample gradients against JAX: real `jax.lax.stop_gradient`, real `jax.grad`, in float64.

What a difference is measured against stands in `autograd_judge`; JAX has a smaller share of the losses
than PyTorch, as each of its operations is compiled.
"""

from __future__ import annotations

from collections import Counter

import autograd_judge as judge
import loss_oracle as oracle
import numpy as np
import pytest
from random_losses import Case

from klsym.parser import parse

jax = pytest.importorskip("jax")

SEED = 12
COUNT = 300
BATCH = 100


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_ring_losses(first: int) -> None:
    """A detached reward h is trained as sg(h) log q, and autograd gives back h."""
    wrong = {}
    for case in judge.ring_cases(SEED, COUNT)[first : first + BATCH]:
        misses = judge.ring_gradient(case).misses(judge.autograd(parse(case.text), case, "jax"))
        if not misses < judge.AGREE:
            wrong[case] = misses
    assert not wrong


def test_losses_outside_the_ring() -> None:
    """Clip, min, max, abs, log(1 + .), sqrt(1 + .), none of them at a tie."""
    wrong = {}
    for case in judge.outside_cases(SEED, 20):
        misses = judge.outside_gradient(case).misses(judge.autograd(parse(case.text), case, "jax"))
        if not misses < judge.AGREE:
            wrong[case] = misses
    assert not wrong


@pytest.mark.parametrize("name", judge.WRONG)
def test_a_wrong_detach_is_flagged(name: str) -> None:
    """Flagged exactly where the exact normal forms differ: no false alarm, nothing missed."""
    outcomes = Counter()
    for case in judge.ring_cases(SEED, 60):
        loss = parse(case.text)
        wrong = judge.WRONG[name](loss, case)
        if case.use == "loss" and wrong != loss:
            differs, flagged = judge.judge_wrong(case, wrong, "jax")
            assert flagged == differs, (case, wrong)
            outcomes[flagged] += 1
    assert outcomes[True] >= 4, outcomes


def test_literal_jax_code_agrees() -> None:
    """Training code as people write it, without klsym: `evaluate` stands for the same loss."""
    import jax.numpy as jnp

    names = judge.atoms("off-policy")
    stop = jax.lax.stop_gradient

    def written(text, log_q):
        ratio, k1 = jnp.exp(log_q - names["log_mu"]), log_q - names["log_p"]
        return {
            "rho*k3": ratio * (jnp.exp(-k1) - 1 + k1),
            "sg(rho)*k2": stop(ratio) * k1**2 / 2,
            "sg(k1)*log_q": stop(k1) * log_q,
            "clip(k1, -0.5, 0.5)*rho": jnp.clip(k1, -0.5, 0.5) * ratio,
            "abs(k1)": jnp.abs(k1),
        }[text].sum()

    for text in ("rho*k3", "sg(rho)*k2", "sg(k1)*log_q", "clip(k1, -0.5, 0.5)*rho", "abs(k1)"):
        with jax.enable_x64(True):
            literal = jax.grad(lambda x, text=text: written(text, x))(jnp.asarray(names["log_q"]))
        found = judge.autograd(parse(text), Case(text, "off-policy", "loss"), "jax")
        np.testing.assert_allclose(found, literal, rtol=1e-12)


def test_expected_gradient_of_a_softmax() -> None:
    """Through real log_softmax, against the per-sample form and against the literal complex step."""
    stack = oracle.random_models(seed=8, copies=1)[2]  # each size is compiled anew
    wrong = {}
    for case in judge.ring_cases(SEED + 1, 40):
        misses = judge.softmax_misses(case, stack, "jax")
        if not misses < judge.AGREE:
            wrong[case] = misses
    assert not wrong
