"""Where a loss or its gradient overflows in float32: Python floats with float32's largest number.

>>> from klsym.language.expressions import k2, k3
>>> overflows(k2), overflows(k3)
((), (Overflow(at=-100, what='value', value=inf), Overflow(at=-100, what='gradient', value=-inf)))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import sympy

from klsym.language.expressions import (
    Estimator,
    OverPositions,
    clip,
    log_mu,
    log_old,
    log_p,
    log_q,
    sg,
)  # fmt: skip

LARGEST = 3.4028234663852886e38  # of float32
AT = (-100, 100)  # log q - log p, in nats
START = -2.0  # log q at the token: any moderate number
OTHERS = 0.5  # rewards and parameters


@dataclass(frozen=True)
class Overflow:
    """at: log q - log p.  what: "value" or "gradient", along log q.  value: inf, -inf or nan."""

    at: int
    what: str
    value: float


Pair = tuple[float, float]  # a value, and its derivative along log q


def overflows(loss: Any) -> tuple[Overflow, ...]:
    """Where the loss or its gradient is infinite or not a number; nothing for sums over tokens or samples."""
    if loss.has(OverPositions):
        return ()
    found = []
    for at in AT:
        numbers = {log_q: (START, 1.0), log_p: (START - at, 0.0), log_mu: (START, 0.0), log_old: (START, 0.0)}
        try:
            value, slope = _pair(loss, numbers)
        except (KeyError, TypeError):  # a function that has no rule here
            return ()
        named = (("value", value), ("gradient", slope))
        found += [Overflow(at, what, x) for what, x in named if not math.isfinite(x)]
    return tuple(found)


def _rounded(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) > LARGEST else x


def _times(a: float, b: float) -> float:
    """A product, rounded as float32 rounds it: 0 times infinity is not a number, as in autograd."""
    return _rounded(a * b)


def _pair(e: Any, numbers: Mapping[Any, Pair]) -> Pair:
    """The value of an expression and its slope."""
    if e.is_Number or e is sympy.E:
        return _rounded(float(e)), 0.0
    if e.is_Symbol:
        return numbers.get(e, (OTHERS, 0.0))
    if isinstance(e, Estimator):
        return _pair(e.definition(), numbers)
    if isinstance(e, sg):
        return _pair(e.args[0], numbers)[0], 0.0
    if e.is_Mul and any(_pair(x, numbers)[0] == 0 for x in e.args if _is_condition(x)):
        return 0.0, 0.0  # a branch of where(..) that is not taken
    pairs = [_pair(x, numbers) for x in e.args]
    if isinstance(e, sympy.Pow):
        base, exponent = pairs
        return _power(base, exponent, moving=e.exp.has(log_q))
    return RULES[e.func](pairs)


def _is_condition(e: Any) -> bool:
    return isinstance(e, sg) and isinstance(e.args[0], sympy.Heaviside)


def _sum(pairs: list[Pair]) -> Pair:
    return _rounded(sum(v for v, _ in pairs)), _rounded(sum(d for _, d in pairs))


def _product(pairs: list[Pair]) -> Pair:
    return reduce(
        lambda a, b: (_times(a[0], b[0]), _added(_times(a[1], b[0]), _times(a[0], b[1]), a, b)), pairs
    )


def _added(left: float, right: float, a: Pair, b: Pair) -> float:
    """The product rule; a factor that does not move has no term."""
    return _rounded((left if a[1] else 0.0) + (right if b[1] else 0.0))


def _power(base: Pair, exponent: Pair, moving: bool) -> Pair:
    value = _guarded(lambda: base[0] ** exponent[0], base[0])
    if moving:
        slope = _times(value, _times(exponent[1], _guarded(lambda: math.log(base[0]), base[0])))
        return value, slope
    inner = _guarded(lambda: base[0] ** (exponent[0] - 1), base[0])
    return value, _times(_times(exponent[0], inner), base[1]) if base[1] else 0.0


def _guarded(of: Callable[[], Any], x: float) -> float:
    """A function in float32; division by zero and overflow give inf, what is not real nan."""
    try:
        found = of()
    except (ZeroDivisionError, OverflowError):
        return math.inf
    except ValueError:
        return -math.inf if x == 0 else math.nan
    return _rounded(found) if isinstance(found, float) else math.nan


def _exp(pairs: list[Pair]) -> Pair:
    [(x, slope)] = pairs
    value = _guarded(lambda: math.exp(x), x)
    return value, _times(value, slope) if slope else 0.0


def _log(pairs: list[Pair]) -> Pair:
    [(x, slope)] = pairs
    value = _guarded(lambda: math.log(x), x)
    return value, _times(_guarded(lambda: 1 / x, x), slope) if slope else 0.0


def _clip(pairs: list[Pair]) -> Pair:
    x, lo, hi = pairs
    return hi if x[0] > hi[0] else lo if x[0] < lo[0] else x


def _step(pairs: list[Pair]) -> Pair:
    return float(pairs[0][0] > 0), 0.0


RULES: dict[Any, Callable[[list[Pair]], Pair]] = {
    sympy.Add: _sum, sympy.Mul: _product, sympy.exp: _exp, sympy.log: _log, clip: _clip,
    sympy.Heaviside: _step,
    sympy.Abs: lambda pairs: pairs[0] if pairs[0][0] >= 0 else (-pairs[0][0], -pairs[0][1]),
    sympy.Min: min, sympy.Max: max,
}  # fmt: skip
