"""Collect the assumptions and remarks of a verdict inside the ring.  Untrusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from klsym.engine.fields.field import ReducedGradient, is_same_at_each_token
from klsym.engine.fields.in_trees import AFTER, BEFORE
from klsym.engine.fields.primitives import WEIGHT
from klsym.engine.options.choices import CENTRINGS
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import KL, expectation, grad
from klsym.engine.proof.sequence_quantities import sum_over_t, token_KL_gradient
from klsym.engine.regions.in_steps import to_steps
from klsym.engine.regions.piecewise import find_mixing_weights, is_token_count
from klsym.engine.targets.decide import Decision, find_centred_form
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.statements import LOG
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import R, future, k1, now, s
from klsym.language.messages import Message
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
        if setting.batch != "none" and setting.use == "loss":
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
    if decision.target == "none":
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
