"""The values of the advantage and the critic in a tree of tokens.  Untrusted.

A tree holds no values for them.  So A of the sequence is R, the sum of the token rewards, and V is 1 after
every prefix.  In a loss with V_next, both V and V_next are 0.  If a loss has no objective for these values,
the verdict is that it has none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klsym.engine.fields.slot_loss import ADVANTAGE, SlotLoss
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.statements import Context
from klsym.language.convert import to_sympy
from klsym.language.expressions import A, V, V_next, now, past

REWARD, BEFORE, AFTER = ExpPoly.from_variable("R"), "A[past]", "A[now]"
NAMES = {ADVANTAGE: "A", V: BEFORE, past(A): BEFORE, V_next: AFTER, now(A): AFTER}


def choose_tree_values(loss: SlotLoss) -> dict[str, ExpPoly]:
    """Return the values that A, V and V_next have in every tree."""
    before = ZERO if AFTER in _collect_names(loss) else ONE
    return {ADVANTAGE.name: REWARD, BEFORE: before, AFTER: ZERO}


def format_critic_values(loss: SlotLoss) -> dict[str, str]:
    """Return the printed values of V and V_next, for those that the loss contains."""
    values, labels = choose_tree_values(loss), {BEFORE: "V", AFTER: "V_next"}
    critic_names = (name for name in (BEFORE, AFTER) if name in _collect_names(loss))
    return {labels[name]: str(int(values[name] == ONE)) for name in critic_names}


def _collect_names(loss: SlotLoss) -> set[str]:
    return {name for e in loss.defined.walk_definitions(*loss.elements) for name in e.names()}


def substitute_in_context(context: Context, values: dict[str, ExpPoly]) -> Context:
    """Return the context with these values in its regions and logs."""
    definitions = tuple(d._replace(e=d.e.substitute(values)) for d in context.definitions)
    return replace(context, definitions=definitions)


def substitute_tree_values(e: Any, values: dict[str, ExpPoly]) -> Any:
    """Return an expression with these values in it."""
    return e.xreplace({x: to_sympy(values[name]) for x, name in NAMES.items() if name in values})
