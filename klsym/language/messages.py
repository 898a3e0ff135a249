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


TEMPERATURE_SQUARED = (
    "the factor T**2 keeps the size of the gradient, which falls as 1/T**2 at high temperature T"
    " (Hinton et al. 2015, arXiv:1503.02531, section 2)"
)
"""What the square of the temperature does as a factor."""

BY_ITS_NAME = "is what its name says"
WITHOUT_MASK = "without the mask is over the tokens that the mask keeps"
"""The assumption on a mean that leaves out the mask of the others."""

OF_OTHERS = (
    "a sum of rewards over the samples beside what is of one sample",
    "type loo(R) for R - (R.sum() - R)/(n - 1), R less the mean of the other samples, centred(R) for"
    " R - R.mean(), and R for the sum of the rewards of one sequence",
)
"""The refusal of a sum of rewards where the loss is of one sample, and its hint."""

INSIDE_BOUNDS = (
    "a mean inside min, max or clip, whose bound then holds for all samples at once",
    "klsym measure with the code in Python and --group 4 runs it; PPO's loss takes the mean last: klsym"
    " explain '-min(rho*A, clip(rho, 1 - eps, 1 + eps)*A)'",
)
"""The refusal of a mean inside min, max or clip, and its hint."""
