"""Small trees of tokens, as models read them."""

from __future__ import annotations

from typing import Any

from klsym.kernel.intervals import Interval

HALF = ["1/2", "1/2"]


def node(following: list[Any], **rows: Any) -> dict[str, Any]:
    """A node of equally likely tokens under each measure."""
    n = len(following)
    same = {m: [f"1/{n}" if n > 1 else "1"] * n for m in ("q", "p", "mu")}
    return same | {"u": ["0"] * n, "v": ["0"] * n, "rewards": {}, "next": following} | rows


def chain(steps: int, end: Any) -> Any:
    """So many tokens without a choice, then the end."""
    for _ in range(steps):
        end = node([end])
    return end


def close(interval: Interval, value: float) -> bool:
    wide = 1e-12 * max(1.0, abs(value))
    return float(interval.lower) - wide <= value <= float(interval.upper) + wide
