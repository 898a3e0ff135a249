"""Say what a verdict inside the ring assumes, keeps and leaves open.  Untrusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from klsym.engine.fields.field import ReducedGradient, is_same_at_each_token
from klsym.engine.fields.in_trees import AFTER, BEFORE
from klsym.engine.fields.primitives import WEIGHT
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import KL, expectation, grad
from klsym.engine.proof.sequence_quantities import sum_over_t, token_KL_gradient
from klsym.engine.regions.in_steps import to_steps
from klsym.engine.regions.piecewise import find_mixing_weights, is_token_count
from klsym.engine.targets.decide import Decision, taken_off
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


def coefficient_under_q(field: ReducedGradient) -> Any:
    """c, mean_h where E_mu[h] E_mu[s] is taken off; None for other products."""
    if field.index == "t":
        return field.coefficients
    off = taken_off(field)
    if off is None:
        return None if field.products or field.canonical_form is None else field.c
    return off.c - ExpPoly.variable(MEAN) * WEIGHT.inverse() * off.share


READINGS = {
    "mean": Message("batch-mean"), "leave-one-out": Message("batch-leave-one-out"),
    "R": Message("reward-of-token"), "A": Message("advantage-of-sequence"),
    "V": Message("critic"), "V_next": Message("critic-after"), "w": Message("rho-is-one"),
    "once": Message("counts-once"), "often": Message("counts-often"), "loss": Message("centred-coefficient"),
}  # fmt: skip
CRITICS = {BEFORE: "V", AFTER: "V_next"}
RANDOM = ("R", "A", *CRITICS.values())
OPEN_TOKENS = Message("open-no-tree")
OPEN_SAMPLES = Message("open-no-model")


def readings(field: ReducedGradient, setting: Setting) -> Iterator[Message]:
    if field.loss.index == "i":
        yield READINGS["leave-one-out" if field.start.context.premises else "mean"]
        if setting.batch != "none" and setting.use == "loss":
            yield READINGS["loss"]
        if off := taken_off(field):
            yield Message("mean-h", of=_mean_of(off.h, field))
    for _, kind, e in field.loss.defined.definitions:
        if kind == LOG and is_token_count(e) and not e.terms.get(((), ())):
            yield Message("above", at="q" if setting.on_policy else "mu", element=e)
        for w in find_mixing_weights(e, field.loss.defined) if kind == LOG else ():
            yield from (Message("positive", of=of) for of in (w, f"1 - {w}"))
    if field.index == "t":
        told = (field.loss.uncredited, *field.loss.sums.values())
        bases = {CRITICS.get(name, parse_name(name).base) for e in told for name in to_ring(e).names()}
        shown = (*RANDOM, "w") if setting.on_policy and field.loss.detached else RANDOM
        if field.loss.label and "gae(" in field.loss.label.text:
            yield Message("gae")
        yield from (READINGS[base] for base in READINGS if base in bases and base in shown)
        if field.sequence_part:
            yield READINGS[
                "often" if is_same_at_each_token(field.loss.element, field.loss.defined) else "once"
            ]


def _mean_of(h: ExpPoly, field: ReducedGradient) -> str:
    context = field.loss.defined
    shown = to_steps(h, context) if context.definitions else to_sympy(h)
    return TEXT(Mean("mu", losses.tree_of(shown)))


def undecided(field: ReducedGradient, decision: Decision) -> tuple[Message, ...]:
    if decision.target is None:
        return (OPEN_TOKENS if field.index == "t" else OPEN_SAMPLES,)
    if not (field.products and taken_off(field)):
        return ()
    if decision.target == "none":
        return (Message("means-move-apart", on="a finite model"),)
    return (Message("product-rule"),) if decision.objective else ()


def assuming(field: ReducedGradient, decision: Decision, proofs: tuple[Proof, ...]) -> tuple[Proof, ...]:
    """A refutation on one model assumes nothing of others."""
    return tuple(proof for proof in proofs if not (field.products and proof is decision.turned))


def assumed_by(proofs: Iterable[Proof]) -> tuple[Message, ...]:
    return tuple(dict.fromkeys(message for proof in proofs for message in proof.assumptions))


KEPT = ("reverse at q", "forward at q", "reverse at mu", "forward at mu", "same token")


def kept(decision: Decision) -> Iterator[Message]:
    """What a term at one token keeps and drops of a full gradient, with the identity or a counterexample."""
    found = decision.found
    alone = to_ring(now(R)).terms.keys() <= found.remainder.get("now", ZERO).terms.keys()
    names = {*found.multiples, *(["same token"] if alone else [])}
    yield from (Message("kept", term=term, proof=_note(term)) for term in KEPT if term in names)


@cache
def _note(term: str) -> Proof:
    """It speaks of no loss, so that it is proved once."""
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
    alone, later = (sum_over_t(of * now(s), "q") for of in (now(R), future(R)))
    return derive(alone).equals(grad(expectation(R, "q")) - later)
