"""What definitions say: regions, which are 1 where e > 0 and 0 elsewhere, logs, and names.  Trusted.

A region is 0 or 1 at every sample, so that B^2 = B.  In a cell, a choice of 0 or 1 for some regions, e > 0 or
-e >= 0 for each.  If rows that are at least 0 there add up to -x^2, then x = 0 in the cell; if they add up to
0 and one is positive, then no sample is in it.  Either way the product P of the cell has P x = 0.

    row    w e..e f..f b^2 (exp(u) - 1 - u)     w > 0, e as in the cell, f facts, the last if u is given

Differentiated, a region is constant.  That is its slope as long as e is not 0: what crosses e = 0 as theta
moves is continuous there (it changes by g e), or the theorem assumes that nothing crosses.  The terms of a
Lipschitz mean that meet no kink have a derivative, and dominated convergence holds for their quotients.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from klsym.errors import Refused
from klsym.kernel.assumptions import Assumptions, Data, refuse_unless
from klsym.kernel.closings import assume_positive
from klsym.kernel.definitions import LET, LOG, REGION
from klsym.kernel.densities import POWERS
from klsym.kernel.derivatives import list_moving_names
from klsym.kernel.names import SAMPLE, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import LENGTHS, SLOTS
from klsym.kernel.statements import Context, Field, Mean, Side

ROW = {"weight", "factors", "square", "tangent"}


def reduce_powers(element: ExpPoly, context: Context) -> ExpPoly:
    """Return an element with B for B^n."""
    regions = {name for name in element.names() if context.find_definition(name, REGION) is not None}
    total: dict[Any, Any] = {}
    for (monomial, exponent), value in element.terms.items():
        powers = tuple((n, 1 if n in regions else p) for n, p in monomial)
        total[powers, exponent] = total.get((powers, exponent), 0) + value
    return ExpPoly(total)


def apply_region(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """E_m[a s..s] = E_m[(a - b P x) s..s], where P x = 0 at every sample, and B^2 = B.

    apart: regions of the cell that are 0 there, with e < 0: no sample lies where e = 0.
    """
    context, slots, cell, apart = assumed.context, SLOTS[mean.index], data["cell"], data["apart"]
    x, b = (assumed.read(data[key], slots) for key in ("of", "times"))
    bounds, product = dict[str | int, ExpPoly](enumerate(context.facts)), b * x
    for name, value in cell.items():
        indicator, e = ExpPoly.from_variable(name), context.find_definition(name, REGION)
        context.check(indicator, slots)
        refuse_unless(e is not None and value in (0, 1), "cell: 0 or 1 expected for each of some regions")
        assert e is not None
        product = product * (indicator if value else 1 - indicator)
        bounds[name] = e if value else -e
    fitting = all(cell.get(name) == 0 for name in apart)
    refuse_unless(fitting, "apart: regions that are 0 in the cell expected")
    values = {name: ExpPoly.from_number(value) for name, value in cell.items()}
    strict = {name for name, value in cell.items() if value or name in apart}
    rows = [_read_row(row, known=bounds, strict=strict, mean=mean, assumed=assumed) for row in data["rows"]]
    total, inside = (
        reduce_powers(e.substitute(values), context) for e in (sum((r for r, _ in rows), ZERO), x)
    )
    empty = total == ZERO and any(positive for _, positive in rows)
    is_shown = empty or total + inside * inside == ZERO or not b
    refuse_unless(is_shown, "the rows do not add up to -x^2, or to 0 with one positive")
    for name in apart:
        assumed.add("away", mean.measure, context.find_definition(name))
    _assume_values(mean, (*(bounds[name] for name in cell), x, b), assumed)
    return Side.from_atom(replace(mean, coefficient=reduce_powers(mean.coefficient - product, context)))


def _read_row(
    row: Any, known: Mapping[str | int, ExpPoly], strict: set[str], mean: Mean, assumed: Assumptions
) -> tuple[ExpPoly, bool]:
    """Return what is at least 0 in the cell, and whether it is positive there, as its factors tell."""
    refuse_unless(set(row) == ROW, f"rows: the keys {sorted(ROW)} expected")
    slots, factors = SLOTS[mean.index], row["factors"]
    weight, square, tangent = (assumed.read(row[key], slots) for key in ("weight", "square", "tangent"))
    assume_positive(weight, assumed)
    _assume_values(mean, (weight, square, tangent), assumed)
    value = weight * square * square * (tangent.exp() - 1 - tangent if tangent else ONE)
    for factor in factors:
        refuse_unless(
            factor in known, f"rows: {str(factor)[:20]!r} is neither a region of the cell nor a fact"
        )
        value = value * known[factor]
        if isinstance(factor, int):
            assumed.context.check(known[factor], slots)
            assumed.add("fact", known[factor])
    return value, square == ONE and not tangent and strict.issuperset(factors)


def apply_definition(mean: Mean, data: Data, assumed: Assumptions) -> Side:
    """Replace b times a name by b times what it stands for.

    l = log(e)    E_m[a s..s] = E_m[(a - b (e exp(-l) - 1)) s..s], where every sample has e > 0
    v = e         E_m[a s..s] = E_m[(a - b (v - e)) s..s]
    v = E         E_m[a s..s] = E_m[(a - b v) s..s] + E E_m[b s..s], E an expectation
    """
    name, slots = data["name"], SLOTS[mean.index]
    b, e = assumed.read(data["times"], slots), assumed.context.find_definition(name, LOG, LET)
    named = assumed.context.find_mean(name)
    if named is None and e is None:
        raise Refused(f"{str(name)[:20]!r} is no name of a log, an element or an expectation")
    variable, is_log = ExpPoly.from_variable(name), assumed.context.find_definition(name, LOG) is not None
    assumed.context.check(variable, slots)
    if named is not None:
        changed = mean.coefficient - b * variable
        parts = replace(mean, coefficient=changed), replace(mean, coefficient=b)
        assumed.assume_existence(*(part for part in parts if part.coefficient))
        return Side.combine((1, parts[:1]), (1, (named, parts[1])))
    assert e is not None
    if is_log:
        _assume_above(mean.measure, e, assumed)
    _assume_values(mean, (e, b), assumed)
    x = (-variable).exp() * e - 1 if is_log else variable - e
    return Side.from_atom(replace(mean, coefficient=mean.coefficient - b * x))


def _assume_above(measure: str, e: ExpPoly, assumed: Assumptions) -> None:
    """Assume e > 0 at every sample; that is so for c_1 x^2i .. exp(..) + .. where c > 0, in one term x^0."""
    terms = [(monomial, value) for (monomial, _), value in e.terms.items()]
    evident = all(value > 0 and all(power % 2 == 0 for _, power in powers) for powers, value in terms)
    if not evident or all(powers for powers, _ in terms):
        assumed.add("above", measure, e)


def _assume_values(mean: Mean, elements: Iterable[ExpPoly], assumed: Assumptions) -> None:
    """Assume that what is compared has a value: m << d for each density d in it, T > 0 where T divides."""
    context = assumed.context
    elements_within = [*context.walk_definitions(*elements)]
    bases = {parse_name(name).base for e in elements_within for name in e.names() - set(context.parameters)}
    bases |= {argument for base in bases for argument in context.function_arguments.get(base, ())}
    for density in {d for base in bases for d in POWERS.get(base, ())} if mean.measure != SAMPLE else ():
        assumed.assume_support(mean.measure, density)
    if any(e.collect_divisors() & LENGTHS for e in elements_within):
        assumed.add("nonzero", "length")


# ---------------------------------------------------------------------------- gradients of means
def assume_slopes(field: Field, assumed: Assumptions) -> None:
    """Assume e > 0 wherever log(e) is differentiated, also inside names v = e and inside other logs."""
    for name in list_moving_names(field.loss, assumed.context, LOG, LET):
        if (e := assumed.context.find_definition(name, LOG)) is not None:
            _assume_above(field.measure, e, assumed)


def assume_crossings(mean: Mean, jumps: Any, assumed: Assumptions) -> None:
    """Assume what grad E_m[a] needs: a dominated derivative, or Lipschitz terms and none at e = 0.

    Where a region jumps, no sample may lie on its bound at any theta nearby; where it does not, as those of
    `jumps`, at this theta.  An e that does not move at a sample, such as one of the tokens after the last, is
    left out.  Where log(e) moves, e > 0.
    """
    context = assumed.context
    moving_names, regions = (
        list_moving_names(mean.coefficient, context),
        list_moving_regions(mean.coefficient, context),
    )
    refuse_unless(set(jumps) <= regions, "jumps: regions that move with theta expected")
    if mean.measure != SAMPLE:
        assumed.assume_exchange(mean, "lipschitz" if regions else "exchange")
    for name in moving_names:
        if name in jumps:
            _refuse_jump(mean, name, assumed.read(jumps[name], SLOTS[mean.index]), context)
        e = context.find_definition(name) or ZERO
        if name in regions:
            assumed.add("off" if name in jumps else "apart", mean.measure, e)
        elif context.find_definition(name, LOG) is not None:
            _assume_above(mean.measure, e, assumed)


def list_moving_regions(element: ExpPoly, context: Context) -> set[str]:
    """Return the regions that theta moves, those in what defines others included."""
    return {
        name
        for name in list_moving_names(element, context)
        if context.find_definition(name, REGION) is not None
    }


def _refuse_jump(mean: Mean, name: str, g: ExpPoly, context: Context) -> None:
    """Refuse unless a changes by g e where the region does, and nothing else is defined by one that moves."""
    a, e = mean.coefficient, context.find_definition(name)
    assert e is not None
    nested = any(list_moving_regions(context.find_definition(n) or ZERO, context) for n in a.names())
    refuse_unless(not nested, "jumps: what regions define moves with them")
    up, down = (a.substitute({name: ExpPoly.from_number(value)}) for value in (1, 0))
    continuous = reduce_powers(up - down - g * e, context) == ZERO
    refuse_unless(continuous, f"jumps: where {name} changes, the coefficient does not change by its multiple")
