"""A loss of tokens whose advantage compares whole responses of a batch, written for sequences.  Untrusted.

The advantage h of a response multiplies what is of each of its tokens.  If x has the same slope c at each,

    sum_t grad(x_t) h = c h sum_t grad log q_t:    c log_q h of the sequence, over T where tokens are averaged
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.fields.slot_loss import has_batch_sum
from klsym.engine.options.settings import Setting
from klsym.engine.regions.piecewise import PIECEWISE
from klsym.errors import UsageError
from klsym.language.expressions import DENSITIES, REWARDS, R, log_q, remove_sg, sg, unfold
from klsym.language.messages import Message
from klsym.language.sums import OverBatch, Summed, Whole
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT


def rewrite_of_sequences(written: Written, setting: Setting) -> tuple[Written, Setting]:
    """Rewrite a loss of tokens, all of whose terms compare whole responses, as one of sequences.

    >>> from klsym.language.sums import Normalised
    >>> from klsym.language.expressions import exp
    >>> of_token = Written("", exp(log_q - sg(log_q)) * Normalised(Whole(R)))
    >>> written, setting = rewrite_of_sequences(of_token, Setting(level="token", aggregate="mean"))
    >>> written.text, setting.level, setting.aggregate
    ('log_q*normalised(R)', 'sequence', 'mean')
    """
    if not compares_responses(written, setting):
        return written, setting
    if setting.divisor.over_batch:
        _refuse_over_all_tokens(written)
        return written, setting
    terms = [_write_of_sequence(term) for term in sympy.Add.make_args(written.expression)]
    if None in terms:
        return written, setting
    loss = sympy.Add(*terms)
    note = Message("of-sequences")
    reading = Written(losses.show(loss, TEXT), loss, written.typed or written.text, (*written.notes, note))
    return reading, replace(setting, level="sequence", weights="", credit="")


def has_terms_of_sequences(written: Written, setting: Setting) -> bool:
    """Is it a sum of terms that compare whole responses, and of terms of each token alone?

    >>> from klsym.language.sums import Centred
    >>> from klsym.language.expressions import k3
    >>> setting = Setting(level="token", aggregate="mean")
    >>> whole, token = (Written("", k3 - log_q * Centred(x)) for x in (Whole(R), R))
    >>> has_terms_of_sequences(whole, setting), has_terms_of_sequences(token, setting)
    (True, False)
    """
    if not compares_responses(written, setting) or setting.divisor.over_batch:
        return False
    terms = sympy.Add.make_args(written.expression)
    of_batch = [term for term in terms if has_batch_sum(term)]
    return len(of_batch) < len(terms) and all(_write_of_sequence(term) is not None for term in of_batch)


def compares_responses(written: Written, setting: Setting) -> bool:
    """Is it a loss at each token that compares the samples of a batch?"""
    is_plain = setting.is_differentiated and not (setting.truncated or setting.is_centred)
    return is_plain and setting.is_per_token and has_batch_sum(written.expression)


def _refuse_over_all_tokens(written: Written) -> None:
    """Refuse a loss that compares whole responses and is divided by all tokens of their batch."""
    terms = [term for term in sympy.Add.make_args(written.expression) if has_batch_sum(term)]
    if all(_write_of_sequence(term) is not None for term in terms):
        raise UsageError(
            f"{written.text[:60]!r} compares responses and is divided by all tokens of the batch: not read;"
            " for the loss that is divided by the tokens of each response choose aggregate mean"
        )


def _write_of_sequence(term: Any) -> Any | None:
    """Return c log_q h for x h, the slope c of x a constant, and h of whole responses; None for others."""
    x, h = term.as_independent(OverBatch, as_Add=False)
    at_response = h.replace(lambda e: isinstance(e, Whole) and e.args[0] == R, lambda _: sympy.Dummy())
    if not has_batch_sum(h) or at_response.has(*DENSITIES, *REWARDS, Summed) or h.has(*PIECEWISE):
        return None
    held: dict[Any, Any] = {}
    opened = unfold(x).replace(lambda e: isinstance(e, sg), lambda e: held.setdefault(e, sympy.Dummy()))
    if opened.has(*PIECEWISE):
        return None
    slope = sympy.diff(opened, log_q).xreplace({dummy: value for value, dummy in held.items()})
    slope = sympy.expand(remove_sg(slope))
    if slope.has(*DENSITIES, *REWARDS, Summed):
        return None
    return slope * log_q * h.xreplace({Whole(R): R})
