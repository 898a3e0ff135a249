"""Replace formulas in log densities by the names of the estimators that they are.

>>> from sympy import exp
>>> from klsym.language.expressions import A, beta
>>> recognise((log_q - log_p) ** 2 / 2), recognise(exp(log_p - log_q) - 1 - (log_p - log_q))
(k2, k3)
>>> recognise(exp(log_q - log_mu) * A + beta * (log_q - log_p))
A*rho + beta*k1
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import sympy

from klsym.language.expressions import (
    DENSITIES,
    ESTIMATORS,
    IN_K1,
    IN_R,
    OF_TABLE,
    Estimator,
    M,
    clip,
    k1,
    log_mu,
    log_old,
    log_p,
    log_q,
    r,
    remove_sg,
    rho,
    rho_old,
)

LARGEST_FLOOR = sympy.Rational(1, 10_000)  # of a probability, below which code keeps it from being 0
RATIOS = {log_p: (r, -1), log_mu: (rho, 1), log_old: (rho_old, 1)}  # other density -> its ratio, power of q
MOST = 64  # the largest power of a ratio
MOST_SWITCHES = 6  # comparisons in a condition


def _split_monomials(formula: Any) -> dict[Any, Any]:
    """Return the terms of a formula in k1 and r, each with its number."""
    named = sympy.expand(formula).xreplace({IN_K1: k1, IN_R: r})
    pairs = (term.as_coeff_Mul() for term in sympy.Add.make_args(named))
    return {monomial: number for number, monomial in pairs}


FORMULAS = {
    OF_TABLE[name]: _split_monomials(of.row.formula(IN_K1, IN_R))
    for name, of in ESTIMATORS.items()
    if name != "k1"
}


def recognise(e: Any, cache: dict[Any, Any] | None = None) -> Any:
    """Return the same expression, with k1, r, rho and the other estimators in place of their formulas."""
    cache = {} if cache is None else cache
    if e.is_Atom or isinstance(e, Estimator):
        return e
    if e not in cache:
        arguments = [recognise(argument, cache) for argument in e.args]
        cache[e] = _recognise_node(e if tuple(arguments) == e.args else e.func(*arguments))
    return cache[e]


def _recognise_node(e: Any) -> Any:
    if isinstance(e, sympy.exp):
        return _recognise_ratio(e)
    if isinstance(e, sympy.log):
        return _recognise_log(e)
    if e.is_Add:
        return _recognise_sum(e)
    return _recognise_multiple(e) if e.is_Mul or e.is_Pow else e


def _recognise_ratio(e: Any) -> Any:
    """Return r^-a for exp(a log q - a log p), and the same of mu and old."""
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


def join_probabilities(e: Any) -> Any:
    """Return a product with a ratio such as rho in place of its probabilities, if they are one.

    >>> from sympy import exp
    >>> join_probabilities(exp(log_q) * k1 / exp(log_mu))
    k1*rho
    >>> join_probabilities(exp(log_q) * k1) == exp(log_q) * k1
    True
    """
    powers = [x for x in sympy.Mul.make_args(e) if isinstance(x, sympy.exp)]
    if len(powers) < 2:
        return e
    joined = _recognise_ratio(sympy.exp(sympy.Add(*(x.args[0] for x in powers))))
    if isinstance(joined, sympy.exp):
        return e
    return joined * sympy.Mul(*(x for x in sympy.Mul.make_args(e) if x not in powers))


def _recognise_log(e: Any) -> Any:
    """Return -k1 for log r, log q - log mu for log rho."""
    logs = {r: -k1, rho: log_q - log_mu, rho_old: log_q - log_old}
    return logs.get(e.args[0], e)


def _recognise_multiple(e: Any) -> Any:
    """Return k2 for k1^2/2, by the rows of the table that have one term, and r for exp(log_p)/exp(log_q)."""
    e = join_probabilities(e)
    number, factors = e.as_coeff_Mul()
    for name, formula in FORMULAS.items():
        ((monomial, of_row),) = formula.items() if len(formula) == 1 else ((None, None),)
        if monomial is not None and not number.is_integer and monomial in sympy.Mul.make_args(factors):
            return number / of_row * name * (factors / monomial)
    return e


def _recognise_sum(e: Any) -> Any:
    """Return c k1 for c log q - c log p, and the rows of the table that have several terms."""
    of_q, of_p = _collect_coefficients(e.args, {log_q}), _collect_coefficients(e.args, {log_p})
    for c in of_q.get(log_q, ()):
        if -c in of_p.get(log_p, ()):
            e = e - c * log_q + c * log_p + c * k1
    for name, formula in FORMULAS.items():
        e = _recognise_row(e, name, formula) if e.is_Add and len(formula) > 1 else e
    return e


def _recognise_row(e: Any, name: Any, formula: dict[Any, Any]) -> Any:
    """Return c k3 for c (r - 1 + k1), where the sum has each term with the same c."""
    coefficients = _collect_coefficients(e.args, {*formula})
    first, of_first = next((m, n) for m, n in formula.items() if m != 1)
    for coefficient in coefficients.get(first, ()):
        c = coefficient / of_first
        if all(c * number in coefficients.get(monomial, ()) for monomial, number in formula.items()):
            return e + c * name - sympy.Add(*(c * number * m for m, number in formula.items()))
    return e


def _collect_coefficients(terms: Iterable[Any], monomials: set[Any]) -> dict[Any, list[Any]]:
    """Return the coefficients of each monomial in a sum; that of 1: without k1, r and logs."""
    coefficients = defaultdict(list)
    for term in terms:
        coefficient, monomial = term.as_independent(k1, r, log_q, log_p, as_Add=False)
        if monomial in monomials:
            coefficients[monomial].append(coefficient)
    return coefficients


def leave_out_floors(e: Any) -> tuple[Any, dict[Any, Any]]:
    """Return the expression where small lower bounds of probabilities have no effect, and those bounds.

    The bounds are a dict: probability -> the largest number that it is assumed to be above.  An upper bound
    of 1 or more has no effect on a probability, either.

    >>> from sympy import Max, exp, log
    >>> leave_out_floors(log(Max(exp(log_q), sympy.Rational(1, 10**8))))
    (log_q, {exp(log_q): 1/100000000})
    >>> leave_out_floors(Max(exp(log_q), sympy.Rational(1, 2)))
    (Max(1/2, exp(log_q)), {})
    """
    floors: dict[Any, Any] = {}

    def leave_out(bounded: Any) -> Any:
        probability, low, high = _split_bounds(bounded)
        if not _is_density(probability) or not (high.is_number and high >= 1):
            return bounded
        if low != 0:
            if not (low.is_Rational and 0 < low <= LARGEST_FLOOR):
                return bounded
            floors[probability] = max(low, floors.get(probability, low))
        return probability

    plain = e.replace(lambda x: isinstance(x, sympy.Max | sympy.Min | clip), leave_out, simultaneous=False)
    return plain, floors


class _Bounded(NamedTuple):
    """An expression and its bounds; a probability without bounds of its own lies between 0 and 1."""

    of: Any
    low: Any = sympy.S.Zero
    high: Any = sympy.S.One


def _split_bounds(bounded: Any) -> _Bounded:
    if isinstance(bounded, clip):
        return _Bounded(*bounded.args)
    numbers, others = (list(part) for part in sympy.utilities.sift(bounded.args, _is_number, binary=True))
    if len(numbers) != 1 or len(others) != 1:
        return _Bounded(bounded)
    is_upper = isinstance(bounded, sympy.Min)
    return _Bounded(others[0], high=numbers[0]) if is_upper else _Bounded(others[0], low=numbers[0])


def _is_number(e: Any) -> bool:
    return bool(e.is_number)


def name_floors(floors: Mapping[Any, Any]) -> tuple[tuple[str, Fraction], ...]:
    """Return the names of probabilities, each with the bound that it is above."""
    return tuple((str(probability), Fraction(int(x.p), int(x.q))) for probability, x in floors.items())


def _is_density(e: Any) -> bool:
    """Is it the probability of a sample under one policy?"""
    return isinstance(e, sympy.exp) and e.args[0] in DENSITIES


def is_indicator(e: Any) -> bool:
    """Is it 1 or 0 everywhere: a mask, a comparison, or several joined?

    >>> from klsym.language.expressions import M, above, rho
    >>> [is_indicator(e) for e in (M, 1 - above(rho, 2), M * above(rho, 2), 2 * M, rho, M - above(rho, 2))]
    [True, True, True, False, False, False]
    """
    plain = remove_sg(e)
    chosen = choose_switches(plain) if len(list_switches(plain)) <= MOST_SWITCHES else [(None, plain)]
    return all(value in (0, 1) for _, value in chosen)


def list_switches(e: Any) -> list[Any]:
    """Return the mask and the comparisons in an expression, each of which is 0 or 1."""
    return sorted({M} & e.free_symbols | e.atoms(sympy.Heaviside), key=str)


def choose_switches(e: Any) -> Iterator[tuple[dict[Any, Any], Any]]:
    """Yield the ways to set the mask and the comparisons of an expression, each with its value.

    >>> from klsym.language.expressions import M, R, where
    >>> [value for _, value in choose_switches(where(M, R, 2))]
    [2, R]
    """
    switches = list_switches(e)
    dummies = {switch: sympy.Dummy() for switch in switches}
    form = e.xreplace(dummies)
    for ends in product((sympy.S.Zero, sympy.S.One), repeat=len(switches)):
        chosen = dict(zip(switches, ends, strict=True))
        yield chosen, form.xreplace({dummies[switch]: end for switch, end in chosen.items()})


def name_exponentials(e: Any) -> Any:
    """Return an expression with a name for each power that has no number as exponent.

    >>> from klsym.language.expressions import beta, k1, rho
    >>> e = sympy.exp(k1) + rho**beta + rho**2
    >>> [name_exponentials(e).has(x) for x in (k1, beta, rho)]
    [False, False, True]
    """
    return e.replace(
        lambda x: isinstance(x, sympy.exp) or (x.is_Pow and not x.exp.is_number), lambda _: sympy.Dummy()
    )
