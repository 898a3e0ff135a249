"""One trial: relations, controls, how many samples it needs, and what it sees."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klsym.calculus import *
from klsym.errors import UsageError
from klsym.language.abbreviations import Context, Side, Statement
from klsym.numeric.models import FiniteModel, random_model
from klsym.study.sampling.finite import FiniteSampler
from klsym.study.sampling.means import Deterministic, expand_side
from klsym.study.sampling.monte_carlo_check import CONTROL, Trial, build_trials_both_ways, list_sampled_means
from klsym.study.sampling.statistics import Level, TooFew
from klsym.study.sampling.streams import Stream

MODEL = random_model(4, 6)
N = 10**12
LEVEL = Level(12)


def trial(
    quantity: Any, model: FiniteModel = MODEL, relation: str = "=", seed: int = 0, **options: Any
) -> Trial:
    """A side against its own exact value, plus `bias` standard errors."""
    bias, samples = options.pop("bias", 0.0), options.pop("samples", N)
    sampler = FiniteSampler(model, Context(), **options)
    products = expand_side(quantity.side, Context())
    spread = sampler.measure_spread(products)
    reference = spread.value - bias * spread.deviation / math.sqrt(samples)
    return Trial(sampler, products, reference, relation, samples, Stream(seed))


EYE = {"directions": np.eye(6)}
GRADIENT, VALUE = grad(KL(q, p)), expectation(k3, q)


# ---------------------------------------------------------------------------- relations
@pytest.mark.parametrize(
    ("relation", "bias", "holds"),
    [
        ("=", 0, True), ("=", 30, False), ("=", -30, False),
        ("<=", 0, True), ("<=", 30, False), ("<=", -30, True),
        (">=", 0, True), (">=", 30, True), (">=", -30, False),
        ("!=", 0, False), ("!=", 30, True), ("!=", -30, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("quantity", [GRADIENT, VALUE, covariance(k1, r, under=q)], ids=repr)
def test_relations(quantity: Any, relation: str, bias: float, holds: bool) -> None:
    """bias: by how many standard errors the sampled side lies above the reference."""
    outcome = trial(quantity, relation=relation, bias=bias).judge(LEVEL, [])
    assert outcome.holds is holds and outcome.rejected and outcome.passed is holds
    assert outcome.z == pytest.approx(bias, abs=6)
    assert (outcome.strain > 1) == (not holds if relation != "!=" else holds)


@pytest.mark.parametrize("relation", ["=", "<=", ">=", "!="])
def test_one_direction_of_many_decides(relation: str) -> None:
    one = trial(GRADIENT, relation=relation, **EYE)
    error = one.spread.deviation / math.sqrt(N)
    up, down = (
        replace(one, reference=one.reference + sign * 30 * error * (np.arange(6) == 4)) for sign in (-1, 1)
    )
    expected = {"=": (False, False), "<=": (False, True), ">=": (True, False), "!=": (True, True)}[relation]
    found = [t.judge(LEVEL, []) for t in (up, down)]
    assert tuple(o.holds for o in found) == expected
    for outcome, sign in zip(found, (1, -1), strict=True):
        speaks = {"<=": sign > 0, ">=": sign < 0}.get(relation, True)
        assert (abs(outcome.z) > 20) == speaks


def test_the_threshold_shown_is_that_of_the_direction_shown() -> None:
    """A rare outcome makes one direction skewed: its threshold is higher than the others'."""
    model, samples = FiniteModel([1e-4, 0.5, 0.4999], [1e-4, 0.3, 0.6999], [1, 0, 0]), 2 * 10**7
    one = trial(expectation(s, q), model, samples=samples, directions=np.eye(3))
    spread, means = one.spread, [means[0] for _, means in one.side]
    shapes = zip(spread.skewness, spread.kurtosis, strict=True)
    thresholds = np.array([LEVEL.find_threshold(samples, g, k) for g, k in shapes])
    assert max(thresholds) > min(thresholds) + 0.01
    shown = set()
    for seed in range(10):
        again = replace(one, stream=Stream(seed))
        outcome = again.judge(LEVEL, [])
        found = one.sampler.combine(one.side, one.sampler.draw_averages(means, samples, again.stream))
        z = (found - one.reference) / (spread.deviation / math.sqrt(samples))
        worst = int(np.argmax(np.abs(z) / thresholds))
        assert (outcome.z, outcome.threshold) == (pytest.approx(z[worst]), pytest.approx(thresholds[worst]))
        shown.add(worst)
    assert len(shown) > 1


# ---------------------------------------------------------------------------- deterministic samples
def test_samples_that_are_all_the_same() -> None:
    on_policy = replace(MODEL, mu=MODEL.q)
    one = trial(expectation(rho, mu), on_policy)
    assert one.spread.deviation[0] < 1e-15
    assert one.judge(LEVEL, []).holds and one.judge(LEVEL, []).z == 0
    for gap in (1e-9, -1e-9):
        outcome = replace(one, reference=one.reference + gap).judge(LEVEL, [])
        assert not outcome.holds and outcome.z == -math.copysign(math.inf, gap)
    assert replace(one, reference=one.reference + 1e-16).judge(LEVEL, []).holds


# ---------------------------------------------------------------------------- the control
@pytest.mark.parametrize("quantity", [GRADIENT, VALUE, expectation(rho * k3 * s, mu)], ids=repr)
def test_the_control_adds_a_tenth_of_k1(quantity: Any) -> None:
    one = trial(quantity, **EYE)
    densities = {"q": np.array(MODEL.q), "mu": np.array(MODEL.mu)}
    logs = np.log(densities["q"]) - np.log(np.array(MODEL.p))
    [(_, (mean,))] = one.side
    score = (np.eye(6) - densities["q"][:, None]) ** len(mean.score)
    shift = float(CONTROL) * (score * logs) @ densities[mean.measure]
    assert one.control_spread.value - one.spread.value == pytest.approx(shift)
    assert one.shift == pytest.approx(np.abs(shift)) and float(CONTROL) == 0.1


def test_a_control_that_changes_nothing_is_no_control() -> None:
    same = replace(MODEL, p=MODEL.q)
    one = trial(expectation(s, q), same)
    for act in (one.refuse_unless_sound, lambda: one.judge(LEVEL, [])):
        with pytest.raises(UsageError, match="the negative control changes nothing"):
            act()
    trial(GRADIENT).refuse_unless_sound()


def test_a_control_that_is_seldom_seen_asks_for_more_samples() -> None:
    """p near q: a tenth of E[k1] is small against the spread of what is sampled."""
    near = FiniteModel([0.4, 0.6], [0.401, 0.599], [1.0, -1.0])
    one = trial(expectation(r + k1 * s, q) + expectation(s, q), near, samples=10**6)
    with pytest.raises(TooFew) as caught:
        one.judge(LEVEL, [])
    assert caught.value.needed == one.count_needed_samples(LEVEL) > 10**6
    enough = replace(one, samples=caught.value.needed)
    error = enough.control_spread.deviation / math.sqrt(enough.samples)
    z = np.max(enough.shift / error)
    assert z > 9.5  # the threshold of 12 comparisons, and 4.75 for missing one in a million
    assert all(replace(enough, stream=Stream(seed)).judge(LEVEL, []).rejected for seed in range(20))


# ---------------------------------------------------------------------------- how many samples
models = st.builds(
    lambda seed, size, spread: random_model(seed, size, spread=spread),
    st.integers(0, 10**6), st.integers(2, 7), st.floats(0.2, 3.0),
)  # fmt: skip
quantities = st.sampled_from(
    [
        GRADIENT,
        VALUE,
        covariance(k1, r, under=q),
        expectation(rho**2 * k3 * s, mu),
        expectation(r * s, q) * KL(p, q),
    ]
)


@settings(max_examples=80)
@given(models, quantities, st.integers(1, 10**6), st.sampled_from([Level(4, 0.3), LEVEL, Level(2000)]))
def test_needed_samples_do(model: FiniteModel, quantity: Any, samples: int, level: Level) -> None:
    one = trial(quantity, model, samples=samples)
    needed = one.count_needed_samples(level)
    if needed == samples:
        assert one.judge(level, []).samples == samples
        return
    with pytest.raises(TooFew) as caught:
        one.judge(level, [])
    assert caught.value.needed == needed > samples
    assert replace(one, samples=needed).count_needed_samples(level) == needed
    if needed <= 2**53:
        assert replace(one, samples=needed).judge(level, []).samples == needed


def test_trials_grow_within_patience() -> None:
    one = trial(GRADIENT, samples=10**4)
    needed = one.count_needed_samples(LEVEL)
    assert one.enlarge(LEVEL, 10**6).samples == needed > 10**4
    assert one.enlarge(LEVEL, 1) is one and trial(GRADIENT).enlarge(LEVEL, 4).samples == N


# ---------------------------------------------------------------------------- what is seen
@pytest.mark.parametrize("quantity", [GRADIENT, covariance(k1, r, under=q)], ids=repr)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bias_of_the_stated_size_is_seen_as_often_as_stated(quantity: Any, sign: int) -> None:
    level, runs = Level(10, false_alarm=0.01, miss=0.1), 200
    one = trial(quantity, **EYE)
    sees = one.judge(level, []).sees * one.scale
    where = np.arange(6) == np.argmax(one.spread.deviation)
    found = [
        replace(one, reference=one.reference - sign * sees * where, stream=Stream(seed)).judge(level, [])
        for seed in range(runs)
    ]
    seen = sum(not outcome.holds for outcome in found) / runs
    assert 0.9 - 3 * math.sqrt(0.09 / runs) < seen
    if quantity is GRADIENT:  # and no more than that: the size is not overstated
        assert seen < 0.9 + 4 * math.sqrt(0.09 / runs)
    half = [
        replace(one, reference=one.reference - sign * sees / 2 * where, stream=Stream(i)).judge(level, [])
        for i in range(100)
    ]
    assert sum(not outcome.holds for outcome in half) < 50


# ---------------------------------------------------------------------------- both sides
def test_both_sides_are_sampled_and_inequalities_turn() -> None:
    sampler, sides = FiniteSampler(MODEL, Context()), (VALUE.side, KL(q, p).side)
    exact = (np.array([1.0]), np.array([2.0]))
    for relation, turned in (("=", "="), ("<=", ">="), ("!=", "!=")):
        left, right = build_trials_both_ways(sampler, sides, exact, relation, Context(), N, Stream(0))
        assert (left.relation, right.relation) == (relation, turned)
        assert (left.reference.tolist(), right.reference.tolist()) == ([2.0], [1.0])
        assert left.stream != right.stream and (left.name, right.name) == ("left side", "right side")


def test_what_cannot_be_sampled_is_the_reference() -> None:
    sampler, exact = FiniteSampler(MODEL, Context()), (np.array([0.0]), np.array([0.0]))
    zero = Side()
    [one] = build_trials_both_ways(
        sampler, (expectation(s, q).side, zero), exact, "=", Context(), N, Stream(0)
    )
    assert one.name == "left side"
    [one] = build_trials_both_ways(
        sampler, (zero, expectation(s, q).side), exact, "<=", Context(), N, Stream(0)
    )
    assert (one.name, one.relation) == ("right side", ">=")
    with pytest.raises(Deterministic, match="one sample"):
        build_trials_both_ways(sampler, (sample(k1).side, zero), exact, "=", Context(), N, Stream(0))
    statement = Statement(expected_gradient(k3, q).side, grad(KL(p, q)).side)
    assert [mean.measure for mean in list_sampled_means(statement)] == ["q", "p"]
