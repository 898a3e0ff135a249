"""Exact means over the vocabulary whose place leaves it open whether a loss has an objective. Untrusted.

sum_t full(x)_t/T                the length T depends on later tokens, and is not known at the prefix
centred(R) log_q + full(x)       the terms are explained one by one: one compares samples, one is exact
"""

from __future__ import annotations

import sympy

from klsym.engine.options.settings import Setting
from klsym.language.messages import Message
from klsym.language.sums import OverBatch, OverVocabulary
from klsym.notation.losses import Written


def find_open_reason(written: Written, setting: Setting) -> Message | None:
    """Return why a loss with exact means is left open; None for those that are decided, or refused.

    >>> from klsym.engine.answers.dispatch import as_written
    >>> mean = as_written("full_kl(q, p)", ())
    >>> settings = Setting(level="token", aggregate="mean"), Setting()
    >>> [reason and reason.code for reason in (find_open_reason(mean, x) for x in settings)]
    ['open-vocabulary-by-length', None]
    """
    if setting.is_reward or setting.is_of_sequence or setting.is_centred:
        return None
    if setting.averaged:
        return Message("open-vocabulary-by-length")
    addends = sympy.Add.make_args(written.expression)
    exact = [x for x in addends if x.has(OverVocabulary)]
    compares = [x for x in addends if x.atoms(OverBatch)]
    if setting.is_of_sample and compares and not {*exact} & {*compares}:
        return Message("open-terms-apart", other="is an exact mean")
    return None
