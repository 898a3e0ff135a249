"""Where a loss or its gradient is not finite in float32, or is nothing but rounding.

The log densities that are tried are those that tokens have: at most 0.

>>> from klsym.engine.answers.dispatch import as_written
>>> find_overflows(as_written("k2", ())), find_overflows(as_written("k3", ()))[1]
((), Overflow(at=-100, what='gradient', value=-inf))
>>> find_cancellation(as_written("exp(-k1) - 1 + k1", ())) is None, find_cancellation(as_written("k3", ()))
(False, None)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy

from klsym.diagnostics.arithmetic import Arithmetic, Node
from klsym.diagnostics.typed_code import CannotRun, run_typed
from klsym.language.expressions import (
    ATOMS,
    K1,
    PARAMETERS,
    Estimator,
    OfRow,
    OverPositions,
    Ratio,
    clip,
    log_mu,
    log_old,
    log_p,
    log_q,
    sg,
)  # fmt: skip
from klsym.notation.losses import Written
from klsym.records import record

AT = (-100, 100)  # log q - log p, in nats: the smaller of both densities is that of a very rare token
LIKELY = -1.0  # the larger of both log densities
NEAR = (1e-4, -1e-4, 1.7e-4, -1.7e-4)  # log q - log p where the policies nearly agree
LIKELIEST = -0.1  # log q there
NOISE = 0.5  # the error of a value that is rounding and nothing else, relative to the value
OTHERS = 0.5  # rewards and parameters


@record
class Overflow:
    """at: log q - log p.  what: "value" or "gradient", along log q.  value: inf, -inf or nan."""

    at: int
    what: str
    value: float


@record
class Cancellation:
    """at: log q - log p.  value: in float32.  exact: without rounding of what is calculated."""

    at: float
    value: float
    exact: float


def find_overflows(written: Written, gradient: bool = True) -> tuple[Overflow, ...]:
    """Return where the loss or its gradient is infinite or not a number.

    Nothing is returned for losses that add up tokens, samples or words of the vocabulary.

    gradient: is the loss differentiated?  A reward is not.
    """
    infinities = []
    for at in AT:
        run = _LossAtToken(written, Arithmetic(), LIKELY + min(at, 0), LIKELY - max(at, 0))
        if run.loss is None:
            return ()
        named = [("value", run.loss.value), *([("gradient", run.slope)] if gradient else [])]
        infinities += [Overflow(at, what, x) for what, x in named if not math.isfinite(x)]
    return tuple(infinities)


def find_cancellation(written: Written) -> Cancellation | None:
    """Return the worst of the points near p = q where the value is nothing but rounding, or None."""
    by_error = []
    for near in NEAR:
        single = _LossAtToken(written, Arithmetic(), LIKELIEST, LIKELIEST - near)
        exact = _LossAtToken(written, Arithmetic(single=False), single.log_q.value, single.log_p.value)
        if single.loss is None or exact.loss is None:
            return None
        error, size = abs(single.loss.value - exact.loss.value), abs(exact.loss.value)
        if error > NOISE * size and size > 0:
            by_error.append((error / size, Cancellation(near, single.loss.value, exact.loss.value)))
    return max(by_error, key=lambda row: row[0])[1] if by_error else None


class _LossAtToken:
    """A loss at one token; loss: None if one of its operations has no rule here."""

    def __init__(self, written: Written, arithmetic: Arithmetic, at_q: float, at_p: float) -> None:
        self.arithmetic = arithmetic
        self.log_q, self.log_p = arithmetic.make_leaf(at_q), arithmetic.make_number(at_p)
        sampler = arithmetic.make_number(at_q)
        self.inputs = {log_q: self.log_q, log_p: self.log_p, log_mu: sampler, log_old: sampler}
        self.loss = self._run_loss(written)

    @property
    def slope(self) -> float:
        assert self.loss is not None
        return self.arithmetic.differentiate(self.loss, self.log_q)

    def _run_loss(self, written: Written) -> Node | None:
        """Run the text as it is typed, or else the expression that was read from it."""
        e = written.expression
        if e.has(OverPositions):
            return None
        declared = {x.name for x in e.free_symbols} - {*ATOMS, *PARAMETERS}
        try:
            return run_typed(written.typed or written.text, sorted(declared), self.arithmetic, self.evaluate)
        except CannotRun:
            pass
        try:
            return self.evaluate(e)
        except (KeyError, TypeError):  # a function that has no rule here
            return None

    def evaluate(self, e: Any) -> Node:
        """Return the value of an expression."""
        if e.is_Number or e is sympy.E:
            return self.arithmetic.make_number(float(e))
        if e.is_Symbol:
            return self.inputs.get(e) or self.arithmetic.make_number(OTHERS)
        if isinstance(e, OfRow) and not isinstance(e, K1):
            return self.evaluate(e.express_in_k1())
        if isinstance(e, Estimator):
            a, b = map(self.evaluate, e.args)
            difference = self.arithmetic.subtract(*((b, a) if isinstance(e, Ratio) else (a, b)))
            return difference if isinstance(e, K1) else self.arithmetic.exp(difference)
        if e.is_Mul and any(self.evaluate(x).value == 0 for x in e.args if _is_condition(x)):
            return self.arithmetic.make_number(0)  # a branch of where(..) that is not taken
        if e.is_Add:
            return self._add_terms(e)
        return RULES[e.func](self.arithmetic, *map(self.evaluate, e.args))

    def _add_terms(self, e: Any) -> Node:
        """Return a sum with expm1(x) for exp(x) - 1, as the snippets of klsym compute k3."""
        terms = list(e.args)
        powers = [x for x in terms if isinstance(x, sympy.exp | Ratio)]
        if not powers or -1 not in terms:
            return reduce(self.arithmetic.add, map(self.evaluate, terms))
        terms = [x for x in terms if x not in (powers[0], -1)]
        inside = -K1(*powers[0].args) if isinstance(powers[0], Ratio) else powers[0].args[0]
        return reduce(
            self.arithmetic.add, map(self.evaluate, terms), self.arithmetic.expm1(self.evaluate(inside))
        )


def _is_condition(e: Any) -> bool:
    return isinstance(e, sg) and isinstance(e.args[0], sympy.Heaviside)


def _fold_operation(operation: Callable[[Arithmetic, Node, Node], Node]) -> Callable[..., Node]:
    """Return an operation of two numbers as one of several."""
    return lambda of, *nodes: reduce(lambda a, b: operation(of, a, b), nodes)


def _take_step(of: Arithmetic, x: Node, *at_zero: Node) -> Node:
    return of.make_number(float(x.value > 0))


RULES: dict[Any, Callable[..., Node]] = {
    sympy.Mul: _fold_operation(Arithmetic.multiply), sympy.Pow: Arithmetic.power, sympy.exp: Arithmetic.exp,
    sympy.log: Arithmetic.log, sympy.Abs: Arithmetic.absolute, sympy.Min: _fold_operation(Arithmetic.minimum),
    sympy.Max: _fold_operation(Arithmetic.maximum), clip: Arithmetic.clip, sg: Arithmetic.detach,
    sympy.Heaviside: _take_step,
}  # fmt: skip
