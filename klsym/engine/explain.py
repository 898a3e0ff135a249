"""explain: from a loss to a verdict.  Untrusted; the kernel replays every theorem in the verdict.

>>> verdict = explain("rho*k3", sampling="off-policy")
>>> verdict.target, verdict.trust, verdict.coefficient
('reverse-kl', 'kernel', 'k1')
>>> explain("k3", level="token").target
'none'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from klsym.convert import in_core
from klsym.engine.explain_batches import explain_batch
from klsym.engine.explain_outside import explain_outside
from klsym.engine.explain_samples import explain_sample
from klsym.engine.explain_samples import refuse_unless_moderate as refuse_unless_moderate
from klsym.engine.explain_samples import used_names as used_names
from klsym.engine.explain_setting import Setting
from klsym.engine.explain_setting import checked_setting as checked_setting
from klsym.engine.explain_tokens import explain_tokens
from klsym.engine.verdict import Verdict
from klsym.errors import NotInRing, UsageError
from klsym.language import as_loss
from klsym.parser import parse
from klsym.render import losses
from klsym.render.losses import Written
from klsym.render.spelling import TEXT


def explain(
    loss: Any,
    sampling: str = "on-policy",
    use: str = "loss",
    level: str = "sample",
    batch: str = "none",
    parameters: Iterable[str] = (),
    credit: str | None = None,
    weights: str | None = None,
    aggregate: str | None = None,
) -> Verdict:
    """Derive what a loss targets.

    loss: text in the loss grammar, or a SymPy expression in the atoms of `klsym.language`.
    sampling: "on-policy" (samples from q itself) or "off-policy" (from mu).
    use: "loss" (differentiated), or "reward" (detached; the loss is all that multiplies the score).
    level: "sample"; "token" (the loss of each token, summed); "sequence" (that of a whole sequence).
    batch: what is taken off the coefficient of the score: nothing, the "mean" over a batch of n samples,
        that over the others ("leave-one-out"); "std" also divides by the standard deviation.
    parameters: names declared beside lam, beta, eps, alpha, n, T (for text).
    credit: the rewards that a token's score meets: "to-go" (its own and later ones), "same-token", "total".
    weights: what rho is at a token: "token", "prefix" (the product up to it) or "sequence" (of them all).
    aggregate: "sum", or "mean" for 1/T in front, T the random length of a sequence.
    Raises UsageError for text that cannot be read, and for options that are unknown or without effect.
    """
    setting = checked_setting(sampling, use, level, batch, credit, weights, aggregate)
    written = as_written(loss, parameters)
    _refuse_taken_names(written, setting)
    try:
        return _explainer(setting)(written, setting)
    except NotInRing as error:
        if "division by zero" in str(error):
            raise UsageError(f"division by zero in {written.text!r}") from None
        if in_core(written.expression):
            raise UsageError(f"{written.text[:60]!r} is too large once multiplied out: {error}") from None
        _refuse_outside(written, setting)
        return explain_outside(written, setting, lambda e: explain(e, sampling, use))


def _explainer(setting: Setting) -> Callable[[Written, Setting], Verdict]:
    if setting.level == "token":
        return explain_tokens
    return explain_sample if setting.batch == "none" else explain_batch


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
    """Beyond one sample, losses outside the ring are not handled."""
    options = {
        "level token": setting.level == "token",
        f"batch {setting.batch}": setting.batch != "none",
        "aggregate mean": setting.averaged,
    }
    named = [name for name, holds in options.items() if holds]
    if named:
        raise UsageError(
            f"{written.text[:60]!r}: with {' and '.join(named)} only exponential polynomials are handled"
            " (sums and products of log ratios, rewards and powers of r and rho)"
        )


def as_written(loss: Any, parameters: Iterable[str]) -> Written:
    """A loss with the text that stands for it, typed or printed."""
    if isinstance(loss, str):
        return Written(loss, parse(loss, parameters))
    expression = as_loss(loss)
    return Written(losses.show(expression, TEXT), expression)
