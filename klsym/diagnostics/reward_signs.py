"""Does descending a loss make samples less likely the larger their reward is?

The gradient at a sample is h s.  It does if h rises with the reward wherever it depends on it: of
min(rho*A, clip(rho, 4/5, 6/5)*A), h is rho*A where no bound binds, and 0 elsewhere.

>>> from klsym.engine.explain import explain
>>> [opposed_reward(explain(x, sampling="off-policy")) for x in ("clip(rho, 0, 2)*A", "-clip(rho, 0, 2)*A")]
[A, None]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy

from klsym.engine.verdicts.verdict import Verdict
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import SLOTTED, A, M, R

OF_NAME = {x.name: x for x in (R, A)}


def opposed_reward(verdict: Verdict) -> Any | None:
    """The reward, R or A, with which h rises: somewhere, and nowhere does it fall; else None.

    A loss of both may be that of a reward less its baseline.
    """
    values = list(_values(verdict))
    if any(value is None for value in values):
        return None
    rewards = {x for h in values for x in h.free_symbols if _base(x) in OF_NAME}
    if len({_base(x) for x in rewards}) != 1:
        return None
    slopes = [slope for h in values for x in rewards if (slope := sympy.expand(h.diff(x))) != 0]
    rises = bool(slopes) and all(map(_is_at_least_0, slopes))
    return OF_NAME[_base(next(iter(rewards)))] if rises else None


def _values(verdict: Verdict) -> Iterator[Any]:
    """Yield the coefficient of each score, case by case; None where it is no expression."""
    h = verdict.h if verdict.centred is None else verdict.centred
    found = [value for _, value in verdict.per_sample_cases] or [h]
    for value in found:
        for one in value.values() if isinstance(value, Mapping) else [value]:
            one = to_sympy(one) if isinstance(one, ExpPoly) else one
            yield one if isinstance(one, sympy.Basic) and not one.has(sympy.Heaviside) else None


def _is_at_least_0(slope: Any) -> bool:
    """For positive parameters and any mask, whatever the sample."""
    samples = {x.name for x in SLOTTED}
    weights = {x: sympy.Dummy(positive=True) for x in slope.free_symbols if _base(x) not in samples}
    masks = {x: sympy.Dummy(nonnegative=True) for x in slope.free_symbols if _base(x) == M.name}
    return bool(slope.xreplace({**weights, **masks}).is_nonnegative)


def _base(x: Any) -> str:
    return str(x.name.partition("[")[0])
