"""A2POTrainer.compute_loss of TRL (A*-PO, arXiv:2505.20686), run against trl==1.16.0.

    pip install klsym[torch] trl==1.16.0
    klsym measure docs/examples/measure/trl_a2po.py:default

The trainer is made without its constructor.  V*, an estimate from samples of the reference, is a number
here: TRL computes it before training.
"""

from collections import defaultdict
from types import SimpleNamespace

from trl.experimental.a2po.a2po_trainer import A2POTrainer

PACKAGE = "trl"


def make_loss(beta, value):
    """Return the loss of one batch; value: V* of the prompt."""

    def loss(batch):
        trainer = object.__new__(A2POTrainer)
        vars(trainer).update(
            args=SimpleNamespace(beta2=beta), _metrics=defaultdict(lambda: defaultdict(list)),
            model=batch.model, _get_sequence_logps=lambda *_: (batch.logp * batch.mask).sum(-1),
        )  # fmt: skip
        inputs = {
            "input_ids": batch.input_ids, "attention_mask": None, "logits_to_keep": None,
            "v_star": 0 * batch.rewards + value, "ref_logps": (batch.ref_logp * batch.mask).sum(-1),
            "rewards": batch.rewards,
        }  # fmt: skip
        return trainer.compute_loss(batch.model, inputs)

    return loss


default = make_loss(1e-3, 0.0)
larger_beta = make_loss(0.5, 0.0)
with_value = make_loss(0.5, 0.25)

CASES = [
    {"function": "default", "settings": "beta2 0.001, the default; V* 0"},
    {"function": "larger_beta", "settings": "beta2 0.5, V* 0"},
    {"function": "larger_beta", "settings": "beta2 0.5, V* 0", "sampling": "off-policy"},
    {"function": "with_value", "settings": "beta2 0.5, V* 0.25"},
]  # fmt: skip
