"""The bias of advantages from a critic with lambda below 1, as the claim beyond.gae-bias states it.

>>> from klsym.engine.answers.dispatch import as_written
>>> find_lambda(as_written("-sg(gae(0.95))*log_q", ()).expression)
19/20
>>> find_lambda(as_written("-sg(gae(0.95, 0.99))*log_q", ()).expression) is None  # another discount
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from klsym.engine.options.settings import Setting
from klsym.language.expressions import V, V_next, log_q, sg
from klsym.language.messages import Message
from klsym.language.sums import build_advantage_estimate


def describe_critic_bias(e: Any, setting: Setting) -> Iterator[Message]:
    """Yield what lambda does to the gradient of -sg(gae(lambda))*log_q, beside terms without a critic."""
    if setting.is_per_token and setting.on_policy and setting.is_differentiated and not setting.averaged:
        weight = find_lambda(e)
        if weight is not None:
            yield Message("biased-by-critic", weight=weight)


def find_lambda(e: Any) -> Any:
    """Return lambda < 1 of a loss that is -sg(gae(lambda))*log_q, and terms without a critic; else None."""
    if not e.has(V):
        return None
    bases = {x.base for x in e.atoms(sympy.Pow) if x.base.is_Rational and x.base > 0}  # (1/2)**x is 2**-x
    for weight in sorted({min(base, 1 / base) for base in bases} - {sympy.S.One}):
        remainder = sympy.expand(e + sg(build_advantage_estimate(weight)) * log_q)
        if not remainder.has(V, V_next):
            return weight
    return None
