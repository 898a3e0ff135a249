"""Say what a verdict inside the ring assumes, keeps and leaves open.  Untrusted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from klsym.convert import to_ring
from klsym.engine.fields.field import Field, is_the_same
from klsym.engine.fields.primitives import WEIGHT
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import KL, expectation, grad
from klsym.engine.proof.sequence_quantities import sum_over_t, token_KL_gradient
from klsym.engine.targets.decide import Decision, taken_off
from klsym.language import R, future, k1, now, s
from klsym.names import parse_name
from klsym.ring import ZERO, ExpPoly

MEAN = "mean_h"


def coefficient_under_q(field: Field) -> Any:
    """c, mean_h where E_mu[h] E_mu[s] is taken off; None for other products."""
    if field.index == "t":
        return field.coefficients
    off = taken_off(field)
    if off is None:
        return None if field.products else field.c
    return off.c - ExpPoly.variable(MEAN) * WEIGHT.inverse() * off.share


READINGS = {
    "mean": "x_1..x_n are independent samples, n at least 2; others is the sum over the other n - 1",
    "leave-one-out": "x_1..x_n are independent samples, n at least 2; others is the sum over the other"
    " m = n - 1",
    "R": "R_now is the reward of token t, R that of the whole sequence, their sum",
    "A": "A is any function of the whole sequence that is free of theta: the same at each of its tokens,"
    " whose scores it meets once",
    "w": "on-policy rho is 1 at every token, and a reward is detached",
    "once": "a sequence has at least one token: what is the same at each of them, over T, counts once,"
    " sum_t 1/T = 1",
    "often": "a sequence has at least one token: what is the same at each of its T tokens counts T times",
    "loss": "what is centred is the coefficient h in grad L = h s, detached",
}
APART = "E_mu[h] and KL(mu||q) move along different directions, so that E_mu[h] grad KL(mu||q) has a curl"
PRODUCT_RULE = (
    "grad Var_mu(x)/2 = grad E_mu[x**2]/2 - E_mu[x] grad E_mu[x] and, for b free of theta,"
    " grad Cov_mu(b, log_q) = grad E_mu[b*log_q] - E_mu[b] grad E_mu[log_q]"
)
OPEN_TOKENS = (
    "open: no tree that was tried gives the expected gradient a curl, and that it has none is not proved, nor"
    " is an objective known"
)
OPEN = "open: no model that was tried gives the expected gradient a curl, and that it has none is not proved"


def readings(field: Field, setting: Setting) -> Iterator[str]:
    if field.loss.index == "i":
        yield READINGS["leave-one-out" if field.start.context.premises else "mean"]
        if setting.batch != "none" and setting.use == "loss":
            yield READINGS["loss"]
        if off := taken_off(field):
            yield f"{MEAN} stands for {off.mean}"
    if field.index == "t":
        bases = {parse_name(name).base for name in to_ring(field.loss.each).names()}
        shown = ("R", "A", "w") if setting.on_policy and field.loss.detached else ("R", "A")
        yield from (READINGS[base] for base in READINGS if base in bases and base in shown)
        if field.constant:
            yield READINGS["often" if is_the_same(field.loss.element) else "once"]


def undecided(field: Field, decision: Decision) -> tuple[str, ...]:
    if decision.target is not None:
        told = {"none": f"{APART} on a finite model"}.get(
            decision.target, PRODUCT_RULE if decision.objective else ""
        )
        return (told,) if told and field.products and taken_off(field) else ()
    return (OPEN_TOKENS if field.index == "t" else OPEN,)


def assuming(field: Field, decision: Decision, proofs: tuple[Proof, ...]) -> tuple[Proof, ...]:
    """A refutation on one model assumes nothing of others."""
    return tuple(proof for proof in proofs if not (field.products and proof is decision.turned))


def hypotheses_of(proofs: tuple[Proof, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line for proof in proofs for line in proof.hypotheses))


KEPT = {
    "reverse at q": "keeps the KL of each next token at the prefix drawn, drops what a token does to later"
    " ones",
    "forward at q": "a forward KL of each next token, at prefixes drawn from q where KL(p||q) draws them from"
    " p",
    "reverse at mu": "the KL of each next token, at prefixes drawn from mu where KL(q||p) draws them from q",
    "forward at mu": "a forward KL of each next token, at prefixes drawn from mu where KL(p||q) draws them"
    " from p",
    "same token": "keeps the reward of the same token, drops that of later ones",
}


def kept(decision: Decision) -> Iterator[tuple[str, Proof]]:
    """What a term at one token keeps and drops of a full gradient, with the identity or a counterexample."""
    found = decision.found
    alone = to_ring(now(R)).terms.keys() <= found.rest.get("now", ZERO).terms.keys()
    names = {*found.multiples, *(["same token"] if alone else [])}
    yield from ((words, _note(term)) for term, words in KEPT.items() if term in names)


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
