"""What is known at the tokens of a model and at its whole sequences, and sums over some of them.

Each node is a softmax, and its probabilities move with their logits along directions d_k:

    q_t(x) = q(x) exp(sum_k t_k d_k(x)) / sum_y q(y) exp(sum_k t_k d_k(y)), the sum over the node of x
    s(x) = d(x) - sum_y q(y) d(y)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from klsym.numeric.models import FiniteModel
from klsym.numeric.number_systems import Ratio, Sized, System

Moves = tuple[tuple[Any, str], ...]  # steps, each along a direction


@dataclass(frozen=True, eq=False)
class Places:
    """For each row, the positions that it sums over; whole: of whole sequences, otherwise of tokens.

    >>> Places.of([(0, 2), (), (1,)], whole=True).total(np.array([1.0, 10.0, 100.0])).tolist()
    [101.0, 0.0, 10.0]

    index, mask: shape (rows, width), width 1 or more; entries outside the mask do not count.
    """

    whole: bool
    index: Any
    mask: Any

    @staticmethod
    def of(rows: Sequence[Sequence[int]], whole: bool) -> Places:
        """From the list of positions of each row."""
        index = np.zeros((len(rows), max(1, *map(len, rows))), dtype=np.intp)
        mask = np.zeros(index.shape, dtype=bool)
        for i, row in enumerate(rows):
            index[i, : len(row)], mask[i, : len(row)] = row, True
        return Places(whole, index, mask)

    def total(self, values: Any, zero: Any = 0.0) -> Any:
        """The sum over the positions of each row."""
        return np.sum(np.where(self.mask, values[self.index], zero), axis=1)

    def summed(self, values: Sized, system: System) -> Sized:
        return Sized(self.total(values.value, system.lift(0)), self.total(values.size))

    def product(self, of: Ratio) -> Ratio:
        """The product over the positions of each row."""
        factors = np.where(self.mask, of.value[self.index], of.system.lift(1))
        return Ratio(of.system, np.prod(factors, axis=1), self.total(of.size), self.total(of.drift))


@lru_cache(maxsize=512)
def sequences(paths: tuple[tuple[int, ...], ...]) -> Places:
    """The tokens of each sequence."""
    return Places.of(paths, whole=False)


@dataclass(frozen=True, eq=False)
class Positions:
    """Densities and scores along directions, each an array over the tokens, or over the sequences."""

    densities: Mapping[str, Ratio]
    scores: Mapping[str, Sized]

    def joined(self, places: Places, system: System) -> Positions:
        """Sequences of these tokens: densities multiply, scores add."""
        return Positions(
            {name: places.product(density) for name, density in self.densities.items()},
            {along: places.summed(score, system) for along, score in self.scores.items()},
        )


def tokens_at(model: FiniteModel, system: System, tilt: Moves, step: Moves, on_policy: bool) -> Positions:
    """The tokens at theta + tilt; there q moves on by the step, the sampler does not.

    tilt: a change of theta, which an on-policy sampler shares.  step: infinitesimal.
    """
    starts = model.layout.starts
    lifted = {name: system.lift(row) for name, row in model.rows.items()}
    directions = {name: system.lift(row) for name, row in model.directions.items()}
    base = _moved(lifted["q"], directions, tilt, starts)
    values = {"q": _moved(base, directions, step, starts) if step else base}
    values |= {"count": system.lift([1] * len(base))}
    values |= {name: lifted[name] for name in ("p", "old") if name in lifted}
    values["mu"] = base if on_policy and tilt else lifted["mu"]
    scores = {name: _score(base, row, system, starts) for name, row in directions.items()}
    still, densities = np.zeros(len(base)), {}
    for name, value in values.items():
        drift = scores[step[0][1]].size if step and name == "q" else still
        densities[name] = Ratio(system, value, system.log_magnitude(value), drift)
    return Positions(densities, scores)


def _moved(q: Any, directions: Mapping[str, Any], moves: Moves, starts: Sequence[int]) -> Any:
    for step, along in moves:
        q = q * np.exp(step * directions[along])
    return q / _totals(q, starts)


def _totals(values: Any, starts: Sequence[int]) -> Any:
    """For each token, the sum over its node."""
    sizes = np.diff([*starts, len(values)])
    return np.repeat(np.add.reduceat(values, starts), sizes)


def _score(q: Any, direction: Any, system: System, starts: Sequence[int]) -> Sized:
    size = system.magnitude(direction)
    mean = Sized(_totals(q * direction, starts), _totals(system.magnitude(q) * size, starts))
    return Sized(direction, size) - mean
