"""explain for exact means over the next token, full(x) = sum_y q(y|y_<t) x(y).  Untrusted.

The sum is the mean of rho x over the token drawn, and its gradient that of grad(rho x), at every prefix:

    full(x) = E_m[rho x | y_<t]
    grad full(x) = sum_y q(y|y_<t) (x + dx/dlog q) s(y) = E_m[grad(rho x) | y_<t]

So E_m[grad(C full(x))] = E_m[grad(C rho x)] with C known at the prefix: a sampled loss, which is explained.
The token's own ratio beside it changes nothing, as E_m[rho | y_<t] = 1 and E_m[grad rho | y_<t] = 0.  Of a
detached sum of later ones, full(x)_u has the mean of (rho x)_u given y_<=t, whatever c_t s_t stands there;
where the score of token t meets full(x) at t or before, which are known by then, the mean is 0.

Of a single sample, full(x) is E_q[x].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sympy

from klsym.convert import to_ring, to_sympy
from klsym.engine.advice import DOES_NOTHING, NO_GRADIENT, OF_LOSS
from klsym.engine.derivation import derive
from klsym.engine.explain_prefix_means import with_objective
from klsym.engine.explain_setting import Setting
from klsym.engine.field import scores_of
from klsym.engine.indexed import token_gradient
from klsym.engine.shorthands import expansion
from klsym.engine.slot_loss import names_vocabulary, slot_loss
from klsym.engine.verdict import Meaning, Step, Verdict
from klsym.errors import NotInRing, UsageError
from klsym.language import (
    PARAMETERS,
    REWARDS,
    A,
    M,
    exp,
    log_mu,
    log_old,
    log_p,
    log_q,
    now,
    parameter,
    rho,
    s,
    sg,
)
from klsym.parser import OF_DENSITIES, parse
from klsym.render import losses
from klsym.render.losses import Written
from klsym.render.positions import in_slot
from klsym.render.spelling import LATEX, TEXT, Text
from klsym.render.told import Told, about
from klsym.render.tree import Call, Formula, Gradient, Mean, Over, product, total
from klsym.render.values import Made, bracketed, scored
from klsym.ring import ZERO
from klsym.sums import After, Before, Here, OverBatch, OverVocabulary, Summed, Whole

RANDOM = (log_q, log_p, log_mu, log_old, *REWARDS, parameter("T"))  # what is not known at the prefix
OWN = exp(log_q - log_mu)
BEFORE = exp(Before(log_q - log_mu))
WEIGHTS = {rho: sympy.S.One, OWN: sympy.S.One, exp(Whole(log_q - log_mu)): BEFORE}  # -> what is left of it
ABBREVIATED = re.compile(rf"\b({'|'.join(OF_DENSITIES)})\(")
RULE = "mean over the vocabulary"
NOT_LINEAR = (
    "stands inside a function that is not linear: full(..) is an exact mean, and no function of it is one"
)
PRODUCT = "stands beside another one: a product of two exact means is no mean of a product"
IN_BATCH = (
    "in a batch full(..) is read in a reward of single samples alone, where it is one number for all of them:"
    " in a loss it pushes with the scores of all outcomes, and no sample's own score is there to be centred"
)
BESIDE = (
    "stands beside what is not known at the prefix: only constants, past(..), rho and a detached sum of later"
    " tokens may (1/T is not known there: leave the average out)"
)
INSIDE = (
    "the mean over the next token alone: sums, T and A, which is of the whole sequence, do not stand in it"
)
MOVES = "is a sum over other tokens that is differentiated: put sg(..) around it, which is another loss"
SAMPLER = "multiplies scores, and samples come from mu: write rho in front"
UNTOLD = (
    "the score of a token meets full(..) of that token or of earlier ones, known before it is drawn: this"
    " adds noise alone; what pushes on that token is the loss full(..) itself"
)
TRUNCATED = Told(
    "words are left out, so that q = p is not stationary: the expected gradient there is a multiple of"
    " grad E_q[M]; full(M*k3) leaves out the same words, and has a gradient of 0 at q = p",
    "truncated",
)
PREFIXES = "prefixes are distributed as mu: write exp(past(log_q - log_mu)) in front of full(..)"
NOISE = (
    "no noise of the token drawn: at each prefix the variance is not above that of the sampled loss; that of"
    " the sum over t can be, along directions that prefixes share (claim neighbour.rao-blackwell)"
)
CONSTANT = "the same at every sample: the gradient of full(..) has no variance at all"
OF_THE_TOKEN = (*OF_LOSS, "heavy_tail", "literal_weight", "prefixes_of_mu", "mean_zero_noise")


class NoMean(UsageError):  # a function of exact means, which `explain_means` knows of one outcome
    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; of one token, its prefix given, level sample says what it does")


@dataclass(frozen=True)
class Exact:
    """A term c place(inner full(x)) of a loss; place "" is the token itself."""

    c: Any
    still: bool
    place: str
    inner: Any
    x: Any


def explain_vocabulary(
    written: Written, setting: Setting, explained: Callable[[Written, Setting], Verdict]
) -> Verdict:
    """The verdict on the sampled loss with the same mean and expected gradient, and what differs from it."""
    _refuse_setting(written, setting)
    if _in_batch(written, setting):
        return _function(written, setting, explained)
    typed, place = _without_options(written, setting)
    try:
        rest, exact = split(typed.expression, place.use == "reward")
        means = [sampled(one, place) for one in exact]
    except NoMean:
        if setting.level != "sample":
            raise
        return _function(written, setting, explained)
    whole = _joined(rest + sympy.Add(*means))
    inner = explained(_printed(whole), place)
    alone = explained(_printed(rest), place) if rest != 0 and place.use == "loss" else None
    lost = any(mean == 0 for mean in means)
    h = _per_sample(typed, place, exact, alone)
    verdict = replace(
        inner,
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=h,
        per_sample_cases=alone.per_sample_cases if alone else (),
        scores_named=(True, inner.scores_named[1]),
        hypotheses=(_reading(whole, setting), *inner.hypotheses),
        steps=_steps(typed, place, inner),
        model=_witness(typed, place, inner),
        expansion=_expansion(written, typed),
        notes=(*inner.notes, *_noise(exact, place)),
        warnings=tuple(_warnings(written, replace(inner, h=h), alone, exact, lost)),
    )
    verdict = with_objective(verdict, typed.expression, place)
    if place == setting and not lost:
        return verdict
    value, constant = _value(written, setting, explained)
    return replace(verdict, value=value, constant=constant)


def _function(
    written: Written, setting: Setting, explained: Callable[[Written, Setting], Verdict]
) -> Verdict:
    from klsym.engine.explain_means import explain_means

    return explain_means(written, setting, explained)


def _in_batch(written: Written, setting: Setting) -> bool:
    return setting.batch != "none" or bool(written.expression.atoms(OverBatch))


def sampled_loss(written: Written, setting: Setting) -> tuple[Written, Setting, bool]:
    """The sampled loss with the same expected gradient, its setting, and: has it the same value?"""
    _refuse_setting(written, setting)
    typed, place = _without_options(written, setting)
    rest, exact = split(typed.expression, place.use == "reward")
    means = [sampled(one, place) for one in exact]
    same = all(x != 0 for x in means) and (setting.use == "loss" or place == setting)
    return _printed(_joined(rest + sympy.Add(*means))), place, same


def _noise(exact: list[Exact], setting: Setting) -> tuple[str, ...]:
    """What is known of the variance, of sums that stand with constants alone."""
    plain = all(not (one.c * one.inner).free_symbols & set(RANDOM) and not one.place for one in exact)
    if setting.use == "reward" or not plain:
        return ()
    return (CONSTANT if setting.level == "sample" else NOISE,)


def _printed(expression: Any) -> Written:
    return Written(losses.show(expression, TEXT), expression)


def _refuse_setting(written: Written, setting: Setting) -> None:
    text = repr(written.text[:60])
    if setting.level == "sequence":
        raise UsageError(f"{text} sums over the vocabulary at each token: choose level token, or sample")
    if _in_batch(written, setting) and (setting.level, setting.use) != ("sample", "reward"):
        raise UsageError(f"{text}: {IN_BATCH}")
    if setting.averaged:
        raise UsageError(
            f"{text}: with aggregate mean a sum over the vocabulary is no mean over the token drawn, as 1/T"
            " is not known at the prefix: choose aggregate sum, or divide by a constant"
        )


def _without_options(written: Written, setting: Setting) -> tuple[Written, Setting]:
    """The credit of rewards and the weights, said in the loss."""
    said = expansion(written, setting)
    if said is None:  # it names no rho, and the rho of the sampled loss is that of the token
        return written, replace(setting, weights=setting.weights and "token")
    names = {symbol.name for symbol in written.expression.free_symbols - {*RANDOM}}
    credit = "" if setting.credit in ("to-go", "total") else setting.credit
    return Written(said, parse(said, names - {*PARAMETERS})), replace(setting, credit=credit, weights="token")


# ---------------------------------------------------------------------------- the terms of a loss
def split(e: Any, still: bool) -> tuple[Any, list[Exact]]:
    """The loss as what holds no full(..) and terms that hold one each."""
    if not names_vocabulary(e):
        return e, []
    rest, found = sympy.S.Zero, []
    for term in sympy.Add.make_args(sympy.expand_mul(e)):
        holding = [factor for factor in sympy.Mul.make_args(term) if names_vocabulary(factor)]
        if not holding:
            rest += term
            continue
        if len(holding) > 1:
            raise NoMean(f"{_shown(holding[0])} {PRODUCT}")
        left, more = _factor(holding[0], still)
        c = term / holding[0]
        rest += c * left
        found += [replace(one, c=c * one.c) for one in more]
    return rest, found


def _factor(of: Any, still: bool) -> tuple[Any, list[Exact]]:
    if isinstance(of, OverVocabulary):
        x = of.args[0]
        if x.atoms(Summed, OverBatch, OverVocabulary) or {s.name for s in x.free_symbols} & {"A", "T"}:
            raise UsageError(f"{_shown(of)} is {INSIDE}")
        return sympy.S.Zero, [Exact(sympy.S.One, still, "", sympy.S.One, x)]
    if isinstance(of, sg):
        rest, found = split(of.args[0], True)
        return sg(rest), [replace(one, c=sg(one.c)) for one in found]
    if not isinstance(of, Summed):
        raise NoMean(f"{_shown(min(of.atoms(OverVocabulary), key=str))} {NOT_LINEAR}")
    rest, found = split(of.args[0], still)
    if any(one.place for one in found):
        raise UsageError(f"{_shown(of)}: sums of sums over tokens are not read here")
    places = ("past", "now", "future") if isinstance(of, Whole) else (of.slot,)
    exact = [Exact(sympy.S.One, still, place, one.c, one.x) for one in found for place in places]
    return (of.func(rest) if rest != 0 else rest), exact


def _shown(of: Any) -> str:
    return repr(losses.show(of, TEXT)[:60])


# ---------------------------------------------------------------------------- the sampled loss
def sampled(one: Exact, setting: Setting) -> Any:
    """A term with the same expected gradient, the sum over the vocabulary written as its mean; 0 where it has
    none."""
    held = sg if one.still and setting.use == "loss" else (lambda e: e)
    frozen = one.still and setting.on_policy  # the ratio is 1
    x = one.x.xreplace({rho: sympy.S.One}) if frozen else one.x * rho
    if one.place == "future":
        inner, _ = _at_prefix(one.inner, one)
        _refuse_later(one)
        return one.c * held(After(inner * x))
    c = one.c if one.place == "past" else one.c * one.inner
    if one.place == "past" or _meets_scores(one, setting):
        _refuse_unless_lost(one, c, setting)
        return sympy.S.Zero
    known, _ = _at_prefix(c, one)
    return known * held(x)


def _joined(e: Any) -> Any:
    """c future(a) + c future(b) as c future(a + b), and now(a) as a."""
    now: dict[Any, Any] = {of: of.args[0] for of in e.atoms(Here)}
    parts: dict[Any, Any] = {}
    for term in sympy.Add.make_args(e.xreplace(now)):
        factors = sympy.Mul.make_args(term)
        of = next((f for f in factors if isinstance(f, After) or (isinstance(f, sg) and f.has(After))), None)
        inner = of.args[0] if isinstance(of, sg) else of
        if isinstance(inner, After):
            key = (term / of, isinstance(of, sg))
            parts[key] = parts.get(key, 0) + inner.args[0]
        else:
            parts[term] = sympy.S.Zero
    terms = (
        key if not isinstance(key, tuple) else key[0] * (sg(After(x)) if key[1] else After(x))
        for key, x in parts.items()
    )
    return sympy.Add(*terms)


def _meets_scores(one: Exact, setting: Setting) -> bool:
    return setting.use == "reward" or (one.still and log_q in sympy.Mul.make_args(one.c))


def _refuse_unless_lost(one: Exact, c: Any, setting: Setting) -> None:
    """E_m[c s_t | y_<t] = 0: c is known at the prefix, times rho off-policy, and does not move itself."""
    if not one.still:
        raise UsageError(f"{_shown(_typed(one))} {MOVES}")
    if not _meets_scores(one, setting):
        raise NoMean(f"{_shown(OverVocabulary(one.x))} {BESIDE}")
    _at_prefix(one.inner, one)
    plain = c if setting.use == "reward" else c / log_q
    _, weighted = _at_prefix(plain, one)
    if not weighted and not setting.on_policy:
        raise UsageError(f"{_shown(OverVocabulary(one.x))} {SAMPLER}")
    if setting.use == "loss" and _moves(plain):
        raise NoMean(f"{_shown(OverVocabulary(one.x))} {BESIDE}")


def _at_prefix(c: Any, one: Exact) -> tuple[Any, bool]:
    """c without the ratio of the token and later ones, whose mean is 1; whether it had one."""
    kept, weighted = sympy.S.One, False
    for factor in sympy.Mul.make_args(c):
        bare = factor.args[0] if isinstance(factor, sg) else factor
        if bare in WEIGHTS and not weighted:
            left, weighted = WEIGHTS[bare], True
            factor = sg(left) if isinstance(factor, sg) else left
        kept = kept * factor
    if not _is_known(kept):
        raise NoMean(f"{_shown(OverVocabulary(one.x))} {BESIDE}")
    return kept, weighted


def _is_known(c: Any) -> bool:
    """Does it speak of constants and of tokens before t alone?"""
    bare = c.xreplace({of: sympy.Dummy() for of in c.atoms(Before)})
    return not bare.atoms(Summed, OverBatch) and not bare.free_symbols & set(RANDOM)


def _refuse_later(one: Exact) -> None:
    """What stands beside a detached sum of later tokens is known once token t is drawn."""
    if not one.still:
        raise UsageError(f"{_shown(_typed(one))} {MOVES}")
    names = {symbol.name for symbol in one.c.free_symbols}
    if one.c.atoms(After, Whole, OverBatch) or names & {"A", "T"}:
        raise UsageError(f"{_shown(_typed(one))} {BESIDE}")


def _typed(one: Exact) -> Any:
    places = {"past": Before, "now": Here, "future": After}
    of = one.inner * OverVocabulary(one.x)
    return places[one.place](of) if one.place else of


def _moves(e: Any) -> bool:
    return bool(e.xreplace({of: sympy.Dummy() for of in e.atoms(sg)}).has(log_q))


# ---------------------------------------------------------------------------- what it says of itself
def _per_sample(typed: Written, setting: Setting, exact: list[Exact], alone: Verdict | None) -> Any:
    """What a token pushes: the rest at its own score, and each sum with the scores of all words."""
    score = s if setting.level == "sample" else now(s)
    if setting.use == "reward":
        return Made(product, (_spoken(typed.expression, setting), score))
    parts = [part for one in exact for part in _pushes(one, setting, score)]
    if alone is not None and alone.pushes:
        parts.insert(0, alone.h if alone.scores_named[0] else scored(alone.h, score))
    return Made(total, tuple(parts)) if parts else ZERO


def _pushes(one: Exact, setting: Setting, score: Any) -> Iterator[Any]:
    """C full((x + dx/dlog q) s), and the sum itself times grad C where C moves."""
    c = one.c if one.place else one.c * one.inner
    slope = simple(attached(one.x + sympy.diff(one.x, log_q)))
    if not one.still and slope.has(*RANDOM):  # full(s) = 0
        yield _spoken(attached(c), setting) * OverVocabulary(slope * s)
    if _moves(c):
        of = _typed(one) if one.place else OverVocabulary(attached(one.x))
        yield Made(_times, (of, _slope(c, setting, score)))


def _times(of: Formula, slope: Formula) -> Formula:
    return product(of, bracketed(slope))


def _slope(c: Any, setting: Setting, score: Any) -> Any:
    """grad C, with its scores."""
    if setting.level == "sample":
        return Made(product, (attached(sympy.diff(c, log_q)), s))
    slots = scores_of(
        derive(
            token_gradient(slot_loss(Written("", c), replace(setting, use="loss", credit="")).expression, "q")
        ).differentiate()
    )
    return Made(product, (slots, score)) if {*slots} <= {"now"} else slots


def _spoken(e: Any, setting: Setting) -> Any:
    """Of token t, as bare names of an answer are those of the whole sequence; sums say what they are of."""
    if setting.level == "sample":
        return e
    held = {of: sympy.Dummy(real=True) for of in e.atoms(Summed, OverVocabulary)}
    back = {dummy: of for of, dummy in held.items()} | {now(A): A}
    return now(e.xreplace(held)).xreplace(back)


def simple(e: Any) -> Any:
    try:
        return to_sympy(to_ring(e))
    except NotInRing:
        return e


def attached(e: Any) -> Any:
    return e.replace(lambda part: isinstance(part, sg), lambda part: part.args[0])


def _reading(whole: Any, setting: Setting) -> str:
    single, shown = setting.level == "sample", losses.show(whole, TEXT)
    drawn, given = ("outcome", "") if single else ("token", ", given the prefix")
    where = "" if setting.on_policy else ", where mu > 0 wherever q is"
    return (
        f"full(x) is the sum of q(y)*x(y) over every {drawn} y{given}: the mean of rho*x over the {drawn}"
        f" drawn{where}, as its gradient is that of grad(rho*x); the theorems speak of {shown}"
    )


def start(typed: Written, setting: Setting, spell: Text) -> Any:
    """E_m[sum_t grad L_t], or E_m[sum_t h_t s_t], as it was typed."""
    tokens = setting.level == "token"
    loss = losses.tree_of(typed.expression, spell.positions)
    score = in_slot("s", "now" if tokens else "x", spell.positions)
    of = Gradient(loss) if setting.use == "loss" else product(Call("sg", (loss,)), score)
    return Mean("q" if setting.on_policy else "mu", Over("t", of) if tokens else of)


def _steps(typed: Written, setting: Setting, inner: Verdict) -> tuple[Step, ...]:
    if not inner.steps:
        return ()
    text, latex = (spell(start(typed, setting, spell)) for spell in (TEXT, LATEX))
    (_, first, first_latex), *rest = inner.steps
    return ("", text, latex), (RULE, first, first_latex), *rest


def _witness(typed: Written, setting: Setting, inner: Verdict) -> dict[str, Any] | None:
    """The equation that is refuted, in the words of the loss."""
    if inner.witness is None or not inner.steps:
        return inner.witness
    refuted = inner.witness["refutes"].replace(inner.steps[0][1], TEXT(start(typed, setting, TEXT)), 1)
    return {**inner.witness, "refutes": refuted}


def _expansion(written: Written, typed: Written) -> str | None:
    """The loss with its options and abbreviations written out."""
    if typed is written and not ABBREVIATED.search(written.text):
        return None
    return losses.show(typed.expression, TEXT)


def _value(
    written: Written, setting: Setting, explained: Callable[[Written, Setting], Verdict]
) -> tuple[Meaning, Any]:
    """E_m[L] of the loss itself, whatever scores it meets: that of the sampled one, as C is known."""
    try:
        typed, plain = _without_options(written, replace(setting, use="loss", credit=""))
        rest, exact = split(typed.expression, False)
        if any(one.place == "past" or _meets_scores(one, plain) for one in exact):
            return Meaning(None), None
        found = explained(_printed(_joined(rest + sympy.Add(*(sampled(one, plain) for one in exact)))), plain)
    except UsageError:
        return Meaning(None), None
    return found.value, found.constant


def _warnings(
    written: Written, inner: Verdict, alone: Verdict | None, exact: list[Exact], lost: bool
) -> Iterator[str]:
    """Those of the sampled loss that are not of the token drawn alone, and its own."""
    setting, own = inner.setting, set(alone.warnings) if alone else set()
    for line in inner.warnings:
        if line in own or about(line) not in OF_THE_TOKEN:
            yield line
    if inner.target == "zero" and not inner.pushes:
        yield Told(f"{written.text} {DOES_NOTHING}", "vanishes")
    elif inner.target == "zero":
        yield Told(f"{written.text} as a {setting.use} {NO_GRADIENT}", "zero_gradient")
    if lost:
        yield UNTOLD
    bare = [
        one for one in exact if not (one.c * one.inner).has(Before, Whole) and not _meets_scores(one, setting)
    ]
    if setting.level == "token" and not setting.on_policy and bare:
        yield PREFIXES
    if any(not one.still and _truncated(one.x) for one in exact):
        yield TRUNCATED


def _truncated(x: Any) -> bool:
    """Is its push at q = p, x + dx/dlog q where k1 = 0, a multiple of a mask?"""
    try:
        there = to_ring(attached(x + sympy.diff(x, log_q))).substitute({"k1": ZERO})
    except NotInRing:
        return False
    return there.names() == {M.name}
