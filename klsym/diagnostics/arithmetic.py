"""Arithmetic of float32 with its derivatives as PyTorch's autograd takes them: backwards, product by product.

A gradient of 0 through exp(100) = inf is 0*inf, not a number, although the formula has the slope 0.  Standard
library only; without rounding it is the arithmetic of float64.

>>> single = Arithmetic()
>>> x = single.leaf(100.0)
>>> bounded = single.clip(single.exp(x), single.number(0), single.number(10))
>>> bounded.value, single.gradient(bounded, x)
(10.0, nan)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

Pull = Callable[[float], float]  # the gradient of a result -> that of an argument


@dataclass(frozen=True, eq=False)
class Node:
    """A value, and for each argument that moves the gradient that is passed on to it."""

    value: float
    parents: tuple[tuple[Node, Pull], ...] = ()
    moves: bool = False


def _in_float32(x: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def _guarded(of: Callable[[], float | complex]) -> float:
    """An overflow gives inf, what is not real nan."""
    try:
        found = of()
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan
    return math.nan if isinstance(found, complex) else float(found)


def _power(x: float, n: float) -> float:
    """x**n as IEEE 754 has it: an odd power keeps the sign of x where it is 0 or infinite."""
    if math.isnan(n):
        return 1.0 if x == 1 else math.nan
    size = math.inf if not x and n < 0 else _guarded(lambda: abs(x) ** n)
    if -math.inf < x < 0 and math.isfinite(n) and n % 1:
        return math.nan
    return math.copysign(size, x) if n % 2 == 1 else size


def _quotient(a: float, b: float) -> float:
    if b:
        return a / b
    return math.copysign(math.inf, a) * math.copysign(1.0, b) if a and not math.isnan(a) else math.nan


def _log(x: float) -> float:
    return -math.inf if x == 0 else _guarded(lambda: math.log(x))


class Arithmetic:
    """The operations of losses; single: each result is rounded to float32."""

    def __init__(self, single: bool = True) -> None:
        self.rounded: Callable[[float], float] = _in_float32 if single else float

    def number(self, value: float) -> Node:
        return Node(self.rounded(value))

    def leaf(self, value: float) -> Node:
        """An input with respect to which gradients are taken."""
        return Node(self.rounded(value), (), True)

    def _node(self, value: float, *parents: tuple[Node, Pull]) -> Node:
        moving = tuple((node, pull) for node, pull in parents if node.moves)
        return Node(self.rounded(value), moving, bool(moving))

    def gradient(self, of: Node, leaf: Node) -> float:
        """The derivative along the leaf: each node passes its gradient on after all that use it."""
        order: list[Node] = []
        seen: set[int] = set()
        waiting = [(of, False)]
        while waiting:
            node, done = waiting.pop()
            if done:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                waiting += [(node, True), *((parent, False) for parent, _ in node.parents)]
        found = {id(of): 1.0}
        for node in reversed(order):
            for parent, pull in node.parents:
                passed = self.rounded(pull(found[id(node)]))
                before = found.get(id(parent))
                found[id(parent)] = passed if before is None else self.rounded(before + passed)
        return found.get(id(leaf), 0.0)

    # ------------------------------------------------------------------------ + - * / **
    def add(self, a: Node, b: Node) -> Node:
        return self._node(a.value + b.value, (a, lambda g: g), (b, lambda g: g))

    def subtract(self, a: Node, b: Node) -> Node:
        return self._node(a.value - b.value, (a, lambda g: g), (b, lambda g: -g))

    def negative(self, a: Node) -> Node:
        return self._node(-a.value, (a, lambda g: -g))

    def multiply(self, a: Node, b: Node) -> Node:
        return self._node(a.value * b.value, (a, lambda g: g * b.value), (b, lambda g: g * a.value))

    def divide(self, a: Node, b: Node) -> Node:
        ratio = self.rounded(_quotient(a.value, b.value))
        below = self.rounded(_quotient(ratio, b.value))
        return self._node(ratio, (a, lambda g: _quotient(g, b.value)), (b, lambda g: -g * below))

    def power(self, a: Node, n: Node) -> Node:
        value = self.rounded(_power(a.value, n.value))
        slope = self.rounded(n.value * self.rounded(_power(a.value, n.value - 1)))
        return self._node(
            value,
            (a, lambda g: g * slope if n.value else 0.0),
            (n, lambda g: 0.0 if not a.value and n.value >= 0 else g * self.rounded(value * _log(a.value))),
        )

    # ------------------------------------------------------------------------ functions
    def exp(self, a: Node) -> Node:
        value = self.rounded(_guarded(lambda: math.exp(a.value)))
        return self._node(value, (a, lambda g: g * value))

    def expm1(self, a: Node) -> Node:
        value = self.rounded(_guarded(lambda: math.expm1(a.value)))
        return self._node(value, (a, lambda g: g * self.rounded(value + 1)))

    def log(self, a: Node) -> Node:
        return self._node(_log(a.value), (a, lambda g: _quotient(g, a.value)))

    def log1p(self, a: Node) -> Node:
        value = -math.inf if a.value == -1 else _guarded(lambda: math.log1p(a.value))
        return self._node(value, (a, lambda g: _quotient(g, self.rounded(a.value + 1))))

    def sqrt(self, a: Node) -> Node:
        value = self.rounded(_guarded(lambda: math.sqrt(a.value)))
        return self._node(value, (a, lambda g: _quotient(g, 2 * value)))

    def sigmoid(self, a: Node) -> Node:
        value = self.rounded(_quotient(1.0, 1 + _guarded(lambda: math.exp(-a.value))))
        return self._node(value, (a, lambda g: g * self.rounded((1 - value) * value)))

    def logsigmoid(self, a: Node) -> Node:
        """min(a, 0) - log1p(exp(-|a|))"""
        tail = math.exp(-abs(a.value))
        other = tail / (1 + tail) if a.value >= 0 else 1 / (1 + tail)
        return self._node(min(a.value, 0.0) - math.log1p(tail), (a, lambda g: g * other))

    def absolute(self, a: Node) -> Node:
        sign = (a.value > 0) - (a.value < 0)  # 0 at 0 and nan, as in PyTorch
        return self._node(abs(a.value), (a, lambda g: g * sign))

    def detach(self, a: Node) -> Node:
        return Node(a.value)

    # ------------------------------------------------------------------------ choices
    def where(self, holds: bool, a: Node, b: Node) -> Node:
        """The gradient of what is not chosen is 0, and is passed on all the same."""
        chosen = a if holds else b
        taken = {True: lambda g: g, False: lambda g: 0.0}
        return self._node(chosen.value, (a, taken[holds]), (b, taken[not holds]))

    def minimum(self, a: Node, b: Node) -> Node:
        return self._extreme(a, b, b.value - a.value)

    def maximum(self, a: Node, b: Node) -> Node:
        return self._extreme(a, b, a.value - b.value)

    def _extreme(self, a: Node, b: Node, lead: float) -> Node:
        """At a tie half of the gradient goes to each."""
        if math.isnan(a.value) or math.isnan(b.value):
            return self._node(math.nan, (a, lambda g: g), (b, lambda g: g))
        if a.value == b.value:
            return self._node(a.value, (a, lambda g: g / 2), (b, lambda g: g / 2))
        return self.where(lead > 0, a, b)

    def clip(self, a: Node, low: Node | None = None, high: Node | None = None) -> Node:
        """On a bound the slope is 1."""
        found = a
        if low is not None:
            found = self.where(not found.value < low.value, found, low)
        if high is not None:
            found = self.where(not found.value > high.value, found, high)
        return found
