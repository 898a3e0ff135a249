"""The file of the corpus: pairs with their answers, compressed.

>>> len(read()) >= 1500
True
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from klsym.files import write_whole

from .answers import Answer
from .pairs import Pair, pair

FILE = Path(__file__).with_name("corpus.json.xz")
Row = tuple[Pair, Answer]


@cache
def read() -> tuple[Row, ...]:
    """All pairs with their answers, in the order of the file."""
    rows = json.loads(lzma.decompress(FILE.read_bytes()))
    return tuple((read_pair(row), row["answer"]) for row in rows)


def read_pair(row: dict[str, Any]) -> Pair:
    """A pair as it is stored."""
    return pair(row["text"], row["options"], row["parameters"], row["source"])


def packed(rows: Iterable[Row]) -> bytes:
    """The bytes of the file: the same for the same rows."""
    data = [
        {
            "text": one.text, "options": dict(one.options), "parameters": list(one.parameters),
            "source": one.source, "answer": answer,
        }
        for one, answer in rows
    ]  # fmt: skip
    lines = ",\n".join(json.dumps(row, separators=(",", ":"), sort_keys=True) for row in data)
    return lzma.compress(f"[{lines}]\n".encode(), preset=9 | lzma.PRESET_EXTREME)


def write(rows: Iterable[Row]) -> None:
    """Store the corpus."""
    write_whole(FILE, packed(rows))
    read.cache_clear()
