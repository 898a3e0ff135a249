"""The policy losses of SkyRL with its KL loss, run against skyrl==0.4.0.

    pip install klsym[torch] pydantic transformers loguru jaxtyping omegaconf
    pip install --no-deps --ignore-requires-python skyrl==0.4.0
    klsym measure docs/examples/measure/skyrl_losses.py:default --group 2

The KL is added as in backends/skyrl_train/workers/worker.py.  SkyRL needs Python 3.12; its losses run on 3.11 too.
"""

import sys
import typing

import stubs
import typing_extensions

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict
stubs.add(
    "ray", "vllm", "wandb", "hydra", "deepspeed", "flash_attn", "peft", "skyrl_gym", "torchdata", "sglang",
    "cloudpathlib", "s3fs", "gcsfs", "boto3", "tensorboard", "polars", "func_timeout", "accelerate", "datasets",
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
            rewards = rewards - coef * compute_kl(batch, kl).detach().sum(-1, keepdim=True)
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


CASES = []
