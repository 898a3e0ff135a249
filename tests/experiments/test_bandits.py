"""Bandits: estimates against plain loops, exact errors against enumeration, the optima, the runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.experiments.softmax import inverse_cdf, kl, log_softmax
from klsym.experiments.summaries import converged, drift, error, show
from klsym.experiments.tang_munos import bandit_errors as errors
from klsym.experiments.tang_munos import bandit_runs, bandits
from klsym.experiments.tang_munos.bandit_floors import floors
from klsym.experiments.tang_munos.bandit_runs import FLOWS, Problem, flow, sampled
from klsym.experiments.tang_munos.bandits import GRADIENTS, VALUES
from support.scripts import script

loop = script("figures_loop")
SMALL = bandits.draw_bandits(seed=3, repeats=4, arms=3)
Q, P = np.exp(SMALL.log_q), np.exp(SMALL.log_p)


def close(a, b, tolerance=1e-12):
    return np.allclose(a, b, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------- estimates
@pytest.mark.parametrize("n", [2, 3, 7, 40])
def test_estimates_from_counts_are_those_of_the_samples(n):
    drawn = bandits.draw_bandits(seed=n, repeats=5, arms=6)
    rng = np.random.default_rng(n)
    samples = [rng.choice(6, size=n, p=np.exp(row)) for row in drawn.log_q]
    counts = np.stack([np.bincount(s, minlength=6) for s in samples])
    values = bandits.value_estimates(counts, drawn.log_q, drawn.log_p)
    gradients = bandits.gradient_estimates(counts, drawn.log_q, drawn.log_p)
    for j, s in enumerate(samples):
        q, p = np.exp(drawn.log_q[j]), np.exp(drawn.log_p[j])
        for i, name in enumerate(VALUES):
            assert close(values[i, j], loop.value_estimate(name, s, q, p))
        for i, name in enumerate(GRADIENTS):
            assert close(gradients[i, j], loop.gradient_estimate(name, s, q, p))


def test_the_exact_gradient_is_a_finite_difference_of_the_divergence():
    logits, h = SMALL.log_q + 0.3, 1e-6
    for a in range(3):
        step = h * np.eye(3)[a]
        up, down = (kl(log_softmax(logits + s), SMALL.log_p) for s in (step, -step))
        assert close(bandits.kl_gradient(SMALL.log_q, SMALL.log_p)[:, a], (up - down) / (2 * h), 1e-8)


def test_the_k3_loss_survives_an_arm_that_q_has_forgotten():
    log_q, log_p = log_softmax([[0.0, -2000.0]]), log_softmax([[0.0, 0.0]])
    found = bandits.gradient_estimates(np.array([[1, 1]]), log_q, log_p)
    assert np.isfinite(found).all() and found[1, 0, 1] < -1e300


# ---------------------------------------------------------------------------- exact errors by enumeration
def enumerated(estimate, truth, n):
    """E |estimate - truth|^2 over all 3^n samples, for each bandit."""
    total = np.zeros(len(Q))
    for s in itertools.product(range(3), repeat=n):
        for j in range(len(Q)):
            weight = np.prod(Q[j][list(s)])
            total[j] += weight * np.sum((estimate(np.array(s), Q[j], P[j]) - truth[j]) ** 2)
    return total


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", VALUES)
def test_the_exact_error_of_a_value(name, n):
    truth = [loop.divergence(q, p) for q, p in zip(Q, P, strict=True)]
    expected = enumerated(lambda s, q, p: loop.value_estimate(name, s, q, p), truth, n)
    assert close(errors.value_mse(name, SMALL.log_q, SMALL.log_p, n), expected)


@pytest.mark.parametrize(
    ("name", "n"), [(g, n) for g in GRADIENTS for n in (1, 2, 3, 4) if n > 1 or g != "leave-one-out"]
)
def test_the_exact_error_of_a_gradient(name, n):
    truth = [loop.exact_gradient(q, p) for q, p in zip(Q, P, strict=True)]
    expected = enumerated(lambda s, q, p: loop.gradient_estimate(name, s, q, p), truth, n)
    assert close(errors.gradient_mse(name, SMALL.log_q, SMALL.log_p, n), expected)


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_bias_of_a_gradient(name):
    n, found = 2, errors.gradient_bias(name, SMALL.log_q, SMALL.log_p)
    for j, (q, p) in enumerate(zip(Q, P, strict=True)):
        mean = sum(
            q[a] * q[b] * loop.gradient_estimate(name, np.array([a, b]), q, p)
            for a, b in itertools.product(range(3), repeat=n)
        )
        assert close(found[j], mean - loop.exact_gradient(q, p))
    assert (np.abs(found).max() < 1e-15) == (name in ("vanilla", "leave-one-out"))


# ---------------------------------------------------------------------------- the two optima
REWARDS = st.lists(st.floats(-50, 50), min_size=2, max_size=6)


@given(REWARDS, st.floats(0.01, 100), st.integers(0, 1000))
def test_the_optima_are_stationary(rewards, beta, seed):
    """R - beta log(pi/p) is constant at pi*, R + beta p/pi at pi*_rev: one multiplier for all arms."""
    rewards = np.array(rewards)
    log_p = log_softmax(np.random.default_rng(seed).standard_normal(len(rewards)))
    best = bandits.optimum(log_p, rewards, beta)
    reached = bandits.reversed_optimum(log_p, rewards, beta)
    size = np.abs(rewards).max() + beta
    assert np.ptp(rewards - beta * (best - log_p)) < 1e-9 * size
    assert np.ptp(rewards + beta * np.exp(log_p - reached)) < 1e-9 * size
    for found in (best, reached):
        assert abs(np.exp(found).sum() - 1) < 1e-12 and np.isfinite(found).all()


@pytest.mark.parametrize(
    ("rewards", "beta", "limit"),
    [
        ([0.0, 1e6, 0.0], 1e-3, [0, 1, 0]),
        ([0.0, 1e-9, 0.0], 1e3, None),
        ([1e200, 1e200, 0.0], 1.0, [0.5, 0.5, 0]),
        ([-1e12, 1.0, 1.0 + 1e-12], 1e-3, None),
        ([5.0, 5.0, 5.0], 1e-12, None),
        ([0.0, -1e300, 0.0], 1e5, [0.5, 0, 0.5]),
    ],
)
def test_extreme_rewards(rewards, beta, limit):
    log_p = log_softmax([0.0, 0.0, 0.0])
    found = bandits.reversed_optimum(log_p, np.array(rewards), beta)
    assert np.isfinite(found).all() and abs(np.exp(found).sum() - 1) < 1e-12
    if limit is not None:
        assert np.allclose(np.exp(found), limit, atol=1e-6)
    if len(set(rewards)) == 1:
        assert close(found, log_p)


def test_a_best_arm_that_is_rare_in_the_reference():
    """p(best) = exp(-800) underflows; pi*_rev still gives it what is left: 1 - beta sum p/(gap)."""
    log_p = log_softmax([0.0, 0.0, -800.0])
    found = np.exp(bandits.reversed_optimum(log_p, np.array([0.0, 0.0, 2.0]), 1.0))
    assert close(found, [0.25, 0.25, 0.5], 1e-9)


# ---------------------------------------------------------------------------- sampling
@pytest.mark.parametrize("arms", [1, 2, 5, 8, 100])
def test_inverse_cdf_finds_the_arm_of_each_uniform(arms):
    rng = np.random.default_rng(arms)
    weights = rng.exponential(size=(arms, 7)) * (rng.random((arms, 7)) < 0.7)
    weights[arms // 2] += 0.1
    uniforms = rng.random((50, 7))
    found, totals = inverse_cdf(weights, uniforms)
    assert close(totals, weights.sum(0)) and (found % 7 == np.arange(7)).all()
    for i in range(7):
        bounds = np.concatenate([[0], np.cumsum(weights[:, i])]) / weights[:, i].sum()
        drawn = found[:, i] // 7
        assert (bounds[drawn] <= uniforms[:, i]).all() and (uniforms[:, i] < bounds[drawn + 1]).all()


def test_inverse_cdf_stays_in_its_column_at_the_edges():
    for arms in (3, 4):
        uniforms = np.tile([[0.0], [np.nextafter(1, 0)]], 1000)
        first, last = inverse_cdf(np.ones((arms, 1000)), uniforms)[0] // 1000
        assert set(first) == {0} and set(last) == {arms - 1}


# ---------------------------------------------------------------------------- runs
@pytest.mark.parametrize(
    "changes",
    [{}, {"start": "policy", "rewarded": False}, {"beta": 2.5, "step": 0.4, "start": "policy"}],
)
@pytest.mark.parametrize("n", [2, 5])
def test_runs_are_those_of_the_loop(changes, n, monkeypatch):
    """The same uniform numbers give the same course, repeat by repeat; the loop does not round its logits."""
    monkeypatch.setattr(bandit_runs, "snap", lambda logits: logits)
    problem = Problem(seed=1, repeats=3, arms=6, iterations=25, **changes)
    course, drawn = sampled(problem, n), problem.bandits()
    assert course.times.tolist() == list(range(26))
    rng = np.random.default_rng([1, 1, n])
    uniforms = np.array([rng.random((3, n)) for _ in range(25)])
    for j in range(3):
        p, rewards = np.exp(drawn.log_p[j]), drawn.rewards[j]
        targets = [p]
        if problem.rewarded:
            targets = [f(p, rewards, problem.beta) for f in (loop.optimum, loop.reversed_optimum)]
        start = drawn.log_p[j] if problem.start == "reference" else drawn.log_q[j]
        for i, name in enumerate(GRADIENTS):
            given_ = (start, p, rewards, problem.beta, problem.step, uniforms[:, j], targets, range(26))
            curves = loop.descend(name, *given_)
            for curve, found in zip(curves, course.divergence.values(), strict=True):
                assert close(found[i, :, j], curve, 1e-9)


@pytest.mark.parametrize("changes", [{}, {"start": "policy", "rewarded": False}])
def test_exact_runs_are_those_of_the_loop(changes):
    problem = Problem(seed=2, repeats=2, arms=5, iterations=20, beta=1.5, step=0.8, **changes)
    course, drawn = flow(problem), problem.bandits()
    for j in range(2):
        p, rewards = np.exp(drawn.log_p[j]), drawn.rewards[j]
        target = loop.optimum(p, rewards, 1.5) if problem.rewarded else p
        start = drawn.log_p[j] if problem.start == "reference" else drawn.log_q[j]
        for i, kind in enumerate(FLOWS):
            (curve,) = loop.ascend_exactly(kind, start, p, rewards, 1.5, 0.8, 20, [target], range(21))
            assert close(course.divergence["optimum"][i, :, j], curve, 1e-10)


def test_the_last_bits_of_the_start_do_not_change_a_run(monkeypatch):
    """Logits are rounded to a grid: else the k1 loss, which pulls nothing back, doubles an error again and
    again, and machines whose exp differs in the last bit end in other runs."""
    problem = Problem(seed=1, repeats=4, arms=20, iterations=400, start="policy", rewarded=False)
    plain = bandit_runs._sampled(problem, 2, None).last
    drawn = problem.bandits()
    nudged = bandits.Bandits(drawn.log_p, drawn.log_q * (1 + 1e-14), drawn.rewards)
    monkeypatch.setattr(Problem, "bandits", lambda self: nudged)
    assert np.allclose(bandit_runs._sampled(problem, 2, None).last, plain, rtol=0, atol=1e-9)
    monkeypatch.setattr(bandit_runs, "snap", lambda logits: logits)
    assert not np.allclose(bandit_runs._sampled(problem, 2, None).last, plain, rtol=0, atol=1e-3)


def test_nothing_is_nan_when_runs_collapse():
    problem = Problem(seed=0, repeats=30, arms=20, beta=8.0, step=8.0, iterations=300, start="policy")
    course = sampled(problem, 2)
    assert all(np.isfinite(x).all() for x in (*course.divergence.values(), course.last))
    assert course.last[GRADIENTS.index("k3 loss")].min() < -100  # it did collapse


def test_runs_do_not_depend_on_the_blocks_that_they_are_run_in(monkeypatch):
    problem, seen = Problem(seed=7, repeats=7, arms=4, iterations=30, start="policy"), []
    whole = bandit_runs._sampled(problem, 3, seen.append), bandit_runs._flow(problem, seen.append)
    assert sum(seen) == 2 * problem.updates == 2 * 7 * 30
    monkeypatch.setattr(bandit_runs, "BLOCK", 3)
    parts = bandit_runs._sampled(problem, 3, None), bandit_runs._flow(problem, None)
    for one, other in zip(whole, parts, strict=True):
        assert close(one.last, other.last)
        assert all(close(one.divergence[name], other.divergence[name]) for name in one.divergence)


def test_runs_are_reproducible_kept_and_read_only():
    problem = Problem(seed=7, repeats=2, arms=4, iterations=8)
    first = sampled(problem, 2)
    assert sampled(Problem(seed=7, repeats=2, arms=4, iterations=8), 2) is first
    with pytest.raises(ValueError, match="read-only"):
        first.divergence["optimum"][0, 0, 0] = 0
    other = sampled(Problem(seed=8, repeats=2, arms=4, iterations=8), 2)
    assert not np.array_equal(other.divergence["optimum"], first.divergence["optimum"])


# ---------------------------------------------------------------------------- floors
def covariance_by_iteration(hessian, noise, step, rounds=20000):
    """C <- (1 - step H) C (1 - step H) + step^2 S until it rests: no eigenvectors."""
    shrink, found = np.eye(len(hessian)) - step * hessian, np.zeros_like(hessian)
    for _ in range(rounds):
        found = shrink @ found @ shrink.T + step**2 * noise
    return found


@pytest.mark.parametrize("name", ["vanilla", "k3 loss"])
@pytest.mark.parametrize("n", [2, 3])
def test_floors_follow_from_the_loop_by_differences(name, n):
    """Curvature from differences of the mean update, noise by enumeration of all samples."""
    problem = Problem(seed=4, repeats=1, arms=3, beta=0.8, step=0.5, iterations=4)
    drawn = problem.bandits()
    p, rewards, beta = np.exp(drawn.log_p[0]), drawn.rewards[0], 0.8
    target = (loop.optimum if name == "vanilla" else loop.reversed_optimum)(p, rewards, beta)
    logits = np.log(target)

    def update(s, q):
        return loop.reward_gradient(s, q, rewards) - beta * loop.gradient_estimate(name, s, q, p)

    def moments(q):
        samples = [np.array(s) for s in itertools.product(range(3), repeat=n)]
        weights = np.array([np.prod(q[s]) for s in samples])
        updates = np.array([update(s, q) for s in samples])
        mean = weights @ updates
        return mean, (updates - mean).T @ (weights[:, None] * (updates - mean))

    rest, noise = moments(target)
    assert close(rest, 0, 1e-10)
    h = 1e-5
    columns = [
        moments(loop.softmax(logits + h * e))[0] - moments(loop.softmax(logits - h * e))[0] for e in np.eye(3)
    ]
    hessian = -np.stack(columns, axis=1) / (2 * h)
    covariance = covariance_by_iteration(hessian, noise, 0.5)
    fisher = np.diag(target) - np.outer(target, target)
    assert close(floors(name, problem, [n])[0, 0], np.trace(fisher @ covariance) / 2, 1e-5)


# ---------------------------------------------------------------------------- summaries
def test_the_converged_value_is_a_mean_over_time():
    """Dense records early in the window do not count for more: f(t) = t over [3, 4] of 4 has mean 3.5."""
    times = np.array([0, 1, 3, 3.01, 3.02, 3.03, 3.5, 4])
    assert close(converged(times, times[:, None]), [3.5])
    assert close(converged(times, np.stack([times, 2 * times], 1)), [3.5, 7])
    level = np.ones((8, 2))
    assert close(drift(np.arange(8), level), 1) and drift(np.arange(8), np.arange(8)[::-1][:, None]) < 1


def test_one_repeat_has_no_standard_error():
    assert np.isnan(error(np.ones((2, 1)))).all() and error(np.array([1.0, 3.0])) == 1


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.2, "0.2"),
        (0.999, "1"),
        (-0.0123, "-0.012"),
        (12345, "12000"),
        (9.99e-5, "0.0001"),
        (1e7, "1.0e+07"),
    ],
)
def test_numbers_as_they_are_printed(number, text):
    assert show(number) == text


# ---------------------------------------------------------------------------- refusals
LOG = log_softmax(np.zeros((1, 3)))
REFUSED = {
    "one arm": lambda: bandits.draw_bandits(0, 1, 1),
    "no repeat": lambda: bandits.draw_bandits(0, 0, 3),
    "a negative seed": lambda: bandits.draw_bandits(-1, 1, 3),
    "half an arm": lambda: bandits.draw_bandits(0, 1, 2.5),
    "a truth value": lambda: bandits.draw_bandits(0, True, 3),
    "beta zero": lambda: bandits.optimum(LOG, np.zeros((1, 3)), 0.0),
    "beta negative": lambda: bandits.reversed_optimum(LOG, np.zeros((1, 3)), -1.0),
    "beta nan": lambda: bandits.reversed_optimum(LOG, np.zeros((1, 3)), float("nan")),
    "beta infinite": lambda: bandits.optimum(LOG, np.zeros((1, 3)), float("inf")),
    "nan rewards": lambda: bandits.reversed_optimum(LOG, np.array([[0, np.nan, 1]]), 1.0),
    "infinite rewards": lambda: bandits.optimum(LOG, np.array([[0, np.inf, 1]]), 1.0),
    "rewards too far apart": lambda: bandits.reversed_optimum(LOG, np.array([[0, 1e300, 1]]), 1e-300),
    "a single sample": lambda: bandits.gradient_estimates(np.array([[1, 0, 0]]), LOG, LOG),
    "mixed totals": lambda: bandits.gradient_estimates(np.array([[2, 0, 0], [1, 2, 0]]), LOG, LOG),
    "unknown value": lambda: errors.value_mse("k4", LOG, LOG, 1),
    "unknown gradient": lambda: errors.gradient_mse("k2 loss", LOG, LOG, 2),
    "no sample": lambda: errors.value_mse("k1", LOG, LOG, 0),
    "leave-one-out alone": lambda: errors.gradient_mse("leave-one-out", LOG, LOG, 1),
    "unknown start": lambda: Problem(start="nowhere"),
    "no iterations": lambda: Problem(iterations=0),
    "step zero": lambda: Problem(step=0.0),
    "beta zero, run": lambda: Problem(beta=0),
    "one sample, run": lambda: sampled(Problem(repeats=1, arms=2, iterations=4), 1),
    "floor of the k1 loss": lambda: floors("k1 loss", Problem(repeats=1, arms=2), [4]),
    "floor without a reward": lambda: floors("vanilla", Problem(repeats=1, arms=2, rewarded=False), [4]),
    "sizes that fall": lambda: floors("vanilla", Problem(repeats=1, arms=2), [4, 2]),
    "no sizes": lambda: floors("vanilla", Problem(repeats=1, arms=2), []),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    with pytest.raises(UsageError) as caught:
        REFUSED[name]()
    assert "\n" not in str(caught.value) and len(str(caught.value)) > 10
