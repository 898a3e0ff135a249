"""Exact means over the vocabulary whose place leaves it open whether a loss has an objective. Untrusted.

sum_t full(x)_t/T                the length T depends on later tokens, and is not known at the prefix
centred(R) log_q + full(x)       the terms are explained one by one: one compares samples, one is exact
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sympy

from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.engine.outside.vocabulary_means import keep_attached
from klsym.engine.verdicts.verdict import ExpectedValue, Verdict
from klsym.language.messages import Message
from klsym.language.sums import OverBatch, OverVocabulary
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT


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


def explain_without_held(
    written: Written, setting: Setting, explained: Callable[[Written, Setting], Verdict]
) -> Verdict | None:
    """Return the verdict on a loss over T whose exact means are all held; None for other losses.

    A held term has gradient 0 at every sample, so the gradient is that of the other terms.
    """
    attached = keep_attached(written.expression)
    is_of_loss = setting.averaged and setting.is_differentiated
    if not is_of_loss or attached == written.expression or attached.has(OverVocabulary):
        return None
    if attached:
        inner = explained(Written(losses.show(attached, TEXT), attached), setting)
    else:
        inner = explained(written, replace(setting, aggregate="sum"))
    expansion = expand_options(written, setting)
    return inner.revise(text=written.text, setting=setting, expansion=expansion, value=ExpectedValue())
