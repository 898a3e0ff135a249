"""Arithmetic of float32 with its derivatives as PyTorch's autograd takes them: backwards, product by product.

A gradient of 0 through exp(100) = inf is 0*inf, not a number, although the formula has the slope 0.  Standard
library only; without rounding it is the arithmetic of float64.

>>> single = Arithmetic()
>>> x = single.make_leaf(100.0)
>>> bounded = single.clip(single.exp(x), single.make_number(0), single.make_number(10))
>>> bounded.value, single.differentiate(bounded, x)
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
    """A value, and for each argument that depends on a leaf the gradient that is passed on to it."""

    value: float
    parents: tuple[tuple[Node, Pull], ...] = ()
    moves: bool = False


def _round_to_float32(x: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def _compute_guarded(computation: Callable[[], float | complex]) -> float:
    """Return the result of a computation: inf for an overflow, nan for what is not real."""
    try:
        result = computation()
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan
    return math.nan if isinstance(result, complex) else float(result)


def _raise_to_power(x: float, n: float) -> float:
    """Return x**n as IEEE 754 has it: an odd power keeps the sign of x where it is 0 or infinite."""
    if math.isnan(n):
        return 1.0 if x == 1 else math.nan
    size = math.inf if not x and n < 0 else _compute_guarded(lambda: abs(x) ** n)
    if -math.inf < x < 0 and math.isfinite(n) and n % 1:
        return math.nan
    return math.copysign(size, x) if n % 2 == 1 else size


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.copysign(math.inf, a) * math.copysign(1.0, b) if a and not math.isnan(a) else math.nan


def _take_log(x: float) -> float:
    return -math.inf if x == 0 else _compute_guarded(lambda: math.log(x))


class Arithmetic:
    """The operations of losses; single: each result is rounded to float32."""

    def __init__(self, single: bool = True) -> None:
        self.round_result: Callable[[float], float] = _round_to_float32 if single else float

    def make_number(self, value: float) -> Node:
        return Node(self.round_result(value))

    def make_leaf(self, value: float) -> Node:
        """Return an input with respect to which gradients are taken."""
        return Node(self.round_result(value), (), True)

    def _make_node(self, value: float, *parents: tuple[Node, Pull]) -> Node:
        moving = tuple((node, pull) for node, pull in parents if node.moves)
        return Node(self.round_result(value), moving, bool(moving))

    def differentiate(self, output: Node, leaf: Node) -> float:
        """Return the derivative of the output along the leaf, as autograd takes it.

        Each node passes its gradient on after all nodes that use it.
        """
        order: list[Node] = []
        seen: set[int] = set()
        waiting = [(output, False)]
        while waiting:
            node, done = waiting.pop()
            if done:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                waiting += [(node, True), *((parent, False) for parent, _ in node.parents)]
        gradients = {id(output): 1.0}
        for node in reversed(order):
            for parent, pull in node.parents:
                passed = self.round_result(pull(gradients[id(node)]))
                before = gradients.get(id(parent))
                gradients[id(parent)] = passed if before is None else self.round_result(before + passed)
        return gradients.get(id(leaf), 0.0)

    # ------------------------------------------------------------------------ + - * / **
    def add(self, a: Node, b: Node) -> Node:
        return self._make_node(a.value + b.value, (a, lambda g: g), (b, lambda g: g))

    def subtract(self, a: Node, b: Node) -> Node:
        return self._make_node(a.value - b.value, (a, lambda g: g), (b, lambda g: -g))

    def negative(self, a: Node) -> Node:
        return self._make_node(-a.value, (a, lambda g: -g))

    def multiply(self, a: Node, b: Node) -> Node:
        return self._make_node(a.value * b.value, (a, lambda g: g * b.value), (b, lambda g: g * a.value))

    def divide(self, a: Node, b: Node) -> Node:
        ratio = self.round_result(_divide(a.value, b.value))
        below = self.round_result(_divide(ratio, b.value))
        return self._make_node(ratio, (a, lambda g: _divide(g, b.value)), (b, lambda g: -g * below))

    def power(self, a: Node, n: Node) -> Node:
        value = self.round_result(_raise_to_power(a.value, n.value))
        slope = self.round_result(n.value * self.round_result(_raise_to_power(a.value, n.value - 1)))
        return self._make_node(
            value,
            (a, lambda g: g * slope if n.value else 0.0),
            (
                n,
                lambda g: (
                    0.0 if not a.value and n.value >= 0 else g * self.round_result(value * _take_log(a.value))
                ),
            ),
        )

    # ------------------------------------------------------------------------ functions
    def exp(self, a: Node) -> Node:
        value = self.round_result(_compute_guarded(lambda: math.exp(a.value)))
        return self._make_node(value, (a, lambda g: g * value))

    def expm1(self, a: Node) -> Node:
        value = self.round_result(_compute_guarded(lambda: math.expm1(a.value)))
        return self._make_node(value, (a, lambda g: g * self.round_result(value + 1)))

    def log(self, a: Node) -> Node:
        return self._make_node(_take_log(a.value), (a, lambda g: _divide(g, a.value)))

    def log1p(self, a: Node) -> Node:
        value = -math.inf if a.value == -1 else _compute_guarded(lambda: math.log1p(a.value))
        return self._make_node(value, (a, lambda g: _divide(g, self.round_result(a.value + 1))))

    def sqrt(self, a: Node) -> Node:
        value = self.round_result(_compute_guarded(lambda: math.sqrt(a.value)))
        return self._make_node(value, (a, lambda g: _divide(g, 2 * value)))

    def sigmoid(self, a: Node) -> Node:
        value = self.round_result(_divide(1.0, 1 + _compute_guarded(lambda: math.exp(-a.value))))
        return self._make_node(value, (a, lambda g: g * self.round_result((1 - value) * value)))

    def logsigmoid(self, a: Node) -> Node:
        """min(a, 0) - log1p(exp(-|a|))"""
        tail = math.exp(-abs(a.value))
        slope = tail / (1 + tail) if a.value >= 0 else 1 / (1 + tail)
        return self._make_node(min(a.value, 0.0) - math.log1p(tail), (a, lambda g: g * slope))

    def absolute(self, a: Node) -> Node:
        sign = (a.value > 0) - (a.value < 0)  # 0 at 0 and nan, as in PyTorch
        return self._make_node(abs(a.value), (a, lambda g: g * sign))

    def detach(self, a: Node) -> Node:
        return Node(a.value)

    # ------------------------------------------------------------------------ choices
    def where(self, holds: bool, a: Node, b: Node) -> Node:
        """Return the chosen node; the other one is passed the gradient 0, as 0*inf is nan."""
        chosen = a if holds else b
        gradient_by_choice = {True: lambda g: g, False: lambda g: 0.0}
        return self._make_node(
            chosen.value, (a, gradient_by_choice[holds]), (b, gradient_by_choice[not holds])
        )

    def minimum(self, a: Node, b: Node) -> Node:
        return self._choose_extreme(a, b, b.value - a.value)

    def maximum(self, a: Node, b: Node) -> Node:
        return self._choose_extreme(a, b, a.value - b.value)

    def _choose_extreme(self, a: Node, b: Node, lead: float) -> Node:
        """Return the node that leads; at a tie each is passed half of the gradient."""
        if math.isnan(a.value) or math.isnan(b.value):
            return self._make_node(math.nan, (a, lambda g: g), (b, lambda g: g))
        if a.value == b.value:
            return self._make_node(a.value, (a, lambda g: g / 2), (b, lambda g: g / 2))
        return self.where(lead > 0, a, b)

    def clip(self, a: Node, low: Node | None = None, high: Node | None = None) -> Node:
        """Return the value between the bounds; on a bound the slope is 1."""
        clipped = a
        if low is not None:
            clipped = self.where(not clipped.value < low.value, clipped, low)
        if high is not None:
            clipped = self.where(not clipped.value > high.value, clipped, high)
        return clipped
