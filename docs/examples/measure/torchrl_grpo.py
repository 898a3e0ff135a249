"""GRPOLoss, DAPO and CISPOLoss of TorchRL, run against torchrl==0.14.1.

    pip install klsym[torch] tensordict
    pip install --no-deps torchrl==0.14.1
    klsym measure docs/examples/measure/torchrl_grpo.py:default --group 2

The distribution of the actor is replaced by the log densities of the batch.
"""

import torch
from tensordict import TensorDict
from torchrl.objectives.llm.grpo import CISPOLoss, GRPOLoss

PACKAGE = "torchrl"
OFF = (0.999999999, 1e9)  # a clip range that never binds


class Categorical(torch.distributions.Categorical):
    """The next words of a batch, with the mask that TorchRL asks for."""


def make_loss(kind=GRPOLoss, **options):
    """Return the loss of one batch: the sum of all entries that begin with loss_, as its users add them."""

    def loss(batch):
        mask = batch.mask > 0
        actor = torch.nn.Module()
        module = kind(actor, **options)
        dist = Categorical(logits=batch.logits)
        dist.mask = mask
        module._get_cur_log_prob = lambda data: (batch.logp, dist, False)
        keys = module.tensor_keys
        data = TensorDict({}, batch_size=[len(batch.tokens)])
        data.set(keys.action, batch.tokens)
        data.set(keys.advantage, batch.rewards[:, None, None] + 0 * batch.mask[..., None])
        data.set(keys.sample_log_prob, batch.old_logp)
        data.set(keys.ref_log_probs, batch.ref_logp)
        out = module(data)
        values = [getattr(out, name) for name in ("loss_objective", "loss_entropy", "loss_kl_to_ref")]
        return sum(value for value in values if value is not None)

    return loss


default = make_loss()
no_entropy = make_loss(entropy_bonus=False)
unclipped = make_loss(entropy_bonus=False, clip_epsilon=OFF)
prompt_mean = make_loss(entropy_bonus=False, clip_epsilon=OFF, aggregation="prompt_mean")
kl_to_ref = make_loss(entropy_bonus=False, clip_epsilon=OFF, kl_to_ref_coeff=0.04)
cispo = make_loss(CISPOLoss, entropy_bonus=False)

WHY = {
    "a": "The number of tokens in the denominator depends on the samples: within a group, each reward is "
    "divided by N. It is nearly a constant in a large batch.",
    "b": "_kl_to_ref takes the mean over all places, padding included: the weight of the KL depends on the"
    " padded length, and no ratio multiplies k3.",
    "c": "The clipped ratio is not detached: a token outside the range has gradient 0, as its formula "
    "says; in the CISPO paper it keeps a bounded one.",
}  # fmt: skip
CASES = [
    {"function": "default", "settings": "defaults: token_mean, entropy_coeff 0.01"},
    {"function": "default", "settings": "defaults: token_mean, entropy_coeff 0.01",
     "sampling": "off-policy"},
    {"function": "default", "settings": "defaults", "group": 2, "why": "a"},
    {"function": "no_entropy", "settings": "entropy_bonus false, clip 0.2"},
    {"function": "no_entropy", "settings": "entropy_bonus false, clip 0.2", "sampling": "off-policy"},
    {"function": "unclipped", "settings": "entropy_bonus false, clip off"},
    {"function": "unclipped", "settings": "entropy_bonus false, clip off", "sampling": "off-policy"},
    {"function": "prompt_mean", "settings": "aggregation prompt_mean, clip off"},
    {"function": "prompt_mean", "settings": "aggregation prompt_mean, clip off", "sampling": "off-policy"},
    {"function": "kl_to_ref", "settings": "kl_to_ref_coeff 0.04, clip off", "why": "b"},
    {"function": "kl_to_ref", "settings": "kl_to_ref_coeff 0.04, clip off", "sampling": "off-policy",
     "why": "b"},
    {"function": "cispo", "settings": "CISPOLoss, clip 0.2", "why": "c"},
    {"function": "cispo", "settings": "CISPOLoss, clip 0.2", "sampling": "off-policy", "why": "c"},
]  # fmt: skip
