r"""Formulas in LaTeX that could be misread are refused in one line that says what to type."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import klsym
from klsym.engine.answers.named_losses import read_question
from klsym.errors import UsageError
from klsym.language.typeset.tokens import is_latex
from klsym.language.typeset.translating import translate

REFUSED = {
    # two samples, two tokens or two steps, which would be read as one
    r"-\log\sigma(\beta\log\frac{\pi_\theta(y_w|x)}{\pi_{ref}(y_w|x)} - \beta\log\frac{\pi_\theta(y_l|x)}"
    r"{\pi_{ref}(y_l|x)})": "klsym reads the loss of one sample",
    r"(R_i - R_j) \log\pi_\theta": "klsym reads the loss of one sample",
    r"(R(y_i,x) - \frac{1}{k-1}\sum_{j\neq i} R(y_j,x)) \log\pi_\theta": r"\frac{1}{G}\sum_i",
    r"\log\pi_\theta(a_t|s_t)(r_t + \gamma V(s_{t+1}) - V(s_t))": "klsym reads the loss of one sample",
    r"V(s_{t+1}) \log\pi_\theta": "V or V_next",
    r"\tau_{i,t} \log\pi_\theta": "type what it stands for",
    # letters with two meanings
    r"r_t \cdot A_t": r"r_t(\theta) for the ratio",
    r"-\min(r A, \text{clip}(r, 1-\epsilon, 1+\epsilon) A)": r"type r_t(\theta) for the ratio",
    r"r_t(\theta_{old}) A": "or of theta",
    r"r(x) \log\pi_\theta": r"r_t(\theta) for the ratio",
    r"\rho(s) A": "type what it stands for",
    r"G \log\pi_\theta": "type R for a return",
    r"\pi_i A": r"type \pi_\theta, \pi_{ref} or \pi_{old}",
    r"\frac{\pi_{gold}}{\pi_\theta}": r"type \pi_\theta, \pi_{ref} or \pi_{old}",
    r"\log\pi_\theta^\beta": r"type \pi_\theta, \pi_{ref} or \pi_{old}",
    r"\log\pi(a|s,\theta_{old})": r"type \pi_\theta, \pi_{ref} or \pi_{old}",
    r"\log\pi_\theta(a|s,\theta_{old})": r"type \pi_\theta, \pi_{ref} or \pi_{old}",
    r"\frac{\pi_\theta}{\pi_\theta} A": "a policy to itself",
    r"-\pi_\theta(a|s) A": "full(x) the mean of x over all actions",
    r"R - \bar{R}": "centred(R)",
    r"\frac{R - \text{mean}(R)}{\text{std}(R)} \log\pi_\theta": "normalised(R)",
    r"\tilde{A} \log\pi_\theta": "the letter alone",
    # what stands behind a sign
    r"\log \pi_\theta / A": r"\log\frac{x}{y}",
    r"A/2\beta \log\pi_\theta": r"\frac{..}{..}",
    r"\log(r)^2": r"\log^2 x",
    r"\exp A \log\pi_\theta": "type exp(..)",
    r"\sqrt[3]{r}": "x^{1/3}",
    r"x^{2}_{i} A": "use brackets",
    # gradients
    r"\nabla_\theta J = \mathbb{E}[\nabla_\theta \log \pi_\theta(a|s) A(s,a)]": "'-sg(A)*log_q' has it",
    r"\nabla_\theta L = \mathbb{E}[A \nabla_\theta \log \pi_\theta(a|s)]": "'sg(A)*log_q' has it",
    r"\mathbb{E}[\sum_t \nabla_\theta \log \pi_\theta(a_t|s_t) G_t]": "token --aggregate sum -- '-sg(",
    r"\nabla_\theta \mathbb{E}[R]": r"type the loss without \nabla",
    r"\nabla_\theta \pi_\theta(a|s) A": r"type the loss without \nabla",
    r"\max_{\pi_\theta} \mathbb{E}[R]": r"type - for \max",
    # averages
    r"\mathbb{E}_{y\sim\pi_\theta}[R(x,y) - \beta\log\frac{\pi_\theta(y|x)}{\pi_{ref}(y|x)}]": "--use reward",
    r"J(\theta) = \mathbb{E}_{\tau\sim p_\theta(\tau)}[R(\tau)]": "type 'R' --use reward",
    r"\mathbb{E}_{\pi_{ref}}[\log\pi_\theta]": "full_kl(p, q)",
    r"\mathbb{E}_{s\sim d^{\pi_{old}}, a\sim\pi_\theta}[A \log\pi_\theta]": "explain each by itself",
    r"\mathbb{E}_{p}\left[\log\frac{p(x)}{q(x)}\right]": "full_kl(p, q)",
    r"\mathbb{E}_{q}[\log\frac{q}{p}]": "type 'k1' --use reward",
    r"J(\theta) = \mathbb{E}_{q}[R]": "type 'R' --use reward",
    r"\mathbb{E}_{\pi_\theta}[-A\log\pi_\theta] + \mathbb{E}_{\mu}[\log\pi_\theta]": "explain each by itself",
    r"-\left(\mathbb{E}_{y\sim\pi_\theta}[r(x,y)] - \beta D_{KL}[\pi_\theta||\pi_{ref}]\right)":
        "type 'R - beta*k1' --use reward",
    r"J = \mathbb{E}_{y\sim\pi_\theta}[2(r(x,y) - \beta KL(\pi_\theta||\pi_{ref}))]":
        "type '2*R - 2*beta*k1' --use reward",
    r"J = \mathbb{E}_{y\sim\pi_\theta}[\log\pi_{ref}(y|x)]": "type '-log_p' --use reward",
    r"J = \mathbb{E}_{y\sim\pi_\theta}[R(1-\beta\log\pi_\theta)]": "type each term as code computes it",
    r"L = \mathbb{E}_{\pi_\theta}[-R\log\pi_\theta] + \beta \mathbb{E}_{\pi_\theta}[\log\frac{\pi_\theta}"
    r"{\pi_{ref}}]": "type each term as code computes it",
    r"L(\theta) = -\mathbb{E}_{\pi_\theta}[A(s,a)]": "type 'A' --use reward",
    r"J = \mathbb{E}[R]": "type 'R' --use reward",
    r"\mathbb{E}_t A \log\pi_\theta": r"type \mathbb{E}[..]",
    r"\exp(\mathbb{E}[A])": r"type \mathbb{E}[..] around the whole formula",
    r"A \mathbb{E}[\log\pi_\theta]": "type it inside",
    r"\mathbb{E}[A\log\pi_\theta] - \log\pi_\theta": "type it inside",
    r"\sum_i A_i \log\pi_\theta(y_i|x)": r"\frac{1}{G}\sum_i",
    r"\frac{1}{N}\sum_{i=1}^G A_i \log\pi_\theta(y_i|x)": r"\frac{1}{G}\sum_i",
    r"\sum_{i=1}^{|B|} A_i \log\pi_\theta(y_i|x)": r"\frac{1}{G}\sum_i",
    r"\sum_a \pi_\theta(a|s) Q(s,a)": r"type -A\log\pi_\theta(a|s)",
    r"\sum_a \pi_\theta(a|s) x_a \pi_\theta(a|s)": "type full(x)",
    r"\frac{1}{N} \sum_{i=1}^N \pi_\theta(y_i|x) \log\pi_\theta(y_i|x)": "type a ratio",
    r"\sum_{i=1}^{K} p_i \log\frac{p_i}{q_i}": r"\frac{1}{G}\sum_i",
    r"\sum_t \log\pi_\theta(a_t|s_t) - \beta\log\frac{\pi_\theta}{\pi_{ref}}": "explain each",
    r"\sum_t A_t \log\pi_\theta(y|x)": r"\pi_\theta(y_t|x, y_{<t})",
    r"\sum_t R_t \log\pi_\theta(a_t|s_t)": "G_t for the rewards from a token on",
    r"\sum_t Q(s_t,a_t) \log\pi_\theta(a_t|s_t)": "type A, G_t",
    r"\sum_{t=0}^T \gamma^t r_t": "disc(gamma, R)",
    r"\prod_t \pi_\theta": r"\sum_t \log\pi_\theta",
    r"\frac{1}{T} A \log\pi_\theta": r"\frac{1}{T}\sum_t",
    # what is no formula of one loss
    r"L = \mathbb{E}[A] = \log\pi_\theta": "type the last one alone",
    r"A + 1 = \log\pi_\theta": "on the right of = alone",
    r"\begin{cases} A & x \\ 0 & y \end{cases}": "is not the opposite of the first",
    r"\begin{cases} A & A > 0 \\ 0 & A < 0 \end{cases}": "is not the opposite of the first",
    r"\begin{cases} A & A > 0 \\ 0 & A \le 1 \end{cases}": "is not the opposite of the first",
    r"\begin{cases} A & A > 0 \\ 1 & A < -1 \\ 0 & \text{otherwise} \end{cases}": "other than two rows",
    r"-sg(\hat{r}_t(\theta)) A \log\pi_\theta(a|s)": "a ratio with a hat",
    r"-\hat\rho_t A": "a ratio with a hat",
    r"D_{KL}(P \| \pi_{ref})": "type \\pi_\\theta",
    r"\begin{cases} A \\ 0 \end{cases}": "other than two rows",
    r"\begin{cases} A & x \\ 0 & \text{otherwise} \end{cases} \log\pi_\theta(a|s)": "is not read",
    r"\begin{tikzpicture}": "type one formula",
    r"A > \log\pi_\theta": r"\mathbb{1}[A > 0]",
    r"D_{KL}(\pi_\theta)": r"D_{KL}(\pi_\theta \| \pi_{ref})",
    r"D_{KL}(A \| \pi_{ref})": "type \\pi_\\theta, \\pi_{ref} or \\pi_{old}",
    r"\frac{a": "close each bracket|whole formula",
    r"\left( A \right] \log\pi_\theta": "close each bracket",
    r"\frac": "ends too early",
    r"\text{<script>}": "type a name such as clip",
    r"\log \pi_\theta ; \log": "loss grammar|LaTeX command",
    r"\log \pi_\theta é": "type its LaTeX command",
    r"\foo{A}": "'foo' is not read",
    r"-\eta A \log\pi_\theta": "parameters=['eta']",
}  # fmt: skip


@pytest.mark.parametrize(("latex", "hint"), REFUSED.items(), ids=range(len(REFUSED)))
def test_a_formula_that_could_be_misread_is_refused(latex: str, hint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        klsym.explain(latex)
    message = str(refusal.value)
    if hint == "disc(gamma, R)":
        hint = "disc(gamma, R)|G_t|R for the reward"
    assert any(part in message for part in hint.split("|")), message
    assert "\n" not in message and message.isascii()


WORDS = r"""
{ } ( ) [ ] | || , ; & _ ^ + - * / = < > e 1 2 0.5 12 x foo $ ~ ' . : A R r \frac \{ \} \left( \right) \left|
\right| \| \\ \pi \pi_\theta \pi_{old} ^2 _t _{i,t} \theta \hat{A}_t r_t(\theta) \log \exp \min \max \sigma
\text{clip} \mathrm{sg} \mathbb{E} \mathbb{E}_t[ \sum_t \sum_{i=1}^G \frac1G \frac{1}{|o_i|} |o_i| \cdot
\times \nabla_\theta D_{KL} \mathcal{H} \mathbb{1} \begin{cases} \end \underset \sqrt \beta \lambda \tau
\text \mathrm \, \quad (a_t|s_t) (y|x) \sim k_3 \hat \bar \label \tag π θ \x é
"""
PARTS = st.sampled_from(WORDS.split())
TEXTS = (
    st.lists(PARTS, max_size=14).map(" ".join)
    | st.lists(PARTS, max_size=8).map("".join)
    | st.text(max_size=30)
)


@settings(max_examples=600, deadline=None)
@given(TEXTS)
def test_no_text_makes_it_fail(text: str) -> None:
    try:
        translated = translate(text)
    except UsageError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
        return
    assert translated.text.isascii()
    is_latex(text)


@settings(max_examples=150, deadline=None)
@given(st.lists(PARTS, max_size=10).map(lambda parts: r"\log\pi_\theta " + " ".join(parts)))
def test_what_is_translated_is_read_or_refused(text: str) -> None:
    try:
        read_question(text, (), {"sampling": None})
    except UsageError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 3000 + r"\pi", r"\log" * 3000, r"\frac" * 3000, r"{" * 2000 + "A" + "}" * 2000,
        r"\nabla" * 3000, "A^{" * 1000 + "}" * 1000, r"\log\pi" + "/A" * 3000, "|" * 3001 + r"\pi",
        r"\mathrm{KL}(" * 900 + r"\pi" + ")" * 900, r"\sum_t" * 2000, r"\pi" * 30_000, r"\hat{" * 3000,
 r"\underset{a}{" * 900 + "b" + "}" * 900,
    ],
    ids=str.__len__,
)  # fmt: skip
def test_deep_and_long_formulas_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        translate(text)


def test_the_command_for_a_gradient_has_that_gradient() -> None:
    """E[A grad log q] is the gradient of E_q[A]: descending the loss ascends it."""
    with pytest.raises(UsageError) as refusal:
        klsym.explain(r"\nabla_\theta J = \mathbb{E}[\nabla_\theta\log\pi_\theta(a|s) A(s,a)]")
    command = re.search(r"klsym explain (.*) has it", str(refusal.value))
    assert command is not None
    loss = shlex.split(command[1])[-1]
    assert klsym.explain(loss).to_json()["gradient"]["coefficient"] == "-A"
