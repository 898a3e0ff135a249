"""Values of the names that a context defines: 1 where e > 0 and 0 elsewhere (a region), log(e), e (let), or
E_m[e] of single samples, which is one number that moves with theta.

Signs are found with fifty digits, so that e = 0 is told from an e that is small.  Where a density of which e
speaks is 0, or e has no value, a region is 0 or 1 and other names any number; so is a log where e <= 0.  The
world chooses one for each outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from klsym.kernel.ring import ExpPoly

from .numbers import LONG, Jet, Undefined, is_plain, log
from .terms import VALUE, Mode, Term, Variable, terms_of
from .worlds import MEASURES

REGION, LOG, LET = "region", "log", "let"
MEANS = {"E_q": "q", "E_p": "p", "E_mu": "mu"}
TINY = LONG.mpf(10) ** -35  # a sum of numbers of fifty digits that is smaller is 0
Terms = tuple[Term, ...]


class Kink(Undefined):
    """A name has no derivative: e = 0, and e moves."""


# ---------------------------------------------------------------------------- names
def kind_of(oracle: Any, variable: Variable) -> str:
    """Region, log, let, a mean, or nothing for what is not defined."""
    return str(oracle.world.definitions.get(variable.base, ("",))[0])


def defined_value(oracle: Any, variable: Variable, place: Any, axes: str) -> Any:
    """The value of a defined name at a place, with derivatives along axes; those of a region are 0."""
    if kind_of(oracle, variable) in MEANS:
        return _mean(oracle, variable, axes)
    terms = _terms_at(oracle, variable)
    sign = sign_of(oracle, terms, place)
    if kind_of(oracle, variable) == REGION:
        positive = _chosen(oracle, variable, place) > 0 if sign is None else sign > 0
        return oracle.of(Fraction(int(positive)))
    is_log = kind_of(oracle, variable) == LOG
    if sign is None or (is_log and sign <= 0):
        return oracle.of(_chosen(oracle, variable, place))
    value = _total(oracle, terms, place, Mode(live=axes))
    return log(value) if is_log else value


def _mean(oracle: Any, variable: Variable, axes: str) -> Any:
    """The mean that a name stands for, moved along axes with all that it holds and the measure q."""
    kind, e = oracle.world.definitions[variable.base]
    measure, key = MEANS[kind], ("mean", variable.base, axes)
    if key not in oracle.named:
        mode = Mode(live=axes, measure=axes if measure == "q" else "", threshold=len(axes.strip(".")))
        oracle.named[key] = oracle.mean("", measure, e, (), mode)
    return oracle.named[key]


def refuse_kinks(oracle: Any, variable: Variable, place: Any, axes: str, regions: bool) -> None:
    """Raise Kink where a name, or one that defines it, has no derivative along axes.

    regions: theirs count, as they do unless they are held constant.
    """
    kind = kind_of(oracle, variable)
    if kind in MEANS or (kind == REGION and not regions):
        return  # of a mean they are refused where it is taken
    terms = _terms_at(oracle, variable)
    for inner in (v for v in _variables(terms) if kind_of(oracle, v)):
        refuse_kinks(oracle, inner, place, axes, regions)
    if kind_of(oracle, variable) != LET and sign_of(oracle, terms, place) == 0:
        slope = _total(oracle.long, terms, _long(place), Mode(live=axes))
        parts = (slope.a, slope.b, slope.ab) if isinstance(slope, Jet) else ()
        if any(abs(part) > TINY for part in parts):
            raise Kink(variable.base)


def plain_variables(oracle: Any, *variables: Variable) -> Iterator[Variable]:
    """What variables stand for in the end at a sample: variables that are not defined; a mean has none."""
    for variable in variables:
        if kind_of(oracle, variable) in MEANS:
            continue
        if kind_of(oracle, variable):
            yield from plain_variables(oracle, *_variables(_terms_at(oracle, variable)))
        else:
            yield variable


def _chosen(oracle: Any, variable: Variable, place: Any) -> Fraction:
    """A number of the world's choice, the same wherever the same is known."""
    slots = sorted({v.slot for v in plain_variables(oracle, variable)})
    known = tuple((place.known.get(slot), place.slots.get(slot)) for slot in slots)
    number: Fraction = oracle.world.free_value((variable.base, known))
    return number


# ---------------------------------------------------------------------------- hypotheses
def signs(oracle: Any, measure: str, e: ExpPoly) -> Iterator[Any]:
    """e wherever a measure has mass, at the index of the slots that e names; None where it has no value."""
    terms = terms_of(e, oracle.names)
    slots = {v.slot for v in plain_variables(oracle, *_variables(terms))}
    step, sample = not slots.isdisjoint(("past", "now", "future")), not slots.isdisjoint(("self", "others"))
    pair = not slots.isdisjoint(("other", "rest"))
    index = "ij" if pair else "i" * sample + "t" * step
    for batch, at in oracle.batches(index, measure):
        if measure not in MEASURES or all(step.density(measure) for path in batch for step in path):
            yield from (sign_of(oracle, terms, place) for place in at)


# ---------------------------------------------------------------------------- e
def sign_of(oracle: Any, terms: Terms, place: Any) -> Any:
    """e as a number of fifty digits, exactly 0 where it is 0; None where it has no value."""
    key = "sign", terms
    if key not in place.cache:
        place.cache[key] = None
        if _has_densities(oracle, terms, place):
            place.cache[key] = _exact(oracle.long, terms, _long(place))
    return place.cache[key]


def _exact(oracle: Any, terms: Terms, place: Any) -> Any:
    try:
        value = _total(oracle, terms, place, VALUE)
    except (Undefined, ZeroDivisionError):
        return None
    if not is_plain(value):
        return None
    return value if abs(value) > TINY else LONG.mpf(0)


def _long(place: Any) -> Any:
    """The same place, for values of fifty digits."""
    return replace(place, cache=place.cache.setdefault("long", {}))


def _total(oracle: Any, terms: Terms, place: Any, mode: Mode) -> Any:
    total = oracle.of(Fraction(0))
    for term in terms:
        total = total + oracle.product(term, place, mode)
    return total


def _terms_at(oracle: Any, variable: Variable) -> Terms:
    """The terms of e, spoken of the slot of the name."""
    _, e = oracle.world.definitions[variable.base]

    def at(v: Variable) -> Variable:
        return replace(v, slot=variable.slot) if v.slot == "x" else v

    def inside(factors: Any) -> Any:
        return tuple((at(v), power) for v, power in factors)

    return tuple(
        replace(
            term,
            factors=inside(term.factors),
            lines=tuple((scale, constants, at(v)) for scale, constants, v in term.lines),
            wild=tuple((scale, constants, inside(f)) for scale, constants, f in term.wild),
        )
        for term in terms_of(e, oracle.names)
    )


def _variables(terms: Terms) -> Iterator[Variable]:
    for term in terms:
        yield from (v for v, _ in term.factors)
        yield from (v for _, _, v in term.lines)
        yield from (v for _, _, factors in term.wild for v, _ in factors)


def _has_densities(oracle: Any, terms: Terms, place: Any) -> bool:
    """Is each density positive of which e speaks, in the slot in which it does?"""
    plain = list(plain_variables(oracle, *_variables(terms))) if place.zeros else ()
    return not any(
        v.slot in slots and oracle.speaks_of(v, density)
        for step, slots in place.zeros
        for density in step.zeros
        for v in plain
    )
