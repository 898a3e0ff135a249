"""The per-sample gradient outside the ring: SymPy's derivative, with one slope for each tie.

    Heaviside(x, h) is 0 for x < 0, h at x = 0, 1 for x > 0; sign(0) = 0

The slope of clip is 1 at both bounds, min and max share it, that of abs at 0 is 0: so PyTorch has it up to
2.13, and so `klsym.sampling.losses` evaluates a loss.  This matters where every sample meets a tie: on-policy
rho is 1, so that clip(rho, 1, 2) sits on its bound, and max(k1, sg(k1)) is a tie in any case.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import sympy
from sympy import Function, Heaviside

from klsym.engine.regions.piecewise import DENSITIES, HALF, Regions, is_piecewise
from klsym.errors import NotInRing
from klsym.language import REWARDS, log_mu, log_q, rho, without_sg


class Lesser(Function):
    """min of two numbers, which share the slope where they are equal."""

    nargs = 2
    is_real = True

    def fdiff(self, argindex: int = 1) -> Any:
        a, b = self.args
        return Heaviside(b - a if argindex == 1 else a - b)


class Greater(Function):
    """max of two numbers, which share the slope where they are equal."""

    nargs = 2
    is_real = True

    def fdiff(self, argindex: int = 1) -> Any:
        a, b = self.args
        return Heaviside(a - b if argindex == 1 else b - a)


# ---------------------------------------------------------------------------- the gradient
def gradient_coefficient(loss: Any, on_policy: bool = False) -> Any:
    """dL/dlog q with sg(.) held constant, then sg dropped: the per-sample gradient over s."""
    return settled(at_sampling(_derivative(loss), on_policy))


def _derivative(loss: Any) -> Any:
    """dL/dlog q with steps for the slopes of piecewise functions, before sg is dropped."""
    paired = loss.replace(lambda e: isinstance(e, sympy.Min | sympy.Max), _pairs)
    slope = sympy.diff(paired, log_q).replace(sympy.DiracDelta, lambda *_: sympy.S.Zero)
    return slope.replace(Lesser, sympy.Min).replace(Greater, sympy.Max)


def _pairs(e: Any) -> Any:
    """min and max by pairs from the left, what varies from sample to sample before what does not."""
    varying = [a for a in e.args if a.has(*DENSITIES, *REWARDS)]
    fixed = [a for a in e.args if not a.has(*DENSITIES, *REWARDS)]
    pair = Lesser if isinstance(e, sympy.Min) else Greater
    return reduce(pair, varying + ([e.func(*fixed)] if fixed else []))


def at_sampling(expression: Any, on_policy: bool) -> Any:
    """The value at a sample: sg dropped, and on-policy log mu = log q."""
    value = without_sg(expression)
    return expression_at_policy(value) if on_policy else value


def expression_at_policy(expression: Any) -> Any:
    """The sampler is q: log mu = log q, rho = 1."""
    return expression.xreplace({rho: sympy.Integer(1)}).subs(log_mu, log_q)


def settled(e: Any) -> Any:
    """Every step whose sign is known, or whose argument is zero at every sample, as a number."""
    return e.xreplace({step: _settled_step(step) for step in _steps(e)})


def _steps(e: Any) -> list[Any]:
    return sorted(e.atoms(Heaviside, sympy.sign), key=sympy.default_sort_key)


def _settled_step(step: Any) -> Any:
    """A step of what is itself piecewise may tie on a whole region: its end 1 or 0 as min(1, 2 Heaviside)."""
    x, at_zero = step.args[0], _at_zero(step)
    try:
        value = Regions().step(x, at_zero)
    except NotInRing:  # too many regions
        return step
    if isinstance(step, sympy.sign):
        return 2 * value - 1 if value.is_number else step
    if not x.has(*DENSITIES) or value.is_number:
        return value
    if is_piecewise(x) and at_zero != HALF:
        return sympy.Min(1, 2 * Heaviside(x)) if at_zero == 1 else sympy.Max(0, 2 * Heaviside(x) - 1)
    return step


def _at_zero(step: Any) -> Any:
    """The value at x = 0 of the step that sign(x) is twice of, or of Heaviside."""
    return HALF if isinstance(step, sympy.sign) else step.args[1]
