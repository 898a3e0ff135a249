"""The words for objectives: what is read, and what is refused in one line that says what to type instead."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.cli import main
from klsym.engine.answers.objectives import KINDS, NAMES, read_objective
from klsym.engine.divergences.usual_names import suggest_objective
from klsym.engine.explain import explain
from klsym.engine.questions.expectation import is_met
from klsym.errors import UsageError
from klsym.language.expressions import A, R, beta, k2, k3, rho, sg
from klsym.language.parser import parse

pytestmark = pytest.mark.usefixtures("without_copies")

READ: list[tuple[str, str, dict[str, Any]]] = [  # text, the word that it is, multiples
    *((kind, kind, {}) for kind in KINDS), *((name, name, {name: 1}) for name in NAMES),
    ("0", "zero", {}), ("undecided", "open", {}), ("Reverse-KL", "reverse-kl", {"reverse-kl": 1}),
    ("-E[A] + 0.04*reverse-kl", "", {"reward": -A, "reverse-kl": parse("1/25")}),
    ("0.04*reverse-kl - E_q[R]", "", {"reward": -R, "reverse-kl": parse("1/25")}),
    ("reverse-kl-beta*entropy", "", {"reverse-kl": 1, "entropy": -beta}),
    ("E[2*A]", "", {"reward": 2 * A}), ("E[R**2]", "", {"reward": R**2}), ("E[T]", "", {"length": 1}),
    ("E_q[1/T]", "", {"inverse-length": 1}), ("E_q[R/T]/2", "", {"policy-gradient/T": parse("1/2")}),
    ("2*E_mu[k3/T]", "", {"E_mu[k3/T]": 2}), ("E_mu[R*log_q]", "", {"log-likelihood": 1}),
    ("E_mu[rho*A/T]", "", {"token-policy-gradient/T": 1}),
    ("E_mu[R*rho/N]", "", {"token-policy-gradient/N": 1}),
    ("E_mu[-R*rho + 0.04*k3]", "", {"token-policy-gradient": -1, "E_mu[k3]": parse("1/25")}),
    ("E_mu[k3 - log_mu + 1]", "", {"E_mu[k3]": 1}),  # the rest does not depend on theta
    ("reverse-kl - reverse-kl", "", {}),
    ("-1e-3*reverse-kl+reverse-kl", "", {"reverse-kl": parse("999/1000")}),
    ("-next-token-entropy/N", "", {"next-token-entropy/N": -1}),
    ("reverse-kl/4", "", {"reverse-kl": parse("1/4")}),
    ("2*(reverse-kl - entropy)", "", {"reverse-kl": 2, "entropy": -2}),
    ("KL(policy||ref)", "reverse-kl", {"reverse-kl": 1}), ("D_KL(p, q)", "forward-kl", {"forward-kl": 1}),
    ("kl[mu | pi_theta]", "sampler-kl", {"sampler-kl": 1}),
    ("KL(q || mu)", "sampler-reverse-kl", {"sampler-reverse-kl": 1}),
    ("-E[A] + 0.04*KL(pi_theta || pi_ref)", "", {"reward": -A, "reverse-kl": parse("1/25")}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "word", "multiples"), READ)
@pytest.mark.parametrize("ending", ["", " inside clamps", " inside the clip range"])
def test_an_objective_is_read(text: str, word: str, multiples: dict[str, Any], ending: str) -> None:
    found = read_objective(f" {text}{ending}")
    assert (found.word, dict(found.multiples), found.inside) == (word, multiples, bool(ending))
    assert found.is_kind == (word in KINDS)


def test_the_loss_of_a_mean_is_kept() -> None:
    found = read_objective("E_mu[3*sg(rho)*k2] - E_mu[k3]")
    assert {*found.losses.values()} == {sg(rho) * k2, k3}
    assert sorted(found.multiples.values()) == [-1, 3] and found.losses.keys() == found.multiples.keys()


REFUSED = [  # text, what the message says
    ("separable", "write own-mean"), ("none", "write no-objective"), ("named", "such as reverse-kl"),
    ("0.04*reverse-kl + separable", "write own-mean"), ("Separable", "write own-mean"),
    ("reverse", "did you mean reverse-kl"), ("reverse-lk", "reverse-kl"), ("reverse_kl", "reverse-kl"),
    ("next-token-revers-kl", "did you mean next-token-reverse-kl"), ("forward-kl/T", "mean forward-kl"),
    ("policy_gradient", "did you mean policy-gradient"), ("no-objectiv", "did you mean no-objective"),
    ("ownmean", "did you mean own-mean"), ("entropy/N", "did you mean entropy/T"),
    ("k3", "klsym explain k3"), ("grpo", "klsym explain grpo"),
    ("kl", r"reverse-kl for KL\(policy \|\| reference\), or forward-kl"),
    ("KL(x || ref)", "or forward-kl for"), ("KL(q || q)", "or forward-kl"), ("KL(p || mu)", "or forward-kl"),
    ("rho*k3", "klsym explain 'rho.k3'"), ("-A*log_q", "is a loss"), ("0.04*k3 + reverse-kl", "k3 is a loss"),
    ("E[k1]", "write a name, or E_mu"), ("E_mu[R]", "has no gradient"), ("E_mu[kk]", "unknown name 'kk'"),
    ("E_mu[]", "is no objective"), ("E[A", "expected; known"), ("E[E[A]]", "is no objective"),
    ("", "expected; known"), ("1", "expected; known"), ("reverse-kl + 1", "expected"),
    ("reverse-kl*forward-kl", "expected"), ("reverse-kl**2", "expected"),
    ("reverse-kl reverse-kl", "expected"),
    ("reverse-kl/0", "expected"), ("gamma*reverse-kl", "expected"), ("T*reverse-kl", "expected"),
    ("*".join(["(entropy + length + sampler-kl + reverse-kl)"] * 60), "expected"),
    ("(1 - beta + beta)*reverse-kl + beta - beta + 1e-9", "expected"), ("E_mu[k3]/T", "expected"),
    ("E[R]*reverse-kl", "expected"), ("inside clamps", "expected"),
    ("reverse-kl outside clamps", "expected"), ("minimise the KL to the reference", "expected; known"),
    ("__import__('os').system('true')", "expected"), ("exp(reverse-kl)", "expected"),
    ("E_mu[__import__('os')]", "is no objective"), ("reverse-kl; zero", "expected"),
    ("sampler", "sampler-kl"),
    ("9" * 5000 + "*reverse-kl", "expected"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSED)
@pytest.mark.parametrize("ending", ["", " inside clamps"])
def test_what_is_no_objective_is_refused_in_one_line(text: str, said: str, ending: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        read_objective(text + ending)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


def test_as_much_is_refused_as_read() -> None:
    assert len(REFUSED) >= len(READ) - len(NAMES)


WRONG = (("separable", "own-mean"), ("reverse-lk", "did you mean reverse-kl"), ("gspo", "klsym explain"))


@pytest.mark.parametrize(("typed", "said"), WRONG)
@pytest.mark.parametrize("command", ["audit", "measure"])
def test_a_command_refuses_it_before_it_runs_code(
    command: str, typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "nowhere.py:loss", "--expect", typed]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [("entropy", "no loss is recommended for"), ("own-mean", "no loss is recommended for"),
     ("reverse-k", "did you mean reverse-kl"), ("separable", "one of reverse-kl")],
)  # fmt: skip
def test_recommend_says_which_words_it_has_an_answer_for(
    target: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "--target", target]) == 2
    error = capsys.readouterr().err
    assert said in error and "next-token-forward-kl" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "objective", "loss"),
    [
        ("jsd", "E_mu[js(q, p)]", "js(q, p)"),
        ("total variation", "E_mu[full(abs(1 - r))]", "full(abs(1 - r))"),
        ("jeffreys", "reverse-kl + forward-kl", "k2 + k3"),
        ("hellinger", "f-divergence", "-r**(1/2)"),
    ],
)
def test_the_objective_suggested_for_a_divergence_is_met_by_its_loss_and_not_by_k2(
    name: str, objective: str, loss: str
) -> None:
    assert f"write {objective}" in suggest_objective(name)
    wanted = read_objective(objective)
    assert is_met(explain(loss), wanted) and not is_met(explain("k2"), wanted)


@pytest.mark.parametrize("name", ["reverse-kl", "forward-kl", "entropy", "k3", "distance"])
def test_no_objective_is_suggested_for_what_has_a_word_or_is_no_divergence(name: str) -> None:
    assert suggest_objective(name) == ""
