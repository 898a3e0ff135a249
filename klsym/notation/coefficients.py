"""Coefficients as trees: exponential polynomials as formulas in k1, r, rho, rho_old.  Standard library only.

>>> from klsym.kernel.ring import ExpPoly
>>> k1 = ExpPoly.from_variable("k1")
>>> show_element((-k1).exp() - 1 + k1), show_element(ExpPoly.from_variable("w").exp() * k1)
('k1 + r - 1', 'rho*k1')
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, Exponent, ExpPoly, Monomial
from klsym.kernel.ring import Number as Rational
from klsym.language.defined import LOG, OF_EXPECTATIONS, OF_LOGS, find_definition
from klsym.notation.positions import SLOT_ORDER, build_in_slot
from klsym.notation.printers import TEXT, Text
from klsym.notation.tree import (
    Call,
    Formula,
    Minus,
    Number,
    Power,
    Quotient,
    add_terms,
    build_number,
    is_long_decimal,
    is_open,
    multiply,
)  # fmt: skip

RATIOS = {"k1": "r", "w": "rho", "o": "rho_old"}  # what exp(-k1), exp(w), exp(o) are called
WEIGHTS = ("w", "o")

Factors = list[Formula]


def show_element(value: ExpPoly, spell: Text = TEXT) -> str:
    """Return an exponential polynomial as a formula; its text is in the loss grammar."""
    return spell(build_coefficient(value, spell.positions))


def show_variable(name: str, spell: Text) -> str:
    return spell(build_letter(name, spell.positions))


@lru_cache(maxsize=4096)
def build_coefficient(value: ExpPoly, sums: bool = False, *tail: Formula) -> Formula:
    """Build the tree of an element.

    sums: variables of slots as sums over positions, else by name.  tail: factors that follow, such as the
    score function.
    """
    if not value:
        return Number(0)
    factorisation = find_common_factor(value)
    if factorisation:
        common, cofactor = factorisation
        return _build_term(*common, 1, sums, (_build_sum(cofactor, sums), *tail))
    if len(value.terms) == 1:
        [((monomial, exponent), scale)] = value.terms.items()
        return _build_term(monomial, exponent, value=scale, sums=sums, tail=tail)
    return multiply(_build_sum(value, sums), *tail) if tail else _build_sum(value, sums)


def _build_sum(value: ExpPoly, sums: bool) -> Formula:
    rows = sorted(value.terms.items(), key=_get_display_order)
    if rows[0][1] < 0:  # a positive term first, if there is one
        rows.sort(key=lambda row: row[1] < 0)
    return add_terms(*(_build_term(monomial, exponent, scale, sums) for (monomial, exponent), scale in rows))


def _get_display_order(row: tuple[tuple[Monomial, Exponent], Rational]) -> tuple[Any, ...]:
    """Return the key that sorts by falling degree, then exponentials, then constants over samples."""
    (monomial, exponent), _ = row
    sample = [(_get_slot_order(n), p) for n, p in monomial if not _is_parameter(n)]
    constant = not sample and not any(not _is_parameter(n) for m, _ in exponent for n, _ in m)
    degree = -sum(p for _, p in sample or monomial)
    return (constant, bool(exponent), degree, sample, exponent, monomial)


class SlotOrder(NamedTuple):
    """The key of a name that sorts past before now before future, self before others."""

    name_without_slot: str
    place: int
    slot: str


def _get_slot_order(name: str) -> SlotOrder:
    slot = parse_name(name).slot
    head, _, tail = name.partition("[")
    place = SLOT_ORDER.index(slot) if slot in SLOT_ORDER else -1
    return SlotOrder(head + tail.partition("]")[2], place, slot)


def find_common_factor(value: ExpPoly) -> tuple[tuple[Monomial, Exponent], ExpPoly] | None:
    """Return the weights and parameters that all terms share, such as rho in rho*(k1 + 1), and the rest."""
    if len(value.terms) < 2:
        return None
    powers = [dict(m) for m, _ in value.terms]
    exponents = [dict(e) for _, e in value.terms]
    monomial = tuple(
        (n, min(p.get(n, 0) for p in powers))
        for n in sorted(powers[0])
        if _is_parameter(n) and all(p.get(n, 0) > 0 for p in powers)
    ) + (("length", -1),) * all(p.get("length", 0) < 0 for p in powers)
    shared = tuple(
        (m, v)
        for m, v in sorted(exponents[0].items())
        if all(e.get(m) == v for e in exponents) and any(parse_name(n).base in WEIGHTS for n, _ in m)
    )
    if not monomial and not shared:
        return None
    factor = ExpPoly({(monomial, shared): 1})
    return (monomial, shared), value * factor.invert()


def _build_term(
    monomial: Monomial, exponent: Exponent, value: Rational, sums: bool, tail: tuple[Formula, ...] = ()
) -> Formula:
    """Build a term: numbers, parameters, weights and other factors, over a denominator."""
    over = sorted(((n, p) for n, p in monomial if p > 0), key=lambda row: _get_slot_order(row[0]))
    weights, below = _split_exponential(exponent, sums)
    lead = [_build_power(n, p, sums) for n, p in over if _is_parameter(n)]
    factors = [*weights, *(_build_power(n, p, sums) for n, p in over if not _is_parameter(n)), *tail]
    bottom = [_build_power(n, -p, sums) for n, p in monomial if p < 0] + below
    size = -value if value < 0 else value
    if size.denominator != 1 and not is_long_decimal(size) and (lead or factors or bottom):
        bottom.insert(0, Number(size.denominator))
        size = size.numerator
    if size != 1 or not (lead or factors):
        lead.insert(0, build_number(size))
    whole = _divide_product(lead, factors, bottom, small=not below)
    return Minus(whole) if value < 0 else whole


def _divide_product(lead: Factors, factors: Factors, bottom: Factors, small: bool) -> Formula:
    """Build a product over a denominator; sums over positions stay outside of it: (b/2m) sum_j k_j."""
    if not bottom:
        return multiply(*lead, *factors)
    if any(map(is_open, factors)):
        return multiply(Quotient(multiply(*lead), multiply(*bottom), small), *factors)
    return Quotient(multiply(*lead, *factors), multiply(*bottom))


def _is_parameter(name: str) -> bool:
    base = parse_name(name).base
    return base not in SAMPLE_BASES and not base.startswith(OF_LOGS)


def _build_power(name: str, power: int, sums: bool) -> Formula:
    base = build_letter(name, sums)
    return base if power == 1 else Power(base, build_number(power))


@lru_cache(maxsize=1024)
def build_letter(name: str, sums: bool = False) -> Formula:
    """Build a sample variable; w and o, which the grammar does not name, are logs of ratios."""
    parsed = parse_name(name)
    if (definition := find_definition(name)) is not None:
        kind, e = definition
        shown = _build_with_k3(e, sums)
        functions = {LOG: "log", OF_EXPECTATIONS: "full"}
        inner: Formula = Call(functions[kind], (shown,)) if kind in functions else shown
    elif parsed.base in WEIGHTS:
        inner = Call("log", (build_in_slot(RATIOS[parsed.base], parsed.slot, sums, ratio=True),))
    else:
        inner = build_in_slot(parsed.base, parsed.slot, sums, parsed.primes)
    return Call("sg", (inner,)) if parsed.detached else inner


def _split_exponential(exponent: Exponent, sums: bool) -> tuple[Factors, Factors]:
    """Split exp(Q) into powers of rho and r, and exp of the remainder: (numerator, denominator)."""
    ratios: dict[str, list[tuple[Monomial, Rational]]] = {}
    remaining: dict[Monomial, Rational] = {}
    for monomial, value in exponent:
        name = next((n for n, p in monomial if p == 1 and parse_name(n).base in RATIOS), None)
        if name is None:
            remaining[monomial] = value
            continue
        others = tuple(item for item in monomial if item[0] != name)
        ratios.setdefault(name, []).append((others, -value if parse_name(name).base == "k1" else value))
    above: Factors = []
    below: Factors = []
    for monomial in [m for m in remaining if _is_log(m)]:
        value = remaining.pop(monomial)
        inside = _build_power_of_log(monomial[0][0], -value if value < 0 else value, sums)
        (below if value < 0 else above).append(inside)
    for name in sorted(ratios, reverse=True):  # rho before r
        [*_, (monomial, value)] = ratios[name]
        inverted = len(ratios[name]) == 1 and not monomial and value < 0
        power = [(m, -v) for m, v in ratios[name]] if inverted else ratios[name]
        (below if inverted else above).append(_build_ratio_power(name, power, sums))
    if remaining:
        inner = ExpPoly({(m, ()): v for m, v in remaining.items()})
        above.append(Call("exp", (build_coefficient(inner, sums),)))
    return above, below


def _is_log(monomial: Monomial) -> bool:
    """Is it the name of a log, so that exp of a multiple is a power?"""
    definition = find_definition(monomial[0][0]) if len(monomial) == 1 and monomial[0][1] == 1 else None
    return definition is not None and definition[0] == LOG


def _build_with_k3(e: ExpPoly, sums: bool) -> Formula:
    """Build an element with c k3 for c (r + k1 - 1), which shows that it is positive."""
    for name in sorted(n for n in e.names() if parse_name(n).base == "k1"):
        x = ExpPoly.from_variable(name)
        [key], [line] = (-x).exp().terms, x.terms
        scale = e.terms.get(key, 0)
        if scale > 0 and e.terms.get(line, 0) == scale:
            remainder = e - scale * ((-x).exp() - 1 + x)
            k3 = build_in_slot("k3", parse_name(name).slot, sums)
            three = k3 if scale == 1 else multiply(build_number(scale), k3)
            return add_terms(three, build_coefficient(remainder, sums)) if remainder else three
    return build_coefficient(e, sums)


def _build_power_of_log(name: str, power: Rational, sums: bool) -> Formula:
    """Build exp(a log(e)) as e^a."""
    definition = find_definition(name)
    assert definition is not None
    base = _build_with_k3(definition[1], sums)
    whole, half = divmod(Fraction(power), 1)
    shown: list[Formula] = (
        [] if not whole else [base if whole == 1 else Power(base, build_number(int(whole)))]
    )
    if half == Fraction(1, 2):
        shown.append(Call("sqrt", (base,)))
    elif half:
        shown = [Power(base, build_number(power))]
    inner = multiply(*shown)
    return Call("sg", (inner,)) if parse_name(name).detached else inner


def _build_ratio_power(name: str, power: list[tuple[Monomial, Rational]], sums: bool) -> Formula:
    parsed = parse_name(name)
    base = build_in_slot(RATIOS[parsed.base], parsed.slot, sums, ratio=True)
    if parsed.detached:
        base = Call("sg", (base,))
    exponent = ExpPoly({(m, ()): v for m, v in power})
    return base if exponent == ONE else Power(base, build_coefficient(exponent, sums))
