"""A trace against the real function: real tensors, real autograd, at random points, on both sides of every
clamp.

The trace, and the formula of one token that is explained, are evaluated by `make_duals`; the function runs in
float64 (its casts to shorter floats are left out, for they are no part of the formula).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy

from klsym.audit.duals import Dual, evaluate, make_constant
from klsym.audit.terms import VOCABULARY, Refused, Step, mask, token
from klsym.audit.tracing.shapes import SIZES
from klsym.language.expressions import A, R, clip, log_mu, log_p, log_q, unfold

SCALES = (0.3, 2.0, 9.0, 40.0)  # how far apart the log densities are: clamps at 20 are crossed
FAR = 100.0  # the log ratios at which overflow is looked for
ROUNDING = 1e-3  # times AGREE: what is added and subtracted again on the way costs so much of it
AGREE = 1e-11  # of the size of what is added up
BENDS = (clip, sympy.Max, sympy.Min, sympy.Abs, Step)


@dataclass(frozen=True)
class Point:
    """Numbers for everything: arrays of shape (b, t) or (b, t, v)."""

    values: dict[Any, np.ndarray]
    logits: dict[Any, np.ndarray]
    picks: np.ndarray


@dataclass
class Outcome:
    """points: how many numbers were compared; failed: what disagreed, or empty; bound: what stood on its
    bound then; sides: of each clamp, those that were seen.
    """

    points: int = 0
    failed: str = ""
    bound: Any = None
    sides: dict[Any, set[bool]] = field(default_factory=dict)
    padding: bool = False

    @property
    def one_sided(self) -> list[Any]:
        return [e for e, sides in self.sides.items() if len(sides) < 2]


# value, gradient of its sum along log q, and the largest number met on the way at each token
Run = Callable[[Point], tuple[np.ndarray, np.ndarray, np.ndarray]]


def draw(seed: int, scale: float, symbols: set[Any], rows: frozenset[Any], tied: bool = False) -> Point:
    """Return a random point; rows: what has one number a sequence."""
    rng = np.random.default_rng(seed)
    shape, words = (SIZES["b"], SIZES["t"]), (SIZES["b"], SIZES["t"], SIZES["v"])
    values: dict[Any, np.ndarray] = {}
    center = -1.5 + 0.5 * rng.standard_normal(shape)
    for x in sorted(symbols, key=str):
        noise = rng.standard_normal(shape)
        near = rng.random(shape) < 0.3  # some points stay close where the others are far
        if x in VOCABULARY or x in (mask, token):
            continue
        if x in (R, A):
            values[x] = noise[:, :1] if x in rows else noise
        elif x.name in ("log_q", "log_p", "log_mu", "log_old"):
            values[x] = -np.abs(center + np.where(near, min(scale, 1.0), scale) * noise)
        else:  # a parameter
            values[x] = np.asarray(0.2 + 0.7 * rng.random())
    if tied and log_q in values:
        values[log_mu] = values[log_q].copy()
    lengths = rng.integers(1, shape[1] + 1, size=shape[0])
    values[mask] = (np.arange(shape[1])[None, :] < lengths[:, None]) * 1.0
    logits = {x: scale * 0.5 * rng.standard_normal(words) for x in VOCABULARY}
    return Point(values, logits, rng.integers(0, words[2], size=shape))


def draw_far_point(symbols: set[Any], rows: frozenset[Any], x: Any, apart: float) -> Point:
    """Return a point with log q - x = apart: the lower one is -1 - |apart|, the other -1; nothing is masked.

    Where log q is the lower one, the remaining density of log p and log mu is as low, so that only x is
    far from q.
    """
    point = draw(0, 0.0, symbols, rows)
    for name in (log_q, log_p, log_mu):
        if name in point.values:
            point.values[name][...] = -1.0
    point.values[x if apart > 0 else log_q][...] = -1.0 - abs(apart)
    other_density = log_mu if x == log_p else log_p
    if apart < 0 and other_density in point.values:
        point.values[other_density][...] = -1.0 - abs(apart)
    point.values[mask][...] = 1.0
    return point


def draw_points(symbols: set[Any], rows: frozenset[Any], on_policy: bool) -> dict[int, Point]:
    """Return random points at all scales; on-policy also one with log mu = log q."""
    points = {n: draw(n, scale, symbols, rows) for n, scale in enumerate(SCALES)}
    if on_policy and log_mu in symbols:
        points[len(SCALES)] = draw(len(SCALES), 2.0, symbols, rows, tied=True)
    return points


def draw_far_points(symbols: set[Any], rows: frozenset[Any], densities: set[Any]) -> dict[str, Point]:
    """Return points with log q far from each of these densities, on both sides."""
    words = {log_p: "log q - log p", log_mu: "log q - log mu"}
    return {
        f"{text} = {sign * FAR:+g}": draw_far_point(symbols, rows, x, sign * FAR)
        for x, text in words.items() if x in densities for sign in (1, -1)
    }  # fmt: skip


def make_duals(point: Point, vocabulary: bool) -> dict[Any, Dual]:
    """Return the numbers of a point, with the slopes of log q along its own entries.

    vocabulary: the entries are those of the logits.
    """
    numbers = {x: Dual(_expand_axes(value)) for x, value in point.values.items()}
    count = point.values[mask].size
    if not vocabulary:
        unit = np.eye(count).reshape(*point.values[mask].shape, 1, count)
        numbers[log_q] = Dual(_expand_axes(point.values.get(log_q, np.zeros(1))), unit)
        return numbers
    for x, of_sample in VOCABULARY.items():
        z = point.logits[x]
        logs = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
        slope = _compute_softmax_slope(np.exp(logs)) if of_sample == log_q else None
        numbers[x] = Dual(logs, slope)
        index = point.picks[..., None]
        picked = np.take_along_axis(logs, index, axis=-1)
        down = None if slope is None else np.take_along_axis(slope, index[..., None], axis=2)
        numbers[of_sample] = Dual(picked, down)
    return numbers


def _compute_softmax_slope(q: np.ndarray) -> np.ndarray:
    """Return d log q_v / d z_(b,t,u), as an array (b, t, v, all entries of z)."""
    whole = np.zeros((*q.shape, q.size))
    place = np.arange(q.size).reshape(q.shape)
    for b in range(q.shape[0]):
        for t in range(q.shape[1]):
            whole[b, t][:, place[b, t]] = np.eye(q.shape[2]) - q[b, t][None, :]
    return whole


def _expand_axes(value: np.ndarray) -> np.ndarray:
    return value[..., None] if value.ndim == 2 else np.reshape(value, (1, 1, 1))


def check_trace(
    formula: Any, run: Run, points: Mapping[int, Point], vocabulary: bool, gradient: bool
) -> Outcome:
    """Compare value and gradient of the trace with those of the real function."""
    outcome = Outcome()
    bends = [e for e in sympy.preorder_traversal(unfold(formula)) if isinstance(e, BENDS)]
    for point in points.values():
        numbers = make_duals(point, vocabulary)
        expected = evaluate(formula, numbers)
        value, slope, largest = run(point)
        rough = np.broadcast_to(largest, point.values[mask].shape)
        spread = rough.ravel() if value.size == rough.size else rough.max()
        mine, size = (_match_size(array, value.size) for array in (expected.value, expected.magnitude))
        _compare(outcome, "value", mine, size + ROUNDING * spread, value.ravel())
        if gradient:
            slopes = (expected.slope, expected.slope_magnitude)
            mine, size = (_sum_gradient(array, value.size, numbers) for array in slopes)
            steep = rough.ravel() if slope.size == rough.size else rough.max()
            _compare(outcome, "gradient", mine, size + ROUNDING * steep, slope.ravel())
            padded = (point.values[mask] == 0).ravel()
            outcome.padding |= not vocabulary and bool(np.any(slope.ravel()[padded]))
        if outcome.failed:
            outcome.bound = next((e for e in bends if _is_met(e, numbers)), None)
            return outcome
        for e in bends:
            outcome.sides.setdefault(e, set()).update(_find_sides(e, numbers))
    return outcome


def is_same_loss(traced: Any, written: Any, points: Iterable[Point]) -> bool:
    """Is the loss in the grammar what was traced, value and slope, up to the rounding of both?"""
    outcome = Outcome()
    for point in points:
        numbers = make_duals(point, vocabulary=False)
        numbers[mask] = make_constant(1)
        first, second = (evaluate(e, numbers) for e in (traced, written))
        _compare_flat(outcome, "value", first.value, first.magnitude + second.magnitude, second.value)
        if first.slope is not None or second.slope is not None:
            slopes = (first.slope, first.slope_magnitude, second.slope, second.slope_magnitude)
            mine, size, other_slope, other_size = (np.zeros(1) if s is None else s for s in slopes)
            _compare_flat(outcome, "gradient", mine, size + other_size, other_slope)
    return not outcome.failed


def _compare_flat(outcome: Outcome, quantity: str, *arrays: np.ndarray) -> None:
    _compare(outcome, quantity, *(a.ravel() for a in np.broadcast_arrays(*arrays)))


def _match_size(values: np.ndarray, size: int) -> np.ndarray:
    """Return as many numbers as the code returns, which may not depend on all axes; further axes stay."""
    grid, slope_axes = values.shape[:3], values.shape[3:]
    for shape in ((1, 1, 1), (SIZES["b"], 1, 1), (SIZES["b"], SIZES["t"], 1)):
        if math.prod(shape) == size and np.broadcast_shapes(shape, grid) == shape:
            return np.broadcast_to(values, shape + slope_axes).reshape(-1, *slope_axes)
    return values.reshape(-1, *slope_axes)


def _sum_gradient(slope: np.ndarray | None, size: int, numbers: dict[Any, Dual]) -> np.ndarray:
    """Return the gradient of the sum of what is returned."""
    if slope is None:
        return np.zeros(next(d.slope for d in numbers.values() if d.slope is not None).shape[-1])
    return _match_size(slope, size).sum(axis=0)


def _compare(outcome: Outcome, quantity: str, mine: np.ndarray, size: np.ndarray, real: np.ndarray) -> None:
    """Compare two arrays up to rounding errors relative to `size`."""
    if mine.shape != real.shape:
        raise Refused(f"axes are not followed: {mine.size} numbers in the trace, {real.size} in the code")
    sound = np.isfinite(mine) & np.isfinite(real) & np.isfinite(size)
    differs = np.abs(mine - real)[sound] > AGREE * (1 + size[sound] + np.abs(real[sound]))
    outcome.points += int(sound.sum())
    if differs.any() and not outcome.failed:
        at = int(np.argmax(differs))
        outcome.failed = f"{quantity}: {mine[sound][at]:.6g} in the trace, {real[sound][at]:.6g} in the code"


def _is_met(e: Any, numbers: dict[Any, Dual]) -> bool:
    """Is a value exactly on the bound, where the slope is a convention?"""
    first, *others = (evaluate(a, numbers).value for a in e.args)
    return any(bool(np.any(first == bound)) for bound in others or [np.zeros(1)])


def _find_sides(e: Any, numbers: dict[Any, Dual]) -> set[bool]:
    """Return the sides of its bounds that the values are on: both are wanted."""
    first, *others = (evaluate(a, numbers).value for a in e.args)
    others = others or [np.zeros(1)]
    inside = np.ones(np.broadcast_shapes(first.shape, *(o.shape for o in others)), dtype=bool)
    if isinstance(e, clip):
        inside &= (first >= others[0]) & (first <= others[1])
    else:
        for bound in others:
            inside &= first > bound
    return set(np.unique(inside).tolist())
