"""The GRPO loss of Tunix, in JAX, run against google-tunix==0.1.7.

    pip install klsym[jax] flax optax humanize
    pip install --no-deps google-tunix==0.1.7
    klsym measure docs/examples/measure/tunix_jax.py:default --group 2

Its forward pass is replaced by the log densities of the batch.  Tunix computes in float32.
"""

from types import SimpleNamespace

import jax
import stubs

stubs.add(
    "google", "orbax", "qwix", "grain", "kagglehub", "transformers", "vllm", "sglang", "sgl_jax", "jaxtyping", "metrax",
    "tensorflow", "pathwaysutils", "wandb", "omegaconf", "absl", "perfetto", "sentencepiece", "jinja2", "numba",
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
            advantages=advantages(batch), old_per_token_logps=batch.old_logp, ref_per_token_logps=batch.ref_logp,
        )  # fmt: skip
        algo_core.nnx = SimpleNamespace(split=lambda model: (None, None))
        algo_core.common.compute_per_token_logps = lambda *_, **__: (batch.logp, batch.logits)
        return algo_core.grpo_loss_fn(None, example, settings, pad_id=0, eos_id=0)

    return loss


def normalise(batch):
    """Return the advantages of the estimator grpo."""
    return (batch.rewards - batch.rewards.mean()) / (batch.rewards.std(ddof=1) + 1e-4)


assert jax
default = make_loss()
default_unclipped = make_loss(epsilon=OFF)
low_var_kl = make_loss(epsilon=OFF, kl_loss_mode="low_var_kl")
token_sum = make_loss(epsilon=OFF, loss_agg_mode="seq-mean-token-sum")
token_sum_mse_kl = make_loss(epsilon=OFF, loss_agg_mode="seq-mean-token-sum", kl_loss_mode="mse_kl")
token_sum_low_var_kl = make_loss(epsilon=OFF, loss_agg_mode="seq-mean-token-sum", kl_loss_mode="low_var_kl")
dr_grpo = make_loss(DrGRPOConfig, epsilon=OFF)
gspo = make_loss(epsilon=OFF, beta=0.0, loss_algo="gspo-token")
CASES = []
