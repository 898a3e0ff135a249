"""Derivatives and detached copies, and the slots of a coefficient.  Trusted; standard library only."""

from __future__ import annotations

from functools import lru_cache

from klsym.kernel.assumptions import refuse_unless
from klsym.kernel.names import LOG_RATIOS, THETA_FREE, attach_name, parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Monomial
from klsym.kernel.slots import SINGLE, SLOTS, at_slot
from klsym.kernel.statements import LOG, REGION, Context


@lru_cache(maxsize=4096)
def derivative_of_name(name: str) -> ExpPoly:
    """d/d log q of a sample variable: 1 for k1, w, log q; f' for f; 0 for what is detached or theta-free."""
    parsed = parse_name(name)
    if parsed.detached or parsed.base in THETA_FREE:
        return ZERO
    if parsed.base in LOG_RATIOS:
        return ONE
    return ExpPoly.variable(name.replace("[", "'[") if "[" in name else name + "'")


def slopes(loss: ExpPoly, index: str, context: Context) -> dict[str, ExpPoly]:
    """grad L = sum_z c_z s_z: the coefficient of the score function of each slot, sg(.) held constant.

    Regions are held constant too; for l = log(e), dl = exp(-l) de, and for v = e, dv = de.
    """

    def slope(name: str, slot: str) -> ExpPoly:
        if (e := context.defined(name)) is not None:
            if parse_name(name).detached or context.defined(name, REGION) is not None:
                return ZERO
            scale = (-ExpPoly.variable(name)).exp() if context.defined(name, LOG) is not None else ONE
            return scale * e.derive(lambda n: slope(n, slot))
        if name in context.parameters or parse_name(name).slot != slot:
            return ZERO
        found = derivative_of_name(name)
        one = slot in SINGLE or not found.names()
        refuse_unless(one, f"{name} is a sum over positions: its gradient is no multiple of their scores")
        return found

    found = {z: loss.derive(lambda name, z=z: slope(name, z)) for z in SLOTS[index]}  # type: ignore[misc]
    return {z: c for z, c in found.items() if c}


def is_live(element: ExpPoly, context: Context) -> bool:
    """Does the element depend on theta at a given sample, be it by jumps?"""
    return any(_moves(name, context) for name in element.names())


def _moves(name: str, context: Context) -> bool:
    """Does a variable depend on theta: it, or what defines it, along the scores of any slot?"""
    if not context.is_sample(name) or parse_name(name).detached:
        return False
    if (e := context.defined(name)) is None:
        return bool(derivative_of_name(name))

    def along(n: str, slot: str) -> ExpPoly:
        plain = context.defined(n) is None and context.slots_of(n) == {slot}
        return derivative_of_name(n) if plain else ZERO

    found = ((inner, z) for inner in context.within(e) for z in context.speaks_of(inner))
    return any(inner.derive(lambda n, z=z: along(n, z)) for inner, z in found)  # type: ignore[misc]


def moving(element: ExpPoly, context: Context, *kinds: str) -> set[str]:
    """The names defined as one of these kinds that theta moves, those in what defines others included."""
    live = (ExpPoly.variable(name) for name in element.names() if not parse_name(name).detached)
    names = {name for e in context.within(*live, kinds=kinds) for name in e.names()}
    return {name for name in names if context.defined(name, *kinds) is not None and _moves(name, context)}


def attach(element: ExpPoly) -> ExpPoly:
    """The value of a coefficient: sg(x) is x."""
    return element.rename(attach_name)


# ---------------------------------------------------------------------------- slots
def in_slot(element: ExpPoly, slot: str, context: Context) -> ExpPoly:
    """A one-sample coefficient, spoken of a slot."""
    return element.rename(lambda n: at_slot(n, slot) if context.is_sample(n) else n)


def mentioned(element: ExpPoly, context: Context) -> set[str]:
    """The slots that a coefficient speaks of."""
    return set(context.speaks_of(element))


def sample_part(monomial: Monomial, exponent: Exponent, context: Context) -> ExpPoly:
    """The factor of a term that changes from sample to sample."""
    powers = tuple((n, p) for n, p in monomial if context.is_sample(n))
    inside = tuple((m, v) for m, v in exponent if any(context.is_sample(n) for n, _ in m))
    return ExpPoly({(powers, inside): 1})
