"""klsym's per-sample gradients against PyTorch: real `detach`, real `torch.autograd.grad`.

What a difference is measured against, so that cancellation is judged fairly and a wrong detach is seen,
stands in `autograd_judge`.
"""

from __future__ import annotations

from collections import Counter

import autograd_judge as judge
import loss_oracle as oracle
import numpy as np
import pytest
from random_losses import SETTINGS, Case

from klsym.parser import parse

torch = pytest.importorskip("torch")

SEED = 11
COUNT = 1000
BATCH = 250


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_ring_losses(first: int) -> None:
    """A detached reward h is trained as sg(h) log q, and autograd gives back h."""
    wrong = {}
    for case in judge.ring_cases(SEED, COUNT)[first : first + BATCH]:
        misses = judge.ring_gradient(case).misses(judge.autograd(parse(case.text), case, "torch"))
        if not misses < judge.AGREE:
            wrong[case] = misses
    assert not wrong


def test_losses_outside_the_ring() -> None:
    """Clip, min, max, abs, log(1 + .), sqrt(1 + .), none of them at a tie."""
    wrong = {}
    for case in judge.outside_cases(SEED, 200):
        misses = judge.outside_gradient(case).misses(judge.autograd(parse(case.text), case, "torch"))
        if not misses < judge.AGREE:
            wrong[case] = misses
    assert not wrong


def test_losses_hold_every_setting_and_every_kind() -> None:
    """Enough losses with sg, rho and several terms in each setting for the comparison to mean something."""
    cases = judge.ring_cases(SEED, COUNT)
    for setting in SETTINGS:
        texts = [case.text for case in cases if (case.sampling, case.use) == setting]
        found = Counter(name for text in texts for name in ("sg(", "rho", "k3", "lam", "R") if name in text)
        assert len(texts) == COUNT / len(SETTINGS) and min(found.values()) > 20, (setting, found)


@pytest.mark.parametrize("name", judge.WRONG)
def test_a_wrong_detach_is_flagged(name: str) -> None:
    """Flagged exactly where the exact normal forms differ: no false alarm, nothing missed."""
    outcomes = Counter()
    for case in judge.ring_cases(SEED, 300):
        loss = parse(case.text)
        wrong = judge.WRONG[name](loss, case)
        if case.use == "loss" and wrong != loss:
            differs, flagged = judge.judge_wrong(case, wrong, "torch")
            assert flagged == differs, (case, wrong)
            outcomes[flagged] += 1
    assert outcomes[True] >= 20, outcomes


def test_literal_torch_code_agrees() -> None:
    """Training code as people write it, without klsym: `evaluate` stands for the same loss."""
    names = judge.atoms("off-policy")
    log_q = torch.tensor(names["log_q"], requires_grad=True)
    log_p, log_mu, A = (torch.tensor(names[name]) for name in ("log_p", "log_mu", "A"))
    ratio, k1 = torch.exp(log_q - log_mu), log_q - log_p
    written = {
        "rho*k3": ratio * (torch.exp(-k1) - 1 + k1),
        "sg(rho)*k2": ratio.detach() * k1**2 / 2,
        "sg(k1)*log_q": k1.detach() * log_q,
        "clip(k1, -0.5, 0.5)*rho": torch.clamp(k1, -0.5, 0.5) * ratio,
        "min(rho*A, clip(rho, 0.8, 1.2)*A)": torch.minimum(ratio * A, torch.clamp(ratio, 0.8, 1.2) * A),
        "abs(k1)": k1.abs(),
    }
    for text, literal in written.items():
        case = Case(text, "off-policy", "loss")
        [gradient] = torch.autograd.grad(literal.sum(), log_q, retain_graph=True)
        np.testing.assert_allclose(judge.autograd(parse(text), case, "torch"), gradient, rtol=1e-12)


def test_expected_gradient_of_a_softmax() -> None:
    """Through real log_softmax, against the per-sample form and against the literal complex step."""
    stacks = oracle.random_models(seed=8, copies=1)
    wrong = {}
    for number, case in enumerate(judge.ring_cases(SEED + 1, 200)):
        misses = judge.softmax_misses(case, stacks[number % len(stacks)], "torch")
        if not misses < judge.AGREE:
            wrong[case] = misses
    assert not wrong
