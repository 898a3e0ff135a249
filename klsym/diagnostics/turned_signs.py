"""Does a bound on the ratio turn the sign of a penalty's gradient where the policy is too small?

The gradient at a sample is h s, and descent raises q where h < 0.  Of min(r, 10) - 1 + k1, the k3 of a ratio
that is clipped, h is 1 - r where 1 < r < 10, and 1 where r > 10.

>>> from klsym.engine.explain import explain
>>> find_turned_sign(explain("min(r, 10) - 1 + k1")).lasts
True
>>> find_turned_sign(explain("min(k3, 10)")) is None
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sympy

from klsym.engine.fields.position_sums import remove_slots
from klsym.engine.regions.case_split import Condition
from klsym.engine.verdicts.verdict import Verdict
from klsym.language.expressions import DENSITIES, REWARDS, Estimator, k1, log_p, r, unfold

LOG_RATIOS = tuple(0.01 * 1.12**i for i in range(80))  # log p/q, from 0.01 to 77
PARAMETER = sympy.Rational(1, 5)  # a positive number for each parameter
Compiled = Callable[[float], float]


@dataclass(frozen=True)
class TurnedSign:
    """The bounds beyond which h > 0, though h < 0 before them; lasts: for every larger p/q, too."""

    where: tuple[Condition, ...]
    lasts: bool


@dataclass(frozen=True)
class _Case:
    """The conditions of a region, and h there, as functions of log p/q."""

    conditions: tuple[tuple[Condition, Compiled], ...]
    h: Compiled

    def contains(self, log_ratio: float) -> bool:
        return all(_compute_sign(x, log_ratio) in c.signs for c, x in self.conditions)


def find_turned_sign(verdict: Verdict) -> TurnedSign | None:
    """Return the bound on p/q that turns the sign of h where p > q, if there is one.

    None, too, where h grows so fast that a float cannot hold it.
    """
    cases = _compile_cases(verdict)
    try:
        regions = [next((case for case in cases if case.contains(x)), None) for x in LOG_RATIOS]
        slopes = [case.h(x) for case, x in zip(regions, LOG_RATIOS, strict=True) if case is not None]
    except OverflowError:
        return None
    if len(slopes) < len(LOG_RATIOS):
        return None
    for i, (before, after) in enumerate(pairwise(regions), start=1):
        if before is not None and before is not after and slopes[i - 1] < 0 < slopes[i]:
            signs = [(c, _compute_sign(x, LOG_RATIOS[i])) for c, x in before.conditions]
            where = tuple(Condition(c.x, (sign,)) for c, sign in signs if sign not in c.signs)
            return TurnedSign(where, all(slope > 0 for slope in slopes[i:]))
    return None


def _compile_cases(verdict: Verdict) -> list[_Case]:
    """The cases of h, if their conditions bound p/q alone; else nothing."""
    rows = [(on, h) for on, h in verdict.gradient.score_cases if isinstance(h, sympy.Basic)]
    if not all(_is_bound_of_ratio(condition.x) for on, _ in rows for condition in on):
        return []
    cases = []
    for on, h in rows:
        compiled = [(condition, _compile(condition.x)) for condition in on]
        conditions = tuple((condition, x) for condition, x in compiled if x is not None)
        slope = _compile(h)
        if slope is None or len(conditions) < len(compiled):
            return []
        cases.append(_Case(conditions, slope))
    return cases


def _is_bound_of_ratio(x: Any) -> bool:
    """Does a condition speak of p/q alone, or of its logarithm alone?"""
    plain = remove_slots(x)
    return any(
        plain.has(ratio) and not plain.xreplace({ratio: PARAMETER}).has(*DENSITIES) for ratio in (k1, r)
    )


def _compile(expression: Any) -> Compiled | None:
    """A function of log p/q, at q = mu and without rewards; None where a value depends on other cases."""
    plain = unfold(remove_slots(expression))
    zero = {x: sympy.S.Zero for x in (*DENSITIES, *REWARDS) if x != log_p}
    plain = plain.xreplace(zero)
    plain = plain.xreplace({x: PARAMETER for x in plain.free_symbols if x != log_p})
    if plain.has(sympy.Heaviside, Estimator) or not plain.is_real:
        return None
    return sympy.lambdify(log_p, plain, "math")  # type: ignore[no-any-return]


def _compute_sign(x: Compiled, log_ratio: float) -> int:
    value = x(log_ratio)
    return 0 if value == 0 else int(math.copysign(1, value))
