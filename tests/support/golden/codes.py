"""The kind of a message: what a warning, a hypothesis or a refusal is about, whatever its formulas are.

A message is of the kind of its code.  The kind of a refusal is its template: its first words, without
quotations, numbers, formulas and names of the grammar.

>>> code_of("the mean of k1*R exists, 3 times, in 'rho*k1'")
'the mean exists times'
>>> code_of("the mean of 2*k3 exists, 5 times, in 'k3'")
'the mean exists times'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from klsym.language.expressions import ATOMS, PARAMETERS
from klsym.language.messages import Message

WORDS = 10  # of a template
NAMES = {*ATOMS, *PARAMETERS}
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\(known: .*")
WORD = re.compile(r"[A-Za-z][a-z-]{2,}[,.:;)]*")


def code_of(message: Message | str) -> str:
    """The code of a message, or the template of a sentence."""
    return template(message) if isinstance(message, str) else message.code


def template(message: str) -> str:
    """The first plain words of a message."""
    words = (word.rstrip(",.:;)") for word in QUOTED.sub(" ", message).split() if WORD.fullmatch(word))
    kept = [word for word in words if word not in NAMES]
    return " ".join(kept[:WORDS]) or "a formula alone"


def counted(messages: Iterable[Message]) -> dict[str, int]:
    """How many messages there are of each kind."""
    return dict(sorted(Counter(map(code_of, messages)).items()))
