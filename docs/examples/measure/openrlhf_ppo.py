"""PolicyLoss and compute_approx_kl of OpenRLHF, run against openrlhf==0.11.2.

    pip install klsym[torch] transformers
    pip install --no-deps openrlhf==0.11.2
    klsym measure docs/examples/measure/openrlhf_ppo.py:default --group 2

The KL loss is added as in trainer/ray/ppo_actor.py; OpenRLHF computes it in float32.
"""

import stubs

stubs.add(
    "ray", "peft", "deepspeed", "flash_attn", "ring_flash_attn", "bitsandbytes", "optree", "jsonlines", "vllm",
    "pylatexenc", "wandb", "torchdata", "pynvml", "loguru", "aiohttp", "datasets", "accelerate",
)  # fmt: skip
from openrlhf.models.loss import PolicyLoss, aggregate_loss  # noqa: E402
from openrlhf.models.utils import compute_approx_kl, compute_reward  # noqa: E402

PACKAGE = "openrlhf"
OFF = 1e9  # a clip range that never binds


def compute_kl(batch, estimator, unbiased=False):
    return compute_approx_kl(batch.logp, batch.ref_logp, batch.old_logp, estimator, unbiased)


def make_kl(estimator, unbiased=False):
    """Return the KL of an estimator alone, summed over the tokens of a sequence."""
    return lambda batch: (compute_kl(batch, estimator, unbiased) * batch.mask).sum(-1).mean()


def make_loss(kl=None, unbiased=False, clip=0.2, in_reward=False, **options):
    """Return the loss of one batch; kl: the estimator of the KL loss, or of the reward, with init_coef 0.01."""
    policy_loss = PolicyLoss(clip_eps_low=clip, clip_eps_high=clip, **options)

    def loss(batch):
        rewards = batch.rewards
        if in_reward:
            penalty = compute_approx_kl(batch.old_logp, batch.ref_logp, kl_estimator=kl) * batch.mask
            rewards = compute_reward(rewards, 0.01, penalty, batch.mask).sum(-1)
        advantages = rewards[:, None] * batch.mask
        value = policy_loss(batch.logp, batch.old_logp, advantages, batch.mask, batch.old_logp)[0]
        if kl and not in_reward:
            value = value + 0.01 * aggregate_loss(compute_kl(batch, kl, unbiased), batch.mask)
        return value

    return loss


default = make_loss("k1", in_reward=True)
default_unclipped = make_loss("k1", in_reward=True, clip=OFF)
kl_loss_k1 = make_loss("k1", clip=OFF)
kl_loss_k2 = make_loss("k2", clip=OFF)
kl_loss_k3 = make_loss("k3", clip=OFF)
kl_loss_unbiased = make_loss("k3", unbiased=True, clip=OFF)
sequence_mean = make_loss(clip=OFF, token_level_loss=False)
sequence_mean_kl = make_loss("k2", clip=OFF, token_level_loss=False)
gspo = make_loss(clip=OFF, policy_loss_type="gspo")
dual_clip = make_loss(clip=OFF, dual_clip=3.0)
k1 = make_kl("k1")
k2 = make_kl("k2")
k3 = make_kl("k3")
unbiased = make_kl("k3", True)
CASES = []
