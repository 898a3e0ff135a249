"""Whether a loss has the expected objective: by the parts of its verdict, or by a proof on gradients."""

from __future__ import annotations

import pytest

import klsym
from klsym.engine.answers.objectives import read_objective
from klsym.engine.questions.expectation import decide_expectation
from support.losses.cases import options

PPO = "min(rho*A, clip(rho, 0.8, 1.2)*A)"
DECIDED = [  # a loss, how it is used, an expectation, is it met?  None: it is not decided
    ("k2", "", "reverse-kl", True), ("2*k2", "", "reverse-kl", True), ("-k2", "", "reverse-kl", False),
    ("k3", "", "reverse-kl", False), ("k1", "", "zero", True), ("k2", "", "zero", False),
    ("0.04*k2", "", "0.04*reverse-kl", True), ("k2/25", "", "0.04*reverse-kl", True),
    ("0.04*k2", "", "0.05*reverse-kl", False), ("0.04*k3", "", "0.04*reverse-kl", False),
    ("-A*log_q + 0.04*k2", "", "-E[A] + 0.04*reverse-kl", True),
    ("-A*log_q + 0.04*k2", "", "0.04*reverse-kl - E_q[A]", True),
    ("-A*log_q + 0.04*k2", "", "E[A] + 0.04*reverse-kl", False),
    ("-A*log_q + 0.04*k2", "", "0.04*reverse-kl", False), ("-A*log_q", "", "-E[A]", True),
    ("-R*log_q", "", "-E[A]", False), ("R - beta*k1", "reward", "E[R] - beta*reverse-kl", True),
    ("clip(k3, 0, 10)", "", "forward-kl inside clamps", True), ("clip(k3, 0, 10)", "", "forward-kl", False),
    ("clip(k3, 0, 10)", "", "reverse-kl inside clamps", False), ("k3", "", "forward-kl inside clamps", True),
    (f"-{PPO}", "off", "-E[A] inside clamps", True), (f"-{PPO}", "off", "E[A] inside clamps", False),
    ("rho*k3", "off", "reverse-kl - 0*forward-kl", True), ("k3", "reward", "reverse-kl - forward-kl", True),
    (f"-{PPO} + k2*R", "off", "own-mean inside clamps", True),
    (f"-{PPO}", "off", "objective inside clamps", False),
    # the reward by its name: of R or of A
    ("-R*log_q", "", "-policy-gradient", True), ("-A*log_q", "", "-policy-gradient", True),
    ("R*log_q", "", "policy-gradient", True), ("2*R*log_q", "", "policy-gradient", True),
    ("-R*log_q", "", "policy-gradient", False), ("R**2*log_q", "", "policy-gradient", False),
    ("-A*log_q + 0.04*k2", "", "-policy-gradient + 0.04*reverse-kl", True),
    ("-A*log_q + 0.04*k2", "", "-2*policy-gradient + 0.04*reverse-kl", False),
    ("-A*log_q/T", "token", "-policy-gradient/T", True), ("-A*log_q/T", "token", "-policy-gradient", False),
    # kinds
    ("k2", "token", "no-objective", True), ("k2", "off", "own-mean", True), ("k2", "off", "objective", False),
    ("sg(rho)*k2 + k1", "off", "own-mean", False), ("sg(min(rho, 2))*k2", "off", "objective", True),
    ("k2*R", "", "objective", True), ("k2*R", "", "own-mean", False), ("abs(k1)", "", "f-divergence", True),
    ("R*full(k1)", "", "open", True), ("R*full(k1)", "", "undecided", True),
    ("k2", "off mean", "own-mean", False),
    # the sampler
    ("k1", "off", "-sampler-kl", True), ("k1", "off", "sampler-kl", False),
    ("rho*(log_q - log_mu)", "off", "sampler-reverse-kl", True),
    ("rho*(log_q - log_mu)", "off", "sampler-kl", False), ("rho*k1", "off", "sampler-reverse-kl", False),
    ("-3*k1", "off", "sampler-kl", True),
    ("-A*log_q", "off", "-log-likelihood", True), ("-R*log_q", "off", "-log-likelihood", True),
    ("-R*log_q", "", "-log-likelihood", True), ("-R*log_q", "", "log-likelihood", False),
    ("k3", "off", "E_mu[k3]", True), ("k3", "off", "E_mu[k2]", False),
    ("0.04*k3", "off", "0.04*E_mu[k3]", True), ("0.04*k3", "off", "0.05*E_mu[k3]", False),
    (f"-{PPO}", "off", f"E_mu[-{PPO}]", True), (f"-{PPO}", "off", "E_mu[-rho*A]", False),
    # entropy
    ("H(q)", "", "entropy", True), ("-H(q)", "", "-entropy", True), ("-H(q)", "", "entropy", False),
    ("-beta*sg(log_q)*log_q", "", "entropy", True), ("sg(log_q)*log_q", "", "entropy", False),
    ("R - beta*log_q", "reward", "policy-gradient + beta*entropy", True),
    ("R - beta*log_q", "reward", "policy-gradient - beta*entropy", False),
    ("R - beta*log_q", "token reward", "policy-gradient + beta*entropy", True),
    # tokens
    ("full(k1)", "token", "next-token-reverse-kl", True), ("full(k1)", "token", "reverse-kl", False),
    ("H(q)", "token", "next-token-entropy", True), ("H(q)", "token", "entropy", False),
    ("rho*k3", "off token", "next-token-reverse-kl", True),
    ("rho*k3", "off token", "next-token-forward-kl", False),
    ("rho*k3", "off token", "E_mu[rho*k1]", True), ("rho*k3", "off token", "2*next-token-reverse-kl", False),
    ("-rho*A", "off token", "-token-policy-gradient", True),
    ("-rho*A", "off token", "-policy-gradient", False),
    ("-rho*A", "off token /T", "-token-policy-gradient/T", True), ("k3", "off token /T", "E_mu[k3/T]", True),
    ("k3", "off token /T", "E_mu[k3]", False),
    ("-rho*A + 0.04*rho*k3", "off token", "-token-policy-gradient + 0.04*next-token-reverse-kl", True),
    (f"-{PPO}", "off token", "-token-policy-gradient inside clamps", True),
    (PPO, "off token", "-token-policy-gradient inside clamps", False),
    (f"-{PPO}", "off token", "-0.5*token-policy-gradient inside clamps", False),
    (f"-{PPO}/2", "off token", "-0.5*token-policy-gradient inside clamps", True),
    (f"-{PPO}", "off token /T", "-token-policy-gradient/T inside clamps", True),
    (f"-{PPO}", "off token /T", "-token-policy-gradient inside clamps", None),
    (f"2*{PPO}", "off token", "token-policy-gradient inside clamps", True),
    (f"-2*{PPO}", "off token", "token-policy-gradient inside clamps", False),
    ("(beta - 1)*k2", "", "reverse-kl", None), ("(1 - beta)*k2", "", "reverse-kl", None),
    ("(beta - 1)*A*log_q", "", "policy-gradient", None), ("(beta + 1)*k2", "", "reverse-kl", True),
    (f"-{PPO} + 0.04*rho*k3", "off token",
     "-token-policy-gradient + 0.04*next-token-reverse-kl inside clamps", True),
    (f"-{PPO} + 0.04*k3", "off token",
     "-token-policy-gradient + 0.04*next-token-reverse-kl inside clamps", None),
    ("sg(T)*log_q", "token", "length", True), ("sg(T)*log_q", "token", "inverse-length", False),
    ("sg(1/T)*log_q", "token", "inverse-length", True), ("k2", "", "length", None),
    # what is read does not decide it
    ("k3", "off mean", "E_mu[k3]", None), ("k3", "token /batch", "next-token-forward-kl/N", None),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "expected", "met"), DECIDED)
def test_an_objective_is_met_or_not(loss: str, words: str, expected: str, met: bool | None) -> None:
    assert decide_expectation(klsym.explain(loss, **options(words)), read_objective(expected)) is met


def test_as_much_is_denied_as_met() -> None:
    answers = [met for *_, met in DECIDED]
    assert answers.count(False) > 0.6 * answers.count(True) and answers.count(None) < 9
