"""Exact expectations of losses under Gaussians, with the conditions under which they are finite.

With q, p, mu Gaussians in one variable x, the coordinates k1, w and log q are quadratics in x, and a
loss in the ring is a finite sum of P_i(x) exp(a_i x^2 + b_i x + c_i).  Completing the square under
N(m, v), with D = 1 - 2 a v, v' = v/D and m' = (m + b v)/D:

    E[P(x) exp(a x^2 + b x + c)] = exp(c + ((m + b v)^2/D - m^2)/(2 v)) / sqrt(D) * E_{N(m', v')}[P]

finite if and only if D > 0 for each pair (a, b) whose P is nonzero: of the terms that stay, the one
that grows fastest at either end of the line cannot be cancelled by another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import sympy

from klsym.convert import generic_functions, to_ring
from klsym.errors import UsageError
from klsym.language import as_expression, k1, k2, k3, parameter, s
from klsym.names import SAMPLE_BASES, parse_name
from klsym.ring import Exponent, ExpPoly, Monomial, Number

x = sympy.Symbol("x", real=True)
MAX_DEGREE = 256  # of a polynomial in x
Poly = list[Any]  # coefficients of 1, x, x^2, ...
DENSITIES = {"k1": ("q", "p"), "w": ("q", "mu"), "log_q": ("q",)}  # what each coordinate is made of


class Divergent(UsageError):
    """An expectation is infinite or does not exist; `condition` is the one that fails."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        super().__init__(f"the expectation is not finite: it needs {condition.text}, which is false here")


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution N(mean, variance) in the one variable x, with exact parameters.

    density(x) = exp(-(x - mean)^2 / (2 variance)) / sqrt(2 pi variance)

    >>> Gaussian(sympy.Rational(1, 10), 1)
    Gaussian(mean=1/10, variance=1)

    mean: int, Fraction or real SymPy expression, in the units of x.
    variance: the same and positive, in those units squared; a symbol must be declared positive.
    Raises UsageError: floats, text, values not known to be real, a variance not known to be positive.
    """

    mean: Any
    variance: Any

    def __post_init__(self) -> None:
        for name in ("mean", "variance"):
            value = as_expression(getattr(self, name))
            object.__setattr__(self, name, value)
            if x in value.free_symbols:
                raise UsageError(f"the {name} {value} of a Gaussian holds x, its own variable")
            if not value.is_real:
                raise UsageError(f"the {name} of a Gaussian is real: {value} is not known to be")
        if not self.variance.is_positive:
            raise UsageError(f"the variance of a Gaussian is positive: {self.variance} is not known to be")

    def log_density(self) -> Poly:
        """The coefficients of log density: -(x - m)^2/(2 v) - log(2 pi v)/2.

        >>> Gaussian(0, 1).log_density()[2]
        -1/2
        """
        m, v = self.mean, self.variance
        return [-(m**2) / (2 * v) - sympy.log(2 * sympy.pi * v) / 2, m / v, -1 / (2 * v)]


@dataclass(frozen=True)
class Condition:
    """One condition for an expectation to be finite: in words, and evaluated at the Gaussians given.

    >>> v = sympy.Symbol("v", positive=True)
    >>> expect(k3**2, Gaussian(0, 1), Gaussian(0, v)).conditions[0].holds.subs(v, 3)
    False

    text: an inequality between variances, such as "sigma_q^2 > (1/2) sigma_p^2".
    holds: the same as a SymPy inequality; true or false when the Gaussians are numbers.
    """

    text: str
    holds: Any


@dataclass(frozen=True)
class Expectation:
    """An exact expectation: its value where every one of its conditions holds.

    >>> expect(k1, Gaussian(0, 1), Gaussian(1, 1))
    Expectation(value=1/2, conditions=())
    """

    value: Any
    conditions: tuple[Condition, ...]

    @property
    def finite(self) -> Any:
        """All conditions at once, as a SymPy Boolean."""
        return sympy.And(*(c.holds for c in self.conditions))


def log_ratio(q: Gaussian, p: Gaussian) -> Any:
    """The polynomial k1 = log q - log p in x.

    k1 = (x - m_p)^2/(2 v_p) - (x - m_q)^2/(2 v_q) + log(v_p/v_q)/2

    >>> log_ratio(Gaussian(0, 1), Gaussian(1, 1))
    1/2 - x

    q, p: Gaussians in the same variable.
    """
    return sum(c * x**i for i, c in enumerate(_log_ratio(q, p)))


def expect(
    loss: Any,
    q: Gaussian,
    p: Gaussian | None = None,
    mu: Gaussian | None = None,
    under: Gaussian | None = None,
) -> Expectation:
    """The exact expectation of a loss in the ring of exponential polynomials.

    E_under[loss(k1, w, log q)],  k1 = log q - log p,  w = log q - log mu;  sg(.) keeps the value.

    >>> from klsym.language import r
    >>> expect(r**2, Gaussian(0, 1), Gaussian(1, 1)).value
    E
    >>> n, v = sympy.Symbol("n", positive=True), sympy.Symbol("v", positive=True)
    >>> expect(r**n, Gaussian(0, v), Gaussian(0, 1)).conditions
    (Condition(text='sigma_q^2 > (1 - 1/n) sigma_p^2', holds=v > 1 - 1/n),)

    loss: an ExpPoly or a SymPy expression; its other symbols are real parameters.
    q, p, mu: Gaussians; mu defaults to q (on-policy), p is needed where the loss holds k1 or r.
    under: the sampling distribution, q where not given.
    Raises Divergent (a UsageError) naming the condition that fails; NotInRing outside the ring;
    UsageError for rewards, generic functions, inverse coordinates, exp of more than a quadratic.
    """
    return _integrate(_ring(loss), _Frame(q, p, mu, under, _symbols(loss)))


def variance(
    loss: Any,
    q: Gaussian,
    p: Gaussian | None = None,
    mu: Gaussian | None = None,
    under: Gaussian | None = None,
) -> Expectation:
    """The exact variance of a loss in the ring.

    Var[loss] = E[loss^2] - E[loss]^2

    >>> variance(k3, Gaussian(0, 1), Gaussian(1, 1)).value
    -2 + E

    loss, q, p, mu, under: as in `expect`; the units are those of the loss squared.
    Raises as `expect` does: it diverges where E[loss^2] does.
    """
    element, frame = _ring(loss), _Frame(q, p, mu, under, _symbols(loss))
    second, first = _integrate(element * element, frame), _integrate(element, frame)
    conditions = tuple(dict.fromkeys(second.conditions + first.conditions))
    return Expectation(sympy.expand(second.value - first.value**2), conditions)


@dataclass(frozen=True)
class TableRow:
    """A row of Schulman's table: an estimator of KL(q||p), all its entries exact, in nats.

    >>> table(Gaussian(0, 1), Gaussian(1, 1))["k2"].mean
    5/8

    mean, sd: of one sample under q.  bias_over_true = (mean - KL)/KL and sd_over_true = sd/KL.
    condition: what the standard deviation needs to be finite; the entry is oo where that is false.
    """

    mean: Any
    sd: Any
    bias_over_true: Any
    sd_over_true: Any
    condition: Any


def table(q: Gaussian, p: Gaussian) -> dict[str, TableRow]:
    """Schulman's table for two Gaussians: mean, standard deviation, and both over the true KL.

    KL(q||p) = (log(v_p/v_q) + (v_q + (m_q - m_p)^2)/v_p - 1) / 2

    >>> rows = table(Gaussian(0, 1), Gaussian(sympy.Rational(1, 10), 1))
    >>> [row.bias_over_true for row in rows.values()], rows["k3"].sd_over_true
    ([0, 1/400, 0], 200*sqrt(-101/100 + exp(1/100)))

    q, p: the Gaussians; samples are drawn from q.
    Raises UsageError where q = p, whose KL of zero nothing can be divided by.
    Source: J. Schulman, "Approximating KL divergence" (2020), whose table this makes exact.
    """
    true = expect(k1, q, p).value
    if true.equals(0):
        raise UsageError("the KL divergence is zero: bias and deviation have no ratio to it")
    return {str(k): _row(k, q, p, true) for k in (k1, k2, k3)}


def _row(estimator: Any, q: Gaussian, p: Gaussian, true: Any) -> TableRow:
    mean = expect(estimator, q, p).value
    try:
        spread = variance(estimator, q, p)
        sd, condition = sympy.sqrt(spread.value), spread.finite
    except Divergent as error:
        sd, condition = sympy.oo, error.condition.holds
    return TableRow(mean, sd, sympy.cancel(sympy.expand(mean - true) / true), sd / true, condition)


# ---------------------------------------------------------------------------- reading the loss
def _ring(loss: Any) -> ExpPoly:
    if isinstance(loss, ExpPoly):
        return loss
    functions = generic_functions(loss)
    if functions:
        raise UsageError(f"the generic function {next(iter(functions))} has no Gaussian expectation")
    return to_ring(loss)


def _symbols(loss: Any) -> dict[str, Any]:
    """The symbols of a loss under their names, with their own assumptions."""
    return {} if isinstance(loss, ExpPoly) else {v.name: v for v in as_expression(loss).free_symbols}


@dataclass
class _Frame:
    """What every variable of a loss is, as a polynomial in x."""

    q: Gaussian
    p: Gaussian | None
    mu: Gaussian | None
    under: Gaussian | None
    symbols: Mapping[str, Any]
    _cache: dict[str, Poly] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("q", "p", "mu", "under"):
            value = getattr(self, name)
            if not isinstance(value, Gaussian) and (name == "q" or value is not None):
                raise UsageError(f"{name} is a Gaussian, got {type(value).__name__}")

    def density(self, name: str) -> Gaussian:
        """The Gaussian q, p or mu; mu is q where it is not given, as on-policy."""
        found = {"q": self.q, "p": self.p, "mu": self.mu or self.q}[name]
        if found is None:
            raise UsageError(f"the loss holds log {name}: give the Gaussian {name}")
        return found

    def variable(self, name: str) -> Poly:
        """A coordinate as a quadratic in x; a parameter as a constant."""
        if name not in self._cache:
            self._cache[name] = self._variable(name)
        return self._cache[name]

    def _variable(self, name: str) -> Poly:
        parsed = parse_name(name)
        if parsed.base in DENSITIES and parsed.slot == "x" and not parsed.primes:
            over, *below = (self.density(d) for d in DENSITIES[parsed.base])
            return _log_ratio(over, below[0]) if below else over.log_density()
        if parsed.base in SAMPLE_BASES or name == s.name:
            raise UsageError(f"{name} is no function of k1, w and log_q: it has no Gaussian expectation")
        return [self.symbols.get(name) or parameter(name)]

    def polynomial(self, monomial: Monomial, value: Number) -> Poly:
        """value * monomial, in x."""
        product: Poly = [sympy.Rational(value.numerator, value.denominator)]
        for name, power in monomial:
            base = self.variable(name)
            if power < 0 and len(base) != 1:
                raise UsageError(f"1/{name} has no closed expectation: positive powers of {name} only")
            if abs(power) * (len(base) - 1) + len(product) > MAX_DEGREE:
                raise UsageError(f"{name}^{power}: a degree above the limit of {MAX_DEGREE} in x")
            if power < 0 and base[0].is_zero:
                raise UsageError(f"1/{name}: {name} is zero for these Gaussians")
            for _ in range(power):
                product = _multiply(product, base)
            if power < 0:
                product = [c * base[0] ** power for c in product]
        return product


# ---------------------------------------------------------------------------- integration
def _integrate(element: ExpPoly, frame: _Frame) -> Expectation:
    under = frame.under or frame.q
    groups: dict[tuple[Any, Any], Poly] = {}
    needs: dict[tuple[Any, Any], Condition | None] = {}
    for (monomial, exponent), value in element.terms.items():
        c, b, a = _quadratic(exponent, frame)
        term = [coefficient * sympy.exp(c) for coefficient in frame.polynomial(monomial, value)]
        groups[a, b] = _add(groups.get((a, b), []), term)
        if (a, b) not in needs:
            needs[a, b] = _condition(a, exponent, frame)
    total, conditions = sympy.S.Zero, []
    for (a, b), polynomial in groups.items():
        need = needs[a, b]
        if need is not None and need.holds is not sympy.true:
            if _vanishes(polynomial):
                continue
            if need.holds is sympy.false:
                raise Divergent(need)
        if need is not None:
            conditions.append(need)
        total += _gaussian_integral(polynomial, a, b, under)
    return Expectation(sympy.expand(total), tuple(dict.fromkeys(conditions)))


def _gaussian_integral(polynomial: Poly, a: Any, b: Any, under: Gaussian) -> Any:
    """E[P(x) exp(a x^2 + b x)] by completing the square, as in the module's docstring."""
    m, v = under.mean, under.variance
    d = sympy.cancel(1 - 2 * a * v)
    mean, spread = sympy.cancel((m + b * v) / d), sympy.cancel(v / d)
    exponent = sympy.cancel(((m + b * v) ** 2 / d - m**2) / (2 * v))
    moments = _moments(mean, spread, len(polynomial))
    total = sum((c * moment for c, moment in zip(polynomial, moments, strict=True)), sympy.S.Zero)
    return sympy.exp(exponent) / sympy.sqrt(d) * total


def _moments(mean: Any, spread: Any, count: int) -> list[Any]:
    """E[x^0], E[x^1], ... of a Gaussian: M_{j+1} = mean M_j + j variance M_{j-1}."""
    moments = [sympy.S.One, mean]
    for j in range(1, count - 1):
        moments.append(sympy.expand(mean * moments[j] + j * spread * moments[j - 1]))
    return moments[:count]


def _quadratic(exponent: Exponent, frame: _Frame) -> Poly:
    """The exponent as [c, b, a]; a and b in a form that equal ones share."""
    total: Poly = []
    for monomial, value in exponent:
        total = _add(total, frame.polynomial(monomial, value))
    if any(not _is_zero(c) for c in total[3:]):
        raise UsageError(f"exp of a polynomial of degree {len(total) - 1} in x has no closed expectation")
    c, b, a = (*total[:3], *[sympy.S.Zero] * 3)[:3]
    return [c, sympy.cancel(b), sympy.cancel(a)]


def _condition(a: Any, exponent: Exponent, frame: _Frame) -> Condition | None:
    """D = 1 - 2 a v > 0, between named variances where the exponent is linear; None where it is sure."""
    weights = _precisions(exponent, frame)
    v = (frame.under or frame.q).variance
    if weights is None or "sample" in weights:
        d = sympy.cancel(1 - 2 * a * v)
        return None if a == 0 else Condition(f"{d} > 0", d > 0)
    if all(weight.is_nonnegative for weight in weights.values()) and any(weights.values()):
        return None
    positive = sorted(name for name, weight in weights.items() if weight.is_positive)
    if len(weights) == 2 and positive:
        high = positive[0]
        [low] = weights.keys() - {high}
        ratio = sympy.expand(-weights[low] / weights[high])
        bound = sympy.expand(ratio * frame.density(high).variance)
        return Condition(f"sigma_{low}^2 > ({ratio}) sigma_{high}^2", frame.density(low).variance > bound)
    text = " + ".join(f"({weight})/sigma_{name}^2" for name, weight in sorted(weights.items()))
    return Condition(f"{text or 0} > 0", sympy.cancel(1 - 2 * a * v) > 0)


def _precisions(exponent: Exponent, frame: _Frame) -> dict[str, Any] | None:
    """The integrand's precision as a sum of weight/sigma_name^2; None where exponents are not linear."""
    total = {_sampler_name(frame): sympy.S.One}
    for monomial, value in exponent:
        coordinates = [(name, power) for name, power in monomial if parse_name(name).base in DENSITIES]
        if len(coordinates) > 1 or any(power != 1 for _, power in coordinates):
            return None
        rest = tuple(item for item in monomial if item not in coordinates)
        [weight] = frame.polynomial(rest, value)
        for name, _ in coordinates:
            over, *below = DENSITIES[parse_name(name).base]
            if below == ["mu"] and frame.mu is None:
                continue  # on-policy w is zero
            total[over] = total.get(over, sympy.S.Zero) + weight
            for other in below:
                total[other] = total.get(other, sympy.S.Zero) - weight
    return {name: sympy.expand(weight) for name, weight in total.items() if sympy.expand(weight) != 0}


def _sampler_name(frame: _Frame) -> str:
    """The name of the sampling distribution: q, mu, p, or "sample" for another one."""
    named = {"q": frame.q, "mu": frame.mu, "p": frame.p}
    return next((n for n, g in named.items() if g == (frame.under or frame.q)), "sample")


# ---------------------------------------------------------------------------- polynomials in x
def _log_ratio(over: Gaussian, below: Gaussian) -> Poly:
    """log over - log below, without trailing zeros; one logarithm of the quotient of the variances."""
    (m, v), (n, u) = (over.mean, over.variance), (below.mean, below.variance)
    constant = n**2 / (2 * u) - m**2 / (2 * v) + sympy.log(sympy.cancel(u / v)) / 2
    return _trim([constant, m / v - n / u, sympy.cancel((1 / u - 1 / v) / 2)])


def _is_zero(value: Any) -> bool:
    return value == 0 or sympy.expand(value) == 0


def _trim(polynomial: Poly) -> Poly:
    while len(polynomial) > 1 and _is_zero(polynomial[-1]):
        polynomial = polynomial[:-1]
    return polynomial


def _add(a: Poly, b: Poly) -> Poly:
    return [left + right for left, right in zip_longest(a, b, fillvalue=sympy.S.Zero)]


def _multiply(a: Poly, b: Poly) -> Poly:
    product: Poly = [sympy.S.Zero] * (len(a) + len(b) - 1)
    for i, left in enumerate(a):
        for j, right in enumerate(b):
            product[i + j] += left * right
    return [sympy.expand(c) for c in product]


def _vanishes(polynomial: Poly) -> bool:
    """Whether every coefficient is zero, by expansion and, for numbers, SymPy's own zero test."""
    return all(_is_zero(c) or (c.is_number and bool(c.equals(0))) for c in polynomial)
