"""The divergence behind a score coefficient c(r): its generator, its name, where it is one, how strong it is.

    E_q[c s] = grad E_q[f(r)]  with  f'' = -c'(r)/r,  f(1) = 0 and f'(1) = 0        Untrusted.

Constants of c drop, since E_q[s] = 0, and so may r - 1, whose mean is 0 for every theta.  f is convex, and
then an f-divergence, where c falls with r; along log q, that is with k1 = -log r, it rises.

>>> from klsym.convert import to_ring
>>> from klsym.language import k1, r
>>> generator(to_ring(k1)) == to_ring(k1 + r - 1), strength(to_ring(1 - r)) == to_ring(1)
(True, True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath

from klsym.engine.branches import Zero, signs, stretches
from klsym.engine.objectives import objective_under
from klsym.names import LOG_RATIOS, SAMPLE_BASES, parse_name
from klsym.ring import ONE, ZERO, ExpPoly, Number

K1 = ExpPoly.variable("k1")
R = (-K1).exp()


def slope(element: ExpPoly) -> ExpPoly:
    """d/dlog q of what holds no generic function."""
    return element.derive(lambda name: ONE if name in LOG_RATIOS else ZERO)


def at_reference(element: ExpPoly) -> ExpPoly:
    """The value of a function of k1 where q = p."""
    return element.substitute({"k1": ZERO})


def generator(c: ExpPoly) -> ExpPoly | None:
    """f(r), written in k1 = -log r, with E_q[c s] = grad E_q[f(r)], f(1) = 0 and f'(1) = 0.

    None where c depends on more than k1 and parameters, or the ring holds no f.
    """
    if {parse_name(name).base for name in c.names()} & {*SAMPLE_BASES} - {"k1"}:
        return None
    f = objective_under(c, "q")
    if f is None:
        return None
    f = f - at_reference(f)
    return f + at_reference(slope(f)) * (R - 1)  # df/dk1 = -f'(1) at r = 1


def strength(c: ExpPoly) -> ExpPoly:
    """f''(1) = -c'(1): near q = p the objective is half of this times the Fisher quadratic form; 1 for KL."""
    return at_reference(slope(c))


def third_order(c: ExpPoly) -> ExpPoly:
    """f'''(1) = -(c_kk + 2 c_k) with c_k = dc/dk1: -2 for the reverse KL, -1 for the forward KL."""
    first = slope(c)
    return -at_reference(slope(first) + first * 2)


# ---------------------------------------------------------------------------- names
def _alpha(a: Fraction) -> ExpPoly:
    """(r^a - a r + a - 1) / (a (a - 1)), whose mean under q is the alpha divergence of p from q."""
    return ((K1 * -a).exp() - R * a + (a - 1)) * (1 / (a * (a - 1)))


# KL(q||p), KL(p||q), their sum, chi2(p||q), chi2(q||p), sum (sqrt p - sqrt q)^2
GENERATORS = {
    "reverse-kl": K1 + R - 1,
    "forward-kl": ONE - R - K1 * R,
    "jeffreys": K1 - K1 * R,
    "pearson-chi2": (R - 1) ** 2,
    "neyman-chi2": K1.exp() + R - 2,
    "squared-hellinger": R - (K1 * Fraction(-1, 2)).exp() * 2 + 1,
}


def named(f: ExpPoly) -> tuple[str, ExpPoly] | None:
    """The name of a generator, and its multiple; None for what has no name.

    >>> name, multiple = named((R - 1) ** 2 * 3)
    >>> name, multiple == ONE * 3
    ('pearson-chi2', True)
    """
    rates = [-dict(exponent)[(("k1", 1),)] for _, exponent in f.terms if exponent]
    alphas = {f"alpha={a}": _alpha(Fraction(a)) for a in rates if a != 1}
    for name, known in (GENERATORS | alphas).items():
        multiple = _multiple(f, known)
        if multiple and f == known * multiple:
            return name, multiple
    return None


def _multiple(f: ExpPoly, known: ExpPoly) -> ExpPoly:
    """What stands before one term of the known generator in f: constants, and numbers."""
    (monomial, exponent), value = next(iter(known.terms.items()))
    power = dict(monomial).get("k1", 0)
    total = ZERO
    for (powers, inside), factor in f.terms.items():
        if inside == exponent and dict(powers).get("k1", 0) == power:
            constants = tuple(item for item in powers if item[0] != "k1")
            total = total + ExpPoly({(constants, ()): Fraction(factor) / value})
    return total


# ---------------------------------------------------------------------------- where it restores
@dataclass(frozen=True)
class Stretch:
    """An interval of k1 = -log r between zeros, each enclosed by rationals; None is infinity."""

    lower: Zero | None
    upper: Zero | None

    @property
    def everywhere(self) -> bool:
        return self.lower is None is self.upper

    def holds_reference(self) -> bool:
        """Is q = p inside, or at an end?"""
        return (self.lower is None or self.lower[0] <= 0) and (self.upper is None or self.upper[1] >= 0)


def convex_where(c: ExpPoly) -> tuple[Stretch, ...] | None:
    """Where q f(p/q) is convex in q: c rises with k1, so that the field pulls back; None where it is open.

    >>> from klsym.convert import to_ring
    >>> from klsym.language import k1, k2
    >>> convex_where(to_ring(k1 + k2))  # k1 >= -1, that is r <= e
    (Stretch(lower=(Fraction(-1, 1), Fraction(-1, 1)), upper=None),)
    """
    rising = slope(c)
    if not rising.names():
        value = rising.terms.get(((), ()), 0)
        return (Stretch(None, None),) if value >= 0 else ()
    found = stretches(rising)
    if found is None:
        taken = signs(rising)
        return None if taken is None or len(taken) > 1 else (Stretch(None, None),) * (taken == (1,))
    kept: list[Stretch] = []
    for sign, (lower, upper) in found:
        if sign > 0 and kept and kept[-1].upper == lower:  # both sides of a zero that is only touched
            kept[-1] = Stretch(kept[-1].lower, upper)
        elif sign > 0:
            kept.append(Stretch(lower, upper))
    return tuple(kept)


# ---------------------------------------------------------------------------- all of it
@dataclass(frozen=True)
class Generated:
    """What E_q[c s] with c = c(r) descends: f, where it is convex (None is open), f''(1), and how far down.

    unbounded: E_q[f(r)] = sum p f(r)/r falls without end as q(x) goes to 0 somewhere; None where it is open.
    """

    f: ExpPoly
    where: tuple[Stretch, ...] | None
    strength: ExpPoly
    unbounded: bool | None

    @property
    def is_divergence(self) -> bool | None:
        return None if self.where is None else any(stretch.everywhere for stretch in self.where)


def generated(c: ExpPoly) -> Generated | None:
    """All of this; None for a constant, or where c is no function of r alone.

    >>> k3_as_reward = generated(R - 1 + K1)
    >>> k3_as_reward.is_divergence, k3_as_reward.strength == ZERO, k3_as_reward.unbounded
    (False, True, True)
    """
    f = generator(c) if slope(c) else None
    if f is None:
        return None
    numeric = not f.names() - {"k1"}
    return Generated(f, convex_where(c), strength(c), limit(f * K1.exp()) == -math.inf if numeric else None)


def limit(element: ExpPoly) -> float:
    """The value of a function of k1 as k1 goes to minus infinity: the lowest rate, then the highest power."""
    lasting: dict[tuple[Fraction, int], Any] = {}
    for (monomial, exponent), value in element.terms.items():
        rates = dict(exponent)
        key = Fraction(rates.get((("k1", 1),), 0)), -dict(monomial).get("k1", 0)
        size = mpmath.exp(_real(rates.get((), 0)))  # beyond floats for large numbers
        lasting[key] = lasting.get(key, mpmath.mpf(0)) + _real(value) * size
    (rate, power), factor = min(lasting.items(), default=((Fraction(1), 0), mpmath.mpf(0)))
    if rate > 0 or not factor:
        return 0.0
    return (
        float(factor) if rate == power == 0 else math.copysign(math.inf, mpmath.sign(factor) * (-1) ** power)
    )


def _real(value: Number) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator
