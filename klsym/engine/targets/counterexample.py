"""Find a model whose expected gradient is not that of the reverse KL, or has a curl.  Untrusted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klsym.engine.fields.field import BATCH_SIZE, ReducedGradient, reduce_loss
from klsym.engine.fields.in_trees import (
    choose_tree_values,
    format_critic_values,
    substitute_in_context,
    substitute_tree_values,
)
from klsym.engine.fields.slot_loss import SlotLoss
from klsym.engine.proof.derivation import Derivation, derive
from klsym.engine.proof.quantities import KL, Quantity, expected_gradient, grad
from klsym.engine.proof.sequence_quantities import token_gradient
from klsym.engine.proof.shown_counterexample import shown_as_samples, shown_witness
from klsym.engine.targets.decide import Decision
from klsym.errors import ProofError, Refused
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.abbreviations import E, Side, elements


def counterexample(
    field: ReducedGradient, decision: Decision, mu_is_q: bool = False
) -> dict[str, Any] | None:
    """A model in which the field is not grad KL(q||p) beside the rewards, or in which it has a curl.

    The field of a loss of rewards without p is compared with the policy gradient.  mu_is_q: in such a model.
    """
    found, critic = _counterexample(field, decision, mu_is_q), format_critic_values(field.loss)
    if found is None or not critic:
        return found
    return {**found, "parameters": {**found.get("parameters", {}), **critic}}


def _counterexample(field: ReducedGradient, decision: Decision, mu_is_q: bool) -> dict[str, Any] | None:
    if decision.turned is not None:
        return shown_as_samples(decision.turned) if field.products else shown_witness(decision.turned)
    if decision.witness is not None or field.canonical_form is None:
        return decision.witness
    found = decision.found.combination
    if decision.target == "reverse-kl" or (decision.target == "combination" and "forward-kl" not in found):
        return None
    reward = ZERO if field.products else found.get("reward", ZERO)
    names = _names(field)
    without_p = None if "k1" in names or field.products else _policy_reward(field, names)
    if without_p is not None:
        reward = without_p
    if _is_of_trees(field):
        values = choose_tree_values(field.loss)
        reward, field = reward.substitute(values), reduce_loss(_in_trees(field.loss, values))
    return told_apart(_for_models(field, decision), reward, without_p is None, mu_is_q)


def _names(field: ReducedGradient) -> set[str]:
    """The quantities that it speaks of."""
    told = [field.loss.element, *(definition.e for definition in field.loss.defined.definitions)]
    return {parse_name(name).base for element in told for name in element.names()}


def _policy_reward(field: ReducedGradient, names: set[str]) -> ExpPoly | None:
    """The objective of a policy gradient with its reward: E_q[-A] for a loss, E_q[R] for a reward R."""
    reward = next((ExpPoly.variable(name) for name in ("A", "R") if name in names), None)
    return reward if reward is None or field.loss.detached else -reward


def _is_of_trees(field: ReducedGradient) -> bool:
    """Does it speak of A, of which trees hold no values, and of steps?"""
    names = _names(field)
    steps = field.index == "t" or "length" in names
    return "A" in names and steps and field.loss.index != "i" and not field.products


def _in_trees(loss: SlotLoss, values: dict[str, ExpPoly]) -> SlotLoss:
    """The loss with what stands in trees for A and a critic."""
    label = loss.label and loss.build_label(substitute_tree_values(loss.label.expression, values))
    return replace(
        loss,
        expression=substitute_tree_values(loss.expression, values),
        sums={name: substitute_tree_values(value, values) for name, value in loss.sums.items()},
        typed=loss.typed if loss.typed is None else substitute_tree_values(loss.typed, values),
        label=label,
        defined=substitute_in_context(loss.defined, values),
    )


def _for_models(field: ReducedGradient, decision: Decision) -> Derivation:
    """Return the derivation that models are tried on; given values and n = m + 1 are its premises."""
    context = field.start.context
    if field.index == "t" and field.attached_loss is not None:
        same = token_gradient(field.attached_loss, field.loss.measure)
        same = (
            same + expected_gradient(field.sequence_part, field.loss.measure) if field.sequence_part else same
        )
        given = derive(same, on_policy=context.on_policy, defined=field.loss.defined)
        return given if context.given else field.exchanged
    if not context.given and (field.loss.centred_coefficient is not None or not context.premises):
        return field.start
    holds_m = any("m" in element.names() for element in elements(decision.right.side))
    premises = BATCH_SIZE if holds_m else ()
    return derive(decision.right, premises=premises, defined=field.loss.defined)


def told_apart(
    derivation: Derivation, reward: ExpPoly, kl: bool = True, mu_is_q: bool = False
) -> dict[str, Any] | None:
    """A model in which the left side is not grad KL(q||p) + grad E_q[reward], or not the latter alone."""
    rewarded = grad(Quantity(Side.atom(E("q", reward)))) if reward else None
    right = grad(KL("q", "p")) if kl else rewarded
    if kl and rewarded is not None:
        right = right + rewarded
    try:
        return shown_witness(derivation.differs_from(right, mu_is_q=mu_is_q))
    except (ProofError, Refused):
        return None
