"""The verdict on centred batches of losses outside the ring: h in grad L = h s, by cases, less a mean.

    E_m[mean_i (H_i - mean H) s_i] = (1 - 1/n) (E_m[H s] - E_m[H] E_m[s])        for every H, by the kernel

and without 1 - 1/n where a sample is left out of its mean.  On-policy E_q[s] = 0, so that it is the verdict
on one sample.  Off-policy E_mu[s] = grad E_mu[log q], and E_mu[h] E_mu[s] has the curl of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import sympy

from klsym.convert import to_ring
from klsym.engine.fields.field import BATCH_SIZE
from klsym.engine.fields.slot_loss import m, n
from klsym.engine.options.expand_options import expansion
from klsym.engine.options.settings import Setting
from klsym.engine.outside import sympy_target
from klsym.engine.outside.numeric_curl import ROWS, twisted
from klsym.engine.outside.position_sums import LossWithSums, PositionSum
from klsym.engine.outside.samples import differentiated
from klsym.engine.proof import supports
from klsym.engine.proof.derivation import Proof, derive
from klsym.engine.proof.quantities import Quantity, expectation
from klsym.engine.proof.sequence_quantities import mean_over_i
from klsym.engine.targets.ring_notes import MEAN, READINGS
from klsym.engine.verdicts.verdict import Chain, TargetReading, Verdict
from klsym.engine.verdicts.warnings import batch_warnings, facts_outside
from klsym.errors import UsageError
from klsym.language import (
    REWARDS,
    H,
    k1,
    length,
    log_q,
    others,
    own,
    parameter,
    r,
    rho,
    s,
    unfold,
)
from klsym.messages import Message
from klsym.notation import losses
from klsym.notation.cases import lines
from klsym.notation.losses import Written
from klsym.notation.spelling import LATEX
from klsym.notation.values import LazyFormula, less_mean, less_others

STD = "batch std takes exponential polynomials alone: choose leave-one-out or mean"

REMARKS = {
    "none": (Message("means-move-apart", on="a model of three outcomes"),),
    None: (Message("open-covariance"),),
}


def explain_outside_batch(
    written: Written, setting: Setting, explained: Callable[[Any, Setting], Verdict]
) -> Verdict:
    """The verdict; `explained` explains the loss at one sample."""
    if setting.batch == "std":
        raise UsageError(f"{written.text[:60]!r}: {STD}")
    single = explained(written.expression, replace(setting, batch="none"))
    over = Written(written.text, written.expression / length) if setting.averaged else written
    part = differentiated(over, setting)
    scale = 1 - 1 / n if setting.batch == "mean" else sympy.S.One
    gradient, c = _centred_gradient(single, part.h, scale, setting)
    proof, pushed = _identity(setting)
    told = single.assumptions if setting.on_policy else _with_supports(single.assumptions, part.h)
    single = single if setting.on_policy and scale == 1 else _without_objective(single)
    verdict = replace(
        single,
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=pushed,
        per_sample_cases=(),
        bias_cases=(),
        c=c,
        coefficient_cases=tuple(
            (on, sympy.expand(_centred(x, scale, setting))) for on, x in single.coefficient_cases
        ),
        gradient=gradient,
        assumptions=(*_readings(single, setting), *dict.fromkeys((*told, *proof.assumptions))),
        steps=Chain(proof),
        proofs=(proof,),
        model=None,
        inside_clamps=single.inside_clamps if setting.on_policy and scale == 1 else None,
        remarks=REMARKS.get(gradient.target, ()),
        expansion=expansion(written, setting, losses.tree_of(part.h)),
    )
    return replace(verdict, messages=batch_warnings(verdict, facts_outside(part.loss, part.h)))


def _centred(c: Any, scale: Any, setting: Setting) -> Any:
    """The coefficient under q less its mean, times what centring leaves of it."""
    return scale * (c - (0 if setting.on_policy else parameter(MEAN) / rho))


def _centred_gradient(single: Verdict, h: Any, scale: Any, setting: Setting) -> tuple[TargetReading, Any]:
    """The target of the centred loss, and the coefficient of its score under q."""
    target = single.target if setting.on_policy else _off_policy(h)
    if target == "zero":
        return TargetReading("zero"), sympy.S.Zero
    if setting.on_policy and target not in (None, *sympy_target.WITHOUT_PARTS):
        parts = {name: scale * value for name, value in single.gradient.parts.items()}
        return TargetReading(target, parts), scale * named_part(single.gradient.parts)
    c = _centred(sympy_target.under_q(h, setting.on_policy), scale, setting)
    return TargetReading(target, {}, None if target is None else c), c


def _without_objective(single: Verdict) -> Verdict:
    """What one sample descends is not what a centred batch does, nor is it 1 - 1/n times that."""
    return replace(single, shown="", objective_latex=None, generated=None, implied=None)


def _with_supports(told: Iterable[Message], h: Any) -> tuple[Message, ...]:
    """The assumptions on one sample, and what the mean of h that is taken off asks beside h."""
    found = supports.in_order((*supports.change_of_measure(h), *supports.change_of_measure(sympy.S.One)))
    return (*(message for message in told if message not in found), *found)


def named_part(parts: Any) -> Any:
    """The coefficient that a combination names, up to a constant."""
    of = {"reverse-kl": k1, "forward-kl": -r, "reward": 1}
    return sum((value * of[name] for name, value in parts.items()), start=sympy.S.Zero)


def _identity(setting: Setting) -> tuple[Proof, LazyFormula]:
    """What centring does to any H, and the centred H."""
    under, scored = ("q", expectation(H * s, "q")) if setting.on_policy else ("mu", _covariance())
    if setting.batch == "mean":
        left, right = own(H) - (own(H) + others(H)) / n, scored * (1 - 1 / n)
        start = derive(mean_over_i(left * own(s), under))
        proof = start.equals(right) if setting.on_policy else start.equals(right, evaluate=True)
        return proof, less_mean(to_ring(own(H)), to_ring(others(H)))
    start = derive(mean_over_i((own(H) - others(H) / m) * own(s), under), premises=BATCH_SIZE)
    return start.equals(scored, using=[(0, None)]), less_others(to_ring(own(H)), to_ring(others(H)))


def _covariance() -> Quantity:
    return expectation(H * s, "mu") - expectation(H, "mu") * expectation(s, "mu")


def _readings(single: Verdict, setting: Setting) -> tuple[Message, ...]:
    """What H stands for, by cases where it has any."""
    by_cases = "; ".join(" ".join(line.split()) for line in lines(single.per_sample_cases) if line)
    given = Message("given", place="sample", rows=(("H", by_cases or single.per_sample),))
    mean = () if setting.on_policy else (Message("mean-h", of="E_mu[H]"),)
    return READINGS[setting.batch], given, *mean


# ---------------------------------------------------------------------------- off-policy
def _off_policy(h: Any) -> str | None:
    """Is E_mu[(h_self - h_other) s_self] a gradient?

    It is for an h that does not depend on theta; otherwise its curl decides.
    """
    if not unfold(h).has(log_q):
        return "separable" if h.has(*ROWS, *REWARDS, length) else "zero"
    mean = sympy.Dummy(real=True)
    at = LossWithSums(h, (PositionSum(mean, ("others",), h, None, False, None, None),), Setting("off-policy"))
    return "none" if twisted({"self": h - mean}, at, "") else None
