"""Supports that a change of measure needs outside the ring: does the integrand fade?  Untrusted.

    E_mu[h s] sums mu h s where mu > 0, and E_q[h s/rho] sums the same where q > 0

What one sum leaves out must vanish.  mu << q is needed unless mu h s vanishes as q goes to 0, and q << mu
unless mu h s vanishes as mu goes to 0.  As in the kernel, q goes to 0 as the square of a distance and
s = grad q/q, so that h must vanish faster than sqrt(q).  `Growth` bounds h as one density d goes to 0, with
t = -log d: an upper bound always, and the exact order where the sign of the leading term is known.  Where no
bound is found, the support is needed.

>>> from klsym.language import A, clip, k1, log_p, log_q, r, rho
>>> change_of_measure(rho/(1 + r))
(Message('support', first='q', second='mu'),)
>>> change_of_measure(A*clip(r, 0, 2))
(Message('support', first='mu', second='q'),)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import sympy
from sympy import Heaviside

from klsym.engine.regions.case_split import Case, cases
from klsym.engine.regions.piecewise import DENSITIES, HALF
from klsym.language import clip, log_mu, log_p, log_q, unfold
from klsym.messages import Message

INFINITE, ZERO_RATE = sympy.oo, -sympy.oo


@dataclass(frozen=True)
class Growth:
    """|e| <= C exp(rate t) t^degree for large t; where the sign is known, e is of exactly that order."""

    rate: Any = sympy.S.Zero
    degree: Any = sympy.S.Zero
    sign: int | None = None

    @property
    def order(self) -> tuple[Any, Any]:
        return self.rate, self.degree


UNKNOWN, VANISHED = Growth(INFINITE), Growth(ZERO_RATE)
LINEAR = Growth(degree=sympy.S.One, sign=-1)  # log d itself


# ---------------------------------------------------------------------------- what is asked
def support(a: str, b: str) -> Message:
    """The hypothesis a << b."""
    return Message("support", first=a, second=b)


def in_order(found: Iterable[Message]) -> tuple[Message, ...]:
    """Each support once, in the order of the names."""
    return tuple(sorted(set(found), key=lambda one: tuple(one.values.values())))


def change_of_measure(
    h: Any, scored: bool = True, moved: Mapping[Any, Any] | None = None
) -> tuple[Message, ...]:
    """The supports that E_mu[h s] = E_q[h s/rho] needs; without the score where it is not scored.

    moved: for another slot than that of h, symbol -> what is summed there; None for its own slot.
    """
    over_q, over_mu = (bound(_approaching(h, x, moved), x).rate for x in (log_q, log_mu))
    found = {("mu", "q")} if not over_q < (-HALF if scored else 0) else set()
    found |= {("q", "mu")} if not over_mu < 1 else set()  # times mu itself
    return tuple(support(*pair) for pair in sorted(found))


def of_named_kl(names: Iterable[str]) -> tuple[Message, ...]:
    """The supports without which a KL divergence that is named is infinite."""
    pairs = {"reverse-kl": ("q", "p"), "forward-kl": ("p", "q")}
    return tuple(support(*pairs[name]) for name in names if name in pairs)


def ratios(v: Any) -> tuple[Message, ...]:
    """The supports with which density ratios in v have the mean 1 under q."""
    powers = [x.args[0] for x in unfold(v).atoms(sympy.exp)]
    pairs = ((log_p, "p"), (log_mu, "mu"))
    return tuple(support(name, "q") for x, name in pairs if any(power.has(x) for power in powers))


def _approaching(h: Any, x: Any, moved: Mapping[Any, Any] | None) -> Any:
    """h as a function of log d in the slot that moves: what is summed there changes by its slope."""
    if moved is None:
        return unfold(h)
    still = unfold(h).xreplace({y: sympy.Dummy(real=True) for y in DENSITIES})
    shifts = {}
    for symbol, of in moved.items():
        slope = sympy.expand(sympy.diff(unfold(of), x))
        shifts[symbol] = symbol + (slope * x if not slope.has(*DENSITIES) else sympy.Function("beyond")(x))
    return still.xreplace(shifts)


# ---------------------------------------------------------------------------- growth
def bound(h: Any, x: Any) -> Growth:
    """The least bound found: of h as it is, multiplied out, and by the cases that are left in the end."""
    found = [growth(h, x), growth(sympy.expand(h), x)]
    rows = [unfold(case.coefficient) for case in cases(h) if not _is_left(case, x)]
    found += [_largest(map(sympy.expand, rows), x)] if rows else []
    return min(found, key=lambda one: one.order)


def _is_left(case: Case, x: Any) -> bool:
    """Does no x below some bound meet the conditions of this case?"""
    signs = ((growth(sympy.expand(unfold(on.x)), x).sign, on.signs) for on in case.conditions)
    return any(sign is not None and sign not in allowed for sign, allowed in signs)


def growth(e: Any, x: Any) -> Growth:
    """How e grows as x = log d goes to minus infinity."""
    if e == 0:
        return VANISHED
    if not e.has(x):
        return Growth(sign=1 if e.is_positive else -1 if e.is_negative else None)
    if e == x:
        return LINEAR
    known = RULES.get(e.func)
    return known(e, x) if known else UNKNOWN


def _sum(e: Any, x: Any) -> Growth:
    """The largest term; terms of one order may cancel unless they have one sign."""
    parts = [growth(term, x) for term in e.args]
    most = max(part.order for part in parts)
    signs = {part.sign for part in parts if part.order == most}
    return Growth(*most, signs.pop() if len(signs) == 1 else None)


def _product(e: Any, x: Any) -> Growth:
    parts = [growth(factor, x) for factor in e.args]
    if any(part.rate == ZERO_RATE for part in parts):
        return VANISHED if all(part.rate != INFINITE for part in parts) else UNKNOWN
    signs = [part.sign for part in parts]
    sign = None if None in signs else int(sympy.prod(signs))
    return Growth(sum(part.rate for part in parts), sum(part.degree for part in parts), sign)


def _power(e: Any, x: Any) -> Growth:
    base, exponent = growth(e.base, x), e.exp
    if not exponent.is_Rational or base.rate == INFINITE or (exponent < 0 and base.sign is None):
        return UNKNOWN
    if base.rate == ZERO_RATE:
        return VANISHED if exponent > 0 else UNKNOWN
    odd = exponent.is_Integer and exponent % 2
    sign = (
        1 if base.sign == 1 or (base.sign and exponent.is_Integer and not odd) else base.sign if odd else None
    )
    return Growth(base.rate * exponent, base.degree * exponent, sign)


def _exponential(e: Any, x: Any) -> Growth:
    """exp(a x + bounded) is a power of the density; what falls beyond is bounded, what rises is not."""
    of = sympy.expand(e.args[0])
    slope = of.coeff(x)
    rest = growth(of - slope * x, x)
    if rest.order <= (0, 0) and slope.is_Rational:
        return Growth(-slope, sympy.S.Zero, 1)
    whole = growth(of, x)
    if whole.order <= (0, 0):
        return Growth(sign=1)
    if whole.sign != -1:
        return UNKNOWN
    return VANISHED if whole.rate > 0 or whole.degree > 1 else Growth()


def _logarithm(e: Any, x: Any) -> Growth:
    of = growth(e.args[0], x)
    if of.sign != 1:
        return UNKNOWN
    if of.rate:
        return Growth(degree=sympy.S.One, sign=1 if of.rate > 0 else -1)
    return Growth(degree=sympy.S.One) if of.degree else Growth()


def _absolute(e: Any, x: Any) -> Growth:
    of = growth(e.args[0], x)
    return Growth(*of.order, 1 if of.sign else None)


def _sign(e: Any, x: Any) -> Growth:
    return Growth(sign=growth(e.args[0], x).sign)


def _step(e: Any, x: Any) -> Growth:
    of = growth(sympy.expand(e.args[0]), x).sign
    return VANISHED if of == -1 else Growth(sign=of)


def _chosen(e: Any, x: Any) -> Growth:
    """min and max: the one that it is in the end, or at most the largest of all."""

    def one(a: Any, b: Any) -> Any:
        over = growth(sympy.expand(a - b), x).sign
        return (
            e.func(a, b, evaluate=False) if over is None else a if (over > 0) == (e.func is sympy.Max) else b
        )

    found = reduce(one, e.args)
    return _largest(e.args, x) if isinstance(found, e.func) else growth(found, x)


def _clipped(e: Any, x: Any) -> Growth:
    """min(max(x, lo), hi) lies between lo and hi, or is hi."""
    of, lo, hi = e.args
    for bound, sign in ((lo, -1), (hi, 1)):
        if growth(sympy.expand(of - bound), x).sign == sign:
            return (
                growth(bound, x)
                if sign == 1 or growth(sympy.expand(hi - lo), x).sign == 1
                else _largest((lo, hi), x)
            )
    return _largest((lo, hi), x)


def _largest(parts: Iterable[Any], x: Any) -> Growth:
    return Growth(*max(growth(part, x).order for part in parts))


RULES = {
    sympy.Add: _sum, sympy.Mul: _product, sympy.Pow: _power, sympy.exp: _exponential, sympy.log: _logarithm,
    sympy.Abs: _absolute, sympy.sign: _sign, Heaviside: _step, sympy.Min: _chosen, sympy.Max: _chosen,
    clip: _clipped,
}  # fmt: skip
