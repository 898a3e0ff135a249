"""The divergence behind a loss in words: f(r), and where it is one."""

from __future__ import annotations

from typing import Any

import sympy

from klsym.notation.combination import mean_of
from klsym.notation.printers import TEXT
from klsym.notation.ratios import everywhere_if, in_r, is_whole, region
from klsym.notation.tree import Call, Mean, Name, negated
from klsym.notation.values import shown, tree_of
from klsym.render.objective import describe_terms

MEAN_OF_F = Mean("q", Call("f", (Name("r"),)))
INFINITE = (sympy.nan, sympy.zoo, sympy.oo, -sympy.oo)


def generated_json(found: Any) -> dict[str, Any]:
    """f as a grammar string in r, where it is convex, and f''(1); nulls where there is none."""
    if found is None:
        return {"f": None, "genuine_divergence": None, "fisher_strength": None}
    return {
        "f": None if found.f is None else TEXT(in_r(found.f)),
        "genuine_divergence": convexity_json(found.where, found.is_divergence),
        "fisher_strength": strength_text(found),
    }


def convexity_json(where: Any, holds: bool | None) -> dict[str, Any] | None:
    """Is it convex for all parameters, and where it is; null where that is open."""
    if holds is None:
        return None
    return {"holds": holds, "where": region(where) if where and not holds else None}


def generated_text(found: Any) -> str:
    """E_q[f(r)] with f = log(r)**2/2, convex where r <= e; f''(1) = 1; with its verb beside a reward."""
    told = generated_json(found)
    reward = [negated(mean_of(tree_of(found.reward)))] if found.reward else []
    whole = describe_terms([*reward, MEAN_OF_F], ascends=False, rewards=True) if reward else "E_q[f(r)]"
    convex = convexity_text(found.where, found.is_divergence)
    f = "; ".join(f"{TEXT(in_r(part))} where {region((on,))}" for on, part in reversed(found.pieces))
    known = f" with f = {f or told['f']}" if told["f"] else " with an f that has no formula here"
    parts = filter(None, (whole + known, convex))
    return "; ".join([", ".join(parts), at_reference_text(found), *map(_case_text, found.cases)])


def strength_text(found: Any) -> str | None:
    """f''(1); None where there is none, or where as a formula it is 0/0 or infinite, as that of sqrt(k3)."""
    value = found.strength
    if value is None or (isinstance(value, sympy.Expr) and value.has(*INFINITE)):
        return None
    return shown(value)


def at_reference_text(found: Any) -> str:
    """What f is at r = 1."""
    value = strength_text(found)
    if value is None:
        return "a kink at r = 1" if found.strength is None else "f''(1) is not known"
    return f"f''(1) = {value}"


def _case_text(case: Any) -> str:
    """if alpha = 1, f = r*log(r) - r + 1."""
    name, value, f = case
    return f"if {name} = {value}, " + ("nothing" if f is None else f"f = {TEXT(in_r(f))}")


def convexity_text(where: Any, holds: bool | None, of: str = "r", convex: str = "convex") -> str:
    """convex where r <= e; empty where it is open.  convex: the word for it where it is so somewhere."""
    if holds is None:
        return ""
    if not where:
        return "convex nowhere"
    if holds:
        return convex
    shown_region, always = region(where, of), everywhere_if(where)
    if getattr(where, "always", None) == (getattr(where, "element", None),):
        return f"{convex} if {always}"
    place = shown_region if is_whole(where) else f"where {shown_region}"
    return f"{convex} {place}" + (f" (everywhere if {always})" if always else "")


def functional_text(found: Any) -> str:
    """Where a separable objective is convex in q: "convex in q where r >= 1/e"."""
    return convexity_text(found.where, found.is_convex, found.of, "convex in q")
