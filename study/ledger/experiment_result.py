"""What an experiment found: a sentence with its numbers, and what the paper says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# A finding beside its source, in three or four words: is it what the source says?
MARKS = {True: "as the paper says", False: "not what the paper says", None: "the paper is silent"}
UNDECIDED = "not decided by these runs"
# What became of a finding that a source speaks of; a stand-in that shows otherwise disagrees.
OUTCOMES = {
    "agrees": "agree", "exception": "agree with an exception", "otherwise": "disagree",
    "undecided": "undecided",
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One finding of an experiment.

    >>> Finding("the slope of the k2 loss is -0.50", holds=True, paper="it falls", agrees=True).mark
    'as the paper says'

    text: what the data show, one line, the measured numbers in it (computed, never typed).
    holds: does the data bear `text` out?  Computed from the data, with a margin above its noise.
    paper: what the source says about it, in few words; empty where it says nothing.
    agrees: is that what was found?  None where the source says nothing, or where the runs do not decide it.
    exception: where the source is not borne out although it agrees on the whole; not shown where it does not.
    stand_in: what was run in place of the source's language models: of them it proves nothing.
    """

    text: str
    holds: bool
    paper: str = ""
    agrees: bool | None = None
    stand_in: str = ""
    exception: str = ""

    def __post_init__(self) -> None:
        if self.agrees is not None and not self.paper:
            raise ValueError("a finding agrees with a source, or not: the source's words are missing")

    @property
    def mark(self) -> str:
        """The comparison with the source in a few words.

        >>> Finding("it falls", True, "it falls", True, "a small model").mark
        'shows the same on a small model'
        >>> Finding("it falls from 8 on", True, "it falls", True, exception="except for n <= 4").mark
        'as the paper says, except for n <= 4'
        """
        aside = f", {self.exception}" if self.exception and self.agrees else ""
        if self.paper and self.agrees is None:
            return UNDECIDED
        if self.paper and self.stand_in:
            return f"shows {'the same' if self.agrees else 'otherwise'} on {self.stand_in}{aside}"
        return MARKS[self.agrees] + aside

    @property
    def outcome(self) -> str:
        """One of OUTCOMES; "" where the source says nothing.

        >>> Finding("it falls from 8 on", True, "it falls", True, exception="except for n <= 4").outcome
        'exception'
        """
        if not self.paper:
            return ""
        if self.agrees is None:
            return "undecided"
        return ("exception" if self.exception else "agrees") if self.agrees else "otherwise"

    @property
    def line(self) -> str:
        """The finding with what its source says, in one line of a list."""
        remark = f" [{self.mark}: {self.paper}]" if self.paper else ""
        return f"  - {self.text}{remark}"


def compare_with_source(text: str, found: bool, paper: str, stand_in: str = "") -> Finding:
    """Return the finding that holds if and only if the data show what its source says.

    >>> compare_with_source("it falls by half", True, "it falls").mark
    'as the paper says'
    """
    return Finding(text, holds=found, paper=paper, agrees=found, stand_in=stand_in)


def count_outcomes(outcomes: Iterable[str]) -> dict[str, int]:
    """Count the findings of each outcome; those without a source are left out.

    >>> count_outcomes(["agrees", "", "agrees", "otherwise"])
    {'agrees': 2, 'exception': 0, 'otherwise': 1, 'undecided': 0}
    """
    counts = Counter(outcomes)
    return {name: counts[name] for name in OUTCOMES}


def describe_outcomes(counts: dict[str, int]) -> str:
    """Say how many findings there are of each outcome.

    >>> describe_outcomes(count_outcomes(["agrees", "exception", "otherwise"]))
    '1 agree, 1 agree with an exception, 1 disagree, 0 undecided'
    """
    return ", ".join(f"{counts[name]} {words}" for name, words in OUTCOMES.items())
