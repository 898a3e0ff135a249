"""The GRPO loss of Tunix, in JAX, run against google-tunix==0.1.7.

    pip install klsym[jax] flax optax humanize
    pip install --no-deps google-tunix==0.1.7
    klsym measure docs/examples/measure/tunix_jax.py:default --group 2

Its forward pass is replaced by the log densities of the batch.  Tunix computes in float32.
"""

from types import SimpleNamespace

import jax  # noqa: F401  (klsym sees that the loss is in JAX)
import stubs

stubs.add(
    "google", "orbax", "qwix", "grain", "kagglehub", "transformers", "vllm", "sglang", "sgl_jax",
    "jaxtyping", "metrax",
    "tensorflow", "pathwaysutils", "wandb", "omegaconf", "absl", "perfetto", "sentencepiece", "jinja2",
    "numba",
    "hf_transfer", "tensorflow_datasets", "datasets", "clu", "tensorboardX",
)  # fmt: skip
from tunix.rl import algo_core  # noqa: E402
from tunix.rl.grpo.drgrpo_learner import DrGRPOConfig  # noqa: E402
from tunix.rl.grpo.grpo_learner import GRPOConfig  # noqa: E402

PACKAGE = "google-tunix"
OFF = 1e9  # a clip range that never binds


def make_loss(config=GRPOConfig, advantages=lambda batch: batch.rewards, scale=None, **options):
    """Return the loss of one batch; scale: the constant of sequence-mean-token-scale."""
    settings = config(num_generations=2, **options)
    settings.temperature = 1.0

    def loss(batch):
        example = SimpleNamespace(
            prompt_ids=batch.input_ids[:, :1], completion_ids=batch.tokens, completion_mask=batch.mask,
            advantages=advantages(batch), old_per_token_logps=batch.old_logp,
            ref_per_token_logps=batch.ref_logp,
        )  # fmt: skip
        algo_core.nnx = SimpleNamespace(split=lambda model: (None, None))
        algo_core.common.compute_per_token_logps = lambda *_, **__: (batch.logp, batch.logits)
        return algo_core.grpo_loss_fn(None, example, settings, pad_id=0, eos_id=0)

    return loss


def normalise(batch):
    """Return the advantages of the estimator grpo."""
    return (batch.rewards - batch.rewards.mean()) / (batch.rewards.std(ddof=1) + 1e-4)


default = make_loss()
default_unclipped = make_loss(epsilon=OFF)
low_var_kl = make_loss(epsilon=OFF, kl_loss_mode="low_var_kl")
token_sum = make_loss(epsilon=OFF, loss_agg_mode="seq-mean-token-sum")
token_sum_mse_kl = make_loss(epsilon=OFF, loss_agg_mode="seq-mean-token-sum", kl_loss_mode="mse_kl")
token_sum_low_var_kl = make_loss(epsilon=OFF, loss_agg_mode="seq-mean-token-sum", kl_loss_mode="low_var_kl")
dr_grpo = make_loss(DrGRPOConfig, epsilon=OFF)
gspo = make_loss(epsilon=OFF, beta=0.0, loss_algo="gspo-token")

WHY = {
    "a": "kl_loss_mode is kl, which is k1 in the loss: the reference has no effect on the gradient. On-"
    "policy the mean over tokens leaves a reward for length.",
    "b": "k1 in the loss lowers log q of the samples: it moves the policy away from the sampler and does "
    "not depend on the reference.",
    "c": "k1 in the loss has the expected gradient 0 on-policy: the reference has no effect.",
    "d": "No ratio multiplies k3, so the draw of the token is not differentiated: on-policy the gradient "
    "is that of the next token's forward KL, off-policy that of E_mu[k3].",
    "e": "The ratio is the geometric mean over T tokens, so that its gradient has the factor 1/T: a "
    "sequence-level objective weighted by 1/T.",
}  # fmt: skip
CASES = [
    {"function": "default",
     "settings": "defaults: beta 0.04, kl_loss_mode kl, sequence-mean-token-mean; advantages are the rewards",
     "why": "a"},
    {"function": "default",
     "settings": "defaults: beta 0.04, kl_loss_mode kl, sequence-mean-token-mean; advantages are the rewards",
     "sampling": "off-policy", "why": "a"},
    {"function": "default_unclipped", "settings": "defaults, clip off", "sampling": "off-policy",
     "why": "b"},
    {"function": "low_var_kl", "settings": "kl_loss_mode low_var_kl, clip off"},
    {"function": "low_var_kl", "settings": "kl_loss_mode low_var_kl, clip off", "sampling": "off-policy"},
    {"function": "token_sum", "settings": "loss_agg_mode seq-mean-token-sum, clip off",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "grpo_learner.py: beta", "why": "c"},
    {"function": "token_sum", "settings": "loss_agg_mode seq-mean-token-sum, clip off",
     "sampling": "off-policy", "promised": "-E[R] + 0.04*reverse-kl", "place": "grpo_learner.py: beta",
     "why": "c"},
    {"function": "token_sum_mse_kl", "settings": "seq-mean-token-sum, kl_loss_mode mse_kl, clip off"},
    {"function": "token_sum_mse_kl", "settings": "seq-mean-token-sum, kl_loss_mode mse_kl, clip off",
     "sampling": "off-policy"},
    {"function": "token_sum_low_var_kl",
     "settings": "seq-mean-token-sum, kl_loss_mode low_var_kl, clip off", "why": "d"},
    {"function": "token_sum_low_var_kl",
     "settings": "seq-mean-token-sum, kl_loss_mode low_var_kl, clip off", "sampling": "off-policy",
     "why": "d"},
    {"function": "dr_grpo", "settings": "DrGRPOConfig, clip off"},
    {"function": "dr_grpo", "settings": "DrGRPOConfig, clip off", "sampling": "off-policy"},
    {"function": "gspo", "settings": "loss_algo gspo-token, beta 0, clip off", "why": "e"},
    {"function": "gspo", "settings": "loss_algo gspo-token, beta 0, clip off", "sampling": "off-policy",
     "why": "e"},
]  # fmt: skip
