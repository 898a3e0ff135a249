"""Penalties as training code writes them, each a behaviour that an audit must tell from the others."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def k1_loss(logp, ref_logp):
    return logp - ref_logp


def k3_loss(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(d) - d - 1


def k3_careful(logp, ref_logp):
    d = ref_logp - logp
    return torch.expm1(d) - d


def ratio_k3(logp, ref_logp, old_logp):
    ratio = torch.exp(logp - old_logp)
    return ratio * k3_loss(logp, ref_logp)


def detached_ratio_k3(logp, ref_logp, old_logp):
    ratio = torch.exp(logp - old_logp).detach()
    return ratio * k3_loss(logp, ref_logp)


def no_grad_ratio_k3(logp, ref_logp, old_logp):
    with torch.no_grad():
        ratio = (logp - old_logp).exp()
    return ratio * k3_loss(logp, ref_logp)


def value_one_k3(logp, ref_logp):
    return torch.exp(logp - logp.detach()) * k3_loss(logp, ref_logp)


def truncated_ratio_k3(logp, ref_logp, old_logp):
    ratio = torch.clamp(torch.exp(logp - old_logp), max=2.0)
    return ratio * k3_loss(logp, ref_logp)


def truncated_detached_ratio_k2(logp, ref_logp, old_logp):
    ratio = torch.exp(logp.detach() - old_logp).clamp(max=2.0)
    return ratio * 0.5 * (logp - ref_logp) ** 2


def attached_ratio_k2(logp, ref_logp, old_logp):
    return torch.exp(logp - old_logp) * 0.5 * (logp - ref_logp).pow(2)


def straight_through(logp, ref_logp):
    value, gradient = k3_loss(logp, ref_logp), 0.5 * (logp - ref_logp).square()
    return gradient + (value - gradient).detach()


def minus_k3(logp, ref_logp):
    return -k3_loss(logp, ref_logp)


def minus_k2(logp, ref_logp):
    return -0.5 * (logp - ref_logp).square()


def upside_down_k3(logp, ref_logp, old_logp):
    d = logp - ref_logp
    return torch.exp(logp - old_logp) * (torch.exp(d) - d - 1)


def upside_down_weight(logp, ref_logp, old_logp):
    return torch.exp(old_logp - logp) * k3_loss(logp, ref_logp)


def clamp_before_exp(logp, ref_logp):
    d = (ref_logp - logp).clamp(min=-10, max=10)
    return d.exp() - d - 1


def clamp_after_exp(logp, ref_logp):
    return torch.clamp(k3_loss(logp, ref_logp), min=-5.0, max=5.0)


def clamp_exponent_only(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(torch.clamp(d, max=5.0)) - d - 1


def clamp_before_and_after(logp, ref_logp):
    return torch.clamp(clamp_before_exp(logp, ref_logp), max=5.0)


def in_place(logp, ref_logp):
    d = logp - ref_logp
    d.neg_()
    d += 1
    k = torch.exp(d - 1)
    d.sub_(1)
    return k.sub(d) - 1


def masked_where(logp, ref_logp, mask):
    return torch.where(mask, k3_loss(logp, ref_logp), torch.zeros_like(logp))


def token_mean(logp, ref_logp, mask):
    return (k3_loss(logp, ref_logp) * mask).sum() / mask.sum()


def token_mean_by_index(logp, ref_logp, mask):
    return k3_loss(logp, ref_logp)[mask].mean()


def sequence_mean(logp, ref_logp, mask):
    return ((k3_loss(logp, ref_logp) * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()


def count_with_a_number(logp, ref_logp, mask):
    return (k3_loss(logp, ref_logp) * mask).sum() / (mask.sum() + 1e-8)


def grid_mean(logp, ref_logp, mask):
    return (k3_loss(logp, ref_logp) * mask).mean()


def fixed_length(logp, ref_logp, mask, length=512):
    return ((k3_loss(logp, ref_logp) * mask).sum(dim=1) / length).mean()


def mask_forgotten(logp, ref_logp, mask):
    return k3_loss(logp, ref_logp).sum() / mask.sum()


def sequence_ratio_token_k3(logp, ref_logp, old_logp, mask):
    ratio = torch.exp(((logp - old_logp) * mask).sum(-1, keepdim=True))
    return (ratio * k3_loss(logp, ref_logp) * mask).sum(-1).mean()


def sequence_k2(logp, ref_logp, mask):
    return 0.5 * ((logp - ref_logp) * mask).sum(-1).square()


def full_vocabulary(logits, ref_logits, mask):
    q, p = torch.log_softmax(logits, dim=-1), F.log_softmax(ref_logits, dim=-1)
    return ((q.exp() * (q - p)).sum(-1) * mask).sum() / mask.sum()


def full_vocabulary_forward(logits, ref_logits):
    return F.kl_div(
        logits.log_softmax(-1), ref_logits.log_softmax(-1), log_target=True, reduction="none"
    ).sum(-1)


def top_words(logits, ref_logits, k=5):
    q, p = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    top, index = torch.topk(p, k, dim=-1)
    q = q.gather(-1, index)
    return (q.exp() * (q - top)).sum(-1)


def top_words_forward(logits, ref_logits, mask, k=5):
    p, index = F.softmax(ref_logits, dim=-1).topk(k)
    q = torch.gather(F.log_softmax(logits, -1), -1, index)
    return ((p * (p.log() - q)).sum(-1) * mask).sum() / mask.sum()


def top_words_by_mask(logits, ref_logits, k=5):
    q, p = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    with torch.no_grad():
        keep = torch.zeros_like(p).scatter_(-1, p.topk(k).indices, 1.0)
    return torch.where(keep > 0, q.exp() * (q - p), 0.0).sum(-1)


def top_words_of_policy(logits, ref_logits, k=5):
    q, p = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    top, index = q.topk(k)
    return (top.exp() * (top - p.gather(-1, index))).sum(-1)


def top_words_renormalised(logits, ref_logits, k=5):
    top, index = torch.topk(ref_logits, k, dim=-1)
    p, q = top.log_softmax(-1), logits.gather(-1, index).log_softmax(-1)
    return (q.exp() * (q - p)).sum(-1)


def top_words_divided(logits, ref_logits, k=5):
    p, index = ref_logits.softmax(-1).topk(k)
    q = logits.softmax(-1).gather(-1, index)
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    return F.kl_div(q.log(), p, reduction="none").sum(-1)


def picked_tokens(logits, ref_logits, labels):
    q = torch.gather(logits.log_softmax(-1), -1, labels.unsqueeze(-1)).squeeze(-1)
    p = torch.gather(ref_logits.log_softmax(-1), -1, labels.unsqueeze(-1)).squeeze(-1)
    return 0.5 * (q - p) ** 2


def policy_and_penalty(logp, old_logp, ref_logp, advantages, beta):
    ratio = torch.exp(logp - old_logp)
    return -ratio * advantages + beta * ratio * k3_loss(logp, ref_logp)


def near_the_reference(logp, ref_logp):
    """Tokens far from it are left out."""
    d = ref_logp - logp
    near = (d < 5) & ~(d < -5)
    return torch.where(near, 0.5 * d**2, 0.0)


def empty_batches_apart(logp, ref_logp, mask):
    if not mask.any() or mask.sum() == 0:
        return torch.zeros(())
    return (k3_loss(logp, ref_logp) * mask).sum() / mask.sum()


def whole_vocabulary_in_float32(logits, ref_logits, mask):
    logq = F.log_softmax(logits, dim=-1, dtype=torch.float32)
    logp = F.log_softmax(ref_logits, dim=-1, dtype=torch.float32)
    products = torch.masked_fill(logq.exp() * (logq - logp), torch.isinf(logits), 0)
    return (products.sum(-1) * mask).sum() / mask.sum()


def number_mask(logp, ref_logp, mask):
    """PyTorch subtracts no boolean tensor."""
    return 0.5 * (logp - ref_logp) ** 2 * (1 - (1 - mask))


def ratio_by_default(logp, ref_logp, old_logp=None):
    ratio = 1.0 if old_logp is None else torch.exp(logp - old_logp)
    return ratio * k3_loss(logp, ref_logp)


def bound_at_one(logp, old_logp, advantages):
    return torch.clamp(torch.exp(logp - old_logp), max=1.0) * advantages


def bounds_at_nought_and_one(logp, old_logp, advantages):
    return torch.clamp(torch.exp(logp - old_logp), 0.0, 1.0) * advantages


@torch.no_grad()
def summed_reward(logp, ref_logp, mask, kl_coef):
    return (-kl_coef * (logp - ref_logp) * mask).sum(1)


@torch.no_grad()
def reward_penalty(logp, ref_logp):
    return logp - ref_logp


def cast(logp, ref_logp):
    d = (ref_logp.float() - logp.float()).to(torch.float32)
    return (d.exp() - d - 1).bfloat16()


# ---------------------------------------------------------------------------- refused
class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def custom(logp, ref_logp):
    return Identity.apply(logp - ref_logp)


def branch_on_data(logp, ref_logp):
    d = logp - ref_logp
    if d.mean() > 0:
        return d
    return -d


def branch_on_item(logp, ref_logp):
    d = logp - ref_logp
    return d if d.mean().item() > 0 else -d


def unknown(logp, ref_logp):
    return torch.erf(logp - ref_logp)


def running(logp, ref_logp):
    return (logp - ref_logp).cumsum(-1)


def part(logp, ref_logp):
    return logp[:, 2:] - ref_logp[:, 2:]


def beside(logp, ref_logp):
    return logp[:, 1:] - ref_logp[:, 1:] + (logp - ref_logp)[:, :-1]


def all_but_the_first(logp, ref_logp):
    return logp[:, 1:] - ref_logp[..., 1:]


def next_words(logits, ref_logits, labels):
    index = labels[:, 1:].unsqueeze(-1)
    q, p = (z[:, :-1].log_softmax(-1).gather(-1, index).squeeze(-1) for z in (logits, ref_logits))
    return 0.5 * (q - p) ** 2


def largest(logp, ref_logp):
    return (logp - ref_logp).max()


def geometric(logp, old_logp, advantages, mask):
    ratio = torch.exp(((logp - old_logp) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True))
    return -(ratio * advantages * mask).sum(-1)


def least_words(logits, ref_logits):
    q, p = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    return (q.exp() * (q - p)).topk(5, largest=False).values.sum(-1)


def two_choices(logits, ref_logits):
    q, p = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    return (q.topk(5).values - p.topk(5).values).sum(-1)


def two_sums(logits, ref_logits):
    return top_words(logits, ref_logits) + top_words_of_policy(logits, ref_logits)


def words_as_numbers(logits, ref_logits):
    p, index = ref_logits.log_softmax(-1).topk(5)
    return (logits.log_softmax(-1).gather(-1, index + 1) - p).sum(-1)


def too_many_words(logits, ref_logits, k=64):
    return top_words(logits, ref_logits, k)


def least_of_the_top(logits, ref_logits):
    q, p = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    least = p.topk(5).values[..., -1:]
    return (q.exp() * (q - p) * (p >= least)).sum(-1)


def geometric_k3(logp, ref_logp, old_logp, mask):
    log_ratio = ((logp - old_logp) * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)
    k3 = k3_loss(logp, ref_logp) * torch.exp(log_ratio.unsqueeze(-1))
    return ((k3 * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()


def gspo(logp, old_logp, advantages, mask, eps=0.2):
    ratio = torch.exp(((logp - old_logp) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True))
    loss = -torch.min(ratio * advantages, torch.clamp(ratio, 1 - eps, 1 + eps) * advantages)
    return ((loss * mask).sum(-1) / mask.sum(-1)).mean()


def geometric_of_the_batch(logp, old_logp, advantages, mask):
    ratio = torch.exp(((logp - old_logp) * mask).sum(-1, keepdim=True) / mask.sum())
    return -(ratio * advantages * mask).sum(-1)


def hidden_hook(logp, ref_logp):
    d = logp - ref_logp
    view = d.view(-1)
    view.mul_(2)  # the view shares the memory of d, which a trace does not see
    return d


def two_ways(logp, ref_logp, mask):
    k = k3_loss(logp, ref_logp) * mask
    return k.sum() / mask.sum() + (k.sum(-1) / mask.sum(-1)).mean()
