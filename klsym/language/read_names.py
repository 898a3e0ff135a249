"""The meanings of names in pasted code, as `klsym measure` needs them."""

from __future__ import annotations

from typing import NamedTuple

from klsym.language.expressions import ATOMS
from klsym.language.spellings import attempt_reading


class ReadNames(NamedTuple):
    """Names of pasted code: those of values of every word of the vocabulary, and those of q/mu."""

    of_words: frozenset[str]
    ratios: frozenset[str]


def read_names(text: str) -> ReadNames:
    """Return what the names of pasted code are read as, as far as it is read.

    >>> names = read_names("-(probs*log_probs).sum(-1)*ratio*A + unknown")
    >>> sorted(names.of_words), sorted(names.ratios)
    (['log_probs', 'probs'], ['ratio'])
    """
    reader = attempt_reading(text).reader
    return ReadNames(reader.of_words, frozenset(x for x, e in reader.read_as.items() if e == ATOMS["rho"]))
