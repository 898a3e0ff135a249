"""The policy losses of SkyRL with its KL loss, run against skyrl==0.4.0.

    pip install klsym[torch] pydantic transformers loguru jaxtyping omegaconf
    pip install --no-deps --ignore-requires-python skyrl==0.4.0
    klsym measure docs/examples/measure/skyrl_losses.py:default --group 2

The KL is added as in backends/skyrl_train/workers/worker.py.  SkyRL needs Python 3.12; its losses run on
3.11 too.
"""

import sys
import typing

import stubs
import typing_extensions

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict
stubs.add(
    "ray", "vllm", "wandb", "hydra", "deepspeed", "flash_attn", "peft", "skyrl_gym", "torchdata", "sglang",
    "cloudpathlib", "s3fs", "gcsfs", "boto3", "tensorboard", "polars", "func_timeout", "accelerate",
    "datasets",
)  # fmt: skip
from skyrl.backends.skyrl_train.utils import ppo_utils  # noqa: E402
from skyrl.train.config.config import AlgorithmConfig, CISPOConfig  # noqa: E402

PACKAGE = "skyrl"
OFF = 1e9  # a clip range that never binds


def compute_kl(batch, estimator):
    return ppo_utils.compute_approx_kl(batch.logp, batch.ref_logp, batch.mask, estimator)


def make_loss(kind="regular", reduction="token_mean", kl="k3", clip=0.2, coef=0.04, in_reward=False):
    """Return the loss of one batch; kl: the estimator of the KL loss, with kl_loss_coef 0.04, or None."""
    config = AlgorithmConfig(
        policy_loss_type=kind, loss_reduction=reduction, eps_clip_low=clip, eps_clip_high=clip, max_seq_len=1,
        cispo=CISPOConfig(cispo_eps_clip_low=clip, cispo_eps_clip_high=clip),
    )  # fmt: skip
    compute = ppo_utils.PolicyLossRegistry.get(kind)

    def loss(batch):
        rewards = batch.rewards[:, None]
        if in_reward:  # as in apply_reward_kl_penalty of skyrl/train/trainer.py
            old = ppo_utils.compute_approx_kl(batch.old_logp, batch.ref_logp, batch.mask, kl)
            rewards = rewards - coef * old.sum(-1, keepdim=True)
        count = len(batch.rewards)
        advantages = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
            rewards * batch.mask, batch.mask, reduction, micro_batch_size=count, max_seq_len=1
        )
        value = compute(batch.logp, batch.old_logp, advantages, config, batch.mask, batch.old_logp)[0]
        if kl and not in_reward:
            value = value + coef * ppo_utils.masked_mean(compute_kl(batch, kl), batch.mask, dim=-1).mean()
        return value

    return loss


default = make_loss()
default_unclipped = make_loss(clip=OFF)
sequence_mean = make_loss(reduction="sequence_mean", clip=OFF)
dr_grpo = make_loss(reduction="seq_mean_token_sum_norm", clip=OFF)
dr_grpo_k2 = make_loss(reduction="seq_mean_token_sum_norm", clip=OFF, kl="k2")
dr_grpo_k1 = make_loss(reduction="seq_mean_token_sum_norm", clip=OFF, kl="k1")
k3_in_reward = make_loss(reduction="seq_mean_token_sum_norm", clip=OFF, in_reward=True)
k1_in_reward = make_loss(reduction="seq_mean_token_sum_norm", clip=OFF, kl="k1", in_reward=True)
gspo = make_loss("gspo", "sequence_mean", kl=None, clip=OFF)
cispo = make_loss("cispo", "seq_mean_token_sum_norm", kl=None, clip=OFF)
cispo_clipped = make_loss("cispo", "seq_mean_token_sum_norm", kl=None)
rollout_is = make_loss("rollout_is", "seq_mean_token_sum_norm", kl=None)
importance_sampling = make_loss("importance_sampling", "seq_mean_token_sum_norm", kl=None)


def rollout_is_less_cispo(batch):
    """rollout_is minus cispo with the same clip range."""
    return rollout_is(batch) - cispo_clipped(batch)


WHY = {
    "a": "loss_reduction scales the advantages alone; worker.py divides the KL of each sequence by its "
    "length whatever loss_reduction says.",
    "b": "k1 in the loss does not depend on the reference: on-policy its mean over tokens rewards long "
    "outputs.",
    "c": "k3 in the reward gives the gradient of E_q[k3], whose derivative through the draws differs from "
    "that of the KL by the next token's forward KL.",
    "d": "The ratio is the geometric mean over T tokens, so that its gradient has the factor 1/T: a "
    "sequence-level objective weighted by 1/T.",
    "e": "Outside the clip range rollout_is sets the weight of the score to 0 and cispo to the bound: the "
    "gradients differ, not the values alone.",
}  # fmt: skip
CASES = [
    {"function": "default", "settings": "defaults: regular, token_mean, k3 in the loss; coefficient 0.04"},
    {"function": "default", "settings": "defaults: regular, token_mean, k3 in the loss; coefficient 0.04",
     "sampling": "off-policy"},
    {"function": "default_unclipped", "settings": "defaults, clip off; coefficient 0.04",
     "sampling": "off-policy"},
    {"function": "default_unclipped", "settings": "defaults, clip off; coefficient 0.04", "group": 2},
    {"function": "sequence_mean", "settings": "loss_reduction sequence_mean, clip off"},
    {"function": "sequence_mean", "settings": "loss_reduction sequence_mean, clip off",
     "sampling": "off-policy"},
    {"function": "dr_grpo",
     "settings": "loss_reduction seq_mean_token_sum_norm with max_seq_len 1, k3, clip off", "why": "a"},
    {"function": "dr_grpo",
     "settings": "loss_reduction seq_mean_token_sum_norm with max_seq_len 1, k3, clip off",
     "sampling": "off-policy", "why": "a"},
    {"function": "dr_grpo_k2",
     "settings": "loss_reduction seq_mean_token_sum_norm with max_seq_len 1, k2, clip off", "why": "a"},
    {"function": "dr_grpo_k2",
     "settings": "loss_reduction seq_mean_token_sum_norm with max_seq_len 1, k2, clip off",
     "sampling": "off-policy", "why": "a"},
    {"function": "dr_grpo_k1",
     "settings": "loss_reduction seq_mean_token_sum_norm with max_seq_len 1, k1, clip off", "why": "b"},
    {"function": "dr_grpo_k1",
     "settings": "loss_reduction seq_mean_token_sum_norm with max_seq_len 1, k1, clip off",
     "sampling": "off-policy", "why": "b"},
    {"function": "k3_in_reward",
     "settings": "loss_reduction seq_mean_token_sum_norm with max_seq_len 1, use_kl_in_reward, default k3",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "trainer.py: apply_reward_kl_penalty", "why": "c"},
    {"function": "k1_in_reward",
     "settings": "loss_reduction seq_mean_token_sum_norm with max_seq_len 1, use_kl_in_reward with k1",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "trainer.py: apply_reward_kl_penalty"},
    {"function": "gspo", "settings": "gspo, sequence_mean, no KL, clip off", "why": "d"},
    {"function": "gspo", "settings": "gspo, sequence_mean, no KL, clip off", "sampling": "off-policy",
     "why": "d"},
    {"function": "cispo",
     "settings": "cispo, loss_reduction seq_mean_token_sum_norm with max_seq_len 1, no KL, clip off"},
    {"function": "cispo",
     "settings": "cispo, loss_reduction seq_mean_token_sum_norm with max_seq_len 1, no KL, clip off",
     "sampling": "off-policy"},
    {"function": "cispo_clipped", "settings": "cispo, no KL, clip 0.2", "sampling": "off-policy"},
    {"function": "rollout_is", "settings": "rollout_is, no KL, clip 0.2"},
    {"function": "rollout_is", "settings": "rollout_is, no KL, clip 0.2", "sampling": "off-policy"},
    {"function": "rollout_is_less_cispo", "settings": "rollout_is minus cispo, clip 0.2 for both",
     "promised": "0", "place": "ppo_utils.py: rollout_is_policy_loss", "why": "e"},
    {"function": "rollout_is_less_cispo", "settings": "rollout_is minus cispo, clip 0.2 for both",
     "sampling": "off-policy", "promised": "0", "place": "ppo_utils.py: rollout_is_policy_loss",
     "why": "e"},
    {"function": "importance_sampling", "settings": "importance_sampling, no KL"},
    {"function": "importance_sampling", "settings": "importance_sampling, no KL", "sampling": "off-policy"},
]  # fmt: skip
