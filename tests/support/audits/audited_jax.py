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


# ---------------------------------------------------------------------------- one token more, or less
def cut_at_the_start(logp, ref_logp, mask):
    return jnp.sum((logp[:, 1:] - ref_logp) ** 2 / 2 * mask) / jnp.sum(mask)


def cut_alike(logp, ref_logp, mask):
    k = logp[:, 1:] - ref_logp[:, 1:]
    return jnp.sum(k**2 / 2 * mask[:, 1:])


def cut_at_the_end(logp, ref_logp, mask):
    k = logp[:, :-1] - ref_logp
    return jnp.sum((jnp.exp(-k) - 1 + k) * mask)


def cut_within(logp, ref_logp, mask):
    @jax.jit
    def k(a, b):
        return a[:, 1:] - b

    return jnp.sum(jax.lax.stop_gradient(k(logp, ref_logp)) * logp[:, 1:] * mask)


def shifted(logp, ref_logp, mask):
    k = logp[:, 1:] - ref_logp[:, :-1]
    return jnp.sum(k**2 / 2 * mask[:, 1:])


def strided(logp, ref_logp):
    return jnp.sum(logp[:, ::2] - ref_logp[:, ::2])


def two_less(logp, ref_logp, mask):
    return jnp.sum((logp[:, 2:] - ref_logp[:, 2:]) * mask[:, 2:])


def one_sequence(logp, ref_logp):
    return jnp.sum(logp[0] - ref_logp[0])


def shapes_that_do_not_fit(logp, ref_logp):
    return jnp.sum(logp[:, :3] - ref_logp)
