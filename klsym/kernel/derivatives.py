"""Derivatives, detached copies, densities: what the rules share.  Trusted; standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from klsym.errors import Refused
from klsym.names import LOG_RATIOS, MEASURES, SAMPLE, THETA_FREE, attach_name, parse_name
from klsym.ring import ONE, ZERO, Exponent, ExpPoly, Monomial, Number
from klsym.slots import PARTS, SEQUENCE, SINGLE, SLOTS, at_slot, slot_of_score
from klsym.statements import Atom, Context, Mean, Side

Hypothesis = tuple[Any, ...]
Outcome = tuple[Side, set[Hypothesis]]
Data = dict[str, Any]

K1, W, LOG_Q = (ExpPoly.variable(name) for name in ("k1", "w", "log_q"))
# log density of each measure: log p = log q - k1, log mu = log q - w
LOG_DENSITY = {"q": LOG_Q, "p": LOG_Q - K1, "mu": LOG_Q - W, "count": ZERO}
# the power of each density in exp of a log ratio: k1 = log q - log p
POWERS = {"k1": {"q": 1, "p": -1}, "w": {"q": 1, "mu": -1}, "log_q": {"q": 1}, "o": {"q": 1}}


def refuse_unless(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)


def measure_in(data: Data, key: str) -> str:
    known = data[key] in MEASURES
    refuse_unless(known, f"{key}: one of {MEASURES} expected, got {str(data[key])[:20]!r}")
    return str(data[key])


# ---------------------------------------------------------------------------- derivatives
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
    """grad L = sum_z c_z s_z: the coefficient of the score function of each slot, sg(.) held constant."""

    def slope(name: str, slot: str) -> ExpPoly:
        if name in context.parameters or parse_name(name).slot != slot:
            return ZERO
        found = derivative_of_name(name)
        one = slot in SINGLE or not found.names()
        refuse_unless(one, f"{name} is a sum over positions: its gradient is no multiple of their scores")
        return found

    found = {z: loss.derive(lambda name, z=z: slope(name, z)) for z in SLOTS[index]}  # type: ignore[misc]
    return {z: c for z, c in found.items() if c}


def attach(element: ExpPoly) -> ExpPoly:
    """The value of a coefficient: sg(x) is x."""
    return element.rename(attach_name)


# ---------------------------------------------------------------------------- slots
def in_slot(element: ExpPoly, slot: str, context: Context) -> ExpPoly:
    """A one-sample coefficient, spoken of a slot."""
    return element.rename(lambda n: n if n in context.parameters else at_slot(n, slot))


def mentioned(element: ExpPoly, context: Context) -> set[str]:
    """The slots that a coefficient speaks of."""
    return {parse_name(name).slot for name in element.names() if context.is_sample(name)}


def sample_part(monomial: Monomial, exponent: Exponent, context: Context) -> ExpPoly:
    """The factor of a term that changes from sample to sample."""
    powers = tuple((n, p) for n, p in monomial if context.is_sample(n))
    inside = tuple((m, v) for m, v in exponent if any(context.is_sample(n) for n, _ in m))
    return ExpPoly({(powers, inside): 1})


# ---------------------------------------------------------------------------- densities
def density_ratio(over: str, under: str) -> ExpPoly:
    """exp(log over - log under), for example p/q = exp(-k1)."""
    return (LOG_DENSITY[over] - LOG_DENSITY[under]).exp()


def ratio_at(index: str, over: str, under: str, context: Context) -> ExpPoly:
    """over/under for all that the index speaks of, a product over its slots."""
    ratio = ONE
    for slot in PARTS[index]:
        ratio = ratio * in_slot(density_ratio(over, under), slot, context)
    return ratio


def fades(mean: Mean, density: str, context: Context) -> bool:
    """Does m a s..s vanish wherever the density does, in whichever slot?

    Each term of a is a polynomial in logs times powers of densities.  A positive power of a density that goes
    to 0 prevails over logs, and by convention over all else.  For k scores the power of q must be above k/2:
    q goes to 0 as the square of a distance, and s = grad q / q.  Functions and other exponents may grow.
    """
    if density == "count":
        return True
    for slot in PARTS[mean.index]:
        scores = sum(slot in _covered(slot_of_score(entry)) for entry in mean.score) if density == "q" else 0
        for monomial, exponent in mean.coefficient.terms:
            unknown = any(context.is_sample(n) and parse_name(n).base not in KNOWN for n, _ in monomial)
            power = power_of(density, slot, exponent, context)
            if unknown or power is None or power + (density == mean.measure) <= Fraction(scores, 2):
                return False
    return True


KNOWN = (*LOG_RATIOS, *THETA_FREE)


def _covered(slot: str) -> tuple[str, ...]:
    """The slots that a variable of this slot speaks of: x is the whole sequence, or the one sample."""
    return (slot, *SEQUENCE) if slot == "x" else (slot,)


def power_of(density: str, slot: str, exponent: Exponent, context: Context) -> Number | None:
    """The power of a slot's density in exp(exponent); None where it depends on parameters or is no power."""
    total: Number = 0
    for monomial, value in exponent:
        if all(n in context.parameters for n, _ in monomial):
            continue  # a constant factor
        name = parse_name(monomial[0][0])
        if len(monomial) != 1 or monomial[0][1] != 1 or name.base not in LOG_RATIOS:
            return None
        if slot in _covered(name.slot):
            total += value * POWERS[name.base].get(density, 0)
    return total


# ---------------------------------------------------------------------------- what a mean presupposes
def drawn(index: str, *measures: str) -> set[Hypothesis]:
    """Sequences that end, and samples that are independent, for the measures that they are drawn from."""
    kinds = [kind for kind, mark in (("ends", "t"), ("batch", "i")) if mark in index]
    return {(kind, m) for kind in kinds for m in measures if m != SAMPLE}


def exist(atoms: Iterable[Atom], context: Context) -> set[Hypothesis]:
    """Each of several means into which one is split exists; constants and values at one sample do."""
    return {("exists", atom) for atom in atoms if not (isinstance(atom, Mean) and _is_finite(atom, context))}


def divisors(context: Context, elements: Iterable[ExpPoly]) -> set[Hypothesis]:
    """The parameters in denominators, which are not 0."""
    inverted = {name for element in elements for name in element.inverted()}
    return {("nonzero", name) for name in inverted & set(context.parameters)}


def _is_finite(mean: Mean, context: Context) -> bool:
    constant = not mean.score and context.is_constant(mean.coefficient) and "t" not in mean.index
    return mean.measure == SAMPLE or (constant and mean.measure != "count")


def several(means: list[Mean], context: Context) -> Outcome:
    """One mean as a sum of several."""
    return Side.of(*((ONE, (mean,)) for mean in means)), exist(means if len(means) > 1 else [], context)
