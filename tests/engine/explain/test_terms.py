"""What is said of each term of a sum, judged by hand and by the literal oracle."""

from __future__ import annotations

import numpy as np
import pytest

import klsym
from support.oracle.losses import Forest, Setting, samples

PPO = "-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)"
OFF = {"sampling": "off-policy"}


def says(loss: str, **options: str) -> dict[str, str]:
    return {row["loss"]: row["says"] for row in klsym.explain(loss, **options).to_json()["gradient"]["terms"]}


def test_a_surrogate_and_a_penalty() -> None:
    found = says(f"{PPO} + beta*k3", **OFF)
    assert found == {
        "beta*k3": "beta grad E_mu[k3]; no importance weight",
        "-min(rho*A, A*clip(rho, 1 - eps, eps + 1))": (
            "-grad E_q[A] where no bound binds; zero gradient where rho > eps + 1 and A > 0, and where"
            " rho < 1 - eps and A < 0; |weight| of A: at most eps + 1 where A > 0, unbounded where A < 0"
        ),
    }
    masked = says("-min(rho*(A - beta*sg(k1)), clip(rho, 0.8, 1.2)*(A - beta*sg(k1))) + rho*A", **OFF)
    assert any("where no bound binds" in line for line in masked.values())


@pytest.mark.parametrize(
    ("loss", "term", "words"),
    [
        (f"{PPO} + k1 - 1", "k1", "grad E_mu[k1]; no importance weight"),
        (f"{PPO} + sg(rho)*k1", "sg(rho)*k1", "no expected gradient"),
        (f"{PPO} + rho*k3", "rho*k3", "the reverse KL, KL(q||p)"),
        ("clip(k3, 0, 10) - M*rho*A", "-rho*A*M", "-grad E_q[A*M]"),
        ("max(k1, 0) - min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)",
         "-min(rho_old*A, A*clip(rho_old, 4/5, 6/5))", "weighed by q/old, not by q/mu"),
        ("max(k1, 0) - min(rho, 2)*A", "-A*min(2, rho)", "at most 2 where A > 0, at most 2 where A < 0"),
        ("max(k1, 0) - sg(min(rho, 2))*A*log_q", "-A*log_q*sg(min(2, rho))", "at most 2 where A > 0"),
        ("max(k1, 0) - max(rho, 2)*A", "-A*max(2, rho)", "unbounded where A > 0, unbounded where A < 0"),
    ],
)  # fmt: skip
def test_terms(loss: str, term: str, words: str) -> None:
    assert words in says(loss, **OFF)[term]


@pytest.mark.parametrize("loss", ["rho*A - beta*rho*k3", "k3", "exp(k1) - 1 - k1", "min(rho, 2)*k1"])
def test_what_has_a_name_or_one_term_is_told_as_a_whole(loss: str) -> None:
    verdict = klsym.explain(loss, **OFF)
    assert not verdict.terms or verdict.trust != "kernel" or verdict.target == "separable"
    assert "Terms" not in str(verdict) or len(verdict.terms) > 1


def test_the_bias_is_what_bounds_take_off() -> None:
    """h where bounds bind less h where none does: with it added, the clamps are gone."""
    loss = "-min(rho*A, clip(rho, 0.8, 1.2)*A) + 0.3*clip(k3, 0, 0.05)"
    verdict = klsym.explain(loss, **OFF)
    assert verdict.bias_cases
    forest = Forest(samples(seed=3, copies=4), ("off-policy",))
    setting = Setting("off-policy")
    clamped, free = forest.field(loss, setting).a, forest.field("-rho*A + 0.3*k3", setting).a
    rows = forest.whole
    names = {name: forest.atom(name, rows, "x") for name in ("rho", "r", "k1", "A")}
    values = {name: getattr(x, "value", x) for name, x in names.items()}
    total, open_ = np.zeros(len(rows.path)), np.ones(len(rows.path), dtype=bool)
    for where, gap in verdict.bias_cases:
        holds = open_.copy()  # a case without conditions is what no other one holds
        for condition in where:
            sign = np.sign([_at(condition.x, values, i) for i in range(len(total))])
            holds &= np.isin(sign, condition.signs)
        open_ &= ~holds
        total += holds * [_at(gap, values, i) for i in range(len(total))]
    score, mass = forest.atom("log_q", rows, "x").a, forest.chance(rows).value
    np.testing.assert_allclose(clamped - free, forest.mean(rows, mass * total * score).value, atol=1e-12)
    assert np.abs(clamped - free).max() > 0.01


def _at(e: object, values: dict[str, np.ndarray], i: int) -> float:
    from klsym.language.expressions import ATOMS

    put = {ATOMS[name]: float(value[i]) for name, value in values.items()}
    return float(e.xreplace(put))  # type: ignore[attr-defined]
