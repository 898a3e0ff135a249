"""The oracle of losses on single samples whose probabilities stand in arrays, one row for each model."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from support.oracle import losses
from support.oracle.losses import PARAMETERS, Forest, Setting, defined, plain

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
    return plain(losses.evaluate(text, lambda name, slot=None: values[name]))


def _rows(part: Any, forest: Forest) -> np.ndarray:
    shape = (forest.logits, 1, len(forest.worlds))
    return np.broadcast_to(np.asarray(part, float), shape)[:, 0].T


def expected_gradient(text: str, models: Models, sampling: str, use: str) -> np.ndarray:
    """The gradient over all logits that training averages: shape (models, logits)."""
    forest = models.forest(sampling)
    return _rows(forest.field(text, Setting(sampling, use)).a, forest)


def score_form(coefficient: str, models: Models, sampling: str) -> np.ndarray:
    """E_q[c s]: (models, logits, 1)."""
    forest = models.forest(sampling)
    return _rows(forest.form(coefficient).a, forest)[..., None]


def grad_reverse_kl(models: Models) -> np.ndarray:
    forest = models.forest()
    return _rows(forest.slope("k1").a, forest)


def grad_forward_kl(models: Models) -> np.ndarray:
    forest = models.forest()
    return _rows(forest.slope("-k1", "p").a, forest)


def grad_mean(h: np.ndarray, models: Models) -> np.ndarray:
    """grad sum_x q(x) h(x) for a fixed h: the policy gradient."""
    forest = Models(models.q, models.p, models.mu, models.R, h).forest()
    return _rows(forest.slope("A").a, forest)


def central_difference(text: str, models: Models, sampling: str, use: str, step: float = 1e-5) -> np.ndarray:
    """The same gradient by plain differences of the loss, what is detached held where it was."""
    mu = models.q if sampling == "on-policy" else models.mu
    columns = []
    for unit in np.eye(models.q.shape[1]):
        ends = []
        for sign in (1, -1):
            weights = models.q * np.exp(sign * step * unit)
            here, there = (np.log(q) for q in (models.q, weights / weights.sum(axis=-1, keepdims=True)))
            rest = (np.log(models.p), np.log(mu), models.R, models.A, models.parameters)
            held, moved = names(here, *rest), names(there, *rest)
            value = evaluate(text, held) * there if use == "reward" else _held(text, moved, held)
            ends.append((mu * value).sum(axis=-1))
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, axis=-1)


def _held(text: str, moved: Names, held: Names) -> Any:
    """A loss with what stands in sg(.) taken from elsewhere."""

    class Detached(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            if isinstance(node.func, ast.Name) and node.func.id == "sg":
                inside = ast.unparse(node.args[0])
                known[f"sg_{len(known)}"] = evaluate(inside, held)
                return ast.Name(f"sg_{len(known) - 1}")
            return self.generic_visit(node)

    known = dict(moved)
    return evaluate(ast.unparse(Detached().visit(ast.parse(text.strip(), mode="eval"))), known)
