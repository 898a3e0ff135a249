"""Elements that hold regions as SymPy expressions in steps, and by cases: how verdicts show them.  Untrusted.

[x > 0] is Heaviside(x, 0), which is 0 at x = 0; parameters of which that is a fact are positive
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import sympy
from sympy import Heaviside

from klsym.convert import to_sympy
from klsym.language import Region, Slot, s
from klsym.names import LOG_RATIOS, parse_name
from klsym.ring import ZERO, ExpPoly
from klsym.slots import SEQUENCE, at_slot
from klsym.statements import Context


@lru_cache(maxsize=1024)
def in_steps(element: ExpPoly, context: Context, tokens: bool = False) -> Any:
    """The element with a step for each region.

    tokens: what a bound says of a whole sequence is said of the sum of its parts.
    """
    steps: dict[Any, Any] = {}
    for name in element.names():
        if (e := context.defined(name)) is not None:
            step = Heaviside(to_sympy(_in_parts(e) if tokens else e), 0)
            steps |= {kind(name, real=True): step for kind in (sympy.Symbol, Region)}
    shown = to_sympy(element).xreplace(steps)
    known = {sympy.Symbol(name, real=True) for e in context.facts for name in e.names()}
    return shown.xreplace({x: sympy.Symbol(x.name, positive=True) for x in known})


def _in_parts(e: ExpPoly) -> ExpPoly:
    """What a whole sequence has, as the sum over the tokens before, at and after one."""
    whole = e.names() & {*LOG_RATIOS, "R", "M", "H"}
    return e.substitute({name: _sum_of_parts(name) for name in whole})


def _sum_of_parts(name: str) -> ExpPoly:
    return sum((ExpPoly.variable(at_slot(name, slot)) for slot in SEQUENCE), ZERO)


def scored_steps(slots: Mapping[str, ExpPoly], context: Context, tokens: bool = False) -> Any:
    """The sum of coefficients times the scores of slots; that of the token itself alone goes without it."""
    if set(slots) <= {"now"} or not tokens:
        return sum((in_steps(c, context, tokens) for c in slots.values()), sympy.S.Zero)
    scores = {z: Slot(z)(s) for z in SEQUENCE}
    scores["x"] = sum(scores.values())
    return sum((in_steps(c, context, tokens) * scores[z] for z, c in sorted(slots.items())), sympy.S.Zero)


def with_ratios(element: ExpPoly, context: Context) -> ExpPoly:
    """The element, with rho or rho_old beside each term that a bound on it stands beside: it weighs too."""
    total = ZERO
    for terms, regions in _by_regions(element, context):
        names = {n for region in regions for n in (context.defined(region) or ZERO).names()}
        ratios = sorted(n for n in names if parse_name(n).base in ("w", "o"))
        total = total + terms * sum(map(ExpPoly.variable, ratios), ZERO).exp()
    return total


def unbounded(element: ExpPoly, context: Context) -> ExpPoly:
    """The terms beside which no bound stands."""
    return sum((terms for terms, regions in _by_regions(element, context) if not regions), ZERO)


def _by_regions(element: ExpPoly, context: Context) -> Iterator[tuple[ExpPoly, set[str]]]:
    """The terms that are the same but for regions, and those regions: r (1 - B) is r beside B."""
    groups: dict[Any, tuple[ExpPoly, set[str]]] = {}
    for (monomial, exponent), value in element.terms.items():
        regions = {name for name, _ in monomial if context.defined(name) is not None}
        key = tuple(item for item in monomial if item[0] not in regions), exponent
        terms, known = groups.get(key, (ZERO, set()))
        groups[key] = terms + ExpPoly({(monomial, exponent): value}), known | regions
    yield from groups.values()
