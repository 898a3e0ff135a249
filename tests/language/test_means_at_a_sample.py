"""The gradient at each sample of functions of exact means, by differences of the loss as code computes it.

full(x) is added up over all outcomes and moves with every logit; what is in sg(..) stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import klsym
from klsym.language.expressions import A, M, R, log_mu, log_old, log_p, log_q, s, unfold
from klsym.language.sums import OverVocabulary

LOGITS = np.array([0.3, -0.5, 0.4])
P, OLD = np.array([0.2, 0.5, 0.3]), np.array([0.4, 0.35, 0.25])
MASK, REWARD = np.array([1.0, 0.0, 1.0]), np.array([0.7, -1.2, 0.4])
STEP = 1e-6


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits)
    return weights / weights.sum()


Q = softmax(LOGITS)
Code = Callable[[int, np.ndarray], Any]  # of the outcome that is drawn, and q; Q where it is detached


def kl(q: np.ndarray, p: np.ndarray) -> float:
    return float((q * np.log(q / p)).sum())


CASES: list[tuple[str, Code]] = [
    ("M*full_kl(q, old)", lambda x, q: MASK[x] * kl(q, OLD)),
    ("log_q*full(sg(M*k1))", lambda x, q: np.log(q[x]) * (q * MASK * np.log(Q / P)).sum()),
    ("log_q*full(M*k1)", lambda x, q: np.log(q[x]) * (q * MASK * np.log(q / P)).sum()),
    ("M*full_kl(q, p)**2", lambda x, q: MASK[x] * kl(q, P) ** 2),
    ("R*full_kl(q, p)", lambda x, q: REWARD[x] * kl(q, P)),
    ("k1*full_kl(q, p)", lambda x, q: np.log(q[x] / P[x]) * kl(q, P)),
    ("full_kl(q, p)*full_kl(p, q)", lambda x, q: kl(q, P) * kl(P, q)),
    ("sg(k1)*full_kl(q, p)", lambda x, q: np.log(Q[x] / P[x]) * kl(q, P)),
    ("sg(full_kl(q, p))*k2", lambda x, q: kl(Q, P) * np.log(q[x] / P[x]) ** 2 / 2),
    ("M*full_kl(q, p) + R*log_q", lambda x, q: MASK[x] * kl(q, P) + REWARD[x] * np.log(q[x])),
]


def printed(h: Any, x: int, logit: int, mu: np.ndarray) -> float:
    """What is shown, with every full(..) added up; s is that of the outcome that stands beside it."""

    def at(e: Any, y: int) -> Any:
        score = float(y == logit) - Q[logit]
        logs = {log_q: np.log(Q[y]), log_p: np.log(P[y]), log_mu: np.log(mu[y]), log_old: np.log(OLD[y])}
        return e.subs({**logs, M: MASK[y], R: REWARD[y], A: 0.0, s: score})

    h = unfold(sympy.sympify(h))
    sums = {of: sum(Q[y] * at(unfold(of.args[0]), y) for y in range(3)) for of in h.atoms(OverVocabulary)}
    return float(at(h.xreplace(sums), x))


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize(("loss", "code"), CASES, ids=[loss for loss, _ in CASES])
def test_the_gradient_at_a_sample_is_that_of_code(loss: str, code: Code, sampling: str) -> None:
    verdict = klsym.explain(loss, sampling=sampling)
    mu = Q if sampling == "on-policy" else np.array([0.5, 0.2, 0.3])
    for x in range(3):
        for logit in range(3):
            moved = [code(x, softmax(LOGITS + side * STEP * np.eye(3)[logit])) for side in (-1, 1)]
            exact = (moved[1] - moved[0]) / (2 * STEP)
            assert abs(printed(verdict.gradient.score_coefficient, x, logit, mu) - exact) < 1e-7, (x, logit)
