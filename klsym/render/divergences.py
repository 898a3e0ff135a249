"""The f-divergence of a loss in words: its generator f(r), and where f is convex.

Where it is no divergence, sentences say how such a penalty acts on the policy.
"""

from __future__ import annotations

import math
from typing import Any

import sympy

from klsym.notation.combination import build_mean
from klsym.notation.printers import TEXT
from klsym.notation.ratios import describe_everywhere, describe_region, is_whole, rewrite_in_r
from klsym.notation.text import show_interval
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
    """Describe where an objective without a name is convex in q: "convex in q where r >= 1/e"."""
    return describe_convexity(objective.where, objective.is_convex, objective.of, "convex in q")


def describe_effects(effects: Any) -> list[str]:
    """Return a sentence for each fact: the force at q = p, far from p, and where q goes to 0."""
    if effects is None:
        return []
    rate = TEXT(rewrite_in_r(effects.slope))
    lines = [f"per unit of log q an outcome is pulled back by {rate}; by the reverse KL it is 1 everywhere"]
    lines += _describe_force_at_reference(effects)
    lines += [
        _describe_distant_force("above p", effects.overweight),
        _describe_distant_force("below p", effects.underweight),
    ]
    if effects.lower is not None:
        lines.append(_describe_lower_point(effects.lower))
    if effects.falls is not None:
        like = _format_falling_rate(*effects.falls)
        lines.append(f"as q goes to 0 somewhere, the objective falls without end, as {like}")
    if effects.corners_attract:
        lines.append(
            "as q goes to 0 somewhere, c goes to infinity: whatever the rewards and beta > 0, what is rare"
            " is driven out, so that every policy on a single outcome attracts"
        )
    return lines


def _describe_force_at_reference(effects: Any) -> list[str]:
    if effects.strength > 0:
        return []
    if effects.strength < 0:
        return [f"at q = p that is {effects.strength}: small steps away from p grow"]
    if not effects.third:
        return ["at q = p that is 0: at no beta is a small step away from p pulled back"]
    return [
        f"at q = p that is 0, f = {_format_cubic(effects.third)} + ..: at no beta is a small step away from p"
        " pulled back, and the objective is lower on one side"
    ]


def _format_cubic(third: Any) -> str:
    value = third / 6 if third % 6 == 0 else None
    if value is not None:
        return f"{int(value)}*(r - 1)**3"
    sign, size = "-" if third < 0 else "", abs(third)
    return f"{sign}{'' if size == 1 else f'{size}*'}(r - 1)**3/6"


def _describe_distant_force(where: str, value: float) -> str:
    """Describe the limit of the force far from p; for the reverse KL it is 1 - r, with limits 1 and -oo."""
    start = f"far {where} it goes to"
    if math.isinf(value):
        kind = "pull back" if value > 0 else "push away"
        return f"{start} {'infinity' if value > 0 else 'minus infinity'}: the further, the harder the {kind}"
    if value == 0:
        return f"{start} 0: there the penalty lets go"
    return f"{start} {value:g}: it {'pulls back' if value > 0 else 'pushes away'}, no harder the further"


def _describe_lower_point(proof: Any) -> str:
    close = proof.theorem.close
    model = close["model"]
    value = show_interval(close["right"])
    q, p = (f"({', '.join(model[name])})" for name in ("q", "p"))
    return f"q = p is no minimum: the objective is {value} at q = {q}, p = {p}, and 0 at q = p (proved)"


def _format_falling_rate(rate: Any, power: int, factor: float) -> str:
    """Format the rate c p (log q/p)^n (p/q)^-a."""
    parts = [f"{abs(factor):g}"] if abs(factor) != 1 else []
    parts += ["p"]
    sign = "-" if factor * (-1) ** power < 0 else ""
    if power:
        parts.append("log(p/q)" + (f"**{power}" if power > 1 else ""))
    if rate:
        parts.append(f"(p/q)**{-rate}" if rate != -1 else "p/q")
    return sign + "*".join(parts)
