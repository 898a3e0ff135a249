"""Helpers of all commands: bars on stderr, numbers, one-line messages, output without control characters."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from klsym.errors import UsageError
from klsym.escaping import printable

if TYPE_CHECKING:
    from klsym.worker_process import Asked

Item = TypeVar("Item")
PAGE = 100  # columns
PATIENCE = 1.5  # seconds before the terminal says what klsym is doing
LETTERS = {
    "q": "q is the policy", "p": "p the reference", "mu": "mu the old policy, which sampled", "r": "r = p/q",
    "rho": "rho = q/mu", "s": "s = grad log q",
}  # fmt: skip
TERMINAL = {"stdout": False}  # is it one?  set when a command starts
# Nearly all that is made stays.  To look through it for cycles every 700 objects, and once more when Python
# exits, takes a quarter of a verdict; SymPy and klsym alone make more than 100,000 objects.
FEW_COLLECTIONS = 200_000  # new objects until Python looks for cycles
LONGEST = 10_000  # characters of a complaint: it may end in a command to paste, with many settings


def format_line(text: str, limit: int = 400) -> str:
    r"""Return a message without line breaks and control characters, cut where it is long.

    >>> format_line("no such\n  loss \x1b[2J")
    'no such loss \\x1b[2J'
    """
    text = printable(" ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def print_complaint(message: str) -> None:
    """Print one line on stderr."""
    print(f"klsym: {format_line(message, LONGEST)}", file=sys.stderr)


def note_terminal() -> None:
    """Note whether the output of a command goes to a terminal: it may be collected before it is printed."""
    TERMINAL["stdout"] = sys.stdout is not None and sys.stdout.isatty()


def is_on_terminal() -> bool:
    """Does the output of the command go to a terminal?"""
    return TERMINAL["stdout"]


def get_terminal_width() -> int:
    """Return the columns of the terminal, at most those of a page; without a terminal those of a page."""
    if not is_on_terminal() and "COLUMNS" not in os.environ:
        return PAGE
    return min(shutil.get_terminal_size((PAGE, 24)).columns, PAGE)


def wrap_for_terminal(text: str, indent: str = "    ") -> str:
    """Return a long line wrapped for the terminal; what reads a pipe gets one line."""
    if not is_on_terminal():
        return text
    wrapped = textwrap.wrap(
        text, max(get_terminal_width(), 30), subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(wrapped)


def explain_letters(answer: str) -> str:
    """Return one line on the letters of an answer, for a terminal; empty in a pipe, or without any.

    What the answer says already is left out, such as r = p/q.
    """
    if not is_on_terminal():
        return ""
    said = [
        text for letter, text in LETTERS.items() if re.search(rf"(?<![a-z0-9]){letter}(?![a-z0-9_])", answer)
    ]
    text = ", ".join(text for text in said if text not in " ".join(answer.split()))
    return wrap_for_terminal(f"  names    {text}", " " * 11) if text else ""


class _Escaped:
    """A stream that escapes what cannot be printed, but for the ends of lines."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text, keep="\n"))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def escape_output() -> Iterator[None]:
    r"""Escape control characters in all that the block prints.

    >>> with escape_output():
    ...     print("\x1b[2Jok")
    \x1b[2Jok
    """
    if sys.stdout is None:  # no file behind it
        yield
        return
    with redirect_stdout(_Escaped(sys.stdout)):  # type: ignore[type-var]
        yield


def print_patch(text: str) -> None:
    """Print a diff, byte by byte where no terminal reads it: the ends of its lines are those of the file."""
    stream = getattr(sys.stdout, "_stream", sys.stdout)
    if stream is None or stream.isatty() or not hasattr(stream, "buffer"):
        print(text, end="")
        return
    stream.flush()
    stream.buffer.write(text.encode())
    stream.buffer.flush()


def make_output_folder(text: str) -> Path:
    """Return the folder that a user names, made if it is missing.

    Raises UsageError: no name; a folder that cannot be made.
    """
    if not text.strip():  # Path("") is the folder that one happens to stand in
        raise UsageError("the name of a folder is empty; a dot stands for this one")
    from klsym.files import make_folder

    return make_folder(Path(text))


def announce_step(text: str) -> None:
    """Print one line on a step of long work on stderr, where no terminal shows a bar."""
    if sys.stderr is not None and not sys.stderr.isatty():
        print(f"klsym: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def show_progress(items: list[Any], describe: Callable[[Any], str]) -> Iterator[Any]:
    """Yield the items behind a bar on stderr, silent if stderr is no terminal, or without tqdm."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield from items
        return
    with tqdm(
        items, disable=None, leave=False, unit="claim", bar_format="{l_bar}{bar:24}| {n}/{total} {desc}"
    ) as bar:
        for item in bar:
            bar.set_description_str(describe(item))
            yield item


@contextmanager
def show_waiting(describe: Callable[[], str]) -> Iterator[None]:
    """Say on the terminal what klsym is doing, after PATIENCE seconds; the line is erased at the end."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    is_done, start, erase = threading.Event(), time.monotonic(), "\r\x1b[K"

    def show() -> None:
        pause, last = PATIENCE, ""
        while not is_done.wait(pause):
            width, seconds = shutil.get_terminal_size((PAGE, 24)).columns, time.monotonic() - start
            text = format_line(f"klsym: {seconds:.0f} s, {describe()}", max(width - 1, 20))
            print(f"{erase}{text}", end="", file=sys.stderr, flush=True)
            pause, last = 1.0, erase
        print(last, end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def describe_work(asked: Asked, name: str) -> str:
    """Say what the process does with the code of this name."""
    return f"{'running' if asked.is_ready else 'loading the libraries of'} {name}"


def iterate_shown(items: Sequence[Item], asked: Asked, name: Callable[[Item], str]) -> Iterator[Item]:
    """Yield the items; while one of them takes long, the terminal says what the process does with it."""
    for number, item in enumerate(items, 1):
        place = f"{number} of {len(items)}: " if len(items) > 1 else ""
        shown = name(item)
        with show_waiting(lambda place=place, shown=shown: f"{place}{describe_work(asked, shown)}"):  # type: ignore[misc]
            yield item


def split_names(option: str, texts: list[str]) -> tuple[str, ...]:
    """Return the names given to an option, separated by spaces or commas, each once.

    >>> split_names("--only", ["k1,k2", "k1"])
    ('k1', 'k2')

    Raises UsageError: there is no name in what was given.
    """
    pieces = (piece.strip() for text in texts for piece in text.split(","))
    names = tuple(dict.fromkeys(piece for piece in pieces if piece))
    if texts and not names:
        raise UsageError(f"{option}: a name expected, not {' '.join(texts)[:40]!r}")
    return names


def parse_whole_number(name: str, text: str, least: int) -> int:
    """Return a whole number, also written as 1e6.

    >>> parse_whole_number("--samples", "1e6", least=1)
    1000000

    Raises UsageError: no whole number, or one below the least.
    """
    try:
        value = Decimal(text)
        whole = int(value) if value == value.to_integral_value() and abs(value) < 10**18 else None
    except (ArithmeticError, ValueError):
        whole = None
    if whole is None or whole < least:
        raise UsageError(f"{name} {text[:40]!r}: a whole number, {least} or more, expected")
    return whole


@contextmanager
def show_bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that moves a bar on stderr, silent without a terminal or tqdm."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda done, total: None
        return
    with tqdm(disable=None, leave=False, unit=unit, unit_scale=True) as progress_bar:

        def show(done: int, total: int) -> None:
            progress_bar.total = total
            progress_bar.update(done - progress_bar.n)

        yield show
