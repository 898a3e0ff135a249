"""Questions answered in a process of their own, which the system ends when one of them takes too long.

The clock is a timer of the system (SIGALRM, with its default action), so that no code can miss it; and what
has run into its limit leaves nothing half-done behind, as an exception in the midst of SymPy would.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

Reply = dict[str, Any]  # what the process says, or {"error", "code"}
Options = dict[str, Any]


class Asked:
    """Asks one by one; the process starts with the first question, and anew after one was ended.

    module: what runs in the process, and calls `serve`.  late, ended: what is said where there is no
    answer, of a limit in seconds and of an exit code.  errors: where its standard error goes.
    """

    module: ClassVar[str]
    late: ClassVar[str]
    ended: ClassVar[str]
    errors: ClassVar[int | None] = None

    def __init__(self, options: Options, seconds: float) -> None:
        self.options, self.seconds = {**options, "seconds": seconds}, seconds
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # and whatever it has started
            self.process.wait()

    def ask(self, question: Any) -> Reply:
        """The reply, or an error that says that there was none."""
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
            return {"error": self.late.format(f"{self.seconds:g} s"), "code": 2}
        return {"error": self.ended.format(f"ended without a word (exit code {code})"), "code": 2}

    def _started(self) -> subprocess.Popen[str]:
        """In a session of its own: ctrl-C is for whoever asked."""
        here = str(Path(__file__).parents[1])
        paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", self.module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            encoding="ascii", start_new_session=True, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        print(json.dumps(self.options), file=process.stdin, flush=True)
        return process


def serve(prepare: Callable[[Any, Options], None], answer: Callable[[Any, Options], Reply]) -> None:
    """The process: options and then questions on standard input, a reply a line on standard output.

    prepare: what is done for a question before its clock runs.  What either prints is no reply.
    """
    questions = os.fdopen(os.dup(0), encoding="ascii")
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    options = json.loads(questions.readline())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    for line in questions:
        question = json.loads(line)
        prepare(question, options)
        signal.setitimer(signal.ITIMER_REAL, options["seconds"])
        reply = answer(question, options)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), file=replies, flush=True)
