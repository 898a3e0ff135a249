"""Audits of JAX, through its jaxprs, and of rewards in NumPy."""

from __future__ import annotations

import pytest

import klsym
from klsym.errors import UsageError

ON, OFF = "on-policy", "off-policy"
JAX = {
    "k3_loss": (ON, "k3", "forward-kl", "by itself"),
    "detached_ratio_k2": (OFF, "k2*sg(rho)", "reverse-kl", "by itself"),
    "clipped": (ON, "exp(min(10, max(-10, -k1))) - min(10, max(-10, -k1)) - 1", "f-divergence", "by itself"),
    "masked_sequence_mean": (ON, "k2", "reverse-kl", "averaged over the tokens of each sequence"),
    "straight_through": (ON, "k2 + sg(k3 - k2)", "reverse-kl", "by itself"),
    "short_floats": (ON, "k2/50", "reverse-kl", "by itself"),
}


@pytest.mark.parametrize("name", JAX)
def test_jax(name):
    pytest.importorskip("jax")
    import audited_jax

    sampling, expression, target, tokens = JAX[name]
    found = klsym.audit(getattr(audited_jax, name), sampling=sampling)
    assert (found.framework, found.target) == ("jax", target)
    assert klsym.parse(found.expression).expand() == klsym.parse(expression).expand()
    assert tokens in found.tokens.words


@pytest.mark.parametrize(("name", "words"), [("unknown", "cumsum is not read"), ("branch", "TracerBool")])
def test_jax_refusals(name, words):
    pytest.importorskip("jax")
    import audited_jax

    with pytest.raises(UsageError, match=rf"audited_jax.py, line \d+: .*{words}"):
        klsym.audit(getattr(audited_jax, name))


REWARDS = {"k1_reward": ("k1", "reverse-kl"), "k3_reward": ("k3", "combination"),
           "clipped_reward": ("clip(k1, -5, 5)", "f-divergence")}  # fmt: skip


@pytest.mark.parametrize("name", REWARDS)
def test_numpy_rewards(name):
    import audited_numpy

    found = klsym.audit(getattr(audited_numpy, name), use="reward")
    assert found.framework == "numpy" and (found.expression, found.target) == REWARDS[name]


def test_numpy_refusals():
    import audited_numpy

    with pytest.raises(UsageError, match=r"audited_numpy.py, line \d+: a branch on data is not read"):
        klsym.audit(audited_numpy.branch, use="reward")
    with pytest.raises(UsageError, match="NumPy has no gradient: --use reward"):
        klsym.audit(audited_numpy.k1_reward)
