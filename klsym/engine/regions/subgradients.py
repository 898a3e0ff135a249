"""The per-sample gradient outside the ring: SymPy's derivative, with one slope for each tie.

    Heaviside(x, h) is 0 for x < 0, h at x = 0, 1 for x > 0; sign(0) = 0

The slope of clip is 1 at both bounds, min and max share it, that of abs at 0 is 0: so PyTorch has it up to
2.13, and so `klsym.sampling.losses` evaluates a loss.  This matters where every sample meets a tie: on-policy
rho is 1, so that clip(rho, 1, 2) sits on its bound, and max(k1, sg(k1)) is a tie in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy
from sympy import Function, Heaviside

from klsym.convert import to_ring
from klsym.engine.regions.piecewise import DENSITIES, HALF, OWN, Regions, is_piecewise
from klsym.engine.regions.root_isolation import stretches
from klsym.errors import NotInRing
from klsym.language import REWARDS, clip, log_mu, log_q, rho, sg, unfold, without_sg


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


# ---------------------------------------------------------------------------- branches that no sample takes
def chosen(loss: Any, on_policy: bool) -> Any:
    """The loss without the branches of min, max, clip and abs that no sample takes.

    A branch that ties with another one, as x and sg(x), stays: its slope counts.
    """

    def above(a: Any, b: Any) -> bool:
        try:
            tie = sympy.Symbol(f"tie{OWN}")
            return bool(Regions().step(at_sampling(a - b, on_policy), tie) == 1)
        except NotInRing:  # too many regions
            return False

    def taken(e: Any) -> Any:
        match e:
            case sympy.Max():
                return e.func(*(b for b in e.args if not any(above(a, b) for a in e.args)))
            case sympy.Min():
                return e.func(*(b for b in e.args if not any(above(b, a) for a in e.args)))
            case sympy.Abs():
                [x] = e.args
                return x if above(x, sympy.S.Zero) else -x if above(sympy.S.Zero, x) else e
        return _bounded(e, above)

    return loss.replace(lambda e: isinstance(e, sympy.Min | sympy.Max | sympy.Abs | clip), taken)


def _bounded(e: Any, above: Callable[[Any, Any], bool]) -> Any:
    """clip(x, lo, hi) = min(max(x, lo), hi), or the one of the three that it always is."""
    x, lo, hi = e.args
    if above(x, hi) or above(lo, hi):
        return hi
    if above(hi, x) and above(hi, lo):
        return x if above(x, lo) else lo if above(lo, x) else e
    return e


# ---------------------------------------------------------------------------- ties that every sample meets
def conventions(loss: Any, on_policy: bool) -> set[str]:
    """What ties at every sample, or in a whole region, so that its slope there matters: clip, min, abs.

    Each such slope becomes an unknown, which a step and its complement share: what cancels, as for the two
    equal slopes in min(rho*A, clip(rho, 0.8, 1.2)*A), is no matter of convention.
    """
    slope, regions = _derivative(loss), Regions()
    unknown: dict[Any, Any] = {}
    replaced = {}
    for step in _steps(slope):
        tie = _unknown(step, unknown)
        try:
            value = regions.step(at_sampling(step.args[0], on_policy), tie)
        except NotInRing:  # too many regions
            continue
        opaque = {e: Heaviside(e.args[0], _at_zero(step)) for e in value.atoms(Heaviside) if e.args[1] == tie}
        value = value.xreplace(opaque)  # of parameters: a tie for one value of theirs
        if value.free_symbols & tie.free_symbols:
            replaced[step] = 2 * value - 1 if isinstance(step, sympy.sign) else value
    left = _names(regions, at_sampling(slope.xreplace(replaced), on_policy))
    return {kind for symbol, kind in unknown.values() if symbol.name in left}


def touched(loss: Any, on_policy: bool) -> bool:
    """May a branch meet one that it never crosses, where the two slopes differ, so that half of each counts?

    x >= y and x = y have the same slope, unless part of x - y is held constant: max(r, sg(1 - k1)) at r = 1.
    """
    if not is_piecewise(loss) or not _is_held(loss, on_policy):
        return False
    found = (step for step in _steps(_derivative(loss)) if _is_held(step.args[0], on_policy))
    return any(_is_touched(at_sampling(step.args[0], on_policy), _at_zero(step)) for step in found)


def _is_held(e: Any, on_policy: bool) -> bool:
    return bool(e.has(sg) or (on_policy and unfold(e).has(log_mu)))


def _is_touched(x: Any, at_zero: Any) -> bool:
    """Has x one sign and zeros beside, where a step of x is not what it is elsewhere?"""
    if not x.has(*DENSITIES) or x.is_positive or x.is_negative:
        return False
    tie = sympy.Symbol(f"tie{OWN}")
    try:
        value = Regions().step(x, tie)
        zeros = stretches(to_ring(x)) if value in (0, 1) and value != at_zero else [(1, (None, None))]
    except NotInRing:
        return False
    return zeros is None or len(zeros) > 1


def _unknown(step: Any, unknown: dict[Any, Any]) -> Any:
    """A symbol for the slope at this tie, or one minus that of its complement Heaviside(-x, 1 - h)."""
    x, at_zero = sympy.expand(unfold(step.args[0])), _at_zero(step)
    flipped = x.could_extract_minus_sign()
    kind = "abs" if isinstance(step, sympy.sign) else "min" if at_zero == HALF else "clip"
    fresh = sympy.Symbol(f"tie{OWN}{len(unknown)}", real=True), kind
    symbol, _ = unknown.setdefault((-x, 1 - at_zero) if flipped else (x, at_zero), fresh)
    return 1 - symbol if flipped else symbol


def _names(regions: Regions, e: Any) -> set[str]:
    """The symbols that are left once everything that cancels has."""
    try:
        e = sympy.expand(unfold(regions.polynomial(e)))
        return set(regions.reduced(to_ring(e)).names())
    except NotInRing:
        return {symbol.name for symbol in e.free_symbols}


def rests_on_nesting(loss: Any, on_policy: bool) -> bool:
    """Do three arguments of one min or max tie at every sample, with different slopes?"""
    for e in (e for e in loss.atoms(sympy.Min, sympy.Max) if len(e.args) > 2):
        for one in e.args:
            tied = [a for a in e.args if vanishes_everywhere(at_sampling(a - one, on_policy))]
            slopes = [gradient_coefficient(a, on_policy) for a in tied]
            if len(tied) > 2 and any(sympy.expand(unfold(x - slopes[0])) != 0 for x in slopes):
                return True
    return False


def vanishes_everywhere(e: Any) -> bool:
    """Is e zero at every sample?  Region by region, with `expand` in each."""
    tie = sympy.Symbol(f"tie{OWN}")
    try:
        return bool(Regions().step(e, tie) == tie)
    except NotInRing:  # too many regions
        return False


# ---------------------------------------------------------------------------- bounds that may cross
def may_cross(e: Any) -> bool:
    """May lo exceed hi in this clip?"""
    _, lo, hi = e.args
    return not (hi - lo).is_nonnegative


def assumed_positive(loss: Any) -> dict[Any, Any]:
    """The parameters that are positive if each clip such as clip(rho, 1 - eps, 1 + eps) is to have lo <= hi.

    Parameter -> the same name, positive; none for a clip whose bounds may cross even then.
    """
    found: dict[Any, Any] = {}
    for e in sorted(loss.atoms(clip), key=str):
        _, lo, hi = e.args
        width = sympy.expand(hi - lo)
        names = width.free_symbols - {*DENSITIES, *REWARDS}
        positive = {name: sympy.Symbol(name.name, positive=True) for name in sorted(names, key=str)}
        if may_cross(e) and width.xreplace(positive).is_nonnegative:
            found.update({name: new for name, new in positive.items() if not name.is_positive})
    return found
