"""`klsym explain --check` can fail: verdicts with one wrong formula, and the exit code that says so."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
import sympy

from klsym import api as engine
from klsym.cli import main
from klsym.engine.verdicts.verdict import ExpectedValue, TargetReading, Verdict
from klsym.errors import UsageError
from klsym.language.expressions import k1
from klsym.language.messages import Message
from klsym.language.parser import parse
from klsym.numeric.checks import cross_check
from klsym.numeric.checks.cross_check import with_check
from klsym.numeric.checks.field_check import Literal, Printed, check_formulas

pytestmark = pytest.mark.usefixtures("without_copies")

STEP = "(1 + (k1 - {0})/abs(k1 - {0}))/2"  # 1[k1 > bound]
UNDER = "(1 - (k1 + {0})/abs(k1 + {0}))/2"  # 1[k1 < -bound]
PPO = "min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)"
RIGHT = [
    "k3", "sg(rho)*k2", "beta*k1/(1 - lam) + k2*R", "k1/n", "r**64 + k1", "exp(k1/2)", "log(2 + r)", PPO,
    "clip(k1, -10, 10)", "rho*clip(k1, -40, 40)", "clip(k1, 0, 1000)", "clip(k3, -1, 5)", "abs(abs(k1) - 1)",
    "clip(rho, 1, 2)*k1", "max(k1, sg(k1), 0)", "max(k1, sg(k1), 2*k1 - sg(k1))", "clip(k1, lam, beta)",
    "clip(rho, 1 - eps, 1 + eps)*A", "sqrt(r)*abs(k1 - eps)",
]  # fmt: skip


FIELDS_OF = {"h": "score_coefficient", "c": "canonical_coefficient"}  # short names in the tables below

JUDGED: dict[int, tuple[Any, Any]] = {}


@pytest.fixture(autouse=True)
def theorems_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lie beside a theorem is not in it."""
    judge = cross_check.check_theorem

    def once(theorem: Any) -> Any:
        return JUDGED.setdefault(id(theorem), (theorem, None if id(theorem) in JUDGED else judge(theorem)))[1]

    monkeypatch.setattr(cross_check, "check_theorem", once)


def checked(loss: str, sampling: str = "on-policy", **changes: Any) -> dict[str, Any]:
    verdict = engine.explain(loss, sampling=sampling).revise(
        **{FIELDS_OF.get(name, name): value for name, value in changes.items()}
    )
    found = with_check(verdict, parse(loss)).proof.check
    assert found is not None
    return found


@pytest.mark.parametrize("loss", RIGHT)
@pytest.mark.share(3)
def test_right_verdicts_pass(loss: str) -> None:
    """In each setting by turns; where rho is 1 on-policy, off-policy."""
    off = "rho" in loss or RIGHT.index(loss) % 2
    sampling = "off-policy" if off else "on-policy"
    found = checked(loss, sampling)
    assert found["passed"] is True and "FAILED" not in found["text"]


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize("use", ["loss", "reward"])
def test_rewards_and_sequences_pass(use: str, sampling: str) -> None:
    for loss, options in (("rho*k2", {}), ("k1", {"level": "sequence", "aggregate": "mean"})):
        verdict = engine.explain(loss, sampling, use, **options)
        found = with_check(verdict, parse(loss)).proof.check
        assert "literal loss" in found["text"] and found["passed"] is True
        wrong = verdict.revise(canonical_coefficient=f"{verdict.gradient.canonical_text} + k1**2")
        assert with_check(wrong, parse(loss)).proof.check["passed"] is False


@pytest.mark.parametrize(("bound", "sampling"), [(40, "on-policy"), (300, "off-policy")])
def test_what_is_wrong_beyond_a_clamp_alone_is_seen(bound: int, sampling: str) -> None:
    """The coefficient is right between the bounds, and its slope beyond one of them is not 0."""
    parsed = parse(f"clip(k1, -{bound}, {bound})")
    verdict = engine.explain(f"clip(k1, -{bound}, {bound})", sampling)
    assert with_check(verdict, parsed).proof.check["passed"] is True
    weight = "" if sampling == "on-policy" else "/rho"
    for beyond in (STEP.format(bound), UNDER.format(bound)):
        for wrong, place in (
            (
                verdict.revise(canonical_coefficient=f"{verdict.gradient.canonical_text} + {beyond}{weight}"),
                "coefficient",
            ),
            (verdict.revise(score_coefficient=f"{verdict.gradient.score_text} + {beyond}"), "gradient"),
        ):
            found = with_check(wrong, parsed).proof.check
            assert found["passed"] is False and found["text"].startswith("FAILED")
            assert f"in the {place}" in found["text"], beyond


@pytest.mark.parametrize(
    ("loss", "changes"),
    [
        ("k3", {"c": "-2*r"}),
        ("k3", {"h": "-r"}),
        ("k2", {"c": "k1 + lam*k1"}),
        ("k2", {"c": "k1 + undeclared"}),
        ("k2", {"gradient": TargetReading("forward-kl", {"forward-kl": "1"})}),
        ("k2", {"gradient": TargetReading("reverse-kl", {"reverse-kl": "2"})}),
        ("k1", {"c": "k1"}),
        ("k1*R", {"h": "R + 1/100000"}),
        (PPO, {"h": "rho*A"}),
        ("abs(k1)", {"c": "1"}),
    ],
)
@pytest.mark.share(3)
def test_one_wrong_formula_fails(loss: str, changes: dict[str, Any]) -> None:
    verdict = engine.explain(loss, "off-policy" if "rho" in loss else "on-policy")
    found = checked(loss, verdict.setting.sampling, **changes)
    assert found["passed"] is False and found["text"].startswith("FAILED")


TOKENS: dict[str, Any] = {"level": "token"}
OFF = {"sampling": "off-policy"}
FIELDS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("k2", TOKENS, {"h": "k1_past", "c": "k1_now*1001/1000"}),
    ("k1", {**TOKENS, "aggregate": "mean"}, {"h": "1", "c": "1"}),
    ("rho*k3", {**TOKENS, **OFF}, {"h": "k1_now", "c": "k1_now"}),
    ("rho*k3", {**TOKENS, **OFF, "weights": "prefix"}, {"c": "k1_now*s_now"}),
    ("-rho*R", {**TOKENS, **OFF, "weights": "sequence"}, {"h": "-rho*R*s"}),
    ("R - lam*k3", {**TOKENS, "use": "reward"}, {"h": "H_now", "c": "R_now*s_now"}),
    ("A - lam*k1", {**TOKENS, "use": "reward", "credit": "total"}, {"h": "A - lam*k1_now"}),
    ("k3", {"batch": "leave-one-out"}, {"h": "r_others/(n - 1) - r_self/2", "c": "-2*r"}),
    ("R - lam*k1", {"batch": "mean", "use": "reward"}, {"c": "R - lam*k1"}),
    ("rho*k1", {"batch": "mean", "use": "reward", **OFF}, {"c": "(1 - 1/n)*k1"}),
    ("R - lam*k1", {"batch": "std", "use": "reward"}, {"h": "(R_self - lam*k1_self)/std"}),
    ("k1/n - R", {"batch": "leave-one-out", "level": "sequence", "use": "reward"}, {"c": "k1 - R"}),
]


@pytest.mark.parametrize(("loss", "options", "wrong"), FIELDS, ids=[f"{row[0]} {row[1]}" for row in FIELDS])
@pytest.mark.share(3)
def test_tokens_and_batches_are_compared_with_the_literal_field(
    loss: str, options: dict[str, Any], wrong: dict[str, str]
) -> None:
    verdict, parsed = engine.explain(loss, **options), parse(loss)
    check = with_check(verdict, parsed).proof.check
    assert check["passed"] is True and "literal loss on 4 models" in check["text"]
    named = (
        {} if verdict.target not in ("zero", "reverse-kl", "forward-kl", "combination") else {"gradient": "1"}
    )
    for part, text in {**wrong, **named}.items():
        change = TargetReading("combination", {"reward": f"R + {text}", "reverse-kl": "3"}) if named else None
        lie = verdict.revise(**{FIELDS_OF.get(part, part): change if part == "gradient" else text})
        check = with_check(lie, parsed).proof.check
        place = {"h": "gradient", "c": "coefficient", "gradient": "target"}.get(part, part)
        assert check["passed"] is False and f"(in the {place}" in check["text"], (part, check)


OBJECTIVES: list[tuple[str, dict[str, Any]]] = [  # each with the objective of a double
    ("k2", OFF), ("sqrt(r) - R", {"use": "reward"}), ("k2", {**OFF, "batch": "mean"}),
    ("abs(k1)*R", {**TOKENS, **OFF, "use": "reward", "credit": "same-token"}),
    ("clip(k1, -1, 1) + whole(k1)/T", {**TOKENS, **OFF}), ("k3", {"sampling": "truncated"}),
    ("A*log_q/T", {"level": "sequence", **OFF}), ("log(1 + r)", OFF),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "options"), OBJECTIVES, ids=str)
def test_the_printed_objective_is_compared_too(loss: str, options: dict[str, Any]) -> None:
    verdict, parsed = engine.explain(loss, **options), parse(loss, ("S",))
    assert (
        verdict.objective.quantity is not None and with_check(verdict, parsed).proof.check["passed"] is True
    )
    check = with_check(verdict.revise(quantity=verdict.objective.quantity * 2), parsed).proof.check
    assert check["passed"] is False and "(in the objective)" in check["text"]


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("3*k1 + 1", {}),
        ("rho*k3 + lam", OFF),
        ("A - lam*k1", {"use": "reward", "level": "sequence"}),
        ("k3", {**TOKENS, **OFF, "weights": "prefix"}),
        ("rho*(R - k1)", {**TOKENS, **OFF, "use": "reward", "weights": "prefix"}),
        ("R - lam*k1 + 2", {"use": "reward", "batch": "leave-one-out"}),
    ],
    ids=str,
)
@pytest.mark.share(3)
def test_the_printed_value_is_that_of_the_loss(loss: str, options: dict[str, Any]) -> None:
    verdict, parsed = engine.explain(loss, **options), parse(loss)
    assert with_check(verdict, parsed).proof.check["passed"] is True
    for wrong in (
        {"constant": f"{verdict.value.constant_text} + 1/1000"},
        {
            "value": ExpectedValue(
                "combination",
                {**verdict.value.multiples, "forward-kl": "1/100"},
                constant=verdict.value.constant,
            )
        },
    ):
        named = verdict.value.target in ("zero", "reverse-kl", "combination") or "value" in wrong
        check = with_check(verdict.revise(**wrong), parsed).proof.check
        assert check["passed"] is not named and ("(in the value)" in check["text"]) is named


def test_what_a_verdict_says_of_h_is_compared_too() -> None:
    for loss, options, old in (
        ("R - lam*k3", {**TOKENS, "use": "reward"}, "given"),
        ("rho*k3", {"batch": "mean", "use": "reward", **OFF}, "given"),
        ("rho*k3", {"batch": "mean", "use": "reward", **OFF}, "mean-h"),
    ):
        verdict = engine.explain(loss, **options)
        wrong = tuple(raised(x) if x.code == old else x for x in verdict.assumptions)
        assert wrong != verdict.assumptions and with_check(verdict, parse(loss)).proof.check["passed"] is True
        check = with_check(verdict.revise(assumptions=wrong), parse(loss)).proof.check
        assert check["passed"] is False and "(in the " in check["text"]


def raised(message: Message) -> Message:
    """The same said of a quantity that is 2 more."""
    if message.code == "mean-h":
        return Message("mean-h", of=message.values["of"].replace("[", "[2 + ", 1))
    rows = tuple((name, f"2 + {value}") for name, value in message.values["rows"])
    return Message("given", place=message.values["place"], rows=rows)


@pytest.mark.parametrize("text", ["k1_now + ", "k1_now*s_now + k1_now", "undeclared", "k1_self"])
def test_formulas_that_cannot_be_read_fail(text: str) -> None:
    verdict = engine.explain("k2", level="token")
    check = with_check(verdict.revise(canonical_coefficient=text), parse("k2")).proof.check
    assert check["passed"] is False and check["text"].startswith("FAILED")


def test_constants_drop() -> None:
    assert checked("k3", c="1 - r")["passed"] is True


def test_the_hypotheses_are_respected_and_needed() -> None:
    """eps > 0 is drawn as the verdict says; without the line, crossed bounds show that it was needed."""
    loss = "clip(rho, 1 - eps, 1 + eps)*A"
    verdict = engine.explain(loss, "off-policy")
    assert "bounds-in-order" in [x.code for x in verdict.assumptions]
    assert checked(loss, "off-policy")["passed"] is True
    assert checked(loss, "off-policy", assumptions=())["passed"] is False
    found = checked(
        loss, "off-policy", assumptions=tuple(Message("positive", of=of) for of in ("eps", "-eps"))
    )
    assert found["passed"] is False and "hypotheses" in found["text"]


def test_bounds_that_nothing_reaches_are_told() -> None:
    assert "(1 bound met by no sample)" in checked("clip(k3, -1, 5)")["text"]
    assert "met by no sample" not in checked("clip(k3, 1, 5)")["text"]


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> None:
    """explain, with twice the coefficient wherever it is no number."""
    honest = engine.explain

    def lie(*arguments: Any, **options: Any) -> Verdict:
        verdict = honest(*arguments, **options)
        return verdict.revise(canonical_coefficient=f"2*({verdict.gradient.canonical_text})")

    monkeypatch.setattr(engine, "explain", lie)


OFF_POLICY = ["--sampling", "off-policy"]


@pytest.mark.parametrize(
    ("loss", "options", "form"),
    [
        ("k2", ["--level", "token"], "text"),
        ("k2", ["--batch", "mean", "--use", "reward"], "text"),
        ("k3", OFF_POLICY, "text"),
        ("rho*k1", OFF_POLICY, "json"),
        ("clip(k1, -10, 10)", OFF_POLICY, "json"),
        ("clip(k1, -40, 40)", OFF_POLICY, "text"),
    ],
)
@pytest.mark.share(3)
def test_a_failed_check_exits_1(loss: str, options: list[str], form: str, lying: None, capsys: Any) -> None:
    assert main(["explain", loss, *options, "--check", "--format", form]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "FAILED: " in out and "(in the coefficient)" in out
    assert form == "text" or json.loads(out)["check"]["passed"] is False
    assert main(["explain", loss, *options, "--format", form]) == 0


def test_a_stream_with_a_failed_check_exits_1(
    lying: None, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lines, code in (("k3\nk1\n", 1), ("k3\nk9\n", 2)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert main(["explain", "-", "--check", "--time-limit", "0"]) == code
        assert json.loads(capsys.readouterr().out.splitlines()[0])["check"]["passed"] is False


@pytest.mark.parametrize("bound", [20, 100])
def test_there_is_a_witness_beyond_a_wide_clamp(bound: int) -> None:
    """And none where nothing differs."""
    witness = engine.explain(f"rho*clip(k1, -{bound}, {bound})", "off-policy").counterexample.model
    assert witness is not None and witness["left"] != witness["right"]
    assert engine.explain("rho*k1", "off-policy").counterexample.model is None


LOGS = (
    "log(rho)*k1", "rho*log(rho)", "rho*log(r)", "rho_old*log(rho_old)", "rho*log(rho*r)", "rho*log(exp(k1))",
    "rho*log(exp(R)*rho)", "R*log(r*rho_old)", "log(2*rho)", "log(r**2)", "k1*log(sg(rho))",
)  # fmt: skip


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize("loss", LOGS)
@pytest.mark.share(3)
def test_logs_of_positive_quantities_are_read_at_tokens(loss: str, sampling: str) -> None:
    """A printed formula holds log(rho_now), and rho_now is positive as rho is."""
    found = with_check(engine.explain(loss, sampling, level="token"), parse(loss)).proof.check
    assert found is not None and found["passed"] is True, found


@pytest.mark.parametrize("inside", ["k1", "A", "log_q", "rho - 1", "R*rho", "sg(k1)", "beta", "eps*r"])
def test_logs_of_what_may_be_negative_are_not_read(inside: str) -> None:
    for text in (f"log({inside})", f"rho*log({inside})"):
        with pytest.raises(UsageError, match="need not be positive"):
            engine.explain(text, "off-policy", level="token")


@pytest.mark.parametrize("text", ["log(k1_now)", "log(s)", "log(R_past)", "log(r_now - 1)", "log(H)"])
def test_names_of_slots_are_no_more_positive_than_their_values(text: str) -> None:
    verdict = engine.explain("k3", "off-policy", level="token")
    formulas = Printed(verdict, Literal(parse("k3"), verdict.setting), frozenset())
    with pytest.raises(UsageError, match="need not be positive"):
        formulas.read(text)
    assert formulas.read("log(r_now*rho_past)").is_real


def test_a_loss_without_a_value_is_not_passed() -> None:
    """Models without a value are left out; a loss that has none in any model does not pass."""
    verdict = engine.explain("k2", "off-policy")
    passed, text = check_formulas(verdict, sympy.log(k1 - 100), {})
    assert not passed and "no value" in text
    assert check_formulas(verdict, parse("k2"), {})[0]


def test_a_standard_deviation_is_refused_and_not_failed() -> None:
    loss = "normalised(R)*log_q"
    with pytest.raises(UsageError, match="leave it out"):
        with_check(engine.explain(loss, "off-policy"), parse(loss))
