"""Warnings: what an engineer should know before using a loss.  Each is a condition, which gives a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from klsym.engine.divergences.needed_weights import needs_no_weight
from klsym.engine.fields.named_terms import recognise_coefficient
from klsym.engine.fields.tails import find_unbounded_ratio, is_zero
from klsym.engine.verdicts.signs import Sign, find_sign, find_sign_in_regions, list_lowered_rewards
from klsym.engine.verdicts.verdict import UNNAMED, Verdict
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Monomial
from klsym.kernel.statements import Context
from klsym.language.abbreviations import Divergence
from klsym.language.convert import to_sympy
from klsym.language.expressions import OF_REGIONS, A, M, R, log_mu, log_old, log_q
from klsym.language.messages import Message
from klsym.notation.values import collect_names

# What a loss under q would speak of: the reference, rewards, a critic.
TARGET_NAMES = re.compile(r"\b(k\d*|r|log_p|p|R|A|V|V_next)(_(past|now|future|self|others))?\b")
Check = Callable[[Verdict, "Facts"], Message | None]


@dataclass(frozen=True)
class Facts:
    """The facts that the warnings depend on.

    vanishes: the gradient is zero at every sample.  weighted: some of its terms contain rho.
    unweighted_terms: a message on those that do not.  attached: the loss contains rho outside sg.
    literal: on-policy, 1 for rho gives another expected gradient.  noisy: a multiple of rho s is added.
    unbounded_ratio: r or rho*r = p/mu, where it is unbounded in the gradient at a sample.  proximal: the
    terms without rho hold rho_old.  named_multiples: of E_q[1/T] and its like.  is_token_weight_only: a
    token's rho appears without those before it.  rho_typed: rho was typed.  defined: regions and logs.
    """

    vanishes: bool
    weighted: bool
    unweighted_terms: Message | None
    attached: bool
    literal: bool
    noisy: bool = False
    unbounded_ratio: str = ""
    proximal: bool = False
    named_multiples: Mapping[str, ExpPoly] = field(default_factory=dict)
    is_token_weight_only: bool = True
    rho_typed: bool = True
    defined: Context = field(default_factory=Context)


def collect_facts(loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly, on_policy: bool, defined: Context) -> Facts:
    """Return the facts of a loss in the ring."""
    weight = ExpPoly.from_variable("w").exp()
    unweighted = per_sample if on_policy else per_sample * weight.invert()
    terms_without_rho = select_unweighted(per_sample)
    return Facts(
        vanishes=is_zero([per_sample], on_policy),
        weighted=terms_without_rho != per_sample,
        unweighted_terms=name_unweighted_terms(terms_without_rho),
        proximal=is_proximal(terms_without_rho),
        attached=is_attached(loss),
        literal=needs_weight_gradient(loss),
        noisy=bool(recognise_coefficient(unweighted).constant),
        unbounded_ratio=find_unbounded_ratio([per_sample], [c], on_policy),
        named_multiples=_find_length_multiple(c),
        defined=defined,
    )


def name_unweighted_terms(*terms: Any) -> Message | None:
    """Return the message on terms of the coefficient of the score without rho."""
    return Message("in-gradient", of=terms) if any(terms) else None


def select_unweighted(element: ExpPoly) -> ExpPoly:
    """Return the terms without a power of rho of any slot."""
    unweighted = {
        key: value
        for key, value in element.terms.items()
        if not _collect_weights(key[1], attached_only=False)
    }
    return ExpPoly(unweighted)


def is_proximal(element: ExpPoly) -> bool:
    """Does each term contain a power of rho_old?"""
    names = ({name for m, _ in exponent for name, _ in m} for _, exponent in element.terms)
    return bool(element) and all(any(parse_name(n).base == "o" for n in inside) for inside in names)


def is_attached(loss: ExpPoly) -> bool:
    """Is there a rho outside sg?"""
    return any(_collect_weights(exponent) for _, exponent in loss.terms)


def _collect_weights(exponent: Exponent, attached_only: bool = True) -> set[str]:
    names = {name for monomial, _ in exponent for name, _ in monomial if parse_name(name).base == "w"}
    return {name for name in names if not (attached_only and parse_name(name).detached)}


def needs_weight_gradient(loss: ExpPoly, random: Collection[str] = ()) -> bool:
    """Does 1 for rho = exp(w) change the expected gradient on-policy, by E_q[(d_w L) s], d_w L not constant?

    random: further names that change from sample to sample.  Polynomials in w come from log mu, not from rho:
    they count as detached.
    """
    fixed = ZERO
    for (monomial, exponent), value in loss.terms.items():
        factor = ExpPoly({(monomial, ()): value}).rename(_detach_weight)
        fixed = fixed + factor * ExpPoly({((), exponent): 1})
    for name in {name for _, exponent in loss.terms for name in _collect_weights(exponent)}:
        slope = fixed.derive(_differentiate_along(name))
        zero = {x: ZERO for x in slope.names() if parse_name(x).base == "w"}
        at_q = slope.substitute(zero).rename(lambda x: x.removeprefix("sg(").removesuffix(")"))
        if any(parse_name(x).base in (*SAMPLE_BASES, *random) for x in at_q.names()):
            return True
    return False


def _differentiate_along(name: str) -> Callable[[str], ExpPoly]:
    return lambda variable: ONE if variable == name else ZERO


def _detach_weight(name: str) -> str:
    return name if parse_name(name).base != "w" or parse_name(name).detached else f"sg({name})"


def _find_length_multiple(c: ExpPoly) -> dict[str, ExpPoly]:
    """Return the multiple of 1/T in a coefficient, if it is independent of the sample.

    With another power of T, such as 1/T**2, its sign does not determine the effect on 1/T.
    """
    multiple = ZERO
    for (monomial, exponent), value in c.terms.items():
        power = 0 if exponent or _collect_sample_names(monomial) else dict(monomial).get("length", 0)
        if power not in (0, -1):
            return {}
        if power == -1:
            multiple = multiple + ExpPoly({(monomial, exponent): value}) * ExpPoly.from_variable("length")
    return {"1/T": multiple} if multiple else {}


def _collect_sample_names(monomial: Monomial) -> set[str]:
    return {name for name, _ in monomial} & set(SAMPLE_BASES) - {"length"}


def name_terms_with_slopes(loss: Any, place: Callable[[Any], Any] = lambda e: e) -> Message:
    """Return the message on the terms of a loss that have a gradient and no weight."""
    terms = sympy.Add.make_args(sympy.expand_mul(loss))
    sloping = [t for t in terms if not _has_weight(t) and (t.has(log_q) or t.has(log_old))]
    return Message("gradient-of", of=place(sympy.Add(*sloping))) if sloping else Message("some-terms")


def _has_weight(e: Any) -> bool:
    return bool(e.has(log_mu))


def list_warnings(verdict: Verdict, facts: Facts) -> tuple[Message, ...]:
    """Return all warnings that apply."""
    return tuple(_apply_checks(CHECKS, verdict, facts))


def _apply_checks(checks: Iterable[Check], verdict: Verdict, facts: Facts) -> Iterator[Message]:
    for check in checks:
        message = check(verdict, facts)
        if message is not None:
            yield message


def check_core(verdict: Verdict, facts: Facts) -> Message | None:
    if verdict.trust == "kernel":
        return None
    return Message("outside-the-core", trust="open" if verdict.target is None else verdict.trust)


def check_zero_gradient(verdict: Verdict, facts: Facts) -> Message | None:
    if verdict.target != "zero":
        return None
    if facts.vanishes:
        return Message("vanishes", loss=verdict.loss.text)
    return Message("zero-gradient", loss=verdict.loss.text, setting=verdict.setting)


DESCENT_WARNINGS = (
    "wrong-sign",
    "pushes-from-mu",
    "length-rewarded",
    "counts-tokens",
)  # what descending it does
LOSS_WARNINGS = ("vanishes", "zero-gradient")  # warnings that name the loss


def check_value(verdict: Verdict, facts: Facts) -> Message | None:
    if verdict.value.is_unbiased_for("reverse-kl") and verdict.target != "reverse-kl":
        return Message("value-is-not-gradient", target=verdict.target)
    return None


def check_missing_weight(verdict: Verdict, facts: Facts) -> Message | None:
    """Warn where rho is missing: everywhere, or at some terms of the coefficient of s.

    A loss of q and the sampler alone is meant to be under the sampler, and a regression can be 0 everywhere.
    """
    if (
        verdict.setting.on_policy
        or (verdict.loss.written and needs_no_weight(verdict.loss.written.expression, facts.weighted))
        or facts.vanishes
        or not facts.unweighted_terms
        or not TARGET_NAMES.search(verdict.loss.text)
    ):
        return None
    if facts.proximal:
        return Message("weighed-by-old")
    return Message(
        "missing-weight", at=facts.unweighted_terms if facts.weighted else None, setting=verdict.setting
    )


def check_literal_weight(verdict: Verdict, facts: Facts) -> Message | None:
    if not verdict.setting.on_policy or verdict.setting.is_reward or not facts.literal:
        return None
    return Message("literal-weight")


def check_noise(verdict: Verdict, facts: Facts) -> Message | None:
    if verdict.target == "zero" or not facts.noisy:
        return None
    return Message("mean-zero-noise", of="s" if verdict.setting.on_policy else "rho*s")


def check_sign(verdict: Verdict, facts: Facts) -> Message | None:
    """Warn of a KL with a negative multiple, or a mean reward with a positive one; of other terms nothing is
    said."""
    if verdict.setting.is_reward:
        return None
    parts = verdict.gradient.parts
    effects = [(("increases", name), v) for name, v in parts.items() if name in ("reverse-kl", "forward-kl")]
    effects += [(("pushes", "mu"), c) for c in _find_kl_of_mu(verdict)]
    signs = [(effect, find_sign_in_regions(v, facts.defined)) for effect, v in effects]
    if not _has_both_rewards(verdict, facts.defined):  # one may be the baseline of the other
        signs += list_lowered_rewards(_to_sympy(parts.get("reward", ZERO)), facts.defined)
    signed_effects = tuple((effect, sign) for effect, sign in signs if sign is not None)
    if not signed_effects:
        return None
    is_of_mu = any(effect[0] == "pushes" for effect, _ in signed_effects)
    return Message(
        "pushes-from-mu" if is_of_mu else "wrong-sign",
        does=signed_effects,
        alone=_is_alone(verdict, signed_effects),
    )


def _has_both_rewards(verdict: Verdict, defined: Context) -> bool:
    all_names = collect_names(verdict.gradient.score_coefficient).union(
        *(definition.e.names() for definition in defined.definitions)
    )
    return {R.name, A.name} <= {name.partition("[")[0] for name in all_names}


def _to_sympy(value: Any) -> Any:
    return to_sympy(value) if isinstance(value, ExpPoly) else value


def _is_alone(verdict: Verdict, signed_effects: Sequence[tuple[tuple[str, Any], Sign]]) -> bool:
    """Has the objective one term?  A mean of several rewards may rise while that of one of them falls."""
    [(kind, of), _], *_ = signed_effects
    if kind == "pushes":
        return verdict.objective.quantity is not None and len(verdict.objective.quantity.side.terms) == 1
    if verdict.target in UNNAMED or len(verdict.gradient.parts) > 1:
        return False
    reward = to_sympy(verdict.gradient.parts.get("reward", ZERO))
    return kind != "lowers" or of == reward or bool(sympy.expand(reward - reward.diff(of) * of) == 0)


def _find_kl_of_mu(verdict: Verdict) -> list[ExpPoly]:
    """Return the multiple of KL(mu||q) in the objective, in a list; empty if there is none."""
    terms = verdict.objective.quantity.side.terms if verdict.objective.quantity is not None else ()
    return [c for c, atoms in terms if atoms == (Divergence("KL", "mu", "q"),)]


def check_tail(verdict: Verdict, facts: Facts) -> Message | None:
    return Message("heavy-tail", ratio=facts.unbounded_ratio) if facts.unbounded_ratio else None


def check_length(verdict: Verdict, facts: Facts) -> Message | None:
    if not verdict.setting.averaged or facts.vanishes:
        return None
    multiple = facts.named_multiples.get("1/T")
    if multiple is None or verdict.setting.is_reward:
        return Message("length-in-front")
    return Message("length-rewarded", sign=find_sign(to_sympy(multiple)))


def check_cut_sampler(verdict: Verdict, facts: Facts) -> Message | None:
    """Report the part of the gradient that samples of a truncated sampler miss."""
    if not verdict.setting.truncated or facts.vanishes:
        return None
    if verdict.gradient.canonical_coefficient is None or re.search(r"\b[MS]\b", verdict.loss.text):
        return Message("cut-sampler", of=None)
    coefficient = verdict.gradient.canonical_coefficient.substitute({"M": ONE, "S": ONE})
    has_region = any(name.startswith(OF_REGIONS) for name in coefficient.names())
    return Message("cut-sampler", of=None if has_region else (1 - M) * to_sympy(coefficient))


CHECKS: tuple[Check, ...] = (
    check_cut_sampler, check_core, check_zero_gradient, check_value, check_missing_weight,
    check_literal_weight,
    check_noise, check_sign, check_length, check_tail,
)  # fmt: skip


# ---------------------------------------------------------------------------- tokens
def check_prefixes(verdict: Verdict, facts: Facts) -> Message | None:
    """Warn that rho_t alone weighs a token given its prefix, and the prefix is still drawn from mu."""
    setting = verdict.setting
    is_weighted = facts.weighted and facts.is_token_weight_only
    if setting.on_policy or not setting.weighs_by_own_token or not is_weighted:
        return None
    # of the target zero, whatever the prefixes are drawn from
    return None if verdict.target == "zero" else Message("prefixes-of-mu", typed=facts.rho_typed)


def check_later_tokens(verdict: Verdict, facts: Facts) -> Message | None:
    setting = verdict.setting
    if verdict.target == "zero" or "reverse-kl" in facts.named_multiples:
        return None
    if setting.is_reward:
        is_whole_advantage = any(
            name.startswith("advantage") for name in facts.named_multiples
        )  # each score meets it
        return (
            Message("later-rewards-dropped")
            if setting.credit and not setting.credits_other_tokens and not is_whole_advantage
            else None
        )
    if not {"reverse at q", "forward at q", "reverse at mu", "forward at mu"} & set(facts.named_multiples):
        return None
    if not setting.on_policy and not setting.weighs_by_own_token and facts.attached:
        # the attached weight of the prefix carries its scores: the value is at fault, not the level
        return None
    return Message("later-dropped")


def check_advantage_credit(verdict: Verdict, facts: Facts) -> Message | None:
    """State the convention on A, if the rewards of several tokens are summed."""
    is_credited = verdict.setting.is_reward and verdict.setting.credits_other_tokens
    has_advantage = verdict.loss.written is not None and verdict.loss.written.expression.has(A)
    return Message("advantage-counts-once") if is_credited and has_advantage else None


def check_token_count(verdict: Verdict, facts: Facts) -> Message | None:
    if "T" not in facts.named_multiples:
        return None
    return Message(
        "counts-tokens", use=verdict.setting.use, sign=find_sign(to_sympy(facts.named_multiples["T"]))
    )


TOKEN_CHECKS = (
    check_core, check_zero_gradient, check_value, check_missing_weight, check_prefixes,
    check_later_tokens, check_literal_weight, check_sign, check_length, check_token_count, check_tail,
    check_advantage_credit,
)  # fmt: skip


def list_token_warnings(verdict: Verdict, facts: Facts) -> tuple[Message, ...]:
    """Return all warnings about token losses."""
    return tuple(_apply_checks(TOKEN_CHECKS, verdict, facts))


# ---------------------------------------------------------------------------- batches
def list_batch_warnings(verdict: Verdict, facts: Facts) -> tuple[Message, ...]:
    """Return the warnings of one sample, and those on centring."""
    messages = list(list_warnings(verdict, replace(facts, noisy=False)))  # a constant is centred away
    centring = verdict.setting.centring
    shrinks = centring is not None and centring.loses_own_share and verdict.target != "zero"
    if shrinks:
        messages.append(Message("mean-shrinks"))
    if shrinks and {"reward", "reverse-kl"} <= set(verdict.gradient.multiples):
        messages.append(Message("shrink-together"))
    if "mean_h" in collect_names(verdict.gradient.canonical_coefficient):
        messages.append(Message("score-has-a-mean"))
    return tuple(messages)
