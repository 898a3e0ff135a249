"""Objectives with a name, and their gradients in the logits of q, in NumPy.

An objective is written as a function of log q; its gradient is that of the complex step: the imaginary part
of f(theta + i h), exact to rounding for h = 1e-30 (Squire & Trapp 1998).  E_mu[..] holds the samples fixed:
on-policy mu is q, detached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from klsym.measure.world import Array, MeasuredWorld, normalise_logits

STEP = 1e-30
Form = Callable[["Moved"], Array]


@dataclass(frozen=True)
class Moved:
    """The sequences of a world at theta, moved by a complex step along each coordinate.

    log_q: [D, rows, V].  What depends on log q has a first axis D, the coordinates of theta.
    """

    world: MeasuredWorld
    log_q: Array
    log_mu: Array

    @staticmethod
    def build_at(world: MeasuredWorld, theta: Array) -> Moved:
        """Return the world at theta with all steps."""
        steps = np.eye(theta.size).reshape(theta.size, *theta.shape)
        return Moved(world, normalise_logits(theta + 1j * STEP * steps), world.compute_sampler(theta))

    def pick(self, table: Array) -> Array:
        """Return what a table has for the words of each sequence, 0 beyond its end."""
        picked = table[..., self.world.rows, self.world.tokens]
        return np.asarray(np.where(self.world.is_drawn, picked, 0))

    @cached_property
    def q(self) -> Array:
        return self.pick(self.log_q)

    @cached_property
    def p(self) -> Array:
        return self.pick(self.world.log_p)

    @cached_property
    def mu(self) -> Array:
        return np.where(np.isfinite(x := self.pick(self.log_mu)), x, 0)  # cut off: of mass 0

    @cached_property
    def k1(self) -> Array:
        return self.q - self.p

    @cached_property
    def ratio(self) -> Array:
        """rho of each word, 0 beyond the end."""
        return np.where(self.world.is_drawn, np.exp(self.q - self.mu), 0)

    @cached_property
    def masses(self) -> Array:
        """Of each sequence under the sampler, with its prompt."""
        return np.asarray(self.world.compute_masses(self.log_mu) * self.world.prompt_masses)

    @cached_property
    def masses_of_q(self) -> Array:
        return np.asarray(np.exp(self.q.sum(-1)) * self.fixed_masses)

    @property
    def fixed_masses(self) -> Array:
        """The probability of what no policy draws: the prompt, and the words of tools."""
        return np.asarray(self.world.prompt_masses * self.world.tool_masses)

    def sum_next_words(self, per_prefix: Array) -> Array:
        """Return sum_t of a value at the prefix of each word, for each sequence."""
        return np.asarray(np.where(self.world.is_drawn, per_prefix[..., self.world.rows], 0).sum(-1))

    def sum_over_words(self, term: Callable[[Array, Array], Array]) -> Array:
        """Return sum_t sum_v term(log q, log p) of the next word."""
        return self.sum_next_words(term(self.log_q, self.world.log_p).sum(-1))


def _detach(x: Array) -> Array:
    return np.asarray(x.real)


def _take_modulus(x: Array) -> Array:
    return np.asarray(x * np.sign(x.real))


def _k3(moved: Moved) -> Array:
    return np.where(moved.world.is_drawn, np.exp(-moved.k1) - 1 + moved.k1, 0)


def _mix(log_q: Array, log_p: Array) -> Array:
    """Return log of (q + p)/2."""
    return np.asarray(np.log((np.exp(log_q) + np.exp(log_p)) / 2))


def _compute_js(log_q: Array, log_p: Array) -> Array:
    middle = _mix(log_q, log_p)
    return np.asarray((np.exp(log_q) * (log_q - middle) + np.exp(log_p) * (log_p - middle)) / 2)


NEXT_WORDS: dict[str, Callable[[Array, Array], Array]] = {
    "next-token-reverse-kl": lambda q, p: np.exp(q) * (q - p),
    "next-token-forward-kl": lambda q, p: np.exp(p) * (p - q),
    "next-token-entropy": lambda q, p: -np.exp(q) * q,
}
WHOLE: dict[str, Form] = {  # of sequences drawn from q, by the mass of q
    "policy-gradient": lambda m: m.masses_of_q * m.world.rewards,
    "reverse-kl": lambda m: m.masses_of_q * m.k1.sum(-1),
    "forward-kl": lambda m: -np.exp(m.p.sum(-1)) * m.fixed_masses * m.q.sum(-1),
    "entropy": lambda m: -m.masses_of_q * m.q.sum(-1),
    "sampler-kl": lambda m: -m.masses * m.q.sum(-1),
    "sampler-reverse-kl": lambda m: m.masses_of_q * (m.q - m.mu).sum(-1),
    "length": lambda m: m.masses_of_q * m.world.lengths,
    "inverse-length": lambda m: m.masses_of_q / m.world.lengths,
}


def _compute_mean_ratio(m: Moved) -> Array:
    """Return the geometric mean of rho over a sequence."""
    return np.exp((m.q - m.mu).sum(-1) / m.world.lengths)


SAMPLED: dict[str, Form] = {  # of fixed samples; a weight of the sequence multiplies
    "log_q": lambda m: m.q.sum(-1),
    "rho": lambda m: m.ratio.sum(-1),
}
RATIOS_OF_SEQUENCES: dict[str, Form] = {  # likewise; on-policy each has the gradient of one above
    "exp(whole(log_q - log_mu))": lambda m: np.exp((m.q - m.mu).sum(-1)),
    "exp(seqmean(log_q - log_mu))": _compute_mean_ratio,
    "T*exp(seqmean(log_q - log_mu))": lambda m: m.world.lengths * _compute_mean_ratio(m),
}
PENALTIES: dict[str, Form] = {
    "k3": lambda m: _k3(m).sum(-1),
    "k2": lambda m: (m.k1**2 / 2).sum(-1),
    "rho*k3": lambda m: (m.ratio * _k3(m)).sum(-1),
    "rho*k1": lambda m: (m.ratio * m.k1).sum(-1),
    "sg(rho)*k2": lambda m: (_detach(m.ratio) * m.k1**2 / 2).sum(-1),
    "sg(rho)*k3": lambda m: (_detach(m.ratio) * _k3(m)).sum(-1),
    "abs(k1)": lambda m: _take_modulus(m.k1).sum(-1),
    "whole(k1)**2/2": lambda m: m.k1.sum(-1) ** 2 / 2,
    "(log_q - log_mu)**2/2": lambda m: ((m.q - m.mu) ** 2 / 2).sum(-1),
    "exp(log_mu - log_q) - 1 + log_q - log_mu": lambda m: np.where(
        m.world.is_drawn, np.exp(m.mu - m.q) - 1 + m.q - m.mu, 0
    ).sum(-1),
    "abs(log_q - log_mu)": lambda m: _take_modulus(m.q - m.mu).sum(-1),
    "js(q, p)": lambda m: m.sum_over_words(_compute_js),
    "full(abs(1 - r))": lambda m: m.sum_over_words(lambda q, p: _take_modulus(np.exp(q) - np.exp(p))),
}
SUMS = ("exp(log_mu - log_q) - 1 + log_q - log_mu",)  # in brackets where they are divided
# Of rewards and lengths, [groups, n]: the weight of the first sample of each.  std_1 divides by n - 1.
Weigh = Callable[[Array, Array], Any]
SPREADS = (  # what trainers divide by, with what they add
    ("(std(R) + 1e-6)", 0, 1e-6), ("(std(R) + 1e-4)", 0, 1e-4),
    ("std_1(R)", 1, 1e-8), ("(std_1(R) + 1e-6)", 1, 1e-6), ("(std_1(R) + 1e-4)", 1, 1e-4),
)  # fmt: skip


def _divide_by_spread(ddof: int, eps: float) -> Weigh:
    return lambda R, T: (R[:, 0] - R.mean(-1)) / (R.std(-1, ddof=ddof) + eps)


def _multiply(first: Weigh, second: Weigh) -> Weigh:
    return lambda R, T: first(R, T) * second(R, T)


REWARDS: dict[str, Weigh] = {
    "R": lambda R, T: R[:, 0],
    "centred(R)": lambda R, T: R[:, 0] - R.mean(-1),
    "loo(R)": lambda R, T: R[:, 0] - R[:, 1:].mean(-1),
    "normalised(R)": _divide_by_spread(0, 1e-8),
    **{f"centred(R)/{name}": _divide_by_spread(ddof, eps) for name, ddof, eps in SPREADS},
    "(R - sum(T*R)/sum(T))": lambda R, T: R[:, 0] - (T * R).sum(-1) / T.sum(-1),
}
DIVISORS: dict[str, Weigh] = {
    "": lambda R, T: np.ones(len(T)),
    "/T": lambda R, T: 1 / T[:, 0],
    "/N": lambda R, T: T.shape[-1] / T.sum(-1),
}
CONTRACT = {"E_mu[R*log_q]": "log-likelihood", "E_mu[R*rho]": "token-policy-gradient"}


class NamedGradients:
    """The gradients of all named objectives at a theta of a world: name -> [rows, V], shortest names first.

    >>> from klsym.worlds.words import WordTree, draw_tables
    >>> tree = WordTree(3, 2)
    >>> world = MeasuredWorld(tree, draw_tables(tree, 0))
    >>> named = NamedGradients(world, world.theta)
    >>> bool(abs(named["reverse-kl"].sum(-1)).max() < 1e-12)  # logits that move together do not move q
    True
    """

    def __init__(self, world: MeasuredWorld, theta: Array) -> None:
        self.world, self.shape = world, theta.shape
        self.moved = Moved.build_at(world, theta)
        self.gradients = dict(self._list_gradients())

    def __getitem__(self, name: str) -> Array:
        return self.gradients[name]

    def _differentiate(self, per_sequence: Array) -> Array:
        return np.asarray(per_sequence.sum(-1).imag / STEP).reshape(self.shape)

    def _list_gradients(self) -> Iterator[tuple[str, Array]]:
        moved = self.moved
        for name, form in WHOLE.items():
            yield name, self._differentiate(form(moved))
        for name in ("policy-gradient", "reverse-kl", "entropy"):
            yield f"{name}/T", self._differentiate(WHOLE[name](moved) / self.world.lengths)
        divisors = [suffix for suffix in DIVISORS if suffix != "/N" or self.world.group > 1]
        for suffix in divisors:
            weight = self._average_over_group(DIVISORS[suffix])
            for name, term in NEXT_WORDS.items():
                yield name + suffix, self._differentiate(moved.masses * weight * moved.sum_over_words(term))
        for forms, penalties in ((SAMPLED, PENALTIES), (RATIOS_OF_SEQUENCES, {})):
            for suffix in divisors:
                yield from self._list_sampled(suffix, forms, penalties)

    def _list_sampled(
        self, suffix: str, forms: dict[str, Form], penalties: dict[str, Form]
    ) -> Iterator[tuple[str, Array]]:
        """Yield E_mu[weight*form], whose weights may depend on the other samples of a group."""
        moved, divide = self.moved, DIVISORS[suffix]
        for reward, weigh in REWARDS.items():
            if reward != "R" and self.world.group == 1:
                continue
            weight = self._average_over_group(_multiply(weigh, divide))
            for name, form in forms.items():
                whole = f"E_mu[{reward}*{name}]"
                yield (
                    (CONTRACT[whole] + suffix if whole in CONTRACT else f"{whole[:-1]}{suffix}]"),
                    self._differentiate(moved.masses * weight * form(moved)),
                )
        weight = self._average_over_group(divide)
        for name, form in {**forms, **penalties}.items():
            divided = f"({name}){suffix}" if suffix and name in SUMS else name + suffix
            yield f"E_mu[{divided}]", self._differentiate(moved.masses * weight * form(moved))

    @cached_property
    def _groups(self) -> tuple[Array, Array]:
        """All groups, [groups, n], and the mass of all but the first sample, drawn from mu."""
        world, masses = self.world, self.world.compute_masses(self.moved.log_mu)
        pairs = [
            pair for y in range(len(world.tokens)) for pair in world.tree.list_groups(world.group, first=y)
        ]
        chosen = np.array([group for group, _ in pairs])
        return chosen, np.array([times for _, times in pairs]) * masses[chosen[:, 1:]].prod(-1)

    def _average_over_group(self, weigh: Weigh) -> Array:
        """Return the mean weight of each sequence over the other samples of its group."""
        chosen, masses = self._groups
        weights = np.zeros(len(self.world.tokens))
        np.add.at(
            weights, chosen[:, 0], masses * weigh(self.world.rewards[chosen], self.world.lengths[chosen])
        )
        return weights
