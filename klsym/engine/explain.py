"""explain: from a loss to a verdict.  Untrusted; the kernel replays every theorem in the verdict.

>>> verdict = explain("rho*k3", sampling="off-policy")
>>> verdict.target, verdict.trust, verdict.gradient.canonical_text
('reverse-kl', 'kernel', 'k1')
>>> explain("k3", level="token").target
'no-objective'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sympy

from klsym.engine.answers.dispatch import as_written as as_written
from klsym.engine.answers.dispatch import explain_written as explain_written
from klsym.engine.answers.dispatch import minimises_own_mean
from klsym.engine.answers.is_correct import guess_intended_target
from klsym.engine.answers.named_losses import read_question
from klsym.engine.answers.typed_terms import split_terms
from klsym.engine.fields.in_groups import rewrite_in_group
from klsym.engine.fields.of_sequences import has_terms_of_sequences, rewrite_of_sequences
from klsym.engine.fields.per_token import find_slopes, rewrite_per_token
from klsym.engine.fields.slot_loss import has_token_sum
from klsym.engine.fields.slot_loss import refuse_unless_moderate as refuse_unless_moderate
from klsym.engine.options.choices import SAMPLERS
from klsym.engine.options.settings import Setting, checked_setting
from klsym.engine.options.synonyms import read_choice
from klsym.engine.outside.inner_clips import drop_inner_clips
from klsym.engine.verdicts.lazy import LazyCases, Search
from klsym.engine.verdicts.verdict import Verdict, build_open_verdict
from klsym.errors import UsageError
from klsym.language.expressions import ATOMS, PARAMETERS, M
from klsym.language.messages import Message
from klsym.language.sums import OverVocabulary
from klsym.notation.losses import Written, show
from klsym.notation.printers import TEXT

SELECTION = "selection-held"  # the code of a note that a comparison with a quantile is read as the mask M


def explain(loss: object, parameters: Iterable[str] = (), **options: str | None) -> Verdict:
    """Derive what a loss targets; loss, parameters and options are those of `klsym.explain`."""
    sampling = options.get("sampling")
    sampler = SAMPLERS.get(read_choice("sampling", sampling)) if isinstance(sampling, str) else None
    if sampler is not None and sampler.is_cut and not isinstance(parameters, str):
        parameters = (*parameters, "S")
    question = read_question(loss, parameters, options)
    verdict = explain_in_setting(question.written, read_setting(question.written, question.options))
    written = verdict.loss.written or question.written
    target = guess_intended_target(verdict, written)
    asked = verdict.loss.asked or verdict.setting  # a cut sampler of tokens is answered as another setting
    if target is None or (asked.truncated and asked.is_per_token):
        return verdict
    from klsym.engine.answers.suggestion import suggest_loss  # seldom needed

    return verdict.revise(suggestion=Search(suggest_loss, verdict, written, target))


def explain_in_setting(written: Written, asked: Setting) -> Verdict:
    """Return the verdict on a loss that was read, with its terms, and without what to write instead."""
    if asked.truncated:
        from klsym.engine.answers import cut_sampler  # seldom needed

        written = cut_sampler.restrict_to_drawn_words(written)
    plain, typed, of_sequence = drop_inner_clips(written, asked), written, asked
    if rewrite_per_token(plain, asked)[0] is not plain:
        written, asked = rewrite_per_token(written, asked)
    written, asked = rewrite_of_sequences(written, asked)
    written = rewrite_in_group(written, asked)
    of_tokens = asked.truncated and asked.is_per_token
    written, setting = cut_sampler.rewrite_under_mu(written, asked) if of_tokens else (written, asked)
    verdict = _explain_as_a_whole(written, setting)
    verdict = cut_sampler.restrict_to_cut_sampler(verdict, written) if of_tokens else verdict
    terms = () if of_tokens else LazyCases(_explain_terms, written, setting)
    if slopes := find_slopes(written):
        from klsym.engine.outside.first_order import restore_typed_loss  # seldom needed

        explained = explain_written if minimises_own_mean(typed, of_sequence) else None
        verdict = restore_typed_loss(verdict, slopes, typed=typed, asked=of_sequence, explained=explained)
        terms, asked = LazyCases(_explain_terms, typed, of_sequence), of_sequence
        written = written if setting.is_per_token else replace(typed, notes=written.notes)
    text = written.typed or (written.text if slopes else verdict.loss.text)
    assumed = tuple(note for note in written.notes if note.code in ("floors-left-out", SELECTION))
    assumptions = (*verdict.assumptions, *assumed)
    dropped = tuple(note for note in plain.notes if note not in written.notes)
    written = replace(written, notes=(*written.notes, *dropped))
    return verdict.revise(text=text, written=written, terms=terms, asked=asked, assumptions=assumptions)


def _explain_as_a_whole(written: Written, setting: Setting) -> Verdict:
    """Return the verdict; terms of tokens beside terms of whole responses are left open, with their terms."""
    if has_terms_of_sequences(written, setting):
        reason = Message("open-terms-apart", other="is of each token")
        return build_open_verdict(written, setting, reason)
    return explain_written(written, setting)


def read_setting(written: Written, options: Mapping[str, str | None]) -> Setting:
    """Return how a loss is used; one that says itself which tokens are summed has no credit."""
    sums = has_token_sum(written.expression)
    if sums and options.get("credit"):
        raise UsageError(
            f"credit: {written.text[:60]!r} says itself which tokens are summed; leave credit out"
        )
    setting = checked_setting(**options)
    if setting.truncated and written.expression.has(OverVocabulary):
        raise UsageError(
            "sampling truncated: an exact mean over all words, such as full(..), needs no sample and is not"
            " cut off: ask for it on-policy, and for the rest of the loss with this option"
        )
    if setting.truncated and any(note.code == SELECTION for note in written.notes):
        raise UsageError(
            "sampling truncated: M is the mask of the sampler, and a selection that is held would be"
            " another one: choose on-policy or off-policy"
        )
    return replace(setting, credit="") if sums else setting


def _explain_terms(written: Written, setting: Setting) -> tuple[Any, ...]:
    """Return what each term of a sum does, in the order typed; under std the terms do not add up."""
    if not written.expression.is_Add or setting.divides_by_std:
        return ()
    from klsym.engine.answers.term_analysis import explain_terms

    held = tuple(note for note in written.notes if note.code == SELECTION)

    def explain_term(e: Any) -> Verdict:
        verdict = _explain_term(e, setting)
        if not held or not e.has(M) or verdict.loss.written is None:
            return verdict
        return verdict.revise(written=replace(verdict.loss.written, notes=held))

    return explain_terms(list_addends(written), explain_term)


def list_addends(written: Written) -> list[Written]:
    """Return the terms of a sum as typed; in SymPy's order where no text was typed."""
    names = {symbol.name for symbol in written.expression.free_symbols}
    typed = [Written(*term) for term in split_terms(written.text, names - {*ATOMS, *PARAMETERS})]
    if sum(term.expression for term in typed) == written.expression:
        return typed
    terms = sorted(sympy.Add.make_args(written.expression), key=sympy.default_sort_key)
    return [Written(show(e, TEXT), e) for e in terms]


@lru_cache(maxsize=256)
def _explain_term(term: Any, setting: Setting) -> Verdict:
    """Return the verdict on a term; losses that are asked for in turn often share their terms."""
    written = as_written(term, ())
    rewrites = (rewrite_per_token, rewrite_of_sequences)
    is_rewritten = any(rewrite(written, setting)[0] is not written for rewrite in rewrites)
    return (explain_in_setting if is_rewritten else explain_written)(written, setting)
