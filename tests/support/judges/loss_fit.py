"""Fits the gradient of a loss by multiples of the KL gradients and of gradients of mean rewards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from support.judges.loss_witness import AGREE
from support.judges.loss_worlds import (
    flat,
    forest,
    forest_of,
    in_batch,
    rewards_of,
    scales,
    settings,
    slope,
    which_are_kept,
)
from support.losses.random_losses import Case
from support.oracle.grammar import plain
from support.oracle.losses import Forest, Setting

DIFFER = 1e-6  # a misfit between AGREE and this is no answer, and is complained about


@dataclass(frozen=True)
class Fit:
    """The best a, b and function of the rewards, and how far it is from the exact vectors."""

    reverse: float
    forward: float
    rewards: tuple[float, ...]  # of the columns after the first two
    misfit: float
    fits_anything: bool = False  # are there as many columns as numbers?

    @property
    def target(self) -> str | None:
        """The name of the target; None when there is none, "undecided" between the two bounds."""
        if self.misfit > DIFFER:
            return None
        if self.misfit > AGREE:
            return "undecided"
        rewards = max(map(abs, self.rewards))
        parts = {"reverse-kl": self.reverse, "forward-kl": self.forward, "reward": rewards}
        present = tuple(name for name, value in parts.items() if abs(value) > DIFFER)
        named = {(): "zero", ("reverse-kl",): "reverse-kl", ("forward-kl",): "forward-kl"}
        return named.get(present, "combination")


@cache
def _basis(level: str, sampling: str, columns: tuple[str, ...], kept: str) -> np.ndarray:
    """grad KL(q||p), grad KL(p||q), and the gradients of E_q of rewards: (worlds, logits, columns)."""
    where = forest_of(level, "cells", sampling, False, kept)
    slopes = [slope("k1", where), slope("-k1", where, "p"), *(slope(text, where) for text in columns)]
    return np.stack(slopes, axis=-1).transpose(1, 0, 2)


@cache
def fit_gradient(case: Case, n: int = 2, more: tuple[str, ...] = (), level: str = "") -> Fit:
    """Fit the exact gradients in all worlds at once; each world's rows are scaled by its size."""
    where, setting = forest(case, "cells", level=level), settings(case)[n - 2]
    batched = in_batch(case) and case.level == "sample"
    usual = "batch" if batched else case.level
    columns = (*rewards_of(case), *more)
    basis = _basis(level or usual, case.sampling, columns, which_are_kept(case.text))
    scale = scales(case, where, setting)
    exact = flat(where.field(case.text, setting).a, where).T
    return _solve(basis / scale[:, None, None], exact / scale[:, None])


def _solve(basis: np.ndarray, values: np.ndarray, before: int = 0) -> Fit:
    """before: columns that stand in front and have no name."""
    matrix, target = basis.reshape(-1, basis.shape[-1]), values.reshape(-1)
    kept = _independent(matrix)
    sizes, solution = np.linalg.norm(matrix[:, kept], axis=0), np.zeros(matrix.shape[1])
    solution[kept] = np.linalg.lstsq(matrix[:, kept] / sizes, target, rcond=None)[0] / sizes
    misfit = float(np.abs(matrix @ solution - target).max())
    reverse, forward, *rewards = map(float, solution[before:])
    return Fit(reverse, forward, tuple(rewards), misfit, fits_anything=len(kept) >= len(target))


def _independent(matrix: np.ndarray) -> list[int]:
    """The columns that no earlier ones make up: with two values of A, A**2 is one of A and a constant."""
    kept: list[int] = []
    directions = np.zeros((len(matrix), 0))
    for j, column in enumerate(matrix.T):
        rest = column
        for _ in range(2):  # once more, against rounding
            rest = rest - directions @ (directions.T @ rest)
        if np.linalg.norm(rest) > 1e-9 * np.linalg.norm(column):
            kept.append(j)
            directions = np.column_stack([directions, rest / np.linalg.norm(rest)])
    return kept


def mean_of(where: Forest, case: Case, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """E_m[L] in each world, and what rounding in it is measured against."""
    if in_batch(case) and case.batch == "none":
        mean, size = where.of_batches_in_value(case.text, setting)
        return mean, size + where.slope("k1").value + where.slope("-k1", "p").value
    rows, loss = where.loss(case.text, setting)
    loss = plain(loss)
    mass = where.chance(rows, averaged=setting.aggregate == "mean").value
    mean, size = (where.mean(rows, mass * x).value for x in (loss, np.abs(loss)))
    return mean, size + where.slope("k1").value + where.slope("-k1", "p").value


@cache
def fit_value(case: Case, more: tuple[str, ...] = ()) -> Fit:
    """E[L] = a KL(q||p) + b KL(p||q) + E_q[h(R, A)] + constant."""
    where, setting = forest(case, "cells"), settings(case)[0]
    exact, scale = mean_of(where, case, setting)
    columns = [np.ones_like(exact), where.slope("k1").value, where.slope("-k1", "p").value]
    columns += [where.slope(text).value for text in (*rewards_of(case), *more)]
    return _solve(np.stack(columns, axis=-1) / scale[:, None], exact / scale, before=1)
