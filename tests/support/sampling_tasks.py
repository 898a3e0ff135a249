"""Tasks for the tests of the runner, in a module that worker processes can import."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klsym.errors import Refused, UsageError
from klsym.study.sampling.backends import Backend
from klsym.study.sampling.sample_means import SampleMeans
from klsym.study.sampling.streams import Chunk

NUMPY = Backend()


@dataclass(frozen=True)
class Draws:
    """SampleMeans of (z, exp z), z normal."""

    backend: Backend = NUMPY

    def __call__(self, chunk: Chunk) -> SampleMeans:
        z = self.backend.draw_normals(chunk.stream, (chunk.size,))
        return SampleMeans.from_rows([z, self.backend.xp.exp(z)], self.backend)


class Order(list):
    """The indices of chunks, in the order of merging."""

    def merge(self, other: list) -> Order:
        return Order(self + other)


@dataclass(frozen=True)
class Late:
    """Even chunks take longer, so that results arrive out of order; each leaves a mark when it starts."""

    folder: Path | None = None

    def __call__(self, chunk: Chunk) -> Order:
        if self.folder is not None:
            (self.folder / str(chunk.index)).touch()
        time.sleep(0.02 if chunk.index % 2 == 0 else 0.0)
        return Order([chunk.index])


@dataclass(frozen=True)
class DiesOnce:
    """As Draws, but the process that first computes chunk 5 is killed there."""

    marker: Path

    def __call__(self, chunk: Chunk) -> SampleMeans:
        if chunk.index == 5 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Draws()(chunk)


@dataclass(frozen=True)
class FailsOnce:
    """As Draws, but chunk 2 fails the first time, as for want of disk."""

    marker: Path

    def __call__(self, chunk: Chunk) -> SampleMeans:
        if chunk.index == 2 and not self.marker.exists():
            self.marker.touch()
            raise OSError("no space left")
        return Draws()(chunk)


def deadly(chunk: Chunk) -> SampleMeans:
    """Kills every process that computes chunk 1."""
    if chunk.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Draws()(chunk)


@dataclass(frozen=True)
class Refuses:
    """Chunks 3 and 4 are refused, the later one sooner; each attempt leaves a mark."""

    folder: Path

    def __call__(self, chunk: Chunk) -> Order:
        if chunk.index in (3, 4):
            (self.folder / f"{chunk.index}-{time.monotonic_ns()}").touch()
            time.sleep(0.2 if chunk.index == 3 else 0.0)
            raise UsageError(f"chunk {chunk.index}: nothing to average")
        return Order([chunk.index])


def refuses_with_a_place(chunk: Chunk) -> Order:
    raise Refused("no such rule", f"chunk {chunk.index}")


def buggy(chunk: Chunk) -> Order:
    """Divides by zero at chunk 2."""
    return Order([1 // (2 - chunk.index)])


def slow(chunk: Chunk) -> Order:
    time.sleep(0.0 if chunk.index == 0 else 0.3)
    return Order([chunk.index])


def fails(name: str) -> Any:
    """What another process cannot do; it stands here since that process has to import it."""
    raise ValueError(f"no {name}")
