"""Warnings: what an engineer should know before using a loss.  Each is a condition, which gives a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import sympy

from klsym.engine.fields.named_terms import recognise_coefficient
from klsym.engine.fields.tails import find_unbounded_ratio, is_zero
from klsym.engine.regions.case_split import split_into_cases
from klsym.engine.regions.in_steps import to_steps
from klsym.engine.verdicts.verdict import UNNAMED, Verdict
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Monomial
from klsym.kernel.statements import REGION, Context
from klsym.language.abbreviations import Divergence
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import COUNTS, OF_REGIONS, REWARDS, A, M, R, log_mu, log_old, log_q
from klsym.language.messages import Message
from klsym.notation.values import names

# What a loss under q would speak of: the reference, rewards, a critic.
OF_TARGET = re.compile(r"\b(k\d*|r|log_p|p|R|A|V|V_next)(_(past|now|future|self|others))?\b")
Check = Callable[[Verdict, "Facts"], Message | None]


@dataclass(frozen=True)
class Facts:
    """What the warnings look at.

    vanishes: the gradient is zero at every sample.  weighted: some of its terms hold rho.  bare: the
    terms that hold none.  attached: the loss holds rho outside sg.  literal: on-policy, 1 in its
    place gives another expected gradient.  noisy: a multiple of rho s stands beside the rest.  heavy: which
    ratio is unbounded in the gradient at a sample, r or rho*r = p/mu.
    proximal: the terms that hold no rho all hold rho_old.
    pieces: the multiples of E_q[1/T] and of other named quantities of sequences.  alone: a token's own rho
    stands without those before it.  typed: rho itself was typed, of which the weights speak.
    defined: the definitions of the names of regions and logs.
    """

    vanishes: bool
    weighted: bool
    bare: Message | None
    attached: bool
    literal: bool
    noisy: bool = False
    heavy: str = ""
    proximal: bool = False
    pieces: Mapping[str, ExpPoly] = field(default_factory=dict)
    alone: bool = True
    typed: bool = True
    defined: Context = field(default_factory=Context)


def facts_of(loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly, on_policy: bool, defined: Context) -> Facts:
    """The facts of a loss in the ring."""
    weight = ExpPoly.variable("w").exp()
    unweighted = per_sample if on_policy else per_sample * weight.inverse()
    bare = without_weight(per_sample)
    return Facts(
        vanishes=is_zero([per_sample], on_policy),
        weighted=bare != per_sample,
        bare=in_gradient(bare),
        proximal=all_proximal(bare),
        attached=is_attached(loss),
        literal=needs_its_gradient(loss),
        noisy=bool(recognise_coefficient(unweighted).constant),
        heavy=find_unbounded_ratio([per_sample], [c], on_policy),
        pieces=_per_length(c),
        defined=defined,
    )


def in_gradient(*terms: Any) -> Message | None:
    """Where rho is missing: at these terms of the coefficient of the score."""
    return Message("in-gradient", of=terms) if any(terms) else None


def without_weight(element: ExpPoly) -> ExpPoly:
    """The terms that no power of rho multiplies, of whichever slot."""
    kept = {key: value for key, value in element.terms.items() if not _weights(key[1], moving=False)}
    return ExpPoly(kept)


def all_proximal(element: ExpPoly) -> bool:
    """Does each term hold a power of rho_old?"""
    names = ({name for m, _ in exponent for name, _ in m} for _, exponent in element.terms)
    return bool(element) and all(any(parse_name(n).base == "o" for n in here) for here in names)


def is_attached(loss: ExpPoly) -> bool:
    """Does rho stand outside sg?"""
    return any(_weights(exponent) for _, exponent in loss.terms)


def _weights(exponent: Exponent, moving: bool = True) -> set[str]:
    names = {name for monomial, _ in exponent for name, _ in monomial if parse_name(name).base == "w"}
    return {name for name in names if not (moving and parse_name(name).detached)}


def needs_its_gradient(loss: ExpPoly, random: Collection[str] = ()) -> bool:
    """On-policy w = 0: the literal 1 for rho = exp(w) drops E_q[(d_w L) s], which is 0 if d_w L is constant.

    random: further names that change from sample to sample.  Polynomials in w are those of log mu, not of
    rho: their w does not move here.
    """
    fixed = ZERO
    for (monomial, exponent), value in loss.terms.items():
        factor = ExpPoly({(monomial, ()): value}).rename(_fixed)
        fixed = fixed + factor * ExpPoly({((), exponent): 1})
    for name in {name for _, exponent in loss.terms for name in _weights(exponent)}:
        slope = fixed.derive(_along(name))
        zero = {x: ZERO for x in slope.names() if parse_name(x).base == "w"}
        at_q = slope.substitute(zero).rename(lambda x: x.removeprefix("sg(").removesuffix(")"))
        if any(parse_name(x).base in (*SAMPLE_BASES, *random) for x in at_q.names()):
            return True
    return False


def _along(name: str) -> Callable[[str], ExpPoly]:
    return lambda variable: ONE if variable == name else ZERO


def _fixed(name: str) -> str:
    return name if parse_name(name).base != "w" or parse_name(name).detached else f"sg({name})"


def _per_length(c: ExpPoly) -> dict[str, ExpPoly]:
    """The multiple of 1/T in a coefficient, if it is independent of the sample.

    Beside another power of T alone, such as 1/T**2, its sign does not say how 1/T moves.
    """
    found = ZERO
    for (monomial, exponent), value in c.terms.items():
        power = 0 if exponent or _samples(monomial) else dict(monomial).get("length", 0)
        if power not in (0, -1):
            return {}
        if power == -1:
            found = found + ExpPoly({(monomial, exponent): value}) * ExpPoly.variable("length")
    return {"1/T": found} if found else {}


def _samples(monomial: Monomial) -> set[str]:
    return {name for name, _ in monomial} & set(SAMPLE_BASES) - {"length"}


def terms_with_slopes(loss: Any, place: Callable[[Any], Any] = lambda e: e) -> Message:
    """The terms of a loss that have a slope and no weight."""
    terms = sympy.Add.make_args(sympy.expand_mul(loss))
    sloping = [t for t in terms if not _holds_weight(t) and (t.has(log_q) or t.has(log_old))]
    return Message("gradient-of", of=place(sympy.Add(*sloping))) if sloping else Message("some-terms")


def _holds_weight(e: Any) -> bool:
    return bool(e.has(log_mu))


def warnings_for(verdict: Verdict, facts: Facts) -> tuple[Message, ...]:
    """All warnings that apply."""
    return tuple(_applying(CHECKS, verdict, facts))


def _applying(checks: Iterable[Check], verdict: Verdict, facts: Facts) -> Iterator[Message]:
    for check in checks:
        message = check(verdict, facts)
        if message is not None:
            yield message


def outside_the_core(verdict: Verdict, facts: Facts) -> Message | None:
    if verdict.trust == "kernel":
        return None
    return Message("outside-the-core", trust="open" if verdict.target is None else verdict.trust)


def zero_gradient(verdict: Verdict, facts: Facts) -> Message | None:
    if verdict.target != "zero":
        return None
    if facts.vanishes:
        return Message("vanishes", loss=verdict.loss)
    return Message("zero-gradient", loss=verdict.loss, setting=verdict.setting)


OF_DESCENT = ("wrong-sign", "pushes-from-mu", "length-rewarded", "counts-tokens")  # what descending it does
OF_LOSS = ("vanishes", "zero-gradient")  # warnings that name the loss


def value_is_not_gradient(verdict: Verdict, facts: Facts) -> Message | None:
    if verdict.unbiased_for("reverse-kl") and verdict.target != "reverse-kl":
        return Message("value-is-not-gradient", target=verdict.target)
    return None


def missing_weight(verdict: Verdict, facts: Facts) -> Message | None:
    """Where rho is missing: everywhere, or at these terms of the coefficient of s.

    A loss of q and the sampler alone, such as (log_q - log_mu)**2, is meant under the sampler.
    """
    if verdict.setting.on_policy or facts.vanishes or not facts.bare or not OF_TARGET.search(verdict.loss):
        return None
    if facts.proximal:
        return Message("weighed-by-old")
    return Message("missing-weight", at=facts.bare if facts.weighted else None, setting=verdict.setting)


def literal_weight(verdict: Verdict, facts: Facts) -> Message | None:
    if not verdict.setting.on_policy or verdict.setting.use == "reward" or not facts.literal:
        return None
    return Message("literal-weight")


def mean_zero_noise(verdict: Verdict, facts: Facts) -> Message | None:
    if verdict.target == "zero" or not facts.noisy:
        return None
    return Message("mean-zero-noise", of="s" if verdict.setting.on_policy else "rho*s")


def wrong_sign(verdict: Verdict, facts: Facts) -> Message | None:
    """A KL with a negative multiple, or a mean reward with a positive one; what it does beside other terms
    is not said of the whole."""
    if verdict.setting.use == "reward":
        return None
    parts = verdict.gradient.parts
    found = [(("increases", name), v) for name, v in parts.items() if name in ("reverse-kl", "forward-kl")]
    found += [(("pushes", "mu"), c) for c in _of_mu(verdict)]
    signs = [(what, _sign_in_regions(v, facts.defined)) for what, v in found]
    if not _names_both_rewards(verdict, facts.defined):  # one may be the baseline of the other
        signs += _lowered(_as_sympy(parts.get("reward", ZERO)), facts.defined)
    does = tuple((what, sign) for what, sign in signs if sign is not None)
    if not does:
        return None
    pushes = any(what[0] == "pushes" for what, _ in does)
    return Message("pushes-from-mu" if pushes else "wrong-sign", does=does, alone=_is_alone(verdict, does))


def _names_both_rewards(verdict: Verdict, defined: Context) -> bool:
    found = names(verdict.h).union(*(definition.e.names() for definition in defined.definitions))
    return {R.name, A.name} <= {name.partition("[")[0] for name in found}


def _as_sympy(value: Any) -> Any:
    return to_sympy(value) if isinstance(value, ExpPoly) else value


def _sign_in_regions(value: Any, defined: Context) -> Sign | None:
    """The sign of a multiple, which is the same in all regions that it names."""
    if isinstance(value, ExpPoly) and any(defined.defined(x, REGION) is not None for x in value.names()):
        return _of_all_cases(value, defined)
    return sign_of(_as_sympy(value))


def _lowered(reward: Any, defined: Context) -> Iterator[tuple[tuple[str, Any], Sign | None]]:
    """The mean of a reward, or of what a reward with bounds makes of it."""
    held = {name for name in names(reward) if defined.defined(name) is not None}
    regions = {name for name in held if defined.defined(name, REGION) is not None}
    if any(not defined.is_constant(ExpPoly.variable(name)) for name in held - regions):
        return  # a log moves with the reward, and its slope is not looked at
    bounds = defined.within(*map(ExpPoly.variable, regions))
    told = {parse_name(name).base for e in bounds for name in e.names()} | names(reward)
    slopes = {x: reward.diff(x) for x in (R, A) if x.name in told}
    for x, slope in slopes.items():
        if names(slope) & regions:
            yield ("lowers-rising-reward", x), _of_all_cases(to_ring(-slope), defined)
        else:
            negative = to_steps(to_ring(-slope), defined) if held else -slope
            yield ("lowers", reward if slope.has(x) else x), sign_of(negative)


def _of_all_cases(element: ExpPoly, defined: Context) -> Sign | None:
    """The sign that it has in all cases but those where it is 0; None where there is no one sign."""
    rows = split_into_cases({"x": element}, defined, lambda slots, context: to_steps(slots["x"], context))
    found = {sign_of(value) for _, value in rows if value}
    return found.pop() if len(found) == 1 else None


def _is_alone(verdict: Verdict, does: Sequence[tuple[tuple[str, Any], Sign]]) -> bool:
    """Has the objective one term?  A mean of several rewards may rise while that of one of them falls."""
    [(kind, of), _], *_ = does
    if kind == "pushes":
        return verdict.implied is not None and len(verdict.implied.side.terms) == 1
    if verdict.target in UNNAMED or len(verdict.gradient.parts) > 1:
        return False
    reward = to_sympy(verdict.gradient.parts.get("reward", ZERO))
    return kind != "lowers" or of == reward or bool(sympy.expand(reward - reward.diff(of) * of) == 0)


def _of_mu(verdict: Verdict) -> list[ExpPoly]:
    """The multiple of KL(mu||q) in the objective."""
    terms = verdict.implied.side.terms if verdict.implied is not None else ()
    return [c for c, atoms in terms if atoms == (Divergence("KL", "mu", "q"),)]


@dataclass(frozen=True)
class Sign:
    """What the sign of a multiple is; always: for all weights that meet the condition `where` < 0, if any."""

    always: bool
    where: Any = None


@lru_cache(maxsize=1024)
def sign_of(value: Any) -> Sign | None:
    """Where a multiple is negative; None for no positive parameters.

    Parameters are weights, meant to be positive; a condition that no positive ones meet is not told.
    """
    size = {x: sympy.Dummy(positive=True) + int(x.name == "n") for x in value.free_symbols}  # n is 2 or more
    counts = {x: size[x] for x in size if x.name in COUNTS}
    if value.subs(counts).factor().is_negative:
        return Sign(True)
    if value.subs(size).factor().is_nonnegative or value.has(*REWARDS):
        return None
    weights = {x: sympy.Dummy(positive=True) for x in value.free_symbols}
    return Sign(bool(value.subs(weights).factor().is_negative), value)


def heavy_tail(verdict: Verdict, facts: Facts) -> Message | None:
    return Message("heavy-tail", ratio=facts.heavy) if facts.heavy else None


def length_in_front(verdict: Verdict, facts: Facts) -> Message | None:
    if not verdict.setting.averaged or facts.vanishes:
        return None
    multiple = facts.pieces.get("1/T")
    if multiple is None or verdict.setting.use == "reward":
        return Message("length-in-front")
    return Message("length-rewarded", sign=sign_of(to_sympy(multiple)))


def cut_sampler(verdict: Verdict, facts: Facts) -> Message | None:
    """What a sampler that is cut off does not see of the gradient of all samples."""
    if not verdict.setting.truncated or facts.vanishes:
        return None
    if verdict.c is None or re.search(r"\b[MS]\b", verdict.loss):
        return Message("cut-sampler", of=None)
    whole = verdict.c.substitute({"M": ONE, "S": ONE})
    named = any(name.startswith(OF_REGIONS) for name in whole.names())
    return Message("cut-sampler", of=None if named else (1 - M) * to_sympy(whole))


CHECKS: tuple[Check, ...] = (
    cut_sampler, outside_the_core, zero_gradient, value_is_not_gradient, missing_weight, literal_weight,
    mean_zero_noise, wrong_sign, length_in_front, heavy_tail,
)  # fmt: skip


# ---------------------------------------------------------------------------- tokens
def prefixes_of_mu(verdict: Verdict, facts: Facts) -> Message | None:
    """rho_t alone weighs a token given its prefix, and the prefix is still drawn from mu."""
    setting = verdict.setting
    if setting.on_policy or setting.weights != "token" or not (facts.weighted and facts.alone):
        return None
    # of the target zero, whatever the prefixes are drawn from
    return None if verdict.target == "zero" else Message("prefixes-of-mu", typed=facts.typed)


def effect_on_later_tokens(verdict: Verdict, facts: Facts) -> Message | None:
    setting = verdict.setting
    if verdict.target == "zero" or "reverse-kl" in facts.pieces:
        return None
    if setting.use == "reward":
        whole = any(name.startswith("advantage") for name in facts.pieces)  # each score meets it
        return Message("later-rewards-dropped") if setting.credit == "same-token" and not whole else None
    if not {"reverse at q", "forward at q", "reverse at mu", "forward at mu"} & set(facts.pieces):
        return None
    if not setting.on_policy and setting.weights != "token" and facts.attached:
        # the attached weight of the prefix carries its scores: the value is at fault, not the level
        return None
    return Message("later-dropped")


def advantage_counts_once(verdict: Verdict, facts: Facts) -> Message | None:
    """The convention on A where the rewards of several tokens are added up."""
    credits = verdict.setting.use == "reward" and verdict.setting.credit in ("to-go", "total")
    named = verdict.written is not None and verdict.written.expression.has(A)
    return Message("advantage-counts-once") if credits and named else None


def counted_tokens(verdict: Verdict, facts: Facts) -> Message | None:
    if "T" not in facts.pieces:
        return None
    return Message("counts-tokens", use=verdict.setting.use, sign=sign_of(to_sympy(facts.pieces["T"])))


TOKEN_CHECKS = (
    outside_the_core, zero_gradient, value_is_not_gradient, missing_weight, prefixes_of_mu,
    effect_on_later_tokens, literal_weight, wrong_sign, length_in_front, counted_tokens, heavy_tail,
    advantage_counts_once,
)  # fmt: skip


def token_warnings(verdict: Verdict, facts: Facts) -> tuple[Message, ...]:
    """All warnings about token losses."""
    return tuple(_applying(TOKEN_CHECKS, verdict, facts))


# ---------------------------------------------------------------------------- batches
def batch_warnings(verdict: Verdict, facts: Facts) -> tuple[Message, ...]:
    """Those of one sample, and what centring does."""
    found = list(warnings_for(verdict, replace(facts, noisy=False)))  # a constant is centred away
    shrinks = verdict.setting.batch == "mean" and verdict.target != "zero"
    if shrinks:
        found.append(Message("mean-shrinks"))
    if shrinks and {"reward", "reverse-kl"} <= set(verdict.gradient.multiples):
        found.append(Message("shrink-together"))
    if "mean_h" in names(verdict.c):
        found.append(Message("score-has-a-mean"))
    return tuple(found)
