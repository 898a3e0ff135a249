"""Exact means over the next token, full(x) = sum_y q(y|y_<t) x(y), as means of sampled losses.  Untrusted.

The sum is the mean of rho x over the token drawn, and its gradient that of grad(rho x), at every prefix:

    full(x) = E_m[rho x | y_<t]
    grad full(x) = sum_y q(y|y_<t) (x + dx/dlog q) s(y) = E_m[grad(rho x) | y_<t]

So E_m[grad(C full(x))] = E_m[grad(C rho x)] with C known at the prefix.  The token's own ratio beside it
changes nothing, as E_m[rho | y_<t] = 1 and E_m[grad rho | y_<t] = 0.  In a detached sum over later tokens,
full(x)_u may be replaced by (rho x)_u, as both have the same mean given y_<=t.  A detached full(x) of token t
or of an earlier one, times the score of token t, has the mean 0.

>>> from klsym.engine.options.settings import Setting
>>> from klsym.language.expressions import k1, r
>>> loss = 2 * OverVocabulary(k1) + r
>>> read_sampled(Written("2*full(k1) + r", loss), Setting()).written.text
'2*rho*k1 + r'
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import sympy

from klsym.engine.fields.slot_loss import has_vocabulary_sum
from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.errors import UsageError, spell_option
from klsym.language.expressions import (
    ATOMS,
    DENSITIES,
    PARAMETERS,
    REWARDS,
    exp,
    log_mu,
    log_q,
    parameter,
    rho,
    sg,
)
from klsym.language.parser import parse
from klsym.language.sums import After, Before, Here, OverBatch, OverVocabulary, Summed, Whole
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT

RANDOM = {*DENSITIES, *REWARDS, parameter("T")}  # not known at the prefix
# ratios of the token and of the whole sequence -> what is left of them at the prefix
PREFIX_WEIGHT = dict.fromkeys((rho, exp(log_q - log_mu)), sympy.S.One)
PREFIX_WEIGHT[exp(Whole(log_q - log_mu))] = exp(Before(log_q - log_mu))
NOT_LINEAR = (
    "stands inside a function that is not linear: full(..) is an exact mean, and no function of it is one"
)
PRODUCT = "stands beside another one: a product of two exact means is no mean of a product"
IN_BATCH = (
    "in a batch full(..) is read in a reward of single samples alone, where it is one number for all of them:"
    " in a loss it pushes with the scores of all outcomes, and no sample's own score is there to be centred;"
    " explain the terms with full(..) and those that compare samples one by one"
)
MEAN_BESIDE_SUM = (
    "stands beside what is not known at the prefix: only constants, past(..), rho and a detached sum of later"
    " tokens may (1/T is not known there: leave the average out)"
)
INSIDE = (
    "the mean over the next token alone: sums, T and A, which is of the whole sequence, do not stand in it"
)
ATTACHED_MEAN = (
    "is a sum over other tokens that is differentiated: put sg(..) around it, which is another loss"
)
SAMPLER = "multiplies scores, and samples come from mu: write rho in front"


class NotALinearMean(UsageError):
    """A loss that is not linear in exact means: `vocabulary_functions` explains it for one outcome."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; of one token, its prefix given, level sample says what it does")


@dataclass(frozen=True)
class ExactMean:
    """A term c place(inner full(x)) of a loss.

    place: "past" or "future" for a sum over other tokens; "" for the token itself, where inner is 1.
    detached: is the sum over the vocabulary within sg(..)?
    """

    c: Any
    detached: bool
    place: str
    inner: Any
    x: Any

    @property
    def sum(self) -> Any:
        """place(inner full(x)), without c."""
        full_mean = self.inner * OverVocabulary(self.x)
        return {"past": Before, "future": After, "": lambda e: e}[self.place](full_mean)

    def is_multiplied_by_score(self, setting: Setting) -> bool:
        """Does a score multiply it, which no gradient of its own does?"""
        return setting.is_reward or (self.detached and log_q in sympy.Mul.make_args(self.c))

    def has_mean_zero(self, setting: Setting) -> bool:
        """Is it of this token or of earlier ones, and does it meet the score of this token?"""
        return self.place == "past" or (self.place == "" and self.is_multiplied_by_score(setting))


@dataclass(frozen=True)
class SampledLoss:
    """A loss with exact means, and the sampled loss with the same expected gradient.

    typed, setting: the loss and its setting, the credit of rewards and the weights written into the loss.
    means, rest: its terms with exact means, and all others.  written: the sampled loss.
    """

    typed: Written
    setting: Setting
    means: tuple[ExactMean, ...]
    remainder: Any
    written: Written

    @property
    def has_lost_terms(self) -> bool:
        """Is there a term whose expected gradient is 0, so that the sampled loss does not hold it?"""
        return any(mean.has_mean_zero(self.setting) for mean in self.means)

    def has_value_of(self, asked: Setting) -> bool:
        """Has it the value of the typed loss in the setting asked for, too?"""
        return not self.has_lost_terms and (asked.is_differentiated or self.setting == asked)


def read_sampled(written: Written, setting: Setting) -> SampledLoss:
    """Return the sampled loss with the same expected gradient; raises UsageError if there is none."""
    refuse_setting(written, setting)
    typed, place = expand_credit_and_weights(written, setting)
    remainder, means = split_exact_means(typed.expression, place.is_reward)
    whole = _join_later_sums(remainder + sum(sample_term(mean, place) for mean in means))
    return SampledLoss(typed, setting=place, means=means, remainder=remainder, written=write_loss(whole))


def write_loss(expression: Any) -> Written:
    """Return a loss with its own text."""
    return Written(losses.show(expression, TEXT), expression)


def is_in_batch(written: Written, setting: Setting) -> bool:
    """Does the loss depend on the other samples of a batch?"""
    return setting.is_centred or bool(written.expression.atoms(OverBatch))


def refuse_setting(written: Written, setting: Setting) -> None:
    """Refuse the settings in which no sampled loss has the same expected gradient."""
    text = repr((written.typed or written.text)[:60])
    if setting.is_of_sequence:
        raise UsageError(f"{text} sums over the vocabulary at each token: choose level token, or sample")
    if is_in_batch(written, setting) and not (setting.is_of_sample and setting.is_reward):
        raise UsageError(f"{text}: {IN_BATCH}")
    if setting.averaged:
        raise UsageError(
            f"{text}: with aggregate mean a sum over the vocabulary is no mean over the token drawn, as 1/T"
            f" is not known at the prefix: choose {spell_option('aggregate', 'sum')}, or divide by a constant"
        )


def expand_credit_and_weights(written: Written, setting: Setting) -> tuple[Written, Setting]:
    """Expand the credit of rewards and the weights; return the remaining setting, too."""
    expanded = expand_options(written, setting)
    if expanded is None:  # it names no rho, and the rho of the sampled loss is that of the token
        return written, replace(setting, weights=setting.weights and "token")
    names = {symbol.name for symbol in written.expression.free_symbols} - {*ATOMS, *PARAMETERS}
    credit = "" if setting.credits_other_tokens else setting.credit
    return Written(expanded, parse(expanded, names)), replace(setting, credit=credit, weights="token")


# ---------------------------------------------------------------------------- the terms of a loss
def split_exact_means(e: Any, detached: bool) -> tuple[Any, tuple[ExactMean, ...]]:
    """Return the sum of the terms without full(..), and the terms that hold one each.

    >>> from klsym.language.expressions import k1, r
    >>> rest, [one] = split_exact_means(sg(2 * OverVocabulary(k1)) * log_q + r, False)
    >>> rest, one.c, one.x, one.detached
    (r, 2*log_q, k1, True)
    """
    remainder: Any = sympy.S.Zero
    means: list[ExactMean] = []
    for term in sympy.Add.make_args(sympy.expand_mul(e) if has_vocabulary_sum(e) else e):
        holding = [factor for factor in sympy.Mul.make_args(term) if has_vocabulary_sum(factor)]
        if not holding:
            remainder += term
            continue
        if len(holding) > 1:
            raise NotALinearMean(f"{_show(holding[0])} {PRODUCT}")
        factor_remainder, factor_means = _split_factor(holding[0], detached)
        c = term / holding[0]
        remainder += c * factor_remainder
        means += [replace(mean, c=c * mean.c) for mean in factor_means]
    return remainder, tuple(means)


def _split_factor(factor: Any, detached: bool) -> tuple[Any, tuple[ExactMean, ...]]:
    if isinstance(factor, OverVocabulary):
        x = factor.args[0]
        if x.atoms(Summed, OverBatch, OverVocabulary) or _list_names(x) & {"A", "T"}:
            raise UsageError(f"{_show(factor)} is {INSIDE}")
        return sympy.S.Zero, (ExactMean(sympy.S.One, detached, place="", inner=sympy.S.One, x=x),)
    if isinstance(factor, sg):
        remainder, means = split_exact_means(factor.args[0], True)
        return sg(remainder), tuple(replace(mean, c=sg(mean.c)) for mean in means)
    if not isinstance(factor, Summed):
        raise NotALinearMean(f"{_show(min(factor.atoms(OverVocabulary), key=str))} {NOT_LINEAR}")
    remainder, means = split_exact_means(factor.args[0], detached)
    if any(mean.place for mean in means) or any(map(has_vocabulary_sum, factor.args[0].atoms(Here))):
        raise UsageError(f"{_show(factor)}: sums of sums over tokens are not read here")
    places = {"x": ("past", "", "future"), "now": ("",)}.get(factor.slot, (factor.slot,))  # now(x) is x
    parts = (
        ExactMean(sympy.S.One, detached, place, inner=mean.c, x=mean.x) if place else mean
        for mean in means
        for place in places
    )
    return (factor.func(remainder) if remainder != 0 else remainder), tuple(parts)


def _show(element: Any) -> str:
    return repr(losses.show(element, TEXT)[:60])


def _list_names(e: Any) -> set[str]:
    return {symbol.name for symbol in e.free_symbols}


# ---------------------------------------------------------------------------- the sampled loss
def sample_term(mean: ExactMean, setting: Setting) -> Any:
    """Return a term with the same expected gradient, full(x) as the mean of rho x; 0 if that is 0."""
    hold = sg if mean.detached and setting.is_differentiated else (lambda e: e)
    frozen = mean.detached and setting.on_policy  # the ratio is 1
    x = mean.x.xreplace({rho: sympy.S.One}) if frozen else mean.x * rho
    if mean.place == "future":
        known, _ = _keep_prefix_part(mean.inner, mean)
        _refuse_later(mean)
        return mean.c * hold(After(known * x))
    if mean.has_mean_zero(setting):
        _refuse_unless_known(mean, setting)
        return sympy.S.Zero
    return _keep_prefix_part(mean.c, mean)[0] * hold(x)


def _join_later_sums(e: Any) -> Any:
    """Write c future(a) + c future(b) as c future(a + b), and now(a) as a."""
    later: dict[tuple[Any, bool], Any] = {}
    total: Any = sympy.S.Zero
    for term in sympy.Add.make_args(
        e.xreplace({later_sum: later_sum.args[0] for later_sum in e.atoms(Here)})
    ):
        factors = {f: f.args[0] if isinstance(f, sg) else f for f in sympy.Mul.make_args(term)}
        later_sum = next((f for f, inner in factors.items() if isinstance(inner, After)), None)
        if later_sum is None:
            total += term
        else:
            key = term / later_sum, isinstance(later_sum, sg)
            later[key] = later.get(key, 0) + factors[later_sum].args[0]
    return total + sum(c * (sg(After(x)) if detached else After(x)) for (c, detached), x in later.items())


def _refuse_unless_known(mean: ExactMean, setting: Setting) -> None:
    """Refuse c with E_m[c s_t | y_<t] not 0: it must be known at the prefix, times rho off-policy."""
    if not mean.detached:
        raise UsageError(f"{_show(mean.sum)} {ATTACHED_MEAN}")
    if not mean.is_multiplied_by_score(setting):
        raise NotALinearMean(f"{_show(OverVocabulary(mean.x))} {MEAN_BESIDE_SUM}")
    _keep_prefix_part(mean.inner, mean)
    plain = mean.c if setting.is_reward else mean.c / log_q
    _, weighted = _keep_prefix_part(plain, mean)
    if not weighted and not setting.on_policy:
        raise UsageError(f"{_show(OverVocabulary(mean.x))} {SAMPLER}")
    if setting.is_differentiated and is_attached_to_theta(plain):
        raise NotALinearMean(f"{_show(OverVocabulary(mean.x))} {MEAN_BESIDE_SUM}")


def _keep_prefix_part(c: Any, mean: ExactMean) -> tuple[Any, bool]:
    """Return c without the ratio of the token and later ones, whose mean is 1; whether it had one."""
    known, weighted = sympy.S.One, False
    for factor in sympy.Mul.make_args(c):
        bare = factor.args[0] if isinstance(factor, sg) else factor
        if bare in PREFIX_WEIGHT and not weighted:
            prefix_weight, weighted = PREFIX_WEIGHT[bare], True
            factor = sg(prefix_weight) if isinstance(factor, sg) else prefix_weight
        known = known * factor
    if not is_known(known):
        raise NotALinearMean(f"{_show(OverVocabulary(mean.x))} {MEAN_BESIDE_SUM}")
    return known, weighted


def is_known(c: Any) -> bool:
    """Does it depend on constants and on tokens before t alone?

    >>> from klsym.language.expressions import k1
    >>> is_known(2 * Before(k1)), is_known(k1)
    (True, False)
    """
    bare = c.xreplace({of: sympy.Dummy() for of in c.atoms(Before)})
    return not bare.atoms(Summed, OverBatch) and not bare.free_symbols & RANDOM


def _refuse_later(mean: ExactMean) -> None:
    """Refuse a factor of a detached sum of later tokens that is not known once token t is drawn."""
    if not mean.detached:
        raise UsageError(f"{_show(mean.sum)} {ATTACHED_MEAN}")
    if mean.c.atoms(After, Whole, OverBatch) or _list_names(mean.c) & {"A", "T"}:
        raise UsageError(f"{_show(mean.sum)} {MEAN_BESIDE_SUM}")


def is_attached_to_theta(e: Any) -> bool:
    """Does it depend on theta outside sg(..)?"""
    return bool(e.xreplace({of: sympy.Dummy() for of in e.atoms(sg)}).has(log_q))


def keep_attached(loss: Any) -> Any:
    """Return the terms of a loss that depend on theta outside sg(..); 0 if there are none.

    >>> from klsym.language.expressions import A, k1, log_q
    >>> keep_attached(-A * log_q - 10 * sg(k1)), keep_attached(sg(k1))
    (-A*log_q, 0)
    """
    terms = sympy.Add.make_args(sympy.expand(loss))
    kept = [x for x in terms if is_attached_to_theta(x) or _has_attached_mean(x)]
    return loss if len(kept) == len(terms) else sympy.Add(*kept)


def _has_attached_mean(x: Any) -> bool:
    """Does a mean under the policy stand outside sg(..)?"""
    return bool(x.xreplace({of: sympy.Dummy() for of in x.atoms(sg)}).has(OverVocabulary))
