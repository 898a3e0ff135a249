"""What is read of code beside what is measured: the gradient that is printed is the one that the code has."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("torch")

from klsym.api import explain
from klsym.cli import main
from klsym.confirmed.both import Confirmed, audit_and_measure
from klsym.confirmed.printed import compare_with_printed
from klsym.language.parser import parse
from klsym.measure.measuring import measure

FILE = "tests/support/audits/measured.py"
EXACT = 1e-9
READ: dict[str, tuple[dict[str, Any], str, dict[str, float]]] = {
    "mean_k3": ({}, "k3", {"E_mu[k3/T]": 1.0}),
    "k2_of_the_batch": ({"sampling": "off-policy"}, "k2", {"E_mu[k2/N]": 1.0}),
    "k1_of_each": ({"sampling": "off-policy"}, "k1", {"sampler-kl": -1.0}),
    "weighted_k1": ({}, "rho*k1", {"next-token-reverse-kl": 1.0}),
    "clipped": ({}, "-min(rho*A, A*clip(rho, 4/5, 6/5))", {}),
    "grpo": ({}, "beta*k3 - min(rho*A, A*clip(rho, 1 - eps, eps + 1))", {}),
    "geometric": ({}, "-A*exp(whole(log_q - log_mu)/T)", {"E_mu[R*whole(rho)**(1/T)]": -1.0}),
    "full_kl": ({"sampling": "off-policy"}, "full(k1)", {"next-token-reverse-kl": 1.0}),
    "without_a_mask": ({"sampling": "off-policy"}, "full(k1)", {"next-token-reverse-kl": 0.5}),
    "kl_reward": ({"use": "reward"}, "k1", {"reverse-kl": 1.0}),
}
MEASURED = {  # of what cannot be read: the kind, and the multiples, by hand
    "sorted_tokens": ({}, "no-objective", {}),
    "normalised": ({}, "named", {"E_mu[(R - mean(R))/(std_1(R) + 1e-6)*log_q]": -1.0}),
    "reward_through_cumsum": ({}, "named", {"reverse-kl": 1.0}),
    "through_cumsum": ({"sampling": "off-policy"}, "named", {"E_mu[k2]": 1.0}),
}


def run(name: str, options: dict[str, Any]) -> Confirmed:
    return audit_and_measure(f"{FILE}:{name}", **options)


@pytest.mark.parametrize("name", READ)
def test_the_printed_gradient_is_that_of_the_code(name: str) -> None:
    options, expression, multiples = READ[name]
    both = run(name, options)
    assert both.read is not None and both.read.expression == expression
    assert both.measured is not None and both.agreement is not None
    assert both.agreement.gap < EXACT and both.agrees is True and not both.differs
    assert both.measured.multiples == multiples


@pytest.mark.parametrize("name", MEASURED)
def test_what_cannot_be_read_is_measured(name: str) -> None:
    options, kind, multiples = MEASURED[name]
    both = run(name, options)
    assert both.read is None and both.unread and both.agrees is None
    assert both.measured is not None and both.measured.kind == kind
    assert both.measured.multiples == multiples


def per_sequence(batch: Any) -> Any:
    log_ratio = batch.ref_logp - batch.logp
    return (((log_ratio.exp() - 1 - log_ratio) * batch.mask).sum(-1)).mean()


RIGHT: dict[str, Any] = {"sampling": "off-policy", "level": "token", "aggregate": "sum"}
MISREAD = {
    "another estimator": ("k2", {}),
    "another weight": ("rho*k3", {}),
    "a mean for a sum": ("k3", {"aggregate": "mean"}),
    "sequences for tokens": ("k3", {"level": "sequence", "aggregate": None}),
    "the other sign": ("-k3", {}),
    "a factor that no word names": ("2*k3", {}),
}


def compare(formula: str, options: dict[str, Any]) -> Any:
    verdict = explain(formula, **{k: v for k, v in options.items() if v is not None})
    return compare_with_printed(verdict, parse(formula), measure(per_sequence, sampling="off-policy"), {})


def test_the_right_reading_agrees() -> None:
    right = compare("k3", RIGHT)
    assert right.gap < EXACT and right.factor == pytest.approx(1)


@pytest.mark.parametrize("what", MISREAD)
def test_a_misreading_is_noticed(what: str) -> None:
    formula, changed = MISREAD[what]
    wrong = compare(formula, {**RIGHT, **changed})
    assert wrong.gap > 1e-3 or abs(wrong.factor - 1) > 1e-3


def test_a_difference_leaves_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    from klsym.confirmed import both as module
    from klsym.confirmed.printed import Agreement

    for gap, factor, differs in ((0.2, 1.0, True), (0.0, 2.0, True), (0.0, -1.0, True), (1e-12, 1.0, False)):
        agreement = Agreement(gap, factor)
        monkeypatch.setattr(module, "compare_with_printed", lambda *_, x=agreement: x)
        answer = run("mean_k3", {})
        assert answer.differs is differs and answer.agrees is not differs
        if differs:
            assert "no verdict" in answer.describe_difference() and "assumed:" in answer.describe_difference()


@pytest.mark.parametrize(
    ("name", "reason"), [("of_pairs", "a loss of pairs"), ("raises", "the code raises RuntimeError")]
)
def test_what_is_neither_read_nor_measured(name: str, reason: str) -> None:
    both = run(name, {})
    assert both.read is None and both.measured is None and reason in both.unmeasured


def test_the_command_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", f"{FILE}:mean_k3"]) == 0
    text = capsys.readouterr().out
    assert "measured  has at each theta the gradient of E_mu[k3/T]" in text and "proved" in text
    assert main(["audit", f"{FILE}:sorted_tokens"]) == 0
    text = capsys.readouterr().out
    assert "no objective" in text and "not read" in text and "measured: exact on these worlds" in text


@pytest.mark.parametrize(("expected", "code"), [("forward-kl", 1), ("reverse-kl", 0)])
def test_an_expectation_of_what_is_only_measured(
    expected: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", f"{FILE}:reward_through_cumsum", f"--expect={expected}", "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["read"] is None and "cumsum" in answer["unread"] and answer["unmeasured"] == ""
    assert answer["measured"]["multiples"] == {"reverse-kl": 1.0} and answer["measured"]["agrees"] is None
    assert answer["assumed"] == []
