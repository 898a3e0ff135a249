"""The limits of an audit hold whatever the code does: time, memory, what is opened, what is replied."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from klsym.audit import audits
from klsym.cli import main
from klsym.confirmed.child import Runner
from klsym.errors import UsageError
from klsym.worker_process import Asked
from support.scale import scaled

HOSTILE = r"""import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import numpy as np

def replies():
    # The pipe to whoever asks: the only one that is open for writing.
    for fd in range(3, 64):
        try:
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            if flags & 3 == os.O_WRONLY and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe"):
                return fd
        except OSError:
            continue

def asked():
    frame = sys._getframe()
    while "mark" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["mark"]

def clears_its_timers(logp):
    signal.setitimer(signal.ITIMER_REAL, 0 * len(np.__name__))
    signal.alarm(0)
    while True:
        pass

def ignores_signals(logp):
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    while np:
        time.sleep(0.01)

def sleeps_in_a_child(logp):
    return np.abs(logp) + len(os.waitpid(subprocess.Popen(["sleep", "100"]).pid, 0))

def leaves_a_child(logp):
    subprocess.Popen(["sleep", "100"], pass_fds=[replies()])
    os._exit(0 * len(np.__name__))

def stops(logp):
    return np.abs(logp) + (os.kill(os.getpid(), signal.SIGSTOP) or 0)

def half_a_line(logp):
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.write(replies(), b'["')
    while np:
        time.sleep(0.01)

def endless(logp):
    signal.setitimer(signal.ITIMER_REAL, 0)
    while np:
        os.write(replies(), b"x" * 65536)

def killed(logp):
    os.kill(os.getpid(), signal.SIGKILL * len(np.__name__[:1]))

def exits(logp):
    os._exit(0 * len(np.__name__))

def hungry(logp):
    return np.abs(logp) + len(bytearray(10**11))

def prints_an_answer(logp):
    os.write(1, b'{"text": "fine", "row": [], "target": "reverse-kl", "meets": true}\n')
    os._exit(0 * len(np.__name__))

def raises_a_lot(logp):
    raise ValueError("\x1b[2J" * 10**6 + np.__name__)

def say(reply):
    os.write(replies(), reply + b"\n")
    os._exit(0 * len(np.__name__))

def honest(logp, ref_logp):
    return np.subtract(logp, ref_logp)
"""
# What is written where a reply is expected.
GARBAGE = {
    "words": "b'hello'", "nothing": "b''", "null": "b'null'", "deep": "b'[' * 100_000 + b']' * 100_000",
    "number": "b'9' * 10_000", "binary": "bytes(range(256))",
    "unmarked": "json.dumps(['0' * 16, {'error': 'forged', 'code': 1}]).encode()",
    "bare": "json.dumps({'error': 'forged', 'code': 1}).encode()",
    "empty": "json.dumps([asked(), {}]).encode()", "listed": "json.dumps([asked(), []]).encode()",
    "typed": "json.dumps([asked(), dict.fromkeys(('text', 'json', 'target', 'row', 'meets'), 1)]).encode()",
    "coded": "json.dumps([asked(), {'error': {'x': 1}, 'code': 1}]).encode()",
    "surrogate": r"json.dumps([asked(), {'error': '\ud800\x1b[2J', 'code': 'many'}]).encode()",
    "ahead": "json.dumps([asked(), {'error': 'forged', 'code': 2}]).encode() + b'\\nmore'",
}  # fmt: skip
HOSTILE += "".join(f"def {name}(logp):\n    say({reply})\n" for name, reply in GARBAGE.items())
LATE, NO_REPLY, ENDED = (
    "no answer within 2 s",
    "says what is no reply",
    "stopped without an answer (exit",
)
LIMITED = {
    "clears_its_timers": LATE, "ignores_signals": LATE, "sleeps_in_a_child": LATE, "stops": LATE,
    "half_a_line": LATE, "leaves_a_child": ENDED, "killed": ENDED, "exits": ENDED, "prints_an_answer": ENDED,
    "endless": NO_REPLY, "hungry": "MemoryError", "raises_a_lot": "the code raises ValueError",
    **dict.fromkeys(GARBAGE, NO_REPLY), "surrogate": "\\ud800", "ahead": "forged",
}  # fmt: skip
SELDOM = {"words", "null", "number", "bare", "empty", "listed"}  # refused as others of the table are
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="how the code finds the pipe")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@needs_proc
@pytest.mark.parametrize("late", [True, False])
def test_the_limits_hold(late: bool, folder: Path, capsys: Any) -> None:
    """One line for each, in time, and the next code is audited as if nothing had happened."""
    left = set[str]() if scaled(1, 0) else SELDOM
    names = [name for name, words in LIMITED.items() if (words == LATE) == late and name not in left]
    start, honest = time.monotonic(), "hostile.py:honest"
    hostile = [f"hostile.py:{name}" for name in names]
    targets = [target for one in hostile for target in (one, honest)] if late else [*hostile, honest]
    assert main(["audit", *targets, "--use", "reward", "--time-limit", "2"]) == 2
    out, err = capsys.readouterr()
    assert time.monotonic() - start < 20 * len(names) and len(err.splitlines()) == len(names)
    for name, line in zip(names, err.splitlines(), strict=True):
        assert line.startswith("klsym: ") and LIMITED[name] in line and len(line) < 500 and line.isprintable()
    rows = [row for row in out.splitlines() if row.startswith("honest")]
    assert len(rows) == targets.count(honest) and out.count("not read") == len(names)
    assert all("minimises KL(q||p), the reverse KL" in row and "forged" not in row for row in rows)


@needs_proc
def test_the_reply_of_another_question_is_none(folder: Path) -> None:
    """A thread that goes on cannot answer for the code that follows it in advance."""
    with Runner(20, 4) as runner:
        asked = {"options": {"use": "reward"}, "expect": None}
        first = runner.ask({"target": "hostile.py:ahead", **asked})
        second = runner.ask({"target": "hostile.py:honest", **asked})
        assert first == {"error": "forged", "code": 2} and second["target"] == "reverse-kl"


# ---------------------------------------------------------------------------- what is no file
def made(path: Path, kind: str) -> str:
    """Make what is no regular file; what is said of it."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(path.name)
    elif kind == "large":
        path.write_bytes(b"#" * 6_000_000)
    else:
        path.symlink_to({"device": "/dev/zero", "terminal": "/dev/tty", "itself": path.name}[kind])
    said = {"pipe": "not a regular file", "device": "not a regular file", "itself": "symbolic links"}
    return {**said, "large": "more than 5000000 bytes"}.get(kind, "")


@pytest.mark.parametrize("kind", ["pipe", "device", "terminal", "folder", "socket", "large", "itself"])
def test_only_regular_files_of_bounded_size_are_read(kind: str, folder: Path, at_most: Any) -> None:
    words = made(folder / "code.py", kind)
    with at_most(5), pytest.raises(UsageError) as refused:
        audits.audit("code.py:f", use="reward")
    message = str(refused.value)
    assert message.startswith("code.py") and "\n" not in message and words in message


def test_a_pipe_does_not_hang_the_command(folder: Path) -> None:
    os.mkfifo(folder / "code.py")
    command = [sys.executable, "-m", "klsym", "audit", "code.py:f", "--use", "reward", "--time-limit", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("klsym: code.py")
    assert done.stderr.count("\n") == 1 and "not a regular file" in done.stderr


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_files_beside_it_are_held_to_the_same(kind: str, folder: Path) -> None:
    os.mkfifo("pipe.py") if kind == "pipe" else Path("pipe.py").symlink_to("/dev/zero")
    text = "import numpy as np\nfrom pipe import g\ndef f(logp):\n    return g(np.abs(logp))\n"
    (folder / "code.py").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        audits.audit("code.py:f", use="reward")
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------------------- whoever asks
class Echo(Asked):
    module, keys, late, ended = "support.audits.echo", {"said": str}, "late: {}", "it {}"


@pytest.mark.parametrize("text", ["x", "", "\u2028\ud800", "y" * 300_000])
def test_questions_and_replies_of_any_length(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    with Echo({"times": 7}, 30) as asked:
        for _ in range(3):
            assert asked.ask(text) == {"said": text * 7}
        process = asked.process
        assert process is not None
        process.kill()
        process.wait()
        assert asked.ask(text) == {"said": text * 7} and asked.process is not process
    assert asked.process is None


def test_no_limit_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    with Echo({"times": 1}, 0) as asked:
        assert asked.ask("x") == {"said": "x"}


def test_the_page_on_security_says_that_answers_can_be_forged() -> None:
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    assert "can forge its own answer" in page
