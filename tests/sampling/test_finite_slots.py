"""Sampling batches and sequences: exact means against the literal oracle, and against dynamic programs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from klsym.calculus import *
from klsym.errors import UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Mean, Side, Statement
from klsym.language.expressions import H, log_mu, log_p, log_q
from klsym.numeric.dynamic_programming import by_programme, random_chains
from klsym.numeric.evaluation import evaluate
from klsym.numeric.models import random_model, random_tree
from klsym.sampling.finite import FiniteSampler
from klsym.sampling.means import Deterministic, means_of
from klsym.sampling.streams import Stream

n = parameter("n")
f = Function("f")(log_q, log_p, log_mu)
CONTEXT = Context(parameters=("n",), functions=(("f", ("k1", "log_q", "w")),))
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


def literal(side: Side, model: Any, rows: Any) -> Any:
    found = [evaluate(Statement(side, Side(), CONTEXT), replace(model, u=row))[0] for row in rows.tolist()]
    return np.array(found)


def sampler_of(model: Any, rows: Any, batches: bool) -> FiniteSampler:
    return FiniteSampler(model, CONTEXT, {}, rows, None, batches)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", TOKENS)
def test_exact_means_of_sequences_are_the_literal_values(name: str, seed: int) -> None:
    model = random_tree(seed, CONTEXT)
    rows, side = directions(model), TOKENS[name].side
    sampler, products = sampler_of(model, rows, False), means_of(side, CONTEXT)
    means = {mean: sampler.exact_mean(mean) for _, found in products for mean in found}
    expected = literal(side, model, rows)
    assert sampler.combine(products, means) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", BATCHES)
def test_exact_means_of_batches_are_the_literal_values(name: str, size: int) -> None:
    model = random_model(size, 3, CONTEXT)
    model = replace(model, parameters={**model.parameters, "n": Fraction(size)})
    rows, side = directions(model), BATCHES[name].side
    sampler, products = sampler_of(model, rows, True), means_of(side, CONTEXT)
    means = {mean: sampler.exact_mean(mean) for _, found in products for mean in found}
    expected = literal(side, model, rows)
    assert sampler.combine(products, means) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_batches_of_sequences() -> None:
    side = mean_over_i((now(k1) + future(k1) - others(k1) / n) * now(s) + own_sum(), q, steps=True).side
    model = random_tree(1, CONTEXT, tokens=2, depth=2)
    model = replace(model, parameters={"n": Fraction(2)})
    rows = directions(model)
    sampler, products = sampler_of(model, rows, True), means_of(side, CONTEXT)
    means = {mean: sampler.exact_mean(mean) for _, found in products for mean in found}
    assert sampler.combine(products, means) == pytest.approx(literal(side, model, rows), rel=1e-10)


def own_sum() -> Any:
    return others(R) * now(R)


def test_two_directions() -> None:
    model, side = random_tree(2, CONTEXT), curl(now(k3), q).side
    sampler, products = sampler_of(model, None, False), means_of(side, CONTEXT)
    means = {mean: sampler.exact_mean(mean) for _, found in products for mean in found}
    expected = evaluate(Statement(side, Side(), CONTEXT), model)[0]
    assert sampler.combine(products, means) == pytest.approx([expected], rel=1e-6)


def test_what_a_statement_gives_at_each_step() -> None:
    """H is the value k1 of its token: sum_u H_u sum_{t<=u} s_t is that of k1."""
    context = Context(given=(("H[now]", ExpPoly.variable("k1[now]")),))
    model = random_tree(0, context)
    sides = [sum_over_t((now(v) + future(v)) * now(s), q).side for v in (H, k1)]
    values = []
    for side in sides:
        sampler, products = FiniteSampler(model, context, batches=False), means_of(side, context)
        means = {mean: sampler.exact_mean(mean) for _, found in products for mean in found}
        values.append(sampler.combine(products, means))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


@pytest.mark.parametrize("name", ["same token", "prefix weights", "over the length"])
def test_samples_come_near_the_exact_value(name: str) -> None:
    model = random_tree(5, CONTEXT)
    sampler, products = sampler_of(model, directions(model), False), means_of(TOKENS[name].side, CONTEXT)
    spread = sampler.spread(products)
    means = [mean for _, found in products for mean in found]
    for samples in (10**4, 10**10):
        seen = sampler.combine(products, sampler.averages(means, samples, Stream(3)))
        assert (np.abs(seen - spread.value) < 6 * spread.deviation / np.sqrt(samples)).all()
        assert (np.abs(seen - spread.value) > 0).all()


@pytest.mark.parametrize("side", [sum_over_t(now(k1), "sample"), mean_over_i(own(k1), "sample")])
def test_values_at_one_sample_are_not_sampled(side: Any) -> None:
    with pytest.raises(Deterministic, match="at one sample"):
        means_of(side.side, CONTEXT)


def test_refusals() -> None:
    model = random_model(0, 3, CONTEXT)
    for entry, reason in (("now'", "no second direction"), ("self", "no slot 'self'")):
        with pytest.raises(UsageError, match=reason):
            sampler_of(model, None, False).exact_mean(Mean("t", "q", ExpPoly.variable("k1[now]"), (entry,)))
    tree = random_tree(0, CONTEXT)
    with pytest.raises(UsageError, match="2\\^53"):
        sampler_of(tree, None, False).counts("q", 2**60, Stream(0))
    with pytest.raises(UsageError, match="whole number"):
        sampler_of(replace(model, parameters={"n": Fraction(5, 2)}), None, True)


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
    products = means_of(sampled.side, Context())
    means = {mean: sampler.exact_mean(mean) for _, found in products for mean in found}
    expected = by_programme(known.side, chains)
    assert expected is not None and sampler.combine(products, means) == pytest.approx(expected, abs=1e-12)
    assert np.abs(expected).max() > 1e-3


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
    assert by_programme(side.side, random_chains(0, Context())) is None
