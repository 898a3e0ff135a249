"""Questions with a time limit: what is printed where it is reached, and that nothing is lost otherwise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from klsym.cli import main
from klsym.commands import timed
from klsym.commands.parser import build_parser

SLOW = "clip(clip(clip(k1,-1,1)*rho,-2,2)*k3,-3,3)*clip(exp(k1/(1+r)),1/3,3)*log(1+r+rho)"
WORDS = {
    "explain": ["explain", "rho*k3", "--sampling", "off-policy"],
    "compare": ["compare", "k2", "rho*k3"],
    "divergence": ["divergence", "jeffreys"],
    "optimum": ["optimum", "k3", "--beta", "1/2", "--rewards", "1,0"],
    "recommend": ["recommend", "--target", "reverse-kl"],
}
BUSY = {
    "compare": ["compare", SLOW, "k3"],
    "divergence": ["divergence", "exp(-r) + 0.5*log(r)**2 + 1/3*1/(1 + r)"],
    "optimum": ["optimum", "k2", "--use", "reward", "--beta", "1", "--rewards", "1,.3,.2,.7,.1,.9,.4,.55"],
    "recommend": ["recommend", "--target", "forward-kl", "--level", "token"],
}


@pytest.mark.parametrize("name", WORDS)
def test_an_answer_in_time_is_the_same(name, capsys):
    assert build_parser(name).parse_args(WORDS[name]).time_limit == 10
    answers = [
        (main([*WORDS[name], "--json", *more]), *capsys.readouterr()) for more in ((), ("--time-limit", "0"))
    ]
    assert answers[0] == answers[1] and answers[0][0] == 0 and answers[0][1]


@pytest.mark.parametrize("name", BUSY)
def test_no_answer_is_one_line(name):
    # In a process of its own: what other tests asked here is known already, and told at once.
    asked = [sys.executable, "-m", "klsym", *BUSY[name], "--time-limit", "0.02"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    line = "klsym: no answer within 0.02 s: try a larger --time-limit; 0 means no limit\n"
    assert (told.returncode, told.stdout, told.stderr) == (2, "", line)


@pytest.mark.parametrize("form", ["text", "json", "markdown", "latex"])
def test_a_loss_that_takes_too_long_is_open(form, capsys):
    assert main(["explain", "k2*log(1+r)", "--format", form, "--time-limit", "0.001"]) == 0
    out, err = capsys.readouterr()
    assert "not decided within 0.001 s (time)" in out and not err
    assert "k1*log(1 + r)" in out.replace("log(r + 1)", "log(1 + r)")  # the gradient at a sample
    assert "proved, replayed" not in out
    if form == "json":
        answer = json.loads(out)
        assert answer["reason"] == "time" and answer["trust"] == answer["gradient"]["target"] == "open"
        assert answer["value"]["target"] == "open" and answer["value"]["unbiased_for_reverse_kl"] is False


@pytest.mark.parametrize("setting", [["--level", "token"], ["--level", "sequence"], ["--batch", "mean"]])
def test_beyond_single_samples_the_gradient_is_left_out(setting, capsys):
    assert main(["explain", SLOW, *setting, "--json", "--time-limit", "0.01"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["gradient"]["per_sample"] is None and answer["gradient"]["target"] == "open"


@pytest.mark.parametrize("loss", ["k9", "k1/0", "log(k3)", "((", ""])
def test_what_cannot_be_read_is_refused_in_any_time(loss, capsys):
    said = [(main(["explain", loss, *more]), *capsys.readouterr()) for more in ((), ("--time-limit", "0"))]
    assert said[0] == said[1] and said[0][0] == 2 and said[0][2].count("\n") == 1


@pytest.mark.parametrize(
    "work",
    [
        lambda: sum(10 ** (10**7) % 7 for _ in range(10**9)),  # seldom back in Python
        lambda: signal.signal(signal.SIGPROF, signal.SIG_IGN) or _for_ever(),
        lambda: _for_ever(),
        lambda: time.sleep(1000),
    ],
    ids=["arithmetic", "ignored", "loop", "sleep"],
)
def test_the_limit_holds(work):
    began = time.monotonic()
    assert timed.run_within(0.3, work) is None
    assert time.monotonic() - began < 20


def _for_ever():
    while True:
        with __import__("contextlib").suppress(BaseException):
            time.sleep(0) or sum(range(1000))


def test_a_process_that_dies_and_a_defect_are_one_line():
    died = timed.run_within(5, lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert died == {"error": "the process was stopped by signal 9 before it answered: out of memory?"}
    broken = timed.run_within(5, lambda: 1 // 0)
    assert broken["error"].startswith("klsym fails here, please report it: ZeroDivisionError")
    assert timed.run_within(5, lambda: print("x" * 10**6) or 1) == {"text": "x" * 10**6 + "\n", "code": 1}


def wait_for_child(pid: int) -> None:
    """Until the process that answers has started, however busy the machine is."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    for _ in range(300):
        if not children.exists() or children.read_text().strip():
            break
        time.sleep(0.1)
    time.sleep(1)


def test_ctrl_c_ends_both():
    command = [sys.executable, "-m", "klsym", "explain", SLOW, "--time-limit", "100"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    wait_for_child(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=20)[1] == b"klsym: interrupted\n" and process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
