"""PolicyLoss and compute_approx_kl of OpenRLHF, run against openrlhf==0.11.2.

    pip install klsym[torch] transformers
    pip install --no-deps openrlhf==0.11.2
    klsym measure docs/examples/measure/openrlhf_ppo.py:default --group 2

A KL in the reward is summed over the sequence, without a critic.  The KL loss is added as in
trainer/ray/ppo_actor.py; OpenRLHF computes it in float32.
"""

import stubs

stubs.add(
    "ray", "peft", "deepspeed", "flash_attn", "ring_flash_attn", "bitsandbytes", "optree", "jsonlines",
    "vllm",
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
    """Return the loss of one batch; kl: the estimator of the KL loss, or of the reward, with init_coef
    0.01."""
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

WHY = {
    "a": "k1 in the loss does not depend on the reference: on-policy its mean over tokens rewards long "
    "outputs.",
    "b": "ppo_actor.py calls aggregate_loss for the KL without token_level_loss: the KL stays a mean over "
    "the tokens of the batch.",
    "c": "The ratio is the geometric mean over T tokens, so that its gradient has the factor 1/T: a "
    "sequence-level objective weighted by 1/T.",
    "d": "No ratio multiplies k3, so the draw of the token is not differentiated: on-policy the gradient "
    "is that of the next token's forward KL, off-policy that of E_mu[k3].",
    "e": "The ratio of a token corrects the draw of that token alone, and the sampled prefix is not "
    "differentiated: this is the gradient of the next token's KL at prefixes of the sampler, not of "
    "the KL of sequences.",
}  # fmt: skip
CASES = [
    {"function": "default",
     "settings": "k1 in the reward, summed over the sequence, init_coef 0.01; no critic"},
    {"function": "default",
     "settings": "k1 in the reward, summed over the sequence, init_coef 0.01; no critic",
     "sampling": "off-policy"},
    {"function": "default_unclipped", "settings": "defaults, clip off", "sampling": "off-policy"},
    {"function": "default_unclipped", "settings": "defaults, clip off", "group": 2},
    {"function": "kl_loss_k1", "settings": "kl.use_loss, estimator k1, clip off", "why": "a"},
    {"function": "kl_loss_k1", "settings": "kl.use_loss, estimator k1, clip off", "sampling": "off-policy",
     "why": "a"},
    {"function": "kl_loss_k2", "settings": "kl.use_loss, estimator k2, clip off"},
    {"function": "kl_loss_k2", "settings": "kl.use_loss, estimator k2, clip off", "sampling": "off-policy"},
    {"function": "kl_loss_k3", "settings": "kl.use_loss, estimator k3, clip off"},
    {"function": "kl_loss_k3", "settings": "kl.use_loss, estimator k3, clip off", "sampling": "off-policy"},
    {"function": "kl_loss_unbiased", "settings": "kl.use_loss, kl.unbiased_gradient, clip off"},
    {"function": "kl_loss_unbiased", "settings": "kl.use_loss, kl.unbiased_gradient, clip off",
     "sampling": "off-policy"},
    {"function": "sequence_mean", "settings": "loss_agg_mode seq-mean-token-mean, clip off"},
    {"function": "sequence_mean", "settings": "loss_agg_mode seq-mean-token-mean, clip off",
     "sampling": "off-policy"},
    {"function": "sequence_mean_kl",
     "settings": "loss_agg_mode seq-mean-token-mean, estimator k2 in the loss, clip off", "group": 2,
     "why": "b"},
    {"function": "gspo", "settings": "policy_loss_type gspo, clip off", "why": "c"},
    {"function": "gspo", "settings": "policy_loss_type gspo, clip off", "sampling": "off-policy",
     "why": "c"},
    {"function": "dual_clip", "settings": "dual_clip 3, clip off", "sampling": "off-policy"},
    {"function": "k1", "settings": "compute_approx_kl alone, summed: k1"},
    {"function": "k1", "settings": "compute_approx_kl alone, summed: k1", "sampling": "off-policy"},
    {"function": "k2", "settings": "compute_approx_kl alone, summed: k2"},
    {"function": "k2", "settings": "compute_approx_kl alone, summed: k2", "sampling": "off-policy"},
    {"function": "k3", "settings": "compute_approx_kl alone, summed: k3", "why": "d"},
    {"function": "k3", "settings": "compute_approx_kl alone, summed: k3", "sampling": "off-policy",
     "why": "d"},
    {"function": "unbiased", "settings": "compute_approx_kl alone, summed: unbiased_gradient",
     "promised": "reverse-kl", "place": "models/utils.py: compute_approx_kl", "why": "e"},
    {"function": "unbiased", "settings": "compute_approx_kl alone, summed: unbiased_gradient",
     "sampling": "off-policy", "promised": "reverse-kl", "place": "models/utils.py: compute_approx_kl",
     "why": "e"},
]  # fmt: skip
