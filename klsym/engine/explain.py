"""explain: from a loss to a verdict.  Untrusted; the kernel replays every theorem in the verdict.

>>> verdict = explain("rho*k3", sampling="off-policy")
>>> verdict.target, verdict.trust, verdict.coefficient
('reverse-kl', 'kernel', 'k1')
>>> explain("k3", level="token").target
'none'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from klsym.engine.answers.dispatch import as_written as as_written
from klsym.engine.answers.dispatch import explained as explained
from klsym.engine.answers.intended_target import intended_target
from klsym.engine.fields.slot_loss import names_slots
from klsym.engine.fields.slot_loss import refuse_unless_moderate as refuse_unless_moderate
from klsym.engine.options.settings import Setting, checked_setting
from klsym.engine.proof.shown_counterexample import used_names as used_names
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import UsageError
from klsym.notation.losses import Written

PROVED = ("zero", "reverse-kl", "forward-kl", "combination", "f-divergence")


def explain(loss: object, parameters: Iterable[str] = (), **options: str | None) -> Verdict:
    """Derive what a loss targets; loss, parameters and options are those of `klsym.explain`."""
    written = as_written(loss, parameters)
    setting = setting_of(written, options)
    verdict = with_terms(explained(written, setting), written.expression)
    if written.typed:
        verdict = replace(verdict, loss=written.typed, read_as=written.text, reading=written.notes)
    target = intended_target(verdict, written)
    if target is None:
        return verdict
    from klsym.engine.answers.suggestion import suggestion_for  # seldom needed

    return replace(verdict, instead=suggestion_for(verdict, written, target))


def setting_of(written: Written, options: Mapping[str, str | None]) -> Setting:
    """How a loss is used; one that says itself which tokens are summed has no credit."""
    sums = names_slots(written.expression)
    if sums and options.get("credit"):
        raise UsageError(
            f"credit: {written.text[:60]!r} says itself which tokens are summed; leave credit out"
        )
    setting = checked_setting(**options)
    return replace(setting, credit="") if sums else setting


def with_terms(verdict: Verdict, expression: Any) -> Verdict:
    """The verdict with what each term does, where the whole has no name that is proved."""
    if not expression.is_Add or (verdict.trust == "kernel" and verdict.target in PROVED):
        return verdict
    from klsym.engine.answers.term_analysis import analysed_terms

    return replace(verdict, terms=analysed_terms(expression, lambda e: _explained(e, verdict.setting)))


@lru_cache(maxsize=256)
def _explained(term: Any, setting: Setting) -> Verdict:
    """Losses that are asked for one after the other often share their terms."""
    return explained(as_written(term, ()), setting)
