"""The KL that a loss is likely to mean, where it descends none.  Untrusted.

>>> from klsym.engine.answers.dispatch import as_written, explain_written
>>> from klsym.engine.verdicts.verdict import Setting
>>> wrong, right = as_written("k3", ()), as_written("k2", ())
>>> [guess_intended_target(explain_written(loss, Setting()), loss) for loss in (wrong, right)]
['reverse-kl', None]
"""

from __future__ import annotations

from klsym.engine.fields.slot_loss import has_batch_sum, has_token_sum
from klsym.engine.verdicts.verdict import Verdict
from klsym.language.expressions import A, M, R, Weight, log_mu, log_p, parameter
from klsym.notation.losses import Written


def guess_intended_target(verdict: Verdict, written: Written) -> str | None:
    """Return the KL that a wrong loss is likely to mean: the one that its value estimates, or the reverse.

    None for a loss that is right, that mentions no other policy, or that names what is summed.
    """
    if has_token_sum(written.expression) or has_batch_sum(written.expression):  # said on purpose
        return None
    if verdict.setting.centring is not None and not verdict.setting.centring.keeps_gradient:
        return None
    names = written.expression.replace(lambda e: isinstance(e, Weight), lambda e: parameter("weight"))
    if written.expression.has(M):  # masked on purpose
        return None
    if not written.expression.has(log_p):
        compared = names.has(log_mu) and not names.has(R, A)
        return "sampler" if compared and not verdict.setting.on_policy else None
    parts = set(verdict.gradient.multiples) if not verdict.gradient.rest else {"rest"}
    if parts and parts <= {"reward", "reverse-kl"}:
        return None
    values = set(verdict.value.multiples)
    forward = "forward-kl" in values and "reverse-kl" not in values
    if verdict.target == "forward-kl" and "reverse-kl" not in values:
        return None
    return "forward-kl" if forward else "reverse-kl"
