"""Audits of JAX, through its jaxprs, and of rewards in NumPy."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from klsym import calculus
from klsym.audit import audits
from klsym.errors import UsageError

ON, OFF = "on-policy", "off-policy"
JAX = {
    "k3_loss": (ON, "k3", "forward-kl", "by itself"),
    "detached_ratio_k2": (OFF, "k2*sg(rho)", "reverse-kl", "by itself"),
    "clipped": (ON, "exp(min(10, max(-10, -k1))) - min(10, max(-10, -k1)) - 1", "f-divergence", "by itself"),
    "masked_sequence_mean": (ON, "k2", "no-objective", "averaged over the tokens of each sequence"),
    "straight_through": (ON, "k2 + sg(k3 - k2)", "reverse-kl", "by itself"),
    "short_floats": (ON, "k2/50", "reverse-kl", "by itself"),
    "cut_at_the_start": (ON, "k2", "no-objective", "averaged over all tokens of the batch"),
    "cut_alike": (ON, "k2", "no-objective", "summed"),
    "cut_at_the_end": (ON, "k3", "no-objective", "summed"),
    "cut_within": (ON, "log_q*sg(k1)", "no-objective", "summed"),
}
CUT = "indexing that takes out a part of a tensor is not read"
REFUSED = {
    "unknown": "cumsum is not read",
    "branch": "TracerBool",
    "strided": CUT,
    "two_less": CUT,
    "one_sequence": CUT,
    "shapes_that_do_not_fit": "incompatible shapes",
}


@pytest.mark.parametrize("name", JAX)
@pytest.mark.share(3)
def test_jax(name):
    pytest.importorskip("jax")
    from support.audits import audited_jax

    sampling, expression, target, tokens = JAX[name]
    found = audits.audit(getattr(audited_jax, name), sampling=sampling)
    assert (found.framework, found.target) == ("jax", target)
    assert calculus.parse(found.expression).expand() == calculus.parse(expression).expand()
    assert tokens in found.tokens.words


@pytest.mark.parametrize("name", REFUSED)
def test_jax_refusals(name):
    pytest.importorskip("jax")
    from support.audits import audited_jax

    with pytest.raises(UsageError, match=rf"audited_jax.py, line \d+: .*{REFUSED[name]}"):
        audits.audit(getattr(audited_jax, name))


def test_tokens_beside_one_another_in_jax():
    pytest.importorskip("jax")
    from support.audits import audited_jax

    with pytest.raises(UsageError, match="cut differently: neighbouring tokens are combined"):
        audits.audit(audited_jax.shifted)


REWARDS = {"k1_reward": ("k1", "reverse-kl"), "k3_reward": ("k3", "combination"),
           "clipped_reward": ("clip(k1, -5, 5)", "f-divergence")}  # fmt: skip


@pytest.mark.parametrize("name", REWARDS)
def test_numpy_rewards(name):
    from support.audits import audited_numpy

    found = audits.audit(getattr(audited_numpy, name), use="reward")
    assert found.framework == "numpy" and (found.expression, found.target) == REWARDS[name]


def test_numpy_refusals():
    from support.audits import audited_numpy

    with pytest.raises(UsageError, match=r"audited_numpy.py, line \d+: a branch on data is not read"):
        audits.audit(audited_numpy.branch, use="reward")
    with pytest.raises(UsageError, match="NumPy has no gradient: --use reward"):
        audits.audit(audited_numpy.k1_reward, use="loss")


def _k3(d):
    return np.exp(d) - d - 1


def _operators(logp, ref_logp):
    return (logp - ref_logp) ** 2 / 2


def _in_a_helper(logp, ref_logp):
    return _k3(ref_logp - logp)


def _in_a_lambda(logp, ref_logp):
    return (lambda d: np.exp(d) - d - 1)(ref_logp - logp)


def _returned_beside(logp, ref_logp):
    return logp - ref_logp, _k3(ref_logp - logp)


WITHOUT_TORCH = {_operators: "k2", _in_a_helper: "k3", _in_a_lambda: "k3", _returned_beside: "k1"}
FILES = {
    "from helpers import k3\ndef f(logp, ref_logp):\n    return k3(ref_logp - logp)\n": "k3",
    "import numpy as np\ndef f(logp, ref_logp):\n    return np.square(logp - ref_logp) / 2\n": "k2",
    "import numpy as np\ndef f(logp, ref_logp):\n    return logp - ref_logp\n": "k1",
    "def f(logp, ref_logp):\n    return logp - ref_logp\n": "k1",
}


@pytest.mark.parametrize("function", WITHOUT_TORCH)
def test_numpy_needs_no_other_library(function, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = audits.audit(function, use="reward")
    assert (found.framework, found.expression) == ("numpy", WITHOUT_TORCH[function])


@pytest.mark.parametrize("text", FILES)
def test_numpy_files_need_no_other_library(text, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    helper = "import numpy as np\ndef k3(d):\n    return np.exp(d) - d - 1\n"
    (tmp_path / "helpers.py").write_text(helper, encoding="utf-8")
    (tmp_path / "reward.py").write_text(text, encoding="utf-8")
    found = audits.audit(f"{tmp_path}/reward.py:f", use="reward")
    assert (found.framework, found.expression) == ("numpy", FILES[text])


@pytest.mark.parametrize("function", [_operators])
def test_a_gradient_needs_a_library_that_has_one(function, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match="needs torch, which is not installed: pip install"):
        audits.audit(function)


@pytest.mark.parametrize("function", [_in_a_helper, _in_a_lambda])
def test_numpy_in_a_helper_has_no_gradient(function):
    with pytest.raises(UsageError, match="NumPy has no gradient: --use reward"):
        audits.audit(function)
