"""GKDTrainer.generalized_jsd_loss of TRL, run against trl==1.16.0.

    pip install klsym[torch] trl==1.16.0
    klsym measure docs/examples/measure/trl_gkd.py:default

On-policy is lmbda 1 with temperature 1.  Off-policy are the sequences of a data set, or of a student that samples at
another temperature, as at the default 0.9.
"""

from trl.experimental.gkd.gkd_trainer import GKDTrainer

PACKAGE = "trl"


def make_loss(beta, whole_batch=True):
    """Return the loss of one batch; whole_batch: divided by its tokens, else by 1."""

    def loss(batch):
        labels = batch.tokens.masked_fill(batch.mask == 0, -100)
        count = None if whole_batch else 1
        return GKDTrainer.generalized_jsd_loss(
            batch.logits, batch.ref_logits, labels, beta=beta, num_items_in_batch=count
        )

    return loss


default = make_loss(0.5)
forward = make_loss(0)
reverse = make_loss(1)
default_sum = make_loss(0.5, whole_batch=False)
forward_sum = make_loss(0, whole_batch=False)
reverse_sum = make_loss(1, whole_batch=False)
CASES = []
