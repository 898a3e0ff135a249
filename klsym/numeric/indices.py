"""Where the slots of a batch or a sequence lie, by enumeration of all batches or sequences.

i    a row is a batch (x_1, .., x_n): self is x_1, others are x_2, .., x_n
ij   a row is a batch: self, other and rest are x_1, x_2 and x_3, .., x_n
t    a row is a step t of a sequence: past, now and future are its tokens before, at and after t
it   a row is a step of x_1, the first of a batch of sequences; others are x_2, .., x_n, whole
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from klsym.numeric.positions import Places
from klsym.numeric.systems import refuse_unless
from klsym.numeric.trees import Model, Shape, TreeModel, layout_of

LARGEST = 20_000  # rows
SAMPLES = {"i": ("self",), "ij": ("self", "other")}  # slots of one sample, in order; then the others
OTHERS = {"i": "others", "ij": "rest"}
PREFIX = "prefix"  # an index of its own: a row is a token, which knows what came before it
Paths = tuple[tuple[int, ...], ...]
Key = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Index:
    """The rows of an index.

    slots: slot -> its positions in each row.  known: slot -> what is known there, for A.
    batches: the batch of each row, shape (rows, n).
    """

    slots: Mapping[str, Places]
    known: Mapping[str, Sequence[Key]]
    batches: Any

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.batches)

    @cached_property
    def drawn(self) -> Places:
        """The whole samples of each row."""
        return Places(True, self.batches, np.ones(self.batches.shape, dtype=bool))

    def sample(self, outcome: int, size: int) -> Any:
        """The rows of one batch or sequence: samples outcome, outcome + 1, ... modulo their number."""
        batch = (outcome + np.arange(self.batches.shape[1])) % size
        return np.flatnonzero((self.batches == batch).all(axis=1))

    def turns(self) -> Any:
        """For each i and each batch, the row in which x_i comes first: shape (n, rows)."""
        n, row_of = self.batches.shape[1], {tuple(x): row for row, x in enumerate(self.batches.tolist())}
        return np.array(
            [[row_of[(x[i], *x[:i], *x[i + 1 :])] for x in self.batches.tolist()] for i in range(n)]
        )


def batch_size(model: Model) -> int:
    """The parameter n of a model, a whole number; 2 where the model leaves it open."""
    n = model.parameters.get("n", 2)
    refuse_unless(n == int(n) and n >= 1, f"n = {n}: a batch holds a whole number of samples")
    return int(n)


def index_of(model: Model, index: str) -> Index:
    """The rows of an index on a model; raises UsageError for sequences without a tree, or too many rows.

    >>> from klsym.numeric.models import random_model
    >>> rows = index_of(random_model(0, 2), "i")
    >>> rows.batches.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if index in SAMPLES:
        return _batches(index, model.size, batch_size(model))
    refuse_unless(isinstance(model, TreeModel), "a sequence needs a model that is a tree")
    assert isinstance(model, TreeModel)
    if index == PREFIX:
        return _prefixes(model.shape)
    return _steps(index, model.layout.paths, batch_size(model) if index == "it" else 1)


def _refuse_too_many(rows: int) -> None:
    refuse_unless(rows <= LARGEST, f"{rows} rows are too many: n or the model is too large")


@lru_cache(maxsize=64)
def _batches(index: str, size: int, n: int) -> Index:
    refuse_unless(n >= len(SAMPLES[index]), f"n = {n}: no two samples of a batch")
    _refuse_too_many(size**n)
    batches = list(product(range(size), repeat=n))
    singles = SAMPLES[index]
    parts = {slot: [batch[i : i + 1] for batch in batches] for i, slot in enumerate(singles)}
    parts[OTHERS[index]] = [batch[len(singles) :] for batch in batches]
    slots = {slot: Places.of(rows, whole=True) for slot, rows in parts.items()}
    return Index(slots, parts, np.array(batches))


@lru_cache(maxsize=64)
def _steps(index: str, paths: Paths, n: int) -> Index:
    _refuse_too_many(len(paths) ** n * max(map(len, paths)))
    batches = product(range(len(paths)), repeat=n)
    rows = [(batch, t) for batch in batches for t in range(len(paths[batch[0]]))]
    at = [(paths[batch[0]], t) for batch, t in rows]
    drawn = [batch for batch, _ in rows]
    tokens = {
        "past": [path[:t] for path, t in at],
        "now": [path[t : t + 1] for path, t in at],
        "future": [path[t + 1 :] for path, t in at],
    }
    whole = {"x": [batch[:1] for batch in drawn]}
    if index == "it":
        whole["others"] = [batch[1:] for batch in drawn]
    slots = {slot: Places.of(rows, whole=False) for slot, rows in tokens.items()}
    slots |= {slot: Places.of(rows, whole=True) for slot, rows in whole.items()}
    known = {
        "past": tokens["past"],
        "now": [path[: t + 1] for path, t in at],
        "future": [(*path, t) for path, t in at],
        **whole,
    }
    return Index(slots, known, np.array(drawn))


@lru_cache(maxsize=64)
def _prefixes(shape: Shape) -> Index:
    before = layout_of(shape).before
    parts: dict[str, list[Key]] = {"past": list(before), "now": [(token,) for token in range(len(before))]}
    known = {"past": parts["past"], "now": [(*path, token) for token, path in enumerate(before)]}
    slots = {slot: Places.of(rows, whole=False) for slot, rows in parts.items()}
    return Index(slots, known, np.zeros((len(before), 0), dtype=np.intp))
