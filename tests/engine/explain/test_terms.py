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
        PPO: (
            "-grad E_q[A] inside the clip range; no gradient where rho > eps + 1 and A > 0, or where"
            " rho < 1 - eps and A < 0; |weight| of A: at most eps + 1 where A > 0, unbounded where A < 0"
        ),
    }
    masked = says("-min(rho*(A - beta*sg(k1)), clip(rho, 0.8, 1.2)*(A - beta*sg(k1))) + rho*R", **OFF)
    assert any("inside the clip range" in line for line in masked.values())


@pytest.mark.parametrize(
    ("loss", "term", "words"),
    [
        (f"{PPO} + k1 - 1", "k1", "grad E_mu[k1]; no importance weight"),
        (f"{PPO} + sg(rho)*k1", "sg(rho)*k1", "no expected gradient"),
        (f"{PPO} + rho*k3", "rho*k3", "the reverse KL, KL(q||p)"),
        ("clip(k3, 0, 10) - M*rho*A", "-M*rho*A", "-grad E_q[A*M]"),
        ("max(k1, 0) - min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)",
         "-min(rho_old*A, clip(rho_old, 0.8, 1.2)*A)", "weighed by q/old, not by q/mu"),
        ("max(k1, 0) - min(rho, 2)*A", "-min(rho, 2)*A", "at most 2 where A > 0, at most 2 where A < 0"),
        ("max(k1, 0) - sg(min(rho, 2))*A*log_q", "-sg(min(rho, 2))*A*log_q", "at most 2 where A > 0"),
        ("max(k1, 0) - max(rho, 2)*A", "-max(rho, 2)*A", "unbounded where A > 0, unbounded where A < 0"),
    ],
)  # fmt: skip
@pytest.mark.share(3)
def test_terms(loss: str, term: str, words: str) -> None:
    assert words in says(loss, **OFF)[term]


@pytest.mark.parametrize(
    ("loss", "terms"),
    [
        ("rho*A - beta*rho*k3", ["rho*A", "-beta*rho*k3"]), ("k3", []), ("min(rho, 2)*k1", []),
        ("-beta*rho*k3 + rho*A - 1", ["-beta*rho*k3", "rho*A"]), ("rho*(A - k1)", []),
    ],
)  # fmt: skip
def test_terms_stand_in_the_order_in_which_they_were_typed(loss: str, terms: list[str]) -> None:
    assert [term.loss for term in klsym.explain(loss, **OFF).gradient.terms] == terms


DUAL = "torch.where(A < 0, torch.max({0}, 0.9*A), {0})".format(
    "torch.min(ratio*A, torch.clamp(ratio, 0.8, 1.2)*A)"
)


@pytest.mark.parametrize(
    ("loss", "start"),
    [
        (f"-{DUAL}", "A policy gradient inside the clip range"),
        (DUAL, "The wrong sign for a policy gradient inside the clip range"),
        (f"-{DUAL} + 0.1*k3", "A penalty that is not a KL; and a policy gradient inside the clip range"),
        (f"{PPO} - 0.01*H(q)", "A policy gradient inside the clip range; and an entropy bonus"),
        ("-rho*abs(A)", "A policy gradient whose sign changes with the reward"),
        ("rho*abs(A)", "A policy gradient whose sign changes with the reward"),
        ("-where(A < 0, 1, 0)*A*rho + where(A > 0, 1, 0)*A*rho", "A policy gradient whose sign changes"),
        ("-rho*max(A, 0)", "A policy gradient: maximises"),
        ("rho*max(A, 0)", "The wrong sign for a policy gradient: minimises"),
        ("rho*max(-A, 0) - rho*max(A, 0)", "A policy gradient: maximises E_q[A"),
    ],
)  # fmt: skip
def test_terms_of_one_reward_are_added_up_before_a_sign_is_named(loss: str, start: str) -> None:
    assert " ".join(klsym.explain(loss, **OFF).text(width=300).splitlines()[1].split()).startswith(start)


def test_an_estimator_that_is_a_sum_is_no_sum_of_terms() -> None:
    lines = str(klsym.explain("log_q - log_p", use="reward")).splitlines()
    assert not any(line.startswith(("  log_q  ", "  -log_p")) for line in lines)


def test_the_bias_is_what_bounds_take_off() -> None:
    """h where bounds bind less h where none does: with it added, the clamps are gone."""
    loss = "-min(rho*A, clip(rho, 0.8, 1.2)*A) + 0.3*clip(k3, 0, 0.05)"
    verdict = klsym.explain(loss, **OFF)
    assert verdict.gradient.bias_cases
    forest = Forest(samples(seed=3, copies=4), ("off-policy",))
    setting = Setting("off-policy")
    clamped, free = forest.field(loss, setting).a, forest.field("-rho*A + 0.3*k3", setting).a
    rows = forest.whole
    names = {name: forest.atom(name, rows, "x") for name in ("rho", "r", "k1", "A")}
    values = {name: getattr(x, "value", x) for name, x in names.items()}
    total, open_ = np.zeros(len(rows.path)), np.ones(len(rows.path), dtype=bool)
    for where, gap in verdict.gradient.bias_cases:
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


@pytest.mark.parametrize("batch", ["centred", "loo", "normalised"])
def test_a_batch_beside_an_exact_mean_is_told_by_its_terms(batch: str) -> None:
    verdict = klsym.explain(f"-{batch}(R)*log_q + 0.5*full_kl(q, p)")
    alone = klsym.explain(f"-{batch}(R)*log_q")
    assert verdict.target is None and alone.target is not None
    targets = [term.verdict.target for term in verdict.gradient.terms]
    assert targets == [alone.target, "reverse-kl"]
    text = str(verdict)
    assert "and a penalty on KL(policy || reference)" in text and "is not decided" in text
    assert "not decided:" not in text.lower()


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("-loo(R)*full(log_q)", {}),
        ("centred(R)*full(k1) + k1", {}),
        ("full(k1)*R", {"level": "token", "use": "reward", "aggregate": "mean"}),
        ("-R*log_q + full(k1)", {"batch": "mean"}),
    ],
)
def test_what_mixes_a_batch_and_an_exact_mean_is_refused(loss: str, options: dict[str, str]) -> None:
    with pytest.raises(klsym.KlsymError):
        klsym.explain(loss, **options)


def test_an_exact_mean_divided_by_the_length_is_open_and_its_sum_is_told() -> None:
    for aggregate in ("mean", "batch"):
        verdict = klsym.explain("full_kl(q, p)", level="token", aggregate=aggregate)
        assert verdict.target is None
        told = "it descends the reverse KL of each next token, at prefixes of q; the sum has no objective"
        assert told in " ".join(str(verdict).split()) and "no tree" not in str(verdict)
    assert klsym.explain("full_kl(q, p)", level="token").target == "no-objective"
