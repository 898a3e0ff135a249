"""The oracle of losses on single samples whose probabilities stand in arrays, one row for each model."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from support.oracle import grammar, losses
from support.oracle.grammar import defined, plain
from support.oracle.losses import PARAMETERS, Forest, Setting

Names = Mapping[str, Any]
BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
          ast.Pow: operator.pow}  # fmt: skip
__all__ = ["BINARY", "PARAMETERS", "Models", "Names"]


@dataclass(frozen=True)
class Models:
    """Finite models with n outcomes each: arrays of shape (models, n)."""

    q: np.ndarray
    p: np.ndarray
    mu: np.ndarray
    R: np.ndarray
    A: np.ndarray
    parameters: Names = field(default_factory=lambda: PARAMETERS)

    def under(self, sampling: str) -> Models:
        """On-policy the sampler mu is a frozen copy of q."""
        return replace(self, mu=self.q) if sampling == "on-policy" else self

    def forest(self, sampling: str = "off-policy") -> Forest:
        rows = zip(self.q, self.p, self.mu, self.R, self.A, strict=True)
        return Forest([losses.sample(*row, dict(self.parameters)) for row in rows], (sampling,))


def random_models(seed: int, copies: int = 4) -> list[Models]:
    """One stack for each size."""
    found = []
    for size in (2, 3, 4, 5):
        trees = losses.trees(seed + size, ((),) * size, copies)
        roots = [tree.root for tree in trees]
        q = np.exp([root.logits - np.log(np.exp(root.logits).sum()) for root in roots])
        p, mu = (np.exp([getattr(root, name) for root in roots]) for name in ("log_p", "log_mu"))
        found.append(Models(q, p, mu, np.array([root.R for root in roots]), np.array([t.A for t in trees])))
    return found


def names(
    log_q: Any, log_p: Any, log_mu: Any, R: Any, A: Any, parameters: Names = PARAMETERS
) -> dict[str, Any]:
    """The atoms of the loss grammar, from the three log densities and the rewards."""
    return defined({"log_q": log_q, "log_p": log_p, "log_mu": log_mu, "R": R, "A": A, **parameters})


def evaluate(text: str, values: Names) -> Any:
    """The value of a loss at points."""
    return plain(grammar.evaluate(text, lambda name, slot=None: values[name]))


def _rows(part: Any, forest: Forest) -> np.ndarray:
    shape = (forest.logits, 1, len(forest.worlds))
    return np.broadcast_to(np.asarray(part, float), shape)[:, 0].T


def expected_gradient(text: str, models: Models, sampling: str, use: str) -> np.ndarray:
    """The gradient over all logits that training averages: shape (models, logits)."""
    forest = models.forest(sampling)
    return _rows(forest.field(text, Setting(sampling, use)).a, forest)
