"""The losses of the pages in docs/tasks, as functions of a trainer: [B, T] log-probabilities and masks."""

import torch
import torch.nn.functional as F


def ppo(logp, old_logp, advantages, mask, clip_eps=0.2):
    ratio = torch.exp(logp - old_logp)
    clipped = torch.clamp(ratio, 1 - clip_eps, 1 + clip_eps)
    return -(torch.min(ratio * advantages, clipped * advantages) * mask).sum(-1).mean()


def ppo_without_minus(logp, old_logp, advantages, mask, clip_eps=0.2):
    ratio = torch.exp(logp - old_logp)
    clipped = torch.clamp(ratio, 1 - clip_eps, 1 + clip_eps)
    return (torch.min(ratio * advantages, clipped * advantages) * mask).sum(-1).mean()


def grpo(logp, ref_logp, rewards, mask, beta=0.04):
    centred = rewards - rewards.mean()
    log_ratio = ref_logp - logp
    policy_loss = -(centred.detach()[:, None] * logp * mask).sum(-1).mean()
    k1_of_sequence = -(log_ratio * mask).sum(-1)
    return policy_loss + beta * (k1_of_sequence**2 / 2).mean()


def gspo(logp, old_logp, advantages, mask, clip_eps=3e-4):
    lengths = mask.sum(-1)
    ratio = torch.exp(((logp - old_logp) * mask).sum(-1) / lengths)
    clipped = torch.clamp(ratio, 1 - clip_eps, 1 + clip_eps)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def dapo(logp, old_logp, advantages, mask, low=0.2, high=0.28, most_tokens=1024):
    ratio = torch.exp(logp - old_logp)
    clipped = torch.clamp(ratio, 1 - low, 1 + high)
    return -(torch.min(ratio * advantages, clipped * advantages) * mask).sum(-1).mean() / most_tokens


def rloo(logp, ref_logp, rewards, mask, beta=0.05):
    sums = (logp * mask).sum(-1)
    penalised = (rewards - beta * (sums - (ref_logp * mask).sum(-1))).detach()
    baseline = (penalised.sum() - penalised) / (len(penalised) - 1)
    return -((penalised - baseline) * sums).mean()


def distillation(logits, teacher_logits, mask):
    student, teacher = F.log_softmax(logits, -1), F.log_softmax(teacher_logits, -1)
    each = (student.exp() * (student - teacher)).sum(-1)
    return (each * mask).sum(-1).mean()


def entropy(logits, logp, advantages, mask, entropy_coef=0.01):
    log_probs = F.log_softmax(logits, -1)
    each = -(log_probs.exp() * log_probs).sum(-1)
    return -((advantages * logp + entropy_coef * each) * mask).sum(-1).mean()


def grpo_with_padding(logp, ref_logp, rewards, mask, beta=0.04):
    centred = rewards - rewards.mean()
    policy_loss = -(centred.detach()[:, None] * logp * mask).sum(-1).mean()
    k1_of_sequence = (logp - ref_logp).sum(-1)  # the mask is missing
    return policy_loss + beta * (k1_of_sequence**2 / 2).mean()
