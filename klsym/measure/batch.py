"""The argument of a loss: sampled sequences with log densities and rewards, in the user's tensor library."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

WRITTEN_AS = {  # roles in the words of the loss grammar, and of `klsym audit`
    "log_q": "logp", "log_p": "ref_logp", "log_mu": "old_logp", "log_old": "old_logp", "token": "tokens",
    "log_q[v]": "logits", "log_p[v]": "ref_logits", "log_mu[v]": "old_logits", "R": "rewards",
    "q[v]": "probs", "p[v]": "ref_probs", "mu[v]": "old_probs", "A": "rewards[t]",
}  # fmt: skip


@dataclass
class Batch:
    """B sampled sequences of at most T words out of V, in float64.

    After the end of a sequence, all fields except mask and tokens contain the numbers of other words, so that
    a loss that reads padding has another gradient.

    Attributes
    ----------
    tokens : [B, T] integers
        The words.
    mask : [B, T]
        1 at words of the policy, the end word included; 0 at words of a tool, and beyond the end.
    logp, ref_logp, old_logp, sampler_logp : [B, T]
        Log densities of the drawn words: log q with its gradient, log p, the log of the policy in the
        denominator of the ratio (the sampler mu, or a third policy), and log mu.
    rewards, token_rewards : [B], [B, T]
        The reward of each sequence, and of each word.
    logits, ref_logits, old_logits : [B, T, V]
        The same log densities for all words.
    prompts, input_ids : [B], [B, 1 + T]
        The number of the prompt; a prompt word and the tokens.
    model, ref_model : callable
        Called with input_ids (and attention_mask) they return an object with .logits.

    Examples
    --------
    >>> sorted(f.name for f in fields(Batch))[:4]
    ['input_ids', 'logits', 'logp', 'mask']
    """

    tokens: Any
    mask: Any
    logp: Any
    ref_logp: Any
    old_logp: Any
    sampler_logp: Any
    rewards: Any
    token_rewards: Any
    logits: Any
    ref_logits: Any
    old_logits: Any
    prompts: Any
    input_ids: Any
    model: Any = None
    ref_model: Any = None

    def read_role(self, role: str) -> Any:
        """Return the field of a role; "rewards[t]" is the reward of the sequence at each of its words.

        The probabilities of all words are "probs", "ref_probs" and "old_probs", those of the drawn words
        "prob", "ref_prob" and "old_prob"; the ratio of a word is "ratio".
        """
        if role == "rewards[t]":
            return self.rewards[:, None] + 0 * self.mask
        if role == "ratio":
            return _exponentiate(self.logp - self.old_logp)
        if role in OF_PROBABILITIES:
            return _exponentiate(getattr(self, OF_PROBABILITIES[role]))
        return getattr(self, role)


def _exponentiate(x: Any) -> Any:
    return x.exp() if hasattr(x, "exp") else math.e**x


OF_PROBABILITIES = {
    "probs": "logits", "ref_probs": "ref_logits", "old_probs": "old_logits",
    "prob": "logp", "ref_prob": "ref_logp", "old_prob": "old_logp",
}  # fmt: skip
ROLES = (*(f.name for f in fields(Batch)), "rewards[t]", "ratio", *OF_PROBABILITIES)
