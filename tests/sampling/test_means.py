"""What sampling averages, against the literal meaning of each quantity: complex steps on softmax models."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from klsym.calculus import *
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Mean, Side, Statement
from klsym.numeric.models import FiniteModel
from klsym.sampling.finite import FiniteSampler
from klsym.sampling.means import Deterministic, gradient_losses, means_of
from support.labels import labelled

H = 1e-30
LAM = 0.7
Place = Any


def place(seed: int, t: complex, on_policy: bool = False) -> tuple[Place, Any]:
    """The densities at theta + t u and everything detached at theta, from logits alone; and the model."""
    rng = np.random.default_rng(seed)
    theta, a, b, u, reward = rng.normal(size=(5, 4))

    def softmax(z: Any) -> Any:
        return np.exp(z) / np.exp(z).sum()

    still, p_, mu_ = softmax(theta), softmax(a), softmax(theta if on_policy else b)
    q_ = softmax(theta + t * u)
    slope = np.imag(np.log(softmax(theta + 1j * H * u))) / H
    at = SimpleNamespace(
        q=q_, p=p_, mu=mu_, k1=np.log(q_ / p_), r=p_ / q_, rho=q_ / mu_, lq=np.log(q_), s=slope, R=reward,
        q0=still, k10=np.log(still / p_), r0=p_ / still, rho0=still / mu_, lq0=np.log(still),
    )  # fmt: skip
    model = FiniteModel(still, p_, u, mu_, {"lam": LAM}, {"R": reward})
    return at, model


def kl(a: Any, b: Any) -> Any:
    return (a * np.log(a / b)).sum()


def chi(a: Any, b: Any) -> Any:
    return ((a - b) ** 2 / b).sum()


def cov(m: Any, a: Any, b: Any) -> Any:
    return (m * (a - (m * a).sum()) * (b - (m * b).sum())).sum()


Literal = Callable[[Place], Any]
# quantity, its literal value; what stands under a gradient is differentiated along u
VALUES: list[tuple[Any, Literal]] = [
    (expectation(k1, q), lambda x: (x.q * x.k1).sum()),
    (expectation(k1 * s, q), lambda x: (x.q * x.k1 * x.s).sum()),
    (expectation((k1 * s) ** 2, q), lambda x: (x.q * (x.k1 * x.s) ** 2).sum()),
    (expectation(rho * sg(k1) * s, mu), lambda x: (x.mu * x.rho * x.k1 * x.s).sum()),
    (expectation(r**2 * s, p), lambda x: (x.p * x.r**2 * x.s).sum()),
    (expectation(k1 * log_q, count), lambda x: (x.k1 * x.lq).sum()),
    (expectation(R * s, q), lambda x: (x.q * x.R * x.s).sum()),
    (expectation(log_p - log_mu, q), lambda x: (x.q * np.log(x.p / x.mu)).sum()),
    (expectation(exp(k1 / 2 - log_q / 3), q), lambda x: (x.q * np.exp(x.k1 / 2 - x.lq / 3)).sum()),
    (KL(q, p), lambda x: kl(x.q, x.p)),
    (KL(mu, p), lambda x: kl(x.mu, x.p)),
    (chi2(p, q), lambda x: chi(x.p, x.q)),
    (chi2(q, mu), lambda x: chi(x.q, x.mu)),
    (jeffreys(p, q), lambda x: kl(x.p, x.q) + kl(x.q, x.p)),
    (covariance(k1, r, under=mu), lambda x: cov(x.mu, x.k1, x.r)),
    (lam * KL(q, p) + 2, lambda x: LAM * kl(x.q, x.p) + 2),
    (KL(q, p) / lam, lambda x: kl(x.q, x.p) / LAM),
    (expectation(k1 * s, q) * expectation(k1, p), lambda x: (x.q * x.k1 * x.s).sum() * (x.p * x.k1).sum()),
    (
        3 * expectation(r * s, q) * KL(q, p) * expectation(rho, q) + expectation(k1 * s, mu),
        lambda x: (
            3 * (x.q * x.r * x.s).sum() * kl(x.q, x.p) * (x.q * x.rho).sum() + (x.mu * x.k1 * x.s).sum()
        ),
    ),
]
GRADIENTS: list[tuple[Any, Literal]] = [
    (grad(KL(q, p)), lambda x: kl(x.q, x.p)),
    (grad(KL(p, q)), lambda x: kl(x.p, x.q)),
    (grad(KL(mu, q)), lambda x: kl(x.mu, x.q)),
    (grad(KL(q, mu)), lambda x: kl(x.q, x.mu)),
    (grad(KL(mu, p) + KL(q, p)), lambda x: kl(x.q, x.p)),
    (grad(chi2(q, p)), lambda x: chi(x.q, x.p)),
    (grad(chi2(p, q)), lambda x: chi(x.p, x.q)),
    (grad(jeffreys(mu, q)), lambda x: kl(x.mu, x.q) + kl(x.q, x.mu)),
    (grad(expectation(k2, q)), lambda x: (x.q * x.k1**2 / 2).sum()),
    (grad(expectation(k2, mu)), lambda x: (x.mu * x.k1**2 / 2).sum()),
    (grad(expectation(sg(k1) * k1, q)), lambda x: (x.q * x.k10 * x.k1).sum()),
    (grad(expectation(sg(rho) * k3, mu)), lambda x: (x.mu * x.rho0 * (x.r - 1 + x.k1)).sum()),
    (grad(expectation(k1 * log_q, count)), lambda x: (x.k1 * x.lq).sum()),
    (grad(expectation(R, q)), lambda x: (x.q * x.R).sum()),
    (grad(expectation(k1, q) * expectation(k1, p)), lambda x: (x.q * x.k1).sum() * (x.p * x.k1).sum()),
    (grad(KL(q, p) * KL(q, p) * KL(p, q)), lambda x: kl(x.q, x.p) ** 2 * kl(x.p, x.q)),
    (grad(covariance(k1, r, under=q)), lambda x: cov(x.q, x.k1, x.r)),
    (grad(covariance(k1, sg(k1), under=q) * lam), lambda x: LAM * cov(x.q, x.k1, x.k10)),
    (expected_gradient(k1, q), lambda x: (x.q0 * x.k1).sum()),
    (expected_gradient(k3, q), lambda x: (x.q0 * (x.r - 1 + x.k1)).sum()),
    (expected_gradient(k3, p), lambda x: (x.p * (x.r - 1 + x.k1)).sum()),
    (expected_gradient(rho * k3, mu), lambda x: (x.mu * x.rho * (x.r - 1 + x.k1)).sum()),
    (expected_gradient(sg(rho) * k2, mu), lambda x: (x.mu * x.rho0 * x.k1**2 / 2).sum()),
    (expected_gradient(rho * sg(k1), mu), lambda x: (x.mu * x.rho * x.k10).sum()),
    (expected_gradient(lam * r * log_q * R, mu), lambda x: (x.mu * LAM * x.r * x.lq * x.R).sum()),
    (expected_gradient(k2 - sg(k2) + sg(k3), q), lambda x: (x.q0 * x.k1**2 / 2).sum()),
]


def sampled(quantity: Any, model: FiniteModel, on_policy: bool = False) -> float:
    """The same quantity from the means that sampling would take, at their exact values."""
    context = Context(("lam",), on_policy=on_policy)
    sampler = FiniteSampler(model, context)
    try:
        products = means_of(quantity.side, context)
    except Deterministic as reason:  # on-policy rho is 1 and log rho is 0: all of chi2(q||mu) cancels
        assert on_policy and "nothing random" in str(reason)
        return 0.0
    exact = {mean: sampler.exact_mean(mean) for _, means in products for mean in means}
    return float(sampler.combine(products, exact)[0])


@pytest.mark.parametrize("on_policy", [False, True])
@pytest.mark.parametrize(("quantity", "literal"), VALUES, ids=labelled)
def test_values(quantity: Any, literal: Literal, on_policy: bool) -> None:
    for seed in range(3):
        x, model = place(seed, 0.0, on_policy)
        assert sampled(quantity, model, on_policy) == pytest.approx(literal(x), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("on_policy", [False, True])
@pytest.mark.parametrize(("quantity", "literal"), GRADIENTS, ids=labelled)
def test_gradients(quantity: Any, literal: Literal, on_policy: bool) -> None:
    for seed in range(3):
        x, model = place(seed, 1j * H, on_policy)
        slope = np.imag(literal(x)) / H
        assert sampled(quantity, model, on_policy) == pytest.approx(slope, rel=1e-11, abs=1e-13)


def test_the_literal_meanings_tell_quantities_apart() -> None:
    """A table in which all rows gave one number would test nothing."""
    x, _ = place(0, 1j * H)
    values = {round(float(np.imag(literal(x)) / H), 9) for _, literal in GRADIENTS}
    assert len(values) > 0.6 * len(GRADIENTS)


# ---------------------------------------------------------------------------- shape
def test_lone_means_merge_and_products_do_not() -> None:
    side = (expectation(k1, q) + 2 * expectation(r, q) + expectation(k1, p)).side
    products = means_of(side, Context())
    assert sorted(means[0].measure for _, means in products) == ["p", "q"]
    assert all(c == ExpPoly.number(1) and len(means) == 1 for c, means in products)
    product = means_of((expectation(k1, q) * expectation(r, q) + expectation(k1, q)).side, Context())
    assert sorted(len(means) for _, means in product) == [1, 2]


def test_the_counting_measure_is_sampled_from_q() -> None:
    [(_, (mean,))] = means_of(expectation(k1, count).side, Context())
    assert mean == Mean("", "q", ExpPoly.variable("k1") * (ExpPoly.variable("log_q") * -1).exp())


@pytest.mark.parametrize(
    ("quantity", "reason"),
    [
        (sample(k1), "one sample"),
        (sample(k1 * s), "one sample"),
        (sample_gradient(k3), "one sample"),
        (bregman(-(r**2)), "one sample"),
        (expectation(k1, q) + sample(k1), "one sample"),
        (grad(expectation(k1 * s, q)), "gradient of Mean"),
        (grad(expected_gradient(k3, q)), "gradient of MeanGradient"),
        (grad(grad(KL(q, p))), "gradient of Gradient"),
        (expectation(k1, q) - expectation(k1, q), "nothing random"),
        (expectation(sg(k1) - k1, q), "nothing random"),
        (expected_gradient(sg(k3), q), "nothing random"),
        (grad(KL(mu, p)), "nothing random"),
    ],
    ids=repr,
)
def test_what_is_not_sampled(quantity: Any, reason: str) -> None:
    with pytest.raises(Deterministic, match=reason):
        means_of(quantity.side, Context())


def test_a_number_is_not_sampled() -> None:
    for side in (Side(), Side.constant(3), Side.constant(ExpPoly.variable("lam"))):
        with pytest.raises(Deterministic, match="nothing random"):
            means_of(side, Context(("lam",)))


def test_losses_for_autograd_are_listed_once() -> None:
    left = expected_gradient(k3, q) + 2 * expected_gradient(rho * k1, mu) + grad(expectation(k2, q))
    found = gradient_losses(Statement(left.side, expected_gradient(k3, q).side))
    assert sorted(atom.measure for atom in found) == ["mu", "q"]
