"""Expectations and variances near q = p, as exact power series in eps = r - 1.

With r = p/q = 1 + eps, k1 = -log(1 + eps) and E_q[eps] = 0, an element sum_i c_i eps^i has

    E_q[a]      = sum_i c_i m_i,                        m_i = E_q[eps^i], m_0 = 1, m_1 = 0
    Cov_q(a, b) = sum_{i,j>=1} a_i b_j (m_{i+j} - m_i m_j)

graded by order, m_i having order i.  O(eps^n) is a bound: C e^n for e = sup |eps| <= 1/2, with a
constant C that `expectation_bound` and `covariance_bound` compute from majorants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

from klsym.errors import UsageError
from klsym.kernel.intervals import enclose_exp, enclose_log
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly, Monomial
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import LATEX_NAMES
from klsym.notation.printers import LATEX

MAX_ORDER = 64
TAIL = 24  # coefficients kept exactly beyond the order before a majorant takes over
HALF = Fraction(1, 2)
Series = tuple[ExpPoly, ...]  # coefficients of 1, eps, eps^2, ...; polynomials in the parameters


# ---------------------------------------------------------------------------- power series
def expand(loss: Any, order: int) -> Series:
    """The coefficients of 1, eps, ..., eps^(order - 1) of a function of k1, exactly.

    k1 = -log(1 + eps) = -eps + eps^2/2 - eps^3/3 + ...,  r = 1 + eps

    >>> from klsym.language.expressions import k3
    >>> [str(to_sympy(c)) for c in expand(k3, 5)]
    ['0', '0', '1/2', '-1/3', '1/4']

    loss: an ExpPoly or a SymPy expression in k1 and its functions (sg keeps the value); other symbols
        are parameters and stay in the coefficients, and may stand in exponents.
    order: how many coefficients, 1 to 64.
    Raises NotInRing outside the ring; UsageError: log q, mu, rewards, 1/k1.
    """
    if type(order) is not int or not 1 <= order <= MAX_ORDER:
        raise UsageError(f"order: an integer from 1 to {MAX_ORDER} expected, got {order!r}")
    element = loss if isinstance(loss, ExpPoly) else to_ring(loss)
    return _expand(element, order, -1)


def _expand(element: ExpPoly, order: int, sign: int) -> Series:
    """With k1 = -log(1 + eps) for sign -1, and k1 = -log(1 - eps), all coefficients >= 0, for sign 1."""
    log_series = (ZERO, *(ExpPoly.from_number(Fraction(sign**i, i)) for i in range(1, order)))
    total = (ZERO,) * order
    for (monomial, exponent), value in element.terms.items():
        inside: Series = (ZERO,) * order
        for m, v in exponent:
            inside = _add(inside, _scale(_monomial(m, log_series), v))
        term = _multiply(_monomial(monomial, log_series), _exp(inside))
        total = _add(total, _scale(term, value))
    return total


def _monomial(monomial: Monomial, log_series: Series) -> Series:
    order = len(log_series)
    product: Series = (ONE, *(ZERO,) * (order - 1))
    for name, power in monomial:
        base = parse_name(name).base
        if base != "k1":
            if base in SAMPLE_BASES or base == "s":
                raise UsageError(f"{name} is no function of k1: only functions of k1 are expanded at q = p")
            product = _scale(product, ExpPoly.from_variable(name) ** power)
            continue
        if power < 0:
            raise UsageError("1/k1 has no expansion at q = p, where k1 is zero")
        for _ in range(min(power, order)):  # k1^order starts at eps^order
            product = _multiply(product, log_series)
    return product


def _exp(series: Series) -> Series:
    """T = exp(S - S_0) from n T_n = sum_k k S_k T_{n-k}, times exp(S_0)."""
    result = [ONE]
    for n in range(1, len(series)):
        terms = (series[k] * result[n - k] * k for k in range(1, n + 1) if series[k])
        result.append(sum(terms, ZERO) * Fraction(1, n))
    return _scale(tuple(result), series[0].exp())


def show_series(loss: Any, order: int) -> str:
    """LaTeX of a function of k1 as a series in eps.

    >>> from klsym.language.expressions import k3
    >>> show_series(k3, 4)
    '\\\\frac{\\\\varepsilon^{2}}{2} - \\\\frac{\\\\varepsilon^{3}}{3} + O(\\\\varepsilon^{4})'

    loss, order: as in `expand`.
    """
    eps = sympy.Symbol("eps")
    terms = [to_sympy(c) * eps**i for i, c in enumerate(expand(loss, order)) if c]
    return _joined(terms, _latex_term, rf"O(\varepsilon^{{{order}}})")


def _add(a: Series, b: Series) -> Series:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _scale(a: Series, factor: ExpPoly | int | Fraction) -> Series:
    return tuple(x * factor for x in a)


def _multiply(a: Series, b: Series) -> Series:
    """The product, cut at the same order."""
    product = [ZERO] * len(a)
    for i, x in enumerate(a):
        if x:
            for j in range(len(a) - i):
                if b[j]:
                    product[i + j] = product[i + j] + x * b[j]
    return tuple(product)


# ---------------------------------------------------------------------------- moments
@dataclass(frozen=True)
class Expansion:
    """A polynomial in the moments E_q[eps^i], with a remainder O(eps^order).

    >>> from klsym.language.expressions import k2
    >>> expected_expansion(k2, 4)
    E[eps^2]/2 - E[eps^3]/2 + O(eps^4)

    polynomial: an ExpPoly in variables named "E[eps^i]", i >= 2, and parameters.
    order: the remainder is at most a constant times sup|eps|^order.
    """

    polynomial: ExpPoly
    order: int

    def __sub__(self, other: Expansion) -> Expansion:
        return _cut(self.polynomial - other.polynomial, min(self.order, other.order))

    def __truediv__(self, other: Expansion) -> Expansion:
        """The quotient by a multiple of m_2 = E[eps^2]; it costs two orders: E|eps|^n <= e^(n-2) m_2.

        >>> from klsym.language.expressions import k1, r
        >>> expected_expansion(k1 * (1 - r), 4) / expected_expansion((r - 1) ** 2, 4)
        1 - E[eps^3]/(2*E[eps^2]) + O(eps^2)

        Raises UsageError for another divisor, one known to a lower order, or a part free of eps.
        """
        if [*_by_moments(other.polynomial)] != [((moment_name(2), 1),)] or len(other.polynomial.terms) != 1:
            raise UsageError(f"an expansion is divided by a single multiple of E[eps^2], not by {other}")
        if other.order < self.order or self.coefficient():
            raise UsageError(f"{self} over {other} has no remainder of known order")
        return _cut(self.polynomial * other.polynomial.invert(), self.order - 2)

    def coefficient(self, *moments: int) -> ExpPoly:
        """The coefficient of a product of moments, an element in the parameters.

        >>> from klsym.language.expressions import k3
        >>> to_sympy(variance(k3, 5).coefficient(2, 2))
        -1/4
        """
        key: Monomial = tuple(sorted((moment_name(i), moments.count(i)) for i in set(moments)))
        return _by_moments(self.polynomial).get(key, ZERO)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The number, given the moments "E[eps^i]" and the parameters by name; no exponentials.

        >>> from klsym.language.expressions import k2
        >>> expected_expansion(k2, 4).evaluate({"E[eps^2]": Fraction(1, 2), "E[eps^3]": Fraction(1, 3)})
        Fraction(1, 12)
        """
        total: Any = 0
        for (monomial, exponent), value in self.polynomial.terms.items():
            if exponent:
                raise UsageError("an expansion with exponentials of parameters has no rational value")
            term: Any = value
            for name, power in monomial:
                term = term * values[name] ** power
            total = total + term
        return total

    def _spell(self, spell: Callable[[Any], str], remainder: str) -> str:
        terms = sorted(_by_moments(self.polynomial).items(), key=lambda item: (_grade(item[0]), item[0]))
        return _joined([_sympy_term(*term) for term in terms], spell, remainder)

    def __repr__(self) -> str:
        return self._spell(lambda term: str(term).replace("**", "^"), f"O(eps^{self.order})")

    @property
    def latex(self) -> str:
        r"""LaTeX, with E_q[\varepsilon^i] for the moments."""
        return self._spell(_latex_term, rf"O(\varepsilon^{{{self.order}}})")


def moment_name(i: int) -> str:
    """The variable that stands for E_q[eps^i].

    >>> moment_name(3)
    'E[eps^3]'
    """
    return f"E[eps^{i}]"


def expected_expansion(loss: Any, order: int) -> Expansion:
    """E_q[loss] up to O(eps^order).

    E_q[sum_i c_i eps^i] = c_0 + sum_{i>=2} c_i m_i

    >>> from klsym.language.expressions import k1, k2
    >>> expected_expansion(k2 - k1, 5)
    -E[eps^3]/6 + 5*E[eps^4]/24 + O(eps^5)

    loss, order: as in `expand`, which says what is raised.
    """
    total = ZERO
    for i, coefficient in enumerate(expand(loss, order)):
        total = total + coefficient * _moment(i)
    return Expansion(total, order)


def expanded_covariance(a: Any, b: Any, order: int) -> Expansion:
    """Cov_q(a, b) up to O(eps^order).

    Cov_q(a, b) = sum_{i,j>=1} a_i b_j (m_{i+j} - m_i m_j)

    >>> from klsym.language.expressions import k1, r
    >>> expanded_covariance(k1, r - 1, 4)
    -E[eps^2] + E[eps^3]/2 + O(eps^4)

    a, b, order: as in `expand`, which says what is raised.
    """
    first, second = expand(a, order), expand(b, order)
    total = ZERO
    for i in range(1, order):
        for j in range(1, order - i):
            total = total + first[i] * second[j] * (_moment(i + j) - _moment(i) * _moment(j))
    return Expansion(total, order)


def variance(loss: Any, order: int) -> Expansion:
    """Var_q(loss) up to O(eps^order).

    >>> from klsym.language.expressions import k2
    >>> variance(k2, 5)
    -E[eps^2]^2/4 + E[eps^4]/4 + O(eps^5)

    loss, order: as in `expand`, which says what is raised.
    """
    return expanded_covariance(loss, loss, order)


def _moment(i: int) -> ExpPoly:
    return ONE if i == 0 else ZERO if i == 1 else ExpPoly.from_variable(moment_name(i))


MOMENTS = {moment_name(i): i for i in range(2, MAX_ORDER)}  # no parameter has such a name


def _grade(moments: Monomial) -> int:
    return sum(MOMENTS[name] * power for name, power in moments)


def _by_moments(polynomial: ExpPoly) -> dict[Monomial, ExpPoly]:
    """Products of moments -> their coefficients."""
    found: dict[Monomial, ExpPoly] = {}
    for (monomial, exponent), value in polynomial.terms.items():
        moments = tuple(item for item in monomial if item[0] in MOMENTS)
        rest = tuple(item for item in monomial if item[0] not in MOMENTS)
        found[moments] = found.get(moments, ZERO) + ExpPoly({(rest, exponent): value})
    return {moments: coefficient for moments, coefficient in found.items() if coefficient}


def _cut(polynomial: ExpPoly, order: int) -> Expansion:
    kept = [ExpPoly({(moments, ()): 1}) * c for moments, c in _by_moments(polynomial).items()
            if _grade(moments) < order]  # fmt: skip
    return Expansion(sum(kept, ZERO), order)


def _joined(terms: Iterable[Any], spell: Callable[[Any], str], remainder: str) -> str:
    """A sum: the sign of each term is that of its number, a sum among them is added term by term."""
    text = ""
    for term in (part for whole in terms for part in whole.as_ordered_terms()):
        minus = term.as_coeff_Mul()[0].is_negative
        sign = (" - " if minus else " + ") if text else "-" * minus
        text += sign + spell(-term if minus else term)
    return f"{text} + {remainder}" if text else remainder


def _sympy_term(moments: Monomial, coefficient: ExpPoly) -> Any:
    product = sympy.Mul(*(sympy.Symbol(name, positive=True) ** power for name, power in moments))
    return sympy.factor(to_sympy(coefficient)) * product


def _latex_term(term: Any) -> str:
    names = {s: LATEX_NAMES[s.name] for s in term.free_symbols if s.name in LATEX_NAMES}
    moments = (s for s in term.free_symbols if s.name in MOMENTS)
    names |= {s: LATEX.expectation("q", rf"\varepsilon^{{{MOMENTS[s.name]}}}") for s in moments}
    return str(sympy.latex(term, symbol_names=names))


# ---------------------------------------------------------------------------- remainders
def expectation_bound(loss: Any, order: int) -> Fraction:
    """A constant C for the remainder of `expectation`, rigorous for |eps| <= 1/2.

    |E_q[loss] - sum_{i<order} c_i m_i| <= C E_q|eps|^order,  C = sum_{i>=order} |c_i| 2^(order - i)

    >>> from klsym.language.expressions import k1, r
    >>> expectation_bound(r**3, 3), float(expectation_bound(k1, 1)) < 1.3863  # 2 log 2
    (Fraction(1, 1), True)

    loss: as in `expand`, with rational coefficients and exponents (no parameters).
    Raises UsageError where the loss holds a parameter or exp of more than a multiple of k1.
    """
    exact, tail = _absolute(loss, order)
    partial = sum((c * HALF**i for i, c in enumerate(exact) if i >= order), Fraction(0))
    return (partial + tail) * 2**order


def covariance_bound(a: Any, b: Any, order: int) -> Fraction:
    """A constant C for the remainder of `covariance`, rigorous for |eps| <= 1/2.

    |Cov_q(a, b) - its expansion| <= C sup|eps|^order,  C = 2 sum_{i+j>=order} |a_i| |b_j| 2^(order - i - j)

    >>> from klsym.language.expressions import r
    >>> covariance_bound(r, r**2, 3)
    Fraction(2, 1)

    a, b, order: as in `expectation_bound`, which says what is raised.
    """
    first, first_tail = _absolute(a, order)
    second, second_tail = _absolute(b, order)
    x = [c * HALF**i for i, c in enumerate(first)]
    y = [c * HALF**i for i, c in enumerate(second)]
    whole = (sum(x[1:]) + first_tail) * (sum(y[1:]) + second_tail)
    low = sum(x[i] * y[j] for i in range(1, order) for j in range(1, order - i))
    return Fraction(2 * (whole - low) * 2**order)


def _absolute(loss: Any, order: int) -> tuple[list[Fraction], Fraction]:
    """|c_i| for i < order + TAIL, and a bound on the sum of |c_i| 2^-i beyond."""
    element = loss if isinstance(loss, ExpPoly) else to_ring(loss)
    count = order + TAIL
    exact = [abs(_rational(c)) for c in _expand(element, count, -1)]
    bounds = (
        _term_tail(monomial, exponent, abs(Fraction(value)), count)
        for (monomial, exponent), value in element.terms.items()
    )
    return exact, sum(bounds, Fraction(0))


def _term_tail(monomial: Any, exponent: Any, size: Fraction, count: int) -> Fraction:
    """A bound on the tail of |c| |k1|^j exp(a k1) at eps = 1/2, by a series with coefficients >= 0.

    k1^j is majorised by (-log(1 - eps))^j, exp(a k1) by (1 - eps)^(-|a|), and r^n by itself.
    """
    if any(parse_name(name).base != "k1" for name, _ in monomial):
        raise UsageError("a remainder is bounded for functions of k1 without parameters")
    power = sum(p for _, p in monomial)
    rate = Fraction(0)
    for m, value in exponent:
        if len(m) != 1 or m[0][1] != 1 or parse_name(m[0][0]).base != "k1":
            raise UsageError("a remainder is bounded for exponentials of rational multiples of k1")
        rate += value
    k1 = ExpPoly.from_variable("k1")
    logs = _expand(k1**power, count, 1)
    if rate <= 0 and rate.denominator == 1:
        factor, value = _expand((k1 * rate).exp(), count, -1), (1 + HALF) ** int(-rate)
    else:
        factor, value = _expand((k1 * abs(rate)).exp(), count, 1), _power_of_two(abs(rate))
    at_half = enclose_log(Fraction(2)).upper ** power * value
    partial = sum((_rational(c) * HALF**i for i, c in enumerate(_multiply(logs, factor))), Fraction(0))
    return size * max(at_half - partial, Fraction(0))


def _power_of_two(rate: Fraction) -> Fraction:
    """An upper bound on 2^rate."""
    if rate.denominator == 1:
        return Fraction(2) ** int(rate)
    return enclose_exp(rate * enclose_log(Fraction(2)).upper).upper


def _rational(coefficient: ExpPoly) -> Fraction:
    value = coefficient.terms.get(((), ()), 0)
    if coefficient != ExpPoly.from_number(value):
        raise UsageError("a remainder is bounded for rational coefficients only, without parameters")
    return Fraction(value)
