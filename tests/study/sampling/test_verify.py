"""Verification as a whole: wrong identities (no kernel would give them) and broken samplers are caught."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sympy import Function, Rational

from klsym.calculus import *
from klsym.engine.proof.quantities import to_quantity
from klsym.kernel import Theorem
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Statement
from klsym.study.gaussian.exact import GaussianModel
from klsym.study.ledger.evidence import Estimate, Evidence
from klsym.study.ledger.registry import Claim
from klsym.study.ledger.settle_claim import Settled, recall
from klsym.study.sampling import verify as module
from klsym.study.sampling.backends import choose_backend
from klsym.study.sampling.finite import FiniteSampler
from klsym.study.sampling.gaussians import GaussianSampler, GaussianTask
from klsym.study.sampling.identities import Options, list_identities
from klsym.study.sampling.means import expand_side
from klsym.study.sampling.statistics import Level
from klsym.study.sampling.verify import Checked, Report, build_table, summarise, verify
from support.scale import scaled

NUMPY = choose_backend("numpy")
QUICK = Options(NUMPY, drawn=2 * 10**5)
f = Function("f")(log_q, log_p, log_mu)
REVERSE, FORWARD = grad(KL(q, p)), grad(KL(p, q))


def stated(left: Any, right: Any, relation: str = "=", on_policy: bool = False, **close: Any) -> Settled:
    """A claim whose theorem says this, whether it is true or not."""
    left, right = to_quantity(left), to_quantity(right)
    functions = tuple({**left.functions, **right.functions}.items())
    context = Context(("beta", "lam"), functions, on_policy=on_policy)
    statement = Statement(left.side, right.side, context, relation)
    theorem = Theorem(close.pop("kind", "proved"), statement, (), (), close)
    part: Any = SimpleNamespace(theorem=theorem, labels={**left.labels, **right.labels})
    return Settled(Claim("test.claim", "proved", "here", "A test.", lambda: part), (part,))


E, loss = expectation, expected_gradient
TRUE = [
    stated(loss(k3), FORWARD),
    stated(loss(rho * k3, mu), REVERSE),
    stated(loss(sg(rho) * k2, mu), REVERSE),
    stated(E(k1**2 * s, q) * beta, 2 * beta * E(k2 * s, q)),
    stated(E(k1 * s, q) * E(k1 * s, q), E((k1 * s) ** 2, q), "<="),
    stated(E(R * k1 * s, q), E(rho * R * k1 * s, mu)),
    stated(grad(E(f, q)), E(f * s, q) + loss(f, q)),
    stated(loss(rho * k1, mu, ), REVERSE, on_policy=True),
    stated(covariance(k1, r - 1, under=q), -jeffreys(p, q)),
]  # fmt: skip
WRONG = {
    # a wrong measure
    "E_p[s] = 0": (E(s, p), 0),
    "E_mu[s] = 0": (E(s, mu), 0),
    "reverse under p": (REVERSE, E(k1 * s, p)),
    "k1-loss off-policy": (loss(k1, mu), 0),
    "k2-loss off-policy": (loss(k2, mu), REVERSE),
    "k3 off-policy": (E(k3, mu), KL(q, p)),
    "counted": (E(k1 * s, count), REVERSE),
    # a wrong coefficient or target
    "k1-loss": (loss(k1), REVERSE),
    "k3-loss": (loss(k3), REVERSE),
    "k2-loss": (loss(k2), FORWARD),
    "k-lambda": (loss(k(lam)), FORWARD),
    "k3 in the reward": (E(k3 * s, q), REVERSE - FORWARD / 2),
    "k2 in the reward": (E(k2 * s, q), grad(E(k2, q)) - REVERSE / 2),
    "k2 biased": (E(k2, q), KL(q, p)),
    "one per cent": (E(Rational(101, 100) * k1, q), KL(q, p)),
    "jeffreys": (covariance(k1, r - 1, under=q), -jeffreys(p, q) / 2),
    "chi2 direction": (E(1 / r - 1, q), chi2(p, q)),
    # a missing, doubled or misplaced weight
    "rho*k2": (loss(rho * k2, mu), REVERSE),
    "no weight": (E(sg(k1) * s, mu), REVERSE),
    "squared weight": (E(rho**2 * sg(k1) * s, mu), REVERSE),
    "weight under q": (E(rho * k1, q), KL(q, p)),
    "no weight for a reward": (E(R * s, q), E(R * s, mu)),
    # a wrong stop-gradient
    "sg(rho)*k3": (loss(sg(rho) * k3, mu), REVERSE),
    "sg(rho)*k1": (loss(sg(rho) * k1, mu), REVERSE),
    "sg of everything": (loss(sg(rho * k2), mu), REVERSE),
    "straight-through": (loss(k2 - sg(k2) + k3), REVERSE),
    "half of the product rule": (grad(E(f, q)), loss(f, q)),
    "the other half": (grad(E(f, q)), E(f * s, q)),
    # signs
    "forward": (FORWARD, E(s, p)),
    "reverse": (REVERSE, E(-k1 * s, q)),
    "covariance": (covariance(k1, r - 1, under=q), jeffreys(p, q)),
    "off-policy value": (E(k1, mu), KL(mu, q) - KL(mu, p)),
}
ON_POLICY = {
    "rho*k2": (loss(rho * k2, mu), REVERSE),
    "sg(rho)*k1": (loss(sg(rho) * k1, mu), REVERSE),
    "k3": (loss(k3, mu), REVERSE),
}
INEQUALITIES = {
    "square": (E((k1 * s) ** 2, q), E(k1 * s, q) * E(k1 * s, q)),
    "k1": (KL(q, p), E(-k1, q)),
    "variance": (covariance(k1, k1, under=q), 0),
}
ROWS = {
    **{name: stated(*sides) for name, sides in WRONG.items()},
    **{f"on-policy {name}": stated(*sides, on_policy=True) for name, sides in ON_POLICY.items()},
    **{f"at most: {name}": stated(*sides, relation="<=") for name, sides in INEQUALITIES.items()},
}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Each claim in a run of its own, with the level of a run of them all."""
    return {name: verify([claim], QUICK) for name, claim in ROWS.items()}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.share(3)
def test_a_wrong_identity_is_flagged(reports: dict[str, Report], name: str) -> None:
    report = reports[name]
    [one] = report.checked
    assert not report.passed and not one.passed and report.failed == ["test.claim"]
    assert isinstance(one.finite, list) and not any(outcome.holds for outcome in one.finite)
    if isinstance(one.gaussian, list) and name != "one per cent":
        assert not all(outcome.holds for outcome in one.gaussian)
    elif isinstance(one.gaussian, list):  # and the report says that so small a bias may be overlooked
        assert all(outcome.sees > 0.01 for outcome in one.gaussian)
    assert all(outcome.rejected for outcome in one.outcomes)
    assert summarise(report)[-1] == "FAILED: test.claim" and "<-- FAILED" in build_table(report)


def test_most_wrong_identities_are_flagged_on_gaussians_too(reports: dict[str, Report]) -> None:
    judged = [report.checked[0].gaussian for report in reports.values()]
    assert sum(isinstance(group, list) for group in judged) > 0.8 * len(judged)


@pytest.mark.parametrize("seed", range(2))
def test_true_identities_pass(seed: int) -> None:
    report = verify(TRUE, replace(QUICK, seed=seed))
    assert report.passed and len(report.checked) == len(TRUE) and summarise(report)[-1].startswith("all 9")
    assert all(isinstance(one.finite, list) for one in report.checked)


# ---------------------------------------------------------------------------- kinds of theorems
def refuted(left: Any, right: Any) -> Settled:
    model = {
        "q": ["1/2", "1/4", "1/4"], "p": ["1/4", "1/4", "1/2"], "mu": ["1/3", "1/3", "1/3"],
        "u": ["1", "0", "-1"], "parameters": {"beta": "1", "lam": "2"}, "rewards": {}, "outcome": 0,
    }  # fmt: skip
    return stated(left, right, kind="refuted", model=model)


def test_a_refutation_must_be_seen() -> None:
    true, false = verify([refuted(loss(k3), FORWARD)], QUICK), verify([refuted(loss(k3), REVERSE)], QUICK)
    assert false.passed and [o.holds for o in false.outcomes] == [True, True]
    assert not true.passed and [o.holds for o in true.outcomes] == [False, False]


def test_a_refutation_takes_the_samples_that_it_needs() -> None:
    report = verify([refuted(E(Rational(10001, 10000) * k1, q), KL(q, p))], replace(QUICK, counted=10**5))
    assert report.passed and all(o.samples > 10**9 and o.holds for o in report.outcomes)


def test_a_wrong_solution_is_flagged() -> None:
    settled = recall("gradient.k2-unique")
    theorem = settled.theorems[0]
    k3_ring = (-ExpPoly.from_variable("k1")).exp() - 1 + ExpPoly.from_variable("k1")
    proved = replace(theorem.proved, close={**theorem.close, "family": k3_ring.to_json()})
    wrong = replace(theorem, proved=proved)
    part: Any = SimpleNamespace(theorem=wrong, labels={})
    assert verify([settled], QUICK).passed
    report = verify([Settled(settled.claim, (part,))], QUICK)
    assert not report.passed and not all(o.holds for o in report.outcomes)


def test_a_claim_that_did_not_settle_is_a_failure() -> None:
    broken = Settled(Claim("test.broken", "proved", "here", "A test.", lambda: None), (), "it\nbroke")
    half = replace(TRUE[0], error="the ledger says refuted, the proofs are proved")
    for settled in ([broken], [TRUE[0], broken], [half]):
        name, report = settled[-1].claim.id, verify(settled, QUICK)
        assert not report.passed and report.failed == [name]
        lines = summarise(report)
        assert lines[-1] == f"FAILED: {name}" and any("is not settled" in line for line in lines)
        assert not any("\n" in line for line in lines) and build_table(report)


def test_experiments_are_left_out() -> None:
    claim = Claim("test.experiment", "computed", "here", "A test.", lambda: None)
    for settled in ([Settled(claim, (), "not run")], []):
        report = verify(settled, QUICK)
        assert report.passed and report.checked == [] and report.level is None
        assert build_table(report) and summarise(report)[-1] == "all 0 identities agree"


# ---------------------------------------------------------------------------- broken samplers
def broken_counts(self: FiniteSampler, measure: str, samples: int, stream: Any) -> Any:
    return CORRECT["counts"](self, "p" if measure == "q" else measure, samples, stream)


def unscored(self: FiniteSampler, mean: Any) -> Any:
    return CORRECT["rows"](self, replace(mean, score=()))


def unweighted(self: FiniteSampler, mean: Any) -> Any:
    return CORRECT["rows"](self, replace(mean, coefficient=mean.coefficient.substitute({"w": ExpPoly({})})))


def fewer(self: FiniteSampler, measure: str, samples: int, stream: Any) -> Any:
    counts = CORRECT["counts"](self, measure, samples, stream)
    return np.append(counts[:-1], 0)


def shifted(self: GaussianTask, z: Any) -> Any:
    return CORRECT["values"](self, z + 0.1)


def too_narrow(self: GaussianTask, z: Any) -> Any:
    return CORRECT["values"](self, z * 0.9)


def without_scores(self: GaussianTask, z: Any) -> Any:
    return CORRECT["values"](replace(self, rows=tuple((element, ()) for element, _ in self.rows)), z)


CORRECT = {
    "counts": FiniteSampler.draw_counts,
    "rows": FiniteSampler.compute_rows,
    "values": GaussianTask.evaluate_rows,
}
BROKEN = [
    (FiniteSampler, "draw_counts", broken_counts, (E(k1 * s, q), REVERSE)),
    (FiniteSampler, "draw_counts", fewer, (E(k1 * s, q), REVERSE)),
    (FiniteSampler, "compute_rows", unscored, (E(k1 * s, q), REVERSE)),
    (FiniteSampler, "compute_rows", unscored, (E(s, q), 0)),
    (FiniteSampler, "compute_rows", unweighted, (loss(rho * k3, mu), REVERSE)),
    (GaussianTask, "evaluate_rows", shifted, (loss(rho * k3, mu), REVERSE)),
    (GaussianTask, "evaluate_rows", too_narrow, (E(k3, q), KL(q, p))),
    (GaussianTask, "evaluate_rows", without_scores, (E(k1 * s, q), REVERSE)),
]


@pytest.mark.parametrize(("owner", "name", "wrong", "sides"), BROKEN, ids=range(len(BROKEN)))
@pytest.mark.share(3)
def test_a_broken_sampler_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Any, sides: Any
) -> None:
    claim = stated(*sides)
    assert verify([claim], QUICK).passed
    monkeypatch.setattr(owner, name, wrong)
    report = verify([claim], QUICK)
    assert report.checked[0].exact[0] and not report.passed
    group = report.checked[0].finite if owner is FiniteSampler else report.checked[0].gaussian
    assert isinstance(group, list) and not all(outcome.holds for outcome in group)


def test_a_control_that_is_not_told_apart_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that sit at the exact values, whatever they are, would pass every identity but no control."""

    def clairvoyant(self: FiniteSampler, means: Any, samples: int, stream: Any, results: Any = ()) -> Any:
        exact = {mean: self.compute_exact_mean(mean) for mean in means}
        blind = {
            mean: value * 0
            for mean, value in exact.items()
            if mean.coefficient == ExpPoly.from_variable("k1")
        }
        return exact | blind

    monkeypatch.setattr(FiniteSampler, "draw_averages", clairvoyant)
    report = verify([stated(loss(k3), FORWARD)], QUICK)
    assert not report.passed
    assert [(o.holds, o.rejected) for o in report.checked[0].finite] == [(True, False)] * 2  # type: ignore[union-attr]


# ---------------------------------------------------------------------------- reasons
def reasons(claim: Settled, **options: Any) -> tuple[Any, Any, list[str]]:
    report = verify([claim], replace(QUICK, **options))
    [one] = report.checked
    return one.finite, one.gaussian, summarise(report)


@pytest.mark.parametrize(
    ("claim", "finite", "gaussian"),
    [
        (stated(sample_gradient(k2), sample(k1 * s)), "at one sample", "at one sample"),
        (stated(E(R * s, q), E(rho * R * s, mu)), None, "R is no function"),
        (stated(E(f, q), E(f, q)), None, "generic functions"),
        (stated(E(r**2, q), E(r, p)), None, None),
        (stated(grad(E(A * k1, q)), E(A * (k1 + 1) * s, q)), None, "A is no function"),
        (stated(E(s, q) * E(s, q), 0), "linear part|too few", "linear part|too few"),
        (stated(E(k1 * s, count), E(k1 * s / sg(rho), count)), None, "no Gaussian closed form"),
    ],
)  # fmt: skip
def test_why_an_identity_is_not_sampled(claim: Settled, finite: str | None, gaussian: str | None) -> None:
    found = reasons(claim)
    for group, reason in zip(found[:2], (finite, gaussian), strict=True):
        if reason is None:
            assert isinstance(group, list)
        else:
            assert isinstance(group, str) and re.search(reason, group), group
            assert any(group in line for line in found[2])


def estimate(quantity_: Any, value: float, variance: float = 1.1) -> Settled:
    model = GaussianModel((0.0, 1.0), (0.2, variance))
    part = Evidence(
        "exact", "a", "a", "sympy", estimates=(Estimate("the estimate", quantity_.side, model, value),)
    )
    return Settled(Claim("test.estimate", "exact", "here", "A test.", lambda: part), (part,))


def test_estimates_of_a_calculation() -> None:
    model = GaussianModel((0.0, 1.0), (0.2, 1.1))
    exact = GaussianSampler(model).measure_spread(expand_side(E(k1, q).side, Context())).value[0]
    for value, passes in ((exact, True), (exact * 1.2, False), (-exact, False)):
        report = verify([estimate(E(k1, q), float(value))], replace(QUICK, drawn=2 * 10**6))
        assert report.passed is passes and len(report.outcomes) == 1


@pytest.mark.parametrize(
    ("variance", "reason"),
    [(3.0, "sigma"), (2.1, "standard error is infinite"), (1.45, "fourth moment")],
)
def test_heavy_tails_are_a_reason_and_not_a_number(variance: float, reason: str) -> None:
    """k3^2 under N(0, 1) for p = N(., 3) has no mean; k3 itself has no standard error or fourth moment."""
    quantity_ = E(k3**2, q) if variance == 3.0 else E(k3, q)
    report = verify([estimate(quantity_, 1.0, variance)], QUICK)
    assert report.outcomes == [] and report.level is None
    [line] = [line for line in summarise(report) if reason in line]
    assert "the estimate" in line


def test_too_few_samples_are_a_reason_and_not_a_failure() -> None:
    finite, gaussian, lines = reasons(stated(E(k1 * s, q), REVERSE), counted=100, drawn=100)
    assert finite == gaussian == "too few samples"
    told = [line for line in lines if "would do" in line]
    assert len(told) == 4 and lines[-1] == "all 1 identities agree" and "nothing was sampled" in lines


def test_many_sides_with_too_few_samples_are_told_in_one_line() -> None:
    claims = [stated(E(k1 * s, q), REVERSE), stated(loss(k3), FORWARD)]
    report = verify(claims, replace(QUICK, counted=1, drawn=1))
    [line] = [line for line in summarise(report) if "would do" in line]
    assert "for 8 sides" in line
    needed = max(error.needed for one in report.checked for _, error in one.few)
    again = verify(claims, replace(QUICK, counted=needed, drawn=needed))
    assert len(again.outcomes) == 8 and not any(one.few for one in again.checked)


def test_one_side_may_be_judged_without_the_other() -> None:
    """The heavier side needs more samples; what the lighter one finds is not lost."""
    report = verify([stated(E(rho**4 * k1, mu), E(k1, q))], replace(QUICK, counted=10**5, drawn=10**4))
    [one] = report.checked
    assert one.few and isinstance(one.finite, list) and not report.passed


# ---------------------------------------------------------------------------- reproducible
def numbers(report: Report) -> list[tuple[float, float]]:
    return [(outcome.z, outcome.control) for outcome in report.outcomes]


def test_one_seed_one_result() -> None:
    claims = [stated(loss(k3), FORWARD), stated(E(rho * k1, mu), KL(q, p))]
    runs = [numbers(verify(claims, replace(QUICK, seed=seed))) for seed in (5, 5, 6)]
    assert runs[0] == runs[1] and not set(runs[0]) & set(runs[2])


def test_claims_and_sides_have_streams_of_their_own() -> None:
    same = stated(E(k1 * s, q), E(k1 * s, q))
    report = verify([same, same], QUICK)
    assert len(set(numbers(report))) == len(report.outcomes) == 8


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_backends_agree_and_autograd_is_compared(name: str) -> None:
    pytest.importorskip(name)
    same = loss(lam * k1 * log_q, mu)
    claims = [stated(loss(rho * k3, mu), REVERSE), stated(same, same, on_policy=True)]
    here, there = (verify(claims, replace(QUICK, on=choose_backend(on, "cpu"))) for on in ("numpy", name))
    np.testing.assert_allclose(numbers(here), numbers(there), rtol=1e-4, atol=1e-3)
    assert [one.autograd for one in here.checked] == [None, None]
    assert all(one.autograd is not None and one.autograd < 1e-13 for one in there.checked)
    assert "autograd" in build_table(there) and "autograd" not in build_table(here)


@pytest.mark.parametrize("factor", [-1, 1.001, math.nan, 0])
def test_an_autograd_that_disagrees_is_a_failure(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    pytest.importorskip("torch")
    from klsym.study.sampling import autograd

    correct, calls = autograd.estimate_expected_gradient, 0

    def wrong(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        found = correct(*arguments, **options)
        return found * factor if calls == 2 else found

    monkeypatch.setattr(autograd, "estimate_expected_gradient", wrong)
    claim = stated(loss(k3), loss(rho * k1, mu) + loss(k3) - REVERSE)
    report = verify([claim], replace(QUICK, on=choose_backend("torch", "cpu")))
    assert calls >= 2 and not report.passed and all(outcome.passed for outcome in report.outcomes)


# ---------------------------------------------------------------------------- error rates
RATES = (0.4, 0.1)


def alarms(seed: int) -> list[bool]:
    """At each rate, does a run of true identities raise any alarm?"""
    options = replace(QUICK, counted=10**6 if seed % 2 else 10**12, seed=seed)
    every = (one for i, claim in enumerate(TRUE[:2]) for one in list_identities(claim, i, options))
    trials = [trial for one in every for trial in one.finite]
    comparisons = sum(trial.comparisons for trial in trials)
    return [not all(t.judge(Level(comparisons, rate), []).holds for t in trials) for rate in RATES]


def test_runs_of_true_identities_raise_an_alarm_as_seldom_as_stated() -> None:
    """Bonferroni: at most as often; half of the budget lies with the controls."""
    runs = scaled(80, 40)
    found = np.mean([alarms(seed) for seed in range(runs)], axis=0)
    for share, rate in zip(found, RATES, strict=True):
        assert share <= rate / 2 + 3 * math.sqrt(rate / 2 / runs)
    assert found[0] > 0.04


def test_the_summary_names_the_rates() -> None:
    report = verify([stated(loss(k3), FORWARD)], QUICK, false_alarm=1e-3)
    first, controls, *_ = summarise(report)
    assert first.startswith("40 comparisons in 4 trials")  # 8 logits and 2 directions, twice, and controls
    assert "rate 1e-03" in first and "1 - 1e-06" in first and controls.endswith("4 of 4 rejected")


def test_checked_needs_every_check() -> None:
    good = verify([stated(loss(k3), FORWARD)], QUICK).checked[0]
    assert good.passed
    for change in ({"exact": (False, "no")}, {"autograd": 1e-3}, {"autograd": math.nan}):
        assert not Checked(**{**vars(good), **change}).passed
    assert module.AGREEMENT <= 1e-10
