"""What is read of code beside what is measured: the gradient that is printed is the one that the code has."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch")

from klsym.api import explain
from klsym.audit.audits import AuditRun
from klsym.audit.binding import bind
from klsym.audit.reading import read
from klsym.audit.report import Audit
from klsym.cli import main
from klsym.confirmed.both import Confirmed, MeasuredCode, audit_and_measure
from klsym.confirmed.printed import compare_with_printed
from klsym.language.parser import parse
from klsym.measure.measurement import Measurement
from klsym.measure.measuring import measure

FILE = "tests/support/audits/measured.py"
JAX = "tests/support/audits/measured_jax.py"
NUMPY = "tests/support/audits/measured_numpy.py"
EXACT = 1e-9
READ: dict[str, tuple[dict[str, Any], str, dict[str, float]]] = {
    "mean_k3": ({}, "k3", {"E_mu[k3/T]": 1.0}),
    "k2_of_the_batch": ({"sampling": "off-policy"}, "k2", {"E_mu[k2/N]": 1.0}),
    "k1_of_each": ({"sampling": "off-policy"}, "k1", {"sampler-kl": -1.0}),
    "weighted_k1": ({}, "rho*k1", {"next-token-reverse-kl": 1.0}),
    "clipped": ({}, "-min(rho*A, A*clip(rho, 4/5, 6/5))", {}),
    "grpo": ({}, "beta*k3 - min(rho*A, A*clip(rho, 1 - eps, eps + 1))", {}),
    "geometric": ({}, "-A*exp(whole(log_q - log_mu)/T)", {"E_mu[R*exp(seqmean(log_q - log_mu))]": -1.0}),
    "full_kl": ({"sampling": "off-policy"}, "full(k1)", {"next-token-reverse-kl": 1.0}),
    "forward_kl": ({}, "full(-k1*r)", {"next-token-forward-kl/N": 1.0}),
    "without_a_mask": ({"sampling": "off-policy"}, "full(k1)", {"next-token-reverse-kl": 0.5}),
    "kl_reward": ({"use": "reward"}, "k1", {"reverse-kl": 1.0}),
}
MEASURED = {  # of what cannot be read: the kind, and the multiples, by hand
    "sorted_tokens": ({}, "no-objective", {}),
    "normalised": ({}, "named", {"E_mu[centred(R)/(std_1(R) + 1e-6)*log_q]": -1.0}),
    "reward_through_cumsum": ({}, "named", {"reverse-kl": 1.0}),
    "through_cumsum": ({"sampling": "off-policy"}, "named", {"E_mu[k2]": 1.0}),
    "looped": ({"sampling": "off-policy"}, "named", {"E_mu[k2]": 1.0}),
    "scattered": ({"sampling": "off-policy"}, "named", {"E_mu[k2]": 1.0}),
}
OFF = {"sampling": "off-policy"}
READ_OFF_POLICY = {  # the ratio is 1 on-policy, where nothing is cut off
    "clipped": (FILE, OFF, "-min(rho*A, A*clip(rho, 4/5, 6/5))"),
    "grpo": (FILE, OFF, "beta*k3 - min(rho*A, A*clip(rho, 1 - eps, eps + 1))"),
    "clipped in JAX": (JAX, OFF, "-min(rho*A, A*min(6/5, max(4/5, rho)))"),
    "k3_of_tokens in JAX": (JAX, OFF, "k3"),
}


def run(name: str, options: dict[str, Any]) -> Confirmed:
    return audit_and_measure(f"{FILE}:{name}", **options)


@pytest.mark.parametrize("name", READ)
def test_the_printed_gradient_is_that_of_the_code(name: str) -> None:
    options, expression, multiples = READ[name]
    both = run(name, options)
    assert both.read is not None and both.read.expression == expression
    assert both.measured is not None and {2} <= {*both.agreements} <= {1, 2}
    assert max(x.gap for x in both.agreements.values()) < EXACT and both.agrees is True and not both.differs
    assert both.measured.multiples == multiples


@pytest.mark.parametrize("name", READ_OFF_POLICY)
def test_it_is_off_policy_and_in_jax(name: str) -> None:
    file, options, expression = READ_OFF_POLICY[name]
    if file == JAX:
        pytest.importorskip("jax")
    both = audit_and_measure(f"{file}:{name.partition(' ')[0]}", **options)
    assert both.read is not None and both.read.expression == expression and both.agreements
    assert max(x.gap for x in both.agreements.values()) < EXACT and both.agrees is True


def test_jax_that_is_not_read_is_measured() -> None:
    pytest.importorskip("jax")
    both = audit_and_measure(f"{JAX}:sorted_tokens")
    assert both.read is None and "sort is not read" in both.unread
    assert both.measured is not None and both.measured.kind == "no-objective"


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
    measured = measure(per_sequence, sampling="off-policy")
    world, gradient = measured.worlds[0], measured.gradients[0]
    return compare_with_printed(verdict, parse(formula), world, gradient, parameters={})


def test_the_right_reading_agrees() -> None:
    right = compare("k3", RIGHT)
    assert right.gap < EXACT and right.factor == pytest.approx(1)


@pytest.mark.parametrize("what", MISREAD)
def test_a_misreading_is_noticed(what: str) -> None:
    formula, changed = MISREAD[what]
    wrong = compare(formula, {**RIGHT, **changed})
    assert wrong.gap > 1e-3 or abs(wrong.factor - 1) > 1e-3


PLANTED: dict[str, list[tuple[str, dict[str, Any]]]] = {  # other readings of the functions that are read
    "mean_k3": [("k2", {}), ("k3", {"aggregate": "sum"}), ("-k3", {}), ("2*k3", {})],
    "k2_of_the_batch": [("k3", {}), ("k2", {"aggregate": "mean"}), ("2*k2", {})],
    "k1_of_each": [("k2", {}), ("-k1", {}), ("2*k1", {})],
    "weighted_k1": [
        ("k1", {}), ("sg(rho)*k3", {}), ("rho*k1", {"level": "sequence", "aggregate": None}),
        ("rho*k1", {"aggregate": "mean"}),
    ],
    "clipped": [
        ("-rho*A", OFF), ("-min(rho*A, A*clip(rho, 9/10, 11/10))", OFF),
        ("min(rho*A, A*clip(rho, 4/5, 6/5))", OFF),
    ],
    "geometric": [("-A*rho", {}), ("-A*exp(2*whole(log_q - log_mu)/T)", {})],
    "full_kl": [("full(-k1*r)", {}), ("k2", {})],
    "forward_kl": [("full(k1)", {}), ("full(-k1*r)", {"aggregate": "sum"})],
    "kl_reward": [("k2", {}), ("-k1", {}), ("k3", {})],
}  # fmt: skip


@cache
def measure_once(name: str, is_off_policy: bool) -> tuple[MeasuredCode, Audit, Measurement]:
    """A function as it is read, and as it is measured."""
    given = {
        "sampling": None,
        "use": "loss",
        "level": None,
        **READ[name][0],
        **(OFF if is_off_policy else {}),
    }
    code = read(f"{FILE}:{name}", None)
    audit = AuditRun(code, bind(code, {}, {}), None, given)
    answer = audit.audit({}, {})
    measuring = MeasuredCode(audit, answer)
    return measuring, answer, measuring.measure()


def plant(name: str, formula: str, changed: dict[str, Any]) -> Confirmed:
    """The answer for a function, were it read as another formula or with other options."""
    measuring, answer, measured = measure_once(name, changed is OFF)
    used = {option: getattr(answer.verdict.setting, option)
            for option in ("sampling", "use", "level", "aggregate")}  # fmt: skip
    options = {option: value for option, value in {**used, **changed}.items() if value}
    tokens = replace(answer.tokens, loss=parse(formula))
    misread = replace(answer, verdict=explain(formula, **options), tokens=tokens)
    return Confirmed(misread, measured=measured, agreements=measuring.compare_groups(misread, measured))


def test_a_mean_over_the_batch_that_is_read_as_one_over_each_sequence_differs() -> None:
    measuring, answer, _ = measure_once("k2_of_the_batch", False)
    right = measuring.run.setting
    try:
        measuring.run.setting = measuring.setting = {**right, "aggregate": "mean"}
        measured = measuring.measure()
        verdict = explain("k2", sampling="off-policy", level="token", aggregate="mean")
        misread = replace(answer, verdict=verdict)
        agreements = measuring.compare_groups(misread, measured)
    finally:
        measuring.run.setting = measuring.setting = right
    assert agreements[1].gap < EXACT and agreements[2].gap > 1e-3  # of one sample they are the same
    assert Confirmed(misread, measured=measured, agreements=agreements).differs


@pytest.mark.parametrize(
    ("name", "formula", "changed"), [(name, *wrong) for name, planted in PLANTED.items() for wrong in planted]
)
def test_a_planted_misreading_of_real_code_differs(name: str, formula: str, changed: dict[str, Any]) -> None:
    wrong = plant(name, formula, changed)
    assert wrong.differs and wrong.agrees is False
    if name not in ("clipped", "grpo"):  # on-policy as it was read
        assert not plant(name, READ[name][1], {}).differs


def test_a_difference_leaves_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    from klsym.confirmed import both as module
    from klsym.confirmed.printed import Agreement

    for gap, factor, differs in ((0.2, 1.0, True), (0.0, 2.0, True), (0.0, -1.0, True), (1e-12, 1.0, False)):
        agreement = Agreement(gap, factor)
        monkeypatch.setattr(module, "compare_with_printed", lambda *_, x=agreement, **__: x)
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


@pytest.mark.parametrize("options", [{}, {"use": "reward"}])
def test_numpy_is_not_measured(options: dict[str, Any]) -> None:
    both = audit_and_measure(f"{NUMPY}:k3_of_tokens", **options)
    assert both.measured is None and both.agrees is None and not both.differs
    assert "NumPy has no gradient" in both.unmeasured
    assert (both.read is None) is (not options)  # a reward needs none


def test_the_command_refuses_what_is_neither_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for target, reason in ((f"{FILE}:of_pairs", "a loss of pairs"), (f"{NUMPY}:k3_of_tokens", "no gradient")):
        assert main(["audit", target]) == 2
        out, err = capsys.readouterr()
        assert not out and reason in err and err.count("\n") == 1


def test_the_command_prints_a_line_of_json_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["looped", "scattered", "mean_k3"]
    assert main(["audit", *(f"{FILE}:{name}" for name in names), "--sampling", "off-policy", "--json"]) == 1
    looped, scattered, read = map(json.loads, capsys.readouterr().out.splitlines())
    for answer in (looped, scattered):
        assert answer["read"] is None and answer["error"].endswith(answer["unread"]) and answer["unread"]
        assert answer["measured"]["multiples"] == {"E_mu[k2]": 1.0} and answer["measured"]["agrees"] is None
    assert (read["read"], read["unread"], read["unmeasured"]) == ("k3", "", "")
    assert read["measured"]["agrees"] is True and read["measured"]["multiples"] == {"E_mu[k3/T]": 1.0}
    assert read["assumed"] and all(isinstance(note, str) for note in read["assumed"])


def test_the_command_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", f"{FILE}:mean_k3", "--full"]) == 1  # KL007: it has no objective
    text = capsys.readouterr().out
    assert "measured  has at each theta the gradient of E_mu[k3/T]" in text and "proved" in text
    assert main(["audit", f"{FILE}:sorted_tokens"]) == 0
    text = capsys.readouterr().out
    assert "No objective: its" in text and "not read" in text and "no theorem" in text


@pytest.mark.parametrize(("expected", "code"), [("forward-kl", 1), ("reverse-kl", 0)])
def test_an_expectation_of_what_is_only_measured(
    expected: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", f"{FILE}:reward_through_cumsum", f"--expect={expected}", "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["read"] is None and "cumsum" in answer["unread"] and answer["unmeasured"] == ""
    assert answer["measured"]["multiples"] == {"reverse-kl": 1.0} and answer["measured"]["agrees"] is None
    assert answer["assumed"] == ["reads logp = log_q, ref_logp = log_p, mask = mask; --map changes it"]


# ---------------------------------------------------------------------------- a temperature in the code
DISTILLED = """import torch.nn.functional as F
def kd(student_logits, teacher_logits, temperature={}):
    t = F.softmax(teacher_logits / temperature, dim=-1)
    s = F.log_softmax(student_logits / temperature, dim=-1)
    return (temperature**2 * (t * (t.log() - s)).sum(-1)).mean()
"""


@pytest.mark.parametrize("temperature", [2.0, 0.5])
def test_the_policies_at_a_temperature_are_named_and_those_without_are_measured(
    tmp_path: Any, temperature: float
) -> None:
    (tmp_path / "kd.py").write_text(DISTILLED.format(temperature), encoding="utf-8")
    both = audit_and_measure(f"{tmp_path}/kd.py:kd")
    assert both.read is not None and both.measured is not None and both.untempered is not None
    assert [*both.measured.multiples] == ["next-token-forward-kl"] and both.agrees
    assert both.untempered.kind == "no-objective" and not both.untempered.multiples
    alone = measure(f"{tmp_path}/kd.py:kd", fixed_length=True)
    assert alone.kind == both.untempered.kind
    text = " ".join(str(both.answer).split())
    assert "q and p are the policies at the temperature of the code" in text
    assert "measured of those at temperature 1: has no objective" in text
    assert both.to_json()["untempered"]["kind"] == "no-objective"


def test_without_a_temperature_no_policy_is_another_one(tmp_path: Any) -> None:
    (tmp_path / "kd.py").write_text(DISTILLED.format(1.0), encoding="utf-8")
    both = audit_and_measure(f"{tmp_path}/kd.py:kd")
    assert both.read is not None and both.untempered is None and not both.read.temperatures
    assert "temperature of the code" not in str(both.answer)
    assert both.to_json()["untempered"] is None
