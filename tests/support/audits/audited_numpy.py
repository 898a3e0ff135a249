"""Rewards in NumPy."""

from __future__ import annotations

import numpy as np


def k1_reward(logp, ref_logp):
    return np.subtract(logp, ref_logp)


def k3_reward(logp, ref_logp):
    d = ref_logp - logp
    return np.exp(d) - d - 1


def clipped_reward(logp, ref_logp, mask):
    return np.where(mask, np.clip(logp - ref_logp, -5, 5), 0.0)


def branch(logp, ref_logp):
    return logp if np.sum(logp - ref_logp) > 0 else ref_logp
