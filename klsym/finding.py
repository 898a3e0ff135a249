"""What an experiment found: a sentence with its numbers, and what the paper says of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One finding of an experiment.

    >>> Finding("the slope of the k2 loss is -0.50", holds=True, paper="it falls", agrees=True).mark
    'as the paper says'

    text: what the data show, one line, the measured numbers in it (computed, never typed).
    holds: does the data bear `text` out?  Computed from the data, with a margin above its noise.
    paper: what the source says about it, in few words; empty where it says nothing.
    agrees: is that what was found?  None where the source says nothing.
    """

    text: str
    holds: bool
    paper: str = ""
    agrees: bool | None = None

    @property
    def mark(self) -> str:
        """The comparison with the source in three or four words."""
        words = {True: "as the paper says", False: "not what the paper says", None: "the paper is silent"}
        return words[self.agrees]

    @property
    def line(self) -> str:
        """The finding with what its source says, in one line of a list."""
        said = f" [{self.mark}: {self.paper}]" if self.paper else ""
        return f"  - {self.text}{said}"
