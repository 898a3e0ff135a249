"""What a verdict says of bounds: coefficients by cases, the loss inside them, and slopes at ties.  Untrusted.

The theorems speak of regions; h and c are shown in steps and by cases.  The bias is h less what it is where
no bound binds.
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
from klsym.engine.fields.primitives import WEIGHT, substitute_on_policy
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
from klsym.engine.targets.in_print import InPrint, in_loo
from klsym.engine.targets.ring_notes import coefficient_under_q
from klsym.engine.verdicts.verdict import Cases, Chain, ChainStep, LazyCases, TargetReading, Verdict
from klsym.errors import NotInRing, UsageError
from klsym.kernel.derivatives import attach, slopes
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SEQUENCE, at_slot
from klsym.kernel.statements import LOG, REGION, Context
from klsym.language.convert import canonical, to_ring
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
    rho,
    s,
    unfold,
    without_sg,
)
from klsym.language.messages import Message
from klsym.notation import losses
from klsym.notation.cases import latex as in_cases
from klsym.notation.losses import Written
from klsym.notation.printers import LATEX, TEXT, Text
from klsym.notation.tree import Formula, Mean, Over, Words, product
from klsym.notation.values import LazyFormula

OPEN = TargetReading(None)
ALL_TOKENS = sum((ExpPoly.variable(at_slot("w", z)) for z in SEQUENCE), ZERO).exp()


def with_clamps(
    verdict: Verdict,
    written: Written,
    setting: Setting,
    field: ReducedGradient,
    single: ReducedGradient,
    explained: Callable[[Written, Setting], Verdict],
) -> Verdict:
    """The verdict on a loss with min, max, clip or abs in it; single: one sample, before it is centred."""
    if not written.expression.has(*PIECEWISE) and not field.loss.defined.definitions:
        return verdict
    inside = _unclamped(written, setting, single)
    pushes = _pushes(single, setting, any(x.code == "away" for x in verdict.assumptions))
    shown = replace(
        verdict,
        inside_clamps=None if inside is None else _inside(inside, setting, explained),
        assumptions=(*slopes_taken(written, setting, field.loss.defined), *verdict.assumptions),
        messages=(*verdict.messages, *kink_messages(written, setting), *_boundary(written, setting, single)),
    )
    context = field.loss.defined
    if all(definition.kind != REGION for definition in context.definitions):
        shown = InPrint(context, field.index == "t").verdict(shown)
        return replace(shown, messages=(*shown.messages, *_undefined(written, shown.h, context)))
    if field is not single:
        return _centred(shown, field)
    shown = replace(shown, bias_cases=LazyCases(_bias, pushes, inside, setting, field) if inside else ())
    return _by_regions(shown, written, setting, field, pushes)


def _by_regions(
    verdict: Verdict, written: Written, setting: Setting, field: ReducedGradient, pushes: Slots
) -> Verdict:
    """h and c in steps and by cases; no c where products of means, or nothing canonical, is left under q."""
    context, tokens = field.loss.defined, field.index == "t"
    slots, rows = _under_q(pushes, field, setting), LazyCases(_told, pushes, field)
    h = to_scored_steps(pushes, context, tokens)
    shown = replace(
        verdict,
        h=h,
        c=None,
        gradient=InPrint(context, tokens).reading(_with_constant(verdict.gradient, slots)),
        scores_named=(has_scores(h), False),
        per_sample_cases=rows,
        messages=(*verdict.messages, *_undefined(written, h, context)),
    )
    if slots is None:
        return shown
    pieces, c = LazyCases(_rows_under_q, rows, pushes, slots, field), to_scored_steps(slots, context, tokens)
    return replace(
        shown,
        steps=LazyCases(_told_or, verdict, rows, pieces, field, setting),
        c=c,
        scores_named=(has_scores(h), has_scores(c)),
        coefficient_cases=pieces,
    )


def _unclamped(written: Written, setting: Setting, field: ReducedGradient) -> Written | None:
    """The loss where no bound binds; None where a bound always does, so that nothing is inside."""
    free = inside_clamps(written.expression)
    if free is None:
        return None
    inside = _written(free)
    if field.loss.defined.definitions:
        return inside
    try:
        same = reduce_typed_loss(inside, setting).score_coefficients == field.score_coefficients
    except (NotInRing, UsageError):
        same = False
    return inside if same else None


def inside_clamps(loss: Any) -> Any | None:
    """The loss where no bound binds: clip(x, lo, hi) -> x, min and max -> the one argument that speaks of
    densities, or else the one that is random."""
    free = loss.replace(lambda e: isinstance(e, clip), lambda e: e.args[0])
    free = free.replace(lambda e: isinstance(e, sympy.Min | sympy.Max), _argument_free)
    return None if free == loss or free.has(sympy.nan, sympy.zoo) else free


def _argument_free(e: Any) -> Any:
    moving = {a for a in e.args if a.has(Estimator, *DENSITIES)}
    free = moving or {a for a in e.args if a.has(*REWARDS)}
    return free.pop() if len(free) == 1 else e


def _told_or(
    verdict: Verdict, h: Cases, c: Cases, field: ReducedGradient, setting: Setting
) -> Sequence[ChainStep]:
    """The steps with cases, or those of the proof where there are too many to be shown."""
    return tuple(_steps(verdict, h, c, field, setting)) if h and (c or field.index) else tuple(verdict.steps)


def _steps(
    verdict: Verdict, h: Cases, c: Cases, field: ReducedGradient, setting: Setting
) -> Iterator[ChainStep]:
    """As it is written, then h and c by cases, which stand above in text; c of tokens is h over weights."""
    yield verdict.steps[0]
    under, slot = "q" if setting.on_policy else "mu", {"": "x", "t": "now"}[field.index]
    rule = "chain rule" if setting.use == "loss" else "stop-gradient"
    for why, measure, letter, rows in ((rule, under, "h", h), ("change of measure", "q", "c", c)):
        if letter == "h" or (measure != under and not field.index):
            text, latex = (
                spell(_by_cases(measure, letter, rows, field.index, slot, spell)) for spell in (TEXT, LATEX)
            )
            yield why, text, latex
    if isinstance(verdict.steps, Chain):
        yield from verdict.steps.objective_row


def _by_cases(measure: str, letter: str, rows: Cases, index: str, slot: str, spell: Text) -> Formula:
    score = losses.tree_of(Slot(slot)(s) if slot != "x" else s, spell.positions)
    held = Words(letter, in_cases(rows))
    scored = held if any(has_scores(c) for _, c in rows) else product(held, score)
    return Mean(measure, Over(index, scored) if index else scored)


def _centred(verdict: Verdict, field: ReducedGradient) -> Verdict:
    """Of a batch: h is less its mean, and c is shown with the own share apart."""
    share, c = split_own_share(coefficient_under_q(field) or ZERO)
    shown = to_steps(c, field.loss.defined)
    factors = LazyFormula(product, (share, shown))
    return replace(
        verdict,
        gradient=InPrint(field.loss.defined, False).reading(
            _with_constant(verdict.gradient, {"x": c * share})
        ),
        c=None if verdict.c is None else shown if share == ONE else factors,
        coefficient_cases=LazyCases(_told, {"x": c * share}, field),
    )


def _under_q(pushes: Slots, field: ReducedGradient, setting: Setting) -> Slots | None:
    """c with its constant, which the score takes to 0: as h it says more by cases."""
    if field.loss.index == "i":
        return {"x": field.c} if field.canonical_form is not None and not field.products else None
    if setting.on_policy and not (field.loss.sums and not field.index):
        return pushes
    if field.index and not set(pushes) <= {"now", "x"}:
        return {z: c * ALL_TOKENS.inverse() for z, c in pushes.items()}
    return field.coefficients if field.index else {"x": pushes.get("x", ZERO) * WEIGHT.inverse()}


def _rows_under_q(rows: Cases, pushes: Slots, slots: Slots, field: ReducedGradient) -> Cases:
    """c in the cases of h: over the weights of the tokens of which it speaks."""
    if slots == pushes:
        return rows
    if set(pushes) <= {"x"} and not field.index:
        return tuple((on, sympy.expand(h / rho)) for on, h in rows)
    if set(pushes) == set(slots) == {"now"}:
        weights = {z for c in slots.values() for z in SEQUENCE if at_slot("w", z) in c.names()}
        over = sympy.Mul(*(Slot(z)(rho) for z in sorted(weights | {"past", "now"})))
        return tuple((on, canonical(sympy.expand(h / over))) for on, h in rows)
    told = _told(slots, field)
    return told if [on for on, _ in told] == [on for on, _ in rows] else ()


def _with_constant(reading: TargetReading, slots: Slots | None) -> TargetReading:
    if slots is None or not isinstance(reading.rest, ExpPoly):
        return reading
    return replace(reading, rest=slots.get("x", ZERO) - reading.parts.get("reward", ZERO))


def _written(expression: Any) -> Written:
    return Written(losses.show(expression, TEXT), expression)


def _pushes(field: ReducedGradient, setting: Setting, off_bounds: bool = False) -> Slots:
    """What multiplies each score at a sample; rewards of other tokens stand at the token that they are of.

    off_bounds: the theorem assumes that no sample lies on a bound.
    """
    given = {name: to_ring(value) for name, value in field.loss.sums.items()}
    tokens = (
        field.index == "t" and bool(given) and not field.sequence_part
    )  # that counts once, not at each token
    found = collect_score_coefficients(field.exchanged) if tokens else field.score_coefficients
    put_in = given if tokens else {}
    values = {z: attach(c).substitute(put_in) for z, c in found.items()}
    values = {z: substitute_on_policy(value) if setting.on_policy else value for z, value in values.items()}
    context = field.loss.defined
    return {
        z: reduce_by_relations(value, context, has_gradient=False, off_bounds=off_bounds)
        for z, value in values.items()
    }


def _told(slots: Slots, field: ReducedGradient, otherwise: Any = None) -> Cases:
    """The coefficient by cases."""
    context, tokens = field.loss.defined, field.index == "t"
    return split_into_cases(
        slots,
        context,
        lambda c, at: collect_scores(_cancelled(to_scored_steps(c, at, tokens))),
        otherwise,
        tokens,
    )


def _cancelled(c: Any) -> Any:
    """Without factors that stand above and below: (1 + x)/(1 + x)^2 is 1/(1 + x)."""
    below = [e for e in c.atoms(sympy.Pow) if e.base.is_Add and e.exp.is_Integer and e.exp < 0]
    return sympy.factor(c) if below else c


def _inside(
    inside: Written, setting: Setting, explained: Callable[[Written, Setting], Verdict]
) -> TargetReading:
    try:
        return explained(inside, setting).gradient
    except (NotInRing, UsageError):
        return OPEN


def _bias(pushes: Mapping[str, ExpPoly], inside: Written, setting: Setting, field: ReducedGradient) -> Cases:
    """What bounds change, in the regions where they do."""
    try:
        free = reduce_typed_loss(inside, setting)
    except (NotInRing, UsageError):
        return ()
    if free.loss.defined.definitions:
        return ()
    plain = _pushes(free, setting)
    if field.loss.sums:
        plain = move_to_own_tokens(plain)
    gap = {z: pushes.get(z, ZERO) - plain.get(z, ZERO) for z in {*pushes, *plain}}
    rows = _told(gap, field, sympy.S.Zero)
    elsewhere = any(value != 0 for on, value in rows if not on)  # then "otherwise" needs all the other cases
    changed = any(value != 0 for _, value in rows)
    return tuple((on, value) for on, value in rows if value != 0 or elsewhere) if changed else ()


# ---------------------------------------------------------------------------- ties, and what is assumed
def _undefined(written: Written, h: Any, context: Context) -> tuple[Message, ...]:
    """What has logs may have no value where q = p = mu = old."""
    varies = any(kind == LOG and context.speaks_of(e) for _, kind, e in context.definitions)
    whole = isinstance(h, sympy.Basic) and not has_scores(h)
    return undefined(written.expression, h) if varies and whole else ()


def undefined(loss: Any, per_sample: Any) -> tuple[Message, ...]:
    """Is the loss, or its gradient, 0/0 where q = p = mu = old?"""
    equal = {log_p: log_q, log_mu: log_q, log_old: log_q}
    for name, e in (("loss", loss), ("gradient", per_sample)):
        if _is_infinite(unfold(without_sg(e)), equal):
            return (Message("undefined-at-start", what=name),)
    return ()


def _is_infinite(e: Any, at: dict[Any, Any]) -> bool:
    try:
        return bool(e.xreplace(at).has(sympy.nan, sympy.zoo))
    except ValueError:  # SymPy has no min, max or clip of what is infinite
        return True


def slopes_taken(written: Written, setting: Setting, context: Context) -> tuple[Message, ...]:
    """What regions there are, slopes at ties, and bounds that do not cross."""
    found: list[Message] = []
    if setting.use == "loss":
        tied = sorted(ties(written, setting).values())
        found = [Message("slope-at-tie", of=kind) for kind in dict.fromkeys(tied)]
        regions = any(definition.kind == REGION for definition in context.definitions)
        kinks = regions and written.expression.has(*KINKED)
        found = found or [Message("slope-at-kinks")] * kinks
    found += [
        Message("region", of=name, where=_where(e, context))
        if kind == REGION
        else Message(kind, of=name, element=to_steps(e, context))
        for name, kind, e in context.definitions
    ]
    return (*found, *(Message("bounds-in-order", of=str(e)) for e in collect_clip_facts(written.expression)))


def _where(e: ExpPoly, context: Context) -> Condition:
    """e > 0, as it is read: rho > 6/5."""
    scale, x = split_leading_coefficient(in_loo(to_steps(e, context)))
    return Condition(x, (1 if scale > 0 else -1,))


def kink_messages(written: Written, setting: Setting) -> tuple[Message, ...]:
    """Where real code may differ from what is derived here."""
    tied = ties(written, setting) if setting.use == "loss" else {}
    kinds = sorted(tied.values())
    found = [Message("tie", of=kind) for kind in dict.fromkeys(kinds)]
    if kinds.count("min") > 1 and any(
        len(e.args) > 2 for e in written.expression.atoms(sympy.Min, sympy.Max)
    ):
        found.append(Message("order-of-pairs"))
    if can_bounds_cross(written.expression):
        found.append(Message("bounds-may-cross"))
    return tuple(found)


def _boundary(written: Written, setting: Setting, single: ReducedGradient) -> tuple[Message, ...]:
    """A loss that jumps where a comparison changes: its mean moves with the bound, too."""
    if setting.use == "reward" or not written.expression.has(sympy.Heaviside):
        return ()
    jumps = has_jump(single.loss.element, single.loss.defined)
    return (Message("boundary-dropped"),) if jumps else ()


@lru_cache(maxsize=64)
def ties(written: Written, setting: Setting) -> dict[str, str]:
    """Unknown slopes at ties that every sample meets, where they do not cancel: name -> kind."""
    if not read_loss(written.expression, setting).regions.has_permanent_tie:
        return {}
    read = read_loss(written.expression, setting, ties=True)
    regions = read.regions
    found = slopes(to_ring(read.expression), read.index, regions.context).values()
    values = [substitute_on_policy(attach(c)) if setting.on_policy else attach(c) for c in found]
    left = {
        name for c in values for name in reduce_by_relations(c, regions.context, has_gradient=False).names()
    }
    return {name: kind for name, kind in (regions.ties or {}).items() if name in left}
