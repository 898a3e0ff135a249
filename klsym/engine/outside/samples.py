"""The verdict on a loss outside the ring: SymPy differentiates, numbers and `simplify` recognise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import sympy

from klsym.convert import canonical
from klsym.engine.divergences.f_divergence_piecewise import generated_pieces
from klsym.engine.divergences.f_divergence_smooth import generated_outside, must_not_vanish
from klsym.engine.divergences.shape_messages import generated_messages
from klsym.engine.outside import sympy_counterexamples, sympy_target
from klsym.engine.proof import supports
from klsym.engine.proof.counterexamples import completed, models, shown_model
from klsym.engine.regions import subgradients
from klsym.engine.regions.case_split import cases
from klsym.engine.regions.piecewise import DENSITIES, inside_clamps, is_piecewise
from klsym.engine.verdicts.verdict import Cases, ChainStep, Search, Setting, TargetReading, Verdict
from klsym.engine.verdicts.warnings import facts_outside, warnings_for
from klsym.errors import UsageError
from klsym.language import clip, k1, log_mu, log_old, log_p, log_q, rho, sg, unfold
from klsym.messages import Message
from klsym.notation import losses
from klsym.notation.cases import latex as in_cases
from klsym.notation.losses import Written
from klsym.notation.ratios import in_r
from klsym.notation.spelling import LATEX, TEXT, Text
from klsym.notation.tree import Call, Formula, Gradient, Mean, Name, Words, product, quotient
from klsym.statements import Context as Plain
from klsym.unfolding import plain_model

SHORT_NAMES = {"log_old": "o", "length": "T"}


def explain_outside(written: Written, setting: Setting, explained: Callable[[Any], Verdict]) -> Verdict:
    """The verdict; `explained` explains the loss in which no clamp binds."""
    part, on_policy = differentiated(written, setting), setting.on_policy
    typed, loss, per_sample = part.typed, part.loss, part.h
    c = sympy_target.under_q(per_sample, on_policy)
    found = found_target(c)
    value, constant = _value(loss, setting)
    inside = unclamped(typed, loss)
    tied = subgradients.conventions(loss, on_policy) if setting.use == "loss" else set()
    named = _tidy(c, found)
    told = tuple((case.conditions, case.coefficient) for case in cases(per_sample))
    pieces = tuple((on, sympy.expand(sympy_target.under_q(value, on_policy))) for on, value in told)
    steps = _steps(written, setting, per_sample, c, (told, pieces))
    verdict = Verdict(
        loss=written.text,
        loss_latex=losses.show(written, LATEX),
        setting=setting,
        h=per_sample,
        c=named,
        per_sample_cases=told,
        coefficient_cases=pieces if is_piecewise(named) else (),
        gradient=_meaning(found, c),
        value=value,
        constant=constant,
        trust=found.trust,
        assumptions=(),
        steps=steps,
        model=witness_against_kl(c, found, setting, steps[0][1]),
        inside_clamps=None if inside is None else explained(inside).gradient,
        bias_cases=bias(told, inside, setting),
    )
    messages = warnings_for(verdict, facts_outside(loss, per_sample))
    messages += kink_messages(typed, setting, tied) + undefined(loss, per_sample)
    verdict = replace(verdict, messages=messages)
    verdict = _with_objective(_with_shape(verdict, c), written, loss)
    assumed = (*slopes_taken(setting, tied, part), *presupposed(verdict, loss))
    brought = supports_of(setting, per_sample, found.multiples)
    return replace(verdict, assumptions=(*assumed, *brought, *verdict.assumptions))


def _value(loss: Any, setting: Setting) -> tuple[TargetReading, Any]:
    """E_m[L]: its named parts, and the constant beside them."""
    v = sympy_target.under_q(subgradients.at_sampling(loss, on_policy=False), setting.on_policy)
    found = found_target(v, value=True)
    constant = _constant(found, v)
    return replace(_meaning(found, v - constant), assumed=Search(value_supports, setting, v, found)), constant


def _with_objective(verdict: Verdict, written: Written, loss: Any) -> Verdict:
    """grad E_mu[L] = E_mu[grad L], where nothing in L is held constant: mu does not move with theta."""
    setting = verdict.setting
    attached = setting.use == "loss" and not loss.has(sg)
    if verdict.target != "separable" or setting.on_policy or not attached:
        return verdict
    shown, latex = (spell(Mean("mu", losses.tree_of(written.expression))) for spell in (TEXT, LATEX))
    return replace(verdict, shown=f"grad {shown}", objective_latex=latex)


def presupposed(verdict: Verdict, loss: Any) -> tuple[Message, ...]:
    """That grad passes into the mean of the objective: under mu into that of the loss itself."""
    if not verdict.shown:
        return (Message("exchange-mean", under="q"),)
    return (
        Message("exchange-mean", under="mu"),
        *((Message("no-outcome-at-kinks"),) if has_kinks(loss) else ()),
    )


def _with_shape(verdict: Verdict, c: Any) -> Verdict:
    """The verdict, with f of what c(r) descends and where it is convex, as far as SymPy finds them."""
    find = generated_pieces if is_piecewise(c) else generated_outside
    of_r = find(c) if verdict.target == "f-divergence" else None
    if of_r is None:
        return verdict
    messages = (*verdict.messages, *generated_messages(of_r))
    if of_r.f is None:
        return replace(verdict, generated=of_r, messages=messages)
    return replace(
        verdict,
        generated=of_r,
        objective_latex=LATEX(Mean("q", in_r(of_r.f))),
        assumptions=(*verdict.assumptions, *must_not_vanish(of_r.f)),
        messages=messages,
    )


@dataclass(frozen=True)
class Differentiated:
    """A loss as typed, and without the branches that no sample takes; h in grad L = h s, or the reward.

    bounds: parameters that are positive, so that bounds do not cross.
    """

    typed: Any
    loss: Any
    h: Any
    bounds: dict[Any, Any]


def differentiated(written: Written, setting: Setting) -> Differentiated:
    """By SymPy; raises UsageError for what has no value."""
    bounds = subgradients.assumed_positive(written.expression)
    typed = written.expression.xreplace(bounds)
    loss = subgradients.chosen(typed, setting.on_policy)
    if setting.use == "reward":
        h = subgradients.settled(subgradients.at_sampling(loss, setting.on_policy))
    else:
        h = subgradients.gradient_coefficient(loss, setting.on_policy)
    if not sympy_target.has_values(h):
        raise UsageError(f"{written.text[:60]!r} has no value at any sample: a division by zero?")
    return Differentiated(typed, loss, h, bounds)


def bias(rows: Cases, inside: Any, setting: Setting) -> Cases:
    """What bounds change: h less its value where none binds, in the regions where the two differ."""
    if inside is None or not rows:
        return ()
    sampled = subgradients.settled(subgradients.at_sampling(inside, setting.on_policy))
    free = (
        sampled if setting.use == "reward" else subgradients.gradient_coefficient(inside, setting.on_policy)
    )
    gaps = tuple((on, canonical(h - free, sympy.expand)) for on, h in rows)
    elsewhere = any(gap != 0 for on, gap in gaps if not on)  # then "otherwise" needs all the other cases
    return (
        tuple((on, gap) for on, gap in gaps if gap != 0 or elsewhere) if any(g != 0 for _, g in gaps) else ()
    )


def undefined(loss: Any, per_sample: Any) -> tuple[Message, ...]:
    """Is the loss, or its gradient, 0/0 where q = p = mu = old?"""
    equal = {log_p: log_q, log_mu: log_q, log_old: log_q}
    for name, e in (("loss", loss), ("gradient", per_sample)):
        if unfold(subgradients.at_sampling(e, on_policy=False)).xreplace(equal).has(sympy.nan, sympy.zoo):
            return (Message("undefined-at-start", what=name),)
    return ()


def unclamped(typed: Any, loss: Any) -> Any | None:
    """The loss where no bound binds; None if there is no bound that binds at some samples only."""
    free = inside_clamps(loss)
    plain = inside_clamps(typed)
    return plain if free is None and plain == loss else free


@lru_cache(maxsize=256)
def found_target(c: Any, value: bool = False) -> sympy_target.SympyTarget:
    """What an expected gradient or an expected value is."""
    return sympy_target.find_piecewise(c, value) if is_piecewise(c) else sympy_target.find(c, value)


def _meaning(found: sympy_target.SympyTarget, c: Any) -> TargetReading:
    """Beside what has no name, what is left of c."""
    reward = found.multiples.get("reward", sympy_target.ZERO_PART)
    unnamed = found.target in sympy_target.WITHOUT_PARTS
    return TargetReading(found.target, found.multiples, (c - reward if reward else c) if unnamed else None)


def _constant(found: sympy_target.SympyTarget, v: Any) -> Any:
    """What stands beside the named parts; without a name, the terms of v that are free of the sample."""
    if found.target not in sympy_target.WITHOUT_PARTS:
        return found.constant
    fixed, _ = v.as_independent(*DENSITIES, *sympy_target.GIVEN, as_Add=True)
    return fixed


def _tidy(c: Any, found: sympy_target.SympyTarget) -> Any:
    """Where the target is named, the coefficient without its constant."""
    if found.target is None or found.target in sympy_target.WITHOUT_PARTS:
        return c
    parts = {"reverse-kl": sympy_target.BASIS[0], "forward-kl": sympy_target.BASIS[1], "reward": 1}
    return sum((value * parts[name] for name, value in found.multiples.items()), start=sympy_target.ZERO_PART)


def _steps(
    written: Written, setting: Setting, per_sample: Any, c: Any, pieces: tuple[Any, Any]
) -> tuple[ChainStep, ...]:
    """pieces: the cases of both; in text a coefficient by cases is h, or c under q, and stands above."""
    under = "q" if setting.on_policy else "mu"
    by_cases = dict(zip((per_sample, c), pieces, strict=True)) if pieces[0] and is_piecewise(c) else {}

    def scored(a: Formula, measure: str, spell: Text) -> str:
        return spell(Mean(measure, product(a, Name("s"))))

    def coefficient(a: Any, measure: str, spell: Text) -> Formula:
        if a in by_cases:
            return Words("c" if measure == "q" else "h", in_cases(by_cases[a]))
        return losses.tree_of(a, spell.positions)

    def first(spell: Text) -> str:
        loss = losses.tree_of(written, spell.positions)
        loss = quotient(loss, Name("T")) if setting.averaged else loss
        if setting.use == "loss":
            return spell(Mean(under, Gradient(loss)))
        return scored(Call("sg", (loss,)), under, spell)

    steps = [("", first(TEXT), first(LATEX))]
    first_rule = "chain rule" if setting.use == "loss" else "stop-gradient"
    for rule, measure, a in ((first_rule, under, per_sample), ("change of measure", "q", c)):
        text, latex = (scored(coefficient(a, measure, spell), measure, spell) for spell in (TEXT, LATEX))
        if steps[-1][1] != text:
            steps.append((rule, text, latex))
    return tuple(steps)


def value_supports(setting: Setting, v: Any, found: sympy_target.SympyTarget) -> tuple[Message, ...]:
    """What E_mu[L] = E_q[v] needs off-policy, ratios of mean 1 in v, and the divergences that are named."""
    brought = () if setting.on_policy else supports.change_of_measure(v * rho, scored=False)
    return supports.in_order((*brought, *supports.ratios(v), *supports.of_named_kl(found.multiples)))


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


def supports_of(setting: Setting, h: Any, names: Iterable[str]) -> tuple[Message, ...]:
    """What E_mu[h s] = E_q[h/rho s] needs off-policy, and the divergences that are named."""
    found = () if setting.on_policy else supports.change_of_measure(h)
    return supports.in_order((*found, *supports.of_named_kl(names)))


def kink_messages(loss: Any, setting: Setting, tied: set[str]) -> tuple[Message, ...]:
    """Where real code may differ from what is derived here."""
    found = [Message("tie", of=name) for name in sorted(tied)]
    if setting.use == "loss" and subgradients.rests_on_nesting(loss, setting.on_policy):
        found.append(Message("order-of-pairs"))
    if any(subgradients.may_cross(e) for e in loss.atoms(clip)):
        found.append(Message("bounds-may-cross"))
    return tuple(found)


def witness_against_kl(
    c: Any, found: sympy_target.SympyTarget, setting: Setting, left: str
) -> dict[str, Any] | None:
    """A model in which the expected gradient is not grad KL(q||p), beside the policy gradient of rewards."""
    if found.target == "reverse-kl" or (
        found.target == "combination" and "forward-kl" not in found.multiples
    ):
        return None

    def candidates(names: tuple[str, ...], met: list[tuple[str, Any]]) -> Any:
        tried = models(Plain(parameters=names), setting.on_policy, met)
        return (_with_lengths(plain_model(completed(model, {"o", "M"}))) for model in tried)

    reward = found.multiples.get("reward", sympy_target.ZERO_PART)
    model = sympy_counterexamples.witness(c, k1 + reward, candidates)
    if model is None:
        return None
    policy = TEXT(Gradient(Mean("q", losses.tree_of(reward))))
    right = f"{policy} + grad KL(q||p)" if reward else "grad KL(q||p)"
    used = {SHORT_NAMES.get(str(x), str(x)) for x in c.free_symbols} | (set() if setting.on_policy else {"w"})
    model["rewards"]["T"] = model["rewards"].pop("length")
    return shown_model(f"{left} = {right}", model, model["left"], model["right"], used)


def _with_lengths(model: dict[str, Any]) -> dict[str, Any]:
    """Outcomes that are sequences of 1, 2, .. tokens."""
    lengths = [str(x + 1) for x in range(len(model["q"]))]
    return model | {"rewards": {**model["rewards"], "length": lengths}}
