"""A penalty in NumPy, which has no gradient."""

import numpy as np


def k3_of_tokens(logp, ref_logp, mask):
    log_ratio = ref_logp - logp
    return ((np.exp(log_ratio) - log_ratio - 1) * mask).sum(-1)
