"""Quotients of exponentials written by the logistic function, as the losses of SAPO and DPO are written.

With S(x) = 1/(1 + exp(-x)), so that 1 - S(x) = S(-x):

    exp(m a + k b)/(exp(a) + exp(b))^(m + k) = S(a - b)^m (1 - S(a - b))^k

>>> from klsym.language.expressions import A, rho
>>> write_by_sigmoids(A / (1 + sympy.exp(1 - rho))), write_by_sigmoids(sympy.log(1 + sympy.exp(-rho)))
(A*sigmoid(rho - 1), -logsigmoid(rho))
>>> write_by_sigmoids(sympy.exp(rho + 1) / (sympy.exp(rho) + sympy.E)**2)
(1 - sigmoid(rho - 1))*sigmoid(rho - 1)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import sympy

MAX_POWER = 8  # of a sum of two exponentials in a denominator


class sigmoid(sympy.Function):  # named as SymPy names functions: after what is printed
    """The logistic function of a real number, for print alone."""


class logsigmoid(sympy.Function):
    """Its log, for print alone."""


class Denominator(NamedTuple):
    """c^n (exp(first) + exp(second))^n."""

    number: Any
    first: Any
    second: Any
    power: int


def write_by_sigmoids(e: Any) -> Any:
    """Return an expression with sigmoid(..) and logsigmoid(..) for quotients and logs of exponentials."""
    return _rewrite(e) if e.has(sympy.exp) else e


@lru_cache(maxsize=4096)
def _rewrite(e: Any) -> Any:
    if not e.args or not e.has(sympy.exp):
        return e
    if e.is_Mul or e.is_Pow:
        factors = sympy.Mul.make_args(e)
        denominators = {x: found for x in factors if (found := _read_denominator(x)) is not None}
        if denominators:
            others = [x for x in factors if x not in denominators]
            return _write_quotient(others, [*denominators.values()])
    read = _read_denominator(1 / e.args[0]) if isinstance(e, sympy.log) else None
    if read is not None and read.number == 1 and 0 in (read.first, read.second):
        return -read.power * logsigmoid(_write_argument(-(read.first + read.second)))
    arguments = [*map(_rewrite, e.args)]
    return e if all(a is b for a, b in zip(arguments, e.args, strict=True)) else e.func(*arguments)


def _read_denominator(x: Any) -> Denominator | None:
    """Read (c exp(a) + c exp(b))^-n with a whole n and a number c > 0."""
    is_power = x.is_Pow and x.exp.is_Integer and -MAX_POWER <= x.exp < 0
    if not (is_power and x.base.is_Add and len(x.base.args) == 2 and x.base.has(sympy.exp)):
        return None
    (c, a), (d, b) = (term.as_coeff_Mul() for term in x.base.args)
    exponents = [_read_exponent(part) for part in (a, b)]
    if c != d or not c.is_positive or None in exponents:
        return None
    return Denominator(c, exponents[0], exponents[1], -int(x.exp))


def _read_exponent(x: Any) -> Any | None:
    """Return u of exp(u), which may be written as a product: 0 of 1, and 1 + u of e exp(u)."""
    parts = [
        sympy.log(part) if part in (1, sympy.E) else part.args[0] if isinstance(part, sympy.exp) else None
        for part in sympy.Mul.make_args(x)
    ]
    return None if None in parts else sympy.Add(*parts)


def _write_argument(x: Any) -> Any:
    """Return tau*(rho - 1) for tau*rho - tau; a number is not taken out of a sum."""
    number, rest = sympy.expand(x).primitive()
    return _rewrite(number * sympy.factor_terms(rest))


def _write_quotient(factors: list[Any], denominators: list[Denominator]) -> Any:
    """Return the product of the factors over the denominators.

    Of each, m is the power of exp(first) that leaves the simplest exponent; 1 - S(x) is written for S(-x).
    """
    exponents = [_read_exponent(x) for x in factors]
    exponent = sympy.expand(sympy.Add(*(u for u in exponents if u is not None)))
    result = sympy.Mul(*(_rewrite(x) for x, u in zip(factors, exponents, strict=True) if u is None))
    for number, first, second, power in denominators:
        shares = [(m, sympy.expand(exponent - m * first - (power - m) * second)) for m in range(power + 1)]
        m, exponent = min(shares, key=lambda row: (row[1] != 0, row[1].count_ops(), 0 < row[0] < power))
        x = _write_argument(first - second)
        if m == 0 or (m < power and x.could_extract_minus_sign()):
            x, m = -x, power - m
        result *= number**-power * sigmoid(x) ** m * (1 - sigmoid(x)) ** (power - m)
    return result * sympy.exp(exponent)
