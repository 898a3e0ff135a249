"""What runs a loss: PyTorch or JAX, with gradients in the logits of q, and a toy model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.measure.batch import Batch
from klsym.measure.world import Array, MeasuredWorld
from klsym.worlds.words import WordTree

Loss = Callable[[Batch], Any]


class Unmeasured(UsageError):
    """Code of which nothing is measured, and why."""


@dataclass(frozen=True)
class Tensors:
    """What the sequences of a world have at a theta, as tensors; rows: of the prefix of each word."""

    theta: Array
    tree: WordTree
    by_sequence: dict[str, Any]
    rows: Any
    log_p: Any


@dataclass(frozen=True)
class Library:
    """A tensor library: its name, array functions (torch or jax.numpy), and how it differentiates.

    sum_losses: a loss, what its samples are made of, the groups and their masses -> the mean loss and its
    gradient in the logits.  normalise: the log-softmax of a table.  in_float64: where it runs.  seed: starts
    its random numbers anew.
    """

    name: str
    functions: Any
    sum_losses: Callable[[Loss, Tensors, Sequence[Sequence[int]], Sequence[float]], tuple[float, Array]]
    normalise: Callable[[Any], Any]
    as_floats: Callable[[Array], Any]
    as_integers: Callable[[Array], Any]
    in_float64: Callable[[], AbstractContextManager[Any]]
    seed: Callable[[int], Any]

    def build_tensors(self, world: MeasuredWorld, theta: Array) -> Tensors:
        """Return what all sequences have at a theta."""
        prompts = np.array(world.tree.prompt_of)
        first = (prompts[:, None] + 1) % world.tree.vocabulary
        places = world.rows, world.tokens
        integers = {
            "tokens": world.tokens, "prompts": prompts,
            "input_ids": np.concatenate([first, world.tokens], 1),
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
        return Tensors(theta, world.tree, by_sequence, rows=rows, log_p=log_p)

    def build_model(self, tree: WordTree, table: Any) -> Any:
        """Return a causal language model whose logits are a table, one row a prefix."""
        codes = _number_prefixes(tree)
        model = TableModel(self, tree, table, codes)
        if self.name != "torch":
            return model
        from klsym.measure.torch_model import make_model_class

        return make_model_class()(model)


class Samples:
    """All sequences of a world, of which batches are made; log q has the gradient in the logits."""

    def __init__(self, library: Library, tensors: Tensors, logits: Any) -> None:
        log_q, rows = library.normalise(logits), tensors.rows
        moving = {"logp": log_q[rows, tensors.by_sequence["tokens"]], "logits": log_q[rows]}
        self.by_sequence = {**tensors.by_sequence, **moving}
        self.model = library.build_model(tensors.tree, log_q)
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


def _number_prefixes(tree: WordTree) -> Array:
    """Return the row of each prefix by its code in base V + 1, of digits y_s + 1; the last row for others."""
    base, prefixes = tree.vocabulary + 1, tree.prefixes
    rows = np.full(base**tree.longest, len(prefixes) - 1)
    for row, prefix in enumerate(prefixes):
        code = 0
        for word in prefix:
            code = code * base + word + 1
        rows[code] = row
    return rows


@dataclass(frozen=True)
class Output:
    """What a model returns: logits [B, L, V] of the next word after each, and what trainers ask beside."""

    logits: Any
    loss: Any = None
    past_key_values: Any = None

    def __getitem__(self, index: int) -> Any:
        return (self.logits, self.past_key_values)[index]


class TableModel:
    """A causal language model over the words of a world, called as those of Hugging Face are.

    input_ids: [B, L], a prompt word and the words after it.  attention_mask: [B, L], 0 at padding on either
    side.  logits_to_keep: only so many logits at the end.
    """

    def __init__(self, library: Library, tree: WordTree, table: Any, codes: Array) -> None:
        self.library, self.tree, self.table, self.codes = library, tree, table, codes
        self.config = type("Config", (), {"vocab_size": tree.vocabulary, "model_type": "toy"})()

    def __call__(self, input_ids: Any, attention_mask: Any = None, **options: Any) -> Output:
        return self.compute(input_ids, attention_mask, **options)

    def compute(
        self, input_ids: Any, attention_mask: Any = None, logits_to_keep: int = 0, **_: Any
    ) -> Output:
        """Return the logits at each place, those of the prefix that ends there."""
        xp, rows = self.library.functions, []
        base, size = self.tree.vocabulary + 1, len(self.codes)
        codes_to_rows = self.library.as_integers(self.codes)
        code = input_ids[:, 0] * 0
        prompt, has_started = code, code > 0
        for place in range(input_ids.shape[1]):
            ids = input_ids[:, place]
            is_word = attention_mask[:, place] > 0 if attention_mask is not None else ids == ids
            is_prompt = is_word & ~has_started
            prompt = xp.where(is_prompt, (ids - 1) % self.tree.vocabulary, prompt)
            longer = xp.where(code < size, code * base + ids + 1, code)
            code = xp.where(is_word & has_started, longer, code)
            has_started = has_started | is_word
            row = codes_to_rows[xp.where(code < size, code, size - 1)]
            rows.append(row + prompt * len(self.tree.prefixes))
        logits = self.table[xp.stack(rows, 1)]
        return Output(logits[:, -logits_to_keep:] if logits_to_keep else logits)


# ---------------------------------------------------------------------------- the libraries
def load_library(name: str) -> Library:
    """Return a library by its name; raises UsageError where it is not installed."""
    try:
        return {"torch": _load_torch, "jax": _load_jax}[name]()
    except KeyError:
        raise UsageError(f"framework {name!r}: torch or jax expected") from None
    except ImportError:
        raise UsageError(f"klsym measure runs code in {name}, which is not installed") from None


def _load_torch() -> Library:
    import torch

    def sum_losses(
        loss: Loss, tensors: Tensors, groups: Sequence[Sequence[int]], masses: Sequence[float]
    ) -> tuple[float, Array]:
        logits = torch.tensor(tensors.theta, dtype=torch.float64, requires_grad=True)
        samples, total = Samples(library, tensors, logits), torch.zeros((), dtype=torch.float64)
        for batch, mass in zip(samples.iterate_batches(torch.tensor([*groups])), masses, strict=True):
            total = total + mass * as_scalar(loss(batch))
        if not total.requires_grad:
            return float(total), np.zeros_like(tensors.theta)
        (gradient,) = torch.autograd.grad(total, logits, allow_unused=True)
        none = np.zeros_like(tensors.theta)
        return float(total.detach()), none if gradient is None else gradient.numpy()

    @contextmanager
    def run_alone() -> Iterator[None]:
        """Keep the random numbers of the caller; one thread, as the tensors are tiny."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            torch.set_num_threads(threads)

    library = Library(
        "torch", torch, sum_losses,
        normalise=lambda x: torch.log_softmax(x, -1),
        as_floats=lambda x: torch.tensor(x, dtype=torch.float64),
        as_integers=lambda x: torch.tensor(x, dtype=torch.long),
        in_float64=run_alone,
        seed=torch.manual_seed,
    )  # fmt: skip
    return library


def _load_jax() -> Library:
    import jax

    compiled: dict[Any, Any] = {}  # of a loss and a tree, whose worlds share it; None: it does not compile

    def build_total(loss: Loss, tree: WordTree) -> Any:
        def sum_all(logits: Any, arrays: Any, weighed: Any) -> Any:
            (by_sequence, rows, log_p), (chosen, masses) = arrays, weighed
            samples = Samples(library, Tensors(logits, tree, by_sequence, rows=rows, log_p=log_p), logits)
            losses = jax.vmap(lambda at: as_scalar(loss(samples.build_batch(at))))(chosen)
            return (masses * losses).sum()

        return jax.jit(jax.value_and_grad(sum_all))

    def sum_eagerly(loss: Loss, tensors: Tensors, groups: Any, masses: Any) -> tuple[float, Array]:
        def sum_all(logits: Any) -> Any:
            samples = Samples(library, tensors, logits)
            pairs = zip(groups, masses, strict=True)
            return sum(mass * as_scalar(loss(samples.build_batch(np.array(at)))) for at, mass in pairs)

        total, gradient = jax.value_and_grad(sum_all)(jax.numpy.asarray(tensors.theta))
        return float(total), np.asarray(gradient)

    def sum_losses(
        loss: Loss, tensors: Tensors, groups: Sequence[Sequence[int]], masses: Sequence[float]
    ) -> tuple[float, Array]:
        key = loss, tensors.tree
        if key not in compiled:
            compiled[key] = build_total(*key)
        if len(groups) == 1 or compiled[key] is None:
            return sum_eagerly(loss, tensors, groups, masses)
        try:
            total, gradient = compiled[key](
                jax.numpy.asarray(tensors.theta),
                (tensors.by_sequence, tensors.rows, tensors.log_p),
                (np.array(groups), np.array(masses)),
            )
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError, TypeError):  # it branches on data
            compiled[key] = None
            return sum_eagerly(loss, tensors, groups, masses)
        return float(total), np.asarray(gradient)

    enable = getattr(jax, "enable_x64", None)
    if enable is None:
        enable = importlib.import_module("jax.experimental").enable_x64
    library = Library(
        "jax", jax.numpy, sum_losses,
        normalise=jax.nn.log_softmax,
        as_floats=lambda x: jax.numpy.asarray(x, dtype="float64"),
        as_integers=lambda x: jax.numpy.asarray(x),
        in_float64=lambda: enable(True),
        seed=lambda number: nullcontext(number),
    )  # fmt: skip
    return library
