"""Replace formulas in log densities by the names of the estimators that they are.

>>> from sympy import exp
>>> from klsym.language.expressions import A, beta
>>> recognised((log_q - log_p) ** 2 / 2), recognised(exp(log_p - log_q) - 1 - (log_p - log_q))
(k2, k3)
>>> recognised(exp(log_q - log_mu) * A + beta * (log_q - log_p))
A*rho + beta*k1
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import sympy

from klsym.language.expressions import (
    ESTIMATORS,
    IN_K1,
    IN_R,
    OF_TABLE,
    Estimator,
    k1,
    log_mu,
    log_old,
    log_p,
    log_q,
    r,
    rho,
    rho_old,
)

RATIOS = {log_p: (r, -1), log_mu: (rho, 1), log_old: (rho_old, 1)}  # other density -> its ratio, power of q
MOST = 64  # the largest power of a ratio


def _monomials(formula: Any) -> dict[Any, Any]:
    """The terms of a formula in k1 and r, each with its number."""
    named = sympy.expand(formula).xreplace({IN_K1: k1, IN_R: r})
    pairs = (term.as_coeff_Mul() for term in sympy.Add.make_args(named))
    return {monomial: number for number, monomial in pairs}


FORMULAS = {
    OF_TABLE[name]: _monomials(of.row.formula(IN_K1, IN_R)) for name, of in ESTIMATORS.items() if name != "k1"
}


def recognised(e: Any, known: dict[Any, Any] | None = None) -> Any:
    """The same expression, with k1, r, rho and the other estimators in place of their formulas."""
    known = {} if known is None else known
    if e.is_Atom or isinstance(e, Estimator):
        return e
    if e not in known:
        arguments = [recognised(argument, known) for argument in e.args]
        known[e] = _named(e if tuple(arguments) == e.args else e.func(*arguments))
    return known[e]


def _named(e: Any) -> Any:
    if isinstance(e, sympy.exp):
        return _ratio(e)
    if isinstance(e, sympy.log):
        return _log_of_ratio(e)
    if e.is_Add:
        return _sum(e)
    return _multiple(e) if e.is_Mul or e.is_Pow else e


def _ratio(e: Any) -> Any:
    """exp(a log q - a log p) = r^-a, and the same of mu and old."""
    exponent = sympy.expand(e.args[0].xreplace({k1: log_q - log_p}))
    numbers = exponent.as_coefficients_dict()
    others = [density for density in RATIOS if density in numbers]
    if len(others) != 1 or set(numbers) != {log_q, *others}:
        return e
    power = numbers[log_q]
    if power + numbers[others[0]] or not power.is_Rational or abs(power) > MOST:
        return e
    ratio, of_q = RATIOS[others[0]]
    return ratio ** (of_q * power)


def _log_of_ratio(e: Any) -> Any:
    """log r = -k1, log rho = log q - log mu."""
    logs = {r: -k1, rho: log_q - log_mu, rho_old: log_q - log_old}
    return logs.get(e.args[0], e)


def _multiple(e: Any) -> Any:
    """k1^2/2 = k2, for the rows of the table that have one term."""
    number, rest = e.as_coeff_Mul()
    for name, formula in FORMULAS.items():
        ((monomial, of_row),) = formula.items() if len(formula) == 1 else ((None, None),)
        if monomial is not None and not number.is_integer and monomial in sympy.Mul.make_args(rest):
            return number / of_row * name * (rest / monomial)
    return e


def _sum(e: Any) -> Any:
    """c log q - c log p = c k1, and the rows of the table that have several terms."""
    of_q, of_p = _coefficients(e.args, {log_q}), _coefficients(e.args, {log_p})
    for c in of_q.get(log_q, ()):
        if -c in of_p.get(log_p, ()):
            e = e - c * log_q + c * log_p + c * k1
    for name, formula in FORMULAS.items():
        e = _row(e, name, formula) if e.is_Add and len(formula) > 1 else e
    return e


def _row(e: Any, name: Any, formula: dict[Any, Any]) -> Any:
    """c (r - 1 + k1) = c k3, where the sum has each term with the same c."""
    found = _coefficients(e.args, {*formula})
    first, of_first = next((m, n) for m, n in formula.items() if m != 1)
    for coefficient in found.get(first, ()):
        c = coefficient / of_first
        if all(c * number in found.get(monomial, ()) for monomial, number in formula.items()):
            return e + c * name - sympy.Add(*(c * number * m for m, number in formula.items()))
    return e


def _coefficients(terms: Iterable[Any], monomials: set[Any]) -> dict[Any, list[Any]]:
    """The coefficients of each monomial in a sum; that of 1: without k1, r and logs."""
    found = defaultdict(list)
    for term in terms:
        coefficient, rest = term.as_independent(k1, r, log_q, log_p, as_Add=False)
        if rest in monomials:
            found[rest].append(coefficient)
    return found
