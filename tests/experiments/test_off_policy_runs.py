"""Learning from old samples: updates against a loop written out, findings against their opposite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from klsym.errors import UsageError
from klsym.experiments.off_policy_runs.experiment import AGES, BETAS, off_policy_runs
from klsym.experiments.off_policy_runs.figures import draw
from klsym.experiments.off_policy_runs.runs import Setup, run


def written_out(setup: Setup, repeats: int, seed: int) -> np.ndarray:
    """E_q[R] after each update, bandit by bandit and sample by sample."""
    drawn = np.random.default_rng([seed, 0]).normal(size=(2, setup.arms, repeats))
    stream = np.random.default_rng([seed, 1])
    uniforms = [stream.random((setup.n, repeats)) for _ in range(setup.updates)]
    found = np.zeros((setup.updates + 1, repeats))
    for b in range(repeats):
        p, R = np.exp(drawn[0][:, b]), drawn[1][:, b]
        p = p / p.sum()
        logits, mu = np.log(p), p
        for number in range(setup.updates):
            q = np.exp(logits) / np.exp(logits).sum()
            found[number, b] = q @ R
            mu = q if number % setup.age == 0 else mu
            arms = [int((np.cumsum(mu) <= u).sum()) for u in uniforms[number][:, b]]
            gains = [R[a] - setup.beta * np.log(q[a] / p[a]) for a in arms]
            push = np.zeros(setup.arms)
            for i, arm in enumerate(arms):
                others = [x for j, x in enumerate(gains) if j != i]
                weight = q[arm] / mu[arm] if setup.weighted else 1.0
                push += weight * (gains[i] - np.mean(others)) * (np.eye(setup.arms)[arm] - q) / setup.n
            logits = logits + setup.step * push
        found[-1, b] = np.exp(logits) @ R / np.exp(logits).sum()
    return found


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("age", "beta"), [(1, 0.0), (3, 0.3)])
def test_the_updates_are_those_of_a_loop_written_out(weighted, age, beta):
    setup = Setup(age, beta, weighted, arms=4, n=3, updates=12)
    assert run(setup, 3, 5).reward == pytest.approx(written_out(setup, 3, 5), abs=2e-5)  # logits are rounded


def test_at_age_1_weights_change_nothing() -> None:
    one, other = (run(Setup(1, 0.1, weighted, updates=50), 4, 0).reward for weighted in (True, False))
    assert np.array_equal(one, other)


@pytest.fixture(scope="module")
def data():
    return off_policy_runs(repeats=100)


def test_the_findings_hold_and_say_what_the_runs_show(data) -> None:
    assert all(finding.holds for finding in data.findings)
    assert [finding.agrees for finding in data.findings[2:]] == [True, False, None, True]
    assert draw(data).axes


def test_findings_of_exchanged_runs_do_not_hold(data) -> None:
    """With the weighted runs in place of the others, the sentences on falls are wrong."""
    runs = {(not weighted, *key): one for (weighted, *key), one in data.runs.items()}
    assert not any(finding.holds for finding in replace(data, runs=runs).findings[2:4])
    reversed_betas = dict(zip(BETAS, reversed(BETAS), strict=True))
    runs = {(w, s, age, reversed_betas[beta]): one for (w, s, age, beta), one in data.runs.items()}
    assert not all(finding.holds for finding in replace(data, runs=runs).findings)
    exact = {(not weighted, *key): one for (weighted, *key), one in data.exact.items()}
    assert not replace(data, exact=exact).findings[-1].holds and AGES[0] == 1


@pytest.mark.parametrize("weighted", [True, False])
def test_the_exact_update_is_the_mean_of_the_sampled_ones(weighted: bool) -> None:
    """After one update, from the mean over all pairs of samples."""
    setup = Setup(1, 0.3, weighted, arms=3, n=0, updates=1, step=1e-4)
    drawn = np.random.default_rng([0, 0]).normal(size=(2, 3, 1))
    p, R = np.exp(drawn[0][:, 0]), drawn[1][:, 0]
    p = p / p.sum()
    slope = sum(
        p[i] * p[j] * (R[i] - R[j]) * (np.eye(3)[i] - p) for i in range(3) for j in range(3)
    )  # at q = mu = p
    found = run(replace(setup, step=1.0), 1, 0).reward[1, 0]
    logits = np.log(p) + slope
    assert found == pytest.approx(np.exp(logits) @ R / np.exp(logits).sum(), abs=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Setup(0, 0.1, True), "1 update at least"), (lambda: Setup(1, -1, True), "0 or more"),
        (lambda: Setup(1, 0.1, True, n=1), "2 samples"), (lambda: Setup(1, 0.1, True, step=0), "step"),
        (lambda: run(Setup(1, 0.1, True), 0, 0), "at least"),
        (lambda: run(Setup(1, 0.1, True), 1, -1), "at least"),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(make, message) -> None:
    with pytest.raises(UsageError, match=message):
        make()
