"""Sampling Gaussians: moments by mpmath quadrature, simulations, and which judgements are unsound."""

from __future__ import annotations

import gc
import math
import re
import weakref
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from klsym.calculus import KL, covariance, exp, expectation, k1, k2, k3, lam, log_q, mu, p, q, r, rho, s, sg
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Mean
from klsym.study.gaussian.exact import GaussianModel
from klsym.study.gaussian.models import Divergent
from klsym.study.sampling.backends import choose_backend
from klsym.study.sampling.gaussians import GaussianSampler, Unsound
from klsym.study.sampling.means import expand_side
from klsym.study.sampling.sampler import list_means
from klsym.study.sampling.streams import Stream

MODEL = GaussianModel((0.3, 1.0), (0.5, 0.9), (-0.2, 1.2))
PAIRS = {"q": MODEL.q, "p": MODEL.p, "mu": MODEL.mu}
Integrand = Callable[[Any, Any, Any, Any], Any]  # of k1, w, log q and the score function


def sampler(model: GaussianModel = MODEL, **numbers: float) -> GaussianSampler:
    return GaussianSampler(model, numbers)


def products_of(quantity: Any) -> Any:
    return expand_side(quantity.side, Context(("lam",)))


def log_normal(pair: Any, x: Any) -> Any:
    return -((x - pair[0]) ** 2) / (2 * pair[1]) - mpmath.log(2 * mpmath.pi * pair[1]) / 2


def quad(measure: str, direction: int, integrand: Integrand, model: GaussianModel = MODEL) -> Any:
    """The integral of an integrand under a measure, from the densities."""
    pairs = {"q": model.q, "p": model.p, "mu": model.mu or model.q}
    m, v = model.q

    def of(x: Any) -> Any:
        logs = {name: log_normal(pair, x) for name, pair in pairs.items()}
        score = (x - m) / v if direction == 0 else (x - m) ** 2 / v - 1
        value = integrand(logs["q"] - logs["p"], logs["q"] - logs["mu"], logs["q"], score)
        return value * mpmath.exp(logs[measure])

    return mpmath.quad(of, [-45, -15, -5, 0, 5, 15, 45])


E = mpmath.exp
LONE: list[tuple[Any, str, Integrand]] = [
    (expectation(k1, q), "q", lambda k, w, lq, s: k),
    (expectation(k1 * s, q), "q", lambda k, w, lq, s: k * s),
    (expectation(rho * k3 * s, mu), "mu", lambda k, w, lq, s: E(w) * (E(-k) - 1 + k) * s),
    (expectation(r * s, p), "p", lambda k, w, lq, s: E(-k) * s),
    (expectation(sg(k1) * log_q - s**2, q), "q", lambda k, w, lq, s: k * lq - s**2),
    (expectation((k1 * s) ** 2, mu), "mu", lambda k, w, lq, s: (k * s) ** 2),
]


# along the mean and along the log scale by turns; the last one along both
LONE_BY_TURNS = [(*row, number % 2) for number, row in enumerate([*LONE, LONE[-1]])]


@pytest.mark.parametrize(
    ("quantity", "measure", "integrand", "direction"), LONE_BY_TURNS, ids=lambda x: repr(x)[:20]
)
@pytest.mark.share(3)
def test_the_law_of_one_sample(quantity: Any, measure: str, integrand: Integrand, direction: int) -> None:
    spread = sampler().measure_spread(products_of(quantity))
    mean = quad(measure, direction, integrand)

    def central(order: int) -> Any:
        return quad(measure, direction, lambda *x: (integrand(*x) - mean) ** order)

    second, third, fourth = (central(order) for order in (2, 3, 4))
    found = (spread.value, spread.deviation, spread.skewness, spread.kurtosis, spread.bias)
    expected = (mean, mpmath.sqrt(second), third / second**1.5, fourth / second**2 - 3, 0)
    for row, value in zip(found, expected, strict=True):
        assert row[direction] == pytest.approx(float(value), rel=1e-7, abs=1e-9)


def test_products_add_up_over_measures() -> None:
    """F = E_q[k1] E_p[k1] + Cov_q(k1, r): the influence is (E_p k1) k1 + (k1 - E k1)(r - E r) under q,
    (E_q k1) k1 under p."""
    spread = sampler().measure_spread(
        products_of(expectation(k1, q) * expectation(k1, p) + covariance(k1, r, under=q))
    )

    def eq(of: Integrand) -> float:
        return float(quad("q", 0, of))

    def ep(of: Integrand) -> float:
        return float(quad("p", 0, of))

    a, b, ratio = eq(lambda k, *_: k), ep(lambda k, *_: k), eq(lambda k, *_: E(-k))

    def h(k: Any) -> Any:  # under q, about its mean
        return (k - a) * (E(-k) - ratio) - product + b * (k - a)

    product = eq(lambda k, *_: (k - a) * (E(-k) - ratio))
    second = eq(lambda k, *_: h(k) ** 2) + a**2 * ep(lambda k, *_: (k - b) ** 2)
    third = eq(lambda k, *_: h(k) ** 3) + a**3 * ep(lambda k, *_: (k - b) ** 3)
    along = eq(lambda k, *_: h(k) * (k - a)), eq(lambda k, *_: h(k) * (E(-k) - ratio))
    across = a * ep(lambda k, *_: (k - b) ** 2)  # Cov(h_p, k1)
    bend = 6 * (along[0] * across - along[0] * along[1])
    assert spread.value[0] == pytest.approx(a * b + product, rel=1e-9)
    assert spread.deviation[0] == pytest.approx(math.sqrt(second), rel=1e-7)
    assert spread.bias[0] == pytest.approx(-product, rel=1e-7)
    assert spread.skewness[0] == pytest.approx((third + bend) / second**1.5, rel=1e-6)


def test_small_weights_are_not_lost() -> None:
    """E_q[k1 s] E_q[k1] with p almost q: each factor is of the order of the distance."""
    near = GaussianModel((0.0, 1.0), (1e-6, 1.0))
    spread = sampler(near).measure_spread(products_of(expectation(k1 * s, q) * expectation(k1, q)))
    assert spread.deviation[0] == pytest.approx(1e-12, rel=1e-6)


# ---------------------------------------------------------------------------- samples
def test_the_task_evaluates_the_integrands() -> None:
    k, w, log_q, lam = (ExpPoly.from_variable(name) for name in ("k1", "w", "log_q", "lam"))
    elements = (-k).exp() * w + log_q, (w - k * 2 + log_q).exp() - 1, (k * lam + w).exp(), (k * w).exp()
    each = ((), (0,), (1,), (1, 1), (0, 1))
    rows = tuple((element, directions) for element in elements for directions in each)
    z = np.array([-3.0, -0.4, 0.0, 1.0, 2.5])
    for measure, (mean, variance) in PAIRS.items():
        x = mean + math.sqrt(variance) * z
        lq, lp, lmu = (
            -((x - m) ** 2) / (2 * v) - np.log(2 * np.pi * v) / 2
            for m, v in (PAIRS[n] for n in ("q", "p", "mu"))
        )
        scores = (x - 0.3) / 1.0, (x - 0.3) ** 2 / 1.0 - 1
        x1, x2 = lq - lp, lq - lmu  # k1 and w
        values = np.exp(-x1) * x2 + lq, np.exp(x2 - 2 * x1 + lq) - 1, np.exp(0.5 * x1 + x2), np.exp(x1 * x2)
        expected = [value * math.prod(scores[i] for i in chosen) for value in values for chosen in each]
        found = sampler(lam=0.5).build_task(measure, rows).evaluate_rows(z)
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_a_block_is_given_back_at_once() -> None:
    """What waits for the collector of cycles makes every block take new pages of memory."""
    rows = tuple(((-ExpPoly.from_variable("k1")).exp() + ExpPoly.from_variable("w"), (i,)) for i in (0, 1))
    task, z = sampler().build_task("q", rows), np.linspace(-1, 1, 5)
    held = weakref.ref(z)
    gc.disable()
    try:
        task.evaluate_rows(z)
        del z
        assert held() is None
    finally:
        gc.enable()


SIMULATED = [
    expectation(k1 * s, q),
    expectation(rho * k3 * s, mu),
    covariance(k1, r, under=q),
    expectation(k1, q) * expectation(k1 * s, p) - KL(q, p),
]


@pytest.mark.parametrize("quantity", SIMULATED, ids=repr)
def test_z_has_mean_zero_and_variance_one(quantity: Any) -> None:
    one, samples, runs = sampler(), 4000, 400
    products = products_of(quantity)
    spread, means = one.measure_spread(products), list_means(products)
    found = [one.combine(products, one.draw_averages(means, samples, Stream(seed))) for seed in range(runs)]
    z = (np.array(found) - spread.value - spread.bias / samples) / (spread.deviation / math.sqrt(samples))
    assert np.all(np.abs(z.mean(axis=0)) < 4 / math.sqrt(runs))
    heavy = 1 + np.abs(spread.kurtosis) / samples
    assert np.all(np.abs(z.var(axis=0) - 1) < 4 * np.sqrt((2 + heavy) / runs))


def test_one_seed_gives_the_same_bits_and_another_does_not() -> None:
    products = products_of(expectation(k3 * s, q) * expectation(k1, p))
    means = list_means(products)
    runs = [sampler().draw_averages(means, 100_001, Stream(seed)) for seed in (3, 3, 4)]
    for mean in means:
        assert runs[0][mean].tobytes() == runs[1][mean].tobytes() != runs[2][mean].tobytes()


def test_a_single_sample() -> None:
    mean = Mean("", "q", ExpPoly.from_variable("k1"))
    found = sampler().draw_averages([mean], 1, Stream(0))[mean]
    assert np.isfinite(found).all() and found[0] == found[1]


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_backends_draw_the_same_samples_on_a_processor(name: str) -> None:
    pytest.importorskip(name)
    products = products_of(expectation(rho * k3 * s, mu) + lam * covariance(k1, r, under=q))
    found = []
    for on in (choose_backend("numpy"), choose_backend(name, "cpu")):
        one = GaussianSampler(MODEL, {"lam": 0.4}, on)
        found.append(one.combine(products, one.draw_averages(list_means(products), 50_000, Stream(9))))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


# ---------------------------------------------------------------------------- soundness
def model_with(p_variance: float) -> GaussianModel:
    return GaussianModel((0.0, 1.0), (0.0, p_variance))


def spread_at(quantity: Any, variance: float) -> Any:
    return sampler(model_with(variance)).measure_spread(products_of(quantity))


def drawn(name: str) -> Any:
    return sampler().draw_averages([Mean("", "q", ExpPoly.from_variable(name))], 10, Stream(0))


SIGMA = r"\A(?=.*sigma).*"  # every reason names the condition on the variances
HEAVY = [  # r = p/q ~ exp(a x^2), a = (1 - 1/v)/2; E_q[r^j] is finite while 2 a j < 1
    (expectation(r, q), 2.1, Unsound, "the standard error is infinite"),
    (expectation(r, q), 1.9, Unsound, "without a third moment"),
    (expectation(r, q), 1.4, Unsound, "without a fourth moment"),
    (expectation(k3, q), 1.4, Unsound, "without a fourth moment"),
    (expectation(r * s, q), 1.4, Unsound, "without a fourth moment"),
    (expectation(r - 1, q) * expectation(k1, q), 1.9, Unsound, "without a third moment"),
    (covariance(k1, r, under=q), 2.1, Unsound, "the standard error is infinite"),
    *((moment, 3.0, Divergent, "")
      for moment in (expectation(k3**2, q), expectation(r**2 * s, q), covariance(k1, r**2, q))),
]  # fmt: skip
REFUSED: list[tuple[Any, type[Exception], str]] = [
    *((lambda row=row: spread_at(*row[:2]), row[2], SIGMA + row[3]) for row in HEAVY),
    *((lambda name=name: drawn(name), UsageError, f"{name}' has no value on Gaussians")
      for name in ("R", "lam")),
    (lambda: sampler().measure_spread(products_of(expectation(lam * k1, q))), UsageError, "lam"),
    (lambda: sampler().measure_spread(expand_side(expectation(exp(k1**2), q).side, Context())),
     UsageError, "degree 4"),
    (lambda: sampler(lam=math.nan), UsageError, "finite number"),
    (lambda: sampler(GaussianModel((0.0, -1.0), (0.0, 1.0))), UsageError, "variance of q"),
    (lambda: sampler(GaussianModel((0.0, 1.0), (math.inf, 1.0))), UsageError, "mean of p"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "reason"), REFUSED)
def test_refusals(make: Any, error: type[Exception], reason: str) -> None:
    with pytest.raises(error) as caught:
        make()
    said = getattr(caught.value, "reason", str(caught.value))
    assert re.search(reason, said) and "\n" not in said


@pytest.mark.parametrize(
    ("quantity", "variance"),
    [(expectation(r, q), 1.3), (expectation(k3, q), 1.3), (expectation(1 / r, q), 5.0),
     (expectation(k1**2, q), 9.0)],
)  # fmt: skip
def test_finite_moments_are_judged(quantity: Any, variance: float) -> None:
    spread = sampler(model_with(variance)).measure_spread(products_of(quantity))
    assert all(np.isfinite(row).all() for row in vars(spread).values())


def test_what_is_the_same_at_every_sample() -> None:
    on_policy = GaussianModel((0.3, 1.0), (0.5, 0.9))
    spread = GaussianSampler(on_policy).measure_spread(
        expand_side(expectation(rho**2 * k2, mu).side, Context())
    )
    assert spread.deviation[0] > 0
    spread = GaussianSampler(on_policy).measure_spread(
        expand_side(expectation(rho + rho**2, mu).side, Context())
    )
    assert spread.value.tolist() == [2.0, 2.0] and spread.deviation.tolist() == [0.0, 0.0]
