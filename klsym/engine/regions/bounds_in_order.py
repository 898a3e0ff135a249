"""Find out which parameters of a loss are positive if the bounds of its clips are in order.  Untrusted."""

from __future__ import annotations

from typing import Any

import sympy

from klsym.language.expressions import DENSITIES, REWARDS, clip


def bounds_in_order(loss: Any) -> list[str]:
    """The parameters that are positive if each clip, such as clip(rho, 1 - eps, 1 + eps), has lo <= hi."""
    found: set[str] = set()
    for e in loss.atoms(clip):
        width, ordered = _width(e)
        if ordered and not width.is_nonnegative:
            found |= {x.name for x in width.free_symbols if not x.is_positive}
    return sorted(found)


def crossing(loss: Any) -> bool:
    """May lo exceed hi in a clip, even for positive parameters?"""
    return not all(_width(e)[1] for e in loss.atoms(clip))


def _width(e: Any) -> tuple[Any, bool]:
    """hi - lo, and is it at least 0 for positive parameters?"""
    _, lo, hi = e.args
    width = sympy.expand(hi - lo)
    positive = {x: sympy.Symbol(x.name, positive=True) for x in width.free_symbols - {*DENSITIES, *REWARDS}}
    return width, bool(width.xreplace(positive).is_nonnegative)
