"""explain for exact means over the next token, full(x) = sum_y q(y|y_<t) x(y).  Untrusted.

The verdict is that on the sampled loss with the same expected gradient (`vocabulary_means`), with what each
token pushes and which warnings hold for the loss as typed.  Of sums of exact means C_t beside what comes
later, the objective follows without it:

    grad E_q[sum_t C_t] = E_q[sum_t (grad C_t + sum_{u>t} C_u s_t)]

since C_u of an earlier or the same token is known before the token is drawn.  So a loss C_t + log q times the
detached sum of later ones has this objective for every x, also for js(q, p), which lies outside the ring.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.fields.field import collect_score_coefficients
from klsym.engine.fields.slot_loss import build_slot_loss
from klsym.engine.options.settings import Setting
from klsym.engine.outside.as_typed import (
    Explained,
    add_first_step,
    as_typed,
    build_mean_formula,
    build_slope,
    show_mean,
)
from klsym.engine.outside.vocabulary_functions import explain_functions, explain_products, is_product
from klsym.engine.outside.vocabulary_means import (
    RANDOM,
    ExactMean,
    NotALinearMean,
    SampledLoss,
    expand_credit_and_weights,
    is_attached_to_theta,
    is_in_batch,
    is_known,
    read_sampled,
    refuse_setting,
    write_loss,
)
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.sequence_quantities import token_gradient
from klsym.engine.verdicts.verdict import Counterexample, ExpectedValue, TargetReading, Verdict
from klsym.engine.verdicts.warnings import LOSS_WARNINGS
from klsym.errors import NotInRing, UsageError
from klsym.kernel.ring import ZERO
from klsym.language.convert import to_ring
from klsym.language.expressions import A, M, log_mu, log_q, now, remove_sg, rho, s, sg
from klsym.language.messages import Message
from klsym.language.parser import OF_DENSITIES
from klsym.language.sums import Before, OverVocabulary, Summed, Whole, find_word_bounds
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import Formula, Gradient, add_terms, multiply
from klsym.notation.values import LazyFormula, add_brackets, multiply_by_score

ABBREVIATED = re.compile(rf"\b({'|'.join(OF_DENSITIES)})\(")
VOCABULARY_RULE = "mean over the vocabulary"
OF_THE_TOKEN = (*LOSS_WARNINGS, "heavy-tail", "literal-weight", "prefixes-of-mu", "mean-zero-noise")
UNPROVED = ("outside-the-core", "later-dropped")
OPEN_CODES = (
    "open-no-tree", "open-no-model", "open-short-trees", "open-detached",
    "open-held-means", "open-support", "open-vocabulary-in-batch", "open-vocabulary-by-length",
    "open-terms-apart", "open-length-baseline",
)  # fmt: skip


def explain_vocabulary(written: Written, setting: Setting, explained: Explained) -> Verdict:
    """Return the verdict on the sampled loss with the same expected gradient, for the loss as typed."""
    refuse_setting(written, setting)
    try:
        loss = None if is_in_batch(written, setting) else read_sampled(written, setting)
    except NotALinearMean:
        if is_product(written, setting):
            return explain_products(written, *expand_credit_and_weights(written, setting))
        if not setting.is_of_sample:
            raise
        loss = None
    if loss is None:
        return explain_functions(written, setting, explained)
    inner = explained(loss.written, loss.setting)
    has_remainder = loss.remainder != 0 and loss.setting.is_differentiated
    alone = explained(write_loss(loss.remainder), loss.setting) if has_remainder else None
    inner = inner.revise(score_coefficient=_build_per_sample(loss, alone))
    verdict = as_typed(
        inner,
        written,
        setting=setting,
        score_cases=alone.gradient.score_cases if alone else (),
        scores_named=(True, inner.gradient.scores_named[1]),
        inside_clamps=None if find_word_bounds(written.expression) else inner.gradient.inside_clamps,
        assumptions=(Message("full-at-one", setting=setting, of=loss.written.text), *inner.assumptions),
        steps=add_first_step(loss.typed, loss.setting, VOCABULARY_RULE, inner.proof.steps)
        if inner.proof.steps
        else (),
        counterexample=Counterexample(_rewrite_counterexample(loss, inner)),
        expansion=_show_expansion(written, loss),
        remarks=(*inner.gradient.remarks, *_describe_noise(loss)),
        messages=tuple(_list_messages(written, inner, alone, loss)),
    )
    verdict = _add_objective(verdict, loss)
    if loss.setting == setting and not loss.has_lost_terms:
        return verdict
    return verdict.revise(value=_find_value(written, setting, explained))


def _describe_noise(loss: SampledLoss) -> tuple[Message, ...]:
    """Return the note on the variance, if all factors of the exact means are constants."""
    plain = not any(exact_mean.place or exact_mean.c.free_symbols & RANDOM for exact_mean in loss.means)
    if loss.setting.is_reward or not plain:
        return ()
    return (Message("no-variance" if loss.setting.is_of_sample else "no-noise-of-token"),)


# ---------------------------------------------------------------------------- what it says of itself
def _build_per_sample(loss: SampledLoss, alone: Verdict | None) -> Any:
    """Return h: the rest times the score of the token, and each exact mean with the scores of all words."""
    setting = loss.setting
    score = s if setting.is_of_sample else now(s)
    if setting.is_reward:
        return LazyFormula(multiply, (_write_at_now(loss.typed.expression, setting), score))
    parts = [part for exact_mean in loss.means for part in _iterate_pushes(exact_mean, setting, score)]
    if alone is not None and alone.gradient.is_nonzero:
        parts.insert(
            0,
            alone.gradient.score_coefficient
            if alone.gradient.scores_named[0]
            else multiply_by_score(alone.gradient.score_coefficient, score),
        )
    return LazyFormula(add_terms, tuple(parts)) if parts else ZERO


def _iterate_pushes(one: ExactMean, setting: Setting, score: Any) -> Iterator[Any]:
    """Yield C full((x + dx/dlog q) s), and full(x) grad C if C depends on theta outside sg(..)."""
    slope = build_slope(one.x)
    if not one.detached and slope.has(*RANDOM):  # full(s) = 0
        yield _write_at_now(remove_sg(one.c), setting) * OverVocabulary(slope * s)
    if is_attached_to_theta(one.c):
        mean = one.sum if one.place else OverVocabulary(remove_sg(one.x))
        yield LazyFormula(_multiply, (mean, _build_slope_of_factor(one.c, setting, score)))


def _multiply(of: Formula, slope: Formula) -> Formula:
    return multiply(of, add_brackets(slope))


def _build_slope_of_factor(c: Any, setting: Setting, score: Any) -> Any:
    """Return grad C, with its scores."""
    if setting.is_of_sample:
        return LazyFormula(multiply, (remove_sg(sympy.diff(c, log_q)), s))
    at_token = build_slot_loss(Written("", c), replace(setting, use="loss", credit=""))
    slots = collect_score_coefficients(derive(token_gradient(at_token.expression, "q")).differentiate())
    return LazyFormula(multiply, (slots, score)) if {*slots} <= {"now"} else slots


def _write_at_now(e: Any, setting: Setting) -> Any:
    """Write a loss at token t in the slot `now`; a bare name in an answer is of the whole sequence."""
    if setting.is_of_sample:
        return e
    dummies = {of: sympy.Dummy(real=True) for of in e.atoms(Summed, OverVocabulary)}
    originals = {dummy: of for of, dummy in dummies.items()} | {now(A): A}
    return now(e.xreplace(dummies)).xreplace(originals)


def _rewrite_counterexample(loss: SampledLoss, inner: Verdict) -> dict[str, Any] | None:
    """Return the counterexample, its equation written for the loss as typed."""
    if inner.counterexample.model is None or not inner.proof.steps:
        return inner.counterexample.model
    whole = show_mean(loss.typed.expression, loss.setting, TEXT, gradient=True)
    return {
        **inner.counterexample.model,
        "refutes": inner.counterexample.model["refutes"].replace(inner.proof.steps[0][1], whole, 1),
    }


def _show_expansion(written: Written, loss: SampledLoss) -> str | None:
    """Return the loss with its options and abbreviations expanded."""
    if loss.typed is written and not ABBREVIATED.search(written.text):
        return None
    return losses.show(loss.typed.expression, TEXT)


def _find_value(written: Written, setting: Setting, explained: Explained) -> ExpectedValue:
    """Return the value E_m[L] of the loss itself, without credit: that of the sampled loss."""
    try:
        loss = read_sampled(written, replace(setting, use="loss", credit=""))
        scored = any(
            exact_mean.place == "past" or exact_mean.is_multiplied_by_score(loss.setting)
            for exact_mean in loss.means
        )
        sampled = None if scored else explained(loss.written, loss.setting)
    except UsageError:
        sampled = None
    return sampled.value if sampled else ExpectedValue()


# ---------------------------------------------------------------------------- the objective of their sums
def _add_objective(verdict: Verdict, loss: SampledLoss) -> Verdict:
    """Add the objective E_q[sum_t C_t] where no other is known."""
    setting = loss.setting
    plain = setting.is_per_token and setting.is_differentiated and setting.on_policy
    unknown = verdict.target in (None, "objective") and verdict.objective.quantity is None
    means = sum_prefix_means(loss) if unknown and plain else None
    if means is None:
        return verdict
    return verdict.revise(
        gradient=TargetReading("objective", {}, verdict.gradient.canonical_coefficient),
        trust="sympy",
        in_quantities=Gradient(build_mean_formula(means, setting)),
        formula=build_mean_formula(means, setting),
        assumptions=tuple(dict.fromkeys((*verdict.assumptions, Message("exchange-mean", under="q")))),
        remarks=(Message("sum-of-means"), *(x for x in verdict.gradient.remarks if x.code not in OPEN_CODES)),
        messages=(
            Message("outside-the-core", trust="sympy"),
            *(x for x in verdict.messages if x.code not in UNPROVED),
        ),
    )


def sum_prefix_means(loss: SampledLoss) -> Any | None:
    """Return the sum of the C_t of a loss C_t + sg(future(C)) log q; None for other losses.

    >>> from klsym.language.expressions import k1, r
    >>> from klsym.language.sums import After
    >>> c, token = OverVocabulary(k1 * r), Setting(level="token")
    >>> [sum_prefix_means(read_sampled(write_loss(2 * c + n * sg(After(c)) * log_q), token)) for n in (2, 3)]
    [2*full(k1*r), None]
    """
    attached = later = sympy.S.Zero
    for exact_mean in loss.means:
        c, full_mean = remove_sg(exact_mean.c * exact_mean.inner), OverVocabulary(exact_mean.x)
        c = c / log_q if exact_mean.detached else c
        if exact_mean.x.has(sg, rho, log_mu) or c.free_symbols & RANDOM or not is_known(c):
            return None
        if exact_mean.place == "future":
            later += c * full_mean
        elif not exact_mean.detached:
            attached += c * full_mean  # what is detached, and known before the token is drawn, has the mean 0
    is_centred = loss.remainder == 0 and attached != 0 and sympy.expand(later - attached) == 0
    return attached if is_centred else None


# ---------------------------------------------------------------------------- messages
def _list_messages(
    written: Written, inner: Verdict, alone: Verdict | None, loss: SampledLoss
) -> Iterator[Message]:
    """Yield messages on the sampled loss that do not concern the token drawn alone, and further ones."""
    setting, messages_of_rest = inner.setting, alone.messages if alone else ()
    for message in inner.messages:
        if message in messages_of_rest or message.code not in OF_THE_TOKEN:
            yield message
    if inner.target == "zero":
        whole = Message("vanishes", loss=written.text)
        yield (
            Message("zero-gradient", loss=written.text, setting=setting)
            if inner.gradient.is_nonzero
            else whole
        )
    if loss.has_lost_terms:
        yield Message("known-before-drawn")
    bare = [
        x
        for x in loss.means
        if not (x.c * x.inner).has(Before, Whole) and not x.is_multiplied_by_score(setting)
    ]
    if setting.is_per_token and not setting.on_policy and bare and not inner.objective.is_sampler_kl:
        yield Message("means-at-prefixes-of-mu")
    if any(not exact_mean.detached and _is_truncated(exact_mean.x) for exact_mean in loss.means):
        yield Message("truncated")


def _is_truncated(x: Any) -> bool:
    """Is x + dx/dlog q at k1 = 0 a multiple of a mask?"""
    try:
        slope_at_reference = to_ring(build_slope(x)).substitute({"k1": ZERO})
    except NotInRing:
        return False
    return slope_at_reference.names() == {M.name}
