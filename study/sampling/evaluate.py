"""Exponential polynomials on arrays of any backend: one code path for NumPy, PyTorch and JAX.

A term c * prod x_i^n_i * exp(sum d_j prod y_i^m_i) is evaluated elementwise.  Each monomial and each
exponential is computed once for all elements that share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from klsym.errors import UsageError
from klsym.kernel.ring import Exponent, ExpPoly, Monomial

Value = Any  # a Python float, or an array of the backend


class Variables:
    """The values that the variables of a block of samples take.

    >>> import numpy as np
    >>> k1 = ExpPoly.from_variable("k1")
    >>> variables = Variables(np, {"k1": np.array([0.0, 1.0])}.__getitem__)
    >>> variables.evaluate_element((k1 * 2).exp() - k1 - 1).round(3)
    array([0.   , 5.389])

    xp: the array namespace.  lookup: name -> array, shape (n,), or a float for a parameter.
    """

    def __init__(self, xp: Any, lookup: Callable[[str], Value]) -> None:
        self.xp, self.lookup = xp, lookup
        self._names: dict[str, Value] = {}
        self._monomials: dict[Monomial, Value] = {(): 1.0}
        self._exponentials: dict[Exponent, Value] = {(): 1.0}

    def evaluate_element(self, element: ExpPoly) -> Value:
        """The element at every sample: an array, or a float where no sample variable occurs.

        Raises UsageError: division by a parameter that is zero, a power or exponential of parameters
        beyond the floats; what `lookup` raises.
        """
        try:
            return self._evaluate_terms(element)
        except OverflowError:
            raise UsageError("sampling: the parameters lead beyond the range of floats") from None

    def _evaluate_terms(self, element: ExpPoly) -> Value:
        total: Value = 0.0
        for exponent, terms in _group_by_exponent(element):
            polynomial: Value = 0.0
            for number, monomial in terms:
                polynomial = add_product(polynomial, number, self._evaluate_monomial(monomial))
            total = add_product(total, polynomial, self._evaluate_exponential(exponent))
        return total

    def evaluate_size(self, element: ExpPoly) -> Value:
        """The sum of the absolute values of the terms, by which the rounding of `ring` is judged."""
        total: Value = 0.0
        for (monomial, exponent), value in element.terms.items():
            total = total + abs(
                float(value) * self._evaluate_monomial(monomial) * self._evaluate_exponential(exponent)
            )
        return total

    def _name(self, name: str) -> Value:
        if name not in self._names:
            self._names[name] = self.lookup(name)
        return self._names[name]

    def _evaluate_monomial(self, monomial: Monomial) -> Value:
        if monomial not in self._monomials:
            (name, power), *remainder = monomial
            head = self._evaluate_power(name, power)
            self._monomials[monomial] = multiply_values(head, self._evaluate_monomial(tuple(remainder)))
        return self._monomials[monomial]

    def _evaluate_power(self, name: str, power: int) -> Value:
        value = self._name(name)
        if power < 0 and isinstance(value, float) and value == 0:
            raise UsageError(f"division by {name}, which is zero")
        if power == 2:
            return value * value
        return value if power == 1 else value**power

    def _evaluate_exponential(self, exponent: Exponent) -> Value:
        if exponent not in self._exponentials:
            self._exponentials[exponent] = self._take_exp(self._evaluate_exponent(exponent))
        return self._exponentials[exponent]

    def _evaluate_exponent(self, exponent: Exponent) -> Value:
        inside: Value = 0.0
        for monomial, value in exponent:
            inside = add_product(inside, float(value), self._evaluate_monomial(monomial))
        return inside

    def _take_exp(self, inside: Value) -> Value:
        return math.exp(inside) if isinstance(inside, float) else self.xp.exp(inside)


@lru_cache(maxsize=4096)
def _group_by_exponent(element: ExpPoly) -> tuple[tuple[Exponent, tuple[tuple[float, Monomial], ...]], ...]:
    """The terms of an element, those with one exponential together."""
    groups: dict[Exponent, list[tuple[float, Monomial]]] = {}
    for (monomial, exponent), value in element.terms.items():
        groups.setdefault(exponent, []).append((float(value), monomial))
    return tuple((exponent, tuple(terms)) for exponent, terms in groups.items())


def add_product(total: Value, factor: Value, value: Value) -> Value:
    """total + factor value, without a pass over the samples that changes nothing."""
    if _is(total, 0.0):
        return multiply_values(factor, value)
    return total - value if _is(factor, -1.0) else total + multiply_values(factor, value)


def multiply_values(a: Value, b: Value) -> Value:
    """a b, without a pass over the samples where one is 1."""
    if _is(b, 1.0):
        return a
    return b if _is(a, 1.0) else a * b


def _is(value: Value, constant: float) -> bool:
    return isinstance(value, float) and value == constant
