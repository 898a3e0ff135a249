"""What is known at positions: the outcomes of a model, or the tokens of a tree and its whole sequences.

Positions come in softmaxes, and probabilities move with their logits along directions d_k:

    q_t(x) = q(x) exp(sum_k t_k d_k(x)) / sum_y q(y) exp(sum_k t_k d_k(y)), the sum over the softmax of x
    s(x) = d(x) - sum_y q(y) d(y)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.numeric.systems import Ratio, Sized, System

Moves = tuple[tuple[Any, str], ...]  # steps, each along a direction


@dataclass(frozen=True, eq=False)
class Places:
    """For each row, the positions that it sums over; whole: of whole samples, otherwise of tokens.

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


@dataclass(frozen=True, eq=False)
class Positions:
    """Densities, scores along directions, and theta-free values, each an array over positions.

    tokens: those of the tokens, where the positions are whole sequences.
    """

    densities: Mapping[str, Ratio]
    scores: Mapping[str, Sized]
    rewards: Mapping[str, Sequence[Any]]
    tokens: Positions | None = None

    def joined(self, places: Places, system: System, rewards: Mapping[str, Sequence[Any]]) -> Positions:
        """Sequences of these tokens: densities multiply, scores add."""
        return Positions(
            {name: places.product(density) for name, density in self.densities.items()},
            {along: places.summed(score, system) for along, score in self.scores.items()},
            rewards,
            self,
        )


@dataclass(frozen=True, eq=False)
class Table:
    """The numbers of a model at positions; starts: where each softmax starts, and it ends at the next.

    rows: "q", "p" and "mu" -> probabilities.  directions, rewards: name -> numbers.
    """

    rows: Mapping[str, Sequence[Any]]
    directions: Mapping[str, Sequence[Any]]
    starts: Sequence[int]
    rewards: Mapping[str, Sequence[Any]]

    def positions(self, system: System, tilt: Moves, step: Moves, on_policy: bool) -> Positions:
        """All at theta + tilt; there q moves on by the step, the sampler does not.

        tilt: a change of theta, which an on-policy sampler shares.  step: infinitesimal.
        """
        lifted = {name: system.lift(row) for name, row in self.rows.items()}
        directions = {name: system.lift(row) for name, row in self.directions.items()}
        base = self._moved(lifted["q"], directions, tilt)
        values = {"q": self._moved(base, directions, step) if step else base}
        values |= {"count": system.lift([1] * len(base)), "p": lifted["p"]}
        values["mu"] = base if on_policy and tilt else lifted["mu"]
        scores = {name: self._score(base, row, system) for name, row in directions.items()}
        still, densities = np.zeros(len(base)), {}
        for name, value in values.items():
            drift = scores[step[0][1]].size if step and name == "q" else still
            densities[name] = Ratio(system, value, system.log_magnitude(value), drift)
        return Positions(densities, scores, self.rewards)

    def _moved(self, q: Any, directions: Mapping[str, Any], moves: Moves) -> Any:
        for step, along in moves:
            q = q * np.exp(step * directions[along])
        return q / self._totals(q)

    def _totals(self, values: Any) -> Any:
        """For each position, the sum over its softmax."""
        sizes = np.diff([*self.starts, len(values)])
        return np.repeat(np.add.reduceat(values, self.starts), sizes)

    def _score(self, q: Any, direction: Any, system: System) -> Sized:
        size = system.magnitude(direction)
        mean = Sized(self._totals(q * direction), self._totals(system.magnitude(q) * size))
        return Sized(direction, size) - mean
