"""Find a model whose expected gradient is not that of the reverse KL, or has a curl.  Untrusted."""

from __future__ import annotations

from typing import Any

from klsym.engine.fields.field import BATCH_SIZE, ReducedGradient, reduce_loss
from klsym.engine.fields.in_trees import (
    choose_tree_values,
    format_critic_values,
    substitute_in_loss,
)
from klsym.engine.proof.derivation import Derivation, derive
from klsym.engine.proof.quantities import KL, Quantity, expected_gradient, grad
from klsym.engine.proof.sequence_quantities import token_gradient
from klsym.engine.proof.shown_counterexample import (
    describe_counterexample,
    describe_counterexample_of_samples,
)
from klsym.engine.targets.decide import Decision
from klsym.errors import ProofError, Refused
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.abbreviations import E, Side, walk_elements


def find_counterexample(
    field: ReducedGradient, decision: Decision, mu_is_q: bool = False
) -> dict[str, Any] | None:
    """Return a model where the expected gradient, without rewards, is not grad KL(q||p), or has a curl.

    A loss of rewards without p is compared with the policy gradient.  mu_is_q: only models with mu = q.
    """
    model, critic_values = _find_counterexample(field, decision, mu_is_q), format_critic_values(field.loss)
    if model is None or not critic_values:
        return model
    return {**model, "parameters": {**model.get("parameters", {}), **critic_values}}


def _find_counterexample(field: ReducedGradient, decision: Decision, mu_is_q: bool) -> dict[str, Any] | None:
    if decision.curl_proof is not None:
        return (
            describe_counterexample_of_samples(decision.curl_proof)
            if field.products
            else describe_counterexample(decision.curl_proof)
        )
    if decision.counterexample is not None or field.canonical_form is None:
        return decision.counterexample
    multiples = decision.decomposition.combination
    if decision.target == "reverse-kl" or (
        decision.target == "combination" and "forward-kl" not in multiples
    ):
        return None
    reward = ZERO if field.products else multiples.get("reward", ZERO)
    names = _collect_names(field)
    without_p = None if "k1" in names or field.products else _choose_policy_reward(field, names)
    if without_p is not None:
        reward = without_p
    if _needs_tree_values(field):
        values = choose_tree_values(field.loss)
        reward, field = reward.substitute(values), reduce_loss(substitute_in_loss(field.loss, values))
    return find_distinguishing_model(_build_derivation(field, decision), reward, without_p is None, mu_is_q)


def _collect_names(field: ReducedGradient) -> set[str]:
    """Return the names in the loss and its regions, without slots."""
    elements_of_loss = [field.loss.element, *(definition.e for definition in field.loss.defined.definitions)]
    return {parse_name(name).base for element in elements_of_loss for name in element.names()}


def _choose_policy_reward(field: ReducedGradient, names: set[str]) -> ExpPoly | None:
    """Return the integrand of the policy gradient's objective: -A for a loss, R for a reward R."""
    reward = next((ExpPoly.from_variable(name) for name in ("A", "R") if name in names), None)
    return reward if reward is None or field.loss.detached else -reward


def _needs_tree_values(field: ReducedGradient) -> bool:
    """Does it contain A, for which trees have no values, and tokens?"""
    names = _collect_names(field)
    has_tokens = field.index == "t" or "length" in names
    return "A" in names and has_tokens and field.loss.index != "i" and not field.products


def _build_derivation(field: ReducedGradient, decision: Decision) -> Derivation:
    """Return the derivation that models are tried on; given values and n = m + 1 are its premises."""
    context = field.start.context
    if field.index == "t" and field.attached_loss is not None:
        loss_gradient = token_gradient(field.attached_loss, field.loss.measure)
        loss_gradient = (
            loss_gradient + expected_gradient(field.sequence_part, field.loss.measure)
            if field.sequence_part
            else loss_gradient
        )
        derivation = derive(loss_gradient, on_policy=context.on_policy, defined=field.loss.defined)
        return derivation if context.given else field.exchanged
    if not context.given and (field.loss.centred_coefficient is not None or not context.premises):
        return field.start if field.index else field.canonical_form or field.start
    holds_m = any("m" in element.names() for element in walk_elements(decision.gradient.side))
    premises = BATCH_SIZE if holds_m else ()
    return derive(decision.gradient, premises=premises, defined=field.loss.defined)


def find_distinguishing_model(
    derivation: Derivation, reward: ExpPoly, kl: bool = True, mu_is_q: bool = False
) -> dict[str, Any] | None:
    """Return a model where the left side is not grad KL(q||p) + grad E_q[reward]; kl: with the first term."""
    reward_gradient = grad(Quantity(Side.from_atom(E("q", reward)))) if reward else None
    claimed_gradient = grad(KL("q", "p")) if kl else reward_gradient
    if kl and reward_gradient is not None:
        claimed_gradient = claimed_gradient + reward_gradient
    try:
        return describe_counterexample(derivation.differs_from(claimed_gradient, mu_is_q=mu_is_q))
    except (ProofError, Refused):
        return None
