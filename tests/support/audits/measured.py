"""Losses that are read and measured, and some that can only be measured."""

import torch


def mean_k3(logp, ref_logp, mask):
    log_ratio = ref_logp - logp
    k3 = torch.exp(log_ratio) - log_ratio - 1
    return ((k3 * mask).sum(-1) / mask.sum(-1)).mean()


def k2_of_the_batch(logp, ref_logp, mask):
    return (0.5 * (logp - ref_logp) ** 2 * mask).sum() / mask.sum()


def k1_of_each(logp, ref_logp):
    return logp - ref_logp


def weighted_k1(logp, old_logp, ref_logp, mask):
    return (torch.exp(logp - old_logp) * (logp - ref_logp) * mask).sum(-1).mean()


def clipped(logp, old_logp, advantages, mask, eps=0.2):
    ratio = (logp - old_logp).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
    return (loss * mask).sum() / mask.sum()


def grpo(logp, old_logp, ref_logp, advantages, mask, beta, eps):
    ratio = (logp - old_logp).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
    log_ratio = ref_logp - logp
    loss = loss + beta * (log_ratio.exp() - log_ratio - 1)
    return ((loss * mask).sum(-1) / mask.sum(-1)).mean()


def geometric(logp, old_logp, advantages, mask):
    ratio = ((logp - old_logp) * mask).sum(-1) / mask.sum(-1)
    return -(ratio.exp() * advantages).mean()


def full_kl(logits, ref_logits, mask):
    log_q, log_p = torch.log_softmax(logits, -1), torch.log_softmax(ref_logits, -1)
    return ((log_q.exp() * (log_q - log_p)).sum(-1) * mask).sum(-1).mean()


def forward_kl(logits, ref_logits, mask):
    log_q, log_p = torch.log_softmax(logits, -1), torch.log_softmax(ref_logits, -1)
    return ((log_p.exp() * (log_p - log_q)).sum(-1) * mask).sum() / mask.sum()


def without_a_mask(logits, ref_logits):
    log_q, log_p = torch.log_softmax(logits, -1), torch.log_softmax(ref_logits, -1)
    return (log_q.exp() * (log_q - log_p)).sum(-1).mean()


def kl_reward(logp, ref_logp):
    return logp - ref_logp


# Operations that klsym does not read.
def sorted_tokens(logp, ref_logp, mask):
    return (torch.sort(logp - ref_logp, dim=-1).values * mask).sum()


def normalised(logp, rewards, mask):
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    return -((logp * mask).sum(-1) * advantages).mean()


def through_cumsum(logp, ref_logp, mask):
    """sum_t sum_(u <= t) x_u - sum_(u < t) x_u is the sum over all tokens."""
    total = torch.cumsum(0.5 * (logp - ref_logp) ** 2 * mask, -1)
    return total[:, -1].mean()


def reward_through_cumsum(logp, ref_logp, mask):
    """k1 in the reward: E_q[sum_t k1_t sum_t s_t] = grad KL(q||p)."""
    reward = torch.cumsum((logp.detach() - ref_logp) * mask, -1)[:, -1]
    return (reward * (logp * mask).sum(-1)).mean()


def of_pairs(chosen_logp, rejected_logp, beta):
    return -torch.nn.functional.logsigmoid(beta * (chosen_logp - rejected_logp)).mean()


def raises(logp, mask):
    raise RuntimeError("no loss today")


def looped(logp, ref_logp, mask):
    total = 0.0
    for t in range(logp.shape[1]):
        total = total + (0.5 * (logp[:, t] - ref_logp[:, t]) ** 2 * mask[:, t]).sum()
    return total / len(logp)


def scattered(logp, ref_logp, mask):
    places = torch.arange(logp.shape[1]).expand(logp.shape)
    total = torch.zeros_like(logp).scatter_add(1, places, 0.5 * (logp - ref_logp) ** 2 * mask)
    return total.sum() / len(logp)
