"""Means over batches and sequences, and their gradients, by a sum over all rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from klsym.names import SAMPLE
from klsym.numeric.frames import Frame, Rows
from klsym.numeric.positions import Places
from klsym.numeric.systems import Ratio, Sized
from klsym.numeric.trees import TreeModel
from klsym.ring import ExpPoly


def indexed(index: str, measure: str, a: ExpPoly, score: tuple[str, ...], at: Frame) -> Sized:
    """sum over rows of m a s..s; over those of the one batch or sequence for "sample"."""
    rows = at.rows(index)
    return _mean(measure, rows.scored(a, score), rows)


def indexed_gradient(index: str, measure: str, loss: ExpPoly, at: Frame, along: str = "u") -> Sized:
    """d/dt of the sum over rows of m L, m held fixed."""
    moved = at.moved(along).rows(index).polynomial(loss)
    return _mean(measure, moved, at.rows(index)).slope(at.system)


def _mean(measure: str, values: Sized, rows: Rows) -> Sized:
    if measure == SAMPLE:
        return values.at(rows.where.sample(rows.model.outcome, rows.model.size)).sum()
    return (rows.density(measure).power(1) * values).sum()


def means_of_batches(a: ExpPoly, score: tuple[str, ...], at: Frame) -> Sized:
    """For each batch, the mean over i of a s..s with x_i as self and the rest as others."""
    rows = at.rows("i")
    values, turns = rows.scored(a, score), rows.where.turns()
    each = [values.at(turn) for turn in turns]
    total = Sized(np.sum([v.value for v in each], axis=0), np.sum([v.size for v in each], axis=0))
    return total * at.constant(Fraction(1, len(turns)))


def token_divergence(measure: str, first: str, second: str, gradient: bool, at: Frame) -> Sized:
    """The sum over tokens of m(prefix) a log(a/b); for its gradient, only a and b move."""
    live, prefixes = (at.moved() if gradient else at).tokens, _prefixes(measure, at)
    a, b = live.density(first), live.density(second)
    total = (prefixes.power(1) * a.power(1) * a.over(b).log()).sum()
    return total.slope(at.system) if gradient else total


def _prefixes(measure: str, at: Frame) -> Ratio:
    """For each token, the probability of its prefix."""
    tokens, model = at.tokens, at.model
    assert isinstance(model, TreeModel)
    return Places.of(model.layout.before, whole=False).product(tokens.density(measure))
