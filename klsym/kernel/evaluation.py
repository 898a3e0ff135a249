"""What a side is worth: named values unfolded, all under q, constants and ratio means put in.  Trusted.

The rules of `rules.py` do the work; no choice is left to the certificate.  Two sides that differ by

    E_m[c] = c        E_m[c m'/m] = c        E_m[a] = E_q[a m/q]        KL(a||b) = E_a[log a/b], ...

and by multiples of premises are worth the same, under the hypotheses that this costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klsym.errors import Refused
from klsym.kernel.derivatives import Hypothesis, density_ratio, sample_part
from klsym.kernel.rules import change_of_measure, definition, normalisation, ratio_mean_one
from klsym.names import PROBABILITIES, SAMPLE
from klsym.normal_form import ONE, ZERO, ExpPoly
from klsym.statements import (
    Atom,
    Bregman,
    Context,
    Covariance,
    Divergence,
    E,
    Indexed,
    Point,
    Side,
    Statement,
    elements,
    slotted,
)

Data = dict[str, Any]
Assumed = set[Hypothesis]
Row = tuple[ExpPoly, tuple[Atom, ...]]


def refuse_unless(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)


def evaluated(side: Side, context: Context) -> tuple[Side, Assumed]:
    """A side of the same value in E_q[..] without constants and ratio means, and what that assumes.

    Products of means are multiplied out, E[c a + d b] E[..] = c E[a] E[..] + d E[b] E[..].
    """
    rows, assumed = list[Row](), Assumed()
    for coefficient, atoms in side.terms:
        products: list[Row] = [(coefficient, ())]
        for atom in atoms:
            value, added = _value(atom, context)
            terms, more = _split(value, context) if len(atoms) > 1 else (value.terms, Assumed())
            products = [(c * d, a + b) for c, a in products for d, b in terms]
            assumed = assumed | added | more
        rows.extend(products)
    return Side.of(*rows), assumed


def _split(side: Side, context: Context) -> tuple[Sequence[Row], Assumed]:
    """Each lone mean by linearity, the constants in front; the means so split must exist."""
    rows, assumed = list[Row](), Assumed()
    for coefficient, atoms in side.terms:
        if len(atoms) != 1 or not isinstance(atoms[0], E):
            rows.append((coefficient, atoms))
            continue
        mean, groups = atoms[0], dict[ExpPoly, ExpPoly]()
        for key, value in mean.coefficient.terms.items():
            sample = sample_part(*key, context)
            groups[sample] = groups.get(sample, ZERO) + ExpPoly({key: value}) * sample.inverse()
        for sample, constant in groups.items():
            part = E(mean.measure, sample, mean.score)
            rows.append((coefficient * constant, (part,)))
            if len(groups) > 1 or constant.names():
                assumed.add(("moment", part))
    return rows, assumed


def _value(atom: Atom, context: Context) -> tuple[Side, Assumed]:
    match atom:
        case Divergence() | Covariance() | Bregman():
            unfolded, assumed = definition(atom, {}, context)
            value, added = evaluated(unfolded, context)
            return value, assumed | added
        case E(m, _, ()) if m in PROBABILITIES:
            known, rest, assumed = _known_means(atom, context)
            if m != "q" and rest:
                moved, support = change_of_measure(E(m, rest), {"to": "q"}, context)
                value, added = evaluated(moved, context)
                return known + value, assumed | support | added
            return known + Side.atom(E(m, rest)), assumed
        case Point(a, ()):
            constant = _multiples(a, ONE, context)
            return Side.constant(constant) + Side.atom(Point(a - constant)), Assumed()
    return Side.atom(atom), Assumed()


def _known_means(mean: E, context: Context) -> tuple[Side, ExpPoly, Assumed]:
    """E_m[a] = known + E_m[rest]: the constants of a, and the constant multiples of densities m'/m."""
    m, rest, known, assumed = mean.measure, mean.coefficient, Side(), Assumed()
    for other in PROBABILITIES:
        part = _multiples(rest, density_ratio(other, m), context)
        if part:
            of = {} if other == m else {"of": other}
            value, added = (ratio_mean_one if of else normalisation)(E(m, part), of, context)
            known, rest, assumed = known + value, rest - part, assumed | added
    return known, rest, assumed


def _multiples(a: ExpPoly, unit: ExpPoly, context: Context) -> ExpPoly:
    """The terms of a that are a constant times the single term `unit`."""
    back = unit.inverse()
    return ExpPoly({k: v for k, v in a.terms.items() if context.is_constant(ExpPoly({k: v}) * back)})


def vanishes(gap: Side, data: Data, statement: Statement) -> Assumed:
    """Refuse unless the gap, less multiples m (F - G) of premises F = G, is worth nothing.

    A premise is used here for its values alone, at the theta that the statement speaks of.
    """
    context, assumed = statement.context, Assumed()
    refuse_unless(isinstance(data["premises"], list), "premises: a list expected")
    for row in data["premises"]:
        refuse_unless(isinstance(row, dict) and set(row) == {"number", "times"}, "premises: number and times")
        number = row["number"]
        refuse_unless(type(number) is int and 0 <= number < len(context.premises), "no such premise")
        left, right = context.premises[number]
        times, added = _means(row["times"], context)
        gap, assumed = gap - (left - right).times(times), assumed | added | {("equal", number)}
    worth, added = evaluated(gap, context)
    if worth.terms:
        raise Refused(f"the two sides differ: what is left of right - left is {worth.to_json()}")
    return assumed | added


def _means(data: Any, context: Context) -> tuple[Side, Assumed]:
    """Constants and means that exist: what a premise may be multiplied by."""
    side = Side.from_json(data)
    atoms = {atom for _, factors in side.terms for atom in factors}
    for element, slots in slotted(side):
        context.check(element, slots)
    constant = all(context.is_constant(coefficient) for coefficient, _ in side.terms)
    refuse_unless(
        constant and all(isinstance(atom, E | Indexed) for atom in atoms),
        "times: constants and means expected",
    )
    moments = {("moment", a) for a in atoms if isinstance(a, E | Indexed) and a.measure != SAMPLE}
    return side, moments | divisors(context, *elements(side))


def divisors(context: Context, *found: ExpPoly) -> Assumed:
    """The parameters in denominators, which must not be zero."""
    inverted = {name for element in found for name in element.inverted()}
    return {("nonzero", name) for name in inverted & set(context.parameters)}


def evaluation(left: Side, right: Side, data: Data, statement: Statement) -> Assumed:
    """left = right once both are evaluated."""
    refuse_unless(statement.relation == "=", "evaluation closes an equation")
    return vanishes(right - left, data, statement)
