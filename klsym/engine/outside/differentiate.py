"""Losses that SymPy differentiates: those with sums beyond the theorems, and exact means.  Untrusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from klsym.engine.outside import sympy_counterexamples
from klsym.engine.outside.numbers import has_values
from klsym.engine.proof.counterexamples import completed, models, shown_model
from klsym.engine.regions import subgradients
from klsym.engine.regions.piecewise import inside_clamps
from klsym.engine.verdicts.verdict import Setting, Verdict
from klsym.errors import UsageError
from klsym.language import clip, k1, unfold
from klsym.messages import Message
from klsym.notation.losses import Written
from klsym.statements import Context as Plain
from klsym.unfolding import plain_model

SHORT_NAMES = {"log_old": "o", "length": "T"}


@dataclass(frozen=True)
class Differentiated:
    """A loss as typed, and without the branches that no sample takes; h in grad L = h s, or the reward.

    bounds: parameters that are positive, so that bounds do not cross.
    """

    typed: Any
    loss: Any
    h: Any
    bounds: dict[Any, Any]


def presupposed(verdict: Verdict, loss: Any) -> tuple[Message, ...]:
    """That grad passes into the mean of the objective: under mu into that of the loss itself."""
    if not verdict.shown:
        return (Message("exchange-mean", under="q"),)
    return (
        Message("exchange-mean", under="mu"),
        *((Message("no-outcome-at-kinks"),) if has_kinks(loss) else ()),
    )


def differentiated(written: Written, setting: Setting) -> Differentiated:
    """By SymPy; raises UsageError for what has no value."""
    bounds = subgradients.assumed_positive(written.expression)
    typed = written.expression.xreplace(bounds)
    loss = subgradients.chosen(typed, setting.on_policy)
    if setting.use == "reward":
        h = subgradients.settled(subgradients.at_sampling(loss, setting.on_policy))
    else:
        h = subgradients.gradient_coefficient(loss, setting.on_policy)
    if not has_values(h):
        raise UsageError(f"{written.text[:60]!r} has no value at any sample: a division by zero?")
    return Differentiated(typed, loss, h, bounds)


def unclamped(typed: Any, loss: Any) -> Any | None:
    """The loss where no bound binds; None if there is no bound that binds at some samples only."""
    free = inside_clamps(loss)
    plain = inside_clamps(typed)
    return plain if free is None and plain == loss else free


def has_kinks(loss: Any) -> bool:
    return bool(unfold(loss).has(clip, sympy.Abs, sympy.Min, sympy.Max))  # sqrt(k2) is abs(k1)/sqrt(2)


def slopes_taken(setting: Setting, tied: set[str], part: Differentiated) -> tuple[Message, ...]:
    """Slopes at ties, if the loss has any; bounds that do not cross."""
    kinks = (Message("slope-at-kinks"),) if has_kinks(part.loss) else ()
    found = tuple(Message("slope-at-tie", of=name) for name in sorted(tied)) or kinks
    if subgradients.touched(part.typed, setting.on_policy):
        found += (Message("no-sample-at-touch"),)
    bounds = (Message("bounds-in-order", of=parameter) for parameter in part.bounds)
    return (*(found if setting.use == "loss" else ()), *bounds)


def kink_messages(loss: Any, setting: Setting, tied: set[str]) -> tuple[Message, ...]:
    """Where real code may differ from what is derived here."""
    found = [Message("tie", of=name) for name in sorted(tied)]
    if setting.use == "loss" and subgradients.rests_on_nesting(loss, setting.on_policy):
        found.append(Message("order-of-pairs"))
    if any(subgradients.may_cross(e) for e in loss.atoms(clip)):
        found.append(Message("bounds-may-cross"))
    return tuple(found)


def witness_against_kl(c: Any, setting: Setting, left: str) -> dict[str, Any] | None:
    """A model in which the expected gradient is not grad KL(q||p)."""

    def candidates(names: tuple[str, ...], met: list[tuple[str, Any]]) -> Any:
        tried = models(Plain(parameters=names), setting.on_policy, met)
        return (_with_lengths(plain_model(completed(model, {"o", "M"}))) for model in tried)

    model = sympy_counterexamples.witness(c, k1, candidates)
    if model is None:
        return None
    used = {SHORT_NAMES.get(str(x), str(x)) for x in c.free_symbols} | (set() if setting.on_policy else {"w"})
    model["rewards"]["T"] = model["rewards"].pop("length")
    return shown_model(f"{left} = grad KL(q||p)", model, model["left"], model["right"], used)


def _with_lengths(model: dict[str, Any]) -> dict[str, Any]:
    """Outcomes that are sequences of 1, 2, .. tokens."""
    lengths = [str(x + 1) for x in range(len(model["q"]))]
    return model | {"rewards": {**model["rewards"], "length": lengths}}
