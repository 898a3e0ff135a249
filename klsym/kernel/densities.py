"""Densities, their ratios, and where a product of their powers vanishes.  Trusted; standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from klsym.kernel.definitions import REGION
from klsym.kernel.derivatives import move_to_slot
from klsym.kernel.names import LOG_RATIOS, PROBABILITIES, SAMPLE, THETA_FREE, parse_name
from klsym.kernel.ring import ONE, ZERO, Exponent, ExpPoly, Number
from klsym.kernel.slots import PARTS, SEQUENCE, find_slot
from klsym.kernel.statements import Context, Mean

K1, W, LOG_Q = (ExpPoly.from_variable(name) for name in ("k1", "w", "log_q"))
# log density of each measure: log p = log q - k1, log mu = log q - w
LOG_DENSITY = {"q": LOG_Q, "p": LOG_Q - K1, "mu": LOG_Q - W, "count": ZERO}
# the power of each density in exp of a log ratio: k1 = log q - log p
POWERS = {"k1": {"q": 1, "p": -1}, "w": {"q": 1, "mu": -1}, "log_q": {"q": 1}, "o": {"q": 1, "old": -1}}
KNOWN = (*LOG_RATIOS, *THETA_FREE)


def build_density_ratio(over: str, under: str) -> ExpPoly:
    """Return exp(log over - log under), for example p/q = exp(-k1)."""
    return (LOG_DENSITY[over] - LOG_DENSITY[under]).exp()


def build_ratio_at(index: str, over: str, under: str, context: Context) -> ExpPoly:
    """Return over/under for all that the index speaks of, a product over its slots."""
    ratio = ONE
    for slot in PARTS[index]:
        ratio = ratio * move_to_slot(build_density_ratio(over, under), slot, context)
    return ratio


def is_zero_where(mean: Mean, density: str, context: Context) -> bool:
    """Does m a s..s vanish wherever the density does, in whichever slot?

    Each term of a is a polynomial in logs times powers of densities.  A positive power of a density that goes
    to 0 prevails over logs, and by convention over all else.  For k scores the power of q must be above k/2:
    q goes to 0 as the square of a distance, and s = grad q / q.  Functions and other exponents may grow.
    """
    if density == "count":
        return True
    for slot in PARTS[mean.index]:
        scores = (
            sum(slot in _list_covered_slots(find_slot(entry)) for entry in mean.score)
            if density == "q"
            else 0
        )
        for monomial, exponent in mean.coefficient.terms:
            unknown = any(context.is_sample(n) and not _is_known(n, context) for n, _ in monomial)
            power = find_power(density, slot, exponent, context)
            if unknown or power is None or power + (density == mean.measure) <= Fraction(scores, 2):
                return False
    return True


def _is_known(name: str, context: Context) -> bool:
    """Is it a log ratio, free of theta, or bounded?"""
    return parse_name(name).base in KNOWN or context.find_definition(name, REGION) is not None


def list_denominators(place: Mean, elements: Iterable[ExpPoly], context: Context) -> Iterator[str]:
    """Yield the densities that may stand in a denominator of elements at a place.

    Where such a density is 0 a product is not what it expands to: (d/e - e/d)^2 holds -2, although e/d is not
    defined.  Where m > 0 they must be positive; then all factors are numbers, and the ring's identities hold.
    """
    exponents = [exponent for element in elements for _, exponent in element.terms]
    for density in (*PROBABILITIES, "old") if place.measure != SAMPLE else ():
        powers = (find_power(density, slot, e, context) for e in exponents for slot in PARTS[place.index])
        if any(power is None or power < 0 for power in powers):
            yield density


def _list_covered_slots(slot: str) -> tuple[str, ...]:
    """Return the slots that a variable of this slot speaks of: x is the whole sequence, or the one sample."""
    return (slot, *SEQUENCE) if slot == "x" else (slot,)


def find_power(density: str, slot: str, exponent: Exponent, context: Context) -> Number | None:
    """Return the power of a slot's density in exp(exponent); None if a log ratio has another factor."""
    total: Number = 0
    for monomial, value in exponent:
        if not any(context.is_sample(n) for n, _ in monomial):
            continue  # a constant factor
        name = parse_name(monomial[0][0])
        if len(monomial) != 1 or monomial[0][1] != 1 or name.base not in LOG_RATIOS:
            return None
        if slot in _list_covered_slots(name.slot):
            total += value * POWERS[name.base].get(density, 0)
    return total
