"""Code over the whole vocabulary is read as exact expectations, with the value and slope of PyTorch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

from klsym import explain
from klsym.errors import UsageError
from klsym.language.expressions import log_p, log_q, unfold
from klsym.language.spellings import read_loss
from klsym.language.sums import OverVocabulary

torch = pytest.importorskip("torch")
F, KLDivLoss = torch.nn.functional, torch.nn.KLDivLoss
QLOG, PLOG = "F.log_softmax(student_logits, dim=-1)", "F.log_softmax(teacher_logits, dim=-1)"
Q, P = "F.softmax(student_logits, -1)", "F.softmax(teacher_logits, -1)"


def mix(s: Any, t: Any) -> Any:
    q, p = F.softmax(s, -1), F.softmax(t, -1)
    m = (q + p) / 2
    return (q * (q.log() - m.log())).sum() / 2 + (p * (p.log() - m.log())).sum() / 2


def mix_weighted(s: Any, t: Any) -> Any:
    q, p = F.softmax(s, -1), F.softmax(t, -1)
    m = 0.1 * p + 0.9 * q
    return 0.1 * (p * (p.log() - m.log())).sum() + 0.9 * (q * (q.log() - m.log())).sum()


READ: list[tuple[str, Callable[[Any, Any], Any]]] = [  # code, and the same as a function of both logits
    (f"q = {QLOG}; p = {PLOG}; (q.exp()*(q - p)).sum(-1)",
     lambda s, t: (F.softmax(s, -1) * (F.log_softmax(s, -1) - F.log_softmax(t, -1))).sum()),
    (f"F.kl_div({QLOG}, {P}, reduction='sum')",
     lambda s, t: F.kl_div(F.log_softmax(s, -1), F.softmax(t, -1), reduction="sum")),
    (f"F.kl_div({QLOG}, {PLOG}, reduction='none', log_target=True).sum(-1)",
     lambda s, t: F.kl_div(F.log_softmax(s, -1), F.log_softmax(t, -1), reduction="sum", log_target=True)),
    ("nn.KLDivLoss(reduction='batchmean')(F.log_softmax(student_logits, -1), F.softmax(teacher_logits, -1))",
     lambda s, t: KLDivLoss(reduction="sum")(F.log_softmax(s, -1), F.softmax(t, -1))),
    (f"f = nn.KLDivLoss(reduction='batchmean'); f({QLOG}, {P})*2**2",
     lambda s, t: 4 * F.kl_div(F.log_softmax(s, -1), F.softmax(t, -1), reduction="sum")),
    (f"s = {Q}; t = {P}\nF.kl_div(s, t, reduction='sum')",
     lambda s, t: F.kl_div(F.softmax(s, -1), F.softmax(t, -1), reduction="sum")),
    (f"-({P}*{QLOG}).sum(-1)", lambda s, t: -(F.softmax(t, -1) * F.log_softmax(s, -1)).sum()),
    (f"q = {QLOG}; entropy = -(q.exp()*q).sum(-1); loss = -0.01*entropy",
     lambda s, t: 0.01 * (F.softmax(s, -1) * F.log_softmax(s, -1)).sum()),
    (f"t = {P}; s = {Q}; m = (t + s)/2; a = t.log() - m.log()\n(t*a + s*(s.log() - m.log())).sum(-1)/2", mix),
    (f"({QLOG} - {PLOG}).sum(-1)", lambda s, t: (F.log_softmax(s, -1) - F.log_softmax(t, -1)).sum()),
    (f"-({Q}**2).sum(-1)", lambda s, t: -(F.softmax(s, -1) ** 2).sum()),
    ("(teacher_probs*student_log_probs).sum(-1)",
     lambda s, t: (F.softmax(t, -1) * F.log_softmax(s, -1)).sum()),
    ("entropy = -(probs * log_probs).sum()\nloss = 0\nloss -= 0.1*entropy",
     lambda s, t: 0.1 * (F.softmax(s, -1) * F.log_softmax(s, -1)).sum()),
    ("(exp(log_p)*(log_p - log_q)).sum(-1)",
     lambda s, t: F.kl_div(F.log_softmax(s, -1), F.softmax(t, -1), reduction="sum")),
    ("(q * (q.log() - p.log())).sum(-1)",
     lambda s, t: F.kl_div(F.log_softmax(t, -1), F.softmax(s, -1), reduction="sum")),
    ("-(soft_label * (log(prob_data) - log(soft_label))).sum()",
     lambda s, t: F.kl_div(F.log_softmax(s, -1), F.softmax(t, -1), reduction="sum")),
    ("a = dist.probs; tf.reduce_sum(a*tf.log(a + 1e-8), axis=1, keep_dims=True)",
     lambda s, t: (F.softmax(s, -1) * F.log_softmax(s, -1)).sum()),
    ("loss -= soft_label*(log(prob_data) - log(soft_label))",
     lambda s, t: F.kl_div(F.log_softmax(s, -1), F.softmax(t, -1), reduction="sum")),
    ("pi*torch.log(pi/pi_ref)",
     lambda s, t: F.kl_div(F.log_softmax(t, -1), F.softmax(s, -1), reduction="sum")),
    ("(target_probs*(target_probs.log() - probs.log())).sum(-1)",
     lambda s, t: F.kl_div(F.log_softmax(s, -1), F.softmax(t, -1), reduction="sum")),
    ("M = 0.5*(P + Q); 0.5*KL(P||M) + 0.5*KL(Q||M)", mix),
    ("M = 0.5*(S + T)\nloss = 0.5*(T*(T/M).log()).sum(-1) + 0.5*(S*(S/M).log()).sum(-1)", mix),
    ("M = 0.1*T + 0.9*S; 0.1*KL(T||M) + 0.9*KL(S||M)", mix_weighted),
    ("m = (student_probs + teacher_probs)/2; (D_KL(student_probs||m) + D_KL(teacher_probs||m))/2", mix),
    ("M = (P + Q)/2; F.kl_div(M.log(), P, reduction='sum')/2 + F.kl_div(M.log(), Q, reduction='sum')/2", mix),
    ("KL(P||Q)", lambda s, t: F.kl_div(F.log_softmax(s, -1), F.softmax(t, -1), reduction="sum")),
    ("KL(S||T)", lambda s, t: F.kl_div(F.log_softmax(t, -1), F.softmax(s, -1), reduction="sum")),
    ("F.cross_entropy(student_logits, soft_targets)", lambda s, t: F.cross_entropy(s, F.softmax(t, -1))),
    ("F.nll_loss(F.log_softmax(student_logits, -1), teacher_probs)",
     lambda s, t: F.cross_entropy(s, F.softmax(t, -1))),
    (f"p = {P}\n-p.detach()*F.log_softmax(outputs, 1)", lambda s, t: F.cross_entropy(s, F.softmax(t, -1))),
]  # fmt: skip
REFUSED = {
    "KL(q||m)/2 + KL(p||m)/2": r"KL of the unknown 'm'.*`m = 0.5\*\(p \+ q\)",
    "KL(p||M)": "KL of the unknown 'M'",
    "M = 0.5*(p + q); KL(M||M)": "KL is of two different policies",
    "M = p - q; KL(p||M)": "KL is of two different policies",
    "KL(P||x)": "KL is of two different policies",
    "S*k1/M.log()": "unknown name 'S'",
    "P*k1": "unknown name 'P'",
    "student_logits - teacher_logits": "logits outside softmax",
    "F.log_softmax(x, -1)": "'x', the logits of an unknown policy",
    "out = F.softmax(x['out'], 1); out.sum(-1)": "unknown policy",
    "(F.softmax(outputs_kd, -1)*k1).sum(-1)": "unknown policy",
    f"F.kl_div(F.log_softmax(student_logits/2, -1), {PLOG}, log_target=True)": "different temperatures",
    f"F.kl_div({QLOG}, teacher_logits)": "kl_div of other arguments",
    f"F.kl_div({QLOG}, {QLOG}, log_target=True)": "kl_div of other arguments",
    f"{Q}.gather(-1, indices)": "gather at unknown words.*token_ids or labels",
    f"{Q}.gather(-1, topk_ids)": "gather at unknown words",
    f"p = {P}.gather(-1, ids); F.kl_div({QLOG}.gather(-1, ids), p)": "kl_div beside gather",
    "torch.gather(adv, -1, ids)": "gather of a value that is not of every word",
    "torch.logsumexp(student_logits, -1)": "klsym audit runs functions",
    "(probs*log_probs*advantages).sum(-1)": "'probs' is a probability",
    "(probs*log_probs).mean()": "'probs' is a probability",
    "-(probs*log_probs).sum(-1) - log_probs*A": "averaged in different ways|drawn word",
    "f = nn.KLDivLoss(); f(logp)": "kl_div without its argument target",
    "F.log_softmax(student_logits, -1) + F.log_softmax(new_logits, -1)": r"would both be read as log_q\[v\]",
}


def evaluate(e: Any, student: np.ndarray, teacher: np.ndarray) -> float:
    """Return the value of an expression with all that differs between words inside full(..)."""
    logs = {log: x - np.log(np.sum(np.exp(x))) for log, x in ((log_q, student), (log_p, teacher))}

    def sum_words(x: Any) -> Any:
        each = sympy.lambdify([*logs], unfold(x.args[0]))(*logs.values())
        return sympy.Float(float(np.sum(np.exp(logs[log_q]) * each)))

    return float(e.xreplace({x: sum_words(x) for x in e.atoms(OverVocabulary)}))


@pytest.mark.parametrize(("typed", "code"), READ, ids=[row[0][:50] for row in READ])
def test_the_reading_has_the_value_and_slope_of_the_code(typed: str, code: Callable[[Any, Any], Any]) -> None:
    e = read_loss(typed).expression
    numbers = np.random.default_rng(0)
    student, teacher = numbers.normal(size=5), numbers.normal(size=5)
    s = torch.tensor(student, requires_grad=True)
    value = code(s, torch.tensor(teacher))
    value.backward()
    assert evaluate(e, student, teacher) == pytest.approx(float(value), rel=1e-9)
    for word, step in enumerate(1e-6 * np.eye(5)):
        moved = [evaluate(e, student + sign * step, teacher) for sign in (1, -1)]
        assert (moved[0] - moved[1]) / 2e-6 == pytest.approx(float(s.grad[word]), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize(
    ("typed", "grammar"),
    [
        ("F.log_softmax(logits, -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)", "log_q"),
        ("-torch.gather(F.log_softmax(ref_model(x).logits, -1), dim=-1, index=ids)", "-log_p"),
        ("F.softmax(student_logits.detach(), -1).gather(-1, ids)", "exp(sg(log_q))"),
        ("teacher = F.log_softmax(x['out'], -1); teacher.gather(-1, ids)", "log_p"),
    ],
)
def test_a_gathered_value_is_that_of_the_drawn_word(typed: str, grammar: str) -> None:
    assert str(read_loss(typed).expression) == grammar


def test_a_mean_over_the_words_leaves_their_number_out() -> None:
    reading = read_loss(f"({QLOG} - {PLOG}).mean(-1)")
    assert "factor-left-out" in [note.code for note in reading.notes]
    assert reading.expression == read_loss(f"({QLOG} - {PLOG}).sum(-1)").expression


def test_a_temperature_is_said() -> None:
    code = "student_logits = student_logits/tau; p = F.softmax(teacher_logits/tau, -1)"
    loss = f"{code}; -(p*{QLOG}).sum(-1)"
    [note] = [note for note in read_loss(loss).notes if note.code == "temperature-read"]
    assert note.values["temperature"] == "tau"


SOFT = (
    "F.kl_div(F.log_softmax(student_logits/T, dim=1), F.softmax(teacher_logits/T, dim=1),"
    " reduction='batchmean')"
)
TWO_TEMPERATURES = {
    f"soft = {SOFT}*T*T\nhard = F.cross_entropy(student_logits, labels)\nloss = alpha*soft + beta*hard":
        ["alpha*full_kl(p, q)*temperature**2", "-log_q"],
    f"def f(outputs, labels, teacher_out, params):\n    T = params.temperature\n    return {SOFT}*T**2"
    " + F.cross_entropy(student_logits, labels)": ["full_kl(p, q)*temperature**2", "-log_q"],
    f"kd = {SOFT}\nlp = F.log_softmax(student_logits, -1).gather(-1, actions)\nloss = kd - (lp*adv).mean()":
        ["full_kl(p, q)", "-A*log_q"],
}  # fmt: skip


@pytest.mark.parametrize(("code", "losses"), TWO_TEMPERATURES.items(), ids=["kd", "function", "rl"])
def test_two_temperatures_are_explained_term_by_term(code: str, losses: list[str]) -> None:
    with pytest.raises(UsageError, match="explain each term by itself: klsym explain ") as caught:
        read_loss(code)
    assert ("arXiv:1503.02531" in str(caught.value)) == ("T*T" in code or "T**2" in code)
    words = shlex.split(str(caught.value).partition("itself: ")[2].replace(";", " ; "))
    commands = re.findall(r"klsym explain (--sampling off-policy -- )?('[^']*')", str(caught.value))
    assert words[:2] == ["klsym", "explain"] and len(commands) == 2
    for (options, typed), loss in zip(commands, losses, strict=True):
        answer = explain(typed.strip("'"), sampling="off-policy" if options else None)
        assert str(answer).lstrip().startswith(loss) or f"read as  {loss}" in str(answer)


def test_no_command_is_printed_where_a_name_is_assigned_twice() -> None:
    with pytest.raises(UsageError, match=r"explain each term by itself$"):
        read_loss(f"loss = {SOFT}\nloss = loss + F.cross_entropy(student_logits, labels)")


@pytest.mark.parametrize(("code", "squared"), [(f"{SOFT}*T**2", True), (f"{SOFT}*T", False), (SOFT, False)])
def test_the_square_of_the_temperature_is_said(code: str, squared: bool) -> None:
    codes = [note.code for note in read_loss(code).notes]
    assert ("temperature-squared" in codes) == squared and "temperature-read" in codes


def test_the_gradient_of_soft_targets_falls_with_the_square_of_the_temperature() -> None:
    student = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([0.2, 0.7, -1.0], dtype=torch.float64)

    def differentiate(temperature: float) -> Any:
        logs, target = F.log_softmax(student / temperature, -1), F.softmax(teacher / temperature, -1)
        return torch.autograd.grad(F.kl_div(logs, target, reduction="sum"), student)[0]

    assert (differentiate(400.0) / differentiate(200.0)).tolist() == pytest.approx([0.25] * 3, rel=0.02)
    assert (differentiate(2.0) / differentiate(1.0)).tolist() != pytest.approx([0.25] * 3, rel=0.02)


@pytest.mark.parametrize(("typed", "words"), REFUSED.items(), ids=[typed[:50] for typed in REFUSED])
def test_refused(typed: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_loss(typed)
    assert "\n" not in str(caught.value)
