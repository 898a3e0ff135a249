"""Penalties in the reward of bandits: branches, stationary points and flows against oracles."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.experiments.reward_collapse.experiment import (
    EXACT,
    OTHERS,
    SAMPLED,
    random_points,
    reward_collapse,
)
from klsym.experiments.reward_collapse.runs import LOST, Setup, bandits, flow, run, sampled, sampled_update
from klsym.experiments.reward_collapse.theory import branch, expected_update, growth, stationary_points
from klsym.experiments.softmax import PENALTIES, log_softmax, penalty, slope

ALL = pytest.mark.parametrize("name", PENALTIES)
CURVED = pytest.mark.parametrize("name", ("k2", "k3"))
DEFINITIONS = {
    "k1": lambda r: -np.log(r),
    "k2": lambda r: np.log(r) ** 2 / 2,
    "k3": lambda r: r - 1 - np.log(r),
}


def random_bandits(arms, count, seed=0, spread=1.0):
    stream = np.random.default_rng(seed)
    return (
        log_softmax(spread * stream.normal(size=(arms, count)), 0),
        log_softmax(stream.normal(size=(arms, count)), 0),
        stream.normal(size=(arms, count)),
    )


def difference(function, at, size=1e-6):
    """The derivative of a function of a vector by central differences, one row for each coordinate."""
    return np.array(
        [(function(at + size * e) - function(at - size * e)) / (2 * size) for e in np.eye(len(at))]
    )


# ---------------------------------------------------------------------------- the penalty and the update
@ALL
def test_penalties_and_slopes(name):
    k1 = np.linspace(-3, 3, 25)
    assert np.allclose(penalty(name, k1), DEFINITIONS[name](np.exp(-k1)), atol=1e-12)
    assert np.allclose(slope(name, k1), np.diag(difference(lambda x: penalty(name, x), k1)), atol=1e-8)


@ALL
@pytest.mark.parametrize("beta", [0.1, 1.0, 7.0])
def test_the_expected_update_by_enumeration(name, beta):
    log_q, log_p, reward = random_bandits(5, 20)
    found = expected_update(name, log_q, log_p, reward, beta)
    for j in range(20):
        q, p = np.exp(log_q[:, j]), np.exp(log_p[:, j])
        gain = reward[:, j] - beta * DEFINITIONS[name](p / q)
        expected = sum(q[x] * gain[x] * (np.eye(5)[x] - q) for x in range(5))
        assert np.allclose(found[:, j], expected, atol=1e-12)


# ---------------------------------------------------------------------------- branches


@given(st.floats(0, 1e4), st.sampled_from([1, -1]), st.sampled_from(["k2", "k3"]))
def test_branches_solve_their_equation_on_their_side(u, side, name):
    k1 = float(branch(name, u, side))
    assert k1 * side >= 0
    assert float(penalty(name, k1)) == pytest.approx(u, rel=1e-9, abs=1e-15)


# ---------------------------------------------------------------------------- stationary points
@ALL
@pytest.mark.parametrize("arms", [2, 3, 4])
@pytest.mark.parametrize("beta", [0.2, 1.0, 5.0])
@pytest.mark.share(3)
def test_stationary_points_solve_their_equations(name, arms, beta):
    _, log_p, reward = random_bandits(arms, 40, seed=arms)
    k1, which = stationary_points(name, log_p, reward, beta)
    assert k1.shape == (arms, len(which)) and len(which) > 0
    log_q = log_p[:, which] + k1
    assert np.allclose(np.exp(log_q).sum(axis=0), 1, atol=1e-9)
    gain = reward[:, which] - beta * DEFINITIONS[name](np.exp(-k1))
    assert np.ptp(gain, axis=0).max() < 1e-8 * (1 + np.abs(gain).max())
    update = expected_update(name, log_q, log_p[:, which], reward[:, which], beta)
    assert np.abs(update).max() < 1e-8


def test_k1_has_one_point_and_it_is_the_tilted_reference():
    _, log_p, reward = random_bandits(6, 30)
    k1, which = stationary_points("k1", log_p, reward, 0.5)
    assert which.tolist() == list(range(30))
    best = np.exp(log_p + reward / 0.5)
    assert np.allclose(np.exp(log_p + k1), best / best.sum(axis=0))
    assert all(growth("k1", k1[:, j], log_p[:, j], 0.5) < 0 for j in range(30))


@CURVED
def test_two_arm_points_by_a_dense_scan(name):
    """With two arms the stationary points are the sign changes of the gain of one over the other."""
    _, log_p, reward = random_bandits(2, 30, seed=3)
    k1, which = stationary_points(name, log_p, reward, 1.0)
    z = np.linspace(-14, 14, 20001)  # log-odds of q
    q = np.stack([1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z))])
    for j in range(30):
        gain = reward[:, j, None] - DEFINITIONS[name](np.exp(log_p[:, j, None]) / q)
        sign = np.sign(gain[0] - gain[1])
        crossings = z[:-1][sign[:-1] != sign[1:]]
        found = np.sort(np.subtract(*(log_p[:, [j]] + k1[:, which == j])))
        inside = found[np.abs(found) < 13.9]
        assert len(inside) == len(crossings) and np.allclose(inside, crossings, atol=2e-3)


@ALL
def test_growth_is_the_largest_eigenvalue_of_a_numerical_jacobian(name):
    _, log_p, reward = random_bandits(4, 25, seed=5)
    k1, which = stationary_points(name, log_p, reward, 1.3)
    for i, j in list(enumerate(which))[:40]:

        def update(theta, j=j):
            log_q = theta - np.log(np.exp(theta).sum())
            return expected_update(name, log_q[:, None], log_p[:, j, None], reward[:, j, None], 1.3)[:, 0]

        jacobian = difference(update, log_p[:, j] + k1[:, i])
        values = np.sort(np.linalg.eigvals(jacobian).real)
        values = np.delete(values, np.abs(values).argmin())  # the shift of all logits
        assert growth(name, k1[:, i], log_p[:, j], 1.3) == pytest.approx(values.max(), abs=1e-6)


# ---------------------------------------------------------------------------- flows and sampled updates
@ALL
def test_the_flow_does_not_depend_on_its_step(name, monkeypatch):
    from klsym.experiments.reward_collapse import runs as reward_collapse_runs

    setup = Setup("small", arms=4, start=0.5)
    start = (setup, *bandits(setup, 12, 0), [0.0, 10.0, 40.0])
    coarse = flow(name, *start)
    monkeypatch.setattr(reward_collapse_runs, "FLOW_STEP", 0.1)
    assert np.allclose(coarse, flow(name, *start), rtol=1e-4, atol=1e-4)


@ALL
@pytest.mark.parametrize(("n", "baseline"), [(1, False), (2, True), (2, False)])
def test_sampled_updates_are_unbiased(name, n, baseline):
    """All outcomes of n draws, by uniforms in the middle of each arm's interval, with their weights."""
    log_q, log_p, reward = (x[:, :1] for x in random_bandits(4, 1))
    setup = Setup("one", arms=4, step=0.1, n=n, baseline=baseline, beta=0.6)
    q = np.exp(log_q[:, 0])
    edges = np.concatenate([[0], np.cumsum(q)])
    outcomes = np.array(list(product(range(4), repeat=n)))
    u = ((edges[:-1] + edges[1:]) / 2)[outcomes].T
    wide = (np.repeat(x, len(outcomes), axis=1) for x in (log_q, log_p, reward))
    found = sampled_update(name, setup, *wide, u) @ q[outcomes].prod(axis=1)
    assert np.allclose(found, expected_update(name, log_q, log_p, reward, 0.6)[:, 0], atol=1e-12)


def test_sampled_updates_follow_the_flow_when_they_are_small():
    setup = Setup("small", arms=3, step=0.002, n=64, horizon=5.0)
    start = bandits(setup, 10, 1)
    for name in PENALTIES:
        drawn = sampled(name, setup, *start, [0.0, 5.0], seed=0)
        assert np.abs(np.exp(drawn) - np.exp(flow(name, setup, *start, [0.0, 5.0]))).max() < 0.05


def test_nothing_moves_at_the_reference_without_reward():
    setup = Setup("still", arms=5, reward=0.0, step=0.5, horizon=20.0)
    for paths in (run(setup, 5, 0), run(replace(setup, step=None), 5, 0)):
        assert np.abs(paths.log_q - paths.log_p).max() < 1e-5


def test_criteria():
    paths = run(Setup("small", arms=4, horizon=200.0), 30, 0)
    for i, name in enumerate(PENALTIES):
        q, best = np.exp(paths.log_q[i, -1]), np.exp(paths.log_best)
        kl = (q * np.log(q / best)).sum(axis=0)
        before = (np.exp(paths.log_p) * (paths.log_p - paths.log_best)).sum(axis=0)
        assert np.allclose(paths.kl[i, -1], kl) and (paths.farther[i, -1] == (kl > before)).all(), name
        assert (paths.lost[i, -1] == (q < LOST * best).any(axis=0)).all()
        assert (paths.arms_left[i, -1] == (q >= LOST * best).sum(axis=0)).all()
        entropies = [-(x * np.log(x)).sum(axis=0) for x in (q, best)]
        assert (paths.low_entropy[i, -1] == (entropies[0] < entropies[1] / 10)).all()


# ---------------------------------------------------------------------------- the experiment
CHOSEN = tuple(s for s in OTHERS if s.name in ("R = 0, start 1", "step 3", "step 10", "horizon 30"))


@pytest.fixture(scope="module")
def data():
    seen = []
    found = reward_collapse(
        repeats=30, other_repeats=20, bandits=60, others=CHOSEN, progress=lambda *x: seen.append(x)
    )
    assert seen == [(i, 7) for i in range(1, 8)] and len(CHOSEN) == 5
    return found


def test_stationary_points_of_the_experiment(data):
    for points in data.points:
        assert sum(points.bandits) == 60
        assert not ((points.rate < 0) & (points.largest <= 0.5)).any()


def test_the_portrait_goes_to_p_under_k1_and_to_the_edges_under_k3(data):
    p, q = data.portrait.p, data.portrait.q
    assert np.abs(q[0, -1] - p[:, None]).max() < 1e-3
    assert (q[2, -1].min(axis=0) < 1e-6).mean() > 0.8
    assert np.allclose(q.sum(axis=2), 1)


def test_findings_and_table(data):
    assert len(data.findings) == 9 and all(f.holds and "\n" not in f.text for f in data.findings)
    assert [f.agrees for f in data.findings[:3]] == [True, True, True]
    assert {f.mark for f in data.findings[:3]} == {"shows the same on bandits"}
    header, rows = data.table()
    assert len(rows) == 7 and all(len(row) == len(header) for row in rows)
    assert "\n" not in data.setup


def test_the_same_seed_gives_the_same_numbers(monkeypatch):
    for name, setup in (("EXACT", EXACT), ("SAMPLED", SAMPLED)):
        where = f"klsym.experiments.reward_collapse.experiment.{name}"
        monkeypatch.setattr(where, replace(setup, horizon=20.0))
    small = {"repeats": 3, "other_repeats": 2, "bandits": 2, "others": ()}
    first = reward_collapse(**small)
    assert first.table() == reward_collapse(**small).table() != reward_collapse(seed=1, **small).table()
    assert not first.findings[0].holds  # nothing without reward was run


# ---------------------------------------------------------------------------- refusals
FLAT = np.log(np.full((3, 1), 1 / 3))
REFUSED = {
    "unknown penalty": (lambda: penalty("k4", 0.0), "one of k1, k2, k3"),
    "unknown slope": (lambda: slope("kl", 0.0), "one of k1, k2, k3"),
    "branch of k1": (lambda: branch("k1", 1.0, 1), "one branch"),
    "side 0": (lambda: branch("k3", 1.0, 0), "1 or -1"),
    "negative u": (lambda: branch("k3", -0.1, 1), "0 or more"),
    "nan u": (lambda: branch("k2", float("nan"), 1), "0 or more"),
    "beta of 0": (lambda: stationary_points("k3", FLAT, FLAT, 0.0), "positive"),
    "negative beta": (lambda: stationary_points("k1", FLAT, FLAT, -1.0), "positive"),
    "nan beta": (lambda: Setup("x", beta=float("nan")), "positive"),
    "beta is text": (lambda: Setup("x", beta="1"), "positive"),
    "shapes differ": (lambda: stationary_points("k3", FLAT, FLAT[:2], 1.0), "shapes"),
    "a vector": (lambda: stationary_points("k3", FLAT[:, 0], FLAT[:, 0], 1.0), "shapes"),
    "nan rewards": (lambda: stationary_points("k3", FLAT, FLAT * np.nan, 1.0), "finite"),
    "too many arms": (lambda: stationary_points("k3", *[np.zeros((9, 1))] * 2, 1.0), "2 to 8 arms"),
    "one arm": (lambda: Setup("x", arms=1), "2 arms"),
    "no samples": (lambda: Setup("x", n=0), "1 sample"),
    "negative spread": (lambda: Setup("x", reference=-1.0), "0 or more"),
    "infinite spread": (lambda: Setup("x", start=float("inf")), "0 or more"),
    "step of 0": (lambda: Setup("x", step=0.0), "positive"),
    "horizon of 0": (lambda: Setup("x", horizon=0), "positive"),
    "baseline with one sample": (lambda: Setup("x", step=0.1, n=1), "2 samples"),
    "sampled without a step": (lambda: sampled("k1", EXACT, FLAT, FLAT, FLAT, [0.0], 0), "a step"),
    "no repeats": (lambda: reward_collapse(repeats=0), "at least 0 and 1"),
    "no other repeats": (lambda: run(SAMPLED, 0, 0), "at least 0 and 1"),
    "negative seed": (lambda: reward_collapse(seed=-1), "at least 0 and 1"),
    "one record": (lambda: run(EXACT, 2, 0, records=1), "2 or more"),
    "run an unknown penalty": (lambda: run(EXACT, 2, 0, penalties=("k",)), "one of k1, k2, k3"),
    "points of k1": (lambda: random_points("k1", 2, 0), "'k2' or 'k3'"),
    "no bandits": (lambda: random_points("k3", 0, 0), "1 and 0 or more"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, words = REFUSED[name]
    with pytest.raises(UsageError) as error:
        call()
    assert words in str(error.value) and "\n" not in str(error.value)
