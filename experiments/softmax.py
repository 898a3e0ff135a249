"""Softmax policies: what every simulator here is made of, and what its functions refuse.

Probabilities are held as logarithms.  An estimator k_i is a function of k1 = log(q/p), as a penalty in the
reward; used as a loss it pulls at a sample with its slope, grad k_i = k_i'(k1) s:

    k1 = k1                k1' = 1
    k2 = k1^2/2            k2' = k1
    k3 = r - 1 - log r     k3' = 1 - r,  r = exp(-k1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from klsym.errors import UsageError

Array = np.ndarray[Any, np.dtype[np.float64]]
Counted = Callable[[int, int], Any] | None  # called with (work done, work in all)

PENALTIES = ("k1", "k2", "k3")
EXPONENT = 700.0  # exp beyond it overflows; r is cut there
FEW_ARMS = 16  # for as many, counting is faster than bisection
GRID = 2.0**20  # steps a nat to which the logits of a run are rounded


def log_softmax(logits: Any, axis: int = -1) -> Array:
    """log q = z - log sum exp z along an axis.

    >>> [float(x) for x in np.exp(log_softmax([0.0, np.log(3.0)])).round(6)]
    [0.25, 0.75]

    Raises UsageError: nan or inf.
    """
    logits = np.asarray(logits, float)
    refuse_unless(bool(np.isfinite(logits).all()), "logits: finite numbers expected")
    shifted = logits - logits.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def kl(log_a: Array, log_b: Array, axis: int = -1) -> Array:
    """KL(a||b) = sum a (log a - log b) along an axis, in nats.

    >>> float(kl(np.log([0.5, 0.5]), np.log([0.25, 0.75])).round(6))
    0.143841
    """
    return np.asarray((np.exp(log_a) * (log_a - log_b)).sum(axis))


def penalty(name: str, k1: Any) -> Any:
    """The estimator as a function of k1 = log(q/p).

    >>> [round(float(penalty(name, -1.0)), 3) for name in PENALTIES]
    [-1.0, 0.5, 0.718]

    Raises UsageError: another name.
    """
    check_penalty(name)
    k1 = np.asarray(k1, dtype=float)
    return {"k1": lambda: k1, "k2": lambda: k1**2 / 2, "k3": lambda: np.expm1(-k1) + k1}[name]()


def slope(name: str, k1: Any) -> Any:
    """Its derivative in k1: 1, k1 and 1 - exp(-k1).

    >>> slope("k3", np.log([0.5, 2.0])).round(6).tolist()
    [-1.0, 0.5]

    Raises UsageError: another name.
    """
    check_penalty(name)
    k1 = np.asarray(k1, dtype=float)
    if name == "k3":
        return -np.expm1(np.minimum(-k1, EXPONENT))
    return k1 if name == "k2" else np.ones_like(k1)


def centred(values: Any, axis: int = 0) -> Any:
    """x_i minus the mean of the others, along the axis of the samples: n/(n-1) (x_i - mean).

    >>> centred(np.array([1.0, 2.0, 6.0])).tolist()
    [-3.0, -1.5, 4.5]

    Raises UsageError: n below 2.
    """
    n = values.shape[axis]
    refuse_unless(n >= 2, f"leave-one-out: n = {n}: 2 or more expected")
    return (values - values.mean(axis, keepdims=True)) * (n / (n - 1))


def snap(logits: Any) -> Any:
    """Logits as multiples of 2^-20, so that the last bits of exp and log, which differ between machines,
    do not grow into another run.

    >>> snap(np.array([0.3, 1.0])).tolist()
    [0.3000001907348633, 1.0]
    """
    rounded = np.asarray(logits * GRID)
    np.rint(rounded, out=rounded)
    rounded *= 1 / GRID
    return rounded


def walk(logits: Any, update: Callable[[Any], Any], times: Iterable[int]) -> Iterator[Any]:
    """The logits at each of some increasing times, in updates.

    >>> list(walk(1.0, lambda z: 2 * z, [0, 2, 3]))
    [1.0, 4.0, 8.0]
    """
    done = 0
    for time in times:
        for _ in range(time - done):
            logits = update(logits)
        done = time
        yield logits


# ---------------------------------------------------------------------------- samples
def inverse_cdf(weights: Array, uniforms: Array) -> tuple[Any, Array]:
    """Samples from the columns of unnormalised weights, as indices into the raveled weights; and the totals.

    The arm of u is the number of partial sums up to u times the total: counted one after the other where they
    are few, else found by bisection for all at once.

    weights: shape (arms, columns), positive somewhere.  uniforms: on [0, 1), shape (n, columns).
    """
    arms, columns = weights.shape
    if arms <= FEW_ARMS:
        return _count_sums(weights, uniforms)
    steps = [2**k for k in reversed(range(arms.bit_length()))]
    sums = np.full((2 * steps[0], columns), np.inf)
    sums[0] = weights[0]
    for below, more, here in zip(sums, weights[1:], sums[1:], strict=False):
        np.add(below, more, out=here)  # np.cumsum along a column takes three times as long
    totals = sums[arms - 1].copy()
    sums[arms - 1] = np.inf  # u times the total may round up to the total
    wanted = uniforms * totals
    at = np.tile(np.arange(columns), (len(uniforms), 1))
    for step in steps:
        at += (sums.take(at + (step - 1) * columns) <= wanted) * (step * columns)
    return at, totals


def _count_sums(weights: Array, uniforms: Array) -> tuple[Any, Array]:
    arms, columns = weights.shape
    sums = [weights[0]]
    for more in weights[1:]:
        sums.append(sums[-1] + more)
    wanted, counts = uniforms * sums[-1], np.zeros(uniforms.shape, dtype=np.uint8)
    for below in sums[: arms - 1]:  # u times the total may round up to the total
        counts += below <= wanted
    return counts.astype(np.intp) * columns + np.arange(columns), sums[-1]


def score_sum(at: Any, coefficients: Any, q: Any, axis: int = 0) -> Any:
    """sum_i c_i (e_i - q) in the logits, e_i the outcome drawn: Williams 1992.

    >>> score_sum(np.array([0, 0, 1]), np.array([1.0, 1.0, 4.0]), np.array([0.5, 0.5])).tolist()
    [-1.0, 1.0]

    at: the outcomes drawn, as indices into the raveled probabilities q, which sum to one along the axis.
    """
    drawn = np.bincount(at.ravel(), coefficients.ravel(), minlength=q.size).reshape(q.shape)
    drawn -= q * drawn.sum(axis, keepdims=True)
    return drawn


# ---------------------------------------------------------------------------- refusals
def refuse_unless(condition: bool, reason: str) -> None:
    """UsageError with the reason, unless the condition holds."""
    if not condition:
        raise UsageError(reason)


def check_penalty(name: str) -> None:
    """UsageError unless the name is one of PENALTIES."""
    refuse_unless(name in PENALTIES, f"penalty {name!r}: one of {', '.join(PENALTIES)} expected")


def is_count(value: Any, least: int) -> bool:
    """A whole number, `least` or more."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def is_number(value: Any) -> bool:
    """A finite real number."""
    known = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return known and bool(np.isfinite(value))


def at_least(name: str, number: Any, least: int) -> int:
    """The number, or a UsageError: it is no integer, or it is too small."""
    refuse_unless(is_count(number, least), f"{name} = {number!r}: give an integer of at least {least}")
    return int(number)


def positive(name: str, number: Any) -> float:
    """The number, or a UsageError: it is not finite and positive."""
    fine = is_number(number) and number > 0
    refuse_unless(fine, f"{name} = {number!r}: give a finite positive number, above 0")
    return float(number)


def positive_numbers(name: str, numbers: Any) -> Array:
    """The numbers, one or more, or a UsageError: one of them is not finite and positive."""
    found = np.asarray(numbers, dtype=float)
    fine = found.ndim == 1 and len(found) > 0 and bool((np.isfinite(found) & (found > 0)).all())
    refuse_unless(fine, f"{name} {numbers!r}: positive numbers expected")
    return found


def check_runs(seed: Any, repeats: Any, least: int = 2) -> None:
    """UsageError unless seed is 0 or more, and repeats `least` or more."""
    fine = is_count(seed, 0) and is_count(repeats, least)
    reason = f"seed {seed!r}, repeats {repeats!r}: whole numbers, at least 0 and {least}, expected"
    refuse_unless(fine, reason)


def sample_sizes(ns: Sequence[int], least: int) -> tuple[int, ...]:
    """Increasing sample sizes, or a UsageError."""
    sizes = tuple(at_least("n", n, least) for n in ns)
    rising = bool(sizes) and list(sizes) == sorted(set(sizes))
    refuse_unless(rising, f"sample sizes {ns!r}: give one or more, in increasing order")
    return sizes
