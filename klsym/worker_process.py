"""Questions answered in a process of their own, which is ended when one of them takes too long.

The clock is that of whoever asks, so that no code can stop it; and what has run into its limit leaves nothing
half-done behind, as an exception in the midst of SymPy would.  A timer of the system (SIGALRM, with its
default action) ends the process where nobody is left to do so.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from klsym.errors import speak_of_flags

Reply = dict[str, Any]  # what the process says, or {"error", "code"}, perhaps with a "place"
Options = dict[str, Any]
LOADING = 300.0  # seconds to get ready, in which libraries are imported
LONGEST = 100_000_000  # bytes of a reply
GIGABYTE = 2**30
GLANCE = 0.5  # seconds between two looks at whether the process is still there


class _Late(Exception):
    """The limit is over."""


class _Garbage(Exception):
    """The process printed something else than a reply."""


class Asked:
    """Asks one by one; the process starts with the first question, and anew after one was ended.

    module: what runs in the process, and calls `serve`.  keys: what a reply holds, with the types.
    beside_error: what an error may hold as well.  late, ended: what is said where there is no answer, of a
    limit in seconds and of what happened.  errors: where its standard error goes.
    """

    module: ClassVar[str]
    keys: ClassVar[dict[str, type]]
    beside_error: ClassVar[dict[str, type]] = {}
    late: ClassVar[str]
    ended: ClassVar[str]
    errors: ClassVar[int | None] = None

    def __init__(self, options: Options, seconds: float) -> None:
        self.options, self.seconds = {**options, "seconds": seconds}, seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.unread = bytearray()
        self.is_ready = False  # are its libraries imported?

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, question: Any) -> Reply:
        """The reply, or an error that says that there was none."""
        if self.process is not None:  # which an earlier question may have ruined
            try:
                mark = self._prepared(question)
            except (_Late, _Garbage, EOFError, BrokenPipeError):
                self._end()
        try:
            if self.process is None:
                self.process = self._started()
                mark = self._prepared(question)
            return self._checked(self._heard(mark, self.seconds or None))
        except _Late:
            self._end()
            return {"error": self.late.format(f"{self.seconds:g} s"), "code": 2}
        except _Garbage:
            self._end()
            return {"error": self.ended.format("says what is no reply"), "code": 2}
        except (EOFError, BrokenPipeError):
            return self._lost()

    def _prepared(self, question: Any) -> str:
        """The mark of its reply, once the process is ready for the question: now its clock runs."""
        mark = os.urandom(8).hex()  # no reply to an earlier question has it
        self._say({"mark": mark, "question": question}, LOADING)
        self._heard(mark, LOADING)
        self.is_ready = True
        return mark

    def _lost(self) -> Reply:
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GLANCE)
        code = self._end()
        if code == -signal.SIGALRM:
            return {"error": self.late.format(f"{self.seconds:g} s"), "code": 2}
        return {"error": self.ended.format(f"stopped without an answer (exit code {code})"), "code": 2}

    def _checked(self, reply: Any) -> Reply:
        """The reply, with the keys and types that it must have."""
        if not isinstance(reply, dict):
            raise _Garbage
        if type(reply.get("error")) is str:
            refusal = {"error": reply["error"], "code": 1 if reply.get("code") == 1 else 2}
            match reply.get("place"):
                case [str(), int(), str()] as place:
                    refusal["place"] = place
            refusal |= {k: reply[k] for k, kind in self.beside_error.items() if type(reply.get(k)) is kind}
            return refusal
        if not all(type(reply.get(key)) is kind for key, kind in self.keys.items()) or not self.fits(reply):
            raise _Garbage
        return reply

    def fits(self, reply: Reply) -> bool:
        """Do the values of a reply have the form that they must have?"""
        return True

    # -- the process ----------------------------------------------------------------------
    def _started(self) -> subprocess.Popen[bytes]:
        """In a session of its own: ctrl-C is for whoever asked."""
        package_folder = str(Path(__file__).parents[1])
        paths = os.pathsep.join(filter(None, (package_folder, os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", self.module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0,
            start_new_session=True, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        self.process = process
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]
        self._say(self.options, LOADING)
        return process

    def _end(self) -> int:
        """End the process and whatever it has started; its exit code."""
        process, self.process, self.unread, self.is_ready = self.process, None, bytearray(), False
        if process is None:
            return 0
        code = process.poll()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        last = process.wait()
        for pipe in (process.stdin, process.stdout):
            pipe.close()  # type: ignore[union-attr]
        return last if code is None else code

    # -- messages -------------------------------------------------------------------------
    def _say(self, value: Any, seconds: float) -> None:
        assert self.process is not None and self.process.stdin is not None
        pipe, unsent, end = self.process.stdin, json.dumps(value).encode() + b"\n", time.monotonic() + seconds
        while unsent:
            self._wait(pipe, selectors.EVENT_WRITE, end)
            with suppress(BlockingIOError):
                unsent = unsent[os.write(pipe.fileno(), unsent[:4096]) :]

    def _heard(self, mark: str, seconds: float | None) -> Any:
        """Return the content of the next line; it must carry this mark."""
        assert self.process is not None and self.process.stdout is not None
        pipe, end = self.process.stdout, None if seconds is None else time.monotonic() + seconds
        received: bytes | bytearray = self.unread
        while b"\n" not in received:
            self._wait(pipe, selectors.EVENT_READ, end)
            with suppress(BlockingIOError):
                received = os.read(pipe.fileno(), 1 << 20)
                self.unread += received
                if not received:
                    raise EOFError
            if len(self.unread) > LONGEST:
                raise _Garbage
        line, _, self.unread = self.unread.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise _Garbage from None
        if not isinstance(message, list) or len(message) != 2 or message[0] != mark:
            raise _Garbage
        return message[1]

    def _wait(self, pipe: Any, event: int, end: float | None) -> None:
        """Until the pipe is ready; the process may have ended while others hold the pipe."""
        assert self.process is not None
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, event)
            while True:
                seconds_left = GLANCE if end is None else min(GLANCE, end - time.monotonic())
                if seconds_left <= 0:
                    raise _Late
                has_ended = self.process.poll() is not None
                if ready.select(0 if has_ended else seconds_left):
                    return
                if has_ended:
                    raise EOFError


def serve(prepare: Callable[[Any, Options], None], answer: Callable[[Any, Options], Reply]) -> None:
    """The process: options and then questions on standard input, two lines for each on standard output.

    The first says that it is ready, the second is the reply; both have the mark of the question.  prepare:
    what is done for a question before its clock runs.  What either prints is no reply.
    """
    questions = os.fdopen(os.dup(0), encoding="ascii")
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    options = json.loads(questions.readline())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    for line in questions:
        asked = json.loads(line)
        mark, question = asked["mark"], asked["question"]
        prepare(question, options)
        print(json.dumps([mark, None]), file=replies, flush=True)
        signal.setitimer(signal.ITIMER_REAL, options["seconds"])
        with speak_of_flags():
            reply = answer(question, options)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps([mark, reply]), file=replies, flush=True)


@cache  # once in the process
def set_memory_limit(gigabytes: float) -> None:
    """Limit the addresses that the process may have beyond those of the libraries."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + int(gigabytes * GIGABYTE)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):  # not every system has it
        return


def refuse_missing(command: str, error: ModuleNotFoundError) -> Reply:
    """Return the reply of a command whose package is not installed: which one, and what to type."""
    missing = f"klsym {command} needs {error.name}, which is not installed"
    return {"error": f'{missing}: pip install ".[torch]" in a clone of klsym', "code": 2}
