"""Finite models: probabilities q, p, mu at each node of a token tree, and directions of the logits of q.

    q(y) = prod_t q(y_t | y_<t)        R(y) = sum_t R(y_t | y_<t)        length(y) = number of steps
    q_t(x) = q(x) exp(t u_x) / sum_y q(y) exp(t u_y)        u.s(x) = u_x - sum_y q(y) u_y at each node

A single sample is a tree of one node.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.names import HELD
from klsym.language.abbreviations import Context
from klsym.worlds.tree import Layout, Shape, build_layout, find_sequence, read_tree, walk_nodes

Number = Fraction | float
SUM_TOLERANCE = 1e-12  # of float probabilities; rational ones must sum to one exactly
COUNTS = ("n", "T")  # parameters that stand for a batch size and a length
ONE_SAMPLE = ("q", "p", "mu", "u", "parameters", "rewards", "outcome")  # keys of a certificate's model
OLD = {"old"}  # a key that it may have


# ---------------------------------------------------------------------------- models
@dataclass(frozen=True)
class FiniteModel:
    """A finite model: what every variable of a statement is, at each sample and each token.

    >>> model = FiniteModel(q=["1/2", "1/2"], p=["1/4", "3/4"], mu=["1/3", "2/3"], u=[1, 0])
    >>> model.size, model.exact
    (2, True)
    >>> replace(model, shape=((None, None),), q=[1, "1/2", "1/2"], p=[1, "1/2", "1/2"], mu=None,
    ...         u=[0, 1, 0]).lengths
    (2, 2)

    q, p, mu: probabilities, one entry a branch, in the order of `build_layout`, positive; mu defaults to q
    (on-policy).  u, v: directions of the logits, shape (branches,); only a curl needs v.
    parameters: name -> number.  rewards: "R", "M", "H" -> one number a branch, "A" -> one a sequence.
    outcome: the sequence where pointwise quantities are evaluated.
    old: probabilities of a third policy, free of theta, where one is spoken of.
    shape: of the tree; without it one node, whose branches are single samples.
    Integers, Fractions and strings such as "1/2" are exact; exact models can be enclosed.
    Raises UsageError: sizes that differ, nan, no full-support distribution, unknown outcome.
    """

    q: Sequence[Any]
    p: Sequence[Any]
    u: Sequence[Any]
    mu: Sequence[Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    rewards: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    outcome: int = 0
    v: Sequence[Any] | None = None
    shape: Shape | None = None
    old: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        if not (isinstance(self.parameters, Mapping) and isinstance(self.rewards, Mapping)):
            raise UsageError("model: parameters and rewards: name -> value expected")
        set_(self, "mu", self.q if self.mu is None else self.mu)
        for name in ("q", "p", "mu", "u", *(n for n in ("v", "old") if getattr(self, n) is not None)):
            set_(self, name, read_numbers(getattr(self, name), name))
        set_(self, "parameters", {n: read_numbers([v], n)[0] for n, v in self.parameters.items()})
        set_(self, "rewards", {n: read_numbers(v, n) for n, v in self.rewards.items()})
        self._refuse_unless_fitting()
        if type(self.outcome) is not int or not 0 <= self.outcome < self.size:
            raise UsageError(f"model: outcome {self.outcome!r} is not one of 0..{self.size - 1}")

    def _refuse_unless_fitting(self) -> None:
        if self.shape is None and len(self.q) < 2:
            raise UsageError(f"model: q has {len(self.q)} entries, 2 or more expected")
        rows = {**self.rows, **self.directions, **self.rewards}
        for name, row in rows.items():
            wanted = self.size if name == "A" else len(self.layout.before)
            if len(row) != wanted:
                raise UsageError(f"model: {name} has {len(row)} entries, {wanted} expected")
        for name, row in self.rows.items():
            for node in self.layout.nodes:
                _refuse_unless_distribution(row[node], name)

    @staticmethod
    def from_logits(logits: Sequence[float], **rest: Any) -> FiniteModel:
        """Return the model whose q is the softmax of logits, q(x) = exp(z_x) / sum exp(z).

        >>> FiniteModel.from_logits([0.0, 0.0], p=[0.25, 0.75], u=[1, 0]).q
        (0.5, 0.5)

        logits: shape (n,).  rest: the other fields of FiniteModel.
        Raises UsageError: logits that are nan or infinite.
        """
        z = np.asarray(logits, dtype=float)
        if z.ndim != 1 or not np.isfinite(z).all():
            raise UsageError(f"model: logits: a list of finite numbers expected, got {z.tolist()}")
        return FiniteModel(q=compute_softmax(z), **rest)

    # -- what it holds ------------------------------------------------------------------
    @cached_property
    def layout(self) -> Layout:
        """The branches of the tree, numbered."""
        return build_layout((None,) * len(self.q) if self.shape is None else self.shape)

    @property
    def size(self) -> int:
        """The number of sequences, or of single samples."""
        return len(self.layout.paths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The length of each sequence, in steps."""
        return tuple(map(len, self.layout.paths))

    @property
    def rows(self) -> dict[str, Sequence[Any]]:
        """The densities, at each branch."""
        rows = {"q": self.q, "p": self.p, "mu": self.mu or self.q}
        return rows if self.old is None else {**rows, "old": self.old}

    @property
    def directions(self) -> dict[str, Sequence[Any]]:
        return {"u": self.u} | ({} if self.v is None else {"v": self.v})

    @property
    def exact(self) -> bool:
        """Are all numbers rational?"""
        rows = [*self.rows.values(), *self.directions.values(), *self.rewards.values()]
        return all(isinstance(value, Fraction) for row in (*rows, self.parameters.values()) for value in row)

    def list_token_rewards(self) -> dict[str, Sequence[Any]]:
        """Return what is summed over the steps of a sequence, at each branch."""
        rewards = {name: row for name, row in self.rewards.items() if name != "A"}
        return {**rewards, "length": [Fraction(1)] * len(self.q)}

    def compute_advantage(self, slot: str, key: tuple[int, ...]) -> Number:
        """Return A where it is no whole sample's: by what is known there, within the range that A has.

        key: the branches of a prefix, or sequences of a batch.
        """
        if "A" not in self.rewards:
            raise UsageError("oracle: the model has no value for A")
        row = self.rewards["A"]
        return min(row) + (max(row) - min(row)) * (1 + make_noise(slot, key)) / 2

    def move_theta(self, t: float, context: Context, along: str = "u") -> FiniteModel:
        """Return the model at theta + t u, in floats; on-policy the sampler moves along."""
        q, step = (np.array([float(x) for x in row]) for row in (self.q, self.directions[along]))
        probabilities = [
            x for node in self.layout.nodes for x in compute_softmax(np.log(q[node]) + t * step[node])
        ]
        return replace(self, q=probabilities, mu=probabilities if context.on_policy else self.mu)

    def check_context(self, context: Context) -> None:
        """Raise UsageError: a parameter of the statement is missing, or mu != q on-policy."""
        for name in context.parameters:
            if name not in self.parameters:
                raise UsageError(f"model: no value for the parameter {name}")
        if context.on_policy and self.mu != self.q:
            raise UsageError("model: the statement is on-policy, so mu must equal q")


def make_noise(slot: str, key: tuple[int, ...]) -> Fraction:
    """Return a number in [-1, 1] that looks random, the same for the same arguments.

    >>> make_noise("now", (1, 2)) == make_noise("now", (1, 2)) != make_noise("now", (2, 1))
    True
    """
    return Fraction(zlib.crc32(repr((slot, key)).encode()) % 2001 - 1000, 1000)


def read_numbers(row: Any, name: str) -> tuple[Number, ...]:
    """Return a row of numbers; raises UsageError for anything else, nan and infinity."""
    if isinstance(row, str) or not hasattr(row, "__iter__"):
        raise UsageError(f"model: {name}: a list of numbers expected, got {str(row)[:40]!r}")
    try:
        values = tuple(Fraction(v) if isinstance(v, Rational | str) else float(v) for v in row)
    except (TypeError, ValueError, ZeroDivisionError):
        raise UsageError(f"model: {name}: numbers expected, got {str(row)[:60]}") from None
    if not all(math.isfinite(value) for value in values):
        raise UsageError(f"model: {name} holds nan or infinity")
    return values


def _refuse_unless_distribution(row: Sequence[Number], name: str) -> None:
    for x, value in enumerate(row):
        if value <= 0:
            raise UsageError(f"model: {name}[{x}] = {value} is not positive")
    exact = all(isinstance(value, Fraction) for value in row)
    total: Any = sum(row) if exact else math.fsum(row)
    if abs(total - 1) > (0 if exact else SUM_TOLERANCE):
        raise UsageError(f"model: {name} sums to {total}, not to 1")


def compute_softmax(z: Any) -> tuple[float, ...]:
    weights = np.exp(z - z.max())
    return tuple((weights / weights.sum()).tolist())


# ---------------------------------------------------------------------------- random models
def random_model(
    seed: int, size: int, context: Context | None = None, exact: bool = False, spread: float = 1.0
) -> FiniteModel:
    """Return a random model of single samples for statements in `context`, the same for the same arguments.

    Logits of q, p, mu are spread * N(0, 1); exact models have weights 1..9 over their sum.

    >>> random_model(3, 2, exact=True) == random_model(3, 2, exact=True)
    True

    seed: 0 or more.  size: number of outcomes.  spread: standard deviation of the logits.
    Parameters are nonzero, of both signs; n and T are integers from 2 to 6.
    Raises UsageError: size below 2, seed below 0.
    """
    if size < 2 or seed < 0:
        raise UsageError(f"model: seed {seed} and size {size}: at least 0 and 2 expected")
    context = context or Context()
    stream, second_stream = (
        np.random.default_rng([seed, size, int(exact), *suffix]) for suffix in ((), (2,))
    )
    q, p, mu = (_draw_distribution(stream, size, exact, spread) for _ in range(3))
    return FiniteModel(
        q=q, p=p, mu=q if context.on_policy else mu, u=_draw_direction(stream, size, exact),
        parameters={name: _draw_parameter(name, stream, exact) for name in context.parameters},
        rewards={name: _draw_direction(stream, size, exact) for name in ("R", "A")}
        | {"M": _draw_mask(second_stream, size)}
        | _build_given_rewards(_draw_direction(second_stream, size, exact)),
        outcome=int(stream.integers(size)), old=_draw_distribution(second_stream, size, exact, spread),
    )  # fmt: skip


def _build_given_rewards(row: Sequence[Any]) -> dict[str, list[Any]]:
    """Return H, H2, ..: a random row, its powers, all different."""
    return {name: [x ** (i + 1) + i for x in row] for i, name in enumerate(HELD)}


def random_tree(
    seed: int, context: Context | None = None, exact: bool = False, tokens: int = 3, depth: int = 3
) -> FiniteModel:
    """Return a random model of sequences; numbers as in `random_model`, A as in `compute_advantage`.

    Lengths are random, from 1 to depth: one sequence is of each.

    >>> model = random_tree(3, exact=True)
    >>> model == random_tree(3, exact=True), {1, 2, 3} == set(model.lengths)
    (True, True)

    seed: 0 or more.  tokens: the most branches of a node.  depth: the most steps.
    Raises UsageError: tokens or depth below 2, seed below 0.
    """
    if min(tokens, depth) < 2 or seed < 0:
        raise UsageError(f"model: seed {seed}, tokens {tokens}, depth {depth}: at least 0, 2, 2 expected")
    context = context or Context()
    stream, second_stream = (np.random.default_rng([seed, tokens, depth, int(exact), n]) for n in (1, 2))
    shape = _draw_shape(stream, tokens, depth, trunk=True)
    sizes = [len(node) for node in walk_nodes(shape)]

    def draw_distributions(of: Any = stream) -> list[Any]:
        return [x for size in sizes for x in _draw_distribution(of, size, exact, 1.0)]

    def draw_directions(of: Any = stream) -> list[Any]:
        return [x for size in sizes for x in _draw_direction(of, size, exact)]

    q, p, mu = (draw_distributions() for _ in range(3))
    level, leaves = _draw_parameter("level", stream, exact), len(build_layout(shape).paths)
    u, v, R = (draw_directions() for _ in range(3))
    return FiniteModel(
        q=q, p=p, mu=q if context.on_policy else mu, u=u, v=v, shape=shape,
        rewards={
            "R": R, "A": [level + 2 * make_noise("x", (leaf,)) for leaf in range(leaves)],
            "M": _draw_mask(second_stream, sum(sizes)),
            **_build_given_rewards(draw_directions(second_stream)),
        },
        parameters={name: _draw_parameter(name, stream, exact) for name in context.parameters},
        outcome=int(stream.integers(leaves)), old=draw_distributions(second_stream),
    )  # fmt: skip


def _draw_distribution(stream: Any, size: int, exact: bool, spread: float) -> Sequence[Number]:
    if not exact:
        return compute_softmax(spread * stream.normal(size=size))
    weights = stream.integers(1, 10, size).tolist()
    return [Fraction(weight, sum(weights)) for weight in weights]


def _draw_mask(stream: Any, size: int) -> list[Number]:
    """Return 0 and 1 at random, each at least once."""
    return [Fraction(k % 2) for k in stream.permutation(size).tolist()]


def _draw_direction(stream: Any, size: int, exact: bool) -> Sequence[Number]:
    """Return no constant: a constant direction moves nothing, so every gradient along it is 0."""
    if not exact:
        return stream.normal(size=size).tolist()
    return [Fraction(2 * k - size, 4) for k in stream.permutation(size).tolist()]


def _draw_parameter(name: str, stream: Any, exact: bool) -> Number:
    if name in COUNTS:
        return Fraction(int(stream.integers(2, 7)))
    sign, size = int(stream.choice([-1, 1])), int(stream.integers(3, 18))
    return Fraction(sign * size, 10) if exact else sign * stream.uniform(0.3, 1.7)


def _draw_shape(stream: Any, tokens: int, depth: int, trunk: bool) -> Shape:
    """Return a tree: the trunk branches at every node, ends at one branch, and goes on at another."""
    count = int(stream.integers(2, tokens + 1)) if trunk or stream.random() < 0.8 else 1
    ends, goes_on = stream.permutation(count)[:2] if trunk else (-1, -1)
    after: list[Any] = []
    for branch in range(count):
        grows = depth > 1 and branch != ends and (branch == goes_on or stream.random() < 0.4)
        after.append(_draw_shape(stream, tokens, depth - 1, branch == goes_on) if grows else None)
    return tuple(after)


# ---------------------------------------------------------------------------- certificates
def from_certificate(data: Any) -> FiniteModel:
    """Return the exact model of a refutation, from the JSON of its certificate.

    >>> data = {"q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"],
    ...         "parameters": {}, "rewards": {}, "outcome": 0}
    >>> from_certificate(data).p
    (Fraction(1, 4), Fraction(3, 4))

    data: of single samples, an object with these fields, numbers written as strings; of sequences,
    {"tree": node, "path": choices, "parameters": {name: number}} with nodes as in `read_tree`, the path
    that of the sequence where pointwise quantities are evaluated, or without it the first one.
    Raises UsageError: other fields, or what FiniteModel refuses.
    """
    if not isinstance(data, dict) or "tree" not in data:
        if not isinstance(data, dict) or data.keys() - OLD != set(ONE_SAMPLE):
            raise UsageError(f"model: the keys {', '.join(ONE_SAMPLE)} expected")
        return FiniteModel(**data)
    if data.keys() - {"path"} != {"tree", "parameters"}:
        raise UsageError("model: the keys tree, path, parameters expected")
    shape, rows = read_tree(data["tree"])
    outcome = find_sequence(shape, data["path"]) if data.get("path") else 0
    rewards: dict[str, Any] = {name: rows.pop(name) for name in ("R", "M") if name in rows}
    return FiniteModel(**rows, rewards=rewards, parameters=data["parameters"], outcome=outcome, shape=shape)
