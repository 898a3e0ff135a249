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
from klsym.engine.options.expand_options import expansion
from klsym.engine.options.settings import Setting
from klsym.errors import UsageError
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
    " in a loss it pushes with the scores of all outcomes, and no sample's own score is there to be centred"
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
        of = self.inner * OverVocabulary(self.x)
        return {"past": Before, "future": After, "": lambda e: e}[self.place](of)

    def meets_scores(self, setting: Setting) -> bool:
        """Does a score multiply it, which no gradient of its own does?"""
        return setting.use == "reward" or (self.detached and log_q in sympy.Mul.make_args(self.c))

    def has_mean_zero(self, setting: Setting) -> bool:
        """Is it of this token or of earlier ones, and does it meet the score of this token?"""
        return self.place == "past" or (self.place == "" and self.meets_scores(setting))


@dataclass(frozen=True)
class SampledLoss:
    """A loss with exact means, and the sampled loss with the same expected gradient.

    typed, setting: the loss and its setting, the credit of rewards and the weights written into the loss.
    means, rest: its terms with exact means, and all others.  written: the sampled loss.
    """

    typed: Written
    setting: Setting
    means: tuple[ExactMean, ...]
    rest: Any
    written: Written

    @property
    def lost(self) -> bool:
        """Is there a term whose expected gradient is 0, so that the sampled loss does not hold it?"""
        return any(one.has_mean_zero(self.setting) for one in self.means)


def read_sampled(written: Written, setting: Setting) -> SampledLoss:
    """The sampled loss with the same expected gradient; raises UsageError: a loss or setting without one."""
    refuse_setting(written, setting)
    typed, place = without_options(written, setting)
    rest, means = split(typed.expression, place.use == "reward")
    whole = _joined(rest + sum(sampled_term(one, place) for one in means))
    return SampledLoss(typed, place, means, rest, printed(whole))


def sampled_loss(written: Written, setting: Setting) -> tuple[Written, Setting, bool]:
    """The sampled loss with the same expected gradient, its setting, and: has it the same value?"""
    loss = read_sampled(written, setting)
    return loss.written, loss.setting, not loss.lost and (setting.use == "loss" or loss.setting == setting)


def printed(expression: Any) -> Written:
    """A loss with its own text."""
    return Written(losses.show(expression, TEXT), expression)


def in_batch(written: Written, setting: Setting) -> bool:
    """Does the loss depend on the other samples of a batch?"""
    return setting.batch != "none" or bool(written.expression.atoms(OverBatch))


def refuse_setting(written: Written, setting: Setting) -> None:
    """Refuse the settings in which no sampled loss has the same expected gradient."""
    text = repr(written.text[:60])
    if setting.level == "sequence":
        raise UsageError(f"{text} sums over the vocabulary at each token: choose level token, or sample")
    if in_batch(written, setting) and (setting.level, setting.use) != ("sample", "reward"):
        raise UsageError(f"{text}: {IN_BATCH}")
    if setting.averaged:
        raise UsageError(
            f"{text}: with aggregate mean a sum over the vocabulary is no mean over the token drawn, as 1/T"
            " is not known at the prefix: choose aggregate sum, or divide by a constant"
        )


def without_options(written: Written, setting: Setting) -> tuple[Written, Setting]:
    """The loss with the credit of rewards and the weights written out, and the setting that is left."""
    said = expansion(written, setting)
    if said is None:  # it names no rho, and the rho of the sampled loss is that of the token
        return written, replace(setting, weights=setting.weights and "token")
    names = {symbol.name for symbol in written.expression.free_symbols} - {*ATOMS, *PARAMETERS}
    credit = "" if setting.credit in ("to-go", "total") else setting.credit
    return Written(said, parse(said, names)), replace(setting, credit=credit, weights="token")


# ---------------------------------------------------------------------------- the terms of a loss
def split(e: Any, detached: bool) -> tuple[Any, tuple[ExactMean, ...]]:
    """The sum of the terms without full(..), and the terms that hold one each.

    >>> from klsym.language.expressions import k1, r
    >>> rest, [one] = split(sg(2 * OverVocabulary(k1)) * log_q + r, False)
    >>> rest, one.c, one.x, one.detached
    (r, 2*log_q, k1, True)
    """
    rest: Any = sympy.S.Zero
    found: list[ExactMean] = []
    for term in sympy.Add.make_args(sympy.expand_mul(e) if has_vocabulary_sum(e) else e):
        holding = [factor for factor in sympy.Mul.make_args(term) if has_vocabulary_sum(factor)]
        if not holding:
            rest += term
            continue
        if len(holding) > 1:
            raise NotALinearMean(f"{_shown(holding[0])} {PRODUCT}")
        left, more = _factor(holding[0], detached)
        c = term / holding[0]
        rest += c * left
        found += [replace(one, c=c * one.c) for one in more]
    return rest, tuple(found)


def _factor(of: Any, detached: bool) -> tuple[Any, tuple[ExactMean, ...]]:
    if isinstance(of, OverVocabulary):
        x = of.args[0]
        if x.atoms(Summed, OverBatch, OverVocabulary) or _names(x) & {"A", "T"}:
            raise UsageError(f"{_shown(of)} is {INSIDE}")
        return sympy.S.Zero, (ExactMean(sympy.S.One, detached, "", sympy.S.One, x),)
    if isinstance(of, sg):
        rest, found = split(of.args[0], True)
        return sg(rest), tuple(replace(one, c=sg(one.c)) for one in found)
    if not isinstance(of, Summed):
        raise NotALinearMean(f"{_shown(min(of.atoms(OverVocabulary), key=str))} {NOT_LINEAR}")
    rest, found = split(of.args[0], detached)
    if any(one.place for one in found) or any(map(has_vocabulary_sum, of.args[0].atoms(Here))):
        raise UsageError(f"{_shown(of)}: sums of sums over tokens are not read here")
    places = {"x": ("past", "", "future"), "now": ("",)}.get(of.slot, (of.slot,))  # now(x) is x
    parts = (
        ExactMean(sympy.S.One, detached, place, one.c, one.x) if place else one
        for one in found
        for place in places
    )
    return (of.func(rest) if rest != 0 else rest), tuple(parts)


def _shown(of: Any) -> str:
    return repr(losses.show(of, TEXT)[:60])


def _names(e: Any) -> set[str]:
    return {symbol.name for symbol in e.free_symbols}


# ---------------------------------------------------------------------------- the sampled loss
def sampled_term(one: ExactMean, setting: Setting) -> Any:
    """A term with the same expected gradient, full(x) written as the mean of rho x; 0 if that is 0."""
    hold = sg if one.detached and setting.use == "loss" else (lambda e: e)
    frozen = one.detached and setting.on_policy  # the ratio is 1
    x = one.x.xreplace({rho: sympy.S.One}) if frozen else one.x * rho
    if one.place == "future":
        known, _ = _at_prefix(one.inner, one)
        _refuse_later(one)
        return one.c * hold(After(known * x))
    if one.has_mean_zero(setting):
        _refuse_unless_known(one, setting)
        return sympy.S.Zero
    return _at_prefix(one.c, one)[0] * hold(x)


def _joined(e: Any) -> Any:
    """c future(a) + c future(b) as c future(a + b), and now(a) as a."""
    later: dict[tuple[Any, bool], Any] = {}
    total: Any = sympy.S.Zero
    for term in sympy.Add.make_args(e.xreplace({of: of.args[0] for of in e.atoms(Here)})):
        factors = {f: f.args[0] if isinstance(f, sg) else f for f in sympy.Mul.make_args(term)}
        of = next((f for f, inner in factors.items() if isinstance(inner, After)), None)
        if of is None:
            total += term
        else:
            key = term / of, isinstance(of, sg)
            later[key] = later.get(key, 0) + factors[of].args[0]
    return total + sum(c * (sg(After(x)) if held else After(x)) for (c, held), x in later.items())


def _refuse_unless_known(one: ExactMean, setting: Setting) -> None:
    """E_m[c s_t | y_<t] = 0: c is known at the prefix, times rho off-policy, and does not move itself."""
    if not one.detached:
        raise UsageError(f"{_shown(one.sum)} {ATTACHED_MEAN}")
    if not one.meets_scores(setting):
        raise NotALinearMean(f"{_shown(OverVocabulary(one.x))} {MEAN_BESIDE_SUM}")
    _at_prefix(one.inner, one)
    plain = one.c if setting.use == "reward" else one.c / log_q
    _, weighted = _at_prefix(plain, one)
    if not weighted and not setting.on_policy:
        raise UsageError(f"{_shown(OverVocabulary(one.x))} {SAMPLER}")
    if setting.use == "loss" and holds_moving_name(plain):
        raise NotALinearMean(f"{_shown(OverVocabulary(one.x))} {MEAN_BESIDE_SUM}")


def _at_prefix(c: Any, one: ExactMean) -> tuple[Any, bool]:
    """c without the ratio of the token and later ones, whose mean is 1; whether it had one."""
    kept, weighted = sympy.S.One, False
    for factor in sympy.Mul.make_args(c):
        bare = factor.args[0] if isinstance(factor, sg) else factor
        if bare in PREFIX_WEIGHT and not weighted:
            left, weighted = PREFIX_WEIGHT[bare], True
            factor = sg(left) if isinstance(factor, sg) else left
        kept = kept * factor
    if not is_known(kept):
        raise NotALinearMean(f"{_shown(OverVocabulary(one.x))} {MEAN_BESIDE_SUM}")
    return kept, weighted


def is_known(c: Any) -> bool:
    """Does it depend on constants and on tokens before t alone?

    >>> from klsym.language.expressions import k1
    >>> is_known(2 * Before(k1)), is_known(k1)
    (True, False)
    """
    bare = c.xreplace({of: sympy.Dummy() for of in c.atoms(Before)})
    return not bare.atoms(Summed, OverBatch) and not bare.free_symbols & RANDOM


def _refuse_later(one: ExactMean) -> None:
    """What multiplies a detached sum of later tokens must be known once token t is drawn."""
    if not one.detached:
        raise UsageError(f"{_shown(one.sum)} {ATTACHED_MEAN}")
    if one.c.atoms(After, Whole, OverBatch) or _names(one.c) & {"A", "T"}:
        raise UsageError(f"{_shown(one.sum)} {MEAN_BESIDE_SUM}")


def holds_moving_name(e: Any) -> bool:
    """Does it depend on theta outside sg(..)?"""
    return bool(e.xreplace({of: sympy.Dummy() for of in e.atoms(sg)}).has(log_q))
