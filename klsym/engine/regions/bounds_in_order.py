"""Find the inequalities between parameters under which the bounds of clips are in order.  Untrusted.

>>> from klsym.language.expressions import A, parameter, rho
>>> eps, c = parameter("eps"), parameter("c")
>>> clipped = sympy.Max(-A * rho, -A * clip(rho, 1 - eps, 1 + eps))
>>> collect_clip_facts(clipped), collect_clip_facts(sympy.Min(-A * c, clipped))
([eps], [c - eps - 1, eps])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from klsym.kernel.ring import ExpPoly, Number
from klsym.kernel.witness import BATCH_SIZE
from klsym.language.convert import to_ring
from klsym.language.expressions import COUNTS, DENSITIES, REWARDS, clip

FIXED = {*DENSITIES, *REWARDS, *(sympy.Symbol(name, real=True) for name in COUNTS)}


def collect_clip_facts(loss: Any) -> list[Any]:
    """Return the elements that are assumed to be positive.

    These are parameters with which each clip(x, lo, hi) has lo <= hi; and c - hi for a bound c*A beside
    clip(rho, lo, hi)*A, as in a dual clip, unless it contradicts what is assumed already.
    """
    positive: set[Any] = set()
    for e in loss.atoms(clip):
        width, ordered = _measure_clip_width(e)
        if ordered and not width.is_nonnegative:
            positive |= {x for x in width.free_symbols - FIXED if not x.is_positive}
    assumed = sorted(positive, key=str)
    gaps = {c - hi for e in loss.atoms(sympy.Min, sympy.Max) for c, hi in _iterate_dual_clip_bounds(e)}
    for gap in sorted(gaps, key=str):
        if find_witness([to_ring(fact) for fact in (gap, *assumed)]) is not None:
            assumed.insert(0, gap)
    return sorted(assumed, key=lambda fact: (fact not in gaps, str(fact)))


def find_witness(facts: list[ExpPoly] | tuple[ExpPoly, ...]) -> dict[str, Number] | None:
    """Return values at which all facts are at least 1, or None where none were found.

    Each value starts at 1, that of the batch size at 2, and is raised as long as a fact is too low; a chain
    a > b > c ends after as many rounds as there are facts, a circle never does.
    """
    names = {name for fact in facts for name in fact.names()}
    values: dict[str, Number] = {name: 2 if name == BATCH_SIZE else 1 for name in names}
    for _ in range(len(facts) + 2):
        before = dict(values)
        for fact in facts:
            fact_at_values = fact.substitute(
                {name: ExpPoly.from_number(value) for name, value in values.items()}
            )
            missing = 1 - fact_at_values.terms.get(((), ()), 0)
            raised_name = next(m[0][0] for (m, _), value in fact.terms.items() if m and value == 1)
            values[raised_name] += max(missing, 0)
        if values == before:
            return values
    return None


def can_bounds_cross(loss: Any) -> bool:
    """May lo exceed hi in a clip, even for positive parameters?"""
    return not all(_measure_clip_width(e)[1] for e in loss.atoms(clip))


def _iterate_dual_clip_bounds(e: Any) -> Iterator[tuple[Any, Any]]:
    """Yield parameters c and upper bounds hi of c*x beside clip(.., lo, hi)*x in a min or max."""
    for bound in e.args:
        parameters = sorted(bound.free_symbols - FIXED, key=str)
        for c in [c for c in parameters if bound.coeff(c) * c == bound and not bound.has(*DENSITIES)]:
            inside = [part for a in e.args if a != bound for part in sympy.preorder_traversal(a)]
            for product in inside:
                for clipped in [f for f in sympy.Mul.make_args(product) if isinstance(f, clip)]:
                    hi = clipped.args[2]
                    if product / clipped == bound / c and not hi.has(c, *FIXED) and hi.is_polynomial():
                        yield c, hi


def _measure_clip_width(e: Any) -> tuple[Any, bool]:
    """Return hi - lo, and whether it is at least 0 for positive parameters."""
    _, lo, hi = e.args
    width = sympy.expand(hi - lo)
    positive = {x: sympy.Symbol(x.name, positive=True) for x in width.free_symbols - {*DENSITIES, *REWARDS}}
    return width, bool(width.xreplace(positive).is_nonnegative)
