"""REAL (rewards as labels, arXiv:2602.05630) in GRPOTrainer of ms-swift, run against ms-swift==4.6.0.

    pip install klsym[torch] transformers accelerate datasets && pip install --no-deps ms-swift==4.6.0
    klsym measure docs/examples/measure/swift_real.py:default --group 2

The trainer is made without its constructor.  A group with rewards of one sign has the loss 0.
"""

from types import SimpleNamespace

import stubs

stubs.add("modelscope", "modelscope_hub", "qwen_vl_utils", "addict", "aiohttp", "msgspec", "trl")
from swift.rlhf_trainers.grpo_trainer import GRPOTrainer  # noqa: E402

PACKAGE = "ms-swift"


def make_loss(tau=0.5, centred=True):
    """Return the loss of one batch; centred: are the advantages the rewards less their mean?"""

    def loss(batch):
        trainer = object.__new__(GRPOTrainer)
        vars(trainer).update(
            loss_type="real", real_tau=tau, num_generations=len(batch.rewards), beta=0.0, kl_in_reward=False,
            compute_entropy=False, overlong_filter=False, rollout_importance_sampling_mode=None,
            log_rollout_offpolicy_metrics=False, disable_rollout_importance_sampling=True,
            importance_sampling_level="token", _has_teacher=False, off_policy_sequence_mask_delta=None,
            sdar_loss_coef=0.0, chord_sft_iterator=None, args=SimpleNamespace(delta=None),
            model=SimpleNamespace(training=True),
            _get_per_token_logps_and_entropies=lambda *_, **__: (batch.logp, None),
        )  # fmt: skip
        advantages = batch.rewards - batch.rewards.mean() if centred else batch.rewards
        inputs = SimpleNamespace(
            completion_mask=batch.mask.bool(), truncated_mask=None, old_per_token_logps=batch.old_logp,
            rollout_per_token_logps=None, advantages=advantages[:, None] * batch.mask,
        )  # fmt: skip
        return trainer._compute_loss_and_metrics(batch.model, None, inputs)[0]

    return loss


default = make_loss()

CASES = [
    {"function": "default", "settings": "loss_type real, real_tau 0.5", "group": 2},
    {"function": "default", "settings": "loss_type real, real_tau 0.5", "sampling": "off-policy",
     "group": 2},
]  # fmt: skip
