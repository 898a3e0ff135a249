"""Derivatives and detached copies, and the slots of a coefficient.  Trusted; standard library only."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from klsym.kernel.assumptions import refuse_unless
from klsym.kernel.definitions import LOG, REGION
from klsym.kernel.names import LOG_RATIOS, THETA_FREE, attach_name, parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Monomial
from klsym.kernel.slots import SINGLE, SLOTS, name_in_slot
from klsym.kernel.statements import Context, Mean


@lru_cache(maxsize=4096)
def differentiate_name(name: str) -> ExpPoly:
    """Return d/d log q of a variable: 1 for k1, w, log q; f' for f; 0 for what is detached or theta-free."""
    parsed = parse_name(name)
    if parsed.detached or parsed.base in THETA_FREE:
        return ZERO
    if parsed.base in LOG_RATIOS:
        return ONE
    return ExpPoly.from_variable(name.replace("[", "'[") if "[" in name else name + "'")


def differentiate_loss(loss: ExpPoly, index: str, context: Context) -> dict[str, ExpPoly]:
    """Return the c_z of grad L = sum_z c_z s_z, z over the slots, sg(.) and expectations held constant."""

    def differentiate(name: str, slot: str) -> ExpPoly:
        if name in context.parameters or context.find_mean(name) is not None or parse_name(name).slot != slot:
            return ZERO
        derivative = differentiate_name(name)
        is_single = slot in SINGLE or not derivative.names()
        refuse_unless(
            is_single, f"{name} is a sum over positions: its gradient is no multiple of their scores"
        )
        return derivative

    derivatives = {
        z: _derive_through_definitions(loss, context, lambda name, z=z: differentiate(name, z))  # type: ignore[misc]
        for z in SLOTS[index]
    }
    return {z: c for z, c in derivatives.items() if c}


def differentiate_by_means(loss: ExpPoly, context: Context) -> dict[Mean, ExpPoly]:
    """Return dL/da of each expectation a that has a name, sg(.) held constant: a moves with theta, too."""
    total: dict[Mean, ExpPoly] = {}
    for a in context.list_names_of_means(loss):
        mean = context.find_mean(a)
        assert mean is not None
        if parse_name(a).detached:
            continue
        c = _derive_through_definitions(loss, context, lambda name, a=a: ONE if name == a else ZERO)  # type: ignore[misc]
        if c:
            total[mean] = total.get(mean, ZERO) + c
    return {mean: c for mean, c in total.items() if c}


def _derive_through_definitions(e: ExpPoly, context: Context, rule: Callable[[str], ExpPoly]) -> ExpPoly:
    """Return the derivative of an element, given that of plain names and of names of expectations.

    Regions are constant; for l = log(e), dl = exp(-l) de, and for v = e, dv = de.
    """

    def differentiate(name: str) -> ExpPoly:
        inner = context.find_definition(name)
        if inner is None:
            return rule(name)
        if parse_name(name).detached or context.find_definition(name, REGION) is not None:
            return ZERO
        is_log = context.find_definition(name, LOG) is not None
        scale = (-ExpPoly.from_variable(name)).exp() if is_log else ONE
        return scale * inner.derive(differentiate)

    return e.derive(differentiate)


def is_live(element: ExpPoly, context: Context) -> bool:
    """Does the element depend on theta at a given sample, be it by jumps?"""
    return any(_is_moving(name, context) for name in element.names())


def _is_moving(name: str, context: Context) -> bool:
    """Does a variable depend on theta: it, or what defines it, along the scores of any slot, or by a mean?"""
    if parse_name(name).detached:
        return False
    if context.list_names_of_means(ExpPoly.from_variable(name)):
        return True
    if not context.is_sample(name):
        return False
    if (e := context.find_definition(name)) is None:
        return bool(differentiate_name(name))

    def differentiate_along(n: str, slot: str) -> ExpPoly:
        plain = context.find_definition(n) is None and context.find_slots(n) == {slot}
        return differentiate_name(n) if plain else ZERO

    pairs = ((inner, z) for inner in context.walk_definitions(e) for z in context.collect_slots(inner))
    return any(inner.derive(lambda n, z=z: differentiate_along(n, z)) for inner, z in pairs)  # type: ignore[misc]


def list_moving_names(element: ExpPoly, context: Context, *kinds: str) -> set[str]:
    """Return the names defined as one of these kinds that theta moves, and those in what defines them."""
    live = (ExpPoly.from_variable(name) for name in element.names() if not parse_name(name).detached)
    names = {name for e in context.walk_definitions(*live, kinds=kinds) for name in e.names()}
    return {
        name
        for name in names
        if context.find_definition(name, *kinds) is not None and _is_moving(name, context)
    }


def attach(element: ExpPoly) -> ExpPoly:
    """Return the value of a coefficient: sg(x) is x."""
    return element.rename(attach_name)


# ---------------------------------------------------------------------------- slots
def move_to_slot(element: ExpPoly, slot: str, context: Context) -> ExpPoly:
    """Return a one-sample coefficient, spoken of a slot."""
    return element.rename(lambda n: name_in_slot(n, slot) if context.is_sample(n) else n)


def list_slots(element: ExpPoly, context: Context) -> set[str]:
    """Return the slots that a coefficient speaks of."""
    return set(context.collect_slots(element))


def select_sample_part(monomial: Monomial, exponent: Exponent, context: Context) -> ExpPoly:
    """Return the factor of a term that changes from sample to sample."""
    powers = tuple((n, p) for n, p in monomial if context.is_sample(n))
    inside = tuple((m, v) for m, v in exponent if any(context.is_sample(n) for n, _ in m))
    return ExpPoly({(powers, inside): 1})
