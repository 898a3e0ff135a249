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

    >>> Places.from_rows([(0, 2), (), (1,)], whole=True).sum_values(np.array([1.0, 10.0, 100.0])).tolist()
    [101.0, 0.0, 10.0]

    index, mask: shape (rows, width), width 1 or more; entries outside the mask do not count.
    """

    whole: bool
    index: Any
    mask: Any

    @staticmethod
    def from_rows(rows: Sequence[Sequence[int]], whole: bool) -> Places:
        """Return the places of each row, from its list of positions."""
        index = np.zeros((len(rows), max(1, *map(len, rows))), dtype=np.intp)
        mask = np.zeros(index.shape, dtype=bool)
        for i, row in enumerate(rows):
            index[i, : len(row)], mask[i, : len(row)] = row, True
        return Places(whole, index, mask)

    def sum_values(self, values: Any, zero: Any = 0.0) -> Any:
        """Return the sum over the positions of each row."""
        return np.sum(np.where(self.mask, values[self.index], zero), axis=1)

    def sum_sized(self, values: Sized, system: System) -> Sized:
        return Sized(self.sum_values(values.value, system.lift(0)), self.sum_values(values.size))

    def multiply_ratios(self, of: Ratio) -> Ratio:
        """Return the product over the positions of each row."""
        factors = np.where(self.mask, of.value[self.index], of.system.lift(1))
        return Ratio(of.system, np.prod(factors, axis=1), self.sum_values(of.size), self.sum_values(of.drift))


@lru_cache(maxsize=512)
def list_sequence_tokens(paths: tuple[tuple[int, ...], ...]) -> Places:
    """Return the tokens of each sequence."""
    return Places.from_rows(paths, whole=False)


@dataclass(frozen=True, eq=False)
class Positions:
    """Densities and scores along directions, each an array over the tokens, or over the sequences."""

    densities: Mapping[str, Ratio]
    scores: Mapping[str, Sized]

    def join_tokens(self, places: Places, system: System) -> Positions:
        """Return sequences of these tokens: densities multiply, scores add."""
        return Positions(
            {name: places.multiply_ratios(density) for name, density in self.densities.items()},
            {along: places.sum_sized(score, system) for along, score in self.scores.items()},
        )


def compute_tokens(
    model: FiniteModel, system: System, tilt: Moves, step: Moves, on_policy: bool
) -> Positions:
    """Return the tokens at theta + tilt; there q moves on by the step, the sampler does not.

    tilt: a change of theta, which an on-policy sampler shares.  step: infinitesimal.
    """
    starts = model.layout.starts
    lifted = {name: system.lift(row) for name, row in model.rows.items()}
    directions = {name: system.lift(row) for name, row in model.directions.items()}
    base = _move_probabilities(lifted["q"], directions, tilt, starts)
    values = {"q": _move_probabilities(base, directions, step, starts) if step else base}
    values |= {"count": system.lift([1] * len(base))}
    values |= {name: lifted[name] for name in ("p", "old") if name in lifted}
    values["mu"] = base if on_policy and tilt else lifted["mu"]
    scores = {name: _compute_score(base, row, system, starts) for name, row in directions.items()}
    no_drift, densities = np.zeros(len(base)), {}
    for name, value in values.items():
        drift = scores[step[0][1]].size if step and name == "q" else no_drift
        densities[name] = Ratio(system, value, system.log_magnitude(value), drift)
    return Positions(densities, scores)


def _move_probabilities(q: Any, directions: Mapping[str, Any], moves: Moves, starts: Sequence[int]) -> Any:
    for step, along in moves:
        q = q * np.exp(step * directions[along])
    return q / _sum_over_nodes(q, starts)


def _sum_over_nodes(values: Any, starts: Sequence[int]) -> Any:
    """Return, for each token, the sum over its node."""
    sizes = np.diff([*starts, len(values)])
    return np.repeat(np.add.reduceat(values, starts), sizes)


def _compute_score(q: Any, direction: Any, system: System, starts: Sequence[int]) -> Sized:
    size = system.magnitude(direction)
    mean = Sized(_sum_over_nodes(q * direction, starts), _sum_over_nodes(system.magnitude(q) * size, starts))
    return Sized(direction, size) - mean
