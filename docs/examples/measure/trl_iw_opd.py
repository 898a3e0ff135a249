"""IWOPDTrainer._compute_iw_opd_loss of TRL (arXiv:2606.22600), run against trl==1.16.0.

    pip install klsym[torch] trl==1.16.0
    klsym measure docs/examples/measure/trl_iw_opd.py:default

The reference is the teacher.  The loss is divided by 1 instead of by the number of tokens, but in
`whole_batch`.
"""

from collections import defaultdict
from types import SimpleNamespace

from trl.experimental.iw_opd.iw_opd_trainer import IWOPDTrainer

PACKAGE = "trl"


def make_loss(gamma=0.5, rollout=True, count=1):
    """Return the loss of one batch; rollout: is the old policy's log-probability given?"""

    def loss(batch):
        trainer = object.__new__(IWOPDTrainer)
        vars(trainer).update(
            temperature=1.0, iw_opd_gamma=gamma, iw_opd_epsilon=1e-8,
            model=SimpleNamespace(training=True), _metrics=defaultdict(lambda: defaultdict(list)),
        )  # fmt: skip
        labels = batch.tokens.masked_fill(batch.mask == 0, -100)
        return trainer._compute_iw_opd_loss(
            batch.logits, batch.tokens, labels, batch.ref_logp, batch.old_logp if rollout else None,
            num_items_in_batch=count,
        )  # fmt: skip

    return loss


default = make_loss()
no_weights = make_loss(gamma=0.0)
whole_batch = make_loss(count=None)

CASES = [
    {"function": "default", "settings": "iw_opd_gamma 0.5"},
    {"function": "default", "settings": "iw_opd_gamma 0.5", "sampling": "off-policy"},
    {"function": "no_weights", "settings": "iw_opd_gamma 0"},
    {"function": "no_weights", "settings": "iw_opd_gamma 0", "sampling": "off-policy"},
    {"function": "whole_batch", "settings": "iw_opd_gamma 0.5, divided by the tokens of the batch"},
]  # fmt: skip
