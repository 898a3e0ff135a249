"""What is to be said of an answer: a code and its values.  The sentences stand in `klsym.render.sentences`.

>>> Message("heavy-tail", ratio="r")
Message('heavy-tail', ratio='r')
>>> Message("heavy-tail", ratio="r") == Message("heavy-tail", ratio="rho*r")
False
"""

from __future__ import annotations

from typing import Any


class Message:
    """A code, which never changes its meaning, and the values that its sentence names."""

    def __init__(self, code: str, **values: Any) -> None:
        self.code, self.values = code, values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.code, self.values) == (other.code, other.values)

    def __hash__(self) -> int:
        return hash(self.code)

    def __repr__(self) -> str:
        return f"Message({', '.join([repr(self.code), *(f'{n}={v!r}' for n, v in self.values.items())])})"
