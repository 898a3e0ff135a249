"""Signs of the multiples of an objective, and the rewards whose mean a loss lowers.

>>> from klsym.language.expressions import A, beta
>>> find_sign(-beta), find_sign(beta), find_sign(beta - 1)
(Sign(always=True, where=-beta), None, Sign(always=False, where=beta - 1))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy

from klsym.engine.regions.case_split import split_into_cases
from klsym.engine.regions.in_steps import to_steps
from klsym.kernel.definitions import REGION
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import COUNTS, REWARDS, A, R
from klsym.notation.steps import list_jumps, open_steps
from klsym.notation.values import collect_names


@dataclass(frozen=True)
class Sign:
    """A negative multiple: always, or where the condition `where` < 0 holds."""

    always: bool
    where: Any = None


@lru_cache(maxsize=1024)
def find_sign(value: Any) -> Sign | None:
    """Return where a multiple is negative; None if for no positive parameters.

    Parameters are positive weights; a condition that none of them satisfy is not reported.
    """
    size = {x: sympy.Dummy(positive=True) + int(x.name == "n") for x in value.free_symbols}  # n is 2 or more
    counts = {x: size[x] for x in size if x.name in COUNTS}
    if value.subs(counts).factor().is_negative:
        return Sign(True)
    if value.subs(size).factor().is_nonnegative or value.has(*REWARDS):
        return None
    weights = {x: sympy.Dummy(positive=True) for x in value.free_symbols}
    return Sign(bool(value.subs(weights).factor().is_negative), value / abs(value.as_coeff_Mul()[0]))


def find_sign_in_regions(value: Any, defined: Context) -> Sign | None:
    """Return the sign of a multiple, if it is the same in all its regions."""
    if isinstance(value, ExpPoly) and any(
        defined.find_definition(x, REGION) is not None for x in value.names()
    ):
        return _find_sign_in_cases(value, defined)
    return find_sign(to_sympy(value) if isinstance(value, ExpPoly) else value)


def list_lowered_rewards(reward: Any, defined: Context) -> Iterator[tuple[tuple[str, Any], Sign | None]]:
    """Yield the rewards whose mean the loss lowers, with the sign; clipped rewards by cases.

    A reward that rises in its regions and falls at a bound between them is left out.
    """
    defined_names = {name for name in collect_names(reward) if defined.find_definition(name) is not None}
    regions = {name for name in defined_names if defined.find_definition(name, REGION) is not None}
    if any(not defined.is_constant(ExpPoly.from_variable(name)) for name in defined_names - regions):
        return  # a log moves with the reward, and its slope is not looked at
    bounds = defined.walk_definitions(*map(ExpPoly.from_variable, regions))
    bases = {parse_name(name).base for e in bounds for name in e.names()} | collect_names(reward)
    slopes = {x: reward.diff(x) for x in (R, A) if x.name in bases}
    in_steps = open_steps(to_steps(to_ring(reward), defined)) if regions else reward
    for x, slope in slopes.items():
        if collect_names(slope) & regions:
            effect, sign = ("lowers-rising-reward", x), _find_sign_in_cases(to_ring(-slope), defined)
        else:
            negative = to_steps(to_ring(-slope), defined) if defined_names else -slope
            effect, sign = ("lowers", reward if slope.has(x) else x), find_sign(negative)
        jumps = (find_sign(-jump) for jump in list_jumps(in_steps, x) if jump != 0)
        if all(jump is not None and (jump.always or jump == sign) for jump in jumps):
            yield effect, sign


def _find_sign_in_cases(element: ExpPoly, defined: Context) -> Sign | None:
    """Return the sign that it has in all cases in which it is not 0; None if they differ."""
    rows = split_into_cases({"x": element}, defined, lambda slots, context: to_steps(slots["x"], context))
    signs = {find_sign(value) for _, value in rows if value}
    return signs.pop() if len(signs) == 1 else None
