"""`klsym explain -`: every line is answered, whatever stands in the others, and within its time."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from klsym import api as engine
from klsym.cli import main
from klsym.commands import limited, verdicts
from klsym.errors import NotInRing, UsageError
from klsym.language.convert import is_in_core, to_ring
from klsym.language.parser import parse

LONG = "0.1" + "0" * 5000
TOO_LARGE = "(k1 + r + rho + lam)**16"
SLOW = "exp(clip(clip(clip(clip(k1, -1, 1)*rho, -2, 2)*k3, -3, 3)*k2*r, -4, 4)*k1)*log(2 + r)"
Out = Any


def stream(lines: list[str], *options: str, monkeypatch: Any, capsys: Out) -> tuple[int, list[Any], str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    code = main(["explain", "-", *options])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


LINES = [  # and does a line have an answer?
    ("k1", True), (LONG, False), ("k3*1e999", True), ("0" * 30_000, False), ("y" * 3_000_000, False),
    (TOO_LARGE, False), ("", None), ("k9", False), ("1/(1 - 1)", False), ("(((", False), ("ж", False),
    ("  rho*k3  ", True), ("1/k1", None), ("k2", True), ("-k1", True),
]  # fmt: skip


@pytest.mark.parametrize("limit", ["0", "60"])
def test_a_bad_line_is_answered_and_so_are_the_rest(limit: str, monkeypatch: Any, capsys: Out) -> None:
    """In order; an empty line has no answer, and the exit code remembers the bad ones."""
    options = ("--time-limit", limit, "--sampling", "off-policy")
    code, answers, err = stream([x for x, _ in LINES], *options, monkeypatch=monkeypatch, capsys=capsys)
    asked = [(line.strip(), good) for line, good in LINES if line]
    assert (code, err) == (2, "")
    assert [a["loss"] for a in answers] == [line[:200] for line, _ in asked]
    for answer, (_, good) in zip(answers, asked, strict=True):
        assert good is None or ("error" not in answer) is good
        assert set(answer) == {"loss", "error"} or answer["sampling"] == "off-policy"
        assert "\n" not in answer.get("error", "") and len(answer.get("error", "")) <= 400
    assert "more than 1000 characters" in answers[1]["error"]
    assert "too large once multiplied out" in answers[5]["error"]


def test_a_stream_of_good_lines_ends_with_0(monkeypatch: Any, capsys: Out) -> None:
    for lines in (["k1", "k2"], []):
        code, answers, err = stream(lines, monkeypatch=monkeypatch, capsys=capsys)
        assert (code, err, [a["loss"] for a in answers]) == (0, "", lines)


def test_a_loss_of_the_core_that_is_too_large_is_refused() -> None:
    """Neither because it is too large, nor because a product on the way is."""
    for text in (TOO_LARGE, "(k1 + r + lam*rho)**40", "sg((k1 + r + rho + lam)**16)*k1"):
        for sampling in ("on-policy", "off-policy"):
            with pytest.raises(UsageError, match="too large once multiplied out"):
                engine.explain(text, sampling)


@pytest.mark.parametrize(
    ("text", "core"),
    [
        ("k3", True),
        ("sg(rho)*k2/beta", True),
        (TOO_LARGE, True),
        ("r**lam", True),
        ("exp(exp(k1))", False),
        ("1/(1 + r)", False),
        ("(1 + r)**(-2)*k1", False),
        ("clip(k1, 0, 1)", False),
        (f"{TOO_LARGE}*clip(k1, 0, 1)", False),
        (f"log(1 + r) + {TOO_LARGE}", False),
    ],
)
def test_what_the_core_is(text: str, core: bool) -> None:
    expression = parse(text)
    assert is_in_core(expression) is core
    if core and text != TOO_LARGE:
        to_ring(expression)
    else:
        with pytest.raises(NotInRing):
            to_ring(expression)


def test_the_limit_ends_one_line_and_the_stream_goes_on(monkeypatch: Any, capsys: Out) -> None:
    started = time.monotonic()
    code, answers, err = stream(
        ["k1", SLOW, "rho*k3", SLOW], "--time-limit", "2", "--sampling", "off-policy",
        monkeypatch=monkeypatch, capsys=capsys,
    )  # fmt: skip
    assert time.monotonic() - started < 30
    assert (code, err) == (2, "") and [a["loss"] for a in answers] == ["k1", SLOW, "rho*k3", SLOW]
    assert [a.get("error", "")[:21] for a in answers] == [
        "",
        "no answer within 2 s:",
        "",
        "no answer within 2 s:",
    ]
    assert answers[2]["gradient"]["target"] == "reverse-kl" and answers[2]["trust"] == "kernel"


def test_ten_seconds_unless_something_else_is_said(monkeypatch: Any, capsys: Out) -> None:
    seen: list[Any] = []

    def ask(self: Any, loss: str) -> dict[str, Any]:
        seen.append(self.options["time_limit"])
        return {"text": "{}", "code": 0}

    monkeypatch.setattr(limited.Limited, "ask", ask)
    assert stream(["k1"], monkeypatch=monkeypatch, capsys=capsys)[0] == 0
    assert stream(["k1"], "--time-limit", "2.5", monkeypatch=monkeypatch, capsys=capsys)[0] == 0
    assert main(["explain", "k1"]) == 0 and main(["explain", "k1", "--time-limit", "0"]) == 0
    assert seen == [10.0, 2.5]


def test_a_single_loss_within_its_limit(capsys: Out) -> None:
    plain = (main(["explain", "k3", "--check"]), *capsys.readouterr())
    assert (main(["explain", "k3", "--check", "--time-limit", "60"]), *capsys.readouterr()) == plain
    assert main(["explain", "k9", "--time-limit", "60"]) == 2
    assert capsys.readouterr().err.startswith("klsym: unknown name 'k9'")


def test_a_defect_is_an_answer_in_a_stream(monkeypatch: Any, capsys: Out) -> None:
    real = verdicts.explain_typed

    def broken(loss: str, options: Any) -> Any:
        if loss == "k2":
            raise ZeroDivisionError("of klsym's own\nmaking")
        return real(loss, options)

    monkeypatch.setattr(verdicts, "explain_typed", broken)
    code, answers, _ = stream(["k1", "k2", "k3"], "--time-limit", "0", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2 and [("error" in a) for a in answers] == [False, True, False]
    assert "report it: ZeroDivisionError: of klsym's own making" in answers[1]["error"]


def test_a_process_that_dies_is_said_and_replaced() -> None:
    """Between two questions it is replaced; what dies of a question is said of that one alone."""
    from klsym.commands.parser import build_parser

    options = build_parser().parse_args(["explain", "-", "--time-limit", "60"])
    with limited.Limited(options) as asked:
        assert "text" in asked.ask("k1")
        process = asked.process
        assert process is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert "text" in asked.ask("k1") and asked.process is not process
        killer = threading.Timer(1, lambda: asked.process and asked.process.send_signal(signal.SIGKILL))
        killer.start()
        assert "without an answer" in asked.ask(SLOW)["error"]
        assert "text" in asked.ask("k1")
        last = asked.process
    assert last is not None and last.returncode == -signal.SIGKILL  # nothing is left behind


def test_the_limit_holds_where_its_signal_is_ignored() -> None:
    """A shell may hand down ignored signals."""
    code = (
        "import signal, sys; signal.signal(signal.SIGALRM, signal.SIG_IGN);"
        "from klsym.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "explain", SLOW, "--time-limit", "0.3"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "not decided within 0.3 s" in done.stdout
