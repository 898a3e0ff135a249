"""A tensor library runs a loss, and differentiates it with respect to the parameters of the policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from klsym.errors import UsageError
from klsym.measure.batch import Batch
from klsym.measure.toy_model import TableModel, number_prefixes
from klsym.measure.world import Array, MeasuredWorld, list_prompt_words
from klsym.worlds.words import WordTree

Loss = Callable[[Batch], Any]
Groups = Sequence[Sequence[int]]


class Unmeasured(UsageError):
    """Code of which nothing is measured, and why."""


class Unwatched:
    """Nothing is known of the bounds in code that is compiled."""

    def describe(self) -> str:
        return ""


class ValueAndGradient(NamedTuple):
    """A loss and its gradient in the parameters of the policy; of several groups, with a first axis."""

    value: Any
    gradient: Array


@dataclass(frozen=True)
class Tensors:
    """What the sequences of a world have at some parameters, as tensors; rows: of the prefix of each word."""

    parameters: Array
    tree: WordTree
    by_sequence: dict[str, Any]
    rows: Any
    log_p: Any


class Library(ABC):
    """A tensor library: its name, its array functions (torch or jax.numpy), and how it differentiates."""

    name: str
    functions: Any

    @abstractmethod
    def sum_losses(
        self, loss: Loss, tensors: Tensors, groups: Groups, masses: Sequence[float]
    ) -> ValueAndGradient:
        """Return the sum over the groups of mass times loss, and its gradient."""

    @abstractmethod
    def list_gradients(self, loss: Loss, tensors: Tensors, groups: Groups) -> ValueAndGradient:
        """Return the loss of each group, and its gradient."""

    @abstractmethod
    def normalise(self, table: Any) -> Any:
        """Return the log-softmax over the last axis."""

    @abstractmethod
    def as_floats(self, array: Array) -> Any: ...

    @abstractmethod
    def as_integers(self, array: Array) -> Any: ...

    @abstractmethod
    def in_float64(self) -> AbstractContextManager[Any]:
        """Return the context in which losses are run."""

    def find_token_slopes(self, loss: Loss, tensors: Tensors, groups: Groups) -> list[Array] | None:
        """Return the gradient of the loss of each group in the log q of its tokens; None if it has none."""
        return None

    def watch_bounds(self) -> AbstractContextManager[Any]:
        """Return the context that collects the bounds which no value crosses."""
        return nullcontext(Unwatched())

    @abstractmethod
    def seed(self, number: int) -> Any:
        """Start the random numbers anew."""

    def build_tensors(self, world: MeasuredWorld, parameters: Array) -> Tensors:
        """Return what all sequences have at some parameters of the policy."""
        theta = world.compute_logits(parameters)
        prompts = np.array(world.tree.prompt_of)
        places = world.rows, world.tokens
        integers = {
            "tokens": world.tokens, "prompts": prompts,
            "input_ids": np.concatenate([list_prompt_words(world.tree)[prompts][:, None], world.tokens], 1),
        }  # fmt: skip
        floats = {
            "mask": world.mask,
            "ref_logp": world.log_p[places],
            "rewards": world.rewards,
            "token_rewards": world.token_rewards,
            "ref_logits": world.log_p[world.rows],
            "old_logp": _bound_below(world.compute_old(theta)[places]),
            "old_logits": _bound_below(world.compute_old(theta)[world.rows]),
            "sampler_logp": _bound_below(world.compute_sampler(theta)[places]),
        }
        by_sequence = {name: self.as_integers(x) for name, x in integers.items()}
        by_sequence |= {name: self.as_floats(x) for name, x in floats.items()}
        rows, log_p = self.as_integers(world.rows), self.as_floats(world.log_p)
        return Tensors(parameters, world.tree, by_sequence, rows=rows, log_p=log_p)

    def build_model(self, tree: WordTree, table: Any) -> Any:
        """Return a causal language model whose logits are a table, one row a prefix."""
        return TableModel(tree, table, self.as_integers(number_prefixes(tree)), self.functions)


class Samples:
    """All sequences of a world, of which batches are made; log q has the gradient in the logits.

    model: that batches have; by default one whose logits are the table.
    """

    def __init__(self, library: Library, tensors: Tensors, logits: Any, model: Any = None) -> None:
        log_q, rows = library.normalise(logits), tensors.rows
        moving = {"logp": log_q[rows, tensors.by_sequence["tokens"]], "logits": log_q[rows]}
        self.by_sequence = {**tensors.by_sequence, **moving}
        self.model = library.build_model(tensors.tree, log_q) if model is None else model
        self.ref_model = library.build_model(tensors.tree, tensors.log_p)

    def build_batch(self, chosen: Any) -> Batch:
        """Return the batch of the chosen sequences."""
        fields = {name: x[chosen] for name, x in self.by_sequence.items()}
        return Batch(**fields, model=self.model, ref_model=self.ref_model)

    def iterate_batches(self, groups: Any) -> Iterator[Batch]:
        """Yield the batch of each group, for a tensor of PyTorch with one row a group."""
        fields = {name: x[groups].unbind(0) for name, x in self.by_sequence.items()}
        for values in zip(*fields.values(), strict=True):
            yield Batch(**dict(zip(fields, values, strict=True)), model=self.model, ref_model=self.ref_model)


def as_scalar(value: Any) -> Any:
    """Return a loss as a number; trainers return it first of several values, or with one entry.

    Raises Unmeasured: it is no number.
    """
    if isinstance(value, tuple | list) and value:
        value = value[0]
    shape = getattr(value, "shape", None)
    if "complex" in str(getattr(value, "dtype", "")):
        raise Unmeasured("the loss is complex: a real number expected")
    if shape is None and not isinstance(value, int | float):
        kind = type(value).__name__
        raise Unmeasured(f"the loss is a {kind}: a number expected, a tensor without dimensions")
    if shape is not None and len(shape):
        if all(size == 1 for size in shape):
            return value.reshape(())
        raise Unmeasured(
            f"the loss has the shape {tuple(shape)}: a number expected; add the mean or sum over it"
        )
    return value * 1.0


def _bound_below(logs: Array) -> Array:
    """Return logs that are finite: what is cut off is not drawn, but may stand beyond the end."""
    return np.maximum(logs, -50.0)


def load_library(name: str, network: Any = None) -> Library:
    """Return a library by its name, with the network whose parameters are those of the policy, if any.

    Raises UsageError: it is not installed, or the network is none of PyTorch.
    """
    if name not in ("torch", "jax"):
        raise UsageError(f"framework {name!r}: torch or jax expected")
    if network is not None and name != "torch":
        raise UsageError("model: a network of PyTorch, for losses in PyTorch")
    try:
        if name == "torch":
            from klsym.measure.torch_library import TorchLibrary

            return TorchLibrary(network)
        from klsym.measure.jax_library import JaxLibrary

        return JaxLibrary()
    except ImportError:
        raise UsageError(f"klsym measure runs code in {name}, which is not installed") from None
