"""What the commands share: bars on stderr, folders, numbers, one-line messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from klsym.errors import UsageError


def one_line(text: str, limit: int = 400) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def make_folder(folder: Path) -> None:
    """Raises UsageError: a folder that cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}") from None


def progress(items: list[Any], describe: Callable[[Any], str]) -> Iterator[Any]:
    """A bar on stderr, silent when stderr is no terminal."""
    from tqdm import tqdm

    with tqdm(
        items, disable=None, leave=False, unit="claim", bar_format="{l_bar}{bar:24}| {n}/{total} {desc}"
    ) as bar:
        for item in bar:
            bar.set_description_str(describe(item))
            yield item


def whole_number(name: str, text: str, least: int) -> int:
    """A whole number, also written as 1e6."""
    try:
        value = Decimal(text)
        whole = int(value) if value == value.to_integral_value() and abs(value) < 10**18 else None
    except (ArithmeticError, ValueError):
        whole = None
    if whole is None or whole < least:
        raise UsageError(f"{name} {text[:40]!r}: a whole number, {least} or more, expected")
    return whole


@contextmanager
def bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """(done, total) -> a bar on stderr, silent when stderr is no terminal."""
    from tqdm import tqdm

    with tqdm(disable=None, leave=False, unit=unit, unit_scale=True) as shown:

        def show(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield show
