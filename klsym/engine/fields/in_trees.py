"""The values of the advantage and the critic in a tree of tokens.  Untrusted.

A tree holds no values for them.  So A of the sequence is R, the sum of the token rewards, and V is 1 after
every prefix.  In a loss with V_next, both V and V_next are 0.  If a loss has no objective for these values,
the verdict is that it has none; if two losses differ for them, they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from klsym.engine.fields.slot_loss import ADVANTAGE, SlotLoss
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.convert import to_sympy
from klsym.language.expressions import A, V, V_next, now, past

REWARD, BEFORE, AFTER = ExpPoly.from_variable("R"), "A[past]", "A[now]"
OF_BOTH_SIGNS = ExpPoly.from_number(3) - 2 * REWARD
NAMES = {ADVANTAGE: "A", V: BEFORE, past(A): BEFORE, V_next: AFTER, now(A): AFTER}


def choose_tree_values(*losses: SlotLoss) -> dict[str, ExpPoly]:
    """Return the values that A, V and V_next have in every tree."""
    before = ZERO if AFTER in _collect_names(*losses) else ONE
    return {ADVANTAGE.name: REWARD, BEFORE: before, AFTER: ZERO}


def list_tree_values(losses: Sequence[SlotLoss]) -> list[dict[str, ExpPoly]]:
    """Return values of A, V and V_next to try in trees, one after the other, of those that losses contain."""
    names = _collect_names(*losses)
    has_tokens = "length" in names or any(loss.index == "t" for loss in losses)
    if not has_tokens or not names & {ADVANTAGE.name, BEFORE, AFTER}:
        return []
    values = {name: value for name, value in choose_tree_values(*losses).items() if name in names}
    return [values, *([{**values, ADVANTAGE.name: OF_BOTH_SIGNS}] if ADVANTAGE.name in names else [])]


def format_critic_values(loss: SlotLoss) -> dict[str, str]:
    """Return the printed values of V and V_next, for those that the loss contains."""
    values, labels = choose_tree_values(loss), {BEFORE: "V", AFTER: "V_next"}
    critic_names = (name for name in (BEFORE, AFTER) if name in _collect_names(loss))
    return {labels[name]: str(int(values[name] == ONE)) for name in critic_names}


def _collect_names(*losses: SlotLoss) -> set[str]:
    """Return the names in losses and in their regions."""
    elements = (e for loss in losses for e in loss.defined.walk_definitions(*loss.elements))
    return {name for e in elements for name in e.names()}


def substitute_in_context(context: Context, values: dict[str, ExpPoly]) -> Context:
    """Return the context with these values in its regions and logs."""
    definitions = tuple(d._replace(e=d.e.substitute(values)) for d in context.definitions)
    return replace(context, definitions=definitions)


def substitute_tree_values(e: Any, values: dict[str, ExpPoly]) -> Any:
    """Return an expression with these values in it."""
    return e.xreplace({x: to_sympy(values[name]) for x, name in NAMES.items() if name in values})


def substitute_in_loss(loss: SlotLoss, values: dict[str, ExpPoly]) -> SlotLoss:
    """Return the loss with these values of A and the critic."""
    label = loss.label and loss.build_label(substitute_tree_values(loss.label.expression, values))
    return replace(
        loss,
        expression=substitute_tree_values(loss.expression, values),
        sums={name: substitute_tree_values(value, values) for name, value in loss.sums.items()},
        typed=loss.typed if loss.typed is None else substitute_tree_values(loss.typed, values),
        uncredited=loss.uncredited and substitute_tree_values(loss.uncredited, values),
        label=label,
        defined=substitute_in_context(loss.defined, values),
    )
