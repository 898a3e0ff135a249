"""k3 recognised inside sums: a*k1 + a*r - a is a*k3.

>>> from klsym.kernel.ring import ExpPoly
>>> from klsym.notation.coefficients import build_coefficient
>>> from klsym.notation.printers import TEXT
>>> k1, beta = ExpPoly.from_variable("k1"), ExpPoly.from_variable("beta")
>>> of = (beta * (k1 + (-k1).exp() - 1), 2 * k1 + (-k1).exp() - 1)
>>> [TEXT(with_k3(build_coefficient(e))) for e in of]
['beta*k3', '2*k1 + r - 1']
"""

from __future__ import annotations

from typing import Any

import sympy

from klsym.language.expressions import ESTIMATORS, K1, Ratio
from klsym.notation.tree import Formula, Minus, Name, Number, Product, Sum, add_terms, multiply, replace_parts

Term = tuple[bool, tuple[Formula, ...]]  # is it subtracted, and its factors


def with_k3(formula: Formula) -> Formula:
    """Return the tree with k3 in place of k1 + r - 1, times any factors."""
    inner = replace_parts(formula, with_k3)
    if isinstance(inner, Sum):
        return _recognise_k3(inner)
    return multiply(*inner.factors) if isinstance(inner, Product) and not inner.loose else inner


def _recognise_k3(whole: Sum) -> Formula:
    terms = [_split_sign(term) for term in whole.terms]
    for negative, factors in terms:
        for k1 in (f for f in factors if isinstance(f, Name) and f.name == "k1"):
            cofactors = tuple(f for f in factors if f is not k1)
            wanted = [
                (negative, (*cofactors, _build_name("r", k1))),
                (not negative, cofactors or (Number(1),)),
            ]
            partners = [next((t for t in terms if _is_same_term(t, want)), None) for want in wanted]
            if None in partners:
                continue
            used = [(negative, factors), *partners]
            multiple = multiply(*cofactors, _build_name("k3", k1))
            other_terms = [term for term, parts in zip(whole.terms, terms, strict=True) if parts not in used]
            return add_terms(
                *sorted([Minus(multiple) if negative else multiple, *other_terms], key=_is_negative)
            )
    return whole


def _is_negative(term: Formula) -> bool:
    return isinstance(term, Minus)


def _split_sign(term: Formula) -> Term:
    negative = isinstance(term, Minus)
    inner = term.of if isinstance(term, Minus) else term
    return negative, inner.factors if isinstance(inner, Product) else (inner,)


def _build_name(name: str, like: Name) -> Name:
    return Name(name, like.below, like.primes)


def _is_same_term(first: Term, second: Term) -> bool:
    return first[0] == second[0] and len(first[1]) == len(second[1]) and all(f in second[1] for f in first[1])


def replace_by_k3(e: Any) -> Any:
    """Return a SymPy sum with a*k3 + a for a*k1 + a*r, where that has fewer terms.

    >>> from klsym.language.expressions import k1, r
    >>> replace_by_k3(k1 + r - 11), replace_by_k3(k1 + r)
    (k3 - 10, k1 + r)
    """
    for k1 in e.atoms(K1):
        r, k3 = Ratio(*k1.args), ESTIMATORS["k3"](*k1.args)
        a = e.coeff(k1)
        if a and e.is_Add and sympy.expand(e.coeff(r) - a) == 0:
            shorter = sympy.expand(e - a * k1 - a * r) + a * k3 + a
            if len(sympy.Add.make_args(shorter)) < len(sympy.Add.make_args(e)):
                return shorter
    return e
