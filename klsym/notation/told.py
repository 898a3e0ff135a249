"""Sentences of an answer that carry what they are about: nothing is decided by how they are worded.

>>> about(Told("r is unbounded", "heavy_tail")), about("a plain sentence")
('heavy_tail', '')
"""

from __future__ import annotations

GIVEN = "given"  # a hypothesis that says what H is


class Told(str):
    """A sentence, and what it is about."""

    about: str

    def __new__(cls, text: str, about: str = "") -> Told:
        told = super().__new__(cls, text)
        told.about = about
        return told


def about(text: str) -> str:
    """What a sentence is about; empty for a plain one."""
    return text.about if isinstance(text, Told) else ""
