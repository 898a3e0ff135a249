"""LigerFusedLinearGRPOLoss of Liger Kernel, run against liger-kernel==0.8.5.

    pip install klsym[torch]
    pip install --no-deps liger-kernel==0.8.5
    klsym measure docs/examples/measure/liger.py:dr_grpo --group 2

`ppo_loss_fn` is run on one sequence a chunk, as its forward pass does; `module` runs all of it, in float32:
the hidden states are the logits and the head is the unit matrix.
"""

import torch
from liger_kernel.chunked_loss.grpo_loss import LigerFusedLinearGRPOFunction, LigerFusedLinearGRPOLoss

PACKAGE = "liger-kernel"
OFF = 1e9  # a clip range that never binds


def make_loss(beta=0.04, clip=0.2, **options):
    """Return the loss of one batch, with the defaults of ppo_loss_fn; dr_grpo divides by 1."""

    def loss(batch):
        total = 0
        for row in range(len(batch.tokens)):
            at = slice(row, row + 1)
            total = total + LigerFusedLinearGRPOFunction.ppo_loss_fn(
                batch.logp[at], batch.mask[at], batch.rewards[at], batch.mask,
                ref_per_token_logps=batch.ref_logp[at], old_per_token_logps=batch.old_logp[at],
                beta=beta, epsilon_low=clip, epsilon_high=clip, max_completion_length=1,
                num_items_in_batch=batch.mask.sum(), **options,
            )[0]  # fmt: skip
        return total

    return loss


def module(batch):
    """The whole module with its defaults."""
    compute = LigerFusedLinearGRPOLoss(compiled=False)
    return compute(
        batch.logits.float(), torch.eye(batch.logits.shape[-1]), batch.tokens, batch.mask.float(),
        batch.rewards.float(), ref_per_token_logps=batch.ref_logp.float(),
        old_per_token_logps=batch.old_logp.float(), num_items_in_batch=batch.mask.sum(),
    )[0]  # fmt: skip


default = make_loss()
default_unclipped = make_loss(clip=OFF)
dr_grpo = make_loss(loss_type="dr_grpo", clip=OFF)
dr_grpo_corrected = make_loss(loss_type="dr_grpo", clip=OFF, use_bias_correction_kl=True)
grpo = make_loss(loss_type="grpo", clip=OFF)
bnpo = make_loss(loss_type="bnpo", clip=OFF)
cispo = make_loss(loss_type="cispo", clip=OFF)
cispo_default = make_loss(loss_type="cispo", beta=0.0)
sapo = make_loss(loss_type="sapo", beta=0.0)
luspo = make_loss(loss_type="luspo", beta=0.0, clip=OFF)
luspo_sequence = make_loss(loss_type="luspo", beta=0.0, clip=OFF, importance_sampling_level="sequence")
gspo = make_loss(loss_type="grpo", beta=0.0, clip=OFF, importance_sampling_level="sequence")

WHY = {
    "a": "No ratio multiplies k3, so the draw of the token is not differentiated: on-policy the gradient "
    "is that of the next token's forward KL, off-policy that of E_mu[k3].",
    "b": "epsilon_high is the cap itself for cispo and the default 0.2 lies below 1, so that on-policy all"
    " ratios are replaced by 0.2; the documentation recommends 5.",
    "c": "At the token level the loss of luspo is multiplied by the length but not by the mask: it reads "
    "padding. TRL 1.16 sums the masked tokens.",
    "d": "The ratio is the geometric mean over T tokens, so that its gradient has the factor 1/T: a "
    "sequence-level objective weighted by 1/T.",
}  # fmt: skip
CASES = [
    {"function": "default", "settings": "defaults: dapo, beta 0.04"},
    {"function": "default", "settings": "defaults: dapo, beta 0.04", "sampling": "off-policy"},
    {"function": "default_unclipped", "settings": "defaults, clip off", "sampling": "off-policy"},
    {"function": "default_unclipped", "settings": "defaults, clip off", "group": 2},
    {"function": "dr_grpo", "settings": "loss_type dr_grpo, clip off",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "grpo_loss.py: k3_loss_fn", "why": "a"},
    {"function": "dr_grpo", "settings": "loss_type dr_grpo, clip off", "sampling": "off-policy",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "grpo_loss.py: k3_loss_fn", "why": "a"},
    {"function": "dr_grpo_corrected", "settings": "loss_type dr_grpo, use_bias_correction_kl, clip off"},
    {"function": "dr_grpo_corrected", "settings": "loss_type dr_grpo, use_bias_correction_kl, clip off",
     "sampling": "off-policy"},
    {"function": "grpo", "settings": "loss_type grpo, clip off"},
    {"function": "grpo", "settings": "loss_type grpo, clip off", "sampling": "off-policy"},
    {"function": "bnpo", "settings": "loss_type bnpo, clip off"},
    {"function": "bnpo", "settings": "loss_type bnpo, clip off", "sampling": "off-policy"},
    {"function": "cispo", "settings": "loss_type cispo, clip off"},
    {"function": "cispo", "settings": "loss_type cispo, clip off", "sampling": "off-policy"},
    {"function": "cispo_default", "settings": "loss_type cispo, beta 0, other defaults",
     "sampling": "off-policy", "why": "b"},
    {"function": "cispo_default", "settings": "loss_type cispo, beta 0, other defaults",
     "promised": "-policy-gradient/T", "place": "grpo_loss.py: epsilon_high", "why": "b"},
    {"function": "sapo", "settings": "loss_type sapo, beta 0"},
    {"function": "sapo", "settings": "loss_type sapo, beta 0", "sampling": "off-policy"},
    {"function": "luspo", "settings": "loss_type luspo, beta 0, token level, clip off",
     "promised": "-token-policy-gradient", "place": "grpo_loss.py: luspo, 'match TRL'", "why": "c"},
    {"function": "luspo", "settings": "loss_type luspo, beta 0, token level, clip off",
     "sampling": "off-policy", "promised": "-token-policy-gradient",
     "place": "grpo_loss.py: luspo, 'match TRL'", "why": "c"},
    {"function": "luspo_sequence", "settings": "loss_type luspo, beta 0, sequence level, clip off"},
    {"function": "luspo_sequence", "settings": "loss_type luspo, beta 0, sequence level, clip off",
     "sampling": "off-policy"},
    {"function": "gspo", "settings": "loss_type grpo, beta 0, sequence level, clip off", "why": "d"},
    {"function": "gspo", "settings": "loss_type grpo, beta 0, sequence level, clip off",
     "sampling": "off-policy", "why": "d"},
    {"function": "module", "settings": "the whole module, defaults, float32"},
]  # fmt: skip
