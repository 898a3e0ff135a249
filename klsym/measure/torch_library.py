"""Losses in PyTorch: all groups at once by `torch.vmap`, one by one where the code does not allow it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from klsym.language.recognition import LARGEST_FLOOR
from klsym.measure.libraries import Groups, Library, Loss, Samples, Tensors, ValueAndGradient, as_scalar
from klsym.measure.networks import Network, join_gradients
from klsym.measure.toy_model import Output, TableModel
from klsym.measure.world import Array
from klsym.worlds.words import WordTree

TOGETHER = 4096  # groups of one run of `vmap`
CLAMPS = {"clamp", "clamp_", "clip", "clip_"}
COMPARISONS = {
    "lt", "gt", "le", "ge", "__lt__", "__gt__", "__le__", "__ge__", "less", "greater", "less_equal",
    "greater_equal", "clamp_min", "clamp_max", "minimum", "maximum",
}  # fmt: skip
BOUNDS = ("min", "max")
SAME = 1e-12  # relative: between a run of all groups at once and one by one


class TorchModel(torch.nn.Module):
    """A causal language model over the words of a world; trainers ask its config, device and mode."""

    def __init__(self, table: TableModel) -> None:
        super().__init__()
        self.table = table
        self.config, self.device, self.dtype = table.config, torch.device("cpu"), torch.float64

    def forward(
        self, input_ids: Any, attention_mask: Any = None, labels: Any = None, **options: Any
    ) -> Output:
        """Return logits; with labels, also the mean negative log-likelihood of those but -100."""
        output = self.table.compute(input_ids, attention_mask, **options)
        if labels is None:
            return output
        logits, targets = output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100)
        return Output(output.logits, loss)


class TorchLibrary(Library):
    """PyTorch; network: whose parameters the gradient is taken in, None for the logits themselves."""

    name, functions = "torch", torch

    def __init__(self, network: Network | None = None) -> None:
        self.network = network
        self._runs_together: dict[Any, bool] = {}  # of a loss and a tree

    def sum_losses(
        self, loss: Loss, tensors: Tensors, groups: Groups, masses: Sequence[float]
    ) -> ValueAndGradient:
        weights = torch.tensor(masses, dtype=torch.float64)
        key = loss, tensors.tree
        if len(groups) == 1 or self._runs_together.get(key) is False:
            return self._sum(tensors, lambda samples: weights @ _list_losses(loss, samples, groups))
        try:
            together = self._sum(
                tensors,
                lambda samples: (
                    weights @ _run_together(lambda chosen: loss(samples.build_batch(chosen)), groups)
                ),
            )
        except Exception:  # whatever the code does that `vmap` does not allow
            self._runs_together[key] = False
            return self.sum_losses(loss, tensors, groups, masses)
        if key not in self._runs_together:  # confirmed once
            single = self._sum(tensors, lambda samples: weights @ _list_losses(loss, samples, groups))
            self._runs_together[key] = _is_same(together, single)
            return together if self._runs_together[key] else single
        return together

    def _sum(self, tensors: Tensors, add: Any) -> ValueAndGradient:
        leaves, samples = self._open(tensors)
        total = add(samples)
        return ValueAndGradient(float(total.detach()), _differentiate(total, leaves, tensors.parameters))

    def list_gradients(self, loss: Loss, tensors: Tensors, groups: Groups) -> ValueAndGradient:
        if self.network is None and self._runs_together.get((loss, tensors.tree)):
            with suppress(Exception):  # of a code that allows one batch of groups, and not one with logits
                return self._list_together(loss, tensors, groups)
        each = [
            self._sum(tensors, lambda samples, group=group: _list_losses(loss, samples, [group])[0])
            for group in groups
        ]
        return ValueAndGradient(
            np.array([value for value, _ in each]), np.array([gradient for _, gradient in each])
        )

    def _list_together(self, loss: Loss, tensors: Tensors, groups: Groups) -> ValueAndGradient:
        """Give each group logits of its own, so that one backward pass has all gradients."""
        logits = torch.tensor(tensors.parameters, dtype=torch.float64)
        logits = logits.expand(len(groups), *logits.shape).clone().requires_grad_()
        losses = _run_together(
            lambda x, chosen: loss(Samples(self, tensors, x).build_batch(chosen)), logits, groups
        )
        gradients = _differentiate(losses.sum(), [logits], np.empty(tuple(logits.shape)))
        return ValueAndGradient(losses.detach().numpy(), gradients)

    def _open(self, tensors: Tensors) -> tuple[list[Any], Samples]:
        """Return the tensors that the gradient is taken in, and the samples whose log q depends on them."""
        if self.network is not None:
            self.network.set_parameters(tensors.parameters)
            logits = self.network.build_table(tensors.tree)
            return self.network.leaves, Samples(self, tensors, logits, self.network.module)
        logits = torch.tensor(tensors.parameters, dtype=torch.float64, requires_grad=True)
        return [logits], Samples(self, tensors, logits)

    def build_model(self, tree: WordTree, table: Any) -> Any:
        return TorchModel(super().build_model(tree, table))

    def normalise(self, table: Any) -> Any:
        return torch.log_softmax(table, -1)

    def as_floats(self, array: Array) -> Any:
        return torch.tensor(array, dtype=torch.float64)

    def as_integers(self, array: Array) -> Any:
        return torch.tensor(array, dtype=torch.long)

    @contextmanager
    def in_float64(self) -> Iterator[None]:
        """Keep the random numbers and the network of the caller; one thread, as the tensors are tiny."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with (
                torch.random.fork_rng(devices=[]),
                self.network.in_float64() if self.network else nullcontext(),
            ):
                yield
        finally:
            torch.set_num_threads(threads)

    def find_token_slopes(self, loss: Loss, tensors: Tensors, groups: Groups) -> list[Array] | None:
        slopes = []
        _, samples = self._open(tensors)
        for batch in samples.iterate_batches(torch.tensor([*groups])):
            value = as_scalar(loss(batch))
            if not isinstance(value, torch.Tensor) or not value.requires_grad:
                return None
            [slope] = torch.autograd.grad(value, [batch.logp], allow_unused=True, retain_graph=True)
            if slope is None:
                return None
            slopes.append(slope.numpy())
        return slopes

    def watch_bounds(self) -> BoundWatch:
        return BoundWatch()

    def seed(self, number: int) -> Any:
        return torch.manual_seed(number)


def _list_losses(loss: Loss, samples: Samples, groups: Groups) -> Any:
    """Return the loss of each group, one after the other."""
    values = [as_scalar(loss(batch)) for batch in samples.iterate_batches(torch.tensor([*groups]))]
    return torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values])


def _run_together(compute: Callable[..., Any], *arguments: Any) -> Any:
    """Return a loss for each group, all of them at once; raises what the code does not allow."""
    return torch.vmap(
        lambda *args: as_scalar(compute(*args)).double(), randomness="error", chunk_size=TOGETHER
    )(*(torch.as_tensor(argument) for argument in arguments))


def _differentiate(total: Any, leaves: Sequence[Any], parameters: Array) -> Array:
    """Return the gradient in the leaves as one array, of the shape of the parameters."""
    if not total.requires_grad:
        return np.zeros_like(parameters)
    gradients = torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)
    return np.asarray(join_gradients(gradients, leaves).numpy().reshape(parameters.shape))


def _is_same(first: ValueAndGradient, second: ValueAndGradient) -> bool:
    one, two = (np.append(each.gradient, each.value) for each in (first, second))
    return bool(np.isfinite(one).all()) and bool(np.abs(one - two).max() <= SAME * np.abs(two).max())


# ---------------------------------------------------------------------------- bounds
class BoundWatch(TorchFunctionMode):  # type: ignore[misc]
    """Collects the sides of each bound on which values of the code are, while it is open.

    A clamp that no value reaches has no effect: the loss is measured inside its range.  Bounds that only
    avoid a division by 0 are left out: those of counts of tokens, and floors of at most LARGEST_FLOOR.

    >>> with BoundWatch() as watch:
    ...     ratio = torch.tensor([0.5, 1.1, 1.5])
    ...     _ = ratio.clamp(0.125, 1.2), ratio > 8
    >>> watch.describe()
    'no value was below 0.125 or above 8 in the worlds that were run, so that these bounds had no effect'
    """

    def __init__(self) -> None:
        super().__init__()
        self.sides: defaultdict[float, set[int]] = defaultdict(set)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in CLAMPS or name in COMPARISONS:
            self._note(args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _note(self, args: Any, kwargs: Any) -> None:
        values, *others = args or (None,)
        if values is None or not _is_measured(values):
            return
        values = values.detach()
        for bound in _list_numbers([*others, *(kwargs.get(name) for name in (*BOUNDS, "other"))]):
            seen = {-1: (values < bound).any(), 1: (values > bound).any()}
            self.sides[bound] |= {side for side, is_there in seen.items() if is_there}

    @property
    def one_sided(self) -> dict[float, int]:
        """The bounds that no value crossed, with the side on which no value was."""
        uncrossed = {bound: -min(sides) for bound, sides in self.sides.items() if len(sides) == 1}
        return {bound: side for bound, side in uncrossed.items() if not _is_floor(bound, side)}

    def describe(self) -> str:
        """Say which bounds had no effect; "" if all were crossed."""
        said = [f"{'above' if side > 0 else 'below'} {bound:g}" for bound, side in self.one_sided.items()]
        if not said:
            return ""
        bounds = "this bound" if len(said) == 1 else "these bounds"
        return f"no value was {' or '.join(said)} in the worlds that were run, so that {bounds} had no effect"


def _is_measured(values: Any) -> bool:
    """Is it a tensor of real numbers, and neither a mask nor a count?"""
    if not isinstance(values, torch.Tensor) or not values.is_floating_point() or not values.numel():
        return False
    return bool((values != values.round()).any())


def _is_floor(bound: float, side: int) -> bool:
    """Is it a bound that keeps a positive number from 0, or the logs of probabilities finite?"""
    return side < 0 < bound <= LARGEST_FLOOR or abs(bound) >= torch.finfo(torch.float32).max


def _list_numbers(bounds: list[Any]) -> Iterator[float]:
    """Yield the bounds that are plain numbers."""
    for bound in bounds:
        is_constant = isinstance(bound, torch.Tensor) and bound.numel() == 1 and not bound.requires_grad
        if is_constant or (isinstance(bound, Real) and not isinstance(bound, bool)):
            yield float(bound)
