"""Find out what is positive in a loss if the bounds of its clips are in order.  Untrusted.

>>> from klsym.language.expressions import A, parameter, rho
>>> eps, c = parameter("eps"), parameter("c")
>>> clipped = sympy.Max(-A * rho, -A * clip(rho, 1 - eps, 1 + eps))
>>> bounds_in_order(clipped), bounds_in_order(sympy.Min(-A * c, clipped))
([eps], [c - eps - 1, eps])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from klsym.language.expressions import COUNTS, DENSITIES, REWARDS, clip

FIXED = {*DENSITIES, *REWARDS, *(sympy.Symbol(name, real=True) for name in COUNTS)}


def bounds_in_order(loss: Any) -> list[Any]:
    """Return the quantities that are positive if each clip(x, lo, hi) has lo <= hi.

    These are parameters, and c - hi for a bound c*A beside clip(rho, lo, hi)*A, as in a dual clip.
    """
    found: set[Any] = set()
    for e in loss.atoms(clip):
        width, ordered = _width(e)
        if ordered and not width.is_nonnegative:
            found |= {x for x in width.free_symbols if not x.is_positive}
    beyond = {c - hi for e in loss.atoms(sympy.Min, sympy.Max) for c, hi in _outer(e)}
    return [*sorted(beyond, key=str), *sorted(found, key=str)]


def crossing(loss: Any) -> bool:
    """May lo exceed hi in a clip, even for positive parameters?"""
    return not all(_width(e)[1] for e in loss.atoms(clip))


def _outer(e: Any) -> Iterator[tuple[Any, Any]]:
    """The parameters c and upper bounds hi of c*x beside clip(.., lo, hi)*x, in a minimum or a maximum."""
    for bound in e.args:
        free = sorted(bound.free_symbols - FIXED, key=str)
        for c in [c for c in free if bound.coeff(c) * c == bound and not bound.has(*DENSITIES)]:
            inside = [part for a in e.args if a != bound for part in sympy.preorder_traversal(a)]
            for product in inside:
                for of in [f for f in sympy.Mul.make_args(product) if isinstance(f, clip)]:
                    hi = of.args[2]
                    if product / of == bound / c and not hi.has(c, *FIXED) and hi.is_polynomial():
                        yield c, hi


def _width(e: Any) -> tuple[Any, bool]:
    """hi - lo, and is it at least 0 for positive parameters?"""
    _, lo, hi = e.args
    width = sympy.expand(hi - lo)
    positive = {x: sympy.Symbol(x.name, positive=True) for x in width.free_symbols - {*DENSITIES, *REWARDS}}
    return width, bool(width.xreplace(positive).is_nonnegative)
