"""Warnings: what an engineer should know before using a loss.  Each is a condition and a sentence.

A sentence carries the name of its condition, or what it returns as `Told`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sympy

from klsym.abbreviations import Divergence
from klsym.convert import to_sympy
from klsym.engine.fields.named_terms import recognise
from klsym.engine.fields.tails import is_zero, tail_of
from klsym.language import COUNTS, REWARDS, A, R, log_mu, log_old, log_p, log_q, rho, sg
from klsym.names import SAMPLE_BASES, parse_name
from klsym.notation import formulas, losses
from klsym.notation.spelling import TEXT
from klsym.notation.told import Told
from klsym.notation.tree import Minus
from klsym.notation.values import names
from klsym.ring import ONE, ZERO, Exponent, ExpPoly, Monomial

DENSITIES = (log_q, log_p, log_mu, log_old)

if TYPE_CHECKING:
    from klsym.engine.verdicts.verdict import Verdict

Check = Callable[["Verdict", "Facts"], str]


@dataclass(frozen=True)
class Facts:
    """What the warnings look at.

    vanishes: the gradient is zero at every sample.  weighted: some of its terms hold rho.  bare: the
    terms that hold none, in words.  attached: the loss holds rho outside sg.  literal: on-policy, 1 in its
    place gives another expected gradient.  noisy: a multiple of rho s stands beside the rest.  heavy: which
    ratio is unbounded in the gradient at a sample, r or rho*r = p/mu.
    proximal: the terms that hold no rho all hold rho_old.
    pieces: the multiples of E_q[1/T] and of other named quantities of sequences.  alone: a token's own rho
    stands without those before it.
    """

    vanishes: bool
    weighted: bool
    bare: str
    attached: bool
    literal: bool
    noisy: bool = False
    heavy: str = ""
    proximal: bool = False
    pieces: Mapping[str, ExpPoly] = field(default_factory=dict)
    alone: bool = True


def facts_of(loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly, on_policy: bool) -> Facts:
    """The facts of a loss in the ring."""
    weight = ExpPoly.variable("w").exp()
    unweighted = per_sample if on_policy else per_sample * weight.inverse()
    bare = without_weight(per_sample)
    return Facts(
        vanishes=is_zero([per_sample], on_policy),
        weighted=bare != per_sample,
        bare=f"{formulas.element(bare)} in the gradient" if bare else "",
        proximal=all_proximal(bare),
        attached=is_attached(loss),
        literal=needs_its_gradient(loss),
        noisy=bool(recognise(unweighted).constant),
        heavy=tail_of([per_sample], [c], on_policy),
        pieces=_per_length(c),
    )


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


def needs_its_gradient(loss: ExpPoly) -> bool:
    """On-policy w = 0: the literal 1 for rho = exp(w) drops E_q[(d_w L) s], which is 0 if d_w L is constant.

    Polynomials in w are those of log mu, not of rho: their w does not move here.
    """
    fixed = ZERO
    for (monomial, exponent), value in loss.terms.items():
        factor = ExpPoly({(monomial, ()): value}).rename(_fixed)
        fixed = fixed + factor * ExpPoly({((), exponent): 1})
    for name in {name for _, exponent in loss.terms for name in _weights(exponent)}:
        slope = fixed.derive(_along(name))
        zero = {x: ZERO for x in slope.names() if parse_name(x).base == "w"}
        at_q = slope.substitute(zero).rename(lambda x: x.removeprefix("sg(").removesuffix(")"))
        if any(parse_name(x).base in SAMPLE_BASES for x in at_q.names()):
            return True
    return False


def _along(name: str) -> Callable[[str], ExpPoly]:
    return lambda variable: ONE if variable == name else ZERO


def _fixed(name: str) -> str:
    return name if parse_name(name).base != "w" or parse_name(name).detached else f"sg({name})"


def _per_length(c: ExpPoly) -> dict[str, ExpPoly]:
    """The multiple of 1/T in a coefficient, if it is free of the sample."""
    found = ZERO
    for (monomial, exponent), value in c.terms.items():
        if dict(monomial).get("length") == -1 and not exponent and not _samples(monomial):
            found = found + ExpPoly({(monomial, exponent): value}) * ExpPoly.variable("length")
    return {"1/T": found} if found else {}


def _samples(monomial: Monomial) -> set[str]:
    return {name for name, _ in monomial} & set(SAMPLE_BASES) - {"length"}


def facts_outside(loss: Any, per_sample: Any, place: Callable[[Any], Any] = lambda e: e) -> Facts:
    """The facts of a loss outside the ring; place: what is said of a sample, said of a token."""
    terms = sympy.Add.make_args(sympy.expand_mul(per_sample))
    bare = sympy.Add(*(term for term in terms if not _holds_weight(term)))
    other, x = sympy.Dummy(real=True), sympy.Dummy(positive=True)
    detached = loss.replace(lambda e: isinstance(e, sg), lambda e: other)
    slope = detached.xreplace({rho: x}).diff(x).subs(x, 1)  # as in `needs_its_gradient`
    return Facts(
        vanishes=per_sample == 0,
        weighted=any(map(_holds_weight, terms)),
        bare=_shown_bare(loss, place(bare), place) if bare else "",
        proximal=bool(bare) and all(term.has(log_old) for term in terms if not _holds_weight(term)),
        attached=detached.has(rho),
        literal=bool(slope.free_symbols & {other, *DENSITIES, *REWARDS}),
    )


def _shown_bare(loss: Any, bare: Any, place: Callable[[Any], Any]) -> str:
    """The terms themselves, or the terms of the loss that they are the slope of: a step says less."""
    if not bare.has(sympy.Heaviside, sympy.sign):
        return f"{losses.show(bare, TEXT)} in the gradient"
    terms = sympy.Add.make_args(sympy.expand_mul(loss))
    sloping = [t for t in terms if not _holds_weight(t) and (t.has(log_q) or t.has(log_old))]
    return f"the gradient of {losses.show(place(sympy.Add(*sloping)), TEXT)}" if sloping else "some terms"


def _holds_weight(e: Any) -> bool:
    return bool(e.has(log_mu))


def warnings_for(verdict: Verdict, facts: Facts) -> tuple[str, ...]:
    """All warnings that apply."""
    return tuple(_told(CHECKS, verdict, facts))


def _told(checks: Iterable[Check], verdict: Verdict, facts: Facts) -> Iterator[Told]:
    for check in checks:
        text = check(verdict, facts)
        if text:
            yield text if isinstance(text, Told) else Told(text, check.__name__)


def outside_the_core(verdict: Verdict, facts: Facts) -> str:
    if verdict.trust == "kernel":
        return ""
    if verdict.target is None:
        return (
            "open: outside the decidable core, and numbers at samples do not tell its target from another one"
        )
    return f"outside the decidable core: this verdict is not proved, it {RESTS[verdict.trust]}"


RESTS = {"sympy": "rests on SymPy", "numeric": "is supported by numbers only"}


def zero_gradient(verdict: Verdict, facts: Facts) -> str:
    if verdict.target != "zero":
        return ""
    if facts.vanishes:
        return Told(f"{verdict.loss} {DOES_NOTHING}", "vanishes")
    kind = "a" if verdict.setting.use == "reward" else f"an {verdict.setting.sampling}"
    return f"{verdict.loss} as {kind} {verdict.setting.use} {NO_GRADIENT}"


OF_DESCENT = ("wrong_sign", "pushes_from_mu", "length_rewarded", "counted_tokens")  # what descending it does
OF_LOSS = ("vanishes", "zero_gradient")  # warnings that name the loss
DOES_NOTHING = "has zero gradient at every sample: it does nothing"
NO_GRADIENT = "has zero expected gradient: it only adds noise"


def value_is_not_gradient(verdict: Verdict, facts: Facts) -> str:
    if verdict.unbiased_for("reverse-kl") and verdict.target != "reverse-kl":
        what = {"zero": "is zero", "forward-kl": "is that of KL(p||q)"}
        end = what.get(str(verdict.target), "is not that of KL(q||p)")
        return f"the value is unbiased for KL(q||p), but the expected gradient {end}"
    return ""


def missing_weight(verdict: Verdict, facts: Facts) -> str:
    setting = verdict.setting
    if setting.on_policy or facts.vanishes or not facts.bare:
        return ""
    if facts.proximal:
        return MISMATCH
    fix = " (multiply by rho)" if setting.use == "reward" else ""
    return f"{_bare(facts)}: samples come from mu, not from q{fix}"


MISMATCH = Told(
    "rho_old = q/old weighs samples that come from mu: the factor mu/old is left, which is 1 where mu is old"
    " (multiply by sg(exp(log_old - log_mu)) to take it off; where that is truncated, the bias stays)",
    "weighed_by_old",
)


def _bare(facts: Facts) -> str:
    """Where rho is missing: everywhere, or at these terms of the coefficient of s."""
    return "no importance weight" + (f" at {facts.bare}" if facts.weighted else "")


def literal_weight(verdict: Verdict, facts: Facts) -> str:
    if not verdict.setting.on_policy or verdict.setting.use == "reward" or not facts.literal:
        return ""
    return (
        "on-policy rho has the value 1 but not the gradient 0: build it as "
        "exp(log_q - log_q.detach()); the literal 1 gives another target"
    )


def mean_zero_noise(verdict: Verdict, facts: Facts) -> str:
    if verdict.target == "zero" or not facts.noisy:
        return ""
    shown = "s" if verdict.setting.on_policy else "rho*s"
    return f"a multiple of {shown} has mean zero: it changes no expectation, only the variance"


def wrong_sign(verdict: Verdict, facts: Facts) -> str:
    """A KL with a negative multiple, or a mean reward with a positive one; what it does beside other terms
    is not said of the whole."""
    if verdict.setting.use == "reward":
        return ""
    names = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)"}
    parts = verdict.gradient.parts
    multiples = {name: to_sympy(v) if isinstance(v, ExpPoly) else v for name, v in parts.items()}
    found = [(f"increases {names[n]}", negative(v)) for n, v in multiples.items() if n in names]
    of_mu = [negative(to_sympy(c)) for c in _of_mu(verdict)]
    found += [("pushes q away from mu: it increases KL(mu||q)", where) for where in of_mu]
    reward = multiples.get("reward", sympy.S.Zero)
    slopes = {x: reward.diff(x) for x in (R, A) if reward.has(x)}
    for x, slope in slopes.items() if len(slopes) == 1 else ():  # two may be a reward and its baseline
        mean = TEXT.expectation("q", losses.show(reward if slope.has(x) else x, TEXT))
        found.append((f"lowers {mean}", negative(-slope)))
    said = [f"{words}{where}" for words, where in found if where is not None]
    kind = "pushes_from_mu" if any(where is not None for where in of_mu) else "wrong_sign"
    if not said:
        return Told("", kind)
    if _is_alone(verdict, reward):
        return Told(f"descending this loss {said[0]}", kind)
    return Told(f"a term of the objective, descended alone, {'; another one '.join(said)}", kind)


def _is_alone(verdict: Verdict, reward: Any) -> bool:
    """Has the objective one term?  A mean of several rewards may rise while that of one of them falls."""
    if verdict.implied is not None:
        return len(verdict.implied.side.terms) == 1
    return len(verdict.gradient.parts) == 1 and len(sympy.Add.make_args(sympy.expand(reward))) == 1


def _of_mu(verdict: Verdict) -> list[ExpPoly]:
    """The multiple of KL(mu||q) in the objective."""
    terms = verdict.implied.side.terms if verdict.implied is not None else ()
    return [c for c, atoms in terms if atoms == (Divergence("KL", "mu", "q"),)]


def is_paid(reward: ExpPoly) -> bool:
    """Does a mean reward rise with R, and with A: is it there to be ascended?"""
    value = to_sympy(reward)
    slopes = [value.diff(x) for x in (R, A) if value.has(x)]
    return bool(slopes) and all(negative(-slope) == "" for slope in slopes)


@lru_cache(maxsize=1024)
def negative(value: Any) -> str | None:
    """Where a multiple is negative: "" for all parameters, " where .." for some, None for no positive ones.

    Parameters are weights, meant to be positive; a condition that no positive ones meet is not told.
    """
    size = {x: sympy.Dummy(positive=True) + int(x.name == "n") for x in value.free_symbols}  # n is 2 or more
    counts = {x: size[x] for x in size if x.name in COUNTS}
    if value.subs(counts).factor().is_negative:
        return ""
    if value.subs(size).factor().is_nonnegative or value.has(*REWARDS):
        return None
    shown = losses.tree_of(value)
    return f" where {TEXT(shown.of)} > 0" if isinstance(shown, Minus) else f" where {TEXT(shown)} < 0"


def heavy_tail(verdict: Verdict, facts: Facts) -> str:
    return TAILS[facts.heavy]


TAILS = {
    "": "",
    "r": "r = p/q is unbounded where q << p: expect heavy tails far from the reference",
    "rho*r": "rho*r = p/mu is unbounded where mu << p: expect heavy tails where the sampler is far from the"
    " reference",
}


def length_in_front(verdict: Verdict, facts: Facts) -> str:
    if not verdict.setting.averaged or facts.vanishes:
        return ""
    start = "1/T depends on the tokens to come, so that what has mean zero without it need not have it"
    multiple = facts.pieces.get("1/T")
    if multiple is None or verdict.setting.use == "reward":
        return start
    mean = "E_q[1/T], whose inverse is the harmonic mean length"
    ways = (f"lowers {mean}: longer sequences", f"raises {mean}: shorter sequences")
    return Told(f"{start}: descending this {_by_sign(multiple, *ways)}", "length_rewarded")


def _by_sign(multiple: ExpPoly, positive: str, negative_: str) -> str:
    """What a multiple does; both ways with the condition where its sign is open."""
    value = to_sympy(multiple)
    where = negative(value)
    if not where:
        return positive if where is None else negative_
    if value.subs({x: sympy.Dummy(positive=True) for x in value.free_symbols}).factor().is_negative:
        return f"{negative_}{where}"
    return f"{positive} (but{where} it {negative_})"


CHECKS: tuple[Check, ...] = (
    outside_the_core, zero_gradient, value_is_not_gradient, missing_weight, literal_weight,
    mean_zero_noise, wrong_sign, length_in_front, heavy_tail,
)  # fmt: skip


# ---------------------------------------------------------------------------- tokens
def token_weight_missing(verdict: Verdict, facts: Facts) -> str:
    if verdict.setting.on_policy or facts.vanishes or not facts.bare:
        return ""
    if facts.proximal:
        return MISMATCH
    fix = " (multiply by rho, with weights prefix)" if verdict.setting.use == "reward" else ""
    return f"{_bare(facts)}: sequences come from mu, not from q{fix}"


def prefixes_of_mu(verdict: Verdict, facts: Facts) -> str:
    """rho_t alone weighs a token given its prefix, and the prefix is still drawn from mu."""
    setting = verdict.setting
    if setting.on_policy or setting.weights != "token" or not (facts.weighted and facts.alone):
        return ""
    if verdict.target == "zero":
        return ""  # whatever the prefixes are drawn from
    ways = "choose weights prefix, or level sequence"
    if not RHO.search(verdict.loss):  # of which the weights speak
        ways = "multiply by exp(past(log_q - log_mu)), or choose level sequence"
    return f"rho_t alone leaves the prefix of t distributed as mu: {ways}"


RHO = re.compile(r"\brho\b")


def effect_on_later_tokens(verdict: Verdict, facts: Facts) -> str:
    setting = verdict.setting
    if verdict.target == "zero" or "reverse-kl" in facts.pieces:
        return ""
    if setting.use == "reward":
        whole = any(name.startswith("advantage") for name in facts.pieces)  # each score meets it
        same = setting.credit == "same-token" and not whole
        return "a token is not credited with the rewards after it: choose credit to-go" * same
    if not {"reverse at q", "forward at q", "reverse at mu", "forward at mu"} & set(facts.pieces):
        return ""
    if not setting.on_policy and setting.weights != "token" and facts.attached:
        return (
            ""  # the attached weight of the prefix carries its scores: the value is at fault, not the level
        )
    return Told("what a token does to later ones is dropped", "later_dropped")


def counted_tokens(verdict: Verdict, facts: Facts) -> str:
    if "T" not in facts.pieces:
        return ""
    way = "ascending" if verdict.setting.use == "reward" else "descending"
    changes = ("shortens sequences", "lengthens sequences")[:: -1 if verdict.setting.use == "reward" else 1]
    return f"a constant at each token counts tokens: {way} it {_by_sign(facts.pieces['T'], *changes)}"


TOKEN_CHECKS = (
    outside_the_core, zero_gradient, value_is_not_gradient, token_weight_missing, prefixes_of_mu,
    effect_on_later_tokens, literal_weight, wrong_sign, length_in_front, counted_tokens, heavy_tail,
)  # fmt: skip


def token_warnings(verdict: Verdict, facts: Facts) -> tuple[str, ...]:
    """All warnings about token losses."""
    return tuple(_told(TOKEN_CHECKS, verdict, facts))


# ---------------------------------------------------------------------------- batches
def batch_warnings(verdict: Verdict, facts: Facts) -> tuple[str, ...]:
    """Those of one sample, and what centring does."""
    found = list(warnings_for(verdict, replace(facts, noisy=False)))  # a constant is centred away
    setting = verdict.setting
    shrinks = setting.batch == "mean" and verdict.target != "zero"
    if shrinks:
        found.append(
            "each sample stands in the mean that is taken off it: the gradient shrinks by 1 - 1/n (multiply"
            " by n/(n - 1), or leave each sample out of its mean)"
        )
    if shrinks and {"reward", "reverse-kl"} <= set(verdict.gradient.multiples):
        found.append("the reward and the penalty shrink together; centring one alone shrinks that one alone")
    if "mean_h" in names(verdict.c):
        found.append(
            "off-policy the score has no mean zero under mu: what is taken off adds E_mu[h] grad KL(mu||q),"
            " for h the coefficient of the score"
        )
    return tuple(found)
