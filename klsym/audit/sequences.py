"""Log densities of fixed policies that the code keeps as one number a sequence: sums over its tokens.

The shape alone does not tell a sum from a mean.  A loss that compares the policy with them does: it does not
change when all log densities of tokens are shifted alike, if sums are compared with sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from klsym.audit.binding import Bindings
from klsym.audit.confirm import draw, duals
from klsym.audit.duals import Dual, evaluate
from klsym.audit.terms import Refused
from klsym.language.expressions import DENSITIES
from klsym.language.sums import Whole

FIXED = ("log_p", "log_mu", "log_old")
SHIFT = 0.37


class Unpaired(Refused):
    """A number per sequence that nothing declares to be the sum over its tokens."""


def with_sums(bindings: Bindings) -> Iterator[Bindings]:
    """The bindings with one of the names of fixed policies as a sum over tokens, then with all of them."""
    names = [name for name in bindings.guessed if bindings.texts[name] in FIXED]
    for chosen in [*([name] for name in names), *([names] if len(names) > 1 else [])]:
        yield bindings.with_roles({name: f"whole({bindings.texts[name]})" for name in chosen})


def summed(bindings: Bindings) -> list[str]:
    """The names that were guessed to be sums."""
    return [name for name in bindings.guessed if bindings.roles[name].has(Whole)]


def refuse_unpaired(formula: Any, bindings: Bindings) -> None:
    """Raise Refused unless sums over the tokens of a sequence are compared with sums alone."""
    names = summed(bindings)
    if not names:
        return
    point = draw(0, 1.0, formula.free_symbols, frozenset())
    numbers = duals(point, vocabulary=False)
    moved = {x: Dual(d.value + SHIFT, d.slope) if x in DENSITIES else d for x, d in numbers.items()}
    one, other = (evaluate(formula, of).value for of in (numbers, moved))
    if not np.allclose(one, other, rtol=1e-9, atol=1e-9):
        told = f"{' and '.join(names)}: one number a sequence, which may be a sum or a mean over its tokens"
        text = bindings.texts[names[0]]
        raise Unpaired(f"{told}: --map {names[0]}='{text}' says it is the sum")
