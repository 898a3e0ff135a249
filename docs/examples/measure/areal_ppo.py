"""ppo_actor_loss_fn, sapo_loss_fn and KLEstimator of AReaL, run against areal==1.0.4.

    pip install klsym[torch] transformers datasets
    pip install --no-deps areal==1.0.4
    klsym measure docs/examples/measure/areal_ppo.py:default

The KL goes into the reward of each token, as in areal/trainer/ppo/actor.py, here without a discount; the
loss is a mean over tokens.
"""

import stubs

stubs.add(
    "ray", "vllm", "sglang", "wandb", "peft", "deepspeed", "megatron", "torchdata", "aiofiles",
    "uvloop", "colorlog",
    "swanlab", "flask", "fastapi", "uvicorn", "aiohttp", "pybase64", "nvidia", "hydra", "realhf", "zmq",
    "torchvision",
    "trackio", "math_verify", "setproctitle", "mbridge", "einops", "openai", "anthropic", "PIL",
    "gymnasium", "numba",
    "prometheus_client", "pynvml", "tenacity", "werkzeug", "tensorboardX",
)  # fmt: skip
from areal.utils.data import KLEstimator  # noqa: E402
from areal.utils.functional.functional import ppo_actor_loss_fn, sapo_loss_fn  # noqa: E402

PACKAGE = "areal"
OFF = 1e9  # a clip range that never binds


def make_loss(kl="k1", coef=0.0, clip=0.2, **options):
    """Return the loss of one batch, without a critic; coef: kl_ctl, of which AReaL's default is 0.1."""

    def loss(batch):
        penalty = coef * KLEstimator(kl)(batch.old_logp, batch.ref_logp) * batch.mask
        later = penalty.flip(-1).cumsum(-1).flip(-1)
        advantages = batch.rewards[:, None] - later
        return ppo_actor_loss_fn(
            batch.logp, batch.old_logp, batch.sampler_logp, advantages, clip, batch.mask > 0, **options
        )

    return loss


default = make_loss()
unclipped = make_loss(clip=OFF)
gspo = make_loss(clip=OFF, importance_sampling_level="sequence")
dual_clip = make_loss(clip=OFF, c_clip=3.0)
kl_in_reward = make_loss(coef=0.1, clip=OFF)


def sapo(batch):
    advantages = batch.rewards[:, None] + 0 * batch.mask
    return sapo_loss_fn(batch.logp, batch.old_logp, advantages, 1.0, 1.05, batch.mask > 0)


WHY = {
    "k": "The KL of the tokens from t on goes with the score of token t, and all is divided by the number of "
    "tokens: the divisor depends on later tokens, so that no objective has this gradient.",
    "a": "The ratio is the geometric mean over T tokens, so that its gradient has the factor 1/T: a "
    "sequence-level objective weighted by 1/T.",
}  # fmt: skip
CASES = [
    {"function": "default", "settings": "defaults of ppo_actor_loss_fn, clip 0.2; no KL"},
    {"function": "default", "settings": "defaults of ppo_actor_loss_fn, clip 0.2; no KL",
     "sampling": "off-policy"},
    {"function": "unclipped", "settings": "clip off"},
    {"function": "unclipped", "settings": "clip off", "sampling": "off-policy"},
    {"function": "unclipped", "settings": "clip off", "group": 2},
    {"function": "kl_in_reward", "settings": "kl_ctl 0.1, estimator k1, no discount, clip off",
     "why": "k"},
    {"function": "kl_in_reward", "settings": "kl_ctl 0.1, estimator k1, no discount, clip off",
     "sampling": "off-policy"},
    {"function": "gspo", "settings": "importance_sampling_level sequence, clip off", "why": "a"},
    {"function": "gspo", "settings": "importance_sampling_level sequence, clip off",
     "sampling": "off-policy", "why": "a"},
    {"function": "dual_clip", "settings": "c_clip 3, clip off", "sampling": "off-policy"},
    {"function": "sapo", "settings": "sapo_loss_fn"},
    {"function": "sapo", "settings": "sapo_loss_fn", "sampling": "off-policy"},
]  # fmt: skip
