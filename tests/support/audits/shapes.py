"""Losses in the shapes of real trainers; each has a neighbour, `.._beside`, with another answer."""

import functools
import itertools
from dataclasses import dataclass

import torch


def k3(logp, ref_logp):
    d = ref_logp - logp
    return d.exp() - 1 - d


def mean(x, mask):
    return (x * mask).sum() / mask.sum()


def probabilities(p, q):
    return (p * (p.log() - q.log())).sum(-1)


def probabilities_beside(p, q):
    return (q * (q.log() - p.log())).sum(-1)


def template(logits, ref_logits, mask):
    q, p = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    return mean(torch.zeros_like(q[..., 0]) + (q.exp() * (q - p)).sum(-1), mask)


def template_beside(logits, ref_logits, mask):
    q, p = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    return mean(q[..., 0] + (q.exp() * (q - p)).sum(-1), mask)


def stacked(logp, ref_logp, mask):
    return mean(torch.stack([logp - ref_logp, k3(logp, ref_logp)])[1], mask)


def stacked_beside(logp, ref_logp, mask):
    return mean(torch.stack([logp - ref_logp, k3(logp, ref_logp)])[0], mask)


def filled(logp, ref_logp, mask):
    d = (ref_logp - logp).masked_fill(~mask, float("-inf"))
    return torch.where(mask, d.exp() - 1 - d, 0.0).sum() / mask.sum()


def filled_beside(logp, ref_logp, mask):
    d = (ref_logp - logp).masked_fill(~mask, float("-inf"))
    return (d.exp() - 1 - d).sum() / mask.sum()


def of_samples(logp, ref_logp, token_mask, sample_mask):
    return mean(k3(logp, ref_logp), token_mask * sample_mask.unsqueeze(-1))


def of_samples_beside(logp, ref_logp, token_mask, sample_mask):
    each = (k3(logp, ref_logp) * token_mask).sum(-1) / token_mask.sum(-1)
    return (each * sample_mask).sum() / sample_mask.sum()


def counted(logp, ref_logp, response_mask, counts):
    return (0.5 * (logp - ref_logp) ** 2 * response_mask).sum() / counts["response_mask"]


def counted_beside(logp, ref_logp, response_mask, counts):
    return (0.5 * (logp - ref_logp) ** 2 * response_mask).sum() / response_mask.sum()


def listed(logps, ref_logps):
    return (0.5 * torch.cat([a - b for a, b in zip(logps, ref_logps, strict=True)]) ** 2).mean()


def listed_beside(logps, ref_logps):
    return torch.stack([(0.5 * (a - b) ** 2).sum() for a, b in zip(logps, ref_logps, strict=True)]).mean()


def zipped(logp, ref_logp):
    total = 0
    for a, b in zip(logp, ref_logp, strict=True):
        total = total + (0.5 * (a - b) ** 2).sum()
    return total / len(logp)


def zipped_beside(logp, ref_logp):
    total = 0
    for a, b in zip(logp, ref_logp, strict=True):
        total = total + (0.5 * (a - b) ** 2).mean()
    return total / len(logp)


def chunked(logp, ref_logp, mask, size=2):
    total = 0.0
    for i in range(0, logp.shape[0], size):
        x = logp[i : i + size] - ref_logp[i : i + size]
        total = total + (0.5 * x**2 * mask[i : i + size]).sum()
    return total / mask.sum()


def chunked_beside(logp, ref_logp, mask, size=2):
    total = 0.0
    for i in range(0, logp.shape[0], size):
        x = logp[i : i + size] - ref_logp[i : i + size]
        total = total + ((0.5 * x**2 * mask[i : i + size]).sum(-1) / mask[i : i + size].sum(-1)).sum()
    return total / logp.shape[0]


def packed(logp, ref_logp, cu_seqlens):
    k2 = 0.5 * (logp - ref_logp) ** 2
    ends = itertools.pairwise(cu_seqlens)
    return torch.stack([k2[a:b].mean() for a, b in ends]).mean()


def packed_beside(logp, ref_logp, cu_seqlens):
    k2 = 0.5 * (logp - ref_logp) ** 2
    ends = itertools.pairwise(cu_seqlens)
    return torch.stack([k2[a:b].sum() for a, b in ends]).mean()


def index_added(logp, ref_logp, mask):
    k2 = 0.5 * (logp - ref_logp) ** 2 * mask
    rows = torch.arange(logp.shape[0]).repeat_interleave(logp.shape[1])
    sums = torch.zeros(logp.shape[0]).index_add(0, rows, k2.reshape(-1))
    lengths = torch.zeros(logp.shape[0]).index_add(0, rows, mask.reshape(-1).float())
    return (sums / lengths).mean()


def index_added_beside(logp, ref_logp, mask):
    k2 = 0.5 * (logp - ref_logp) ** 2 * mask
    rows = torch.arange(logp.shape[0]).repeat_interleave(logp.shape[1])
    return torch.zeros(logp.shape[0]).index_add(0, rows, k2.reshape(-1)).mean()


def report(metrics, name, value):
    metrics[name] = value.item() if hasattr(value, "item") else float(value)


def reported(logp, ref_logp, mask, beta=0.5):
    metrics = {}
    report(metrics, "kl", mean(logp - ref_logp, mask).detach())
    report(metrics, "beta", beta)
    metrics["share"] = round(metrics["kl"] / max(metrics["beta"], 1.0), 3)
    return mean(k3(logp, ref_logp), mask), metrics


def reported_beside(logp, ref_logp, mask):
    metrics = {}
    report(metrics, "kl", mean(logp - ref_logp, mask))
    return mean(k3(logp, ref_logp), mask) * metrics["kl"], metrics


class Base:
    def penalty(self, logp, ref_logp):
        return k3(logp, ref_logp)


class Inherited(Base):
    def loss(self, logp, ref_logp, mask):
        return mean(self.penalty(logp, ref_logp), mask)


class Overridden(Base):
    def penalty(self, logp, ref_logp):
        return 0.5 * (logp - ref_logp) ** 2

    def loss(self, logp, ref_logp, mask):
        return mean(self.penalty(logp, ref_logp), mask)


@dataclass
class Config:
    kind: str = "k2"

    def penalty(self, logp, ref_logp):
        if self.kind == "k2":
            return 0.5 * (logp - ref_logp) ** 2
        return self.other(logp, ref_logp)

    def other(self, logp, ref_logp):
        return k3(logp, ref_logp)


def of_config(logp, ref_logp, mask, config: Config):
    return mean(config.penalty(logp, ref_logp), mask)


def of_config_beside(logp, ref_logp, mask, config: Config):
    return mean(config.other(logp, ref_logp), mask)


def general(logp, ref_logp, kind):
    return k3(logp, ref_logp) if kind == "k3" else 0.5 * (logp - ref_logp) ** 2


PARTIAL, PARTIAL_BESIDE = functools.partial(general, kind="k3"), functools.partial(general, kind="k2")


def of_partial(logp, ref_logp, mask):
    return mean(PARTIAL(logp, ref_logp), mask)


def of_partial_beside(logp, ref_logp, mask):
    return mean(PARTIAL_BESIDE(logp, ref_logp), mask)


def weighted(logp, old_logp, advantages, mask):
    return -mean(torch.exp(logp - old_logp) * advantages.unsqueeze(-1), mask)


def normalised(logp, old_logp, rewards, mask):
    return weighted(logp, old_logp, (rewards - rewards.mean()) / (rewards.std() + 1e-6), mask)


def normalised_beside(logp, old_logp, rewards, mask):
    return weighted(logp, old_logp, rewards - rewards.mean(), mask)


def grouped(logp, old_logp, rewards, mask, G=2):
    r = rewards.view(-1, G)
    return weighted(logp, old_logp, (r - r.mean(1, keepdim=True)).view(-1), mask)


def grouped_beside(logp, old_logp, rewards, mask, G=2):
    r = rewards.view(-1, G)
    return weighted(logp, old_logp, (r / r.std(1, keepdim=True)).view(-1), mask)


def of_the_batch(logp, rewards, mask):
    return -((logp * mask).sum(-1) * (rewards - rewards.mean())).mean()


def of_the_batch_beside(logp, rewards, mask):
    return -(logp * mask * (rewards - rewards.mean(-1, keepdim=True))).sum(-1).mean()


def by_row(logp, rewards, mask):
    return -((rewards - rewards.mean()).detach()[:, None] * logp * mask).sum(-1).mean()


def by_row_beside(logp, rewards, mask):
    """Each sample is compared with each other one: this code does pair them."""
    sums = (logp * mask).sum(-1)
    return -((rewards[:, None] - rewards[None]) * (sums[:, None] - sums[None])).mean()


def detached_outside(logp, old_logp, rewards, mask):
    w = torch.exp(logp - old_logp)
    return weighted(torch.where(w == w.clamp(0.8, 1.2), w, w.detach()).log(), 0 * old_logp, rewards, mask)


def detached_outside_beside(logp, old_logp, rewards, mask):
    w = torch.exp(logp - old_logp)
    return weighted(torch.where(w == w.clamp(0.8, 1.2), w.detach(), w).log(), 0 * old_logp, rewards, mask)


def many_settings(logp, ref_logp, config):
    k = logp - ref_logp
    if config.first_of_several_settings == "x":
        k = 2 * k
    if config.second_of_several_settings == "x":
        k = 3 * k
    if config.third_of_several_settings == "x":
        k = 2 * k
    if config.fourth_of_several_settings == "x":
        k = 3 * k
    return k.cumsum(-1)[:, -1].mean() if config.fifth_of_several_settings == "x" else k


def of_two_policies(policy, obs, old_log_prob, advantages):
    new = policy.act(obs)["log_prob"]
    return -(torch.exp(new - old_log_prob.detach()) * advantages).cumsum(-1)[:, -1].mean()


def of_two_policies_beside(policy, obs, log_prob, advantages):
    new = policy.act(obs)["log_prob"]
    return -(torch.exp(new - log_prob.detach()) * advantages).cumsum(-1)[:, -1].mean()


def of_words(logp, ref_logp):
    return (logp.exp() * (logp - ref_logp)).sum(-1).mean()
