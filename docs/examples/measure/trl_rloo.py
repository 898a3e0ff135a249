"""RLOOTrainer._compute_loss of TRL, run against trl==1.16.0.

    pip install klsym[torch] trl==1.16.0
    klsym measure docs/examples/measure/trl_rloo.py:default --group 2

The KL in the reward and the leave-one-out baseline stand inside _generate_and_score_completions:
`compute_advantages` repeats these lines.
"""

from collections import defaultdict
from types import SimpleNamespace

from trl.trainer.rloo_trainer import RLOOTrainer

PACKAGE = "trl"
OFF = 1e9  # a clip range that never binds


def compute_advantages(batch, beta, normalize):
    """Return R - beta*KL less the mean of the other samples."""
    kl = ((batch.old_logp - batch.ref_logp) * batch.mask).sum(-1)
    rewards, count = batch.rewards - beta * kl, len(batch.rewards)
    advantages = rewards - (rewards.sum() - rewards) / (count - 1)
    if normalize:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-4)
    return advantages


def make_loss(beta=0.05, epsilon=0.2, normalize=False):
    """Return the loss of one batch, with the defaults of RLOOConfig."""

    def loss(batch):
        trainer = object.__new__(RLOOTrainer)
        vars(trainer).update(
            epsilon_low=epsilon, epsilon_high=epsilon, aux_loss_enabled=False, model=batch.model,
            _metrics=defaultdict(lambda: defaultdict(list)),
            accelerator=SimpleNamespace(gather=lambda x: x, reduce=lambda x, reduction: x),
            _get_per_token_logps_and_entropies=lambda *_, **__: (batch.logp, -batch.logp.detach(), None),
        )  # fmt: skip
        prompts = batch.input_ids[:, :1]
        inputs = {
            "prompt_ids": prompts, "prompt_mask": 1 + 0 * prompts, "completion_ids": batch.tokens,
            "completion_mask": batch.mask, "advantages": compute_advantages(batch, beta, normalize),
            "old_logps": (batch.old_logp * batch.mask).sum(-1),
        }  # fmt: skip
        return trainer._compute_loss(batch.model, inputs)

    return loss


default = make_loss()
without_kl = make_loss(beta=0.0)
unclipped = make_loss(epsilon=OFF)
normalized = make_loss(normalize=True)

CASES = [
    {"function": "default", "settings": "defaults: beta 0.05", "group": 2,
     "promised": "-E[R] + 0.05*reverse-kl", "place": "rloo_config.py: beta"},
    {"function": "default", "settings": "defaults, clip 0.2", "sampling": "off-policy", "group": 2},
    {"function": "without_kl", "settings": "beta 0", "group": 2, "promised": "-E[R]",
     "place": "rloo_trainer.py: leave-one-out baseline"},
    {"function": "unclipped", "settings": "beta 0.05, clip off", "sampling": "off-policy", "group": 2},
    {"function": "normalized", "settings": "normalize_advantages true", "group": 2},
]  # fmt: skip
