"""Descending the estimates: theta <- theta + step (l - beta g), for many repeats and all estimates at once.

    l = 1/n sum (R_i - mean of the other R) s_i      g = 1/n sum c_i s_i      s(y) = e_y - q

with the coefficients c of `bandits.score_coefficient`.  The four estimates of a repeat share the
uniform numbers that their samples come from (common random numbers), so they differ by what they do
with a sample and not by luck.  `flow` replaces a sampled update by its mean.

Logits are rounded after each sampled update (`snap`): the k1 loss pulls nothing back, so that the last bits
of exp, which differ between machines, would grow into other runs.

Bandits run in blocks whose arrays stay in the cache of a processor, each with its own part of one stream of
uniform numbers: a run is the same whatever the blocks are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.experiments.softmax import (
    Array,
    at_least,
    centred,
    inverse_cdf,
    kl,
    log_softmax,
    positive,
    score_sum,
    snap,
    walk,
)
from klsym.experiments.summaries import show, shows
from klsym.experiments.tang_munos.bandits import (
    GRADIENTS,
    Bandits,
    draw_bandits,
    kl_gradient,
    optimum,
    reversed_optimum,
    score_coefficient,
)

Times = np.ndarray[Any, np.dtype[np.int64]]
Tick = Callable[[int], Any] | None
STARTS = ("reference", "policy")
FLOWS = ("none", "forward", "reverse")  # the penalty whose exact gradient the mean update follows
CURVE, EVENLY = 60, 100  # times at which divergences are recorded: evenly in log t, and in t
KEPT = 24  # runs that stay in memory
BLOCK = 200  # bandits that run at once


@dataclass(frozen=True)
class Problem:
    """What is descended: the set-up of one optimisation experiment; every field is a choice that can vary.

    >>> Problem(repeats=3, arms=5, iterations=10).times().tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

    seed, repeats, arms: of the bandits.  beta: weight of the penalty.  step: learning rate.
    iterations: number of updates.  start: "reference" (q = p) or "policy" (logits eps1 + eps2).
    rewarded: with the reward term, or the penalty alone.
    Raises UsageError: a number out of range, an unknown start.
    """

    seed: int = 0
    repeats: int = 100
    arms: int = 100
    beta: float = 1.0
    step: float = 1.0
    iterations: int = 4000
    start: str = "reference"
    rewarded: bool = True

    def __post_init__(self) -> None:
        at_least("arms", self.arms, 2), at_least("repeats", self.repeats, 1), at_least("seed", self.seed, 0)
        at_least("iterations", self.iterations, 4)
        positive("beta", self.beta), positive("step", self.step)
        if self.start not in STARTS:
            raise UsageError(f"start = {self.start!r}: one of {', '.join(STARTS)}")

    def times(self) -> Times:
        """The iterations at which divergences are recorded."""
        log_spaced = np.geomspace(1, self.iterations, CURVE).round()
        evenly = np.linspace(0, self.iterations, EVENLY + 1).round()
        return np.unique(np.concatenate([log_spaced, evenly])).astype(np.int64)

    @property
    def updates(self) -> int:
        """How many updates one estimate takes, over all bandits."""
        return self.repeats * self.iterations

    def describe(self, ns: Sequence[int]) -> str:
        """The set-up in one line."""
        reward = f"beta = {show(self.beta)}, " if self.rewarded else "no reward, "
        return (
            f"{self.repeats} bandits of {self.arms} arms (seed {self.seed}), n = {shows(ns)}, {reward}"
            f"step {show(self.step)}, {self.iterations} iterations, start at the {self.start}"
        )

    def bandits(self) -> Bandits:
        """The bandits; without the reward term their rewards are zero."""
        drawn = draw_bandits(self.seed, self.repeats, self.arms)
        return drawn if self.rewarded else Bandits(drawn.log_p, drawn.log_q, np.zeros_like(drawn.rewards))

    def targets(self, bandits: Bandits) -> dict[str, Array]:
        """log of pi* and pi*_rev; without rewards both are the reference."""
        if not self.rewarded:
            return {"optimum": bandits.log_p}
        return {
            "optimum": optimum(bandits.log_p, bandits.rewards, self.beta),
            "reversed": reversed_optimum(bandits.log_p, bandits.rewards, self.beta),
        }


@dataclass(frozen=True, eq=False)
class Course:
    """How runs went.

    times: shape (K,), the iterations looked at.
    divergence: target -> KL(q||target) in nats, shape (curves, K, repeats); the curves are those of
    GRADIENTS for sampled updates, of FLOWS for exact ones.
    last: log q at the end, shape (curves, repeats, arms).
    """

    times: Times
    divergence: dict[str, Array]
    last: Array


# ---------------------------------------------------------------------------- sampled updates
def sampled(problem: Problem, n: int, tick: Tick = None) -> Course:
    """The course of the four estimates at n samples an update; kept in memory for the next caller.

    >>> sampled(Problem(repeats=2, arms=3, iterations=4), n=2).divergence["optimum"].shape
    (4, 5, 2)

    tick: called with the number of further updates of a bandit done, now and then.
    Raises UsageError: n < 2 (the control variate needs another sample).
    """
    return _kept((problem, at_least("n", n, 2)), lambda: _sampled(problem, n, tick), tick)


def _sampled(problem: Problem, n: int, tick: Tick) -> Course:
    return _in_blocks(problem, lambda bandits, first: _sampled_block(problem, n, bandits, first, tick))


def _sampled_block(problem: Problem, n: int, bandits: Bandits, first: int, tick: Tick) -> Course:
    """One column for each estimate of each bandit."""
    start = bandits.start(problem.start)
    logits, log_p, rewards = (_columns(x.T) for x in (start, bandits.log_p, bandits.rewards))
    bits = np.random.PCG64([problem.seed, 1, n]).advance(first * n)  # a step of the stream for each number
    rng, others = np.random.Generator(bits), problem.repeats - len(start)
    weights = np.empty_like(logits)

    def update(logits: Array) -> Array:
        top = logits.max(0)
        np.exp(np.subtract(logits, top, out=weights), out=weights)
        at, totals = inverse_cdf(weights, _columns(rng.random((len(start), n)).T))
        bits.advance(others * n)
        k1 = logits.take(at) - (top + np.log(totals)) - log_p.take(at)
        c = _coefficients(k1, rewards.take(at), problem.beta) * (problem.step / n)
        np.divide(weights, totals, out=weights)
        moved = score_sum(at, c, weights)
        moved += logits
        return np.asarray(snap(moved))

    def curves(logits: Array) -> Array:
        return np.moveaxis(logits.reshape(len(logits), -1, len(start)), 0, -1)

    return _course(problem, bandits, (curves(z) for z in walk(logits, update, problem.times())), tick)


def _coefficients(k1: Array, rewards: Array, beta: float) -> Array:
    """R_i - mean of the other R - beta c_i at the samples, shape (n, estimates * bandits)."""
    n = len(k1)
    c = centred(rewards)
    blocks = (n, len(GRADIENTS), -1)
    mine, theirs = c.reshape(blocks), k1.reshape(blocks)
    for i, name in enumerate(GRADIENTS):
        mean_k1 = theirs[:, i].mean(0) if name == "leave-one-out" else 0.0
        mine[:, i] -= beta * score_coefficient(name, theirs[:, i], mean_k1, n)
    return np.asarray(c)


def _columns(values: Array) -> Array:
    """The same columns once for each estimate, one block beside the other."""
    return np.tile(values, len(GRADIENTS))


# ---------------------------------------------------------------------------- exact updates
def flow(problem: Problem, tick: Tick = None) -> Course:
    """The course when each update is its mean, q (R - E_q R) - beta times the gradient of the penalty.

    The penalty is none (what the k1 loss has on average), KL(p||q) with gradient q - p ("forward", the k3
    loss), or KL(q||p) ("reverse", the other two, and the analytic gradient of Tang & Munos).
    """
    return _kept((problem, 0), lambda: _flow(problem, tick), tick)


def _flow(problem: Problem, tick: Tick) -> Course:
    return _in_blocks(problem, lambda bandits, first: _flow_block(problem, bandits, tick))


def _flow_block(problem: Problem, bandits: Bandits, tick: Tick) -> Course:
    logits = np.stack([bandits.start(problem.start)] * len(FLOWS))
    moving = slice(0 if problem.rewarded else 1, None)  # without reward and penalty nothing moves
    p, penalties = np.exp(bandits.log_p), np.zeros_like(logits)

    def update(logits: Array) -> Array:
        log_q = log_softmax(logits[moving])
        q = np.exp(log_q)
        penalties[1] = q[-2] - p
        penalties[2] = kl_gradient(log_q[-1], bandits.log_p)
        push = -problem.beta * penalties[moving]
        if problem.rewarded:
            push += q * (bandits.rewards - (q * bandits.rewards).sum(-1, keepdims=True))
        logits[moving] += problem.step * push
        return logits

    return _course(problem, bandits, walk(logits, update, problem.times()), tick)


# ---------------------------------------------------------------------------- keeping books
def _course(problem: Problem, bandits: Bandits, path: Iterable[Array], tick: Tick) -> Course:
    """Divergences from the targets along logits of shape (curves, bandits, arms), at the problem's times."""
    times, targets = problem.times(), problem.targets(bandits)
    found: dict[str, list[Array]] = {name: [] for name in targets}
    log_q = np.empty((0, 0))
    for updates, logits in zip(np.diff(times, prepend=0), path, strict=True):
        log_q = log_softmax(logits)
        for name, target in targets.items():
            found[name].append(kl(log_q, target))
        if tick is not None:
            tick(int(updates) * log_q.shape[1])
    return Course(times, {name: np.stack(rows, axis=1) for name, rows in found.items()}, log_q)


def _in_blocks(problem: Problem, run: Callable[[Bandits, int], Course]) -> Course:
    """The courses of blocks of bandits, one beside the other; read-only, shared by all who ask."""
    bandits = problem.bandits()
    # The C library hands freed memory back above a threshold, which it raises to the largest block freed so
    # far: after this one, not touched, the arrays of an update cost no page faults.
    np.empty(2**21)
    firsts = range(0, problem.repeats, BLOCK)
    parts = [run(bandits.part(slice(first, first + BLOCK)), first) for first in firsts]
    curves = {
        name: np.concatenate([part.divergence[name] for part in parts], axis=-1)
        for name in parts[0].divergence
    }
    last = np.concatenate([part.last for part in parts], axis=1)
    for array in (*curves.values(), last):
        array.setflags(write=False)
    return Course(parts[0].times, curves, last)


_COURSES: OrderedDict[tuple[Problem, int], Course] = OrderedDict()


def _kept(key: tuple[Problem, int], run: Callable[[], Course], tick: Tick) -> Course:
    """The course, computed once; the oldest of more than KEPT is forgotten."""
    if key in _COURSES:
        _COURSES.move_to_end(key)
        if tick is not None:
            tick(key[0].updates)
    else:
        _COURSES[key] = run()
        while len(_COURSES) > KEPT:
            _COURSES.popitem(last=False)
    return _COURSES[key]
