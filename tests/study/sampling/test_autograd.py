"""The interface to automatic differentiation, the same for PyTorch and JAX: answers known by hand, Gaussians,
ties, and refusals.  The comparison with klsym's own gradients is in `test_autograd_judge.py`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import sympy

from klsym.errors import UsageError
from klsym.language.expressions import A, R, clip, k1, k2, k3, log_q, rho, sg
from klsym.study.sampling.autograd import differentiate_samples, estimate_expected_gradient

LQ, LP, LM = np.array([-1.0, -2.0, -0.5]), np.array([-0.7, -1.1, -2.0]), np.array([-2.0, -0.4, -1.0])
REWARD = np.array([1.0, -2.0, 0.5])
FREE = {"log_p": LP, "A": REWARD}
INSIDE = np.abs(LQ - LP) < 0.5  # where clip(k1, -0.5, 0.5) does not bind


@pytest.fixture(params=["torch", "jax"])
def backend(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


# ---------------------------------------------------------------------------- known answers
RHO, RATIO = np.exp(LQ - LM), np.exp(LP - LQ)
HALF = sympy.Rational(1, 2)
KEPT = np.where(REWARD > 0, RHO < 2, RHO > 0.5)  # where the clipped surrogate has a slope
KNOWN = (
    (k1, "on-policy", "loss", np.ones(3)),
    (k2, "on-policy", "loss", LQ - LP),
    (k3, "on-policy", "loss", 1 - RATIO),
    (rho, "on-policy", "loss", np.ones(3)),  # q/sg(q): value 1, gradient s
    (sg(rho), "on-policy", "loss", np.zeros(3)),
    (rho * k1, "on-policy", "loss", LQ - LP + 1),
    (rho * k1, "off-policy", "loss", RHO * (LQ - LP + 1)),
    (sg(rho) * k2, "off-policy", "loss", RHO * (LQ - LP)),
    (rho * sg(k1), "off-policy", "loss", RHO * (LQ - LP)),
    (k1, "on-policy", "reward", LQ - LP),
    (rho * k3, "off-policy", "reward", RHO * (RATIO - 1 + LQ - LP)),
    (A, "off-policy", "reward", REWARD),
    (A, "off-policy", "loss", np.zeros(3)),
    (sg(k1) * log_q, "on-policy", "loss", LQ - LP),
    (R * log_q, "on-policy", "loss", LQ),  # R is log q here: what is passed in is a constant
    (abs(k1), "on-policy", "loss", np.sign(LQ - LP)),
    (clip(k1, -HALF, HALF) * rho, "off-policy", "loss", RHO * (np.clip(LQ - LP, -0.5, 0.5) + INSIDE)),
    (sympy.Min(rho * A, clip(rho, HALF, 2) * A), "off-policy", "loss", RHO * REWARD * KEPT),
    (sympy.Rational(1, 3), "on-policy", "loss", np.zeros(3)),
    (sympy.Rational(1, 3), "on-policy", "reward", np.full(3, 1 / 3)),
)


@pytest.mark.parametrize(
    ("loss", "sampling", "use", "expected"), KNOWN, ids=[f"{a}-{b}-{c}" for a, b, c, _ in KNOWN]
)
@pytest.mark.share(3)
def test_per_sample(backend: str, loss: Any, sampling: str, use: str, expected: np.ndarray) -> None:
    values = FREE | {"R": LQ} | ({"log_mu": LM} if sampling == "off-policy" else {})
    found = differentiate_samples(loss, LQ, values, sampling=sampling, use=use, backend=backend)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


def test_any_shape_and_any_array(backend: str) -> None:
    """Lists, single precision, numbers and the library's own arrays; the answer has the shape of log q."""
    table = np.arange(6.0).reshape(2, 3)
    found = differentiate_samples(k2, -table, {"log_p": -1.0}, backend=backend)
    assert found.tolist() == (1 - table).tolist()
    assert differentiate_samples(k2, -1.0, {"log_p": 1}, backend=backend) == -2
    single = differentiate_samples(k2, LQ.astype(np.float32), {"log_p": LP.tolist()}, backend=backend)
    assert single.dtype == np.float64
    if backend == "torch":
        import torch

        own = torch.tensor(LQ, requires_grad=True)
        with torch.no_grad():
            assert np.array_equal(differentiate_samples(k2, own, {"log_p": own + 1}), -np.ones(3))
            assert not torch.is_grad_enabled()
        assert own.grad is None
    else:
        import jax.numpy as jnp

        own = jnp.asarray(LQ, dtype=jnp.float32)
        found = differentiate_samples(k2, own, {"log_p": own + 1}, backend="jax")
        np.testing.assert_allclose(found, -np.ones(3), rtol=1e-6)


TIES = (
    (clip(k1, -1, 0), 1.0),
    (clip(k1, 0, 1), 1.0),
    (clip(k1, 0, 0), 1.0),
    (abs(k1), 0.0),
    (sympy.Min(k1, 0), 0.5),
    (sympy.Max(k1, 0), 0.5),
    (sympy.Max(k1, sg(k1)), 0.5),
    (clip(rho, 1, 2), 1.0),  # on-policy rho is 1, so that this is a tie at every sample
    (k3, 0.0),
)


@pytest.mark.parametrize(("loss", "expected"), TIES, ids=[str(loss) for loss, _ in TIES])
def test_slopes_at_ties_are_those_of_klsym(backend: str, loss: Any, expected: float) -> None:
    """`sympy.diff` with the conventions of klsym's expressions; JAX's own abs and clip have others."""
    found = differentiate_samples(loss, LQ, {"log_p": LQ}, backend=backend)
    assert found.tolist() == [expected] * 3


def test_slope_of_k3_near_zero(backend: str) -> None:
    """-expm1(-k1), where 1 - exp(-k1) has lost its digits, and no nan where exp overflows."""
    size = np.array([0.0, 1e-12, 1e-5, 0.2499, 0.25, 0.2501, 3.0, 1e4])
    found = differentiate_samples(k3, size, {"log_p": 0.0}, backend=backend)
    np.testing.assert_allclose(found, -np.expm1(-size), rtol=4e-15)


def test_bounds_that_cross_follow_torch_clamp() -> None:
    torch = pytest.importorskip("torch")
    p = [torch.tensor(x) for x in (LP, LM, REWARD)]
    live = torch.tensor(LQ, requires_grad=True)
    x, lo, hi = live - p[0], torch.exp(live - p[1]), live * p[2]
    assert (lo > hi).any() and (lo < hi).any()
    [expected] = torch.autograd.grad(torch.clamp(x, lo, hi).sum(), live)
    values = FREE | {"log_mu": LM}
    found = differentiate_samples(clip(k1, rho, log_q * A), LQ, values, sampling="off-policy")
    np.testing.assert_allclose(found, expected, rtol=1e-14)


# ---------------------------------------------------------------------------- softmax
def test_softmax_targets(backend: str) -> None:
    """With exact weights: rho*k1 off-policy is grad KL(q||p), and k1 on-policy is 0."""
    q, p, mu = (np.array(row) / sum(row) for row in ([1.0, 2, 3], [3.0, 1, 1], [1.0, 1, 2]))
    k = np.log(q / p)
    expected = q * (k - q @ k)
    given = {"log_p": np.log(p), "log_mu": np.log(mu)}
    off = estimate_expected_gradient(rho * k1, np.log(q), mu, given, sampling="off-policy", backend=backend)
    np.testing.assert_allclose(off, expected, atol=1e-15)
    on = {"log_p": np.log(p)}
    np.testing.assert_allclose(
        estimate_expected_gradient(k2, np.log(q) + 9, q, on, backend=backend), expected, atol=1e-14
    )
    np.testing.assert_allclose(
        estimate_expected_gradient(k1, np.log(q), q, on, backend=backend), 0, atol=1e-15
    )
    reward = estimate_expected_gradient(k1, np.log(q), q, on, use="reward", backend=backend)
    np.testing.assert_allclose(reward, expected, atol=1e-15)


# ---------------------------------------------------------------------------- refusals
def per_sample(**change: Any) -> Any:
    given = {"loss": k1 * A, "log_q": LQ, "values": FREE} | change
    return differentiate_samples(given.pop("loss"), given.pop("log_q"), given.pop("values"), **given)


def softmax(**change: Any) -> Any:
    given = {"logits": LQ, "weights": [0.25, 0.25, 0.5], "values": FREE} | change
    return estimate_expected_gradient(
        k1 * A, given.pop("logits"), given.pop("weights"), given.pop("values"), **given
    )


REFUSED = (
    (per_sample, {"sampling": "on"}, "sampling='on': one of on-policy, off-policy expected"),
    (per_sample, {"use": None}, "use=None: one of loss, reward expected"),
    (per_sample, {"use": "penalty"}, "use='penalty': one of loss, reward expected"),
    (per_sample, {"device": "abacus"}, "no device 'abacus'"),
    (per_sample, {"device": "cuda:99"}, "no device 'cuda:99'"),
    (per_sample, {"values": FREE | {"log_mu": LM}}, "values['log_mu']: leave it out, on-policy it is log q"),
    (per_sample, {"values": FREE | {"log_q": LQ}}, "values['log_q']: leave it out"),
    (per_sample, {"values": {"log_p": LP}}, "no value for A"),
    (per_sample, {"loss": rho, "sampling": "off-policy"}, "no value for log_mu"),
    (per_sample, {"loss": "k1"}, "a SymPy expression expected"),
    (per_sample, {"loss": sympy.cos(k1)}, "cos cannot be evaluated"),
    (per_sample, {"values": FREE | {"A": [1.0, 2.0]}}, "values['A'] has shape (2,), log q has (3,)"),
    (per_sample, {"values": FREE | {"A": [[1.0], [2.0]]}}, "values['A'] has shape (2, 1)"),
    (per_sample, {"values": FREE | {"A": "abc"}}, "values['A']: numbers expected, got 'abc'"),
    (per_sample, {"log_q": ["a", "b"]}, "log_q: numbers expected"),
    (per_sample, {"log_q": [[1.0], [2.0, 3.0]]}, "log_q: numbers expected"),
    (softmax, {"weights": [1, 1, 2]}, "weights sum to 4.0, not to 1: pass counts/N"),
    (softmax, {"weights": [0.5, 0.5]}, "logits and weights of one shape (n,) expected, got (3,) and (2,)"),
    (softmax, {"logits": [LQ], "weights": [LQ]}, "got (1, 3) and (1, 3)"),
    (softmax, {"weights": [np.nan, 0.5, 0.5]}, "weights sum to nan"),
    (softmax, {"logits": [np.nan, 0.0, 0.0]}, "logits: finite numbers expected"),
    (softmax, {"values": {"log_p": LP[:2], "A": 1.0}}, "values['log_p'] has shape (2,)"),
)


@pytest.mark.parametrize(("call", "change", "message"), REFUSED, ids=[row[2][:40] for row in REFUSED])
def test_refusals(backend: str, call: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        call(backend=backend, **change)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [per_sample, softmax])
def test_what_the_refusals_change_is_all_that_is_wrong(backend: str, call: Any) -> None:
    assert np.all(np.isfinite(call(backend=backend)))


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        UsageError, match=rf'^backend {name}: not installed; try: pip install "klsym\[{name}\]"$'
    ):
        per_sample(backend=name)


@pytest.mark.parametrize("call", [per_sample, softmax])
def test_an_unknown_backend_is_refused(call: Any) -> None:
    for name in ("numpy", "Torch", None):  # NumPy does not differentiate
        with pytest.raises(UsageError, match="one of torch, jax expected"):
            call(backend=name)
