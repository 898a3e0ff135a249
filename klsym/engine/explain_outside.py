"""The verdict on a loss outside the ring: SymPy differentiates, numbers and `simplify` recognise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from klsym.engine import outside
from klsym.engine.advice import facts_outside, warnings_for
from klsym.engine.piecewise import is_piecewise
from klsym.engine.verdict import Meaning, Setting, Step, Verdict
from klsym.engine.witness import models, shown_model
from klsym.errors import UsageError
from klsym.render import losses
from klsym.render.combination import combination_latex
from klsym.render.losses import Written
from klsym.render.spelling import LATEX, TEXT, Text, is_sum
from klsym.statements import Context


def explain_outside(written: Written, setting: Setting, meaning_of: Callable[[Any], Meaning]) -> Verdict:
    """The verdict; `meaning_of` explains the loss in which no clamp binds."""
    loss, on_policy = written.expression, setting.on_policy
    per_sample = outside.drop_sg(loss) if setting.use == "reward" else outside.gradient_coefficient(loss)
    per_sample = outside.at_policy(per_sample) if on_policy else per_sample
    c = outside.under_q(per_sample, on_policy)
    if not outside.has_values(c):
        raise UsageError(f"{written.text[:60]!r} has no value at any sample: a division by zero?")
    found, value = _findings(loss, c, setting)
    inside = outside.inside_clamps(loss)
    steps = _steps(written, setting, per_sample, c)
    verdict = Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        per_sample=losses.show(per_sample, TEXT),
        coefficient=losses.show(_tidy(c, found), TEXT),
        coefficient_latex=losses.show(_tidy(c, found), LATEX),
        gradient=_meaning(found),
        value=_meaning(value),
        value_constant=losses.show(value.constant, TEXT),
        trust=found.trust,
        hypotheses=_hypotheses(setting),
        steps=steps,
        witness=_witness(c, found.target, setting, steps[0][1]),
        inside_clamps=None if inside is None else meaning_of(inside),
    )
    return replace(verdict, warnings=warnings_for(verdict, facts_outside(loss, per_sample)))


def _findings(loss: Any, c: Any, setting: Setting) -> tuple[outside.Found, outside.Found]:
    """What the expected gradient and the expected value are."""
    if is_piecewise(loss):
        on_policy, use = setting.on_policy, setting.use
        found = outside.find_piecewise(loss, on_policy, use)
        return found, outside.find_piecewise(loss, on_policy, use, value=True)
    v = outside.under_q(outside.drop_sg(loss), setting.on_policy)
    return outside.find(c), outside.find(v, value=True)


def _meaning(found: outside.Found) -> Meaning:
    text, latex = (
        {name: losses.show(value, spell) for name, value in found.multiples.items()}
        for spell in (TEXT, LATEX)
    )
    return Meaning(found.target, text, combination_latex(latex))


def _tidy(c: Any, found: outside.Found) -> Any:
    """Where the target is named, the coefficient without its constant."""
    if found.target in ("f-divergence", "separable"):
        return c
    parts = {"reverse-kl": outside.BASIS[0], "forward-kl": outside.BASIS[1], "reward": 1}
    return sum((value * parts[name] for name, value in found.multiples.items()), start=outside.NOTHING)


def _steps(written: Written, setting: Setting, per_sample: Any, c: Any) -> tuple[Step, ...]:
    under = "q" if setting.on_policy else "mu"

    def scored(a: Any, measure: str, spell: Text) -> str:
        shown = losses.show(a, spell)
        inner = spell.bracket(shown) if is_sum(shown) else shown
        return spell.expectation(measure, inner + spell.product_sign + spell.score)

    def first(spell: Text) -> str:
        shown = losses.show(written, spell)
        if setting.use == "loss":
            return spell.expectation(under, spell.gradient_of(shown, spell.is_single(shown)))
        return spell.expectation(under, spell.call("sg", shown) + spell.product_sign + spell.score)

    steps = [("", first(TEXT), first(LATEX))]
    first_rule = "chain rule" if setting.use == "loss" else "stop-gradient"
    for rule, measure, a in ((first_rule, under, per_sample), ("change of measure", "q", c)):
        text, latex = scored(a, measure, TEXT), scored(a, measure, LATEX)
        if steps[-1][1] != text:
            steps.append((rule, text, latex))
    return tuple(steps)


def _hypotheses(setting: Setting) -> tuple[str, ...]:
    differentiable = ("the loss is differentiable at every sample (no tie at a bound)",)
    support = ("mu << q: wherever mu > 0, also q > 0",)
    return (
        *(differentiable if setting.use == "loss" else ()),
        "grad and E_q may be exchanged (dominated derivative near theta)",
        *(() if setting.on_policy else support),
    )


def _witness(c: Any, target: str, setting: Setting, left: str) -> dict[str, Any] | None:
    if target in ("reverse-kl", "combination"):
        return None

    def candidates(names: tuple[str, ...]) -> Any:
        return models(Context(parameters=names, on_policy=setting.on_policy))

    model = outside.witness(c, candidates)
    if model is None:
        return None
    used = {str(x) for x in c.free_symbols} | (set() if setting.on_policy else {"w"})
    return shown_model(f"{left} = grad KL(q||p)", model, model["left"], model["right"], used)
