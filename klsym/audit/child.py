"""Audits in a process of their own, for they run the user's code: it is ended when it takes too long or
too much.

The clock is a timer of the system, as in `klsym.commands.limited`, and the memory limit is one on addresses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import klsym

GIGABYTE = 2**30
Reply = dict[str, Any]  # {"text", "json", "target", "row"}, or {"error", "code"}


class Runner:
    """Answers questions one by one; the process starts with the first one, and anew after one was ended."""

    def __init__(self, seconds: float, gigabytes: float) -> None:
        self.seconds, self.limits = seconds, {"seconds": seconds, "gigabytes": gigabytes}
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # and whatever the code has started
            self.process.wait()

    def ask(self, question: dict[str, Any]) -> Reply:
        """The reply, or an error that says that there was none.

        question: "target", the other arguments of `klsym.audit` in "options", and what is to "expect".
        """
        if self.process is None:
            self.process = self._started()
        assert self.process.stdin and self.process.stdout
        with suppress(BrokenPipeError):  # the process has ended; so says its exit code
            print(json.dumps(question), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if line:
            reply: Reply = json.loads(line)
            return reply
        code, self.process = self.process.wait(), None
        if code == -signal.SIGALRM:
            limit = f"{self.seconds:g} s"
            reason = f"no answer within {limit}: does the code loop?  --time-limit gives it longer"
        else:
            ended = f"the process that runs the code ended without a word (exit code {code})"
            reason = f"{ended}: does it exit, or need more than --memory-limit?"
        return {"error": reason, "code": 2}

    def _started(self) -> subprocess.Popen[str]:
        here = str(Path(klsym.__file__).parents[1])
        paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "klsym.audit.child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            encoding="ascii", start_new_session=True, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        print(json.dumps(self.limits), file=process.stdin, flush=True)
        return process


def serve() -> None:
    """The process: limits and then questions on standard input, a reply a line on standard output.

    The code has neither of the two.
    """
    questions = os.fdopen(os.dup(0), encoding="ascii")
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(silence, stream)
    limits = json.loads(questions.readline())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    for number, line in enumerate(questions):
        question = json.loads(line)
        _load(question["target"])
        if number == 0:
            _limit(limits["gigabytes"])
        signal.setitimer(signal.ITIMER_REAL, limits["seconds"])
        reply = _answered(question)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), file=replies, flush=True)


def _load(target: str) -> None:
    """The library that the file is sure to need is imported before the clock runs."""
    import klsym.audit.audits
    import klsym.engine.explain  # noqa: F401

    path = Path(target.rpartition(":")[0])
    try:
        text = path.read_text(encoding="utf-8") if path.suffix == ".py" else "torch"
    except (OSError, UnicodeDecodeError):
        return
    named = [name for name in ("torch", "jax") if name in text] or ([] if "numpy" in text else ["torch"])
    for name in named:
        with suppress(ImportError):
            __import__(name)


def _limit(gigabytes: float) -> None:
    """On the addresses that the process may have beyond those of the libraries."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + int(gigabytes * GIGABYTE)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (ImportError, OSError, ValueError):  # not every system has it
        return


def _answered(question: dict[str, Any]) -> Reply:
    from klsym.audit.audits import Disagrees, audit
    from klsym.errors import KlsymError

    try:
        found = audit(question["target"], **question["options"])
        target, expected = found.target or "open", question["expect"]
        meets = expected is None or found.meets(expected)
        return {
            "text": str(found),
            "json": found.to_json(),
            "row": found.row(),
            "target": target,
            "meets": meets,
        }
    except Disagrees as error:
        return {"error": str(error), "code": 1}
    except KlsymError as error:
        return {"error": str(error), "code": 2}
    except Exception as error:  # a defect of klsym, told in one line like any other
        return {
            "error": f"klsym fails on this code, please report it: {type(error).__name__}: {error}",
            "code": 2,
        }


if __name__ == "__main__":
    serve()
