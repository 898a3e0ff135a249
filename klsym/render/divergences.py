"""The f-divergence of a loss in words: its generator f(r), and where f is convex."""

from __future__ import annotations

from typing import Any

import sympy

from klsym.notation.combination import build_mean
from klsym.notation.printers import TEXT
from klsym.notation.ratios import describe_everywhere, describe_region, is_whole, rewrite_in_r
from klsym.notation.tree import Call, Mean, Name, negate
from klsym.notation.values import build_tree, show_value
from klsym.render.objective import describe_terms

MEAN_OF_F = Mean("q", Call("f", (Name("r"),)))
INFINITE = (sympy.nan, sympy.zoo, sympy.oo, -sympy.oo)


def build_generator_json(f_divergence: Any) -> dict[str, Any]:
    """Return f as text in r, where it is convex, and f''(1); nulls where there is none."""
    if f_divergence is None:
        return {"f": None, "genuine_divergence": None, "fisher_strength": None}
    return {
        "f": None if f_divergence.f is None else TEXT(rewrite_in_r(f_divergence.f)),
        "genuine_divergence": build_convexity_json(f_divergence.where, f_divergence.is_divergence),
        "fisher_strength": format_strength(f_divergence),
    }


def build_convexity_json(where: Any, holds: bool | None) -> dict[str, Any] | None:
    """Return whether f is convex for all parameters, and where it is; None if that is open."""
    if holds is None:
        return None
    return {"holds": holds, "where": describe_region(where) if where and not holds else None}


def describe_generator(f_divergence: Any) -> str:
    """Describe it: E_q[f(r)] with f = log(r)**2/2, convex where r <= e; f''(1) = 1.

    With a reward: what is minimised or maximised, such as "maximises E_q[R] - E_q[f(r)]".
    """
    fields = build_generator_json(f_divergence)
    reward = [negate(build_mean(build_tree(f_divergence.reward)))] if f_divergence.reward else []
    whole = describe_terms([*reward, MEAN_OF_F], ascends=False, rewards=True) if reward else "E_q[f(r)]"
    convex = describe_convexity(f_divergence.where, f_divergence.is_divergence)
    f = "; ".join(
        f"{TEXT(rewrite_in_r(part))} where {describe_region((on,))}"
        for on, part in reversed(f_divergence.pieces)
    )
    generator_text = f" with f = {f or fields['f']}" if fields["f"] else " with an f that has no formula here"
    parts = filter(None, (whole + generator_text, convex))
    return "; ".join(
        [", ".join(parts), describe_at_reference(f_divergence), *map(_format_case, f_divergence.cases)]
    )


def format_strength(f_divergence: Any) -> str | None:
    """Return f''(1); None if there is none, or if its formula is 0/0 or infinite, as for sqrt(k3)."""
    value = f_divergence.strength
    if value is None or (isinstance(value, sympy.Expr) and value.has(*INFINITE)):
        return None
    return show_value(value)


def describe_at_reference(f_divergence: Any) -> str:
    """Describe f at r = 1."""
    value = format_strength(f_divergence)
    if value is None:
        return "a kink at r = 1" if f_divergence.strength is None else "f''(1) is not known"
    return f"f''(1) = {value}"


def _format_case(case: Any) -> str:
    """Return text such as "if alpha = 1, f = r*log(r) - r + 1"."""
    name, value, f = case
    return f"if {name} = {value}, " + ("nothing" if f is None else f"f = {TEXT(rewrite_in_r(f))}")


def describe_convexity(where: Any, holds: bool | None, ratio: str = "r", convex: str = "convex") -> str:
    """Return text such as "convex where r <= e", empty if that is open; convex: the word that it uses."""
    if holds is None:
        return ""
    if not where:
        return "convex nowhere"
    if holds:
        return convex
    shown_region, always = describe_region(where, ratio), describe_everywhere(where)
    if getattr(where, "always", None) == (getattr(where, "element", None),):
        return f"{convex} if {always}"
    place = shown_region if is_whole(where) else f"where {shown_region}"
    return f"{convex} {place}" + (f" (everywhere if {always})" if always else "")


def describe_convexity_in_q(objective: Any) -> str:
    """Describe where a separable objective is convex in q: "convex in q where r >= 1/e"."""
    return describe_convexity(objective.where, objective.is_convex, objective.of, "convex in q")
