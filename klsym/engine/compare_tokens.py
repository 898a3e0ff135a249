"""compare for token losses: values, gradients at a sequence, and expected gradients.  Untrusted.

>>> from klsym.engine.explaining import as_written
>>> pair = tuple(as_written(loss, ()) for loss in ("rho*k3", "sg(rho)*k2"))
>>> setting = Setting("off-policy", level="token", weights="token", aggregate="sum")
>>> [answer.same for answer in compare_tokens(pair, setting)]
[False, True, True]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from klsym.abbreviations import ExpectedGradient, Indexed, IndexedGradient, Side
from klsym.convert import to_ring
from klsym.engine.answers import Answer, decided
from klsym.engine.explain_fields import field_of
from klsym.engine.explain_samples import refuse_unless_moderate, uses_sampler
from klsym.engine.explain_setting import Setting
from klsym.engine.explain_slots import TokenLoss, at_token
from klsym.engine.indexed import sum_over_t, token_gradient
from klsym.engine.quantities import Quantity
from klsym.errors import NotInRing, UsageError
from klsym.names import SAMPLE
from klsym.render.losses import Written

NOT_COMPARED = (
    "compare: rewards of other tokens that are no sums of k1, log q, R and constants are not compared; choose"
    " credit same-token"
)


def compare_tokens(pair: tuple[Written, Written], setting: Setting) -> tuple[Answer, Answer, Answer]:
    """Value, gradient at a sequence, and expected gradient; raises UsageError beyond the ring."""
    tokens = tuple(_loss(written, setting) for written in pair)
    losses = tuple(token.expression for token in tokens)
    weighted = any(uses_sampler(to_ring(loss), setting) for loss in losses)
    copied = setting.on_policy and weighted
    under = "mu" if copied or not setting.on_policy else "q"
    fields = tuple(_field(token, setting) for token in tokens)
    written = tuple(
        _at_each_token(loss, setting) or field for loss, field in zip(losses, fields, strict=True)
    )

    def same(of: Callable[[int], Quantity]) -> Answer:
        return decided(of(0), of(1), copied)

    value = same(lambda i: sum_over_t(losses[i], under))
    gradient = same(lambda i: _under(fields[i], under))
    per_sample = same(lambda i: _under(written[i], SAMPLE))
    return value, per_sample, gradient


def _loss(written: Written, setting: Setting) -> TokenLoss:
    try:
        loss = at_token(written.expression, setting)
        refuse_unless_moderate(to_ring(loss.expression), written, allowed={"length"})
        return loss
    except NotInRing as error:
        raise UsageError(
            f"compare: at level token only exponential polynomials are compared: {error}"
        ) from None


def _field(loss: TokenLoss, setting: Setting) -> Quantity:
    start = field_of(loss, setting).start
    if start.context.given:
        raise UsageError(NOT_COMPARED)
    return Quantity(start.start, dict(start.context.functions), start.labels)


def _at_each_token(loss: Any, setting: Setting) -> Quantity | None:
    """The gradient of a token loss, with what is the same at each token left at each."""
    return token_gradient(loss, SAMPLE) if setting.use == "loss" else None


def _under(field: Quantity, measure: str) -> Quantity:
    """The same sum over t under another measure, or at one sequence."""
    terms = ((c, tuple(_moved(atom, measure) for atom in atoms)) for c, atoms in field.side.terms)
    return replace(field, side=Side.of(*terms))


def _moved(atom: Any, measure: str) -> Any:
    if not isinstance(atom, Indexed | IndexedGradient | ExpectedGradient):
        raise TypeError(f"a sum over t expected, got {type(atom).__name__}")
    return replace(atom, measure=measure)
