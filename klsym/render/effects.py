"""What descending a penalty that is no divergence does, in sentences."""

from __future__ import annotations

import math
from typing import Any

from klsym.notation.printers import TEXT
from klsym.notation.ratios import in_r
from klsym.notation.text import show_interval


def effects_lines(found: Any) -> list[str]:
    """One sentence a fact: the force, at q = p, far above, far below, at the edge, the ends of training."""
    if found is None:
        return []
    rate = TEXT(in_r(found.slope))
    said = [f"per unit of log q an outcome is pulled back by {rate}; by the reverse KL it is 1 everywhere"]
    said += _at_reference(found)
    said += [_far("above p", found.overweight), _far("below p", found.underweight)]
    if found.lower is not None:
        said.append(_lower(found.lower))
    if found.falls is not None:
        like = _falling(*found.falls)
        said.append(f"as q goes to 0 somewhere, the objective falls without end, as {like}")
    if found.corners_attract:
        said.append(
            "as q goes to 0 somewhere, c goes to infinity: whatever the rewards and beta > 0, what is rare"
            " is driven out, so that every policy on a single outcome attracts"
        )
    return said


def _at_reference(found: Any) -> list[str]:
    if found.strength > 0:
        return []
    if found.strength < 0:
        return [f"at q = p that is {found.strength}: small steps away from p grow"]
    if not found.third:
        return ["at q = p that is 0: at no beta is a small step away from p pulled back"]
    return [
        f"at q = p that is 0, f = {_cubic(found.third)} + ..: at no beta is a small step away from p pulled"
        " back, and the objective is lower on one side"
    ]


def _cubic(third: Any) -> str:
    value = third / 6 if third % 6 == 0 else None
    if value is not None:
        return f"{int(value)}*(r - 1)**3"
    sign, size = "-" if third < 0 else "", abs(third)
    return f"{sign}{'' if size == 1 else f'{size}*'}(r - 1)**3/6"


def _far(where: str, value: float) -> str:
    """1 - r goes to 1 where q is far above p, to minus infinity far below."""
    start = f"far {where} it goes to"
    if math.isinf(value):
        kind = "pull back" if value > 0 else "push away"
        return f"{start} {'infinity' if value > 0 else 'minus infinity'}: the further, the harder the {kind}"
    if value == 0:
        return f"{start} 0: there the penalty lets go"
    return f"{start} {value:g}: it {'pulls back' if value > 0 else 'pushes away'}, no harder the further"


def _lower(proof: Any) -> str:
    close = proof.theorem.close
    model = close["model"]
    value = show_interval(close["right"])
    q, p = (f"({', '.join(model[name])})" for name in ("q", "p"))
    return f"q = p is no minimum: the objective is {value} at q = {q}, p = {p}, and 0 at q = p (proved)"


def _falling(rate: Any, power: int, factor: float) -> str:
    """c p (log q/p)^n (p/q)^-a."""
    parts = [f"{abs(factor):g}"] if abs(factor) != 1 else []
    parts += ["p"]
    sign = "-" if factor * (-1) ** power < 0 else ""
    if power:
        parts.append("log(p/q)" + (f"**{power}" if power > 1 else ""))
    if rate:
        parts.append(f"(p/q)**{-rate}" if rate != -1 else "p/q")
    return sign + "*".join(parts)
