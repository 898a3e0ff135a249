"""GRPOTrainer._compute_loss of TRL, run against trl==1.16.0.

    pip install klsym[torch] trl==1.16.0
    klsym measure docs/examples/measure/trl_grpo.py:default --group 2

The trainer is made without its constructor, with the attributes that the loss reads.  Its forward pass asks
the model for log_probs and entropy, which are those of the batch here.
"""

from collections import defaultdict
from types import SimpleNamespace

from trl.trainer.grpo_trainer import GRPOTrainer

PACKAGE = "trl"
OFF = 1e9  # a clip range that never binds


def build_trainer(
    batch,
    loss_type="dapo",
    beta=0.0,
    level="token",
    bias_correction=True,
    epsilon=0.2,
    cap=None,
    mask_threshold=None,
):
    """Return a trainer with the defaults of GRPOConfig; max_completion_length is 1: dr_grpo divides by it."""
    trainer = object.__new__(GRPOTrainer)
    vars(trainer).update(
        loss_type=loss_type, beta=beta, importance_sampling_level=level, epsilon_low=epsilon,
        epsilon_high=epsilon if cap is None else cap, max_completion_length=1, top_entropy_quantile=1.0,
        off_policy_mask_threshold=mask_threshold, use_vllm=False,
        aux_loss_enabled=False, _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1, model=batch.model,
        _metrics=defaultdict(lambda: defaultdict(list)),
        args=SimpleNamespace(
            use_bias_correction_kl=bias_correction, delta=None, sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            steps_per_generation=1, vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
        ),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _get_per_token_logps_and_entropies=lambda *_, **__: (batch.logp, -batch.logp.detach(), None),
    )  # fmt: skip
    return trainer


def compute_advantages(batch, scale="group"):
    """Return R - mean, over std + 1e-4 by default: as in _generate_and_score_completions."""
    centred = batch.rewards - batch.rewards.mean()
    return centred / (batch.rewards.std() + 1e-4) if scale == "group" else centred


def make_loss(advantages=lambda batch: batch.rewards, reuse=True, **options):
    """Return the loss of one batch; reuse: are old_per_token_logps given, as after the first update?"""

    def loss(batch):
        inputs = {
            "prompt_ids": batch.input_ids[:, :1], "prompt_mask": 1 + 0 * batch.input_ids[:, :1],
            "completion_ids": batch.tokens, "completion_mask": batch.mask, "advantages": advantages(batch),
            "ref_per_token_logps": batch.ref_logp, "num_items_in_batch": batch.mask.sum(),
        }  # fmt: skip
        if reuse:
            inputs["old_per_token_logps"] = batch.old_logp
        return build_trainer(batch, **options)._compute_loss(batch.model, inputs)

    return loss


default = make_loss(compute_advantages)
default_mean_only = make_loss(lambda b: compute_advantages(b, "none"))
default_with_kl = make_loss(beta=0.04)
default_with_kl_unclipped = make_loss(beta=0.04, epsilon=OFF)
grpo = make_loss(loss_type="grpo", beta=0.04, epsilon=OFF)
bnpo = make_loss(loss_type="bnpo", beta=0.04, epsilon=OFF)
dr_grpo = make_loss(loss_type="dr_grpo", beta=0.04, epsilon=OFF)
dr_grpo_mean_only = make_loss(lambda b: compute_advantages(b, "none"), loss_type="dr_grpo")
dr_grpo_scaled = make_loss(compute_advantages, loss_type="dr_grpo")
dr_grpo_uncorrected = make_loss(loss_type="dr_grpo", beta=0.04, epsilon=OFF, bias_correction=False)
dr_grpo_sequence = make_loss(loss_type="dr_grpo", beta=0.04, epsilon=OFF, level="sequence")
gspo = make_loss(loss_type="grpo", level="sequence", epsilon=OFF)
luspo = make_loss(loss_type="luspo", level="sequence", epsilon=OFF)
luspo_token_level = make_loss(loss_type="luspo", epsilon=OFF)
cispo = make_loss(loss_type="cispo", beta=0.04, cap=OFF)
cispo_default = make_loss(loss_type="cispo")
sapo = make_loss(loss_type="sapo")
vespo = make_loss(loss_type="vespo")
opsm = make_loss(
    lambda b: compute_advantages(b, "none"), loss_type="dr_grpo", epsilon=OFF, mask_threshold=0.1
)

WHY = {
    "a": "The number of tokens in the denominator depends on the samples: within a group, each reward is "
    "divided by N. It is nearly a constant in a large batch.",
    "b": "The ratio of a token corrects the draw of that token alone, and the sampled prefix is not "
    "differentiated: this is the gradient of the next token's KL at prefixes of the sampler, not of "
    "the KL of sequences.",
    "c": "The mean holds the sample itself: for groups of n the gradient is (n - 1)/n of that of E[R].",
    "d": "The ratio is the geometric mean over T tokens, so that its gradient has the factor 1/T: a "
    "sequence-level objective weighted by 1/T.",
    "e": "epsilon_high is the cap itself for cispo and the default 0.2 lies below 1, so that on-policy all"
    " ratios are replaced by 0.2; the documentation recommends 5.",
}  # fmt: skip
CASES = [
    {"function": "default", "settings": "defaults: loss_type dapo, beta 0, scale_rewards group", "group": 2,
     "why": "a"},
    {"function": "default", "settings": "defaults, clip 0.2", "sampling": "off-policy", "group": 2},
    {"function": "default_mean_only", "settings": "scale_rewards none", "group": 2},
    {"function": "default_with_kl", "settings": "beta 0.04; advantages are the rewards"},
    {"function": "default_with_kl", "settings": "beta 0.04; advantages are the rewards",
     "sampling": "off-policy"},
    {"function": "default_with_kl_unclipped", "settings": "beta 0.04, clip off", "sampling": "off-policy"},
    {"function": "default_with_kl_unclipped", "settings": "beta 0.04, clip off", "group": 2},
    {"function": "default_with_kl_unclipped", "settings": "beta 0.04, clip off", "sampling": "off-policy",
     "group": 2},
    {"function": "grpo", "settings": "loss_type grpo, beta 0.04, clip off"},
    {"function": "grpo", "settings": "loss_type grpo, beta 0.04, clip off", "sampling": "off-policy"},
    {"function": "bnpo", "settings": "loss_type bnpo, beta 0.04, clip off"},
    {"function": "bnpo", "settings": "loss_type bnpo, beta 0.04, clip off", "sampling": "off-policy"},
    {"function": "dr_grpo", "settings": "loss_type dr_grpo, beta 0.04, clip off",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "grpo_config.py: use_bias_correction_kl", "why": "b"},
    {"function": "dr_grpo", "settings": "loss_type dr_grpo, beta 0.04, clip off", "sampling": "off-policy",
     "promised": "-E[R] + 0.04*reverse-kl", "place": "grpo_config.py: use_bias_correction_kl", "why": "b"},
    {"function": "dr_grpo_mean_only", "settings": "loss_type dr_grpo, scale_rewards none", "group": 2,
     "why": "c"},
    {"function": "dr_grpo_scaled", "settings": "loss_type dr_grpo, scale_rewards group", "group": 2},
    {"function": "dr_grpo_uncorrected",
     "settings": "loss_type dr_grpo, beta 0.04, use_bias_correction_kl false, clip off"},
    {"function": "dr_grpo_uncorrected",
     "settings": "loss_type dr_grpo, beta 0.04, use_bias_correction_kl false, clip off",
     "sampling": "off-policy"},
    {"function": "dr_grpo_sequence",
     "settings": "loss_type dr_grpo, beta 0.04, importance_sampling_level sequence, clip off"},
    {"function": "dr_grpo_sequence",
     "settings": "loss_type dr_grpo, beta 0.04, importance_sampling_level sequence, clip off",
     "sampling": "off-policy"},
    {"function": "gspo", "settings": "importance_sampling_level sequence, loss_type grpo, clip off",
     "why": "d"},
    {"function": "gspo", "settings": "importance_sampling_level sequence, loss_type grpo, clip off",
     "sampling": "off-policy", "why": "d"},
    {"function": "luspo", "settings": "loss_type luspo, importance_sampling_level sequence, clip off"},
    {"function": "luspo", "settings": "loss_type luspo, importance_sampling_level sequence, clip off",
     "sampling": "off-policy"},
    {"function": "luspo_token_level",
     "settings": "loss_type luspo, importance_sampling_level token, clip off"},
    {"function": "luspo_token_level",
     "settings": "loss_type luspo, importance_sampling_level token, clip off", "sampling": "off-policy"},
    {"function": "cispo", "settings": "loss_type cispo, beta 0.04, epsilon_high off"},
    {"function": "cispo", "settings": "loss_type cispo, beta 0.04, epsilon_high off",
     "sampling": "off-policy"},
    {"function": "cispo_default", "settings": "loss_type cispo, other defaults", "sampling": "off-policy",
     "why": "e"},
    {"function": "cispo_default", "settings": "loss_type cispo, other defaults",
     "promised": "-policy-gradient/T", "place": "grpo_config.py: loss_type, epsilon_high", "why": "e"},
    {"function": "sapo", "settings": "loss_type sapo"},
    {"function": "sapo", "settings": "loss_type sapo", "sampling": "off-policy"},
    {"function": "vespo", "settings": "loss_type vespo"},
    {"function": "vespo", "settings": "loss_type vespo", "sampling": "off-policy"},
    {"function": "opsm", "settings": "off_policy_mask_threshold 0.1, loss_type dr_grpo, clip off",
     "group": 2, "why": "c"},
    {"function": "opsm", "settings": "off_policy_mask_threshold 0.1, loss_type dr_grpo, clip off",
     "sampling": "off-policy", "group": 2},
]  # fmt: skip
