"""Losses in JAX that are read and measured, and some that can only be measured."""

import jax
import jax.numpy as jnp


def k3_of_tokens(logp, ref_logp, mask):
    log_ratio = ref_logp - logp
    return ((jnp.exp(log_ratio) - log_ratio - 1) * mask).sum(-1).mean()


def clipped(logp, old_logp, advantages, mask):
    ratio = jnp.exp(logp - old_logp)
    loss = -jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages)
    return (loss * mask).sum() / mask.sum()


def sorted_tokens(logp, ref_logp, mask):
    return (jnp.sort(logp - ref_logp, axis=-1) * mask).sum()


def reverse_of_words(logits, ref_logits, mask):
    log_q, log_p = jax.nn.log_softmax(logits), jax.nn.log_softmax(ref_logits)
    return ((jnp.exp(log_q) * (log_q - log_p)).sum(-1) * mask).sum() / mask.sum()


def forward_of_words(logits, ref_logits, mask):
    log_q, log_p = jax.nn.log_softmax(logits), jax.nn.log_softmax(ref_logits)
    return ((jnp.exp(log_p) * (log_p - log_q)).sum(-1) * mask).sum() / mask.sum()
