"""explain for exact means times what is drawn, at each token: L_t(y, F) with F_i = full(x_i).  Untrusted.

    grad L_t = (grad L_t)(y, F held) + sum_i dL_t/dF_i full((x_i + dx_i/dlog q) s)

No loss of one token drawn has this expected gradient: what multiplies F is drawn beside it.  If tokens come
from mu and nothing is detached, sum_t L_t is a function of theta at each sequence, and mu does not move:
E_mu[sum_t grad L_t] = grad E_mu[sum_t L_t].  Whether there is an objective is open otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy
from sympy import S

from klsym.engine.fields.field import collect_score_coefficients
from klsym.engine.fields.position_sums import simplify_sum
from klsym.engine.fields.slot_loss import CRITIC, build_slot_loss
from klsym.engine.options.settings import Setting
from klsym.engine.outside.as_typed import build_mean_formula, build_slope, show_mean, substitute_policy
from klsym.engine.outside.vocabulary_means import RANDOM
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.sequence_quantities import token_gradient
from klsym.engine.regions.in_steps import to_steps
from klsym.engine.verdicts.verdict import TargetReading, Verdict, build_open_verdict
from klsym.language.expressions import A, Slot, now, parameter, remove_sg, s, sg
from klsym.language.messages import Message
from klsym.language.sums import Before, OverVocabulary, Summed, Whole
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT


def is_product(written: Written, setting: Setting) -> bool:
    """Is it a loss of tokens in which full(..) stands outside of sums over tokens?"""
    within = any(of.has(OverVocabulary) for of in written.expression.atoms(Summed))
    return (setting.level, setting.use, within) == ("token", "loss", False)


def explain_products(written: Written, typed: Written, setting: Setting) -> Verdict:
    """Return the gradient at each token, and the objective if the sampler does not depend on theta.

    typed: the loss with the weights of its options.
    """
    loss, pushes = typed.expression, _build_gradient(typed.expression, setting)
    verdict = build_open_verdict(written, setting, Message("open-held-means"), pushes)
    verdict = verdict.revise(messages=(), remarks=verdict.messages, scores_named=(True, True))
    at_mu = Message("means-at-prefixes-of-mu")
    prefix_messages = () if setting.on_policy or loss.has(Before, Whole) else (at_mu,)
    outside = Message("outside-the-core", trust="sympy")
    if pushes == 0:
        messages = (outside, Message("vanishes", loss=written.text))
        return verdict.revise(gradient=TargetReading("zero"), trust="sympy", remarks=(), messages=messages)
    if setting.on_policy or loss.atoms(sg):
        return verdict.revise(messages=prefix_messages)
    return verdict.revise(
        gradient=TargetReading("separable"),
        trust="sympy",
        in_quantities=f"grad {show_mean(_write_at_now(loss), setting, TEXT)}",
        formula=build_mean_formula(_write_at_now(loss), setting),
        assumptions=(Message("exchange-mean", under="mu"),),
        remarks=(),
        messages=(outside, *prefix_messages),
    )


def _build_gradient(loss: Any, setting: Setting) -> Any:
    """Return the gradient at a token: its scores, and each exact mean with the scores of all words."""
    sums = sorted(loss.atoms(OverVocabulary), key=str)
    moving, still = (
        {exact_mean: _choose_free_parameter(loss, f"h{i}{end}") for i, exact_mean in enumerate(sums)}
        for end in ("", "s")
    )
    back = {name: exact_mean for table in (moving, still) for exact_mean, name in table.items()}
    opened = loss.replace(lambda e: isinstance(e, sg), lambda e: e.xreplace(still)).xreplace(moving)
    at_token = build_slot_loss(Written("", opened), replace(setting, credit=""))
    under = "q" if setting.on_policy else "mu"
    defined = at_token.defined
    start = derive(token_gradient(at_token.expression, under), on_policy=setting.on_policy, defined=defined)
    slots, total = collect_score_coefficients(start.differentiate()), S.Zero
    for slot, c in slots.items():
        total += _multiply_by_score(to_steps(c, defined, True), slot).xreplace(back)
    for exact_mean, name in moving.items():
        push, slope = remove_sg(sympy.diff(opened, name)), build_slope(exact_mean.args[0])
        push = substitute_policy(push) if setting.on_policy else push
        if slope.free_symbols & RANDOM:  # full(s) = 0
            total += _write_at_now(push).xreplace(back) * OverVocabulary(slope * s)
    return total


def _choose_free_parameter(loss: Any, name: str) -> Any:
    """Return a parameter that does not occur in the loss."""
    used_names = {x.name for x in loss.free_symbols}
    return parameter(next(x for i in range(1000) if (x := f"{name}{i or ''}") not in used_names))


def _multiply_by_score(c: Any, slot: str) -> Any:
    return c * (s if slot == "x" else Slot(slot)(s))


def _write_at_now(e: Any) -> Any:
    """Write bare names, which in an answer are of the whole sequence, in the slot `now`; A is such a name."""
    dummies = {full_mean: sympy.Dummy(real=True) for full_mean in e.atoms(OverVocabulary)}
    e = now(e.xreplace(dummies)).xreplace({now(x): value for x, value in (CRITIC | {A: A}).items()})
    e = e.replace(lambda x: isinstance(x, Summed), lambda x: simplify_sum(x) if x.args[0] != 0 else S.Zero)
    return e.xreplace({dummy: full_mean for full_mean, dummy in dummies.items()})
