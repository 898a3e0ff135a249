"""Exact expectations of losses under Gaussians with exact or symbolic parameters, and Schulman's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from klsym.errors import UsageError
from klsym.kernel.names import parse_name
from klsym.kernel.ring import Exponent, ExpPoly
from klsym.language.convert import find_generic_functions, to_ring
from klsym.language.expressions import as_expression, k1, k2, k3, parameter
from klsym.study.gaussian.closed import (
    DENSITIES,
    Arithmetic,
    ClosedForm,
    Condition,
    Divergent,
    Group,
    Pair,
    Poly,
    add,
)

__all__ = [
    "Condition",
    "Divergent",
    "Expectation",
    "Gaussian",
    "build_table",
    "compute_expectation",
    "compute_log_ratio",
    "compute_variance",
    "x",
]

x = sympy.Symbol("x", real=True)


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution N(mean, variance) in the one variable x, with exact parameters.

    density(x) = exp(-(x - mean)^2 / (2 variance)) / sqrt(2 pi variance)

    >>> Gaussian(sympy.Rational(1, 10), 1)
    Gaussian(mean=1/10, variance=1)

    mean: a number or a real SymPy expression, in the units of x; a float is its shortest decimal.
    variance: the same and positive, in those units squared; a symbol must be declared positive.
    Raises UsageError: text, values not known to be real, a variance not known to be positive.
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


@dataclass(frozen=True)
class Expectation:
    """An exact expectation: its value where every one of its conditions holds.

    >>> compute_expectation(k1, Gaussian(0, 1), Gaussian(1, 1))
    Expectation(value=1/2, conditions=())
    """

    value: Any
    conditions: tuple[Condition, ...]

    @property
    def finite(self) -> Any:
        """All conditions at once, as a SymPy Boolean."""
        return sympy.And(*(c.holds for c in self.conditions))


def compute_log_ratio(q: Gaussian, p: Gaussian) -> Any:
    """The polynomial k1 = log q - log p in x.

    k1 = (x - m_p)^2/(2 v_p) - (x - m_q)^2/(2 v_q) + log(v_p/v_q)/2

    >>> compute_log_ratio(Gaussian(0, 1), Gaussian(1, 1))
    1/2 - x

    q, p: Gaussians in the same variable.
    """
    return sum(c * x**i for i, c in enumerate(_Symbolic(q, p).expand_variable("k1", sympy.S.Zero)))


def compute_expectation(
    loss: Any,
    q: Gaussian,
    p: Gaussian | None = None,
    mu: Gaussian | None = None,
    under: Gaussian | None = None,
) -> Expectation:
    """The exact expectation of a loss in the ring of exponential polynomials.

    E_under[loss(k1, w, log q)],  k1 = log q - log p,  w = log q - log mu;  sg(.) keeps the value.

    >>> from klsym.language.expressions import r
    >>> compute_expectation(r**2, Gaussian(0, 1), Gaussian(1, 1)).value
    E
    >>> n, v = sympy.Symbol("n", positive=True), sympy.Symbol("v", positive=True)
    >>> compute_expectation(r**n, Gaussian(0, v), Gaussian(0, 1)).conditions
    (Condition(text='sigma_q^2 > (1 - 1/n) sigma_p^2', holds=v > 1 - 1/n),)

    loss: an ExpPoly or a SymPy expression; its other symbols are real parameters.
    q, p, mu: Gaussians; mu defaults to q (on-policy), p is needed where the loss holds k1 or r.
    under: the sampling distribution, q where not given.
    Raises Divergent (a UsageError) naming the condition that fails; NotInRing outside the ring;
    UsageError for rewards, generic functions, inverse coordinates, exp of more than a quadratic.
    """
    return _Symbolic(q, p, mu, under, symbols=_collect_symbols(loss)).compute_exactly(_to_ring_element(loss))


def compute_variance(
    loss: Any,
    q: Gaussian,
    p: Gaussian | None = None,
    mu: Gaussian | None = None,
    under: Gaussian | None = None,
) -> Expectation:
    """The exact variance of a loss in the ring.

    Var[loss] = E[loss^2] - E[loss]^2

    >>> compute_variance(k3, Gaussian(0, 1), Gaussian(1, 1)).value
    -2 + E

    loss, q, p, mu, under: as in `compute_expectation`; the units are those of the loss squared.
    Raises as `compute_expectation` does: it diverges where E[loss^2] does.
    """
    element, form = _to_ring_element(loss), _Symbolic(q, p, mu, under, symbols=_collect_symbols(loss))
    second, first = form.compute_exactly(element * element), form.compute_exactly(element)
    conditions = tuple(dict.fromkeys(second.conditions + first.conditions))
    return Expectation(sympy.expand(second.value - first.value**2), conditions)


@dataclass(frozen=True)
class TableRow:
    """A row of Schulman's table: an estimator of KL(q||p), all its entries exact, in nats.

    >>> build_table(Gaussian(0, 1), Gaussian(1, 1))["k2"].mean
    5/8

    mean, sd: of one sample under q.  bias_over_true = (mean - KL)/KL and sd_over_true = sd/KL.
    condition: what the standard deviation needs to be finite; the entry is oo where that is false.
    """

    mean: Any
    sd: Any
    bias_over_true: Any
    sd_over_true: Any
    condition: Any


def build_table(q: Gaussian, p: Gaussian) -> dict[str, TableRow]:
    """Schulman's table for two Gaussians: mean, standard deviation, and both over the true KL.

    KL(q||p) = (log(v_p/v_q) + (v_q + (m_q - m_p)^2)/v_p - 1) / 2

    >>> rows = build_table(Gaussian(0, 1), Gaussian(sympy.Rational(1, 10), 1))
    >>> [row.bias_over_true for row in rows.values()], rows["k3"].sd_over_true
    ([0, 1/400, 0], 200*sqrt(-101/100 + exp(1/100)))

    q, p: the Gaussians; samples are drawn from q.
    Raises UsageError where q = p, whose KL of zero nothing can be divided by.
    Source: J. Schulman, "Approximating KL divergence" (2020), whose table this makes exact.
    """
    true = compute_expectation(k1, q, p).value
    if true.equals(0):
        raise UsageError("the KL divergence is zero: bias and deviation have no ratio to it")
    return {str(k): _build_row(k, q, p, true) for k in (k1, k2, k3)}


def _build_row(estimator: Any, q: Gaussian, p: Gaussian, true: Any) -> TableRow:
    mean = compute_expectation(estimator, q, p).value
    try:
        spread = compute_variance(estimator, q, p)
        sd, condition = sympy.sqrt(spread.value), spread.finite
    except Divergent as error:
        sd, condition = sympy.oo, error.condition.holds
    return TableRow(mean, sd, sympy.cancel(sympy.expand(mean - true) / true), sd / true, condition=condition)


# ---------------------------------------------------------------------------- reading the loss
def _to_ring_element(loss: Any) -> ExpPoly:
    if isinstance(loss, ExpPoly):
        return loss
    functions = find_generic_functions(loss)
    if functions:
        raise UsageError(f"the generic function {next(iter(functions))} has no Gaussian expectation")
    return to_ring(loss)


def _collect_symbols(loss: Any) -> dict[str, Any]:
    """The symbols of a loss under their names, with their own assumptions."""
    return {} if isinstance(loss, ExpPoly) else {v.name: v for v in as_expression(loss).free_symbols}


# ---------------------------------------------------------------------------- with symbols
def _has_cancelled(parts: list[tuple[Any, Poly]]) -> bool:
    """By expansion and, for numbers, SymPy's own zero test."""
    total: Poly = []
    for c, polynomial in parts:
        total = add(total, [x * sympy.exp(c) for x in polynomial])
    return all(_SYMBOLS.is_zero(x) or (x.is_number and bool(x.equals(0))) for x in total)


_SYMBOLS = Arithmetic(
    number=lambda value: sympy.Rational(value.numerator, value.denominator),
    exp=sympy.exp, sqrt=sympy.sqrt, log=sympy.log, two_pi=2 * sympy.pi, tidy=sympy.cancel,
    expand=sympy.expand, alike=lambda a, b: bool(a == b), cancel=_has_cancelled,
)  # fmt: skip


class _Symbolic(ClosedForm):
    """The closed form on Gaussians with exact or symbolic parameters; sg(.) keeps the value."""

    numbers, origin = _SYMBOLS, sympy.S.Zero

    def __init__(
        self,
        q: Gaussian,
        p: Gaussian | None = None,
        mu: Gaussian | None = None,
        under: Gaussian | None = None,
        symbols: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.given = {"q": q, "p": p, "mu": mu, "under": under}
        for name, value in self.given.items():
            if not isinstance(value, Gaussian) and (name == "q" or value is not None):
                raise UsageError(f"{name} is a Gaussian, got {type(value).__name__}")
        sampler = under or q
        self.under, self.symbols = (sampler.mean, sampler.variance), symbols or {}
        named = (name for name in ("q", "mu", "p") if self.given[name] == sampler)
        self.sampler = next(named, "sample")

    def compute_exactly(self, element: ExpPoly) -> Expectation:
        value, conditions = self.integrate(element)
        return Expectation(sympy.expand(value), conditions)

    def get_density(self, name: str, detached: bool = False) -> Pair:
        """mu is q where it is not given, as on-policy."""
        pair = self.given[name] or (self.given["q"] if name == "mu" else None)
        if pair is None:
            raise UsageError(f"the loss holds log {name}: give the Gaussian {name}")
        return pair.mean, pair.variance

    def evaluate_constant(self, name: str) -> Any:
        return self.symbols.get(name) or parameter(name)

    def need(self, group: Group) -> Condition | None:
        """D = 1 - 2 a v > 0, between named variances where the exponent is linear; None where it is sure."""
        weights = self._collect_precisions(group.exponent)
        d = sympy.cancel(1 - 2 * group.a * self.under[1])
        if weights is None or "sample" in weights:
            return None if group.a == 0 else Condition(f"{d} > 0", d > 0)
        if all(weight.is_nonnegative for weight in weights.values()) and any(weights.values()):
            return None
        positive = sorted(name for name, weight in weights.items() if weight.is_positive)
        if len(weights) == 2 and positive:
            high = positive[0]
            [low] = weights.keys() - {high}
            ratio = sympy.expand(-weights[low] / weights[high])
            bound = sympy.expand(ratio * self.get_density(high)[1])
            return Condition(f"sigma_{low}^2 > ({ratio}) sigma_{high}^2", self.get_density(low)[1] > bound)
        text = " + ".join(f"({weight})/sigma_{name}^2" for name, weight in sorted(weights.items()))
        return Condition(f"{text or 0} > 0", d > 0)

    def _collect_precisions(self, exponent: Exponent) -> dict[str, Any] | None:
        """The integrand's precision as a sum of weight/sigma_name^2; None where exponents are not linear."""
        total = {self.sampler: sympy.S.One}
        for monomial, value in exponent:
            coordinates = [(name, power) for name, power in monomial if parse_name(name).base in DENSITIES]
            if len(coordinates) > 1 or any(power != 1 for _, power in coordinates):
                return None
            factors = tuple(item for item in monomial if item not in coordinates)
            [weight] = self.expand_monomial(factors, value, self.origin)
            for name, _ in coordinates:
                over, *below = DENSITIES[parse_name(name).base]
                if below == ["mu"] and self.given["mu"] is None:
                    continue  # on-policy w is zero
                total[over] = total.get(over, sympy.S.Zero) + weight
                for denominator in below:
                    total[denominator] = total.get(denominator, sympy.S.Zero) - weight
        return {name: sympy.expand(weight) for name, weight in total.items() if sympy.expand(weight) != 0}
