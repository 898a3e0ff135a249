"""A loss of whole sequences, written for each token of the sequence.  Untrusted.

A loss L of the sequence is L/T at each of its T tokens; a reward multiplies the score of each.  A sum that
is differentiated, of what is no log ratio, has to be linear in such a loss.  Of another loss of sums W_i the
first order has the same gradient, at every sample:

    grad L(W) = sum_i (dL/dW_i) grad W_i,    W_i = sum_t x_{i,t}:    sum_i sg(dL/dW_i) x_{i,t} at token t
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.fields.slot_loss import has_batch_sum, is_summable_over_tokens, write_per_token
from klsym.engine.options.settings import Setting
from klsym.engine.regions.piecewise import PIECEWISE
from klsym.language.expressions import (
    DENSITIES,
    M,
    OfRow,
    R,
    exp,
    k1,
    log_q,
    r,
    remove_sg,
    rho,
    rho_old,
    sg,
    unfold,
)
from klsym.language.messages import Message
from klsym.language.sums import OverBatch, Summed, Whole
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT

FIRST_ORDERS = ("first-order-at-each-token", "first-order-in-group")  # codes of notes on what replaces a loss


def rewrite_per_token(written: Written, setting: Setting) -> tuple[Written, Setting]:
    """Rewrite a loss of whole sequences with sums of other than log ratios, or over kept tokens, per token.

    >>> from klsym.language.expressions import k2
    >>> loss = Written("", Whole(M * k2) / Whole(M))
    >>> rewrite_per_token(loss, Setting(level="sequence"))[0].text
    'M*k2/whole(M)'
    >>> rewrite_per_token(Written("", Whole(k2) ** 3), Setting(level="sequence"))[0].text
    'k2*sg(3*whole(k2)**2)'
    """
    e = written.expression
    divisors = {x for x in e.atoms(sympy.Pow) if x.exp.could_extract_minus_sign()}
    has_count = any(summed.has(M) for x in divisors for summed in x.atoms(Whole))
    sums = {summed: sympy.Dummy(log_q.name, real=True) for summed in e.atoms(Summed)}  # so that sg(..) stays
    if not (setting.is_of_sequence and (has_count or not all(map(is_summable_over_tokens, sums)))):
        return written, setting
    is_whole = all(isinstance(summed, Whole) for summed in sums) and not e.xreplace(sums).has(M)
    is_single = not setting.is_centred and not has_batch_sum(e.xreplace(dict.fromkeys(divisors, sympy.S.One)))
    if not (is_whole and is_single):
        return written, setting
    loss, note = _write_loss_of_token(e.xreplace(sums), sums, setting)
    reading = Written(losses.show(loss, TEXT), loss, written.typed or written.text, (*written.notes, note))
    return reading, replace(setting, level="token", weights="token")


def find_slopes(written: Written) -> tuple[tuple[Any, Any], ...]:
    """Return the slopes and what is summed of a loss that its first order replaces; () of other losses."""
    return next((note.values["slopes"] for note in written.notes if note.code in FIRST_ORDERS), ())


def _write_loss_of_token(bare: Any, sums: dict[Any, Any], setting: Setting) -> tuple[Any, Message]:
    """Return the loss at a token, and the note on it; bare: with names for its sums over tokens."""
    bare = bare.replace(lambda x: isinstance(x, OfRow), lambda x: x.express_in_k1())
    sequence_values = {x: exp(Whole(x.args[0] - x.args[1])) for x in (rho, rho_old)} | {r: exp(-Whole(k1))}
    sequence_values |= {x: Whole(x) for x in (k1, *DENSITIES, R)}
    for old, new in sequence_values.items():  # r and rho before the log densities that define them
        bare = bare.xreplace({old: sums.setdefault(new, sympy.Dummy(log_q.name, real=True))})
    back = {dummy: summed for summed, dummy in sums.items()}
    slopes = () if setting.is_reward else _find_slopes(bare, back)
    if slopes:
        return sympy.Add(*(sg(slope) * x for slope, x in slopes)), Message(
            "first-order-at-each-token", slopes=slopes
        )
    loss = bare.xreplace(back)
    return (loss if setting.is_reward else write_per_token(loss, sympy.S.One)), Message("at-each-token")


def _name_exponents(e: Any, back: Mapping[Any, Any]) -> tuple[Any, dict[Any, Any]]:
    """Write the ratio of a sequence as exp of a name for its sum over tokens."""
    sums = {name: value for name, value in back.items() if isinstance(value, Whole)}
    for name in e.free_symbols & (back.keys() - sums):
        ratio = back[name]
        [total] = ratio.atoms(Whole)
        sums[total_name := sympy.Dummy(log_q.name, real=True)] = total
        e = e.xreplace({name: ratio.xreplace({total: total_name})})
    return e, {**back, **sums}


def _find_slopes(bare: Any, back: Mapping[Any, Any]) -> tuple[tuple[Any, Any], ...]:
    """Return pairs (dL/dW_i, x_i), if a loss is smooth and not linear in sums of other than log ratios."""
    held: dict[Any, Any] = {}
    opened = bare.replace(lambda e: isinstance(e, sg), lambda e: held.setdefault(e, sympy.Dummy(real=True)))
    opened, back = _name_exponents(opened, back)
    restored = {dummy: detached for detached, dummy in held.items()}
    totals = {w for w in opened.free_symbols & back.keys() if unfold(back[w]).has(log_q)}
    if any(e.free_symbols & totals for e in opened.atoms(OverBatch)):
        return ()
    unlike = {w for w in totals if not is_summable_over_tokens(back[w])}
    order = sorted(totals, key=lambda name: sympy.default_sort_key(back[name]))
    slopes = {w: sympy.diff(opened, w) for w in order}
    is_linear = not any(slopes[w].free_symbols & totals for w in unlike)
    if is_linear or opened.atoms(*PIECEWISE):
        return ()
    typed = {w: remove_sg(slope.xreplace(restored)).xreplace(back) for w, slope in slopes.items()}
    return tuple((slope, back[w].args[0]) for w, slope in typed.items())
