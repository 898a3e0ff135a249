"""Warnings: what an engineer should know before using a loss.  Each is a condition and a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klsym.engine.targets import recognise
from klsym.normal_form import ExpPoly

if TYPE_CHECKING:
    from klsym.engine.verdict import Verdict

Warn = Callable[["Verdict", ExpPoly, ExpPoly, ExpPoly], str]


def warnings_for(verdict: Verdict, loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly) -> tuple[str, ...]:
    """All warnings that apply; `per_sample` and `c` are the coefficients of s before and after the mean."""
    found = (check(verdict, loss, per_sample, c) for check in CHECKS)
    return tuple(text for text in found if text)


def zero_gradient(verdict: Verdict, loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly) -> str:
    if verdict.target != "zero":
        return ""
    if not per_sample:
        return f"{verdict.loss} has zero gradient at every sample: it does nothing"
    kind = "a" if verdict.setting.use == "reward" else f"an {verdict.setting.sampling}"
    return f"{verdict.loss} as {kind} {verdict.setting.use} has zero expected gradient: it only adds noise"


def value_is_not_gradient(verdict: Verdict, loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly) -> str:
    if verdict.unbiased_for("reverse-kl") and verdict.target != "reverse-kl":
        what = {"zero": "is zero", "forward-kl": "is that of KL(p||q)"}.get(
            verdict.target, "is not that of KL(q||p)"
        )
        return f"the value is unbiased for KL(q||p), but the expected gradient {what}"
    return ""


def mean_zero_noise(verdict: Verdict, loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly) -> str:
    back = recognise(per_sample).constant if verdict.setting.on_policy else _weight_multiple(per_sample)
    if verdict.target == "zero" or not back:
        return ""
    shown = "s" if verdict.setting.on_policy else "rho*s"
    return f"a multiple of {shown} has mean zero: it changes no expectation, only the variance"


def _weight_multiple(per_sample: ExpPoly) -> ExpPoly:
    return recognise(per_sample * (-ExpPoly.variable("w")).exp()).constant


def missing_weight(verdict: Verdict, loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly) -> str:
    setting = verdict.setting
    if setting.on_policy or not per_sample or {"w", "sg(w)"} & loss.names():
        return ""
    fix = "multiply by rho" if setting.use == "reward" else "use rho*k3 or sg(rho)*k2"
    return f"no importance weight: the samples come from mu, not from q ({fix} to target grad KL(q||p))"


def literal_weight(verdict: Verdict, loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly) -> str:
    if not verdict.setting.on_policy or verdict.setting.use == "reward" or "w" not in loss.names():
        return ""
    return (
        "on-policy rho has the value 1 but not the gradient 0: build it as "
        "exp(log_q - log_q.detach()); the literal 1 gives another target"
    )


def wrong_sign(verdict: Verdict, loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly) -> str:
    if verdict.setting.use == "reward":
        return ""
    names = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)"}
    found = [names[n] for n, v in verdict.gradient.multiples.items() if n in names and v.startswith("-")]
    return f"descending this loss increases {' and '.join(found)}" if found else ""


def heavy_tail(verdict: Verdict, loss: ExpPoly, per_sample: ExpPoly, c: ExpPoly) -> str:
    grows = any(value < 0 for _, e in c.terms for m, value in e if dict(m).get("k1"))
    return "r = p/q is unbounded where q << p: expect heavy tails far from the reference" if grows else ""


CHECKS: tuple[Warn, ...] = (
    zero_gradient, value_is_not_gradient, missing_weight, literal_weight, mean_zero_noise,
    wrong_sign, heavy_tail,
)  # fmt: skip
