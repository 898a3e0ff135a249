"""Sampling finite models: every multinomial outcome enumerated, simulations, backends, and refusals."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from klsym.calculus import *
from klsym.errors import UsageError
from klsym.kernel.ring import ONE, ExpPoly
from klsym.language.abbreviations import Context, Mean
from klsym.numeric.models import FiniteModel, random_model
from klsym.study.sampling.backends import choose_backend
from klsym.study.sampling.finite import LARGEST_SAMPLES, FiniteSampler
from klsym.study.sampling.means import expand_side
from klsym.study.sampling.sampler import list_means
from klsym.study.sampling.streams import Stream
from support.labels import labelled

MODEL = FiniteModel([0.2, 0.5, 0.3], [0.45, 0.15, 0.4], [0.4, -1.0, 0.9], [0.3, 0.3, 0.4])
Q, P, MU = (np.array(row) for row in (MODEL.q, MODEL.p, MODEL.mu))
SCORE = np.array(MODEL.u) - np.dot(MODEL.u, Q)
K1, RATIO, RHO = np.log(Q / P), P / Q, Q / MU


def sampler_of(model: FiniteModel = MODEL, **options: Any) -> FiniteSampler:
    return FiniteSampler(model, Context(tuple(model.parameters)), **options)


# ---------------------------------------------------------------------------- enumeration
def all_counts(n: int, weights: Any) -> tuple[Any, Any]:
    """Every way to draw n times from three outcomes, as shares, with its probability."""
    rows = np.array([(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)])
    logs = math.lgamma(n + 1) - np.vectorize(math.lgamma)(rows + 1.0).sum(axis=1) + rows @ np.log(weights)
    return rows / n, np.exp(logs)


def law(n: int, estimate: Any, measures: tuple[Any, ...]) -> tuple[float, float, float, float]:
    """Mean, variance, third and fourth cumulant of an estimate of n samples of each measure."""
    tables = [all_counts(n, weights) for weights in measures]
    shares = [table[0] for table in tables]
    if len(tables) == 1:
        values, weights = estimate(shares[0]), tables[0][1]
    else:
        values = estimate(shares[0][:, None, :], shares[1][None, :, :]).ravel()
        weights = np.outer(tables[0][1], tables[1][1]).ravel()
    mean = float(weights @ values)
    second, third, fourth = (float(weights @ (values - mean) ** j) for j in (2, 3, 4))
    return mean, second, third, fourth - 3 * second**2


LONE = [
    (expectation(k1 * s, q), K1 * SCORE, Q),
    (expectation(rho * k3, mu), RHO * (RATIO - 1 + K1), MU),
    (expected_gradient(k3, p), (1 - RATIO) * SCORE, P),
    (expectation((r * s) ** 2, q), (RATIO * SCORE) ** 2, Q),
]


@pytest.mark.parametrize(("quantity", "integrand", "measure"), LONE, ids=lambda x: repr(x)[:24])
def test_a_lone_mean_has_exactly_this_law(quantity: Any, integrand: Any, measure: Any) -> None:
    n = 6
    spread = sampler_of().measure_spread(expand_side(quantity.side, Context()))
    mean, second, third, fourth = law(n, lambda shares: shares @ integrand, (measure,))
    assert spread.value[0] == pytest.approx(mean, rel=1e-12)
    assert spread.deviation[0] ** 2 / n == pytest.approx(second, rel=1e-12)
    assert spread.skewness[0] == pytest.approx(math.sqrt(n) * third / second**1.5, rel=1e-10)
    assert spread.kurtosis[0] == pytest.approx(n * fourth / second**2, rel=1e-9)
    assert spread.bias[0] == 0


def covariance_of(m: Any, a: Any, b: Any) -> Any:
    return m @ (a * b) - (m @ a) * (m @ b)


PRODUCTS = [
    (covariance(k1, r, under=q), lambda m: covariance_of(m, K1, RATIO), (Q,)),
    (covariance(k1, k1, under=mu), lambda m: covariance_of(m, K1, K1), (MU,)),
    (expectation(k1 * s, q) * expectation(k1, q), lambda m: (m @ (K1 * SCORE)) * (m @ K1), (Q,)),
    (
        2 * expectation(r * s, q) * expectation(k1, q) * expectation(r**2, q) + 3 * expectation(k1 * s, q),
        lambda m: 2 * (m @ (RATIO * SCORE)) * (m @ K1) * (m @ RATIO**2) + 3 * m @ (K1 * SCORE),
        (Q,),
    ),
    (expectation(k1, q) * expectation(k1, p), lambda m, n: (m @ K1) * (n @ K1), (Q, P)),
    (
        expectation(k1, q) * expectation(k1, p) - 3 * expectation(r * s, p) + covariance(k1, r, under=q),
        lambda m, n: (m @ K1) * (n @ K1) - 3 * (n @ (RATIO * SCORE)) + covariance_of(m, K1, RATIO),
        (Q, P),
    ),
]


@pytest.mark.parametrize(("quantity", "estimate", "measures"), PRODUCTS, ids=labelled)
def test_products_have_this_bias_variance_and_skewness(quantity: Any, estimate: Any, measures: Any) -> None:
    """The limits of N bias, N Var and sqrt(N) skewness: f(N) = f + a/N + b/N^2 + O(1/N^3) at three sizes."""
    spread = sampler_of().measure_spread(expand_side(quantity.side, Context()))
    sizes = (60, 120, 240) if len(measures) == 1 else (12, 24, 48)
    laws = {n: law(n, estimate, measures) for n in sizes}

    def limit(of: Any) -> float:
        small, middle, large = (of(n, *found) for n, found in laws.items())
        return float((8 * large - 6 * middle + small) / 3)

    value = spread.value[0]
    found = (
        limit(lambda n, mean, *_: n * (mean - value)),
        limit(lambda n, mean, second, *_: math.sqrt(n * second)),
        limit(lambda n, mean, second, third, _: math.sqrt(n) * third / second**1.5),
    )
    error = 2e-3 if len(measures) == 1 else 1e-2
    expected = (spread.bias[0], spread.deviation[0], spread.skewness[0])
    np.testing.assert_allclose(found, expected, rtol=error, atol=error)


# ---------------------------------------------------------------------------- sampling
def kolmogorov(uniform: Any) -> float:
    """sqrt(n) times the distance to the uniform law; above 1.95 once in a thousand."""
    x = np.sort(uniform)
    n = len(x)
    grid = np.arange(n + 1) / n
    return float(math.sqrt(n) * max(np.max(grid[1:] - x), np.max(x - grid[:-1])))


def p_values(z: Any) -> Any:
    return np.vectorize(math.erfc)(np.abs(z) / math.sqrt(2))


@pytest.mark.parametrize("samples", [10**5, 10**12, LARGEST_SAMPLES])
@pytest.mark.parametrize("quantity", [grad(KL(q, p)), expectation(rho * k3 * s, mu), covariance(k1, r, p)])
def test_p_values_are_uniform(quantity: Any, samples: int) -> None:
    sampler = sampler_of(random_model(1, 8))
    products = expand_side(quantity.side, Context())
    spread, means = sampler.measure_spread(products), list_means(products)
    found = [
        sampler.combine(products, sampler.draw_averages(means, samples, Stream(seed)))[0]
        for seed in range(1500)
    ]
    z = (np.array(found) - spread.value[0]) / (spread.deviation[0] / math.sqrt(samples))
    assert kolmogorov(p_values(z)) < 1.95
    assert kolmogorov(p_values(1.1 * z)) > 1.95  # an error of a tenth in the standard error would show


def test_counts_come_from_their_measure() -> None:
    sampler, samples = sampler_of(random_model(5, 6)), 10**9
    for name, other in product(("q", "p", "mu"), repeat=2):
        counts = sampler.draw_counts(name, samples, Stream(3))
        expected = samples * sampler.probabilities[other]
        chi2 = float(((counts - expected) ** 2 / expected).sum())
        assert counts.sum() == samples and (chi2 < 40) == (name == other)  # 5 degrees of freedom


def test_measures_are_drawn_independently_and_seeds_matter() -> None:
    model = FiniteModel(Q, Q, MODEL.u, Q)
    sampler, seen = sampler_of(model), set()
    for seed in range(3):
        for name in ("q", "p", "mu"):
            counts = sampler.draw_counts(name, 10**9, Stream(seed))
            assert counts.tolist() == sampler.draw_counts(name, 10**9, Stream(seed)).tolist()
            seen.add(tuple(counts.tolist()))
    assert len(seen) == 9


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_averages_of_a_few_samples_are_those_of_outcomes(samples: int) -> None:
    sampler = sampler_of()
    mean = Mean("", "q", ExpPoly.from_variable("k1"), ("x",))
    counts = sampler.draw_counts("q", samples, Stream(11))
    average = sampler.draw_averages([mean], samples, Stream(11))[mean]
    assert average[0] == pytest.approx(counts @ (K1 * SCORE) / samples) and counts.sum() == samples


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_backends_agree_on_the_same_counts(name: str) -> None:
    pytest.importorskip(name)
    model = random_model(2, 7, Context(("lam",)))
    quantity = lam * covariance(k1, r, under=q) + expectation(rho**2 * k3 * s, mu) * expectation(k1 * s, q)
    products = expand_side(quantity.side, Context(("lam",)))
    found = []
    for on in (choose_backend("numpy"), choose_backend(name, "cpu")):
        sampler = sampler_of(model, directions=np.eye(7), on=on)
        averages = sampler.draw_averages(list_means(products), 10**12, Stream(5))
        found.append((sampler.combine(products, averages), *vars(sampler.measure_spread(products)).values()))
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-15)


# ---------------------------------------------------------------------------- integrands
def test_directions_and_scores() -> None:
    sampler = sampler_of(directions=np.eye(3))
    by_hand = np.array([[float(j == x) - Q[j] for x in range(3)] for j in range(3)])  # d log q(x) / d logit j
    assert sampler.compute_rows(Mean("", "q", ONE, ("x",))) == pytest.approx(by_hand)
    rows = sampler.compute_rows(Mean("", "q", ExpPoly.from_variable("k1"), ("x", "x")))
    assert rows == pytest.approx(K1 * by_hand**2)
    again = sampler_of().replace_directions(np.eye(3))
    assert again.compute_rows(Mean("", "q", ExpPoly.from_variable("k1"), ("x", "x"))) == pytest.approx(rows)


# ---------------------------------------------------------------------------- refusals


def test_rare_outcomes_are_no_error_but_skewed() -> None:
    rare = FiniteModel([1e-9, 0.5, 0.5 - 1e-9], P, MODEL.u, MU)
    spread = sampler_of(rare).measure_spread(expand_side(expectation(r, q).side, Context()))
    assert spread.value[0] == pytest.approx(1) and spread.skewness[0] == pytest.approx(1e9**0.5, rel=1e-3)


def test_an_estimate_without_a_linear_part() -> None:
    model = FiniteModel([0.5, 0.5], [0.5, 0.5], [1.0, -1.0])
    quantity = expectation(s, q) * expectation(s, q)
    with pytest.raises(UsageError, match="linear part of the estimate vanishes"):
        sampler_of(model).measure_spread(expand_side(quantity.side, Context()))
    spread = sampler_of().measure_spread(expand_side(quantity.side, Context()))
    assert spread.deviation[0] < 1e-15 and abs(spread.skewness[0]) > 1e10  # zero up to rounding: never judged


def spread_of(quantity: Any, model: FiniteModel) -> Any:
    return sampler_of(model).measure_spread(expand_side(quantity.side, Context()))


def drawn(samples: int) -> Any:
    return sampler_of().draw_counts("q", samples, Stream(0))


ROWS = {"q": Q, "p": P, "mu": MU}
EXTREME = [1e-210, 0.5, 0.5 - 1e-210]
TINY = FiniteModel([1e-150, 0.5, 0.5], P, MODEL.u, MU)
REFUSED: list[tuple[Any, str]] = [
    *((lambda n=n: drawn(n), "from 1 to 2") for n in (0, -1, LARGEST_SAMPLES + 1, 10**40)),
    *((lambda name=name: sampler_of(FiniteModel(u=MODEL.u, **ROWS | {name: EXTREME})), "range of floats")
      for name in ROWS),
    *((lambda moment=moment: spread_of(moment, TINY), "beyond the range of floats")
      for moment in (expectation(r, q), expectation(r**3, q), expectation(k3**4 * s, q))),
    (lambda: FiniteSampler(MODEL, Context(("lam",))), "no value for the parameter lam"),
    (lambda: FiniteSampler(MODEL, Context(on_policy=True)), "mu must equal q"),
    (lambda: sampler_of().compute_rows(Mean("", "q", ExpPoly.from_variable("A"))), "no value for 'A'"),
    (lambda: sampler_of().compute_rows(Mean("", "q", ExpPoly.from_variable("lam"))), "no value for 'lam'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), REFUSED)
def test_refusals(make: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value)
