"""From a loss as it is written to its verdict; `explain` adds what to write instead.  Untrusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import Any

import sympy

from klsym.engine.fields.position_sums import UnsupportedSum
from klsym.engine.fields.slot_loss import (
    has_batch_sum,
    has_token_sum,
    has_vocabulary_sum,
    rewrite_for_sequence,
)
from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.engine.outside.inner_clips import drop_inner_clips
from klsym.engine.regions.in_steps import detaches_policy
from klsym.engine.targets.ring import explain_ring
from klsym.engine.verdicts.verdict import ExpectedValue, Verdict, build_open_verdict, find_sense
from klsym.errors import KlsymError, NotInRing, Refused, TooManyRegions, UsageError
from klsym.kernel.names import SAMPLE_BASES, is_declarable
from klsym.language.convert import is_in_core, to_ring
from klsym.language.expressions import (
    ATOMS,
    DENSITIES,
    PARAMETERS,
    REWARDS,
    M,
    OverPositions,
    R,
    as_loss,
    length,
    s,
    sg,
)
from klsym.language.messages import Message
from klsym.language.parser import is_of_answers
from klsym.language.pasted.text import join_lines
from klsym.language.spellings import read_loss
from klsym.language.sums import DENSITIES as POLICIES
from klsym.language.sums import (
    Centred,
    Divided,
    LeftOut,
    Normalised,
    OfOthers,
    OverBatch,
    OverVocabulary,
    Relative,
    Summed,
    full_kl,
)
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT


def explain_written(written: Written, setting: Setting) -> Verdict:
    """Return the verdict on a loss in a setting."""
    plain = drop_inner_clips(written, setting)
    try:
        verdict = _explain_by_level(plain, setting)
    except TooManyRegions as error:
        named = {x.name for x in written.expression.free_symbols}
        names = tuple(sorted(named - {*ATOMS, "T", "n", str(s)}))
        reason = Message("too-many-regions", most=error.most, names=names)
        verdict = build_open_verdict(written, setting, reason)
    verdict = verdict.revise(sense=find_sense(written, setting))
    if plain is not written:
        trust = "sympy" if verdict.trust == "kernel" else verdict.trust
        verdict = verdict.revise(trust=trust, assumptions=(*verdict.assumptions, plain.notes[-1]))
    return _name_own_mean(verdict) if minimises_own_mean(written, setting) else verdict


def _name_own_mean(verdict: Verdict) -> Verdict:
    """Return the verdict with the word for an objective that is the mean of the loss itself."""
    gradient, inside = verdict.gradient, verdict.gradient.inside_clamps
    if inside is not None and inside.target == "objective":
        gradient = replace(gradient, inside_clamps=replace(inside, target="own-mean"))
    if gradient.target == "objective":
        gradient = replace(gradient, target="own-mean")
    return verdict.revise(gradient=gradient)


def minimises_own_mean(written: Written, setting: Setting) -> bool:
    """Is E_mu[grad L] = grad E_mu[L], since mu does not depend on theta and nothing in L is detached?

    What where(..) chooses is detached, and is constant in each region.

    >>> off_policy = Setting("off-policy")
    >>> [minimises_own_mean(as_written(loss, ()), off_policy)
    ...  for loss in ("k2", "where(rho < 2, k2, 0)", "sg(rho)*k2")]
    [True, True, False]
    """
    is_of_samples = setting.is_differentiated and not setting.is_centred and not setting.on_policy
    return is_of_samples and not detaches_policy(written.expression)


def _explain_by_level(written: Written, setting: Setting) -> Verdict:
    """Return the verdict; raises TooManyRegions."""
    if setting.divisor.over_batch or (not setting.is_of_sample and has_batch_sum(written.expression)):
        from klsym.engine.outside.all_tokens import explain_all_tokens, split_batch_mean
        from klsym.engine.outside.length_baselines import find_length_baseline

        if (reason := find_length_baseline(written, setting)) is not None:
            return build_open_verdict(written, setting, reason)
        over = split_batch_mean(written.expression, setting)
        if over is not None:
            return explain_all_tokens(
                written, over, setting, lambda e, use: _explain_by_level(as_written(e, ()), use)
            )
    refuse_taken_names(written, setting)
    if has_vocabulary_sum(written.expression):
        from klsym.engine.outside.open_means import explain_without_held, find_open_reason

        if (verdict := explain_without_held(written, setting, _explain_by_level)) is not None:
            return verdict
        if (reason := find_open_reason(written, setting)) is not None:
            return build_open_verdict(written, setting, reason)
        from klsym.engine.outside.vocabulary import explain_vocabulary

        try:
            return explain_vocabulary(written, setting, _explain_by_level)
        except UnsupportedSum as error:
            raise _build_refusal(written, error) from None
    if setting.is_of_sequence:
        written = rewrite_for_sequence(written)
    try:
        verdict = _choose_explainer(written, setting)(written, setting)
    except TooManyRegions:
        raise
    except (NotInRing, Refused) as error:
        raise _build_refusal(written, error) from None
    verdict = (
        verdict if verdict.loss.expansion else verdict.revise(expansion=expand_options(written, setting))
    )
    if verdict.value.target is None and _is_centred(written.expression) and not setting.averaged:
        return verdict.revise(value=ExpectedValue("zero", constant=sympy.S.Zero))
    return verdict


def _is_centred(e: Any) -> bool:
    """Is it a constant times loo(h) or its like, which have the mean 0 over a batch?"""
    constant, centred = e.as_independent(OverBatch, as_Add=False)
    fixed = not constant.has(*DENSITIES, *REWARDS, length, OverPositions)
    return fixed and isinstance(centred, LeftOut | Centred | Normalised | Relative)


def _build_refusal(written: Written, error: KlsymError) -> UsageError:
    """Return the error for a loss that is not in the ring, or too large for it."""
    refuse_zero_denominator(written)
    if is_in_core(written.expression) and not isinstance(error, UnsupportedSum):
        return UsageError(f"{written.text[:60]!r} is too large once multiplied out: {error}")
    return UsageError(f"{written.text[:60]!r} is not handled: {error}")


def _choose_explainer(written: Written, setting: Setting) -> Callable[[Written, Setting], Verdict]:
    """Return the explainer for a loss; modules that are seldom needed are loaded only then."""
    if written.expression.has(Divided) and not setting.is_per_token:
        from klsym.engine.outside.batch_divisions import explain_divided

        return explain_divided
    if written.expression.has(OfOthers) and not setting.is_per_token and not setting.divides_by_std:
        from klsym.engine.outside.two_valued_groups import explain_counts

        return explain_counts
    if setting.divides_by_std:
        from klsym.engine.outside.batch_std import explain_batch_std

        return explain_batch_std
    return explain_ring


def refuse_zero_denominator(written: Written) -> None:
    """Refuse a loss with a denominator that is 0."""
    for power in written.expression.atoms(sympy.Pow):
        if power.exp.is_Integer and power.exp < 0:
            with suppress(NotInRing):
                if not to_ring(power.base):
                    raise UsageError(f"division by zero in {written.text!r}") from None


def refuse_taken_names(written: Written, setting: Setting) -> None:
    """Refuse names that have another meaning in a setting: T, V, and m = n - 1."""
    names = {symbol.name for symbol in written.expression.free_symbols}
    if setting.is_of_sample and "T" in names:
        raise UsageError(
            f"T in {written.text[:60]!r} is the length of a sequence, and a single sample has none: choose"
            " level token or sequence, or declare another name for a constant"
        )
    if not setting.is_per_token and names & {"V", "V_next"}:
        raise UsageError(
            f"V in {written.text[:60]!r} is a function of the tokens before one: choose level token"
        )
    if has_batch_sum(written.expression):
        _refuse_in_batch(written, setting, names)
    if setting.is_of_sample and has_token_sum(written.expression):
        raise UsageError(
            f"{written.text[:60]!r} sums over the tokens of a sequence, and a single sample has none: choose"
            " level token or sequence"
        )
    if setting.centring is not None and setting.centring.reserves_m and "m" in names:
        raise UsageError(f"m in {written.text[:60]!r} stands for n - 1 here: choose another name")


OF_FIXED_ADVANTAGE = (
    "; for advantages that are taken to be fixed, as if on no other sample, type A in place of the"
    " sum, in code `advantages = A; ...`"
)
OF_RESPONSE = (
    "; for one reward of each response beside what is of each token, type whole(R) for R in the sum, as in"
    " -log_q*normalised(whole(R)) + beta*k3, or in code advantages.unsqueeze(1)"
)


def _refuse_in_batch(written: Written, setting: Setting, names: set[str]) -> None:
    """Refuse settings that do not go with sums over the samples of a batch."""
    text = repr(written.text[:60])
    if setting.is_per_token:
        of_tokens = written.expression.replace(lambda e: isinstance(e, Summed), lambda _: sympy.Dummy())
        hint = OF_RESPONSE if of_tokens.has(R) else OF_FIXED_ADVANTAGE
        raise UsageError(f"{text} sums over the samples of a batch: choose level sequence or sample{hint}")
    if setting.is_centred:
        raise UsageError(f"batch: {text} says itself what is centred; leave batch out")
    if "m" in names:
        raise UsageError(f"m in {text} stands for n - 1 here: choose another name")


def as_written(loss: Any, parameters: Iterable[str]) -> Written:
    """Return a loss with its text, typed or printed."""
    if isinstance(loss, str):
        reading = read_loss(loss, parameters)
        expression, held = _hold_comparison(reading.expression)
        if reading.in_grammar and not held:
            return Written(loss, expression)
        return Written(show_loss(expression), expression, join_lines(loss), (*reading.notes, *held))
    expression = as_loss(loss)
    _refuse_names_of_answers(expression)
    return Written(losses.show(expression, TEXT), expression)


def _hold_comparison(e: Any) -> tuple[Any, tuple[Message, ...]]:
    """Return a loss with the mask M for its one comparison of an exact mean, such as H(q) > 1/2, and a note.

    Autograd gives a comparison the slope 0, so that it is held, too.
    """
    compared = [x for x in e.atoms(sg) if isinstance(x.args[0], sympy.Heaviside) and x.has(OverVocabulary)]
    if len(compared) != 1 or e.has(M):
        return e, ()
    return e.xreplace({compared[0]: M}), (Message("selection-held", of=losses.show(compared[0], TEXT)),)


def show_loss(expression: Any) -> str:
    """Return a loss in the grammar, with full_kl(q, p) for full(k1) and the like."""
    text = losses.show(expression, TEXT)
    for first, second in permutations(POLICIES, 2):
        text = text.replace(losses.show(full_kl(first, second), TEXT), f"full_kl({first}, {second})")
    return text


def _refuse_names_of_answers(expression: Any) -> None:
    """Refuse parameters with a name that answers use; k1[now] and a dummy are no parameters."""
    names = {symbol.name for symbol in expression.free_symbols if not isinstance(symbol, sympy.Dummy)}
    for name in sorted(names - {*ATOMS, *PARAMETERS, *SAMPLE_BASES, str(s)}):
        if name.isidentifier() and (is_of_answers(name) or not is_declarable(name)):
            raise UsageError(f"parameter {name!r}: a new plain name expected: answers use it; type {name}1")
