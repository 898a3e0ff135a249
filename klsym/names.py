"""Names of random variables, as every reader writes them.  Trusted; standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from klsym.errors import NotInRing

MEASURES = ("q", "p", "mu", "count")  # count: the counting (reference) measure, sum over x
PROBABILITIES = ("q", "p", "mu")
SAMPLE_BASES = ("k1", "w", "log_q", "R", "A", "H", "length")
REWARDS = ("R", "A", "H")  # H: a detached quantity whose value a statement gives
THETA_FREE = (*REWARDS, "length")
SAMPLE = "sample"  # in place of a measure: the value at one batch or sequence
WHOLE = ("x",)  # the slots of a single sample


@dataclass(frozen=True, slots=True)
class Name:
    """A parsed variable name: sg(base''[slot])."""

    base: str
    primes: int
    slot: str
    detached: bool


_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]*)('*)(?:\[([a-z_]+)\])?")


@lru_cache(maxsize=4096)
def parse_name(text: str) -> Name:
    """Split a variable name into its parts.

    >>> parse_name("sg(k1)")
    Name(base='k1', primes=0, slot='x', detached=True)
    """
    detached = text.startswith("sg(") and text.endswith(")")
    match = _NAME.fullmatch(text[3:-1] if detached else text)
    if match is None:
        raise NotInRing(f"{text!r} is no variable name")
    base, primes, slot = match.groups()
    if slot == "x":  # one variable, one name
        raise NotInRing(f"{text!r}: the slot x is not written out")
    return Name(base, len(primes), slot or "x", detached)


@lru_cache(maxsize=4096)
def detach_name(text: str) -> str:
    return text if parse_name(text).detached else f"sg({text})"


@lru_cache(maxsize=4096)
def attach_name(text: str) -> str:
    return text[3:-1] if parse_name(text).detached else text
