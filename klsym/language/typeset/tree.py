"""The tree of a formula in LaTeX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Node:
    """A part of a formula; children: the parts of it that are nodes."""

    @property
    def children(self) -> Iterator[Node]:
        for field in fields(self):
            value = getattr(self, field.name)
            yield from (x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, Node))


@dataclass(frozen=True)
class Number(Node):
    """A number as it is typed."""

    text: str


@dataclass(frozen=True)
class Symbol(Node):
    """A letter or a word with its indices; arguments: None where no bracket follows."""

    name: str
    subscript: str = ""
    superscript: str = ""
    arguments: str | None = None


@dataclass(frozen=True)
class Sum(Node):
    """x + y - z; signs: True for minus."""

    terms: tuple[Node, ...]
    signs: tuple[bool, ...]


@dataclass(frozen=True)
class Product(Node):
    """x y z."""

    factors: tuple[Node, ...]


@dataclass(frozen=True)
class Quotient(Node):
    """x / y."""

    numerator: Node
    denominator: Node


@dataclass(frozen=True)
class Power(Node):
    """x to the power y."""

    base: Node
    exponent: Node


@dataclass(frozen=True)
class Call(Node):
    """A function of the loss grammar; subscript: the index of min and max."""

    name: str
    arguments: tuple[Node, ...]
    subscript: str = ""


@dataclass(frozen=True)
class Comparison(Node):
    """x > y, inside an indicator."""

    sign: str
    first: Node
    second: Node


@dataclass(frozen=True)
class Divergence(Node):
    """KL of two policies."""

    first: Symbol
    second: Symbol


@dataclass(frozen=True)
class Entropy(Node):
    """The entropy of a policy."""

    policy: Symbol


@dataclass(frozen=True)
class Mean(Node):
    """An expectation; sampled_from: what is drawn from what."""

    sampled_from: str
    body: Node


@dataclass(frozen=True)
class Series(Node):
    """A sum over an index; upper: its last value, domain: the set it is in, "" where none is given."""

    index: str
    upper: str
    body: Node
    domain: str = ""


@dataclass(frozen=True)
class OverWords(Node):
    """The mean over all words under a policy, by its log density; is_of_some: only some words are summed."""

    density: str
    body: Node
    is_of_some: bool


@dataclass(frozen=True)
class SequenceRatio(Node):
    """The ratio of two policies at a whole sequence, by their log densities; is_root: its T-th root."""

    first: str
    second: str
    is_root: bool


@dataclass(frozen=True)
class Length(Node):
    """|y|, the number of tokens of a response."""

    text: str


@dataclass(frozen=True)
class Gradient(Node):
    """The gradient of a part."""

    body: Node


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all parts of it."""
    yield node
    for child in node.children:
        yield from walk(child)


def is_policy_symbol(node: Node) -> bool:
    """Is it a letter of a policy, as in q(x) or pi_theta(a|s)?"""
    return isinstance(node, Symbol) and node.name in ("pi", "p", "q", "mu")


def is_argument(name: str, node: Node) -> bool:
    """May a function have this argument without brackets?  What stands behind it is not of it."""
    if name == "log":
        letters = ("pi", "mu", "beta", "p", "q", "r", "rho", "sigma")
        return isinstance(node, Number | Call) or (isinstance(node, Symbol) and node.name in letters)
    return name == "sqrt" or (name == "min" and isinstance(node, Symbol))
