"""grpo_compute_loss of Unsloth, run against unsloth-zoo==2026.10.9.

    pip install klsym[torch] transformers
    pip install --no-deps unsloth-zoo==2026.10.9
    klsym measure docs/examples/measure/unsloth_grpo.py:grpo --group 2

Unsloth patches Transformers when it is imported.
"""

import os

import stubs

os.environ["UNSLOTH_IS_PRESENT"] = os.environ["UNSLOTH_ALLOW_CPU"] = "1"
stubs.add(
    "bitsandbytes", "xformers", "triton", "vllm", "wandb", "peft", "trl", "cut_cross_entropy", "hf_transfer",
    "unsloth", "msgspec", "torchao", "torchvision", "PIL",
)  # fmt: skip
from unsloth_zoo.rl_replacements import grpo_compute_loss  # noqa: E402

PACKAGE = "unsloth-zoo"
OFF = 1e9  # a clip range that never binds


def make_loss(beta=0.04, clip=0.2, **options):
    """Return the loss of one batch; dr_grpo divides by 1."""

    def loss(batch):
        return grpo_compute_loss(
            batch.ref_logp, batch.logp, batch.old_logp, None, batch.tokens, batch.mask, beta, batch.rewards,
            epsilon_low=clip, epsilon_high=clip, max_completion_length=1, num_items_in_batch=batch.mask.sum(),
            **options,
        )[0]  # fmt: skip

    return loss


grpo = make_loss()
grpo_unclipped = make_loss(clip=OFF)
dr_grpo = make_loss(clip=OFF, loss_type="dr_grpo")
dr_grpo_corrected = make_loss(clip=OFF, loss_type="dr_grpo", use_bias_correction_kl=True)
bnpo = make_loss(clip=OFF, loss_type="bnpo")
cispo_default = make_loss(beta=0.0, loss_type="cispo")
gspo = make_loss(beta=0.0, clip=OFF, importance_sampling_level="sequence")

WHY = {
    "a": "No ratio multiplies k3, so the draw of the token is not differentiated: on-policy the gradient "
    "is that of the next token's forward KL, off-policy that of E_mu[k3].",
    "b": "epsilon_high is the cap itself for cispo and the default 0.2 lies below 1, so that on-policy all"
    " ratios are replaced by 0.2; the documentation recommends 5.",
    "c": "The ratio is the geometric mean over T tokens, so that its gradient has the factor 1/T: a "
    "sequence-level objective weighted by 1/T.",
}  # fmt: skip
CASES = [
    {"function": "grpo", "settings": "loss_type grpo, beta 0.04"},
    {"function": "grpo", "settings": "loss_type grpo, beta 0.04", "sampling": "off-policy"},
    {"function": "grpo_unclipped", "settings": "loss_type grpo, beta 0.04, clip off",
     "sampling": "off-policy"},
    {"function": "dr_grpo", "settings": "loss_type dr_grpo, clip off",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "rl_replacements.py: comment 'Reverse KL'",
     "why": "a"},
    {"function": "dr_grpo", "settings": "loss_type dr_grpo, clip off", "sampling": "off-policy",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "rl_replacements.py: comment 'Reverse KL'",
     "why": "a"},
    {"function": "dr_grpo_corrected", "settings": "loss_type dr_grpo, use_bias_correction_kl, clip off"},
    {"function": "dr_grpo_corrected", "settings": "loss_type dr_grpo, use_bias_correction_kl, clip off",
     "sampling": "off-policy"},
    {"function": "bnpo", "settings": "loss_type bnpo, clip off"},
    {"function": "bnpo", "settings": "loss_type bnpo, clip off", "sampling": "off-policy"},
    {"function": "bnpo", "settings": "loss_type bnpo, clip off", "group": 2},
    {"function": "cispo_default", "settings": "loss_type cispo, beta 0", "why": "b"},
    {"function": "cispo_default", "settings": "loss_type cispo, beta 0", "sampling": "off-policy",
     "why": "b"},
    {"function": "gspo", "settings": "importance_sampling_level sequence, beta 0, clip off", "why": "c"},
    {"function": "gspo", "settings": "importance_sampling_level sequence, beta 0, clip off",
     "sampling": "off-policy", "why": "c"},
]  # fmt: skip
