"""What sampling averages: at their exact values, the means are those that the numeric oracle finds.

The oracle reads a quantity as a whole; sampling takes it apart into means, as complex steps do not.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from klsym.calculus import *
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Mean, Side, Statement
from klsym.language.expressions import H, log_mu, log_p, log_q
from klsym.numeric.evaluation import evaluate
from klsym.numeric.models import random_model, random_tree
from klsym.study.sampling.finite import FiniteSampler
from klsym.study.sampling.means import Deterministic, expand_side, list_gradient_losses
from klsym.study.sampling.streams import Stream
from klsym.study.sequences.dynamic_programming import compute_side, random_chains
from support.labels import labelled

n = parameter("n")
f = Function("f")(log_q, log_p, log_mu)
CONTEXT = Context(parameters=("lam", "n"), functions=(("f", ("k1", "log_q", "w")),))
K1 = ExpPoly.from_variable("k1")
SAMPLES = [
    expectation(k1, q), expectation(k1 * s, q), expectation((k1 * s) ** 2, q),
    expectation(rho * sg(k1) * s, mu), expectation(r**2 * s, p), expectation(k1 * log_q, count),
    expectation(R * s, q), expectation(log_p - log_mu, q), expectation(exp(k1 / 2 - log_q / 3), q),
    expectation(f * s, mu), KL(q, p), KL(mu, p), chi2(p, q), chi2(q, mu), jeffreys(p, q),
    covariance(k1, r, under=mu), lam * KL(q, p) + 2, KL(q, p) / lam,
    expectation(k1 * s, q) * expectation(k1, p),
    3 * expectation(r * s, q) * KL(q, p) * expectation(rho, q) + expectation(k1 * s, mu),
    grad(KL(q, p)), grad(KL(p, q)), grad(KL(mu, q)), grad(KL(q, mu)), grad(KL(mu, p) + KL(q, p)),
    grad(chi2(q, p)), grad(chi2(p, q)), grad(jeffreys(mu, q)), grad(expectation(k2, q)),
    grad(expectation(k2, mu)), grad(expectation(sg(k1) * k1, q)), grad(expectation(sg(rho) * k3, mu)),
    grad(expectation(k1 * log_q, count)), grad(expectation(R, q)), grad(expectation(f, q)),
    grad(expectation(sg(f), q)), grad(expectation(k1, q) * expectation(k1, p)),
    grad(KL(q, p) * KL(q, p) * KL(p, q)), grad(covariance(k1, r, under=q)),
    grad(covariance(k1, sg(k1), under=q) * lam), expected_gradient(k1, q), expected_gradient(k3, q),
    expected_gradient(k3, p), expected_gradient(rho * k3, mu), expected_gradient(sg(rho) * k2, mu),
    expected_gradient(rho * sg(k1), mu), expected_gradient(lam * r * log_q * R, mu),
    expected_gradient(f, mu), expected_gradient(k2 - sg(k2) + sg(k3), q),
]  # fmt: skip
TOKENS = {
    "same token": sum_over_t(now(k1 * s), q),
    "reward-to-go": sum_over_t((now(R) + future(R)) * now(s), mu),
    "prefix weights": sum_over_t(past(rho) * now(rho * k1) * (past(s) + now(s)), mu),
    "a baseline": sum_over_t(past(A) * now(k1) * now(s), q),
    "an advantage": sum_over_t(A * now(s), q),
    "over the length": token_gradient(now(k3) / length, mu),
    "detached": token_gradient(sg(past(rho)) * now(k2), mu),
    "a whole weight": token_gradient(rho * now(k3), mu),
    "a generic function": sum_over_t(past(f) * now(s) + now(f) * future(s), q),
    "its slope": token_gradient(now(f), mu),
    "whole sequences": expected_gradient(rho * k3, mu) + grad(KL(q, p)),
    "lengths": grad(expectation(1 / length, q)) + expectation(length, p),
    "token divergences": token_KL(q, p) + token_KL(p, q, prefixes=mu),
    "their gradients": token_KL_gradient(q, p) - token_KL_gradient(p, q, prefixes=mu),
    "under a gradient": grad(token_KL(q, p)) + grad(sum_over_t(past(k1) * now(k1), q)),
    "a product": sum_over_t(now(k1), q) * sum_over_t(now(s), mu),
}
BATCHES = {
    "no centring": mean_over_i(own(k1 * s), q),
    "leave-one-out": mean_over_i((own(k1) - others(k1) / n**2) * own(s), mu),
    "others weighted": mean_over_i(others(rho) * own(rho * k1) * own(s), mu),
    "scores of others": mean_over_i(others(k1) * others(s) + own(R) * others(R), q),
    "a variance": variance_of_mean((own(k1) - others(k1) / n) * own(s), q),
    "one sample": grad(KL(q, p)) + mean_over_i(own(A * s), q),
    "a generic function": mean_over_i(others(f) * own(s), q),
}


def directions(model: Any) -> Any:
    return np.random.default_rng(0).normal(size=(3, len(model.q)))


def exact(side: Side, context: Context, sampler: FiniteSampler) -> Any:
    """The estimate from the means that sampling would take, at their exact values."""
    products = expand_side(side, context)
    return sampler.combine(
        products, {mean: sampler.compute_exact_mean(mean) for _, x in products for mean in x}
    )


def judge(side: Side, model: Any, batches: bool = False, context: Context = CONTEXT) -> Any:
    """Sampling and the oracle agree along three directions; what they find."""
    rows = directions(model)
    found = exact(side, context, FiniteSampler(model, context, {}, rows, None, batches))
    expected = [evaluate(Statement(side, Side(), context), replace(model, u=row))[0] for row in rows.tolist()]
    assert found == pytest.approx(np.array(expected), rel=1e-10, abs=1e-12)
    return expected


@pytest.mark.parametrize("on_policy", [False, True])
@pytest.mark.parametrize("quantity", SAMPLES, ids=labelled)
def test_one_sample(quantity: Any, on_policy: bool) -> None:
    context = replace(CONTEXT, on_policy=on_policy)
    for seed in range(2):
        try:
            judge(quantity.side, random_model(seed, 4, context), context=context)
        except Deterministic as reason:  # on-policy rho is 1 and log rho is 0: all of chi2(q||mu) cancels
            assert on_policy and "nothing random" in str(reason)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", TOKENS)
def test_sequences(name: str, seed: int) -> None:
    judge(TOKENS[name].side, random_tree(seed, CONTEXT))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str, size: int) -> None:
    model = random_model(size, 3, CONTEXT)
    model = replace(model, parameters={**model.parameters, "n": Fraction(size)})
    judge(BATCHES[name].side, model, batches=True)


def test_batches_of_sequences() -> None:
    steps = (now(k1) + future(k1) - others(k1) / n) * now(s) + others(R) * now(R)
    model = random_tree(1, CONTEXT, tokens=2, depth=2)
    model = replace(model, parameters={**model.parameters, "n": Fraction(2)})
    judge(mean_over_i(steps, q, steps=True).side, model, batches=True)


def test_two_directions() -> None:
    model, side = random_tree(2, CONTEXT), curl(now(k3), q).side
    expected = evaluate(Statement(side, Side(), CONTEXT), model)[0]
    found = exact(side, CONTEXT, FiniteSampler(model, CONTEXT, {}, None, None, False))
    assert found == pytest.approx([expected], rel=1e-6)


def test_what_a_statement_gives() -> None:
    """R at a whole sample; H at each step, where it is the value of k1 of its token."""
    given = Context(("lam",), given=(("R", K1 * ExpPoly.from_variable("lam") - 2),))
    judge(expectation(R * s, q).side, random_model(0, 4, given), context=given)
    given = Context(given=(("H[now]", ExpPoly.from_variable("k1[now]")),))
    model = random_tree(0, given)
    values = [judge(sum_over_t((now(v) + future(v)) * now(s), q).side, model, context=given) for v in (H, k1)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_generic_functions_as_ring_elements() -> None:
    g, context = Function("g")(k1), Context(functions=(("g", ("k1",)),))
    model, side = random_model(3, 4, context), expected_gradient(g, q).side
    cube = FiniteSampler(model, context, {"g": K1**3})
    assert exact(side, context, cube) == pytest.approx(exact(expected_gradient(k1**3, q).side, context, cube))
    assert exact(side, context, FiniteSampler(model, context)) != pytest.approx(exact(side, context, cube))


@pytest.mark.parametrize("name", ["same token", "prefix weights", "over the length"])
def test_samples_come_near_the_exact_value(name: str) -> None:
    model = random_tree(5, CONTEXT)
    sampler = FiniteSampler(model, CONTEXT, {}, directions(model), None, False)
    products = expand_side(TOKENS[name].side, CONTEXT)
    spread = sampler.measure_spread(products)
    means = [mean for _, found in products for mean in found]
    for samples in (10**4, 10**10):
        seen = sampler.combine(products, sampler.draw_averages(means, samples, Stream(3)))
        assert (np.abs(seen - spread.value) < 6 * spread.deviation / np.sqrt(samples)).all()
        assert (np.abs(seen - spread.value) > 0).all()


def test_refusals() -> None:
    def sampler_of(model: Any, batches: bool = False) -> FiniteSampler:
        return FiniteSampler(model, CONTEXT, {}, None, None, batches)

    model = random_model(0, 3, CONTEXT)
    for entry, reason in (("now'", "no second direction"), ("self", "no slot 'self'")):
        with pytest.raises(UsageError, match=reason):
            sampler_of(model).compute_exact_mean(Mean("t", "q", ExpPoly.from_variable("k1[now]"), (entry,)))
    tree = random_tree(0, CONTEXT)
    with pytest.raises(UsageError, match="2\\^53"):
        sampler_of(tree).draw_counts("q", 2**60, Stream(0))
    with pytest.raises(UsageError, match="whole number"):
        sampler_of(replace(model, parameters={**model.parameters, "n": Fraction(5, 2)}), True)


# ---------------------------------------------------------------------------- dynamic programs
PROGRAMMES = {
    "KL": (KL(q, p), token_KL(q, p)),
    "forward KL": (KL(p, q), token_KL(p, q, prefixes=p)),
    "grad KL": (grad(KL(q, p)), sum_over_t(now(k1) * (past(s) + now(s)), q)),
    "grad forward KL": (grad(KL(p, q)), expected_gradient(k3, q)),
    "k2 field": (token_gradient(now(k2), q), token_KL_gradient(q, p)),
    "k3 field": (token_gradient(now(k3), q), token_KL_gradient(p, q)),
    "token weights": (token_KL_gradient(q, p, prefixes=mu), token_gradient(now(rho * k3), mu)),
    "1/T": (grad(expectation(1 / length, q)), token_gradient(now(k1) / length, q)),
    "T": (grad(expectation(length, q)), sum_over_t(past(s), q)),
}


@pytest.mark.parametrize("name", PROGRAMMES)
def test_programmes_agree_with_sampling_their_trees(name: str) -> None:
    known, sampled = PROGRAMMES[name]
    chains = random_chains(4, Context(), vocabulary=2, max_length=5)
    sampler = FiniteSampler(chains.tree, Context(), {}, chains.directions, None, False)
    expected = compute_side(known.side, chains)
    assert expected is not None and np.abs(expected).max() > 1e-3
    assert exact(sampled.side, Context(), sampler) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "side",
    [
        KL(mu, p), grad(KL(mu, q)), sum_over_t(now(k1), q), parameter("a") * KL(q, p),
        token_KL(q, p, prefixes=p), KL(q, p) * KL(q, p), grad(expectation(length**2, q)),
        token_gradient(now(k1), q),
    ],
    ids=str,
)  # fmt: skip
def test_there_is_no_programme_for_everything(side: Any) -> None:
    assert compute_side(side.side, random_chains(0, Context())) is None


# ---------------------------------------------------------------------------- shape
def test_lone_means_merge_and_products_do_not() -> None:
    side = (expectation(k1, q) + 2 * expectation(r, q) + expectation(k1, p)).side
    products = expand_side(side, Context())
    assert sorted(means[0].measure for _, means in products) == ["p", "q"]
    assert all(c == ExpPoly.from_number(1) and len(means) == 1 for c, means in products)
    product = expand_side((expectation(k1, q) * expectation(r, q) + expectation(k1, q)).side, Context())
    assert sorted(len(means) for _, means in product) == [1, 2]


def test_the_counting_measure_is_sampled_from_q() -> None:
    [(_, (mean,))] = expand_side(expectation(k1, count).side, Context())
    assert mean == Mean("", "q", ExpPoly.from_variable("k1") * (ExpPoly.from_variable("log_q") * -1).exp())


@pytest.mark.parametrize(
    ("quantity", "reason"),
    [
        (sample(k1), "one sample"),
        (sample(k1 * s), "one sample"),
        (sample_gradient(k3), "one sample"),
        (sum_over_t(now(k1), "sample"), "one sample"),
        (mean_over_i(own(k1), "sample"), "one sample"),
        (bregman(-(r**2)), "one sample"),
        (expectation(k1, q) + sample(k1), "one sample"),
        (grad(expectation(k1 * s, q)), "gradient of Mean"),
        (grad(expected_gradient(k3, q)), "gradient of MeanGradient"),
        (grad(grad(KL(q, p))), "gradient of Gradient"),
        (expectation(k1, q) - expectation(k1, q), "nothing random"),
        (expectation(sg(k1) - k1, q), "nothing random"),
        (expected_gradient(sg(k3), q), "nothing random"),
        (grad(KL(mu, p)), "nothing random"),
        *(
            (SimpleNamespace(side=side), "nothing random")
            for side in (Side(), Side.from_constant(3), Side.from_constant(ExpPoly.from_variable("lam")))
        ),
    ],
    ids=repr,
)
def test_what_is_not_sampled(quantity: Any, reason: str) -> None:
    with pytest.raises(Deterministic, match=reason):
        expand_side(quantity.side, Context(("lam",)))


def test_losses_for_autograd_are_listed_once() -> None:
    left = expected_gradient(k3, q) + 2 * expected_gradient(rho * k1, mu) + grad(expectation(k2, q))
    found = list_gradient_losses(Statement(left.side, expected_gradient(k3, q).side))
    assert sorted(atom.measure for atom in found) == ["mu", "q"]
