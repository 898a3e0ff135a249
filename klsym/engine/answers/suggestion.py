"""What to write instead of a loss that is no KL penalty: the right one for the same setting, if there is one.

>>> from klsym.engine.explain import explain
>>> found = explain("k3").fix
>>> found.loss, found.proof
('k2', E_q[grad k2] = grad KL(q||p))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import sympy

from klsym.engine.answers.dispatch import as_written
from klsym.engine.answers.is_correct import DENSITIES_OF_KL, prove_choice
from klsym.engine.options.option_table import CHOICES
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import KL, expectation, expected_gradient, grad
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import NotInRing, ProofError, UsageError
from klsym.language.convert import to_ring
from klsym.language.expressions import A, R, log_p, remove_sg, s, sg
from klsym.notation.losses import Written
from klsym.records import record

# Tried in this order, each judged; the first that is right is also the first that `recommend` names.
SHORT_LOSSES = ("k2", "k1", "k3", "1 - r", "rho*k3", "rho*k1", "rho*(1 - r)", "rho*(1 - r - r*k1)")
TO_THE_SAMPLER = ("rho*(log_q - log_mu) + 1 - rho", "rho*(log_q - log_mu)")  # k3 and k1, of mu for p


@record
class Suggestion:
    """A loss that is right where another is wrong, with the theorem that it is.

    changed: the options that have to change with it.  kl: the densities of the divergence.
    verdict: the verdict on it; None where the theorem alone was asked for.
    """

    loss: str
    setting: Setting
    changed: tuple[str, ...]
    kl: tuple[str, str]
    proof: Proof
    beside: bool = False  # does a reward stand in the loss too?
    verdict: Verdict | None = None


def suggest_loss(verdict: Verdict, written: Written, target: str) -> Suggestion | None:
    """Return the right loss for the setting of a verdict; None if none of the short losses is right."""
    if target == "sampler":
        return _suggest_for_sampler(verdict.setting)
    has_reward = "reward" in verdict.gradient.multiples or written.expression.has(R, A)
    if has_reward and not has_penalty(written):
        return None  # in place of the loss it would leave the reward out
    for place, changed in _iterate_settings(verdict.setting):
        for loss in SHORT_LOSSES:
            try:
                choice = prove_choice(loss, place, target, place.use)
            except UsageError:
                continue
            if choice is not None and not choice.setting.averaged:
                theorem, densities = choice.proof.theorems[0], DENSITIES_OF_KL[target]
                return Suggestion(
                    loss, place, changed, kl=densities, proof=theorem, beside=has_reward, verdict=choice
                )
    return None


def has_penalty(written: Written) -> bool:
    """Has a loss a term with the reference and without a reward?

    >>> [has_penalty(as_written(loss, ())) for loss in ("k3 - A*rho", "sg(A - beta*k1)*log_q", "-A/r")]
    [True, True, False]
    """
    terms = sympy.Add.make_args(sympy.expand_mul(remove_sg(written.expression)))
    return any(term.has(log_p) and not term.has(R, A) for term in terms)


def _iterate_settings(setting: Setting) -> Iterator[tuple[Setting, tuple[str, ...]]]:
    """Yield the setting itself, those with one other option, and at last that of whole sequences."""
    divided = setting.divisor.divides
    place = replace(setting, aggregate="sum") if divided else setting
    changed = ("aggregate sum",) if divided else ()
    yield place, changed
    if not setting.is_per_token:
        return
    for name in ("credit", "weights"):
        for choice in CHOICES[name] if getattr(place, name) else ():
            if choice != getattr(place, name):
                yield replace(place, **{name: choice}), (*changed, f"{name} {choice}")
    yield Setting(setting.sampling, setting.use, "sequence", aggregate="sum"), (*changed, "level sequence")


def _suggest_for_sampler(setting: Setting) -> Suggestion | None:
    """Return a loss for KL(q||mu) with samples from mu, at one sample."""
    if setting.is_per_token or setting.is_centred:
        return None
    for loss in TO_THE_SAMPLER:
        expression = as_written(loss, ()).expression
        detached = setting.is_reward
        field = expectation(sg(expression) * s, "mu") if detached else expected_gradient(expression, "mu")
        text, differentiated = (f"sg({loss})", sg(expression)) if detached else (loss, expression)
        field = replace(field, labels={to_ring(differentiated): Written(text, differentiated)})
        try:
            proof = derive(field).equals(grad(KL("q", "mu")))
        except (ProofError, NotInRing):
            continue
        return Suggestion(
            loss, setting=replace(setting, aggregate=""), changed=(), kl=("q", "mu"), proof=proof
        )
    return None
