"""Exact mean squared errors of the estimates of KL(q||p) and of its gradient, bandit by bandit.

    E|estimate - truth|^2 = |bias|^2 + trace Cov

with every expectation a sum over arms: no sampling.  The softmax score is s(y) = e_y - q, so that
|s(y)|^2 = 1 - 2 q_y + sum q^2.
"""

from __future__ import annotations

import numpy as np

from klsym.errors import UsageError
from klsym.experiments.softmax import Array, at_least, kl, penalty
from klsym.experiments.tang_munos.bandits import GRADIENTS, VALUES, kl_gradient, score_coefficient


def value_bias_variance(name: str, log_q: Array, log_p: Array) -> tuple[Array, Array]:
    """Bias of one sample of k1, k2 or k3 as an estimate of KL(q||p), and its variance; shape (...) each.

    >>> bias, variance = value_bias_variance("k1", np.log([0.5, 0.5]), np.log([0.25, 0.75]))
    >>> float(bias), round(float(variance), 4)
    (0.0, 0.3017)
    """
    if name not in VALUES:
        raise UsageError(f"{name!r} is no estimate of the value: one of {', '.join(VALUES)}")
    q, value = np.exp(log_q), penalty(name, log_q - log_p)
    mean = (q * value).sum(-1, keepdims=True)
    bias = mean[..., 0] - kl(log_q, log_p) if name == "k2" else np.zeros(mean.shape[:-1])
    return bias, (q * (value - mean) ** 2).sum(-1)


def value_mse(name: str, log_q: Array, log_p: Array, n: int) -> Array:
    """E (mean of n samples - KL)^2 = bias^2 + Var/n, in nats^2, shape of the leading axes."""
    bias, variance = value_bias_variance(name, log_q, log_p)
    return bias**2 + variance / at_least("n", n, 1)


def gradient_bias(name: str, log_q: Array, log_p: Array) -> Array:
    """Mean of an estimate of grad KL(q||p) minus the gradient, shape (..., arms).

    k1 loss: -grad KL(q||p).  k3 loss: grad KL(p||q) - grad KL(q||p), with grad KL(p||q) = q - p in the
    logits.  The other two: zero.
    """
    exact = kl_gradient(log_q, log_p)
    if _known(name) == "k1 loss":
        return -exact
    return np.exp(log_q) - np.exp(log_p) - exact if name == "k3 loss" else np.zeros_like(exact)


def gradient_mse(name: str, log_q: Array, log_p: Array, n: int) -> Array:
    """E|estimate - grad KL(q||p)|^2 at n samples, summed over the logits, shape of the leading axes.

    A mean of n terms c s has trace Cov = (E c^2|s|^2 - |E c s|^2)/n.  With the leave-one-out control
    variate the estimate is a U-statistic with kernel (k1_i - k1_j)(s_i - s_j)/2, hence

        trace Cov = (4 (n-2) zeta_1 + 2 zeta_2)/(n (n-1)),
        4 zeta_1 = E (k1 - KL)^2 |s|^2 - |g|^2,   zeta_2 = Var k1 - |g|^2,   g = grad KL(q||p):

    zeta_2 uses |s_i - s_j|^2 = 2 for two different arms.

    Raises UsageError: an unknown estimate; n < 1, or n < 2 with leave-one-out.
    Source: Tang & Munos 2025, appendix C; Hoeffding 1948 for the variance of a U-statistic.
    """
    at_least("n", n, 2 if _known(name) == "leave-one-out" else 1)
    q, k1 = np.exp(log_q), log_q - log_p
    score = 1 - 2 * q + (q**2).sum(-1, keepdims=True)
    bias = (gradient_bias(name, log_q, log_p) ** 2).sum(-1)
    if name == "leave-one-out":
        centred = k1 - kl(log_q, log_p)[..., None]
        squared = (kl_gradient(log_q, log_p) ** 2).sum(-1)
        four_zeta_1 = (q * centred**2 * score).sum(-1) - squared
        zeta_2 = (q * centred**2).sum(-1) - squared
        return ((n - 2) * four_zeta_1 + 2 * zeta_2) / (n * (n - 1))
    c = score_coefficient(name, k1)
    mean = q * (c - (q * c).sum(-1, keepdims=True))
    variance = (q * c**2 * score).sum(-1) - (mean**2).sum(-1)
    return bias + variance / n


def _known(name: str) -> str:
    if name not in GRADIENTS:
        raise UsageError(f"{name!r} is no estimate of the gradient: one of {', '.join(GRADIENTS)}")
    return name
