"""Random streams and the plan of a run: which samples are drawn from which stream.

A run of N samples is cut into chunks; chunk i draws from the stream (seed, key + (i,)).  What is drawn
depends on (seed, samples, chunk) alone: not on who computes a chunk, when, or beside how many others.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.errors import UsageError

CHUNK = 2**20  # samples
# SeedSequence reads seed and key as one list of 32-bit words, the seed padded to four of them: within
# these limits two streams with different names have different words.
SEEDS = 2**128
KEYS = 2**32


def _require_whole(value: Any, name: str, least: int, limit: int | None = None) -> int:
    """A whole number, least <= value < limit, as an int."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    fits = number is not None and number >= least and (limit is None or number < limit)
    if number is None or not fits or isinstance(value, bool | np.bool_):
        end = "" if limit is None else f" and below 2^{limit.bit_length() - 1}"
        raise UsageError(f"{name} {value!r}: a whole number, at least {least}{end}, expected")
    return number


@dataclass(frozen=True)
class Stream:
    """A named source of random numbers: a seed and a path of integers below it.

        SeedSequence(entropy=seed, spawn_key=key)

    >>> stream = Stream(7)
    >>> stream.derive_child(3).derive_child(1) == stream.derive_child(3, 1) == Stream(7, (3, 1))
    True
    >>> bool(stream.build_generator().random() == stream.build_generator().random())
    True

    seed: 0 <= seed < 2^128.  key: whole numbers, 0 <= number < 2^32.
    Plain data: equal streams give the same numbers in every process, and streams with different seeds
    or keys are independent for all purposes of simulation.
    Raises UsageError: a seed or key that is no whole number or out of range.
    Source: numpy.random.SeedSequence, after O'Neill 2015, Developing a seed_seq alternative.
    """

    seed: int
    key: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", _require_whole(self.seed, "seed", 0, SEEDS))
        object.__setattr__(
            self, "key", tuple(_require_whole(word, "stream key", 0, KEYS) for word in self.key)
        )

    def derive_child(self, *more: int) -> Stream:
        """The stream one or more steps below."""
        return Stream(self.seed, (*self.key, *more))

    def build_sequence(self) -> np.random.SeedSequence:
        """The NumPy seed sequence of the stream."""
        return np.random.SeedSequence(entropy=self.seed, spawn_key=self.key)

    def build_generator(self) -> np.random.Generator:
        """A NumPy generator at the start of the stream (SFC64, the fastest that NumPy has)."""
        return np.random.Generator(np.random.SFC64(self.build_sequence()))

    def draw_seed(self) -> int:
        """A seed for other generators, 0 <= seed < 2^64."""
        return int(self.build_sequence().generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class Chunk:
    """A part of a run: `size` samples, to be drawn from `stream`; index 0, 1, ... in the run."""

    index: int
    size: int
    stream: Stream


@dataclass(frozen=True)
class Plan:
    """How many samples a run draws, from where, in chunks of which size.

    >>> plan = Plan(2500, Stream(7), chunk=1000)
    >>> [(chunk.index, chunk.size, chunk.stream.key) for chunk in plan.list_chunks()]
    [(0, 1000, (0,)), (1, 1000, (1,)), (2, 500, (2,))]
    >>> len(Plan(10**15, Stream(7)))
    953674317

    samples: 1 or more.  chunk: samples a chunk, 1 or more; part of what determines the numbers.
    Raises UsageError: numbers out of range, no Stream, more than 2^32 chunks.
    """

    samples: int
    stream: Stream
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", _require_whole(self.samples, "samples", 1))
        object.__setattr__(self, "chunk", _require_whole(self.chunk, "chunk", 1))
        if not isinstance(self.stream, Stream):
            raise UsageError(f"plan: stream {self.stream!r}: a Stream expected, such as Stream(0)")
        if self._count_chunks() > KEYS:
            least_chunk = -(-self.samples // KEYS)
            raise UsageError(
                f"plan: chunk {self.chunk} makes too many chunks: at least {least_chunk} expected"
            )

    def _count_chunks(self) -> int:
        """samples/chunk, rounded up.  len() itself is limited to the range of a C integer."""
        return -(-self.samples // self.chunk)

    def __len__(self) -> int:
        """The number of chunks."""
        return self._count_chunks()

    def list_chunks(self) -> Iterator[Chunk]:
        """The chunks in order, one at a time; only the last may be smaller."""
        for index in range(len(self)):
            size = min(self.chunk, self.samples - index * self.chunk)
            yield Chunk(index, size, self.stream.derive_child(index))
