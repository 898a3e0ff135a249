"""explain: from a loss to a verdict.  Untrusted; the kernel replays every theorem in the verdict.

>>> verdict = explain("rho*k3", sampling="off-policy")
>>> verdict.target, verdict.trust, verdict.coefficient
('reverse-kl', 'kernel', 'k1')
>>> explain("k3", level="token").target
'none'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from klsym.convert import in_core
from klsym.engine.explain_samples import explain_sample
from klsym.engine.explain_samples import refuse_unless_moderate as refuse_unless_moderate
from klsym.engine.explain_samples import used_names as used_names
from klsym.engine.explain_setting import (
    Aggregate,
    Batch,
    Credit,
    Level,
    Sampling,
    Setting,
    Use,
    Weights,
    checked_setting,
    documented,
)
from klsym.engine.verdict import Verdict
from klsym.errors import NotInRing, UsageError
from klsym.language import as_loss
from klsym.parser import parse
from klsym.render import losses
from klsym.render.losses import Written
from klsym.render.spelling import TEXT

PROVED = ("zero", "reverse-kl", "forward-kl", "combination", "f-divergence")


@documented
def explain(
    loss: object,
    sampling: Sampling = "on-policy",
    use: Use = "loss",
    level: Level = "sample",
    batch: Batch = "none",
    parameters: Iterable[str] = (),
    credit: Credit | None = None,
    weights: Weights | None = None,
    aggregate: Aggregate | None = None,
) -> Verdict:
    """Derive what a loss targets.

    loss: text in the loss grammar, or a SymPy expression in the atoms of `klsym.language`.
    parameters: names declared beside lam, beta, eps, alpha, n, T (for text).
    OPTIONS
    Raises UsageError for text that cannot be read, and for options that are unknown or without effect.
    """
    options = {
        "sampling": sampling, "use": use, "level": level, "batch": batch, "credit": credit,
        "weights": weights, "aggregate": aggregate,
    }  # fmt: skip
    return ask(loss, parameters, **options)


def ask(loss: object, parameters: Iterable[str] = (), **options: str | None) -> Verdict:
    """`explain`, with options that are handed on."""
    setting = checked_setting(**options)
    written = as_written(loss, parameters)
    verdict = explained(written, setting)
    return with_terms(verdict, written.expression, lambda e: explained(as_written(e, ()), setting))


def with_terms(verdict: Verdict, expression: Any, each: Callable[[Any], Verdict]) -> Verdict:
    """The verdict with what each term does, where the whole has no name that is proved."""
    if not expression.is_Add or (verdict.trust == "kernel" and verdict.target in PROVED):
        return verdict
    from klsym.engine.explain_terms import terms_of

    return replace(verdict, terms=terms_of(expression, each))


def explained(written: Written, setting: Setting) -> Verdict:
    """The verdict on a loss that is used so."""
    _refuse_taken_names(written, setting)
    try:
        return _explainer(setting)(written, setting)
    except NotInRing as error:
        if "division by zero" in str(error):
            raise UsageError(f"division by zero in {written.text!r}") from None
        if in_core(written.expression):
            raise UsageError(f"{written.text[:60]!r} is too large once multiplied out: {error}") from None
        if setting.level == "token" and setting.batch == "none":
            from klsym.engine.explain_outside_tokens import explain_outside_tokens

            return explain_outside_tokens(written, setting, lambda e: explained(as_written(e, ()), setting))
        _refuse_outside(written, setting)
        if setting.batch != "none":
            from klsym.engine.explain_outside_batches import explain_outside_batch

            return explain_outside_batch(written, setting, lambda e, use: explained(as_written(e, ()), use))
        from klsym.engine.explain_outside import explain_outside

        single = Setting(setting.sampling, setting.use)
        return explain_outside(written, setting, lambda e: explained(as_written(e, ()), single))


def _explainer(setting: Setting) -> Callable[[Written, Setting], Verdict]:
    """What is seldom needed is loaded only then."""
    if setting.level == "token":
        from klsym.engine.explain_tokens import explain_tokens

        return explain_tokens
    if setting.batch != "none":
        from klsym.engine.explain_batches import explain_batch

        return explain_batch
    return explain_sample


def _refuse_taken_names(written: Written, setting: Setting) -> None:
    """T is the random length of a sequence, and m stands for n - 1."""
    names = {symbol.name for symbol in written.expression.free_symbols}
    if setting.level != "sample" and "T" in names:
        raise UsageError(
            f"T in {written.text[:60]!r}: the length of a sequence is random; choose aggregate mean for 1/T,"
            " or declare another name for a constant"
        )
    if setting.batch == "leave-one-out" and "m" in names:
        raise UsageError(f"m in {written.text[:60]!r} stands for n - 1 here: choose another name")


def _refuse_outside(written: Written, setting: Setting) -> None:
    """Over the length of a sequence, losses outside the ring are not handled."""
    if setting.averaged and setting.level == "sequence":
        raise UsageError(
            f"{written.text[:60]!r}: with aggregate mean only exponential polynomials are handled"
            " (sums and products of log ratios, rewards and powers of r and rho)"
        )


def as_written(loss: Any, parameters: Iterable[str]) -> Written:
    """A loss with the text that stands for it, typed or printed."""
    if isinstance(loss, str):
        return Written(loss, parse(loss, parameters))
    expression = as_loss(loss)
    return Written(losses.show(expression, TEXT), expression)
