"""Bounds beyond which the score of a loss has another factor than between them, and not 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from klsym.engine.verdicts.verdict import Verdict
from klsym.language.expressions import DENSITIES
from klsym.language.messages import Message
from klsym.notation.values import collect_names


def find_truncation(verdict: Verdict) -> Iterator[Message]:
    """Yield the factor of the score between the bounds of a weight, and the factors beyond them."""
    factors, biases = verdict.gradient.score_cases, [b for _, b in verdict.gradient.bias_cases]
    values = [h for _, h in factors]
    if not biases or not all(isinstance(x, sympy.Expr) for x in (*values, *biases)):
        return
    inside = next((h for h in values if all(sympy.expand(h + b) in values for b in biases)), None)
    beyond = tuple((on, h) for on, h in factors if h != inside)
    if inside is not None and all(any(_is_of_policies(c.x) for c in on) for on, _ in beyond):
        yield Message("truncates", inside=inside, beyond=beyond)


def _is_of_policies(x: Any) -> bool:
    """Does the value of a condition depend on log densities?"""
    densities = {density.name for density in DENSITIES}
    return any(name.partition("[")[0] in densities for name in collect_names(x))
