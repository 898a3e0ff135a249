"""What is expected of code: objectives as they are typed, met or not, and what is no objective."""

from __future__ import annotations

import pytest

import klsym
from klsym.cli import main
from klsym.engine.answers.expectation import is_met, read_expectation
from klsym.errors import UsageError
from support.losses.cases import options

MET = [  # a loss, how it is used, an expectation, is it met?
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
    ("-min(rho*A, clip(rho, 0.8, 1.2)*A)", "off", "-E[A] inside clamps", True), ("k2", "token", "none", True),
    ("rho*k3", "off", "reverse-kl - 0*forward-kl", True), ("k3", "reward", "reverse-kl - forward-kl", True),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "words", "expected", "met"), MET)
def test_an_objective_is_met_or_not(loss: str, words: str, expected: str, met: bool) -> None:
    assert is_met(klsym.explain(loss, **options(words)), read_expectation(expected)) is met


REFUSED = [  # what is no objective, and what the message says
    ("reverse", "did you mean reverse-kl"), ("reverse-lk", "reverse-kl"), ("k3", "Known:"), ("", "Known:"),
    ("E[k1]", "no target"), ("E[A", "no target"), ("reverse-kl*forward-kl", "no target"), ("1", "no target"),
    ("reverse-kl + 1", "no target"), ("reverse-kl**2", "no target"), ("inside clamps", "no target"),
    ("__import__('os').system('true')", "no target"), ("E[E[A]]", "no target"),
    ("gamma*reverse-kl", "no target"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_is_no_objective_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("*", ".")) as refused:
        read_expectation(text)
    assert "\n" not in str(refused.value)


def test_the_command_refuses_it_before_it_runs_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "nowhere.py:loss", "--expect", "revers-kl"]) == 2
    assert "reverse-kl" in capsys.readouterr().err
