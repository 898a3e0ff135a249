"""The smallest combination of named gradients that equals a gradient, on several worlds at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from klsym.measure.objectives import CONTRACT
from klsym.measure.world import Array

MOST_TERMS = 3
NEAREST = 26  # names among which three terms are searched
SMALLEST = 1e-4  # of the gradient: a term below this says nothing
CANCELS = 3.0  # a term that is so many times the gradient is taken back by others
ALIAS = 1e-9
ALMOST = 0.999  # the cosine of a name whose remainder is described
CLEAR = 0.5  # the least cosine that is a direction
MAXIMISED = "policy-gradient"
NEAR = 1e-3  # relative; above what any fit may leave


@dataclass(frozen=True)
class Fit:
    """Multiples of named gradients, and what they leave of the gradient, relative to its largest entry.

    largest: the length of the largest term, relative to the gradient's.
    """

    multiples: dict[str, float]
    residual: float
    largest: float = 1.0

    @property
    def cost(self) -> tuple[bool, int]:
        """Of as few terms those come first that do not cancel, then short names."""
        return self.largest > CANCELS, sum(map(len, self.multiples))


@dataclass(frozen=True)
class Basis:
    """Named gradients as columns; of names with the same gradient the first one is kept.

    aliases: the names that a column has beside its own.
    """

    names: tuple[str, ...]
    columns: Array
    aliases: dict[str, tuple[str, ...]]

    @staticmethod
    def build_from(names: Sequence[str], columns: Array) -> Basis:
        """Return the columns that are not 0, each with the other names that it has."""
        kept: list[int] = []
        aliases: dict[str, tuple[str, ...]] = {}
        sizes = np.linalg.norm(columns, axis=0)
        for i, name in enumerate(names):
            if sizes[i] < 1e-12:
                continue
            units = columns[:, kept] / sizes[kept]
            gaps = np.abs(units - (columns[:, i] / sizes[i])[:, None]).max(0) if kept else np.ones(0)
            if kept and gaps.min() < ALIAS and abs(sizes[kept[int(gaps.argmin())]] / sizes[i] - 1) < ALIAS:
                first = names[kept[int(gaps.argmin())]]
                aliases[first] = (*aliases.get(first, ()), name)
            else:
                kept.append(i)
        return Basis(tuple(names[i] for i in kept), columns[:, kept], aliases)

    def fit_names(self, gradient: Array, names: Sequence[str]) -> Fit | None:
        """Return the best fit of these names; None if one of them is no column, or they are dependent."""
        if not set(names) <= set(self.names):
            return None
        columns = self.columns[:, [self.names.index(name) for name in names]]
        sizes = np.linalg.norm(columns, axis=0)
        parts, _, rank, _ = np.linalg.lstsq(columns / sizes, gradient, rcond=1e-9)
        residual = np.abs(columns / sizes @ parts - gradient).max() / np.abs(gradient).max()
        small = np.abs(parts).min() < SMALLEST * np.linalg.norm(gradient)
        if rank < len(names) or small:
            return None
        largest = float(np.abs(parts).max() / np.linalg.norm(gradient))
        multiples = dict(zip(names, map(float, parts / sizes), strict=True))
        return Fit(multiples, float(residual), largest)

    def find_fits(
        self, gradient: Array, is_fit: Callable[[Fit], bool], first: Sequence[str] = ()
    ) -> list[Fit]:
        """Return all fits with the fewest terms, the shortest names first; those of `first` alone, if any.

        is_fit: is what these names leave small enough, here and elsewhere?
        Three terms are searched among the names that point in the direction of the gradient most.
        """
        basic = [name for name in first if name in self.names]
        cosines = np.abs(gradient @ self.columns) / np.linalg.norm(self.columns, axis=0)
        nearest = [self.names[i] for i in np.argsort(-cosines)[:NEAREST]]
        for names, most in ((basic, MOST_TERMS), (self.names, 2), (nearest, MOST_TERMS)):
            for size in range(1, most + 1):
                fits = [self.fit_names(gradient, chosen) for chosen in self._list_near(gradient, names, size)]
                if good := [fit for fit in fits if fit is not None and is_fit(fit)]:
                    return sorted(good, key=lambda fit: fit.cost)
        return []

    def _list_near(self, gradient: Array, names: Sequence[str], size: int) -> list[tuple[str, ...]]:
        """Return so many names at once that leave almost nothing of a gradient; all are solved together."""
        chosen = [*combinations(names, size)]
        if not chosen:
            return []
        units = (self.columns / np.linalg.norm(self.columns, axis=0)).T
        places = np.array([[self.names.index(name) for name in several] for several in chosen])
        parts = np.linalg.pinv(units[places].transpose(0, 2, 1), rcond=1e-9) @ gradient
        left_over = np.abs(np.einsum("csn,cs->cn", units[places], parts) - gradient).max(1)
        return [chosen[i] for i in np.flatnonzero(left_over < NEAR * np.abs(gradient).max())]

    def describe_remainder(self, gradient: Array) -> str:
        """Say what the nearest name leaves of a gradient that it almost is; "" for others."""
        (name, cosine), *_ = self.list_cosines(gradient, 1).items()
        if abs(cosine) < ALMOST:
            return ""
        column = self.columns[:, self.names.index(name)]
        multiple = float(gradient @ column / (column @ column))
        remainder = gradient - multiple * column
        share = float(np.linalg.norm(remainder) / np.linalg.norm(gradient))
        nearest = ", ".join(f"{x:+.2f} {other}" for other, x in self.list_cosines(remainder, 2).items())
        return f"{multiple:.3g}*{name} leaves {share:.2g} of the gradient, whose cosines are {nearest}"

    def list_cosines(self, gradient: Array, count: int = 3) -> dict[str, float]:
        """Return the cosines to the names that are nearest."""
        sizes = np.linalg.norm(self.columns, axis=0) * np.linalg.norm(gradient)
        cosines = gradient @ self.columns / sizes
        nearest = np.argsort(-np.abs(cosines))[:count]
        return {self.names[i]: round(float(cosines[i]), 4) for i in nearest}


def has_reward(name: str) -> bool:
    """Is it the gradient of an objective with the reward?

    >>> [has_reward(name) for name in ("policy-gradient/T", "E_mu[centred(R)*log_q]", "E_mu[log_q]")]
    [True, True, False]
    """
    return name.partition("/")[0] in (MAXIMISED, *CONTRACT.values()) or "R" in name


def find_reward_cosine(multiples: Mapping[str, float], columns: Mapping[str, Array]) -> float | None:
    """Return the cosine of the sum of the terms with the reward to the gradient of E[R].

    None: there is at most one such term, whose own sign says it.

    >>> columns = {"policy-gradient": np.array([1.0, 0.0]), "E_mu[centred(R)*log_q]": np.array([1.0, 0.1])}
    >>> find_reward_cosine({"policy-gradient": 2.0, "E_mu[centred(R)*log_q]": -3.0}, columns) < -0.9
    True
    """
    terms = [value * columns[name] for name, value in multiples.items() if has_reward(name)]
    if len(terms) < 2:
        return None
    gradient, mean_reward = np.sum(terms, axis=0), columns[MAXIMISED]
    lengths = float(np.linalg.norm(gradient) * np.linalg.norm(mean_reward))
    return float((gradient * mean_reward).sum()) / lengths if lengths else 0.0
