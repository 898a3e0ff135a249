"""Losses in JAX: compiled over all groups at once, one by one where they branch on data."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from klsym.measure.libraries import Groups, Library, Loss, Samples, Tensors, ValueAndGradient, as_scalar
from klsym.measure.world import Array
from klsym.worlds.words import WordTree

NOT_COMPILED = jax.errors.JAXTypeError, jax.errors.JAXIndexError, TypeError  # it branches on data


class JaxLibrary(Library):
    """JAX with 64 bits."""

    name, functions = "jax", jax.numpy

    def __init__(self) -> None:
        self._compiled: dict[
            Any, Any
        ] = {}  # of a loss and a tree, whose worlds share it; None: it does not compile

    def sum_losses(
        self, loss: Loss, tensors: Tensors, groups: Groups, masses: Sequence[float]
    ) -> ValueAndGradient:
        values, gradients = self.list_gradients(loss, tensors, groups)
        return ValueAndGradient(float(masses @ values), np.tensordot(masses, gradients, 1))

    def list_gradients(self, loss: Loss, tensors: Tensors, groups: Groups) -> ValueAndGradient:
        key = loss, tensors.tree
        if key not in self._compiled:
            self._compiled[key] = self._compile(*key)
        if len(groups) == 1 or self._compiled[key] is None:
            return self._run_eagerly(loss, tensors, groups)
        try:
            values, gradients = self._compiled[key](
                jax.numpy.asarray(tensors.parameters),
                (tensors.by_sequence, tensors.rows, tensors.log_p),
                np.array(groups),
            )
        except NOT_COMPILED:
            self._compiled[key] = None
            return self._run_eagerly(loss, tensors, groups)
        return ValueAndGradient(np.asarray(values), np.asarray(gradients))

    def _compile(self, loss: Loss, tree: WordTree) -> Callable[..., Any]:
        def compute(logits: Any, arrays: Any, chosen: Any) -> Any:
            by_sequence, rows, log_p = arrays
            tensors = Tensors(logits, tree, by_sequence, rows=rows, log_p=log_p)
            return as_scalar(loss(Samples(self, tensors, logits).build_batch(chosen)))

        return jax.jit(jax.vmap(jax.value_and_grad(compute), in_axes=(None, None, 0)))

    def _run_eagerly(self, loss: Loss, tensors: Tensors, groups: Groups) -> ValueAndGradient:
        def compute(logits: Any, chosen: Any) -> Any:
            return as_scalar(loss(Samples(self, tensors, logits).build_batch(np.array(chosen))))

        logits = jax.numpy.asarray(tensors.parameters)
        each = [jax.value_and_grad(compute)(logits, chosen) for chosen in groups]
        return ValueAndGradient(np.array([x for x, _ in each]), np.array([g for _, g in each]))

    def normalise(self, table: Any) -> Any:
        return jax.nn.log_softmax(table)

    def as_floats(self, array: Array) -> Any:
        return jax.numpy.asarray(array, dtype="float64")

    def as_integers(self, array: Array) -> Any:
        return jax.numpy.asarray(array)

    def in_float64(self) -> AbstractContextManager[Any]:
        enable = getattr(jax, "enable_x64", None)
        if enable is None:
            enable = importlib.import_module("jax.experimental").enable_x64
        return enable(True)  # type: ignore[no-any-return]

    def seed(self, number: int) -> Any:
        return nullcontext(number)
