"""Coefficients taken apart into terms, and the directions along which they move; no code of klsym."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from klsym.kernel.ring import ExpPoly

RATIO = {"k1": {"q": 1, "p": -1}, "w": {"q": 1, "mu": -1}, "log_q": {"q": 1}, "o": {"q": 1, "old": -1}}
NAME = re.compile(r"([A-Za-z_0-9]+)('*)(?:\[([a-z]+)\])?")


# ---------------------------------------------------------------------------- coefficients, taken apart
@dataclass(frozen=True)
class Variable:
    base: str
    order: int
    slot: str
    frozen: bool


Factors = tuple[tuple[Variable, int], ...]
Constants = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Term:
    """scale * constants * factors * exp(sum of lines + sum of wild)."""

    scale: Fraction
    constants: Constants
    factors: Factors
    lines: tuple[tuple[Fraction, Constants, Variable], ...]  # multiples of log ratios
    wild: tuple[tuple[Fraction, Constants, Factors], ...]  # all else in the exponent


def _variable(name: str) -> Variable:
    frozen = name.startswith("sg(")
    match = NAME.fullmatch(name[3:-1] if frozen else name)
    assert match is not None, name
    return Variable(match[1], len(match[2]), match[3] or "x", frozen)


def _factors(monomial: Any, parameters: frozenset[str]) -> tuple[Constants, Factors]:
    constants = tuple((n, p) for n, p in monomial if n in parameters)
    return constants, tuple((_variable(n), p) for n, p in monomial if n not in parameters)


@lru_cache(maxsize=20000)
def terms_of(element: ExpPoly, parameters: frozenset[str]) -> tuple[Term, ...]:
    found = []
    for (monomial, exponent), scale in element.terms.items():
        constants, factors = _factors(monomial, parameters)
        lines, wild = [], []
        for inner, value in exponent:
            c, f = _factors(inner, parameters)
            if len(f) == 1 and f[0][1] == 1 and f[0][0].base in RATIO:
                lines.append((Fraction(value), c, f[0][0]))
            else:
                wild.append((Fraction(value), c, f))
        found.append(Term(Fraction(scale), constants, factors, tuple(lines), tuple(wild)))
    return tuple(found)


# ---------------------------------------------------------------------------- derivatives
@dataclass(frozen=True)
class Mode:
    """Along which directions live and detached quantities and the measure q move, as axes a and b."""

    live: str = ""
    frozen: str = ""
    measure: str = ""
    threshold: int = 0  # the order of vanishing that its derivatives need
    curl: bool = False

    @property
    def moves(self) -> bool:
        return bool(self.live)

    @property
    def total(self) -> bool:
        """Does the whole mean move, and not its losses alone, which hold regions constant?"""
        return bool(self.measure) or self.curl


VALUE = Mode()
GRADIENT = Mode(live="u", measure="u", threshold=1)
PATHWISE = Mode(live="u", threshold=1)
TOTAL = Mode(live="u", frozen="u", measure="u", threshold=1)  # of the values, detached or not
AXES = {"u": (1, None, None), "v": (2, None, None), "uv": (1, 2, 3), "vu": (2, 1, 3),
        ".v": (None, 2, None), ".u": (None, 1, None)}  # fmt: skip
