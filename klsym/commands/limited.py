"""Losses answered in a process of their own, which the system ends when one of them takes too long.

The clock is a timer of the system (SIGALRM, with its default action), so that no code can miss it; and what
has run into its limit leaves nothing half-done behind, as an exception in the midst of SymPy would.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import klsym
from klsym.commands.losses import Reply, answered, load


class Limited:
    """Answers losses one by one; the process starts with the first one, and anew after one was ended."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = {name: value for name, value in vars(options).items() if name != "loss"}
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Limited:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def answer(self, loss: str) -> Reply:
        """The reply, or an error that says that there was none."""
        if self.process is None:
            self.process = self._started()
        assert self.process.stdin and self.process.stdout
        with suppress(BrokenPipeError):  # the process has ended; so says its exit code
            print(json.dumps(loss), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if line:
            reply: Reply = json.loads(line)
            return reply
        code, self.process = self.process.wait(), None
        if code == -signal.SIGALRM:
            limit = f"{self.options['time_limit']:g}"
            return {"error": f"no answer within {limit} s: a larger --time-limit may do, 0 is for no limit"}
        return {"error": f"the process that answers ended without a word (exit code {code}): out of memory?"}

    def _started(self) -> subprocess.Popen[str]:
        """In a session of its own: ctrl-C is for whoever asked."""
        here = str(Path(klsym.__file__).parents[1])
        paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "klsym.commands.limited"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="ascii",
            start_new_session=True, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        print(json.dumps(self.options), file=process.stdin, flush=True)
        return process


def serve() -> None:
    """The process: options and then losses on standard input, a reply a line on standard output."""
    options = argparse.Namespace(**json.loads(sys.stdin.readline()))
    replies, sys.stdout = sys.stdout, sys.stderr
    load(options)  # before the clock runs
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, options.time_limit)
        reply = answered(json.loads(line), options)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    serve()
