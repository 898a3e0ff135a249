"""Where the slots of a batch or a sequence lie, by enumeration: a row of a table for each index.

A row of a mean is one batch (x_1, .., x_n) of whole samples, or a step t of the first of them.  Its slots
are samples, all further samples, and the tokens of x_1 before, at and after t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from klsym.numeric.models import FiniteModel
from klsym.numeric.number_systems import refuse_unless
from klsym.numeric.positions import Places

LARGEST = 20_000  # rows
Paths = tuple[tuple[int, ...], ...]
Keys = Mapping[str, Sequence[tuple[int, ...]]]  # slot -> what it holds, or what is known there, in each row


@dataclass(frozen=True)
class Structure:
    """The slots of an index: some samples, in order; the others, of which there are n less; or steps."""

    samples: tuple[str, ...]
    others: str = ""
    steps: bool = False

    @property
    def main(self) -> str:
        """The slot of the one sample or step that a mean at this index is taken over."""
        return "now" if self.steps else self.samples[0]


STRUCTURES = {
    "": Structure(("x",)),
    "i": Structure(("self",), "others"),
    "ij": Structure(("self", "other"), "rest"),
    "t": Structure(("x",), steps=True),
    "it": Structure(("x",), "others", steps=True),
}
ONE_SAMPLE = {slot for structure in STRUCTURES.values() for slot in structure.samples}
PREFIX = "prefix"  # an index of its own: a row is a token, which knows what came before it


@dataclass(frozen=True, eq=False)
class Index:
    """The rows of an index.

    slots: slot -> its positions in each row.  known: slot -> what is known there, for A.
    drawn: what a row is a part of, and is as likely as: a batch, a sequence, or a prefix.
    """

    slots: Mapping[str, Places]
    known: Keys
    drawn: Places

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.drawn.index)

    @property
    def batches(self) -> Any:
        """The whole samples of each row, shape (rows, n)."""
        return self.drawn.index

    def select_sample(self, outcome: int, size: int) -> Any:
        """Return the rows of one batch or sequence: samples outcome, outcome + 1, ... modulo their number."""
        batch = (outcome + np.arange(self.batches.shape[1])) % size
        return np.flatnonzero((self.batches == batch).all(axis=1))

    def find_rotated_rows(self) -> Any:
        """Return, for each i and each batch, the row in which x_i comes first: shape (n, rows)."""
        n, row_of = self.batches.shape[1], {tuple(x): row for row, x in enumerate(self.batches.tolist())}
        return np.array(
            [[row_of[(x[i], *x[:i], *x[i + 1 :])] for x in self.batches.tolist()] for i in range(n)]
        )


def read_batch_size(model: FiniteModel) -> int:
    """Return the parameter n of a model, a whole number; 2 where the model leaves it open."""
    n = model.parameters.get("n", 2)
    refuse_unless(n == int(n) and n >= 1, f"n = {n}: a batch holds a whole number of samples")
    return int(n)


def build_index(model: FiniteModel, index: str) -> Index:
    """Return the rows of an index on a model; raises UsageError for too many.

    >>> from klsym.numeric.models import random_model
    >>> rows = build_index(random_model(0, 2), "i")
    >>> rows.batches.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if index == PREFIX:
        return _build_prefixes(model.layout.before)
    return _build_rows(index, model.layout.paths, read_batch_size(model) if STRUCTURES[index].others else 1)


@lru_cache(maxsize=512)
def _build_rows(index: str, paths: Paths, n: int) -> Index:
    structure = STRUCTURES[index]
    refuse_unless(n >= len(structure.samples), f"n = {n}: no two samples of a batch")
    rows = len(paths) ** n * (max(map(len, paths)) if structure.steps else 1)
    refuse_unless(rows <= LARGEST, f"{rows} rows are too many: n or the model is too large")
    batches = list(product(range(len(paths)), repeat=n))
    tokens: Keys = {}
    seen: Keys = {}
    if structure.steps:
        steps = [(batch, t) for batch in batches for t in range(len(paths[batch[0]]))]
        tokens, seen = _split_steps([(paths[batch[0]], t) for batch, t in steps])
        batches = [batch for batch, _ in steps]
    whole = {slot: [batch[i : i + 1] for batch in batches] for i, slot in enumerate(structure.samples)}
    if structure.others:
        whole[structure.others] = [batch[len(structure.samples) :] for batch in batches]
    slots = {slot: Places.from_rows(positions, whole=False) for slot, positions in tokens.items()}
    slots |= {slot: Places.from_rows(positions, whole=True) for slot, positions in whole.items()}
    return Index(slots, {**seen, **whole}, Places.from_rows(batches, whole=True))


def _split_steps(steps: Sequence[tuple[tuple[int, ...], int]]) -> tuple[Keys, Keys]:
    """Return the tokens of past, now and future, and the branches that are known there."""
    now = [path[t : t + 1] for path, t in steps]
    past, future = [path[:t] for path, t in steps], [path[t + 1 :] for path, t in steps]
    seen = {
        "past": past, "now": [path[: t + 1] for path, t in steps], "future": [(*path, t) for path, t in steps]
    }  # fmt: skip
    return {"past": past, "now": now, "future": future}, seen


@lru_cache(maxsize=64)
def _build_prefixes(before: Paths) -> Index:
    now = [(token,) for token in range(len(before))]
    slots = {"past": Places.from_rows(before, whole=False), "now": Places.from_rows(now, whole=False)}
    seen = {"past": before, "now": [(*path, token) for token, path in enumerate(before)]}
    return Index(slots, seen, slots["past"])
