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

from klsym.convert import canonical, to_ring
from klsym.engine.fields.field import Field, Slots, field_of_loss, less_own_share
from klsym.engine.fields.primitives import WEIGHT, at_policy
from klsym.engine.fields.slot_loss import in_slots, index_of, placed, unfolding_of
from klsym.engine.options.settings import Setting
from klsym.engine.regions.case_split import Condition, cases
from klsym.engine.regions.in_steps import in_steps, scored_steps
from klsym.engine.regions.piecewise import inside_clamps, led_by_one
from klsym.engine.regions.relations import reduced
from klsym.engine.regions.unfolding import PIECEWISE, bounds_in_order, crossing
from klsym.engine.targets.ring_notes import coefficient_under_q
from klsym.engine.verdicts.verdict import Cases, ChainStep, LazyCases, TargetReading, Verdict
from klsym.errors import NotInRing, UsageError
from klsym.kernel.derivatives import attach, slopes
from klsym.language import Slot, rho, s
from klsym.messages import Message
from klsym.notation import losses
from klsym.notation.cases import latex as in_cases
from klsym.notation.losses import Written
from klsym.notation.spelling import LATEX, TEXT, Text
from klsym.notation.tree import Formula, Mean, Over, Words, product
from klsym.notation.values import LazyFormula
from klsym.ring import ONE, ZERO, ExpPoly
from klsym.slots import SEQUENCE, at_slot
from klsym.statements import Context

OPEN = TargetReading(None)


def with_clamps(
    verdict: Verdict,
    written: Written,
    setting: Setting,
    field: Field,
    single: Field,
    explained: Callable[[Written, Setting], Verdict],
) -> Verdict:
    """The verdict on a loss with min, max, clip or abs in it; single: one sample, before it is centred."""
    if not written.expression.has(*PIECEWISE):
        return verdict
    inside = _unclamped(written, setting, single)
    pushes = {z: _at_sampling(c, setting, single) for z, c in single.pushes.items()}
    shown = replace(
        verdict,
        inside_clamps=None if inside is None else _inside(inside, setting, explained),
        assumptions=(*_slopes_taken(written, setting, field), *verdict.assumptions),
        messages=(*verdict.messages, *kink_messages(written, setting)),
    )
    if not field.loss.defined.definitions:
        return shown
    if field is not single:
        return _centred(shown, field)
    context, tokens = field.loss.defined, field.index == "t"
    slots, rows = _under_q(pushes, field, setting), LazyCases(_told, pushes, field)
    pieces = LazyCases(_rows_under_q, rows, pushes, slots, field)
    alone = (
        set(pushes) <= {"now", "x"}
        and set(slots) <= {"now", "x"}
        and len(pushes) == 1
        and not field.loss.sums
    )
    return replace(
        shown,
        steps=LazyCases(_told_or, verdict, rows, pieces, field, setting) if alone else verdict.steps,
        gradient=read_in_steps(_with_constant(verdict.gradient, slots), context, tokens),
        h=scored_steps(pushes, context, tokens),
        c=scored_steps(slots, context, tokens),
        per_sample_cases=rows,
        coefficient_cases=pieces,
        bias_cases=LazyCases(_bias, pushes, inside, setting, field) if inside else (),
    )


def _unclamped(written: Written, setting: Setting, field: Field) -> Written | None:
    """The loss where no bound binds; None where a bound always does, so that nothing is inside."""
    free = inside_clamps(written.expression)
    if free is None:
        return None
    inside = _written(free)
    if field.loss.defined.definitions:
        return inside
    try:
        same = field_of_loss(inside, setting).pushes == field.pushes
    except (NotInRing, UsageError):
        same = False
    return inside if same else None


def _told_or(verdict: Verdict, h: Cases, c: Cases, field: Field, setting: Setting) -> Sequence[ChainStep]:
    """The steps with cases, or those of the proof where there are too many to be shown."""
    return tuple(_steps(verdict, h, c, field, setting)) if h and c else tuple(verdict.steps)


def _steps(verdict: Verdict, h: Cases, c: Cases, field: Field, setting: Setting) -> Iterator[ChainStep]:
    """As it is written, then h and c by cases, which stand above in text."""
    yield verdict.steps[0]
    under, slot = "q" if setting.on_policy else "mu", {"": "x", "t": "now"}[field.index]
    rule = "chain rule" if setting.use == "loss" else "stop-gradient"
    for why, measure, letter, rows in ((rule, under, "h", h), ("change of measure", "q", "c", c)):
        if measure != under or letter == "h":
            text, latex = (
                spell(_by_cases(measure, letter, rows, field.index, slot, spell)) for spell in (TEXT, LATEX)
            )
            yield why, text, latex


def _by_cases(measure: str, letter: str, rows: Cases, index: str, slot: str, spell: Text) -> Formula:
    score = losses.tree_of(Slot(slot)(s) if slot != "x" else s, spell.positions)
    scored = product(Words(letter, in_cases(rows)), score)
    return Mean(measure, Over(index, scored) if index else scored)


def _centred(verdict: Verdict, field: Field) -> Verdict:
    """Of a batch: h is less its mean, and c is shown with the own share apart."""
    share, c = less_own_share(coefficient_under_q(field) or ZERO)
    shown = in_steps(c, field.loss.defined)
    factors = LazyFormula(product, (share, shown))
    return replace(
        verdict,
        gradient=read_in_steps(_with_constant(verdict.gradient, {"x": c * share}), field.loss.defined),
        c=None if verdict.c is None else shown if share == ONE else factors,
        coefficient_cases=tuple(
            (case.conditions, case.coefficient) for case in cases(in_steps(c * share, field.loss.defined))
        ),
    )


def _under_q(pushes: Slots, field: Field, setting: Setting) -> Slots:
    """c with its constant, which the score takes to 0: as h it says more by cases."""
    if setting.on_policy and not field.loss.sums:
        return pushes
    return field.coefficients if field.index else {"x": pushes.get("x", ZERO) * WEIGHT.inverse()}


def _rows_under_q(rows: Cases, pushes: Slots, slots: Slots, field: Field) -> Cases:
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


def read_in_steps(reading: TargetReading, context: Context, tokens: bool = False) -> TargetReading:
    """A target, with the regions in its parts as steps."""

    def shown(value: Any) -> Any:
        if isinstance(value, Mapping):
            return scored_steps(value, context, tokens)
        return in_steps(value, context, tokens) if isinstance(value, ExpPoly) else value

    parts = {name: shown(value) for name, value in reading.parts.items()}
    return replace(reading, parts=parts, rest=shown(reading.rest))


def _written(expression: Any) -> Written:
    return Written(losses.show(expression, TEXT), expression)


def _at_sampling(c: ExpPoly, setting: Setting, field: Field) -> ExpPoly:
    """The value at a sample, in its last form."""
    value = attach(c)
    value = at_policy(value) if setting.on_policy else value
    return reduced(value, field.loss.defined, moving=False, off_bounds=True)


def _told(slots: Slots, field: Field) -> Cases:
    """The coefficient by cases."""
    return tuple(
        (case.conditions, case.coefficient)
        for case in cases(scored_steps(slots, field.loss.defined, field.index == "t"))
    )


def _inside(
    inside: Written, setting: Setting, explained: Callable[[Written, Setting], Verdict]
) -> TargetReading:
    try:
        return explained(inside, setting).gradient
    except (NotInRing, UsageError):
        return OPEN


def _bias(pushes: Mapping[str, ExpPoly], inside: Written, setting: Setting, field: Field) -> Cases:
    """What bounds change, in the regions where they do."""
    try:
        free = field_of_loss(inside, setting)
    except (NotInRing, UsageError):
        return ()
    if free.loss.defined.definitions:
        return ()
    plain = {z: _at_sampling(c, setting, free) for z, c in free.pushes.items()}
    gap = {z: pushes.get(z, ZERO) - plain.get(z, ZERO) for z in {*pushes, *plain}}
    rows = _told(gap, field)
    elsewhere = any(value != 0 for on, value in rows if not on)  # then "otherwise" needs all the other cases
    changed = any(value != 0 for _, value in rows)
    return tuple((on, value) for on, value in rows if value != 0 or elsewhere) if changed else ()


# ---------------------------------------------------------------------------- ties, and what is assumed
def _slopes_taken(written: Written, setting: Setting, field: Field) -> tuple[Message, ...]:
    """What regions there are, slopes at ties, and bounds that do not cross."""
    found: list[Message] = []
    if setting.use == "loss":
        tied = sorted(ties(written, setting).values())
        found = [Message("slope-at-tie", of=kind) for kind in dict.fromkeys(tied)]
        found = found or [Message("slope-at-kinks")] * bool(field.loss.defined.definitions)
    context = field.loss.defined
    found += [Message("region", of=name, where=_where(e, context)) for name, _, e in context.definitions]
    return (*found, *(Message("bounds-in-order", of=name) for name in bounds_in_order(written.expression)))


def _where(e: ExpPoly, context: Context) -> Condition:
    """e > 0, as it is read: rho > 6/5."""
    scale, x = led_by_one(in_steps(e, context))
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
    if crossing(written.expression):
        found.append(Message("bounds-may-cross"))
    return tuple(found)


@lru_cache(maxsize=64)
def ties(written: Written, setting: Setting) -> dict[str, str]:
    """Unknown slopes at ties that every sample meets, where they do not cancel: name -> kind."""
    index, regions = index_of(written, setting), unfolding_of(written.expression, setting)
    regions.ties = {}
    expression, _ = in_slots(placed(written.expression, setting, index), index, False, regions)
    found = slopes(to_ring(expression), index, regions.context).values()
    values = [at_policy(attach(c)) if setting.on_policy else attach(c) for c in found]
    left = {name for c in values for name in reduced(c, regions.context, moving=False).names()}
    return {name: kind for name, kind in regions.ties.items() if name in left}
