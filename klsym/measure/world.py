"""A world of words as NumPy tables: its sequences, its policies, and the mass of each group of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from klsym.worlds.words import Table, Tables, WordTree

if TYPE_CHECKING:
    from klsym.measure.networks import Network

Array = np.ndarray[Any, np.dtype[Any]]


def normalise_logits(table: Array) -> Array:
    """Return the log-softmax over the last axis; complex numbers are logits with a step."""
    largest = table.real.max(-1, keepdims=True)
    return np.asarray(table - largest - np.log(np.exp(table - largest).sum(-1, keepdims=True)))


def list_prompt_words(tree: WordTree) -> Array:
    """Return the word that stands before the sequences of each prompt."""
    return (np.arange(len(tree.prompts)) + 1) % tree.vocabulary


@dataclass(frozen=True)
class MeasuredWorld:
    """All groups of samples of a tree of words, under the sampler of a setting.

    sampling: "on-policy", "off-policy" or "truncated": q cut off to all but its least likely word after each
    prefix.  third: the ratio of the loss is taken to another policy than the sampler.
    network: whose parameters are those of the policy; None: the logits are.  start: its parameters.
    """

    tree: WordTree
    tables: Tables
    sampling: str = "on-policy"
    group: int = 1
    third: bool = False
    network: Network | None = None
    start: Array | None = None

    @cached_property
    def tokens(self) -> Array:
        return np.array(self.tree.tokens)

    @cached_property
    def mask(self) -> Array:
        return np.array(self.tree.mask, dtype=float)

    @cached_property
    def rows(self) -> Array:
        """The row of the prefix before each word."""
        return np.array(self.tree.rows)

    @cached_property
    def lengths(self) -> Array:
        """The number of words of the policy in each sequence."""
        return np.array(self.tree.mask).sum(-1)

    @cached_property
    def is_drawn(self) -> Array:
        """Does the policy draw a word at this place of the sequence?"""
        return self.mask > 0

    @cached_property
    def rewards(self) -> Array:
        return np.array(self.tables.rewards)

    @cached_property
    def token_rewards(self) -> Array:
        return np.asarray(np.array(self.tables.token_rewards)[self.rows, self.tokens])

    @cached_property
    def theta(self) -> Array:
        """The logits of q, one row a prefix."""
        return np.array(self.tables.q)

    @property
    def parameters(self) -> Array:
        """Those of the policy, in which gradients are taken."""
        return self.theta if self.start is None else self.start

    def compute_logits(self, parameters: Array) -> Array:
        """Return the logits of q, one row a prefix."""
        return parameters if self.network is None else self.network.compute_logits(self.tree, parameters)

    def use_network(self, network: Network, seed: int) -> MeasuredWorld:
        """Return this world with a network as q; p, mu and old differ from it as they did from q."""
        start = network.draw_parameters(seed)
        logits = network.compute_logits(self.tree, start)
        moved = logits - self.theta

        def move(table: Table) -> Table:
            return (np.array(table) + moved).tolist()  # type: ignore[no-any-return]

        tables = self.tables
        tables = replace(
            tables, q=logits.tolist(), p=move(tables.p), mu=move(tables.mu), old=move(tables.old)
        )
        return replace(self, tables=tables, network=network, start=start)

    def carry_over(self, gradients: dict[str, Array]) -> dict[str, Array]:
        """Return gradients in the logits as gradients in the parameters."""
        if self.network is None:
            return gradients
        J = self.network.differentiate_logits(self.tree, self.parameters)
        return {name: gradient.ravel() @ J for name, gradient in gradients.items()}

    @cached_property
    def log_p(self) -> Array:
        return normalise_logits(np.array(self.tables.p))

    @cached_property
    def is_kept(self) -> Array:
        """Is a word within the cut of a truncated sampler?"""
        return self.theta > self.theta.min(-1, keepdims=True)

    def compute_sampler(self, theta: Array) -> Array:
        """Return log mu as a table; a word that is cut off has log 0."""
        match self.sampling:
            case "on-policy":
                return normalise_logits(theta)
            case "off-policy":
                return normalise_logits(np.array(self.tables.mu))
            case "truncated":
                return normalise_logits(np.where(self.is_kept, theta, -np.inf))
        raise ValueError(f"sampling {self.sampling}")

    def compute_old(self, theta: Array) -> Array:
        """Return the log density that the loss takes its ratio to."""
        return normalise_logits(np.array(self.tables.old)) if self.third else self.compute_sampler(theta)

    def sum_words(self, table: Array) -> Array:
        """Return the log probability of each sequence, from a table of logs."""
        drawn = table[..., self.rows, self.tokens]
        return np.asarray(np.where(self.is_drawn, drawn, 0).sum(-1))

    @cached_property
    def prompt_masses(self) -> Array:
        """The weight of the prompt of each sequence."""
        weights = np.array(self.tree.prompts) / sum(self.tree.prompts)
        return np.asarray(weights[self.tree.prompt_of])

    @cached_property
    def tool_masses(self) -> Array:
        """The probability of the words of tools in each sequence, which no policy draws."""
        if self.tree.tool is None:
            return np.ones(len(self.tokens))
        drawn = normalise_logits(np.array(self.tables.environment))[self.rows, self.tokens]
        places = np.arange(self.tree.longest) < np.array(self.tree.lengths)[:, None]
        return np.exp(np.where(places & ~self.is_drawn, drawn, 0).sum(-1))

    def compute_masses(self, log_sampler: Array) -> Array:
        """Return the probability of each sequence under a sampler, given its prompt."""
        return np.asarray(np.exp(self.sum_words(log_sampler)) * self.tool_masses)

    def list_groups(self, theta: Array, in_order: bool = False) -> Iterator[tuple[tuple[int, ...], float]]:
        """Yield the groups of samples of one prompt with their mass; in_order: each order by itself."""
        masses = self.compute_masses(self.compute_sampler(theta))
        for chosen, times in self.tree.list_groups(self.group, multisets=not in_order):
            mass = times * self.prompt_masses[chosen[0]] * math.prod(masses[i] for i in chosen)
            if mass:
                yield chosen, float(mass)

    def describe(self, i: int) -> str:
        """Return the words of a sequence, for a message."""
        return "".join(str(word) for word in self.tokens[i][: self.tree.lengths[i]])
