"""The verdict on a loss of sums over tokens, from that on its first order at each token.  Untrusted.

Both have the same gradient at every sample, and other values.  If mu draws the samples and nothing in the
loss is detached, then mu does not depend on theta, and the loss is its own objective:

    E_mu[grad L] = grad E_mu[L]
"""

from __future__ import annotations

from typing import Any

import sympy

from klsym.engine.options.settings import Setting
from klsym.engine.outside.as_typed import Explained, build_mean_formula
from klsym.engine.verdicts.verdict import Counterexample, ExpectedValue, TargetReading, Verdict
from klsym.language.expressions import log_mu, log_q, rho
from klsym.language.messages import Message
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT
from klsym.notation.tree import Gradient

Slopes = tuple[tuple[Any, Any], ...]
WEIGHT = (rho, log_mu)  # names of the sampler in an importance weight


def restore_typed_loss(
    verdict: Verdict, slopes: Slopes, typed: Written, asked: Setting, explained: Explained | None
) -> Verdict:
    """Return the verdict on the first order as one on the loss as typed.

    slopes: of the sums in the loss, with what is summed.  explained: explains a loss at a token; None if the
    loss is not its own objective.
    """
    trust = "sympy" if verdict.trust == "kernel" else verdict.trust
    verdict = verdict.revise(value=ExpectedValue(), trust=trust)
    if explained is None or verdict.target not in (None, "no-objective"):
        return verdict
    mean = build_mean_formula(typed.expression, asked)
    is_weighted = any(slope.has(*WEIGHT) for slope, _ in slopes)
    dropped = ("outside-the-core", *(["missing-weight"] * is_weighted))
    messages = (x for x in verdict.messages if x.code not in dropped)
    verdict = verdict.revise(
        gradient=TargetReading("own-mean"),
        trust="sympy",
        formula=mean,
        in_quantities=Gradient(mean),
        counterexample=Counterexample(),
        remarks=tuple(x for x in verdict.gradient.remarks if not x.code.startswith("open-")),
        assumptions=tuple(dict.fromkeys((*verdict.assumptions, Message("exchange-mean", under="mu")))),
        messages=(Message("outside-the-core", trust="sympy"), *messages),
    )
    if len(slopes) > 1 or not verdict.setting.is_per_token:
        return verdict
    [(slope, x)] = slopes
    return _write_slope(verdict, slope, x, explained)


def _write_slope(verdict: Verdict, slope: Any, x: Any, explained: Explained) -> Verdict:
    """Return the verdict with the slope as typed in the coefficients of scores, region by region.

    The slope is held and the same at each token: the coefficients are those of x, times the slope.
    """
    at_token = explained(Written(losses.show(x, TEXT), x), verdict.setting)
    if not at_token.gradient.score_cases:
        return verdict
    typed = slope.subs(log_q - log_mu, sympy.log(rho))
    return verdict.revise(
        score_cases=tuple((on, h * typed) for on, h in at_token.gradient.score_cases),
        canonical_cases=(),
        bias_cases=(),
        canonical_coefficient=None,
        inside_clamps=None,
        steps=(),
        theorems=(),
        assumptions=(*at_token.assumptions, Message("exchange-mean", under="mu")),
    )
