"""Pasted code that is refused: one line of text says why."""

from __future__ import annotations

import re

import pytest

from klsym.errors import UsageError
from klsym.language.spellings import read_loss


def check_refusal(code: str, words: str) -> None:
    """Check that code is refused in one line that has these words, a regular expression."""
    with pytest.raises(UsageError) as caught:
        read_loss(code)
    message = str(caught.value)
    assert re.search(words, message) and "\n" not in message, message
