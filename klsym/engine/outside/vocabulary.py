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
from klsym.engine.outside.as_typed import Explained, as_typed, mean_formula, mean_text, slope_of, steps_from
from klsym.engine.outside.vocabulary_functions import explain_functions
from klsym.engine.outside.vocabulary_means import (
    RANDOM,
    ExactMean,
    NotALinearMean,
    SampledLoss,
    holds_moving_name,
    in_batch,
    is_known,
    printed,
    read_sampled,
    refuse_setting,
    without_options,
)
from klsym.engine.outside.vocabulary_products import explain_products, is_product
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.sequence_quantities import token_gradient
from klsym.engine.verdicts.verdict import TargetReading, Verdict
from klsym.engine.verdicts.warnings import OF_LOSS
from klsym.errors import NotInRing, UsageError
from klsym.kernel.ring import ZERO
from klsym.language.convert import to_ring
from klsym.language.expressions import A, M, log_mu, log_q, now, rho, s, sg, without_sg
from klsym.language.messages import Message
from klsym.language.parser import OF_DENSITIES
from klsym.language.sums import Before, OverVocabulary, Summed, Whole, clamped_words
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import Formula, product, total
from klsym.notation.values import LazyFormula, bracketed, scored

ABBREVIATED = re.compile(rf"\b({'|'.join(OF_DENSITIES)})\(")
VOCABULARY_RULE = "mean over the vocabulary"
OF_THE_TOKEN = (*OF_LOSS, "heavy-tail", "literal-weight", "prefixes-of-mu", "mean-zero-noise")
UNPROVED = ("outside-the-core", "later-dropped")
OPEN_CODES = (
    "open-no-tree", "open-no-model", "open-short-trees", "open-detached",
    "open-held-means", "open-support",
)  # fmt: skip


def explain_vocabulary(written: Written, setting: Setting, explained: Explained) -> Verdict:
    """Return the verdict on the sampled loss with the same expected gradient, for the loss as typed."""
    refuse_setting(written, setting)
    try:
        loss = None if in_batch(written, setting) else read_sampled(written, setting)
    except NotALinearMean:
        if is_product(written, setting):
            return explain_products(written, *without_options(written, setting))
        if setting.level != "sample":
            raise
        loss = None
    if loss is None:
        return explain_functions(written, setting, explained)
    inner = explained(loss.written, loss.setting)
    beside = loss.rest != 0 and loss.setting.use == "loss"
    alone = explained(printed(loss.rest), loss.setting) if beside else None
    inner = replace(inner, h=_per_sample(loss, alone))
    verdict = as_typed(
        inner,
        written,
        setting=setting,
        per_sample_cases=alone.per_sample_cases if alone else (),
        scores_named=(True, inner.scores_named[1]),
        inside_clamps=None if clamped_words(written.expression) else inner.inside_clamps,
        assumptions=(Message("full-at-one", setting=setting, of=loss.written.text), *inner.assumptions),
        steps=steps_from(loss.typed, loss.setting, VOCABULARY_RULE, inner.steps) if inner.steps else (),
        model=_witness(loss, inner),
        expansion=_expansion(written, loss),
        remarks=(*inner.remarks, *_noise(loss)),
        messages=tuple(_messages(written, inner, alone, loss)),
    )
    verdict = _with_objective(verdict, loss)
    if loss.setting == setting and not loss.lost:
        return verdict
    value, constant = _value(written, setting, explained)
    return replace(verdict, value=value, constant=constant)


def _noise(loss: SampledLoss) -> tuple[Message, ...]:
    """Return the note on the variance, if all factors of the exact means are constants."""
    plain = not any(one.place or one.c.free_symbols & RANDOM for one in loss.means)
    if loss.setting.use == "reward" or not plain:
        return ()
    return (Message("no-variance" if loss.setting.level == "sample" else "no-noise-of-token"),)


# ---------------------------------------------------------------------------- what it says of itself
def _per_sample(loss: SampledLoss, alone: Verdict | None) -> Any:
    """Return h: the rest times the score of the token, and each exact mean with the scores of all words."""
    setting = loss.setting
    score = s if setting.level == "sample" else now(s)
    if setting.use == "reward":
        return LazyFormula(product, (_spoken(loss.typed.expression, setting), score))
    parts = [part for one in loss.means for part in _pushes(one, setting, score)]
    if alone is not None and alone.pushes:
        parts.insert(0, alone.h if alone.scores_named[0] else scored(alone.h, score))
    return LazyFormula(total, tuple(parts)) if parts else ZERO


def _pushes(one: ExactMean, setting: Setting, score: Any) -> Iterator[Any]:
    """Yield C full((x + dx/dlog q) s), and full(x) grad C if C depends on theta outside sg(..)."""
    slope = slope_of(one.x)
    if not one.detached and slope.has(*RANDOM):  # full(s) = 0
        yield _spoken(without_sg(one.c), setting) * OverVocabulary(slope * s)
    if holds_moving_name(one.c):
        of = one.sum if one.place else OverVocabulary(without_sg(one.x))
        yield LazyFormula(_times, (of, _slope(one.c, setting, score)))


def _times(of: Formula, slope: Formula) -> Formula:
    return product(of, bracketed(slope))


def _slope(c: Any, setting: Setting, score: Any) -> Any:
    """grad C, with its scores."""
    if setting.level == "sample":
        return LazyFormula(product, (without_sg(sympy.diff(c, log_q)), s))
    at_token = build_slot_loss(Written("", c), replace(setting, use="loss", credit=""))
    slots = collect_score_coefficients(derive(token_gradient(at_token.expression, "q")).differentiate())
    return LazyFormula(product, (slots, score)) if {*slots} <= {"now"} else slots


def _spoken(e: Any, setting: Setting) -> Any:
    """Write a loss at token t in the slot `now`; a bare name in an answer is of the whole sequence."""
    if setting.level == "sample":
        return e
    held = {of: sympy.Dummy(real=True) for of in e.atoms(Summed, OverVocabulary)}
    back = {dummy: of for of, dummy in held.items()} | {now(A): A}
    return now(e.xreplace(held)).xreplace(back)


def _witness(loss: SampledLoss, inner: Verdict) -> dict[str, Any] | None:
    """Return the counterexample, its equation written for the loss as typed."""
    if inner.witness is None or not inner.steps:
        return inner.witness
    whole = mean_text(loss.typed.expression, loss.setting, TEXT, gradient=True)
    return {**inner.witness, "refutes": inner.witness["refutes"].replace(inner.steps[0][1], whole, 1)}


def _expansion(written: Written, loss: SampledLoss) -> str | None:
    """The loss with its options and abbreviations written out."""
    if loss.typed is written and not ABBREVIATED.search(written.text):
        return None
    return losses.show(loss.typed.expression, TEXT)


def _value(written: Written, setting: Setting, explained: Explained) -> tuple[TargetReading, Any]:
    """Return the value E_m[L] of the loss itself, without credit: that of the sampled loss."""
    try:
        loss = read_sampled(written, replace(setting, use="loss", credit=""))
        scored = any(one.place == "past" or one.meets_scores(loss.setting) for one in loss.means)
        found = None if scored else explained(loss.written, loss.setting)
    except UsageError:
        found = None
    return (found.value, found.constant) if found else (TargetReading(None), None)


# ---------------------------------------------------------------------------- the objective of their sums
def _with_objective(verdict: Verdict, loss: SampledLoss) -> Verdict:
    """The verdict, with the objective E_q[sum_t C_t] where nothing else is known of the loss."""
    setting = loss.setting
    plain = setting.level == "token" and setting.use == "loss" and setting.on_policy
    unknown = verdict.target in (None, "separable") and verdict.implied is None
    means = prefix_means(loss) if unknown and plain else None
    if means is None:
        return verdict
    return replace(
        verdict,
        gradient=TargetReading("separable", {}, verdict.c),
        trust="sympy",
        shown=f"grad {mean_text(means, setting, TEXT)}",
        objective_formula=mean_formula(means, setting),
        assumptions=tuple(dict.fromkeys((*verdict.assumptions, Message("exchange-mean", under="q")))),
        remarks=(Message("sum-of-means"), *(x for x in verdict.remarks if x.code not in OPEN_CODES)),
        messages=(
            Message("outside-the-core", trust="sympy"),
            *(x for x in verdict.messages if x.code not in UNPROVED),
        ),
    )


def prefix_means(loss: SampledLoss) -> Any | None:
    """The sum of the C_t of a loss C_t + sg(future(C)) log q; None for a loss of another form.

    >>> from klsym.language.expressions import k1, r
    >>> from klsym.language.sums import After
    >>> c, token = OverVocabulary(k1 * r), Setting(level="token")
    >>> [prefix_means(read_sampled(printed(2 * c + n * sg(After(c)) * log_q), token)) for n in (2, 3)]
    [2*full(k1*r), None]
    """
    attached = later = sympy.S.Zero
    for one in loss.means:
        c, of = without_sg(one.c * one.inner), OverVocabulary(one.x)
        c = c / log_q if one.detached else c
        if one.x.has(sg, rho, log_mu) or c.free_symbols & RANDOM or not is_known(c):
            return None
        if one.place == "future":
            later += c * of
        elif not one.detached:
            attached += c * of  # what is detached, and known before the token is drawn, has the mean 0
    same = loss.rest == 0 and attached != 0 and sympy.expand(later - attached) == 0
    return attached if same else None


# ---------------------------------------------------------------------------- messages
def _messages(
    written: Written, inner: Verdict, alone: Verdict | None, loss: SampledLoss
) -> Iterator[Message]:
    """Yield those on the sampled loss that do not concern the token drawn alone, and further ones."""
    setting, own = inner.setting, alone.messages if alone else ()
    for message in inner.messages:
        if message in own or message.code not in OF_THE_TOKEN:
            yield message
    if inner.target == "zero":
        whole = Message("vanishes", loss=written.text)
        yield Message("zero-gradient", loss=written.text, setting=setting) if inner.pushes else whole
    if loss.lost:
        yield Message("known-before-drawn")
    bare = [x for x in loss.means if not (x.c * x.inner).has(Before, Whole) and not x.meets_scores(setting)]
    if setting.level == "token" and not setting.on_policy and bare:
        yield Message("means-at-prefixes-of-mu")
    if any(not one.detached and _truncated(one.x) for one in loss.means):
        yield Message("truncated")


def _truncated(x: Any) -> bool:
    """Is its push at q = p, x + dx/dlog q where k1 = 0, a multiple of a mask?"""
    try:
        there = to_ring(slope_of(x)).substitute({"k1": ZERO})
    except NotInRing:
        return False
    return there.names() == {M.name}
