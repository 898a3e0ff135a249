"""klsym's per-sample gradients against PyTorch and JAX: real `detach`, real `grad`, in float64.

What a difference is measured against, so that cancellation is judged fairly and a wrong detach is seen,
stands in `autograd_judge`, whose program takes many more losses.  JAX has a smaller share of them, as each
of its operations is compiled.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from klsym.language.parser import parse
from support.judges import autograd_judge as judge
from support.losses import loss_oracle as oracle
from support.losses.random_losses import SETTINGS, Case

SEEDS = {"torch": 11, "jax": 12}
RING = {"torch": 160, "jax": 16}
OUTSIDE = {"torch": 12, "jax": 0}  # beside the written ones
WRONG = {"torch": 80, "jax": 20}
SOFTMAX = {"torch": 20, "jax": 8}


@pytest.fixture(params=SEEDS)
def library(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return request.param


@cache
def ring_cases(library: str, count: int) -> list[Case]:
    return judge.ring_cases(SEEDS[library], count)


def test_ring_losses(library: str) -> None:
    """A detached reward h is trained as sg(h) log q, and autograd gives back h."""
    assert judge.ring_disagreements(ring_cases(library, RING[library]), library) == {}


def test_losses_outside_the_ring(library: str) -> None:
    """Clip, min, max, abs, log(1 + .), sqrt(1 + .), none of them at a tie; of JAX one setting each."""
    cases, many = judge.outside_cases(SEEDS[library], OUTSIDE[library]), len(SETTINGS)
    if library == "jax":
        cases = [case for i, case in enumerate(cases) if i % many == i // many % many]
    assert judge.outside_disagreements(cases, library) == {}


def test_losses_hold_every_setting_and_every_kind() -> None:
    """Enough losses with sg, rho and several terms in each setting for the comparison to mean something."""
    cases = ring_cases("torch", RING["torch"])
    for setting in SETTINGS:
        texts = [case.text for case in cases if (case.sampling, case.use) == setting]
        found = Counter(name for text in texts for name in ("sg(", "rho", "k3", "lam", "R") if name in text)
        assert len(texts) == len(cases) / len(SETTINGS) and min(found.values()) > 3, (setting, found)


@pytest.mark.parametrize("name", judge.WRONG)
@pytest.mark.share(3)
def test_a_wrong_detach_is_flagged(name: str, library: str) -> None:
    """Flagged exactly where the exact normal forms differ: no false alarm, nothing missed."""
    outcomes = Counter()
    for case in ring_cases(library, WRONG[library]):
        loss = parse(case.text)
        wrong = judge.WRONG[name](loss, case)
        if case.use == "loss" and wrong != loss:
            differs, flagged = judge.judge_wrong(case, wrong, library)
            assert flagged == differs, (case, wrong)
            outcomes[flagged] += 1
    assert outcomes[True] >= WRONG[library] / 15, outcomes


def test_expected_gradient_of_a_softmax(library: str) -> None:
    """Through real log_softmax, against the per-sample form and against the literal complex step."""
    stacks = oracle.random_models(seed=8, copies=1)
    stacks = stacks if library == "torch" else stacks[2:3]  # JAX compiles each size anew
    wrong = {}
    for number, case in enumerate(judge.ring_cases(SEEDS[library] + 1, SOFTMAX[library])):
        misses = judge.softmax_misses(case, stacks[number % len(stacks)], library)
        if not misses < judge.AGREE:
            wrong[case] = misses
    assert not wrong
