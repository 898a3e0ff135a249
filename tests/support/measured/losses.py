"""Losses as a trainer writes them, for `klsym measure`; shown in the README and in the guide."""

from __future__ import annotations

import torch


def grpo(logp, old_logp, ref_logp, mask, advantages, beta=0.04, eps=0.2):
    """Clipped ratio and k3, averaged over all tokens of the batch."""
    ratio = torch.exp(logp - old_logp)
    policy = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
    log_ratio = ref_logp - logp
    penalty = torch.exp(log_ratio) - log_ratio - 1
    return ((policy + beta * penalty) * mask).sum() / mask.sum()


def whole_batch(batch):
    """REINFORCE with a leave-one-out baseline, and the penalty in the reward."""
    log_q = (batch.logp * batch.mask).sum(-1)
    log_p = (batch.ref_logp * batch.mask).sum(-1)
    reward = batch.rewards - 0.1 * (log_q - log_p).detach()
    advantage = reward - (reward.sum() - reward) / (len(reward) - 1)
    return -(advantage * log_q).mean()


def random_mask(batch):
    """Dropout makes a loss random."""
    return torch.nn.functional.dropout(batch.logp, 0.5).sum()


def logarithm(batch):
    """Not finite for negative rewards."""
    return (torch.log(batch.rewards)[:, None] * batch.logp).sum()


def per_token(batch):
    """No number."""
    return batch.logp * batch.mask


def endless(batch):
    """Never ends."""
    while True:
        batch.mask = batch.mask + 0


def failing(batch):
    """Raises what a user would see."""
    raise ValueError(f"cannot use\n{len(batch.tokens)} samples")
