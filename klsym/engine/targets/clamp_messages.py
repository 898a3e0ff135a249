"""Add to a verdict coefficients by cases, the loss inside the clip range, and slopes at ties.  Untrusted.

Theorems are stated with regions; h and c are printed with steps and by cases.  The bias is h minus the h of
the loss inside the clip range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sympy

from klsym.engine.fields.field import (
    ReducedGradient,
    Slots,
    collect_score_coefficients,
    move_to_own_tokens,
    reduce_typed_loss,
    split_own_share,
)
from klsym.engine.fields.primitives import WEIGHT
from klsym.engine.fields.slot_loss import read_loss
from klsym.engine.options.settings import Setting
from klsym.engine.regions.bounds_in_order import can_bounds_cross, collect_clip_facts
from klsym.engine.regions.case_split import Condition, split_into_cases
from klsym.engine.regions.in_steps import (
    collect_scores,
    has_scores,
    split_leading_coefficient,
    to_scored_steps,
    to_steps,
)
from klsym.engine.regions.piecewise import KINKED, PIECEWISE
from klsym.engine.regions.relations import has_jump, reduce_by_relations
from klsym.engine.targets.in_print import ValuePrinter, rewrite_with_loo
from klsym.engine.targets.ring_notes import find_canonical_coefficient
from klsym.engine.verdicts.lazy import Cases, Chain, ChainStep, LazyCases
from klsym.engine.verdicts.verdict import AnyReading, TargetReading, Verdict
from klsym.errors import NotInRing, UsageError
from klsym.kernel.definitions import LOG, REGION
from klsym.kernel.derivatives import attach, differentiate_loss
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SEQUENCE, name_in_slot
from klsym.kernel.statements import Context
from klsym.language.convert import normalise_expression, substitute_on_policy, to_ring
from klsym.language.expressions import (
    DENSITIES,
    REWARDS,
    Estimator,
    Slot,
    clip,
    log_mu,
    log_old,
    log_p,
    log_q,
    remove_sg,
    rho,
    s,
    unfold,
)
from klsym.language.messages import Message
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.tree import Formula, Mean, Over, Words, multiply
from klsym.notation.values import LazyFormula
from klsym.notation.values import format_latex as in_cases

OPEN = TargetReading(None)
ALL_TOKENS = sum((ExpPoly.from_variable(name_in_slot("w", z)) for z in SEQUENCE), ZERO).exp()


def add_clip_results(
    verdict: Verdict,
    written: Written,
    setting: Setting,
    field: ReducedGradient,
    single: ReducedGradient,
    explain: Callable[[Written, Setting], Verdict],
) -> Verdict:
    """Extend the verdict on a loss with min, max, clip or abs; single: one sample, before it is centred."""
    if not written.expression.has(*PIECEWISE) and not field.loss.defined.definitions:
        return verdict
    inside = _choose_loss_inside_range(written, setting, single)
    coefficients = _find_score_coefficients(
        single, setting, any(x.code == "away" for x in verdict.assumptions)
    )
    of_inside = None if inside is None else _explain_inside(inside, setting, explain)
    extended = verdict.revise(
        inside_clamps=None if inside is None else of_inside.gradient.reading if of_inside else OPEN,
        inside=of_inside.objective.quantity if of_inside else None,
        assumptions=(*collect_region_assumptions(written, setting, field.loss.defined), *verdict.assumptions),
        messages=(
            *verdict.messages,
            *collect_kink_messages(written, setting),
            *_check_boundary(written, setting, single),
        ),
    )
    context = field.loss.defined
    if all(definition.kind != REGION for definition in context.definitions):
        extended = ValuePrinter(context, field.index == "t").rewrite_verdict(extended)
        return extended.revise(
            messages=(
                *extended.messages,
                *_check_undefined(written, extended.gradient.score_coefficient, context),
            ),
        )
    if field is not single:
        return _show_centred(extended, field)
    extended = extended.revise(
        bias_cases=LazyCases(_find_bias, coefficients, inside, setting, field) if inside else ()
    )
    return _add_region_cases(extended, written, setting, field, coefficients=coefficients)


def _add_region_cases(
    verdict: Verdict, written: Written, setting: Setting, field: ReducedGradient, coefficients: Slots
) -> Verdict:
    """Add h and c in steps and by cases; no c for products of means, or without a canonical form."""
    context, tokens = field.loss.defined, field.index == "t"
    slots, rows = (
        _find_canonical_slots(coefficients, field, setting),
        LazyCases(_split_coefficient_cases, coefficients, field),
    )
    h = to_scored_steps(coefficients, context, tokens)
    extended = verdict.revise(
        score_coefficient=h,
        canonical_coefficient=None,
        gradient=ValuePrinter(context, tokens).rewrite_reading(_add_constant(verdict.gradient, slots)),
        scores_named=(has_scores(h), False),
        score_cases=rows,
        messages=(*verdict.messages, *_check_undefined(written, h, context)),
    )
    if slots is None:
        return extended
    canonical_rows, c = (
        LazyCases(_weigh_cases, rows, coefficients, slots, field),
        to_scored_steps(slots, context, tokens),
    )
    return extended.revise(
        steps=LazyCases(_choose_steps, verdict, rows, canonical_rows, field, setting),
        canonical_coefficient=c,
        scores_named=(has_scores(h), has_scores(c)),
        canonical_cases=canonical_rows,
    )


def _choose_loss_inside_range(written: Written, setting: Setting, field: ReducedGradient) -> Written | None:
    """Return the loss inside the clip range; None if a bound is always active, so that nothing is inside."""
    inside_expression = remove_clips(written.expression)
    if inside_expression is None:
        return None
    inside = _write_loss(inside_expression)
    if field.loss.defined.definitions:
        return inside
    try:
        is_same = reduce_typed_loss(inside, setting).score_coefficients == field.score_coefficients
    except (NotInRing, UsageError):
        is_same = False
    return inside if is_same else None


def remove_clips(loss: Any) -> Any | None:
    """Return the loss inside the clip range: clip(x, lo, hi) -> x, min and max -> the one argument with
    densities, or else the one that is random; None if there is no such loss."""
    unclipped = loss.replace(lambda e: isinstance(e, clip), lambda e: e.args[0])
    unclipped = unclipped.replace(lambda e: isinstance(e, sympy.Min | sympy.Max), _select_random_argument)
    return None if unclipped == loss or unclipped.has(sympy.nan, sympy.zoo) else unclipped


def _select_random_argument(e: Any) -> Any:
    theta_dependent = {a for a in e.args if a.has(Estimator, *DENSITIES)}
    candidates = theta_dependent or {a for a in e.args if a.has(*REWARDS)}
    return candidates.pop() if len(candidates) == 1 else e


def _choose_steps(
    verdict: Verdict, h: Cases, c: Cases, field: ReducedGradient, setting: Setting
) -> Sequence[ChainStep]:
    """Return the steps with cases, or those of the proof if there are too many cases."""
    return (
        tuple(_generate_case_steps(verdict, h, c, field, setting=setting))
        if h and (c or field.index)
        else tuple(verdict.proof.steps)
    )


def _generate_case_steps(
    verdict: Verdict, h: Cases, c: Cases, field: ReducedGradient, setting: Setting
) -> Iterator[ChainStep]:
    """Yield the first step of the proof, then h and c by cases, and the gradient of the objective."""
    yield verdict.proof.steps[0]
    sampling_measure, slot = "q" if setting.on_policy else "mu", {"": "x", "t": "now"}[field.index]
    rule = "chain rule" if setting.is_differentiated else "stop-gradient"
    for reason, measure, letter, rows in (
        (rule, sampling_measure, "h", h),
        ("change of measure", "q", "c", c),
    ):
        if letter == "h" or (measure != sampling_measure and not field.index):
            text, latex = (
                spell(_format_mean_of_cases(measure, letter, rows, field.index, slot=slot, spell=spell))
                for spell in (TEXT, LATEX)
            )
            yield reason, text, latex
    if isinstance(verdict.proof.steps, Chain):
        yield from verdict.proof.steps.objective_row


def _format_mean_of_cases(
    measure: str, letter: str, rows: Cases, index: str, slot: str, spell: Text
) -> Formula:
    score = losses.build_tree(Slot(slot)(s) if slot != "x" else s, spell.positions)
    letter_with_cases = Words(letter, in_cases(rows))
    scored = letter_with_cases if any(has_scores(c) for _, c in rows) else multiply(letter_with_cases, score)
    return Mean(measure, Over(index, scored) if index else scored)


def _show_centred(verdict: Verdict, field: ReducedGradient) -> Verdict:
    """Return the verdict on a batch, with (1 - 1/n) in front of c."""
    share, c = split_own_share(find_canonical_coefficient(field) or ZERO)
    c_in_steps = to_steps(c, field.loss.defined)
    factors = LazyFormula(multiply, (share, c_in_steps))
    return verdict.revise(
        gradient=ValuePrinter(field.loss.defined, False).rewrite_reading(
            _add_constant(verdict.gradient, {"x": c * share})
        ),
        canonical_coefficient=None
        if verdict.gradient.canonical_coefficient is None
        else c_in_steps
        if share == ONE
        else factors,
        canonical_cases=LazyCases(_split_coefficient_cases, {"x": c * share}, field),
    )


def _find_canonical_slots(coefficients: Slots, field: ReducedGradient, setting: Setting) -> Slots | None:
    """Return c with its constant, whose expectation times the score is 0; it keeps the cases short."""
    if field.loss.index == "i":
        return {"x": field.c} if field.canonical_form is not None and not field.products else None
    if setting.on_policy and not (field.loss.sums and not field.index):
        return coefficients
    if field.index and not set(coefficients) <= {"now", "x"}:
        return {z: c * ALL_TOKENS.invert() for z, c in coefficients.items()}
    return field.coefficients if field.index else {"x": coefficients.get("x", ZERO) * WEIGHT.invert()}


def _weigh_cases(rows: Cases, coefficients: Slots, slots: Slots, field: ReducedGradient) -> Cases:
    """Return c in the cases of h: h over the weights of its tokens."""
    if slots == coefficients:
        return rows
    if set(coefficients) <= {"x"} and not field.index:
        return tuple((on, sympy.expand(h / rho)) for on, h in rows)
    if set(coefficients) == set(slots) == {"now"}:
        weights = {z for c in slots.values() for z in SEQUENCE if name_in_slot("w", z) in c.names()}
        weight = sympy.Mul(*(Slot(z)(rho) for z in sorted(weights | {"past", "now"})))
        return tuple((on, normalise_expression(sympy.expand(h / weight))) for on, h in rows)
    canonical_rows = _split_coefficient_cases(slots, field)
    return canonical_rows if [on for on, _ in canonical_rows] == [on for on, _ in rows] else ()


def _add_constant(reading: AnyReading, slots: Slots | None) -> AnyReading:
    if slots is None or not isinstance(reading.rest, ExpPoly):
        return reading
    return replace(reading, rest=slots.get("x", ZERO) - reading.parts.get("reward", ZERO))


def _write_loss(expression: Any) -> Written:
    return Written(losses.show(expression, TEXT), expression)


def _find_score_coefficients(field: ReducedGradient, setting: Setting, off_bounds: bool = False) -> Slots:
    """Return the coefficient of each score at a sample, with sums over rewards of other tokens exchanged.

    off_bounds: the theorem assumes that no sample lies on a bound.
    """
    sum_values = {name: to_ring(value) for name, value in field.loss.sums.items()}
    tokens = (
        field.index == "t" and bool(sum_values) and not field.sequence_part
    )  # that counts once, not at each token
    coefficients = collect_score_coefficients(field.exchanged) if tokens else field.score_coefficients
    substitution = sum_values if tokens else {}
    values = {z: attach(c).substitute(substitution) for z, c in coefficients.items()}
    values = {z: substitute_on_policy(value) if setting.on_policy else value for z, value in values.items()}
    context = field.loss.defined
    return {
        z: reduce_by_relations(value, context, has_gradient=False, off_bounds=off_bounds)
        for z, value in values.items()
    }


def _split_coefficient_cases(slots: Slots, field: ReducedGradient, otherwise: Any = None) -> Cases:
    """Return the coefficient by cases."""
    context, tokens = field.loss.defined, field.index == "t"
    return split_into_cases(
        slots,
        context,
        show=lambda c, at: collect_scores(_cancel_factors(to_scored_steps(c, at, tokens))),
        otherwise=otherwise,
        tokens=tokens,
    )


def _cancel_factors(c: Any) -> Any:
    """Cancel common factors: (1 + x)/(1 + x)^2 is 1/(1 + x)."""
    denominators = [e for e in c.atoms(sympy.Pow) if e.base.is_Add and e.exp.is_Integer and e.exp < 0]
    return sympy.factor(c) if denominators else c


def _explain_inside(
    inside: Written, setting: Setting, explain: Callable[[Written, Setting], Verdict]
) -> Verdict | None:
    """Return the verdict on the loss inside the clip range; None outside the ring."""
    try:
        return explain(inside, setting)
    except (NotInRing, UsageError):
        return None


def _find_bias(
    coefficients: Mapping[str, ExpPoly], inside: Written, setting: Setting, field: ReducedGradient
) -> Cases:
    """Return h minus the h of the loss inside the clip range, in the regions where it is not 0."""
    try:
        inside_gradient = reduce_typed_loss(inside, setting)
    except (NotInRing, UsageError):
        return ()
    if inside_gradient.loss.defined.definitions:
        return ()
    inside_coefficients = _find_score_coefficients(inside_gradient, setting)
    if field.loss.sums:
        inside_coefficients = move_to_own_tokens(inside_coefficients)
    differences = {
        z: coefficients.get(z, ZERO) - inside_coefficients.get(z, ZERO)
        for z in {*coefficients, *inside_coefficients}
    }
    rows = _split_coefficient_cases(differences, field, sympy.S.Zero)
    has_other_cases = any(
        value != 0 for on, value in rows if not on
    )  # then "otherwise" needs all the other cases
    has_bias = any(value != 0 for _, value in rows)
    return tuple((on, value) for on, value in rows if value != 0 or has_other_cases) if has_bias else ()


# ---------------------------------------------------------------------------- ties, and what is assumed
def _check_undefined(written: Written, h: Any, context: Context) -> tuple[Message, ...]:
    """Return a message if a loss with logs is undefined where q = p = mu = old."""
    varies = any(kind == LOG and context.collect_slots(e) for _, kind, e in context.definitions)
    is_expression = isinstance(h, sympy.Basic) and not has_scores(h)
    return check_undefined_at_start(written.expression, h) if varies and is_expression else ()


def check_undefined_at_start(loss: Any, per_sample: Any) -> tuple[Message, ...]:
    """Return a message if the loss, or its gradient, is 0/0 where q = p = mu = old."""
    equal = {log_p: log_q, log_mu: log_q, log_old: log_q}
    for name, e in (("loss", loss), ("gradient", per_sample)):
        if _is_infinite(unfold(remove_sg(e)), equal):
            return (Message("undefined-at-start", what=name),)
    return ()


def _is_infinite(e: Any, substitution: dict[Any, Any]) -> bool:
    try:
        return bool(e.xreplace(substitution).has(sympy.nan, sympy.zoo))
    except ValueError:  # SymPy has no min, max or clip of what is infinite
        return True


def collect_region_assumptions(written: Written, setting: Setting, context: Context) -> tuple[Message, ...]:
    """Return the assumptions on regions, slopes at ties, and bounds that do not cross."""
    assumptions: list[Message] = []
    if setting.is_differentiated:
        tie_kinds = sorted(find_ties(written, setting).values())
        assumptions = [Message("slope-at-tie", of=kind) for kind in dict.fromkeys(tie_kinds)]
        regions = any(definition.kind == REGION for definition in context.definitions)
        kinks = regions and written.expression.has(*KINKED)
        assumptions = assumptions or [Message("slope-at-kinks")] * kinks
    assumptions += [
        Message("region", of=name, where=_build_condition(e, context))
        if kind == REGION
        else Message(kind, of=name, element=to_steps(e, context))
        for name, kind, e in context.definitions
    ]
    return (
        *assumptions,
        *(Message("bounds-in-order", of=str(e)) for e in collect_clip_facts(written.expression)),
    )


def _build_condition(e: ExpPoly, context: Context) -> Condition:
    """Return e > 0 as a printed condition: rho > 6/5."""
    scale, x = split_leading_coefficient(rewrite_with_loo(to_steps(e, context)))
    return Condition(x, (1 if scale > 0 else -1,))


def collect_kink_messages(written: Written, setting: Setting) -> tuple[Message, ...]:
    """Return messages on points where real code may differ from what is derived here."""
    tie_kinds = find_ties(written, setting) if setting.is_differentiated else {}
    kinds = sorted(tie_kinds.values())
    messages = [Message("tie", of=kind) for kind in dict.fromkeys(kinds)]
    if kinds.count("min") > 1 and any(
        len(e.args) > 2 for e in written.expression.atoms(sympy.Min, sympy.Max)
    ):
        messages.append(Message("order-of-pairs"))
    if can_bounds_cross(written.expression):
        messages.append(Message("bounds-may-cross"))
    return tuple(messages)


def _check_boundary(written: Written, setting: Setting, single: ReducedGradient) -> tuple[Message, ...]:
    """Return a message if the loss jumps at a comparison: its mean then depends on the bound, too."""
    if setting.is_reward or not written.expression.has(sympy.Heaviside):
        return ()
    jumps = has_jump(single.loss.element, single.loss.defined)
    return (Message("boundary-dropped"),) if jumps else ()


@lru_cache(maxsize=64)
def find_ties(written: Written, setting: Setting) -> dict[str, str]:
    """Return the unknown slopes at ties that hold at every sample and do not cancel: name -> kind."""
    if not read_loss(written.expression, setting, False).regions.has_permanent_tie:  # as it is cached
        return {}
    loss = read_loss(written.expression, setting, ties=True)
    regions = loss.regions
    derivatives = differentiate_loss(to_ring(loss.expression), loss.index, regions.context).values()
    values = [substitute_on_policy(attach(c)) if setting.on_policy else attach(c) for c in derivatives]
    remaining_names = {
        name for c in values for name in reduce_by_relations(c, regions.context, has_gradient=False).names()
    }
    return {name: kind for name, kind in (regions.ties or {}).items() if name in remaining_names}
