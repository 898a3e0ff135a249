"""Names of random variables, as every reader writes them.  Trusted; standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from klsym.errors import NotInRing

PROBABILITIES = ("q", "p", "mu")
MEASURES = (*PROBABILITIES, "count")  # count: the counting (reference) measure, sum over x
SAMPLE = "sample"  # in place of a measure: the value at one sample, batch or sequence
LOG_RATIOS = ("k1", "w", "log_q", "o")  # o = log q - log old, old a further policy free of theta
HELD = ("H", "H2", "H3", "H4")  # what premises give values at one theta
REWARDS = ("R", "A", "M", *HELD)  # M: a mask
THETA_FREE = (*REWARDS, "length")
SAMPLE_BASES = (*LOG_RATIOS, *THETA_FREE)
WHOLE = ("x",)  # the slots of a single sample
SLOT_WORDS = ("past", "now", "future", "self", "other", "others", "rest")
# Words of the loss grammar and of the printers: no parameter or function may be named so.
_WORDS = """q p mu count sample x y i j t u v s r rho k log_p log_mu log_old rho_old V V_next sg exp log
sqrt sigmoid logsigmoid abs old min max clip disc gae sum total value mean E grad curl KL chi2 J D Var Cov T
groupsum loo centred normalised relative scaled togo seqmean M whole where wherever iff if and or not in is
for every theta exists constant"""
RESERVED = frozenset(re.findall(r"\w+", _WORDS)) | {*SAMPLE_BASES, *SLOT_WORDS}
_IN_ANY_CASE = frozenset(w.lower() for w in RESERVED if len(w) > 1 and w.isalpha())  # kl reads as KL


@dataclass(frozen=True, slots=True)
class Name:
    """A parsed variable name: sg(base''[slot])."""

    base: str
    primes: int
    slot: str
    detached: bool


_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]*)('*)(?:\[([a-z_]+)\])?")


def is_declarable(name: object) -> bool:
    """May a parameter or a function have this name, so that it reads as nothing else in print?

    >>> is_declarable("b_star"), is_declarable("rho"), is_declarable("k1_now")
    (True, False, False)
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,59}", name):
        return False
    first, last = name.split("_", 1)[0] + "_", name.rpartition("_")[2]
    estimator = re.fullmatch(r"k[0-9]+", name)  # of the table language/estimators.py, or of a row to come
    reserved = estimator or name in RESERVED or name.lower() in _IN_ANY_CASE
    return not (reserved or first in ("E_", "sum_", "mean_") or last in SLOT_WORDS)


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
