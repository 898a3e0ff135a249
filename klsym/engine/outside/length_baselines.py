"""Baselines that weigh the rewards of a group by its lengths, as in OPO: what is known of them. Untrusted.

The sample itself is in the mean.  Source: Hao et al., On-Policy RL with Optimal Reward Baseline,
arXiv:2505.23585.
"""

from __future__ import annotations

import sympy

from klsym.engine.fields.position_sums import T
from klsym.engine.options.settings import Setting
from klsym.language.expressions import A, R, log_q, remove_sg
from klsym.language.messages import Message
from klsym.language.sums import OfOthers, OverBatch
from klsym.notation.losses import Written


def find_length_baseline(written: Written, setting: Setting) -> Message | None:
    """Return why c*sg(h - sum_i T_i h_i/sum_i T_i)*log_q of sequences is left open; None for other losses.

    >>> from klsym.engine.answers.dispatch import as_written
    >>> opo = as_written("-sg(R - groupsum(T*R)/groupsum(T))*log_q", ())
    >>> find_length_baseline(opo, Setting(level="sequence")).values["descended"]
    -R
    """
    is_of_group = setting.is_of_sequence and setting.on_policy and setting.is_differentiated
    if not is_of_group or setting.is_centred or setting.divisor.over_batch:
        return None
    weight = remove_sg(written.expression) / log_q
    for others in weight.atoms(OfOthers):
        h = sympy.cancel(others.args[0] / T)
        if not h.free_symbols & {R, A} or h.has(log_q, T, OverBatch):
            continue
        centred = h - (T * h + others) / (T + OfOthers(T))
        factor = sympy.cancel(sympy.together(weight / centred))
        if not factor.has(OverBatch) and not factor.free_symbols & {R, A, log_q, T}:
            return Message("open-length-baseline", descended=factor * h)
    return None
