"""What `compare` asks of a loss; of token losses here.  Untrusted.

>>> from klsym.engine.answers.dispatch import as_written
>>> setting = Setting("off-policy", level="token", weights="token", aggregate="sum")
>>> asked_of_tokens(token_loss(as_written("rho*k3", ()), setting), setting, False).gradient
E_mu[sum_t grad(rho_now*k3_now)]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from klsym.abbreviations import Side
from klsym.engine.fields.field import field_of
from klsym.engine.fields.slot_loss import SlotLoss, slot_loss
from klsym.engine.options.settings import Setting
from klsym.engine.proof.quantities import Quantity
from klsym.engine.proof.sequence_quantities import sum_over_t, token_gradient
from klsym.errors import NotInRing, UsageError
from klsym.names import SAMPLE
from klsym.render.losses import Written

NOT_COMPARED = (
    "compare: rewards of other tokens that are no sums of k1, log q, R and constants are not compared; choose"
    " credit same-token"
)


class Asked(NamedTuple):
    """The expected value of a loss, its gradient at a sample or sequence, and its expected gradient."""

    value: Quantity
    per_sample: Quantity
    gradient: Quantity


def token_loss(written: Written, setting: Setting) -> SlotLoss:
    """The loss of each token; raises UsageError beyond the ring."""
    try:
        return slot_loss(written, setting)
    except NotInRing as error:
        raise UsageError(
            f"compare: at level token only exponential polynomials are compared: {error}"
        ) from None


def asked_of_tokens(loss: SlotLoss, setting: Setting, copied: bool) -> Asked:
    """At a sequence, what is the same at each token is left at each."""
    under = "mu" if copied or not setting.on_policy else "q"
    start = field_of(loss).start
    if start.context.given:
        raise UsageError(NOT_COMPARED)
    field = Quantity(start.start, dict(start.context.functions), start.labels)
    at_each = token_gradient(loss.expression, SAMPLE) if setting.use == "loss" else measured(field, SAMPLE)
    return Asked(sum_over_t(loss.expression, under), at_each, measured(field, under))


def measured(quantity: Quantity, measure: str) -> Quantity:
    """The same means under another measure, or at one sample."""

    def moved(atom: Any) -> Any:
        return replace(atom, measure=measure)

    terms = ((c, tuple(map(moved, atoms))) for c, atoms in quantity.side.terms)
    return replace(quantity, side=Side.of(*terms))
