r"""LaTeX is read by each command that takes a loss, and code is not taken for LaTeX."""

from __future__ import annotations

import re

import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.typeset.tokens import is_latex, quote_part

K2 = r"\frac{1}{2}\left(\log\frac{\pi_\theta(y|x)}{\pi_{ref}(y|x)}\right)^2"
PG = r"-\frac{\pi_\theta(a|s)}{\pi_{old}(a|s)} \hat{A}"


def test_comparisons_read_it() -> None:
    comparison = klsym.compare(K2, "k2")
    assert comparison.to_json()["expected_gradient"]["same"] is True
    assert "is read as k2" in " ".join(str(comparison).split())


def test_the_python_interface_reads_it_with_options_and_parameters() -> None:
    verdict = klsym.explain(r"-\eta A \log\pi_\theta", parameters=["eta"], sampling="off-policy")
    assert verdict.to_json()["gradient"]["coefficient"] == "-eta*A/rho"
    assert verdict.to_json()["sampling"] == "off-policy"


def test_what_is_typed_counts_more_than_the_expectation() -> None:
    latex = r"-\mathbb{E}_{a\sim\pi_{old}}[A\log\pi_\theta(a|s)]"
    assert klsym.explain(latex).to_json()["sampling"] == "off-policy"
    assert klsym.explain(latex, sampling="on-policy").to_json()["sampling"] == "on-policy"


def test_the_place_of_a_loss_may_stand_behind_it() -> None:
    assert klsym.explain(f"{K2} in the reward").to_json()["use"] == "reward"


def test_the_answer_says_how_an_objective_and_a_kl_are_read() -> None:
    said = " ".join(
        str(klsym.explain(r"J(\theta) = \mathbb{E}[A\log\pi - \beta D_{KL}(\pi\|\pi_{ref})]")).split()
    )
    assert "explained as the loss, its negative" in said
    assert "KL is the exact one" in said
    assert "E[..] is the mean over samples" in said


def test_code_and_text_are_no_latex() -> None:
    texts = [
        "rho*A", "loss = -(logp*adv).mean()", "x = a + \\\n b", "print('\\alpha \\nloss')", 'f"{x}\\beta"',
        "loss = k3  # \\beta is in the config", "π_θ / π_θ_old * A", "C:\\x", "k1 in the reward", "", "k3_{",
    ]  # fmt: skip
    assert [text for text in texts if is_latex(text)] == ["k3_{"]
    assert all(map(is_latex, (K2, PG, "$k_1$", r"\pi", "\\beta k_3", "A_{t} - b")))


def test_a_quotation_is_short() -> None:
    assert len(quote_part(PG * 9)) < 40


def test_measurements_read_it() -> None:
    pytest.importorskip("torch")
    measured = klsym.measure(PG)
    assert str(measured) == str(klsym.measure("-rho*A"))
    mean = r"-\frac{1}{G}\sum_{i=1}^{G}\frac{1}{|o_i|}\sum_{t=1}^{|o_i|}\hat A_{i,t}\log\pi_\theta(o_{i,t}|q)"
    code = "((-A*log_q*mask).sum(-1)/mask.sum(-1)).mean()"
    assert klsym.measure(mean).to_json() == klsym.measure(code).to_json()
    with pytest.raises(UsageError):
        klsym.measure(r"\foo{A}")


def test_a_penalty_with_a_minus_is_asked_about() -> None:
    code = "kl_penalty = -self.kl_penalty_weight*(logprobs - ref_logprob)"
    with pytest.raises(UsageError, match=r"is negative: type 'R \+ \(-kl_penalty_weight\*k1\)'"):
        klsym.explain(code, use="reward")
    added = klsym.explain("R + (-kl_penalty_weight*k1)", use="reward")
    assert added.to_json()["objective"]["sense"] == "maximised"
    assert "KL008" not in {about.code.code for about in added.diagnostics}


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (r"R(x,y) = r_\phi(x,y) - \beta\log\frac{\pi_\theta(y|x)}{\pi_{ref}(y|x)}", "R - beta*k1"),
        ("rewards = R - beta*(logp - ref_logp)", "R - beta*k1"),
        ("adv = A - beta*k3", "A - beta*k3"),
    ],
)
def test_what_is_named_a_reward_is_one(text: str, reward: str) -> None:
    """A loss that has it detached is another question, as is the use that is typed."""
    found, wanted = klsym.explain(text), klsym.explain(reward, use="reward")
    assert found.to_json()["gradient"] == wanted.to_json()["gradient"]
    assert re.search("assumed: use='?reward", " ".join(str(found).split()))
    assert klsym.explain(text, use="loss").to_json()["gradient"] != wanted.to_json()["gradient"]


def test_an_advantage_of_a_log_ratio_is_added_to_the_reward() -> None:
    for text in (r"\hat A_t = \log\pi_{teacher} - \log\pi_\theta", "advantages = -(logp - teacher_logp)"):
        assert "minimises KL(q||p)" in str(klsym.explain(text)) and "wrong sign" not in str(
            klsym.explain(text)
        )
