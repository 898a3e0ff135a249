"""Sentences on how a penalty that is not a divergence acts on the policy."""

from __future__ import annotations

import math
from typing import Any

from klsym.notation.printers import TEXT
from klsym.notation.ratios import rewrite_in_r
from klsym.notation.text import show_interval


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
