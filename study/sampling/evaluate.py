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
    >>> Variables(np, {"k1": np.array([0.0, 1.0])}.__getitem__).ring((k1 * 2).exp() - k1 - 1).round(3)
    array([0.   , 5.389])

    xp: the array namespace.  lookup: name -> array, shape (n,), or a float for a parameter.
    """

    def __init__(self, xp: Any, lookup: Callable[[str], Value]) -> None:
        self.xp, self.lookup = xp, lookup
        self._names: dict[str, Value] = {}
        self._monomials: dict[Monomial, Value] = {(): 1.0}
        self._exponentials: dict[Exponent, Value] = {(): 1.0}

    def ring(self, element: ExpPoly) -> Value:
        """The element at every sample: an array, or a float where no sample variable occurs.

        Raises UsageError: division by a parameter that is zero, a power or exponential of parameters
        beyond the floats; what `lookup` raises.
        """
        try:
            return self._ring(element)
        except OverflowError:
            raise UsageError("sampling: the parameters lead beyond the range of floats") from None

    def _ring(self, element: ExpPoly) -> Value:
        total: Value = 0.0
        for exponent, terms in _by_exponent(element):
            polynomial: Value = 0.0
            for number, monomial in terms:
                polynomial = combined(polynomial, number, self._monomial(monomial))
            total = combined(total, polynomial, self._exponential(exponent))
        return total

    def size(self, element: ExpPoly) -> Value:
        """The sum of the absolute values of the terms, by which the rounding of `ring` is judged."""
        total: Value = 0.0
        for (monomial, exponent), value in element.terms.items():
            total = total + abs(float(value) * self._monomial(monomial) * self._exponential(exponent))
        return total

    def _name(self, name: str) -> Value:
        if name not in self._names:
            self._names[name] = self.lookup(name)
        return self._names[name]

    def _monomial(self, monomial: Monomial) -> Value:
        if monomial not in self._monomials:
            (name, power), *rest = monomial
            head = self._power(name, power)
            self._monomials[monomial] = product(head, self._monomial(tuple(rest)))
        return self._monomials[monomial]

    def _power(self, name: str, power: int) -> Value:
        value = self._name(name)
        if power < 0 and isinstance(value, float) and value == 0:
            raise UsageError(f"division by {name}, which is zero")
        if power == 2:
            return value * value
        return value if power == 1 else value**power

    def _exponential(self, exponent: Exponent) -> Value:
        if exponent not in self._exponentials:
            self._exponentials[exponent] = self._exp(self._inside(exponent))
        return self._exponentials[exponent]

    def _inside(self, exponent: Exponent) -> Value:
        inside: Value = 0.0
        for monomial, value in exponent:
            inside = combined(inside, float(value), self._monomial(monomial))
        return inside

    def _exp(self, inside: Value) -> Value:
        return math.exp(inside) if isinstance(inside, float) else self.xp.exp(inside)


@lru_cache(maxsize=4096)
def _by_exponent(element: ExpPoly) -> tuple[tuple[Exponent, tuple[tuple[float, Monomial], ...]], ...]:
    """The terms of an element, those with one exponential together."""
    groups: dict[Exponent, list[tuple[float, Monomial]]] = {}
    for (monomial, exponent), value in element.terms.items():
        groups.setdefault(exponent, []).append((float(value), monomial))
    return tuple((exponent, tuple(terms)) for exponent, terms in groups.items())


def combined(total: Value, factor: Value, value: Value) -> Value:
    """total + factor value, without a pass over the samples that changes nothing."""
    if _is(total, 0.0):
        return product(factor, value)
    return total - value if _is(factor, -1.0) else total + product(factor, value)


def product(a: Value, b: Value) -> Value:
    """a b, without a pass over the samples where one is 1."""
    if _is(b, 1.0):
        return a
    return b if _is(a, 1.0) else a * b


def _is(value: Value, constant: float) -> bool:
    return isinstance(value, float) and value == constant
