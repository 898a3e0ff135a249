"""Collect the assumptions and remarks of a verdict inside the ring.  Untrusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from sympy import S

from klsym.engine.divergences.f_divergence import (
    list_convexity_messages,
    list_divergence_messages,
)
from klsym.engine.fields.field import (
    ReducedGradient,
    is_same_at_each_token,
)
from klsym.engine.fields.in_trees import AFTER, BEFORE
from klsym.engine.fields.position_sums import remove_slots
from klsym.engine.fields.primitives import WEIGHT
from klsym.engine.fields.slot_loss import (
    collect_random_names,
)
from klsym.engine.fields.tails import find_unbounded_ratio, is_zero
from klsym.engine.options.choices import CENTRINGS
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import KL, expectation, grad
from klsym.engine.proof.sequence_quantities import sum_over_t, token_KL_gradient
from klsym.engine.regions.in_steps import multiply_by_ratios, select_unbounded_terms, to_steps
from klsym.engine.regions.piecewise import find_mixing_weights, is_token_count
from klsym.engine.targets.decide import Decision, find_centred_form
from klsym.engine.verdicts.verdict import (
    Verdict,
)
from klsym.engine.verdicts.warnings import (
    Facts,
    collect_facts,
    is_attached,
    is_proximal,
    list_batch_warnings,
    list_token_warnings,
    list_warnings,
    name_terms_with_slopes,
    name_unweighted_terms,
    needs_weight_gradient,
    select_unweighted,
)
from klsym.kernel.definitions import LOG, REGION
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.convert import is_in_ring, substitute_on_policy, to_ring, to_sympy
from klsym.language.expressions import R, future, k1, now, remove_sg, rho, s, sg
from klsym.language.messages import Message
from klsym.language.sums import Centred, LeftOut
from klsym.notation import losses
from klsym.notation.printers import TEXT
from klsym.notation.tree import Mean

MEAN = "mean_h"


def find_canonical_coefficient(field: ReducedGradient) -> Any:
    """Return c, with mean_h for E_mu[h] if E_mu[h] E_mu[s] is subtracted; None for other products."""
    if field.index == "t":
        return field.coefficients
    centred_form = find_centred_form(field)
    if centred_form is None:
        return None if field.products or field.canonical_form is None else field.c
    return centred_form.c - ExpPoly.from_variable(MEAN) * WEIGHT.invert() * centred_form.share


READING_NOTES = {
    "mean": Message("batch-mean"), "leave-one-out": Message("batch-leave-one-out"),
    "R": Message("reward-of-token"), "A": Message("advantage-of-sequence"),
    "V": Message("critic"), "V_next": Message("critic-after"), "w": Message("rho-is-one"),
    "once": Message("counts-once"), "often": Message("counts-often"), "loss": Message("centred-coefficient"),
}  # fmt: skip
CRITICS = {BEFORE: "V", AFTER: "V_next"}
RANDOM = ("R", "A", *CRITICS.values())
OPEN_TOKENS = Message("open-no-tree")
OPEN_SAMPLES = Message("open-no-model")


def generate_reading_notes(field: ReducedGradient, setting: Setting) -> Iterator[Message]:
    if field.loss.index == "i":
        centring = setting.centring or CENTRINGS["leave-one-out" if field.start.context.premises else "mean"]
        yield Message(centring.note)
        if setting.is_centred and setting.is_differentiated:
            yield READING_NOTES["loss"]
        if centred_form := find_centred_form(field):
            yield Message("mean-h", of=_format_mean(centred_form.h, field))
    for _, kind, e in field.loss.defined.definitions:
        if kind == LOG and is_token_count(e) and not e.terms.get(((), ())):
            yield Message("above", at="q" if setting.on_policy else "mu", element=e)
        for w in find_mixing_weights(e, field.loss.defined) if kind == LOG else ():
            yield from (Message("positive", of=of) for of in (w, f"1 - {w}"))
    if field.index == "t":
        expressions = (field.loss.uncredited, *field.loss.sums.values())
        bases = {CRITICS.get(name, parse_name(name).base) for e in expressions for name in to_ring(e).names()}
        noted_bases = (*RANDOM, "w") if setting.on_policy and field.loss.detached else RANDOM
        if field.loss.label and "gae(" in field.loss.label.text:
            yield Message("gae")
        yield from (READING_NOTES[base] for base in READING_NOTES if base in bases and base in noted_bases)
        if field.sequence_part:
            yield READING_NOTES[
                "often" if is_same_at_each_token(field.loss.element, field.loss.defined) else "once"
            ]


def _format_mean(h: ExpPoly, field: ReducedGradient) -> str:
    context = field.loss.defined
    integrand = to_steps(h, context) if context.definitions else to_sympy(h)
    return TEXT(Mean("mu", losses.build_tree(integrand)))


def collect_remarks(field: ReducedGradient, decision: Decision) -> tuple[Message, ...]:
    if decision.target is None:
        return (OPEN_TOKENS if field.index == "t" else OPEN_SAMPLES,)
    if not (field.products and find_centred_form(field)):
        return ()
    if decision.target == "no-objective":
        return (Message("means-move-apart", on="a finite model"),)
    return (Message("product-rule"),) if decision.objective else ()


def select_assuming_proofs(
    field: ReducedGradient, decision: Decision, proofs: tuple[Proof, ...]
) -> tuple[Proof, ...]:
    """Select the proofs with assumptions; a refutation on one model has none."""
    return tuple(proof for proof in proofs if not (field.products and proof is decision.curl_proof))


def collect_assumptions(proofs: Iterable[Proof]) -> tuple[Message, ...]:
    return tuple(dict.fromkeys(message for proof in proofs for message in proof.assumptions))


ONE_TOKEN_TERMS = ("reverse at q", "forward at q", "reverse at mu", "forward at mu", "same token")


def compare_with_full_gradient(decision: Decision) -> Iterator[Message]:
    """Yield how each term at one token differs from a full gradient, by an identity or a counterexample."""
    decomposition = decision.decomposition
    has_own_rewards = to_ring(now(R)).terms.keys() <= decomposition.remainder.get("now", ZERO).terms.keys()
    names = {*decomposition.multiples, *(["same token"] if has_own_rewards else [])}
    yield from (
        Message("kept", term=term, proof=_prove_comparison(term)) for term in ONE_TOKEN_TERMS if term in names
    )


@cache
def _prove_comparison(term: str) -> Proof:
    """Return the proof on a term; it does not depend on the loss, and is cached."""
    full, forward = grad(KL("q", "p")), grad(KL("p", "q"))
    match term:
        case "reverse at q":
            return derive(token_KL_gradient("q", "p")).equals(full - sum_over_t(now(s) * future(k1), "q"))
        case "forward at q":
            return derive(token_KL_gradient("p", "q")).differs_from(forward)
        case "reverse at mu":
            return derive(token_KL_gradient("q", "p", prefixes="mu")).differs_from(full)
        case "forward at mu":
            return derive(token_KL_gradient("p", "q", prefixes="mu")).differs_from(forward)
    own_rewards, later_rewards = (sum_over_t(of * now(s), "q") for of in (now(R), future(R)))
    return derive(own_rewards).equals(grad(expectation(R, "q")) - later_rewards)


# ---------------------------------------------------------------------------- shape and warnings
CENTRING_OPTION = {row.subtracts: name for name, row in CENTRINGS.items() if not row.divides}


def infer_batch_option(field: ReducedGradient, setting: Setting) -> Setting:
    """Return the setting whose option batch equals a detached loo(h) or centred(h)."""
    typed = field.loss.label.expression if field.loss.label else None
    if setting.is_reward and isinstance(typed, LeftOut | Centred):
        return replace(setting, batch=CENTRING_OPTION[type(typed)])
    return setting


def collect_messages(
    verdict: Verdict, field: ReducedGradient, single: ReducedGradient, decision: Decision, setting: Setting
) -> tuple[Message, ...]:
    """Return what an engineer should know; single: the gradient of one sample, before centring."""
    if field.index == "t":
        return list_token_warnings(verdict, _collect_token_facts(field, decision, setting.on_policy))
    coefficients, defined = single.score_coefficients, field.loss.defined
    as_option = infer_batch_option(field, setting)
    typed = single.loss.label if single.loss.index != "i" else None
    h = coefficients.get("x", coefficients.get("self", ZERO))
    if not field.random_names.all.isdisjoint(parse_name(name).base for name in h.names()):
        h = substitute_on_policy(h) if setting.on_policy else h
        facts = _collect_region_facts(single, h, setting.on_policy)
    else:
        in_ring = typed is not None and is_in_ring(typed.expression)
        loss = to_ring(typed.expression) if typed and in_ring else single.loss.element
        facts = collect_facts(loss, per_sample=h, c=field.c, on_policy=setting.on_policy, defined=defined)
    if as_option.is_centred:
        return _collect_batch_messages(verdict, field, as_option, setting, facts=facts)
    if field.loss.index == "i":
        vanishes = is_zero(field.score_coefficients.values(), setting.on_policy)
        facts = replace(facts, vanishes=vanishes, noisy=False)
        return (
            *list_warnings(verdict, facts),
            *((Message("baseline-attached"),) if "others" in coefficients else ()),
        )
    messages = list_warnings(verdict, facts)
    if verdict.objective.generator is not None:
        return (*messages, *list_divergence_messages(verdict.objective.generator))
    return (
        (*messages, *list_convexity_messages(verdict.objective.convexity))
        if verdict.objective.convexity
        else messages
    )


def _collect_batch_messages(
    verdict: Verdict, field: ReducedGradient, as_option: Setting, setting: Setting, facts: Facts
) -> tuple[Message, ...]:
    """Return the messages on a centred batch; as_option: the setting whose option batch centres it."""
    h, defined = field.sample_coefficient, field.loss.defined
    if not setting.is_centred:
        facts = collect_facts(h, per_sample=h, c=field.c, on_policy=setting.on_policy, defined=defined)
    facts = replace(facts, vanishes=not collect_random_names(h, defined) or facts.vanishes)
    messages = list_batch_warnings(verdict.revise(setting=as_option), facts)
    if setting.is_centred:
        return messages
    return tuple(x for x in messages if x.code != "value-is-not-gradient")


def _collect_region_facts(single: ReducedGradient, coefficient: ExpPoly, on_policy: bool) -> Facts:
    """Return the facts of a loss with bounds or logs; a region of rho counts as a weight."""
    loss, context = single.loss, single.loss.defined
    weighted = multiply_by_ratios(coefficient, context)
    facts = collect_facts(loss.element, per_sample=weighted, c=ZERO, on_policy=on_policy, defined=context)
    unweighted = select_unweighted(weighted)
    has_rho = remove_slots(loss.typed).replace(lambda e: isinstance(e, sg), lambda e: S.Zero).has(rho)
    literal = has_rho and needs_weight_gradient(loss.element, single.random_names.all)
    facts = replace(facts, noisy=False, literal=literal)
    if any(context.find_definition(name, REGION) is not None for name in unweighted.names()):
        return replace(facts, unweighted_terms=name_terms_with_slopes(remove_slots(loss.typed)))
    return facts


def _describe_bare_terms(bare: tuple[ExpPoly, ...], field: ReducedGradient) -> Message | None:
    """Return the message on unweighted terms; those with regions are named by the terms of the loss."""
    typed = field.loss.label
    if typed is None or not any(collect_random_names(c, field.loss.defined) - {*SAMPLE_BASES} for c in bare):
        return name_unweighted_terms(*bare)
    return Message("some-terms") if field.loss.detached else name_terms_with_slopes(typed.expression, now)


def _collect_token_facts(field: ReducedGradient, decision: Decision, on_policy: bool) -> Facts:
    """Return facts for warnings; a detached loss multiplies the scores of other tokens too."""
    loss = to_ring(remove_sg(field.loss.uncredited) if field.loss.detached else field.loss.uncredited)
    slots = field.coefficients
    sum_values = [to_ring(remove_sg(value)) for value in field.loss.sums.values()]
    factors = [loss] if field.loss.detached else list(field.score_coefficients.values())
    all_factors = [*factors, *sum_values]
    factors = [multiply_by_ratios(c, field.loss.defined) for c in factors]
    bare = dict.fromkeys(part for part in map(select_unweighted, factors) if part)
    ratios = {parse_name(n) for c in factors for _, exponent in c.terms for m, _ in exponent for n, _ in m}
    weights = {name.slot for name in ratios if name.base == "w"}
    return Facts(
        vanishes=is_zero(field.score_coefficients.values(), on_policy),
        weighted=any(select_unweighted(c) != c for c in factors),
        unweighted_terms=_describe_bare_terms(tuple(bare), field),
        proximal=bool(bare) and all(map(is_proximal, bare)),
        attached=is_attached(loss),
        literal=needs_weight_gradient(loss),
        unbounded_ratio=find_unbounded_ratio(
            [select_unbounded_terms(c, field.loss.defined) for c in all_factors], slots.values(), on_policy
        ),
        named_multiples=decision.decomposition.multiples,
        is_token_weight_only="now" in weights and "past" not in weights,
        rho_typed=field.loss.label is not None and field.loss.label.expression.has(rho),
        defined=field.loss.defined,
    )
