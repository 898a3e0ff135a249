"""GRPOLoss, DAPO and CISPOLoss of TorchRL, run against torchrl==0.14.1.

    pip install klsym[torch] tensordict
    pip install --no-deps torchrl==0.14.1
    klsym measure docs/examples/measure/torchrl_grpo.py:default --group 2

The distribution of the actor is replaced by the log densities of the batch.
"""

from types import SimpleNamespace

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


assert SimpleNamespace
default = make_loss()
no_entropy = make_loss(entropy_bonus=False)
unclipped = make_loss(entropy_bonus=False, clip_epsilon=OFF)
prompt_mean = make_loss(entropy_bonus=False, clip_epsilon=OFF, aggregation="prompt_mean")
kl_to_ref = make_loss(entropy_bonus=False, clip_epsilon=OFF, kl_to_ref_coeff=0.04)
cispo = make_loss(CISPOLoss, entropy_bonus=False)
CASES = []
