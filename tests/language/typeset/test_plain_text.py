"""Formulas of papers in plain text: each is explained as what a reader writes in the loss grammar."""

from __future__ import annotations

import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.typeset.plain_text import is_formula_of_papers

PPO = "min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)"
OLD = {"sampling": "off-policy"}
SUM, MEAN = ({"level": "token", "aggregate": x} for x in ("sum", "mean"))

READ: list[tuple[str, str, dict[str, str]]] = [
    ("-log π_θ(a|s) A", "-A*log_q", {}),
    ("-log pi_theta(a|s) * A", "-A*log_q", {}),
    ("- A(s,a) log π(a|s)", "-A*log_q", {}),
    ("-E[Σ_t log π_θ(a_t|s_t) Â_t]", "-A*log_q", SUM),
    ("-∑_t log π(a_t|s_t) A_t", "-A*log_q", SUM),
    ("-𝔼_{τ∼π}[R(τ) Σ_t log π_θ(a_t|s_t)]", "-whole(R)*log_q", {**SUM, "sampling": "on-policy"}),
    ("-(1/G) Σ_i min(r_i(θ) A_i, clip(r_i(θ), 1-ε, 1+ε) A_i)", f"-{PPO}", OLD),
    ("-1/N Σ_i A_i log π(y_i|x)", "-A*log_q", {}),
    ("-1/G Σ_i 1/|o_i| Σ_t A_{i,t} log π_θ(o_{i,t}|q)", "-A*log_q", MEAN),
    ("-min(ρ A, clip(ρ, 1-ε, 1+ε) A)", f"-{PPO}", OLD),
    ("-min(ρ_t A_t, clip(ρ_t, 1−ϵ, 1+ϵ) A_t)", f"-{PPO}", OLD),
    ("-π_θ(a|s)/π_θ_old(a|s) A", "-rho*A", OLD),
    ("-π_θ(a|s)/π_θold(a|s) · A", "-rho*A", OLD),
    ("-pi(a|s)/pi_old(a|s) * A", "-rho*A", OLD),
    ("-A log π_θ(a|s) + β (log π_θ(a|s) - log π_ref(a|s))", "-A*log_q + beta*k1", {}),
    ("-A log π(a|s) + β KL(π||π_ref)", "-A*log_q + beta*full_kl(q, p)", {}),
    ("-A log π(a|s) - β H(π)", "-A*log_q - beta*H(q)", {}),
    ("R - β log(π_θ(y|x)/π_ref(y|x))", "R - beta*k1", {}),
    ("½ (log r)²", "k2", {}),
    ("L = -E[min(r_t A_t, clip(r_t, 1-eps, 1+eps) A_t)]", f"-{PPO}", OLD),
    ("L^CLIP(θ) = E_t[min(r_t(θ) Â_t, clip(r_t(θ), 1-ε, 1+ε) Â_t)]", f"-{PPO}", OLD),
    ("L = -1/G sum_i 1/|o_i| sum_t A_{i,t} log pi(o_{i,t}|q)", "-A*log_q", MEAN),
    ("loss = -advantage * log π_θ(a|s)", "-A*log_q", {}),
    ("J(θ) = E[log π_θ(a|s) A]", "-A*log_q", {}),
    ("H(π)", "H(q)", {}),
    ("-E[A_t log pi(a_t|s_t)] + beta E[KL(pi||pi_ref)]", "-A*log_q + beta*full_kl(q, p)", {}),
    ("log π_θ(y|x)/π_ref(y|x)", "k1", {}),
    ("log q(x)/p(x)", "k1", {}),
    ("-E[min(ratio*adv, clip(ratio, 1-eps, 1+eps)*adv)]", f"-{PPO}", OLD),
    ("-E_t[ratio * advantages]", "-rho*A", OLD),
    ("-E[A*log_q] + 0.1*E[k3]", "-A*log_q + 0.1*k3", {}),
    ("π_ref(a|s)/π_θ(a|s) - log(π_ref(a|s)/π_θ(a|s)) - 1", "k3", {}),
]  # fmt: skip

REFUSED: list[tuple[str, str]] = [
    ("π(a|s)", "a probability alone"),
    ("∇ log π(a|s) A", "the gradient .*klsym explain -- '-sg\\(A\\)[*]log_q'"),
    ("E_q[log q(x) - log p(x)]", "for this objective type"),
    ("-Π_t ρ_t A_t", "product over tokens of more than one factor"),
    ("Σ_t exp(Σ_u log ρ_u)", "is not read in a formula"),
    ("exp(Σ_t k1)", "this .*sum is not read"),
    ("-sg(r̂_t(θ)) A_t log π_θ(a_t|s_t)", "a ratio with a hat.* type what it is"),
    ("E_q[log q/p]", "for this objective type 'k1' --use reward"),
    ("E[rewards]", "for this objective type '-R' --use reward"),
    ("E[foo*bar]", "'foo' is not read in a formula"),
    ("log π(a|s)/T", "type .*frac"),
    ("log π(a|s)/|y|", "type .*frac"),
    ("-min(ρ A, clip(ρ, 1-ε, 1+ε) A) + r_i", "the letter r"),
    ("-log π(a|s) Ã", "unexpected|is not read"),
    ("E[foo bar]", "is not read in a formula"),
    ("E[r_t A_t]", "is not read in a formula"),
    ("Σ_t foo", "'foo' is not read in a formula: type what it stands for"),
    ("(1/D) Σ_j log π(a_j|s)", "type .*for the mean over tokens"),
    ("Π_t π(a_t|s_t) A", "product over tokens of more than one factor .*: type"),
    ("Π_t π(a_t|s_t)", "no ratio of policies .*: type the sum of log-probabilities"),
    ("log π(a|s) A ✓", "unexpected"),
    ("-log π_φ(a|s) A / b c d", "type"),
    ("-E_{π}[R]", "type"),
    ("Σ_t Σ_u log π(a_t|s_t) A_u", "type"),
    ("-log π(a|s) A(s) ∈ B", "is not read in a formula"),
    ("-log π_θ(a|s", "ends too early"),
    ("-log π_θ'(a|s) A", "is not read|unexpected"),
]


@pytest.mark.parametrize(("typed", "loss", "options"), READ, ids=[row[0] for row in READ])
def test_a_formula_of_papers_is_read(typed: str, loss: str, options: dict[str, str]) -> None:
    found, wanted = klsym.explain(typed), klsym.explain(loss, **options)
    assert (found.setting.level, found.setting.aggregate) == (wanted.setting.level, wanted.setting.aggregate)
    assert found.setting.sampling == wanted.setting.sampling
    of_found, of_wanted = (x.to_json()["gradient"] for x in (found, wanted))
    for part in ("per_sample", "coefficient", "target", "objective"):
        assert of_found[part] == of_wanted[part]
    assert "is read as" in str(found)


@pytest.mark.parametrize(("typed", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_another_one_is_refused_in_one_line(typed: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        klsym.explain(typed)
    assert "\n" not in str(caught.value) and "LaTeX" not in str(caught.value).replace("LaTeX command", "")


WHOLE, ROOT = "-A*exp(whole(log_q - log_mu))", "-A*exp(whole(log_q - log_mu)/T)"
OF_SEQUENCES = [
    (r"-\prod_t \frac{\pi_\theta(a_t|s_t)}{\pi_{old}(a_t|s_t)} A", WHOLE),
    (r"-\prod_{t=1}^{T} r_t(\theta) A_i", WHOLE),
    ("-A Π_t π_θ(a_t|s_t)/π_old(a_t|s_t)", WHOLE),
    (r"-\exp(\sum_t \log \frac{\pi_\theta(a_t|s_t)}{\pi_{old}(a_t|s_t)}) A", WHOLE),
    (r"-\exp(\sum_t (\log \pi_\theta(a_t|s_t) - \log \pi_{old}(a_t|s_t))) A", WHOLE),
    (r"-\exp(\frac{1}{|y|}\sum_{t=1}^{|y|} \log r_t(\theta)) A", ROOT),
    (r"-\left(\prod_{t=1}^{T} r_t(\theta)\right)^{1/T} A", ROOT),
    (r"-\left(\frac{\pi_\theta(y|x)}{\pi_{old}(y|x)}\right)^{\frac{1}{|y|}} A", ROOT),
    ("-A exp(1/T Σ_t log ρ_t)", ROOT),
]


@pytest.mark.parametrize(("typed", "loss"), OF_SEQUENCES, ids=[row[0] for row in OF_SEQUENCES])
def test_a_product_over_tokens_is_the_ratio_of_the_sequence(typed: str, loss: str) -> None:
    found, wanted = klsym.explain(typed), klsym.explain(loss, sampling="off-policy", level="sequence")
    assert (found.setting.level, found.setting.sampling) == ("sequence", "off-policy")
    assert found.to_json()["gradient"] == wanted.to_json()["gradient"]


POSITIVE = "where(A > 0, -min(rho, 1 + eps)*A, -max(rho, 1 - eps)*A)"
BY_CASES = [
    (
        r"-\begin{cases} \min(\rho, 1+\epsilon) A & \text{if } A > 0 \\ \max(\rho, 1-\epsilon) A"
        r" & \text{otherwise} \end{cases}",
        POSITIVE,
    ),
    (
        r"loss = \begin{cases} -\max(ratio, 1-\epsilon)\times A, & A \leq 0 \\[2pt]"
        r" -\min(ratio, 1+\epsilon)\times A, & A\gt 0. \end{cases}",
        POSITIVE,
    ),
    (
        r"-A \log\pi_\theta(a|s) \cdot \begin{cases} 1 & \rho \geq 1 \\ 0 & \rho < 1 \end{cases}",
        "-A*log_q*where(rho >= 1, 1, 0)",
    ),
]


@pytest.mark.parametrize(("typed", "loss"), BY_CASES)
def test_values_by_cases_are_where(typed: str, loss: str) -> None:
    assert klsym.compare(typed, loss, sampling="off-policy").to_json()["expected_gradient"]["same"] is True
    other = loss.replace("1, 0)", "0, 1)").replace("1 + eps", "2 + eps")
    assert klsym.compare(typed, other, sampling="off-policy").to_json()["expected_gradient"]["same"] is False


OVER_WORDS = [
    ("Σ_a π_θ(a|s) log(π_θ(a|s)/π_ref(a|s))", "full_kl(q, p)", {}),
    (
        r"\sum_{a \in \mathcal{A}} \pi_\theta(a|s) \log \frac{\pi_\theta(a|s)}{\pi_{ref}(a|s)}",
        "full_kl(q, p)",
        {},
    ),
    (r"D_{KL} = \sum_{i=1}^{|V|} p_i (\log p_i - \log q_i)", "full_kl(p, q)", {}),
    ("Σ_x q(x) log(q(x)/p(x))", "full_kl(q, p)", {}),
    (r"\sum_a \pi_\theta(a|s) \log\pi_\theta(a|s)", "-H(q)", {}),
    (r"-\sum_i p_i \log q_i", "-full(r*log_q)", {}),
    ("Σ_{i∈T} p_i (log p_i − log q_i)", "full(-M*k1*r)", {}),
    (r"\sum_{v \in \text{top}} \pi_\theta(v|s) \log\frac{\pi_\theta(v|s)}{\pi_{ref}(v|s)}", "full(M*k1)", {}),
    (r"\frac{1}{T}\sum_t \sum_v p_t(v) \log\frac{p_t(v)}{q_t(v)}", "full_kl(p, q)", MEAN),
    (
        r"-A\log\pi_\theta(a|s) + \beta \sum_a \pi_\theta(a|s) \log\frac{\pi_\theta(a|s)}{\pi_{ref}(a|s)}",
        "-A*log_q + beta*full_kl(q, p)",
        {},
    ),
]


@pytest.mark.parametrize(("typed", "loss", "options"), OVER_WORDS)
def test_a_sum_over_the_vocabulary_is_read(typed: str, loss: str, options: dict[str, str]) -> None:
    found, wanted = klsym.explain(typed), klsym.explain(loss, **options)
    for part in ("per_sample", "coefficient", "target"):
        assert found.to_json()["gradient"][part] == wanted.to_json()["gradient"][part]
    assert ("are a mask M" in " ".join(str(found).split())) == ("M*" in loss)


WEIGHTS = [
    (r"r_t(\theta) = \frac{\pi_\theta(a_t|s_t)}{\pi_{old}(a_t|s_t)}", "-rho*A"),
    ("truncated_ratio = min(π_learner(a, θ) / π_sampler(a, θ), C)", "-A*min(C, rho)"),
    (r"\rho_t = \min\left(\frac{\pi_\theta(a_t|s_t)}{\mu(a_t|s_t)}, 1\right)", "-A*min(1, rho)"),
]


@pytest.mark.parametrize(("typed", "loss"), WEIGHTS)
def test_the_formula_of_a_weight_is_explained_as_the_weight_of_an_advantage(typed: str, loss: str) -> None:
    found = klsym.explain(typed)
    assert found.to_json()["gradient"] == klsym.explain(loss, parameters=["C"], **OLD).to_json()["gradient"]
    assert "the formula is of a weight, and no loss" in " ".join(str(found).split())


CODE_IN_E = [
    ("-E[logp*adv]", "-A*log_q"),
    ("-E[log_prob * advantage]", "-A*log_q"),
    ("E[logp - ref_logp]", "k1"),
    ("loss = -E[log_prob * A] + beta * E[k3]", "-A*log_q + beta*k3"),
]


@pytest.mark.parametrize(("typed", "loss"), CODE_IN_E)
def test_an_expectation_of_code_is_its_mean(typed: str, loss: str) -> None:
    found = klsym.explain(typed)
    of_found, of_wanted = (x.to_json()["gradient"] for x in (found, klsym.explain(loss)))
    assert {**of_found, "terms": None} == {**of_wanted, "terms": None}  # in another order
    assert "E[..] is the mean over samples" in " ".join(str(found).split())


def test_numbers_of_a_formula_are_printed_as_typed() -> None:
    answer = str(klsym.explain(r"-\mathbb{E}[A \log\pi_\theta(a|s)] + 0.04\, \mathbb{E}[k_3]"))
    assert "0.04*k3 - A*log_q" in answer and "/25" not in answer
    assert "k3/3" in str(klsym.explain(r"\frac{1}{3} k_3"))


def test_code_is_read_as_code() -> None:
    codes = (
        "loss = -(logp*adv).mean()", "π_θ / π_θ_old * A", "-ρ * A", "β*KL(π||π_ref)",
        "mask = a | b\nmask(c|d)", "k3", "pi = exp(logp); -pi*A", "-(π/π_old)*A",
    )  # fmt: skip
    assert [code for code in codes if is_formula_of_papers(code)] == []


def test_comparisons_and_measurements_read_it() -> None:
    assert klsym.compare("-log π(a|s) A", "-A*logp").to_json()["expected_gradient"]["same"] is True
    pytest.importorskip("torch")
    assert klsym.measure("-log π_θ(a|s) A").to_json()["multiples"] == {"policy-gradient": -1.0}
