"""`klsym check`: replay certificates with the kernel alone."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from klsym.commands.console import format_line, print_complaint
from klsym.errors import Refused, UsageError
from klsym.escaping import printable
from klsym.files import read_text


def replay(options: argparse.Namespace) -> int:
    """Replay certificates; 1 if one is refused, 2 if one cannot be read."""
    from klsym.kernel import check, show

    code = 0
    for path in list_certificate_files(options.files):
        try:
            theorems = check(read_certificate(path))
        except Refused as refusal:
            print(f"REFUSED {printable(str(path))}: {format_line(str(refusal))}")
            code = max(code, 1)
        except UsageError as error:
            print_complaint(str(error))
            code = 2
        else:
            print(f"ok {printable(str(path))}")
            print("\n".join(_indent(show(theorem, options.full)) for theorem in theorems))
    return code


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def list_certificate_files(names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.glob("*.json"))
        if not inside:
            raise UsageError(f"{name}: no certificates (*.json) in this folder")
        yield from inside


def read_certificate(path: Path) -> Any:
    from klsym.kernel import read
    from klsym.kernel.replay import MAX_SIZE

    try:
        return read(read_text(path, MAX_SIZE))
    except Refused as refusal:
        raise UsageError(f"{path}: {format_line(str(refusal))}") from None
