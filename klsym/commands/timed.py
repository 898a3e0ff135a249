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

from klsym.commands.console import one_line
from klsym.errors import KlsymError, UsageError, lacking

ON_THE_CLOCK = 3  # times the limit
LOADING = 300.0  # seconds in which libraries are imported, before the limit counts
LOADED = ("klsym.engine.explain", "klsym.render.verdict")
Answer = Callable[[argparse.Namespace], int]
Reply = dict[str, Any]  # {"text", "code"} or {"error"}


def timed(late: Answer | None = None, *modules: str) -> Callable[[Answer], Answer]:
    """Give a command the limit of its option `time_limit`; 0 is for none.

    late: what is printed where it is reached; one line if None.  modules: loaded before the limit counts.
    """

    def limited(answer: Answer) -> Answer:
        def asked(options: argparse.Namespace) -> int:
            if not options.time_limit or not hasattr(os, "fork"):
                return answer(options)
            reply = within(options.time_limit, lambda: answer(options), (*LOADED, *modules))
            if reply is None and late is not None:
                return late(options)
            return said(reply, options.time_limit)

        return asked

    return limited


def said(reply: Reply | None, seconds: float) -> int:
    """Print a reply; its exit code."""
    if reply is None:
        raise UsageError(f"no answer within {seconds:g} s: try a larger --time-limit; 0 means no limit")
    if "error" in reply:
        raise UsageError(reply["error"])
    print(reply["text"], end="")
    return int(reply["code"])


def within(seconds: float, work: Callable[[], int], modules: tuple[str, ...] = ()) -> Reply | None:
    """Return the output of the work and its exit code, or an error; None if it takes longer."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError, ValueError):
            stream.flush()
    heard, spoken = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, those of JAX too, which no answer uses
        pid = os.fork()
    if not pid:
        _answer(heard, spoken, seconds, work, modules)
    os.close(spoken)
    try:
        text = _heard(heard, seconds)
    finally:
        os.close(heard)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    with suppress(ValueError):
        return dict(json.loads(text or b""))
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if text is None or ended in (signal.SIGPROF, signal.SIGALRM):
        return None
    return {"error": f"the process that answers ended without a word (signal {ended}): out of memory?"}


def _heard(pipe: int, seconds: float) -> bytes | None:
    """All that is said after the first byte, with which the limit begins; None if that takes too long."""
    text, end = b"", time.monotonic() + LOADING
    begun = False
    while (left := end - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            return None
        more = os.read(pipe, 1 << 20)
        if not more:
            return text[1:]
        if not begun:
            begun, end = True, time.monotonic() + ON_THE_CLOCK * seconds + 1
        text += more
    return None


def _answer(
    heard: int, spoken: int, seconds: float, work: Callable[[], int], modules: tuple[str, ...]
) -> None:
    """In the copy: timers of the system end it, whatever it does.  Does not return."""
    try:
        os.close(heard)
        for name in (signal.SIGINT, signal.SIGPROF, signal.SIGALRM):
            signal.signal(name, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF, signal.SIGALRM})
        loaded = _reply(lambda: len([importlib.import_module(module) for module in modules]))
        os.write(spoken, b".")
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, ON_THE_CLOCK * seconds)
        reply = json.dumps(loaded if "error" in loaded else _reply(work)).encode()
        signal.setitimer(signal.ITIMER_REAL, 0)  # whoever asked may be slow to read
        while reply:
            reply = reply[os.write(spoken, reply) :]
    finally:
        os._exit(0)


def _reply(work: Callable[[], int]) -> Reply:
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
        return {"error": one_line(lacking(error) or fails)}
    return {"text": text.getvalue(), "code": code}
