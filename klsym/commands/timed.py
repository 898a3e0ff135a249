"""Questions with a time limit: answered in a copy of this process, which is ended where it takes too long.

The copy starts before anything is loaded, so that it costs a millisecond; and what has run into its limit
leaves nothing half-done behind, as an exception in the midst of SymPy would.  The limit is one of CPU time,
so that an answer does not depend on the load of the machine; three times as much on the clock ends it, too.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any

from klsym.commands.console import format_line, show_waiting
from klsym.errors import KlsymError, UsageError, lacking

ON_THE_CLOCK = 3  # times the limit
LOADING = 300.0  # seconds in which libraries are imported, before the limit counts
# SymPy first: below those of klsym, its imports cross the end of a chunk of Python's stack a thousand times.
LOADED = ("sympy", "klsym.engine.explain", "klsym.render.verdict")
Answer = Callable[[argparse.Namespace], int]
Reply = dict[str, Any]  # {"text", "code"} or {"error"}


def limit_time(late: Answer | None = None, *modules: str) -> Callable[[Answer], Answer]:
    """Give a command the limit of its option `time_limit`; 0 is for none.

    late: what is printed where it is reached; one line if None.  modules: loaded before the limit counts.
    """

    def wrap_answer(answer: Answer) -> Answer:
        def answer_within_limit(options: argparse.Namespace) -> int:
            if not options.time_limit or not hasattr(os, "fork"):
                return answer(options)
            with show_waiting(lambda: "deriving the answer"):
                reply = run_within(options.time_limit, lambda: answer(options), (*LOADED, *modules))
            if reply is None and late is not None:
                return late(options)
            return print_reply(reply, options.time_limit)

        return answer_within_limit

    return wrap_answer


def print_reply(reply: Reply | None, seconds: float) -> int:
    """Print a reply and return its exit code."""
    if reply is None:
        raise UsageError(f"no answer within {seconds:g} s: try a larger --time-limit; 0 means no limit")
    if "error" in reply:
        raise UsageError(reply["error"])
    print(reply["text"], end="")
    return int(reply["code"])


def run_within(seconds: float, work: Callable[[], int], modules: tuple[str, ...] = ()) -> Reply | None:
    """Return the output of the work and its exit code, or an error; None if it takes longer."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError, ValueError):
            stream.flush()
    reading_end, writing_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, those of JAX too, which no answer uses
        pid = os.fork()
    if not pid:
        _answer_in_copy(reading_end, writing_end, seconds, work, modules)
    os.close(writing_end)
    try:
        text = _read_pipe(reading_end, seconds)
    finally:
        os.close(reading_end)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    with suppress(ValueError):
        return dict(json.loads(text or b""))
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if text is None or ended in (signal.SIGPROF, signal.SIGALRM):
        return None
    return {"error": f"the process was stopped by signal {ended} before it answered: out of memory?"}


def _read_pipe(pipe: int, seconds: float) -> bytes | None:
    """Return the bytes after the first one, with which the limit begins; None if that takes too long."""
    text, end = b"", time.monotonic() + LOADING
    begun = False
    while (remaining := end - time.monotonic()) > 0:
        if not select.select([pipe], [], [], remaining)[0]:
            return None
        received = os.read(pipe, 1 << 20)
        if not received:
            return text[1:]
        if not begun:
            begun, end = True, time.monotonic() + ON_THE_CLOCK * seconds + 1
        text += received
    return None


def _answer_in_copy(
    reading_end: int, writing_end: int, seconds: float, work: Callable[[], int], modules: tuple[str, ...]
) -> None:
    """Answer in the copied process, which timers of the system end; does not return."""
    try:
        os.close(reading_end)
        for name in (signal.SIGINT, signal.SIGPROF, signal.SIGALRM):
            signal.signal(name, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF, signal.SIGALRM})
        loaded = _make_reply(lambda: len([importlib.import_module(module) for module in modules]))
        os.write(writing_end, b".")
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, ON_THE_CLOCK * seconds)
        reply = json.dumps(loaded if "error" in loaded else _make_reply(work)).encode()
        signal.setitimer(signal.ITIMER_REAL, 0)  # whoever asked may be slow to read
        while reply:
            reply = reply[os.write(writing_end, reply) :]
    finally:
        os._exit(0)


def _make_reply(work: Callable[[], int]) -> Reply:
    text = io.StringIO()
    try:
        with redirect_stdout(text):
            code = work()
    except KlsymError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"{error.filename or 'a file'}: {error.strerror or error}"}
    except Exception as error:  # a defect of klsym is one line, too
        fails = f"klsym fails here, please report it: {type(error).__name__}: {error}"
        return {"error": format_line(lacking(error) or fails)}
    return {"text": text.getvalue(), "code": code}
