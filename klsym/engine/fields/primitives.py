"""Primitives of score coefficients: they give the objective of an expected gradient.  Untrusted.

E_mu[h s] = grad E_mu[H]  with dH/dlog q = h         E_q[c s] = grad E_q[F]  with F + dF/dlog q = c
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from klsym.kernel.names import LOG_RATIOS, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Key
from klsym.kernel.slots import name_in_slot
from klsym.language.defined import OF_LOGS

WEIGHT = ExpPoly.from_variable("w").exp()
MAX_PRIMITIVE_TERMS = 40  # of what a primitive is looked for


def select_constant_terms(value: ExpPoly, regions: Iterable[str] = ()) -> ExpPoly:
    """Return the terms that are the same at every sample; regions: further names that vary."""
    terms, random = (ExpPoly({key: number}) for key, number in value.terms.items()), {*SAMPLE_BASES, *regions}
    return sum((t for t in terms if not {parse_name(n).base for n in t.names()} & random), ZERO)


def is_multiple(key: Key, name: str) -> bool:
    """Is it a constant times the quantity of this name?"""
    monomial, exponent = key
    random = [item for item in monomial if parse_name(item[0]).base in SAMPLE_BASES]
    return random == [(name, 1)] and not any(m for m, _ in exponent)


def find_primitive(h: ExpPoly, slot: str) -> ExpPoly | None:
    """Return L with dL/dlog q = h at a slot; None if h depends on theta in other slots too, or no L is found.

    >>> find_primitive(ExpPoly.from_variable("k1"), "x") == ExpPoly.from_variable("k1") ** 2 * Fraction(1, 2)
    True
    """
    total = ZERO
    for key, value in h.terms.items():
        integral = _integrate_term(ExpPoly({key: value}), slot)
        if integral is None:
            return None
        total = total + integral
    return total


def find_objective_under(c: ExpPoly, measure: str) -> ExpPoly | None:
    """Return F with grad E_m[F] = E_m[c s]: under q, F + dF/dlog q = c, so that F q is a primitive of c q.

    >>> k1 = ExpPoly.from_variable("k1")
    >>> find_objective_under(k1, "q") == k1 - 1, find_objective_under(k1, "mu") == k1**2 * Fraction(1, 2)
    (True, True)
    """
    density = ExpPoly.from_variable("log_q").exp() if measure == "q" else ONE
    integral = find_primitive(c * density, "x")
    return None if integral is None else integral * density.invert()


def _integrate_term(term: ExpPoly, slot: str) -> ExpPoly | None:
    """Integrate one term m e: m e/b - (1/b) int (dm) e for e = exp(..) of slope b.

    Where b is 0, by parts: for m = x^a y it is x^(a + 1)/(a + 1) y - int x^(a + 1)/(a + 1) (dy).
    """
    log_ratios = {name_in_slot(base, slot) for base in LOG_RATIOS}
    [((monomial, exponent), value)] = term.terms.items()
    powers = [(name, power) for name, power in monomial if depends_on_theta(name)]
    slope = _find_exponent_slope(exponent, log_ratios)
    if slope is None or len(slope.terms) > 1:  # 1/b is an element for a single term
        return None
    if not {name for name, _ in powers} <= log_ratios or any(power < 0 for _, power in powers):
        return None
    inside = {m for m, _ in exponent}
    k1_name = name_in_slot("k1", slot)
    name, power = (
        powers[0] if powers else (k1_name if ((k1_name, 1),) in inside else name_in_slot("log_q", slot), 0)
    )
    integrated_names = () if slope else (name,)
    derivative = ExpPoly({(monomial, ()): value}).derive(
        lambda variable: ONE if variable in log_ratios and variable not in integrated_names else ZERO
    )
    scale = slope.invert() if slope else ExpPoly.from_variable(name) * Fraction(1, power + 1)
    remainder = find_primitive(derivative * ExpPoly({((), exponent): 1}) * scale, slot)
    return None if remainder is None else term * scale - remainder


def _find_exponent_slope(exponent: Exponent, log_ratios: set[str]) -> ExpPoly | None:
    """Return the slope of an exponent linear in the log ratios, with constant factors; None for any other."""
    total = ZERO
    for monomial, value in exponent:
        inside = [(name, power) for name, power in monomial if depends_on_theta(name)]
        if any(name not in log_ratios or power != 1 for name, power in inside) or len(inside) > 1:
            return None
        if inside:
            factors = tuple(item for item in monomial if item not in inside)
            total = total + ExpPoly({(factors, ()): value})
    return total


def depends_on_theta(name: str) -> bool:
    """Is it an attached log ratio, or an attached log of what depends on theta?"""
    parsed = parse_name(name)
    return (parsed.base in LOG_RATIOS or parsed.base.startswith(OF_LOGS)) and not parsed.detached


def has_slope(e: ExpPoly) -> bool:
    """Does an element have a gradient at a given sample?  log p - log mu, of two log ratios of q, has none.

    >>> names = [ExpPoly.from_variable(name) for name in ("k1", "w", "w[now]")]
    >>> has_slope(names[0] - names[1]), has_slope(names[0] - names[2]), has_slope(2 * names[1] - names[0])
    (False, True, True)
    """
    slots = {parse_name(name).slot for name in e.names() if depends_on_theta(name)}

    def differentiate(name: str, slot: str) -> ExpPoly:
        return ONE if depends_on_theta(name) and parse_name(name).slot == slot else ZERO

    return any(e.derive(lambda name, slot=slot: differentiate(name, slot)) for slot in slots)  # type: ignore[misc]


def substitute_detached_on_policy(h: ExpPoly) -> ExpPoly:
    """Return h with the detached log q - log mu set to 0, its value on-policy; the attached one stays."""
    return h.substitute({x: ZERO for x in h.names() if parse_name(x).base == "w" and parse_name(x).detached})
