"""Relations of logs l = log(e), for the kernel's rule `definition`: e exp(-l) = 1.  Untrusted.

A name v = e that stands in no exponent becomes e.

A product P exp(n l) with n >= 1 is P e exp((n - 1) l); one with n < 0 and P = g e + R is g exp((n + 1) l),
beside R exp(n l).  P is divided as a polynomial in one variable x, or in one exponential: its powers of x
come to lie between the lowest and the highest of e, and at one of the two.

>>> from klsym.kernel.statements import Definition
>>> r, ln = (-ExpPoly.variable("k1")).exp(), ExpPoly.variable("ln_1")
>>> context = Context(definitions=(Definition("ln_1", LOG, 1 + r),))
>>> def all_steps(a):
...     while (found := log_step(a, context)) is not None:
...         a = found[1]
...     return a
>>> all_steps(r * (-ln).exp()) == 1 - (-ln).exp(), all_steps((1 + r) ** 2 * (-ln).exp()) == 1 + r
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.kernel.ring import ZERO, ExpPoly, Key
from klsym.kernel.statements import LET, LOG, Context

Data = dict[str, Any]
MAX_TERMS = 60  # of what is divided
MAX_QUOTIENT = 60  # terms of a quotient


def log_step(element: ExpPoly, context: Context) -> tuple[Data, ExpPoly] | None:
    """The first relation that brings an element into its last form."""
    for name in sorted(element.names()):
        held, e = ExpPoly.variable(name), context.defined(name, LOG, LET)
        if e is None:
            continue
        of_log = context.defined(name, LOG) is not None
        if times := (_times(element, name, e) if of_log else _beside(element, name)):
            after = element - times * (_power(name, -1) * e - 1 if of_log else held - e)
            return {"name": name, "times": times.to_json()}, after
    return None


def _beside(element: ExpPoly, name: str) -> ExpPoly:
    """What stands beside a name: one power of it is put in."""
    found = {}
    for (monomial, exponent), value in sorted(element.terms.items()):
        powers = dict(monomial)
        if powers.get(name, 0) > 0:
            powers[name] -= 1
            found[tuple(row for row in powers.items() if row[1]), exponent] = value
    return ExpPoly(found)


def _power(name: str, rate: Any) -> ExpPoly:
    return (ExpPoly.variable(name) * rate).exp()


def _times(element: ExpPoly, name: str, e: ExpPoly) -> ExpPoly | None:
    """b for a - b (e exp(-l) - 1), where that is nearer to the last form."""
    by_rate: dict[Any, ExpPoly] = {}
    for (monomial, exponent), value in sorted(element.terms.items()):
        rates = dict(exponent)
        rate = rates.pop(((name, 1),), 0)
        rest = ExpPoly({(monomial, tuple(rates.items())): value})
        by_rate[rate] = by_rate.get(rate, ZERO) + rest
    for rate, beside in sorted(by_rate.items(), key=lambda row: row[0]):
        if rate >= 1:
            return -beside * _power(name, rate)
        if rate < 0 and (g := _quotient(beside, e)):
            return g * _power(name, rate + 1)
    return None


def _quotient(a: ExpPoly, e: ExpPoly) -> ExpPoly:
    """g where the powers of a - g e come nearer to where they end up; 0 if they are there."""
    if len(e.terms) == 1:
        g = a * e.inverse()
        return ZERO if g.inverted() - a.inverted() else g
    power = _grading(e)
    low, high = min(map(power, e.terms)), max(map(power, e.terms))
    above = high <= 0  # 1/(1 + r), and not r/(1 + r)
    for key, value in sorted(a.terms.items()) if len(a.terms) <= MAX_TERMS else ():
        n = power(key)
        if low < n < high or n == (high if above else low):
            continue
        end = ExpPoly({k: v for k, v in e.terms.items() if power(k) == (low if n <= low else high)})
        if len(end.terms) == 1:
            g = ExpPoly({key: value}) * end.inverse()
            if not g.inverted() - a.inverted():
                return g
        part = ExpPoly({k: v for k, v in a.terms.items() if power(k) == n})
        if (
            len(end.terms) > 1 and (of_several := quotient(part, end)) is not None
        ):  # (1 - w) r of w + (1 - w) r
            return of_several
    return ZERO


def quotient(a: ExpPoly, e: ExpPoly) -> ExpPoly | None:
    """g with a = g e; None if there is none: leading terms are divided, by an order that products keep."""
    names = sorted(a.names() | e.names())
    inner = sorted({m for element in (a, e) for _, exponent in element.terms for m, _ in exponent})

    def order(key: Any) -> tuple[Any, ...]:
        powers, rates = dict(key[0]), dict(key[1])
        return (*(rates.get(m, 0) for m in inner), *(powers.get(name, 0) for name in names))

    def lead(element: ExpPoly) -> ExpPoly:
        key = max(element.terms, key=order)
        return ExpPoly({key: element.terms[key]})

    total, divisor, below = ZERO, lead(e).inverse(), a.inverted()
    for _ in range(MAX_QUOTIENT):
        if not a:
            return total
        part = lead(a) * divisor
        if part.inverted() - below:
            return None
        total, a = total + part, a - part * e
    return None


def _grading(e: ExpPoly) -> Callable[[Key], Any]:
    """The power of one exponential in a term, or if there is none of one variable."""
    inside = sorted({m for _, exponent in e.terms for m, _ in exponent if m})
    if inside:
        return lambda key: dict(key[1]).get(inside[0], 0)
    names = sorted({name for monomial, _ in e.terms for name, _ in monomial})
    return lambda key: dict(key[0]).get(names[0], 0) if names else 0
