"""Coefficients of scores at a sample: are they 0 everywhere, and which density ratio in them is unbounded?

>>> r = (-ExpPoly.from_variable("k1")).exp()
>>> rho = ExpPoly.from_variable("w").exp()
>>> find_unbounded_ratio([r], [r], False), find_unbounded_ratio([r * rho], [r], False)
('r', 'rho*r')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klsym.kernel.derivatives import attach
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Number
from klsym.language.convert import substitute_on_policy


def is_zero(coefficients: Iterable[ExpPoly], on_policy: bool) -> bool:
    """Are they 0 at every sample?  On-policy log q - log mu is."""
    values = (attach(coefficient) for coefficient in coefficients)
    return not any(substitute_on_policy(value) if on_policy else value for value in values)


def find_unbounded_ratio(coefficients: Iterable[ExpPoly], under_q: Iterable[ExpPoly], on_policy: bool) -> str:
    """Name the ratio that is unbounded at a sample: r for a negative power of q, p/mu for one of mu alone.

    under_q: the coefficients of E_q[c s]; a ratio that cancels in all of them is not reported.
    """
    if not any(
        ratio
        for coefficient in under_q
        for _, exponent in coefficient.terms
        for ratio in _iterate_unbounded_ratios(exponent)
    ):
        return ""
    values = [
        substitute_on_policy(attach(coefficient)) if on_policy else attach(coefficient)
        for coefficient in coefficients
    ]
    ratios = {
        ratio
        for value in values
        for _, exponent in value.terms
        for ratio in _iterate_unbounded_ratios(exponent)
    }
    return "r" if "r" in ratios else "rho*r" if ratios else ""


def _iterate_unbounded_ratios(exponent: Exponent) -> Iterator[str]:
    """Yield the unbounded ratio of exp(a k1 + b w) at one slot with a < 0, a product of q^(a + b) and mu^-b.

    Parameters in a and b count as 1, since they are positive weights.
    """
    powers: dict[str, dict[str, Number]] = {}
    for monomial, value in exponent:
        random = [item for item in monomial if parse_name(item[0]).base in SAMPLE_BASES]
        name = parse_name(random[0][0]) if len(random) == 1 and random[0][1] == 1 else None
        if name is not None and name.base in ("k1", "w"):
            slot_powers = powers.setdefault(name.slot, {"k1": 0, "w": 0})
            slot_powers[name.base] += value
    for slot_powers in powers.values():
        if slot_powers["k1"] < 0:
            yield from (
                ["r"]
                if slot_powers["k1"] + slot_powers["w"] < 0
                else ["rho*r"]
                if slot_powers["w"] > 0
                else []
            )
