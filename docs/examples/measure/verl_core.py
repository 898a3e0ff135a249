"""The policy losses and KL penalties of verl.trainer.ppo.core_algos, run against verl==0.9.1.

    pip install klsym[torch] tensordict omegaconf && pip install --no-deps verl==0.9.1
    klsym measure docs/examples/measure/verl_core.py:default --group 2

The losses take one advantage a token; `rewards` gives the reward of the sequence, `advantages` that of
GRPO.  The KL loss is added as in verl/workers/utils/losses.py.
"""

from types import SimpleNamespace

import stubs
import torch

stubs.add(
    "ray", "hydra", "vllm", "codetiming", "wandb", "deepspeed", "torchdata", "pylatexenc", "peft",
    "opentelemetry",
    "uvicorn", "fastapi", "cachetools", "pyvers", "orjson", "datasets", "accelerate", "torchvision",
    "starlette",
)  # fmt: skip
from verl.trainer.ppo import core_algos  # noqa: E402
from verl.trainer.ppo.ray_trainer import apply_kl_penalty  # noqa: E402
from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: E402

PACKAGE = "verl"
OFF = 1e9  # a clip range that never binds


def spread(batch):
    """Return the reward of a sequence at each of its tokens."""
    return batch.rewards[:, None] * batch.mask


def normalise(batch, by_std=True):
    """Return the advantages of adv_estimator grpo."""
    last = torch.zeros_like(batch.mask)
    last[:, 0] = batch.rewards
    index = ["prompt"] * len(batch.rewards)
    return core_algos.compute_grpo_outcome_advantage(last, batch.mask, index, norm_adv_by_std_in_grpo=by_std)[
        0
    ]


def subtract_optimal_baseline(batch):
    """Return the advantages of adv_estimator opo."""
    index = ["prompt"] * len(batch.rewards)
    last = torch.zeros_like(batch.mask)
    last[:, 0] = batch.rewards
    return core_algos.compute_opo_outcome_advantage(last, batch.mask, index)[0]


def penalise_reward(batch, kind):
    """Return the advantages of use_kl_in_reward: R - 0.001*KL less the mean, not scaled."""

    class Data(dict):
        batch_size = (len(batch.rewards),)

    scores = torch.zeros_like(batch.mask)
    scores[:, 0] = batch.rewards
    data = Data(response_mask=batch.mask, token_level_scores=scores, old_log_probs=batch.old_logp,
                ref_log_prob=batch.ref_logp)  # fmt: skip
    control = core_algos.FixedKLController(0.04)
    rewards = apply_kl_penalty(SimpleNamespace(batch=data), control, kind)[0].batch["token_level_rewards"]
    index = ["prompt"] * len(batch.rewards)
    return core_algos.compute_grpo_outcome_advantage(
        rewards, batch.mask, index, norm_adv_by_std_in_grpo=False
    )[0]


def make_loss(mode="vanilla", agg="token-mean", clip=0.2, kl=None, advantages=spread, dual=3.0, **policy):
    """Return the loss of one batch; kl: kl_loss_type, with kl_loss_coef 0.04."""

    def loss(batch):
        config = ActorConfig(
            strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=clip,
            clip_ratio_low=clip,
            clip_ratio_high=clip, clip_ratio_c=dual, loss_agg_mode=agg,
            policy_loss=PolicyLossConfig(**policy),
        )  # fmt: skip
        compute = core_algos.get_policy_loss_fn(mode)
        value = compute(batch.old_logp, batch.logp, advantages(batch), batch.mask, agg, config)[0]
        if kl:
            penalty = core_algos.kl_penalty(batch.logp, batch.ref_logp, kl)
            value = value + 0.04 * core_algos.agg_loss(penalty, batch.mask, agg)
        return value

    return loss


default = make_loss(advantages=normalise)
default_rewards = make_loss()
default_unclipped = make_loss(clip=OFF, dual=OFF)
default_with_kl = make_loss(clip=OFF, dual=OFF, kl="low_var_kl")
sequence_sum = make_loss(agg="seq-mean-token-sum", clip=OFF, dual=OFF, kl="low_var_kl")
kl_k1 = make_loss(agg="seq-mean-token-sum", clip=OFF, dual=OFF, kl="kl")
kl_k2 = make_loss(agg="seq-mean-token-sum", clip=OFF, dual=OFF, kl="mse")
kl_k3_plus = make_loss(agg="seq-mean-token-sum", clip=OFF, dual=OFF, kl="k3+")
kl_abs = make_loss(agg="seq-mean-token-sum", clip=OFF, dual=OFF, kl="abs")
kl_in_reward = make_loss(agg="seq-mean-token-sum", advantages=lambda b: penalise_reward(b, "kl"))
k3_in_reward = make_loss(agg="seq-mean-token-sum", advantages=lambda b: penalise_reward(b, "low_var_kl"))
sequence_mean = make_loss(agg="seq-mean-token-mean", clip=OFF, dual=OFF)
dual_clip = make_loss(agg="seq-mean-token-sum", clip=OFF)
gspo = make_loss("gspo", "seq-mean-token-mean", clip=OFF)
gspo_token_mean = make_loss("gspo", clip=OFF)
cispo = make_loss("cispo", "seq-mean-token-sum", clip=OFF)
cispo_default = make_loss("cispo", "seq-mean-token-sum")
geo_mean = make_loss("geo_mean", clip=OFF)
gpg = make_loss("gpg", "seq-mean-token-sum")
dro = make_loss("dro", "seq-mean-token-sum", dro_beta=1.0)
dppo_tv = make_loss("dppo_tv", "seq-mean-token-sum")
dppo_kl = make_loss("dppo_kl", "seq-mean-token-sum", clip=0.01)
clip_cov = make_loss("clip_cov", "seq-mean-token-sum", clip_cov_lb=0.0, clip_cov_ratio=1.0)
kl_cov = make_loss("kl_cov", "seq-mean-token-sum", kl_cov_ratio=0.5)
opo = make_loss(agg="seq-mean-token-sum", clip=OFF, dual=OFF, advantages=subtract_optimal_baseline)

WHY = {
    "a": "The number of tokens in the denominator depends on the samples: within a group, each reward is "
    "divided by N. It is nearly a constant in a large batch.",
    "b": "No ratio multiplies k3, so the draw of the token is not differentiated: on-policy the gradient "
    "is that of the next token's forward KL, off-policy that of E_mu[k3].",
    "c": "k1 in the loss has the gradient of log q alone: 0 on-policy, and off-policy it moves the policy "
    "away from the sampler; the reference has no effect.",
    "d": "k3+ has the gradient of k2, with no ratio: on-policy that of the next token's KL at fixed "
    "prefixes, off-policy that of E_mu[k2].",
    "e": "k3 in the reward gives the gradient of E_q[k3], whose derivative through the draws differs from "
    "that of the KL by the next token's forward KL.",
    "f": "The ratio is the geometric mean over T tokens, so that its gradient has the factor 1/T: a "
    "sequence-level objective weighted by 1/T.",
    "g": "The baseline holds the sample itself, with a weight that grows with its length.",
}  # fmt: skip
CASES = [
    {"function": "default", "settings": "defaults: vanilla, token-mean; advantages of adv_estimator grpo",
     "group": 2, "why": "a"},
    {"function": "default_rewards", "settings": "defaults, clip 0.2; advantages are the rewards"},
    {"function": "default_rewards", "settings": "defaults, clip 0.2; advantages are the rewards",
     "sampling": "off-policy"},
    {"function": "default_unclipped", "settings": "defaults, clip off"},
    {"function": "default_unclipped", "settings": "defaults, clip off", "sampling": "off-policy"},
    {"function": "default_with_kl",
     "settings": "use_kl_loss, kl_loss_type low_var_kl, coefficient 0.04, clip off"},
    {"function": "default_with_kl",
     "settings": "use_kl_loss, kl_loss_type low_var_kl, coefficient 0.04, clip off",
     "sampling": "off-policy"},
    {"function": "sequence_sum", "settings": "loss_agg_mode seq-mean-token-sum, low_var_kl, clip off",
     "why": "b"},
    {"function": "sequence_sum", "settings": "loss_agg_mode seq-mean-token-sum, low_var_kl, clip off",
     "sampling": "off-policy", "why": "b"},
    {"function": "kl_k1", "settings": "loss_agg_mode seq-mean-token-sum, kl_loss_type kl, clip off",
     "why": "c"},
    {"function": "kl_k1", "settings": "loss_agg_mode seq-mean-token-sum, kl_loss_type kl, clip off",
     "sampling": "off-policy", "why": "c"},
    {"function": "kl_k2", "settings": "loss_agg_mode seq-mean-token-sum, kl_loss_type mse, clip off"},
    {"function": "kl_k2", "settings": "loss_agg_mode seq-mean-token-sum, kl_loss_type mse, clip off",
     "sampling": "off-policy"},
    {"function": "kl_k3_plus", "settings": "loss_agg_mode seq-mean-token-sum, kl_loss_type k3+, clip off",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "core_algos.py: kl_penalty", "why": "d"},
    {"function": "kl_k3_plus", "settings": "loss_agg_mode seq-mean-token-sum, kl_loss_type k3+, clip off",
     "sampling": "off-policy", "promised": "-E[R] + 0.04*reverse-kl", "place": "core_algos.py: kl_penalty",
     "why": "d"},
    {"function": "kl_abs", "settings": "loss_agg_mode seq-mean-token-sum, kl_loss_type abs, clip off"},
    {"function": "kl_abs", "settings": "loss_agg_mode seq-mean-token-sum, kl_loss_type abs, clip off",
     "sampling": "off-policy"},
    {"function": "kl_in_reward",
     "settings": "loss_agg_mode seq-mean-token-sum, use_kl_in_reward, kl_penalty kl, coefficient 0.04",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "ppo_trainer.yaml: kl_penalty"},
    {"function": "k3_in_reward",
     "settings": "seq-mean-token-sum, use_kl_in_reward, kl_penalty low_var_kl, coefficient 0.04",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "ppo_trainer.yaml: kl_penalty", "why": "e"},
    {"function": "sequence_mean", "settings": "loss_agg_mode seq-mean-token-mean, clip off"},
    {"function": "sequence_mean", "settings": "loss_agg_mode seq-mean-token-mean, clip off",
     "sampling": "off-policy"},
    {"function": "dual_clip", "settings": "loss_agg_mode seq-mean-token-sum, clip off, clip_ratio_c 3",
     "sampling": "off-policy"},
    {"function": "gspo", "settings": "gspo, seq-mean-token-mean, clip off", "why": "f"},
    {"function": "gspo", "settings": "gspo, seq-mean-token-mean, clip off", "sampling": "off-policy",
     "why": "f"},
    {"function": "gspo_token_mean", "settings": "gspo, token-mean, clip off", "group": 2},
    {"function": "gspo_token_mean", "settings": "gspo, token-mean, clip off", "sampling": "off-policy",
     "group": 2},
    {"function": "cispo", "settings": "cispo, loss_agg_mode seq-mean-token-sum, clip off"},
    {"function": "cispo", "settings": "cispo, loss_agg_mode seq-mean-token-sum, clip off",
     "sampling": "off-policy"},
    {"function": "cispo_default", "settings": "cispo, loss_agg_mode seq-mean-token-sum, clip 0.2",
     "sampling": "off-policy"},
    {"function": "geo_mean", "settings": "geo_mean, clip off"},
    {"function": "geo_mean", "settings": "geo_mean, clip off", "sampling": "off-policy"},
    {"function": "gpg", "settings": "gpg, loss_agg_mode seq-mean-token-sum"},
    {"function": "gpg", "settings": "gpg, loss_agg_mode seq-mean-token-sum", "sampling": "off-policy"},
    {"function": "dro", "settings": "dro, dro_beta 1, loss_agg_mode seq-mean-token-sum"},
    {"function": "dro", "settings": "dro, dro_beta 1, loss_agg_mode seq-mean-token-sum",
     "sampling": "off-policy"},
    {"function": "dppo_tv", "settings": "dppo_tv, loss_agg_mode seq-mean-token-sum"},
    {"function": "dppo_tv", "settings": "dppo_tv, loss_agg_mode seq-mean-token-sum",
     "sampling": "off-policy"},
    {"function": "dppo_kl", "settings": "dppo_kl, clip 0.01, loss_agg_mode seq-mean-token-sum"},
    {"function": "dppo_kl", "settings": "dppo_kl, clip 0.01, loss_agg_mode seq-mean-token-sum",
     "sampling": "off-policy"},
    {"function": "clip_cov", "settings": "clip_cov, clip_cov_lb 0, clip_cov_ratio 1, seq-mean-token-sum"},
    {"function": "clip_cov", "settings": "clip_cov, clip_cov_lb 0, clip_cov_ratio 1, seq-mean-token-sum",
     "sampling": "off-policy"},
    {"function": "kl_cov", "settings": "kl_cov, kl_cov_ratio 0.5, loss_agg_mode seq-mean-token-sum",
     "group": 2},
    {"function": "kl_cov", "settings": "kl_cov, kl_cov_ratio 0.5, loss_agg_mode seq-mean-token-sum",
     "sampling": "off-policy", "group": 2},
    {"function": "opo", "group": 2,
     "settings": "adv_estimator opo, loss_agg_mode seq-mean-token-sum, clip off",
     "why": "g"},
]  # fmt: skip
