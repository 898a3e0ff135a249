"""Words of the command line before and while argparse reads them."""

from __future__ import annotations

import argparse
import re
from itertools import pairwise

LONGEST_WAIT = 1_000_000  # seconds


def guard_minus(argv: list[str]) -> list[str]:
    """`explain -k1` means the loss -k1: argparse takes what starts with a space for no option.

    Nor is the -1/2 in `--rewards -1/2,1` one.
    """
    if argv[:1] == ["optimum"]:
        numbers = [bool(re.match(r"-[.\d]", a)) and b.startswith("--") for b, a in pairwise(argv)]
        return [f" {a}" if after else a for a, after in zip(argv, [False, *numbers], strict=True)]
    if argv[:1] not in (["explain"], ["compare"], ["divergence"]) or "--" in argv:
        return argv
    known = ("-", "-h", *(a for a in argv if a.startswith("--") and a[2:3].isalpha()))
    losses = ("--k", "--r", "--log", "--lam", "--sg", "--R", "--A")  # such as --k1, which is k1
    return [f" {a}" if a.startswith("-") and (a not in known or a.startswith(losses)) else a for a in argv]


def parse_seconds(text: str) -> float:
    """A time limit."""
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit <= LONGEST_WAIT:
        raise argparse.ArgumentTypeError(f"{text.strip()[:40]!r}: seconds from 0 to {LONGEST_WAIT} expected")
    return limit
