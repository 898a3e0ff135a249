"""Penalties in JAX and NumPy; see `audited` for PyTorch."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def k3_loss(logp, ref_logp):
    d = ref_logp - logp
    return jnp.expm1(d) - d


def detached_ratio_k2(logp, ref_logp, old_logp):
    ratio = jax.lax.stop_gradient(jnp.exp(logp - old_logp))
    return ratio * 0.5 * jnp.square(logp - ref_logp)


@jax.jit
def clipped(logp, ref_logp):
    d = jnp.clip(ref_logp - logp, -10.0, 10.0)
    return jnp.exp(d) - d - 1


def masked_sequence_mean(logp, ref_logp, mask):
    kl = jnp.where(mask, 0.5 * (logp - ref_logp) ** 2, 0.0)
    return (kl.sum(-1) / jnp.maximum(mask.sum(-1), 1)).mean()


def straight_through(logp, ref_logp):
    k2 = 0.5 * (logp - ref_logp) ** 2
    return k2 + jax.lax.stop_gradient(k3_loss(logp, ref_logp) - k2)


def short_floats(logp, ref_logp):
    d = (ref_logp.astype(jnp.float32) - logp.astype(jnp.bfloat16)) * 0.1
    return jnp.square(d)


def unknown(logp, ref_logp):
    return jnp.cumsum(logp - ref_logp, axis=-1)


def branch(logp, ref_logp):
    return logp if jnp.sum(logp - ref_logp) > 0 else ref_logp
