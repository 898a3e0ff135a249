"""Log densities of fixed policies that the code keeps as one number a sequence: sums over its tokens.

The shape alone does not tell a sum from a mean.  A loss that compares the policy with them does: it does not
change when all log densities of tokens are shifted alike, if sums are compared with sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from klsym.audit.binding import Bindings
from klsym.audit.confirm import draw, make_duals
from klsym.audit.duals import Dual, evaluate
from klsym.audit.terms import Refused, mask, sequence_mask
from klsym.errors import spell_option
from klsym.language.expressions import DENSITIES
from klsym.language.sums import Whole
from klsym.language.training_names import split_words

SAMPLES = {"sample", "samples", "seq", "sequence", "sequences"}  # in the names of masks
FIXED = ("log_p", "log_mu", "log_old")
SHIFT = 0.37


class UnpairedSums(Refused):
    """A number per sequence that nothing declares to be the sum over its tokens."""


def iterate_sums(bindings: Bindings) -> Iterator[Bindings]:
    """Yield the bindings with masks that are named so as masks of sequences; with one name of a fixed policy
    as a sum over tokens, then with all of them."""
    masks = [name for name in bindings.list_guessed(mask) if {*split_words(name)} & SAMPLES]
    if masks:
        yield bindings.replace_roles(dict.fromkeys(masks, sequence_mask.name))
    names = [name for name in bindings.guessed if bindings.texts[name] in FIXED]
    for chosen in [*([name] for name in names), *([names] if len(names) > 1 else [])]:
        yield bindings.replace_roles({name: f"whole({bindings.texts[name]})" for name in chosen})


def list_summed(bindings: Bindings) -> list[str]:
    """Return the names that were guessed to be sums."""
    return [name for name in bindings.guessed if bindings.roles[name].has(Whole)]


def refuse_unpaired(formula: Any, bindings: Bindings) -> None:
    """Raise Refused unless sums over the tokens of a sequence are compared with sums alone."""
    names = list_summed(bindings)
    if not names:
        return
    point = draw(0, 1.0, formula.free_symbols, frozenset())
    numbers = make_duals(point, vocabulary=False)
    shifted = {x: Dual(d.value + SHIFT, d.slope) if x in DENSITIES else d for x, d in numbers.items()}
    value, shifted_value = (evaluate(formula, entries).value for entries in (numbers, shifted))
    if not np.allclose(value, shifted_value, rtol=1e-9, atol=1e-9):
        statement = (
            f"{' and '.join(names)}: one number a sequence, which may be a sum or a mean over its tokens"
        )
        text = bindings.texts[names[0]]
        asked = spell_option("map", f"{names[0]}='{text}'")
        raise UnpairedSums(f"{statement}: {asked} says it is the sum")
