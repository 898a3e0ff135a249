"""Expectations of losses under Gaussians in closed form, with the conditions under which they are finite.

With q, p, mu Gaussians in one variable x, the coordinates k1, w and log q are quadratics in x, and a
loss in the ring is a finite sum of P_i(z) exp(a_i z^2 + b_i z + c_i), z = x - e about any centre e.
Completing the square under N(m, v), with h = m - e, D = 1 - 2 a v, v' = v/D and m' = (h + b v)/D:

    E[P(z) exp(a z^2 + b z + c)] = exp(c + ((h + b v)^2/D - h^2)/(2 v)) / sqrt(D) * E_{N(m', v')}[P]

finite if and only if D > 0 for each pair (a, b) whose P is nonzero: of the terms that stay, the one
that grows fastest at either end of the line cannot be cancelled by another.

It is written once for any numbers: `exact` has symbols, about e = 0, `floats` complex floats,
about the mean of the sampling distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import sympy

from klsym.errors import UsageError
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import Exponent, ExpPoly, Monomial, Number

MAX_DEGREE = 256  # of a polynomial in x
Poly = list[Any]  # coefficients of 1, z, z^2, ...
Pair = tuple[Any, Any]  # mean, variance
Terms = list[tuple[Monomial, Number]]  # a polynomial in coordinates and parameters
DENSITIES = {"k1": ("q", "p"), "w": ("q", "mu"), "log_q": ("q",)}  # what each coordinate is made of


class Divergent(UsageError):
    """An expectation is infinite or does not exist; `condition` is the one that fails."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        super().__init__(f"the expectation is not finite: it needs {condition.text}, which is false here")


@dataclass(frozen=True)
class Condition:
    """One condition for an expectation to be finite: in words, and evaluated at the Gaussians given.

    text: an inequality between variances, such as "sigma_q^2 > (1/2) sigma_p^2".
    holds: the same as a SymPy inequality; true or false when the Gaussians are numbers.
    """

    text: str
    holds: Any


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Arithmetic:
    """What completing the square asks of its numbers.

    number: of a rational one.  alike: are two coefficients of exponents one?
    cancel: is the sum of exp(c) P over some pairs (c, P) zero?
    tidy, expand: a rational function or a polynomial in the parameters in a form that equal ones share.
    tilts: is P expanded about the tilted mean?  That keeps the digits of rounded numbers.
    """

    number: Callable[[Number], Any]
    exp: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    log: Callable[[Any], Any]
    two_pi: Any
    alike: Callable[[Any, Any], bool]
    cancel: Callable[[list[tuple[Any, Poly]]], bool]
    tidy: Callable[[Any], Any] = _as_it_is
    expand: Callable[[Any], Any] = _as_it_is
    tilts: bool = False

    def is_zero(self, value: Any) -> bool:
        return bool(value == 0 or self.expand(value) == 0)

    # -- polynomials -------------------------------------------------------------------------
    def expand_log_density(self, pair: Pair, centre: Any) -> Poly:
        """log density in powers of z = x - centre: -(z + h)^2/(2 v) - log(2 pi v)/2, h = centre - m."""
        m, v = pair
        h = centre - m
        return [-h * h / (2 * v) - self.log(self.two_pi * v) / 2, -h / v, -1 / (2 * v)]

    def expand_log_ratio(self, over: Pair, below: Pair, centre: Any) -> Poly:
        """log over - log below; one logarithm of the quotient of the variances."""
        (m, v), (n, u) = over, below
        g, h = centre - m, centre - n
        constant = h * h / (2 * u) - g * g / (2 * v) + self.log(self.tidy(u / v)) / 2
        return self.trim([constant, h / u - g / v, self.tidy((1 / u - 1 / v) / 2)])

    def multiply(self, a: Poly, b: Poly) -> Poly:
        product: Poly = [0] * (len(a) + len(b) - 1)
        for i, first_coefficient in enumerate(a):
            for j, right in enumerate(b):
                product[i + j] += first_coefficient * right
        return [self.expand(c) for c in product]

    def trim(self, polynomial: Poly) -> Poly:
        while len(polynomial) > 1 and self.is_zero(polynomial[-1]):
            polynomial = polynomial[:-1]
        return polynomial

    def mean(self, polynomial: Poly, mean: Any, spread: Any) -> Any:
        """E[P] under N(mean, spread), by M_{j+1} = mean M_j + j spread M_{j-1}."""
        total, last, moment = 0, 0, 1
        for j, coefficient in enumerate(polynomial):
            total += coefficient * moment
            last, moment = moment, self.expand(mean * moment + j * spread * last)
        return total


def add(a: Poly, b: Poly) -> Poly:
    """The sum of two polynomials."""
    return [first_coefficient + right for first_coefficient, right in zip_longest(a, b, fillvalue=0)]


class Quadratic(NamedTuple):
    """The polynomial c + b z + a z^2."""

    c: Any
    b: Any
    a: Any


@dataclass(frozen=True)
class Group:
    """P exp(c + b z + a z^2), z about the mean of the sampler or zero."""

    exponent: Exponent
    terms: Terms
    c: Any
    b: Any
    a: Any


class ClosedForm(ABC):
    """E[element * scores] under one measure: every coordinate is a polynomial in x about a centre."""

    numbers: Arithmetic
    under: Pair
    origin: Any  # the centre of exponents
    score: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._cache: dict[tuple[str, Any], Poly] = {}

    @abstractmethod
    def get_density(self, name: str, detached: bool = False) -> Pair:
        """Mean and variance of q, p or mu."""

    @abstractmethod
    def evaluate_constant(self, name: str) -> Any:
        """The value of a parameter."""

    @abstractmethod
    def need(self, group: Group) -> Condition | None:
        """D > 0 of an exponential; None where it is sure."""

    def integrate(self, element: ExpPoly) -> tuple[Any, tuple[Condition, ...]]:
        """The expectation, and what it needs to be finite.  Raises Divergent where that fails."""
        groups, conditions = self.select_finite_groups(element)
        return sum((self.integrate_group(group) for group in groups), self.numbers.number(0)), conditions

    def select_finite_groups(self, element: ExpPoly) -> tuple[list[Group], tuple[Condition, ...]]:
        """The exponentials that stay: those with D <= 0 may cancel among themselves."""
        remaining_groups: list[Group] = []
        needs: dict[Any, Condition] = {}
        doubtful: list[list[Group]] = []
        for group in self._list_groups(element):
            need = self.need(group)
            if need is not None:
                need = needs.setdefault((group.a, group.b), need)
            if need is None or need.holds is sympy.true:
                remaining_groups.append(group)
                continue
            cluster = next((c for c in doubtful if self._is_alike(c[0], group)), None)
            doubtful.append([group]) if cluster is None else cluster.append(group)
        for cluster in doubtful:
            first, polynomials = cluster[0], [self.expand_polynomial(g.terms, self.origin) for g in cluster]
            if self.numbers.cancel([(g.c, p) for g, p in zip(cluster, polynomials, strict=True)]):
                needs = {key: need for key, need in needs.items() if key != (first.a, first.b)}
            elif (need := needs[first.a, first.b]).holds is sympy.false:
                raise Divergent(need)
            else:
                remaining_groups += cluster
        return remaining_groups, tuple(dict.fromkeys(needs.values()))

    def _list_groups(self, element: ExpPoly) -> Iterator[Group]:
        groups: dict[Exponent, Terms] = {}
        for (monomial, exponent), value in element.terms.items():
            groups.setdefault(exponent, []).append((monomial, value))
        for exponent, terms in groups.items():
            yield Group(exponent, terms, *self.expand_exponent(exponent))

    def _is_alike(self, one: Group, other: Group) -> bool:
        return self.numbers.alike(one.a, other.a) and self.numbers.alike(one.b, other.b)

    def integrate_group(self, group: Group) -> Any:
        """E[P exp(c + b z + a z^2)] by completing the square, as in the module's docstring."""
        tidy, (m, v) = self.numbers.tidy, self.under
        h, d = m - self.origin, tidy(1 - 2 * group.a * v)
        shifted = h + group.b * v
        power = group.c + tidy((shifted**2 / d - h**2) / (2 * v))
        tilted = tidy(shifted / d) + self.origin
        centre = tilted if self.numbers.tilts else self.origin
        polynomial = self.expand_polynomial(group.terms, centre)
        mean = self.numbers.mean(polynomial, tilted - centre, tidy(v / d))
        return self.numbers.exp(power) / self.numbers.sqrt(d) * mean

    def expand_exponent(self, exponent: Exponent) -> Quadratic:
        """The exponent about the origin."""
        total: Poly = []
        for monomial, value in exponent:
            total = add(total, self.expand_monomial(monomial, value, self.origin))
        total = self.numbers.trim(total)
        if len(total) > 3:
            raise UsageError(f"exp of a polynomial of degree {len(total) - 1} in x has no closed expectation")
        c, b, a = (*total, 0, 0, 0)[:3]
        return Quadratic(c, self.numbers.tidy(b), self.numbers.tidy(a))

    def expand_polynomial(self, terms: Terms, centre: Any) -> Poly:
        """P times the score functions, in powers of x - centre."""
        total: Poly = []
        for monomial, value in terms:
            total = add(total, self.expand_monomial(monomial, value, centre))
        m, v = self.get_density("q")
        h = centre - m
        for slot in self.score if total else ():
            score = [h / v, 1 / v] if slot == 0 else [h * h / v - 1, 2 * h / v, 1 / v]
            total = self.numbers.multiply(total, score)
        return total

    def expand_monomial(self, monomial: Monomial, value: Number, centre: Any) -> Poly:
        """value * monomial, in powers of x - centre."""
        product: Poly = [self.numbers.number(value)]
        for name, power in monomial:
            base = self.expand_variable(name, centre)
            if power < 0:
                if len(base) != 1:
                    raise UsageError(f"1/{name} has no closed expectation: positive powers of {name} only")
                if self.numbers.is_zero(base[0]):
                    raise UsageError(f"1/{name}: {name} is zero here")
                base = [1 / base[0]]
            if abs(power) * (len(base) - 1) + len(product) > MAX_DEGREE:
                raise UsageError(f"{name}^{power}: a degree above the limit of {MAX_DEGREE} in x")
            for _ in range(abs(power)):
                product = self.numbers.multiply(product, base)
        return product

    def expand_variable(self, name: str, centre: Any) -> Poly:
        """A coordinate as a quadratic in x - centre, a parameter as a constant."""
        key = (name, centre)
        if key not in self._cache:
            self._cache[key] = self._expand_variable(name, centre)
        return self._cache[key]

    def _expand_variable(self, name: str, centre: Any) -> Poly:
        parsed = parse_name(name)
        if parsed.base in DENSITIES and parsed.slot == "x" and not parsed.primes:
            over, *below = (self.get_density(d, parsed.detached) for d in DENSITIES[parsed.base])
            if below:
                return self.numbers.expand_log_ratio(over, below[0], centre)
            return self.numbers.expand_log_density(over, centre)
        if parsed.base in SAMPLE_BASES or parsed.base == "s":
            raise UsageError(f"{name} is no function of k1, w and log_q: it has no Gaussian expectation")
        return [self.evaluate_constant(name)]
