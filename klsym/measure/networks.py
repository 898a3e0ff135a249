"""A network of the user as the policy: its parameters take the place of the logits of q.

With theta = theta(phi), the logits at each prefix as a function of the parameters,

    grad_phi f(theta(phi)) = J^T grad_theta f,    J = d theta / d phi,

so that named gradients are carried over, while the code's own gradient is taken in phi by its autograd.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from klsym.errors import UsageError
from klsym.measure.world import Array, list_prompt_words
from klsym.worlds.words import WordTree

MOST_PARAMETERS = 100_000
NOISE = 0.2  # added to each parameter, so that one that starts at 0 stops no gradient


class Network:
    """The parameters of a module that are trained, as one array.

    module: called with input_ids [B, L], a prompt word and the words after it, it returns logits [B, L, V],
    or an object with .logits.
    Raises UsageError: no module, nothing to train in it, or too much.
    """

    def __init__(self, module: Any) -> None:
        if not isinstance(module, torch.nn.Module):
            kind = type(module).__name__
            raise UsageError(f"model: a torch.nn.Module expected, or a function that returns one, got {kind}")
        self.module = module
        self.leaves = [leaf for leaf in module.parameters() if leaf.requires_grad]
        self.size = sum(leaf.numel() for leaf in self.leaves)
        if not 0 < self.size <= MOST_PARAMETERS:
            raise UsageError(
                f"model: it trains {self.size} parameters, from 1 to {MOST_PARAMETERS} expected: a tiny one"
                " of the same kind has the same objective"
            )

    def draw_parameters(self, seed: int) -> Array:
        """Return the parameters of the module, moved by noise."""
        start = torch.cat([leaf.detach().double().flatten() for leaf in self.leaves]).numpy()
        return np.asarray(start + NOISE * np.random.default_rng(seed).normal(size=self.size))

    @contextmanager
    def in_float64(self) -> Iterator[None]:
        """Compute in float64 meanwhile; then the module holds what it held before."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        before = [(tensor, tensor.data, tensor.data.clone()) for tensor in tensors]
        try:
            self.module.double()
            yield
        finally:
            for tensor, data, numbers in before:
                tensor.data = data.copy_(numbers)

    def set_parameters(self, parameters: Array) -> None:
        """Give the module these parameters."""
        flat = torch.tensor(parameters, dtype=torch.float64)
        for leaf, part in zip(self.leaves, flat.split([leaf.numel() for leaf in self.leaves]), strict=True):
            leaf.data = part.reshape(leaf.shape)

    def build_table(self, tree: WordTree) -> Any:
        """Return the logits at each prefix, one row a prefix, with the gradient in the parameters."""
        paths = [[int(first), *prefix] for first in list_prompt_words(tree) for prefix in tree.prefixes]
        rows: dict[int, Any] = {}
        for length in sorted({*map(len, paths)}):  # those of a length at once
            places = [i for i, path in enumerate(paths) if len(path) == length]
            logits = self._compute_next([paths[i] for i in places], tree.vocabulary)
            rows.update(zip(places, logits, strict=True))
        return torch.stack([rows[i] for i in range(len(paths))])

    def _compute_next(self, paths: list[list[int]], vocabulary: int) -> Any:
        """Return the logits of the next word after each path, [B, V].

        Raises UsageError: the module gives no logits of this shape.
        """
        output = self.module(torch.tensor(paths))
        logits = getattr(output, "logits", output)
        shape, wanted = getattr(logits, "shape", None), (len(paths), len(paths[0]), vocabulary)
        if shape != wanted:
            got = type(logits).__name__ if shape is None else f"the shape {tuple(shape)}"
            raise UsageError(
                f"model: for input_ids of the shape {wanted[:2]} it gives {got}: logits of the shape {wanted}"
                " expected; words is the size of its vocabulary"
            )
        return logits[:, -1]

    def compute_logits(self, tree: WordTree, parameters: Array) -> Array:
        """Return the logits at each prefix as numbers."""
        self.set_parameters(parameters)
        with torch.no_grad():
            return np.asarray(self.build_table(tree).numpy())

    def differentiate_logits(self, tree: WordTree, parameters: Array) -> Array:
        """Return J, [rows * V, D]."""
        self.set_parameters(parameters)
        rows = [
            torch.autograd.grad(logit, self.leaves, allow_unused=True, retain_graph=True)
            for logit in self.build_table(tree).flatten()
        ]
        return np.array([np.asarray(join_gradients(gradients, self.leaves)) for gradients in rows])


def join_gradients(gradients: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """Return gradients in some tensors as one row; 0 where a tensor is not used."""
    pairs = zip(gradients, leaves, strict=True)
    return torch.cat([torch.zeros_like(x).flatten() if g is None else g.flatten() for g, x in pairs])
