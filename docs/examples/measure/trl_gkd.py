"""GKDTrainer.generalized_jsd_loss of TRL, run against trl==1.16.0.

    pip install klsym[torch] trl==1.16.0
    klsym measure docs/examples/measure/trl_gkd.py:default

On-policy is lmbda 1 with temperature 1.  Off-policy are the sequences of a data set, or of a student that
samples at another temperature, as at the default 0.9.
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

CASES = [
    {"function": "default", "settings": "defaults: beta 0.5"},
    {"function": "default", "settings": "defaults: beta 0.5", "sampling": "off-policy"},
    {"function": "forward", "settings": "beta 0", "promised": "next-token-forward-kl/T",
     "place": "gkd_config.py: beta"},
    {"function": "forward", "settings": "beta 0", "sampling": "off-policy",
     "promised": "next-token-forward-kl/T", "place": "gkd_config.py: beta"},
    {"function": "reverse", "settings": "beta 1", "promised": "next-token-reverse-kl/T",
     "place": "gkd_config.py: beta"},
    {"function": "reverse", "settings": "beta 1", "sampling": "off-policy",
     "promised": "next-token-reverse-kl/T", "place": "gkd_config.py: beta"},
    {"function": "default_sum", "settings": "beta 0.5, num_items_in_batch 1"},
    {"function": "default_sum", "settings": "beta 0.5, num_items_in_batch 1", "sampling": "off-policy"},
    {"function": "forward_sum", "settings": "beta 0, num_items_in_batch 1",
     "promised": "next-token-forward-kl", "place": "gkd_config.py: beta"},
    {"function": "forward_sum", "settings": "beta 0, num_items_in_batch 1", "sampling": "off-policy",
     "promised": "next-token-forward-kl", "place": "gkd_config.py: beta"},
    {"function": "reverse_sum", "settings": "beta 1, num_items_in_batch 1",
     "promised": "next-token-reverse-kl", "place": "gkd_config.py: beta"},
    {"function": "reverse_sum", "settings": "beta 1, num_items_in_batch 1", "sampling": "off-policy",
     "promised": "next-token-reverse-kl", "place": "gkd_config.py: beta"},
]  # fmt: skip
