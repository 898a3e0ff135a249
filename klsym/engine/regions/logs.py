"""Relations of logs l = log(e), for the kernel's rule `definition`: e exp(-l) = 1.  Untrusted.

A name v = e that stands in no exponent becomes e.

A product P exp(n l) with n >= 1 is P e exp((n - 1) l); one with n < 0 and P = g e + R is g exp((n + 1) l),
beside R exp(n l).  P is divided as a polynomial in one variable x, or in one exponential: its powers of x
come to lie between the lowest and the highest of e, and at one of the two.

>>> from klsym.kernel.definitions import Definition
>>> r, ln = (-ExpPoly.from_variable("k1")).exp(), ExpPoly.from_variable("ln_1")
>>> context = Context(definitions=(Definition("ln_1", LOG, 1 + r),))
>>> def all_steps(a):
...     while (found := find_log_step(a, context)) is not None:
...         a = found[1]
...     return a
>>> all_steps(r * (-ln).exp()) == 1 - (-ln).exp(), all_steps((1 + r) ** 2 * (-ln).exp()) == 1 + r
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.kernel.definitions import LET, LOG
from klsym.kernel.derivatives import is_live
from klsym.kernel.names import detach_name, parse_name
from klsym.kernel.ring import ZERO, ExpPoly, Key
from klsym.kernel.statements import Context

Data = dict[str, Any]
MAX_TERMS = 60  # of what is divided
MAX_QUOTIENT = 60  # terms of a quotient


def find_log_step(
    element: ExpPoly, context: Context, has_gradient: bool = False
) -> tuple[Data, ExpPoly] | None:
    """Return the first relation that brings an element closer to its last form, and the result.

    has_gradient: the element is yet to be differentiated; what defines sg(l) is then detached, too.
    """
    for name in sorted(element.names()):
        variable, e = ExpPoly.from_variable(name), context.find_definition(name, LOG, LET)
        if e is None:
            continue
        if has_gradient and parse_name(name).detached:
            e = detach(e, context)
        is_log = context.find_definition(name, LOG) is not None
        if multiplier := (_find_multiplier(element, name, e) if is_log else _find_cofactor(element, name)):
            after = element - multiplier * (_build_exponential(name, -1) * e - 1 if is_log else variable - e)
            return {"name": name, "times": multiplier.to_json()}, after
    return None


def detach(e: ExpPoly, context: Context) -> ExpPoly:
    """Return sg(e)."""
    return e.rename(lambda n: detach_name(n) if is_live(ExpPoly.from_variable(n), context) else n)


def _find_cofactor(element: ExpPoly, name: str) -> ExpPoly:
    """Return the sum that multiplies one power of a name, which the rule replaces."""
    terms = {}
    for (monomial, exponent), value in sorted(element.terms.items()):
        powers = dict(monomial)
        if powers.get(name, 0) > 0:
            powers[name] -= 1
            terms[tuple(row for row in powers.items() if row[1]), exponent] = value
    return ExpPoly(terms)


def _build_exponential(name: str, rate: Any) -> ExpPoly:
    """Return exp(rate l), which is e^rate for l = log e."""
    return (ExpPoly.from_variable(name) * rate).exp()


def _find_multiplier(element: ExpPoly, name: str, e: ExpPoly) -> ExpPoly | None:
    """Return b such that a - b (e exp(-l) - 1) is closer to the last form; None if there is none."""
    by_rate: dict[Any, ExpPoly] = {}
    for (monomial, exponent), value in sorted(element.terms.items()):
        rates = dict(exponent)
        rate = rates.pop(((name, 1),), 0)
        term = ExpPoly({(monomial, tuple(rates.items())): value})
        by_rate[rate] = by_rate.get(rate, ZERO) + term
    for rate, cofactor in sorted(by_rate.items(), key=lambda row: row[0]):
        if rate >= 1:
            return -cofactor * _build_exponential(name, rate)
        if rate < 0 and (g := _find_partial_quotient(cofactor, e)):
            return g * _build_exponential(name, rate + 1)
    return None


def _find_partial_quotient(a: ExpPoly, e: ExpPoly) -> ExpPoly:
    """Return g such that the powers of a - g e are closer to the last form; 0 if they are there."""
    if len(e.terms) == 1:
        g = a * e.invert()
        return ZERO if g.collect_divisors() - a.collect_divisors() else g
    power = _choose_grading(e)
    low, high = min(map(power, e.terms)), max(map(power, e.terms))
    reduces_highest = high <= 0  # 1/(1 + r), and not r/(1 + r)
    for key, value in sorted(a.terms.items()) if len(a.terms) <= MAX_TERMS else ():
        n = power(key)
        if low < n < high or n == (high if reduces_highest else low):
            continue
        end = ExpPoly({k: v for k, v in e.terms.items() if power(k) == (low if n <= low else high)})
        if len(end.terms) == 1:
            g = ExpPoly({key: value}) * end.invert()
            if not g.collect_divisors() - a.collect_divisors():
                return g
        part = ExpPoly({k: v for k, v in a.terms.items() if power(k) == n})
        if (
            len(end.terms) > 1 and (quotient := divide_exactly(part, end)) is not None
        ):  # (1 - w) r of w + (1 - w) r
            return quotient
    return ZERO


def divide_exactly(a: ExpPoly, e: ExpPoly) -> ExpPoly | None:
    """Return g with a = g e, or None; divides leading terms in an order that products keep."""
    names = sorted(a.names() | e.names())
    inner = sorted({m for element in (a, e) for _, exponent in element.terms for m, _ in exponent})

    def sort_key(key: Any) -> tuple[Any, ...]:
        powers, rates = dict(key[0]), dict(key[1])
        return (*(rates.get(m, 0) for m in inner), *(powers.get(name, 0) for name in names))

    def take_leading_term(element: ExpPoly) -> ExpPoly:
        key = max(element.terms, key=sort_key)
        return ExpPoly({key: element.terms[key]})

    total, divisor, inverted_names = ZERO, take_leading_term(e).invert(), a.collect_divisors()
    for _ in range(MAX_QUOTIENT):
        if not a:
            return total
        part = take_leading_term(a) * divisor
        if part.collect_divisors() - inverted_names:
            return None
        total, a = total + part, a - part * e
    return None


def _choose_grading(e: ExpPoly) -> Callable[[Key], Any]:
    """Return the function of a term that is its power of x, in which terms are divided by e.

    x is one exponential in e, or one variable of e if there is none.
    """
    inside = sorted({m for _, exponent in e.terms for m, _ in exponent if m})
    if inside:
        return lambda key: dict(key[1]).get(inside[0], 0)
    names = sorted({name for monomial, _ in e.terms for name, _ in monomial})
    return lambda key: dict(key[0]).get(names[0], 0) if names else 0
