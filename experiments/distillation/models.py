"""Many small autoregressive policies at once: draws, gradient estimates and the exact sequence KL of each.

A policy q_m(a|row), m = 1..models, is a softmax over the tokens and stop (the last symbol); its row is the
last `student_memory` tokens.  Its reference p_m(a|state) sees the last `memory` tokens, which may be more:
such a reference is out of the policy's reach.  Arrays have the models last, (rows or states, symbols,
models), so that every sum over symbols runs along contiguous memory.  At step max_length stop is forced, as
in klsym.study.sequences.autoregressive, which is the oracle for what is computed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np

from klsym.experiments.softmax import centred, is_count, refuse_unless, score_sum, slope


# ---------------------------------------------------------------------------- the space of sequences
@dataclass(frozen=True)
class Space:
    """Sequences, the states that the reference sees and the rows that the policy sees.

    >>> space = Space(vocabulary=2, memory=1, student_memory=0, max_length=5)
    >>> space.successors.tolist(), space.rows.tolist(), space.symbols
    ([[1, 2], [1, 2], [1, 2]], [0, 0, 0], 3)

    vocabulary: tokens, 1 or more.  memory: tokens that the reference sees, 0 or more.
    student_memory: tokens that the policy sees, 0 to memory.  max_length: steps with the stop, 2 or more.
    States are numbered as in klsym.study.sequences.autoregressive.  Raises UsageError: numbers out of range.
    """

    vocabulary: int
    memory: int
    student_memory: int
    max_length: int

    def __post_init__(self) -> None:
        counts = (self.vocabulary, 1), (self.memory, 0), (self.student_memory, 0), (self.max_length, 2)
        fine = all(is_count(value, least) for value, least in counts)
        refuse_unless(fine, f"{self}: whole numbers of at least 1, 0, 0, 2 expected")
        refuse_unless(self.student_memory <= self.memory, f"{self}: the policy may not see more than memory")

    @cached_property
    def _prefixes(self) -> list[tuple[int, ...]]:
        """What each state remembers, in the order of the states."""
        return [p for k in range(self.memory + 1) for p in product(range(self.vocabulary), repeat=k)]

    def _last(self, prefix: tuple[int, ...], memory: int) -> int:
        """The number of the state that holds the last `memory` tokens of a prefix."""
        kept = prefix[max(len(prefix) - memory, 0) :]
        number = 0
        for token in kept:
            number = number * self.vocabulary + token
        return sum(self.vocabulary**k for k in range(len(kept))) + number

    @cached_property
    def successors(self) -> Any:
        """The state after each token, shape (states, vocabulary)."""
        tokens = range(self.vocabulary)
        return np.array([[self._last((*p, a), self.memory) for a in tokens] for p in self._prefixes])

    @cached_property
    def rows(self) -> Any:
        """The policy's row in each state, shape (states,)."""
        return np.array([self._last(p, self.student_memory) for p in self._prefixes])

    @property
    def symbols(self) -> int:
        """Tokens and stop."""
        return self.vocabulary + 1

    @property
    def states(self) -> int:
        """How many states the reference tells apart."""
        return len(self._prefixes)

    @cached_property
    def _by_successor(self) -> tuple[Any, Any, Any]:
        return _groups(self.successors.ravel())

    @cached_property
    def _by_row(self) -> tuple[Any, Any, Any]:
        return _groups(self.rows)

    def forward(self, occupation: Any, q: Any) -> Any:
        """d'(s') = sum_{s, a: s' follows s, a} d(s) q(a|s), shapes (states, models)."""
        order, begins, reached = self._by_successor
        flow = (occupation[:, None] * q[:, :-1]).reshape(-1, occupation.shape[-1])
        after = np.zeros_like(occupation)
        after[reached] = np.add.reduceat(flow[order], begins, axis=0)
        return after

    def add_states(self, field: Any) -> Any:
        """Add up over the states that share a row: (states, symbols, models) to (rows, symbols, models)."""
        order, begins, _ = self._by_row
        return field if len(begins) == len(order) else np.add.reduceat(field[order], begins, axis=0)


def _groups(labels: Any) -> tuple[Any, Any, Any]:
    """An order that sorts the labels, where each label begins in it, and the labels."""
    order = np.argsort(labels, kind="stable")
    found, begins = np.unique(labels[order], return_index=True)
    return order, begins, found


def _check(space: Space, log_q: Any, log_p: Any) -> None:
    rows = int(space.rows.max()) + 1
    wanted = [(rows, space.symbols), (space.states, space.symbols)]
    fits = [log_q.shape[:2], log_p.shape[:2]] == wanted and log_q.shape[2:] == log_p.shape[2:]
    refuse_unless(fits, f"shapes {log_q.shape}, {log_p.shape}: {wanted} and as many models expected")


# ---------------------------------------------------------------------------- exactly, by dynamic programming
def occupations(space: Space, q: Any) -> Any:
    """d_t(s), the probability that step t is drawn and in state s, t = 1..max_length-1.

    q: q(a|state), shape (states, symbols, models).  Returns shape (max_length - 1, states, models).
    """
    found = np.zeros((space.max_length - 1, space.states, q.shape[-1]))
    found[0, 0] = 1
    for t in range(1, len(found)):
        found[t] = space.forward(found[t - 1], q)
    return found


def expected_sum(space: Space, log_q: Any, payoff: Any, gradient: bool = True) -> tuple[Any, Any]:
    """E_q[sum_t f(state_t, y_t)] and E_q[sum_t f(state_t, y_t) sum_t s_t], f held fixed.

    V_t(s) = sum_a q(a|s) (f(s, a) + V_{t+1}(next))
    field[s, a] = sum_t d_t(s) q(a|s) (f(s, a) + V_{t+1}(next) - V_t(s)), added up into rows

    With f = log(q/p) the value is KL(q||p) and the field its gradient.

    log_q: shape (rows, symbols, models).  payoff: f, shape (states, symbols, models or 1).
    Returns shapes (models,) and (rows, symbols, models), the latter zero where gradient is False.
    Source: Sutton et al. 2000, Policy gradient methods, theorem 1.
    """
    q = np.exp(log_q)[space.rows]
    mean = (q * payoff).sum(axis=1)
    values = np.zeros((space.max_length, *mean.shape))  # V_1 .. V_{max_length} = 0
    for t in range(space.max_length - 2, -1, -1):
        values[t] = mean + (q[:, :-1] * values[t + 1][space.successors]).sum(axis=1)
    if not gradient:
        return values[0, 0], np.zeros_like(log_q)
    visits = occupations(space, q)
    total = visits.sum(axis=0)
    field = total[:, None] * payoff - (visits * values[:-1]).sum(axis=0)[:, None]
    for d, after in zip(visits, values[1:], strict=True):
        field[:, :-1] += d[:, None] * after[space.successors]
    return values[0, 0], space.add_states(q * field)


def exact(space: Space, log_q: Any, log_p: Any) -> tuple[Any, Any]:
    """KL(q||p) over sequences and its gradient in the policy's logits, for every model.

    >>> from klsym.experiments.softmax import log_softmax
    >>> space = Space(2, 1, 1, 6)
    >>> z = np.random.default_rng(0).normal(size=(2, 3, 3, 4))
    >>> kl, gradient = exact(space, log_softmax(z[0], 1), log_softmax(z[1], 1))
    >>> kl.shape, gradient.shape, bool((kl > 0).all())
    ((4,), (3, 3, 4), True)

    log_q: shape (rows, symbols, models).  log_p: shape (states, symbols, models).
    Raises UsageError: shapes that do not fit.
    """
    _check(space, log_q, log_p)
    return expected_sum(space, log_q, log_q[space.rows] - log_p)


def token_field(space: Space, log_q: Any, log_p: Any, loss: str) -> Any:
    """E_q[sum_t grad loss(l_t)], the token-level field with prefixes held fixed, for every model.

    k2 = l^2/2             field[s, a] = d(s) q(a|s) (l(s, a) - KL_s), added up into rows
    k3 = l + exp(-l) - 1   field[s, a] = d(s) (q(a|s) - p(a|s))

    loss: "k2" or "k3".  Returns shape (rows, symbols, models).
    Raises UsageError: another loss, shapes that do not fit.  Source: Tang & Munos 2025, section 4.1.
    """
    refuse_unless(loss in ("k2", "k3"), f"token_field: loss {loss!r}: 'k2' or 'k3' expected")
    _check(space, log_q, log_p)
    q = np.exp(log_q)[space.rows]
    visits = occupations(space, q).sum(axis=0)[:, None]
    if loss == "k3":
        return space.add_states(visits * (q - np.exp(log_p)))
    ratio = log_q[space.rows] - log_p
    return space.add_states(visits * q * (ratio - (q * ratio).sum(axis=1, keepdims=True)))


def sequence_kl(space: Space, log_q: Any, log_p: Any) -> Any:
    """KL(q||p) over sequences for every model, shape (models,), nats.  Errors as in exact."""
    _check(space, log_q, log_p)
    return expected_sum(space, log_q, log_q[space.rows] - log_p, gradient=False)[0]


# ---------------------------------------------------------------------------- draws
@dataclass(frozen=True, eq=False)
class Draws:
    """Every symbol drawn for every model, flat, step after step.

    sequence: which sequence, i * models + m for the i-th of model m.  in_q, in_p: the flat index of
    (row, symbol, m) and (state, symbol, m).  ends: where each step ends in these arrays.
    """

    n: int
    models: int
    sequence: Any
    in_q: Any
    in_p: Any
    ends: tuple[int, ...]

    def totals(self, values: Any) -> Any:
        """The sum over each sequence, shape (n, models)."""
        flat = np.bincount(self.sequence, values, minlength=self.n * self.models)
        return flat.reshape(self.n, self.models)


def draw(space: Space, probabilities: Any, uniforms: Any) -> Draws:
    """n sequences from every model: y_t is the number of a with q(0|row) + ... + q(a|row) <= u.

    >>> space = Space(2, 0, 0, 4)
    >>> found = draw(space, np.full((1, 3, 5), 1 / 3), np.random.default_rng(0).random((3, 4, 5)))
    >>> found.totals(np.ones(len(found.sequence))).shape
    (4, 5)

    probabilities: q(a|row), shape (rows, symbols, models).
    uniforms: on [0, 1), shape (max_length - 1, n, width) with models a multiple of width; model m uses
    column m % width, so that models of one column are compared under common random numbers.
    Raises UsageError: shapes that do not fit.
    """
    models, (steps, n, width) = probabilities.shape[-1], uniforms.shape
    fits = steps == space.max_length - 1 and models % width == 0
    refuse_unless(fits, f"uniforms {uniforms.shape} for {models} models and {space.max_length} steps")
    below = np.cumsum(probabilities[:, :-1], axis=1).ravel()
    sequence = np.arange(n * models)
    model, state = sequence % models, np.zeros(n * models, dtype=np.intp)
    rows, successors = space.rows, space.successors
    column = sequence // models * width + model % width
    kept: list[tuple[Any, Any, Any]] = []
    for u in uniforms.reshape(steps, -1):
        place, level = rows[state] * (space.vocabulary * models) + model, u[column]
        symbol = (level >= below[place]).astype(np.intp)
        for _ in range(space.vocabulary - 1):
            place += models
            symbol += level >= below[place]
        for_q, for_p = ((r * space.symbols + symbol) * models + model for r in (rows[state], state))
        kept.append((sequence, for_q, for_p))
        on = np.flatnonzero(symbol < space.vocabulary)
        sequence, model, column = sequence[on], model[on], column[on]
        state = successors[state[on], symbol[on]]
        if not len(on):
            break
    drawn, in_q, in_p = (np.concatenate(part) for part in zip(*kept, strict=True))
    ends = np.cumsum([0, *(len(part) for part, _, _ in kept)])
    return Draws(n, models, drawn, in_q, in_p, tuple(int(end) for end in ends))


# ---------------------------------------------------------------------------- estimates of the gradient
def _sequence_vanilla(draws: Draws, ratio: Any) -> Any:
    return draws.totals(ratio).ravel()[draws.sequence]


def _leave_one_out(draws: Draws, ratio: Any) -> Any:
    return centred(draws.totals(ratio)).ravel()[draws.sequence]


def _cumulative(draws: Draws, ratio: Any) -> Any:
    to_go, found = draws.totals(ratio).ravel(), np.empty_like(ratio)
    for begin, end in pairwise(draws.ends):  # each sequence is drawn at most once a step
        who = draws.sequence[begin:end]
        found[begin:end] = to_go[who]
        to_go[who] -= ratio[begin:end]
    return found


# What multiplies the score of the token drawn at step t, from l_t = log(q/p) of every token.
ESTIMATORS: dict[str, Callable[[Draws, Any], Any]] = {
    "token k3": lambda draws, ratio: slope("k3", ratio),  # 1 - exp(-l_t), the gradient of k3(l_t)
    "token vanilla": lambda draws, ratio: slope("k2", ratio),  # l_t
    "sequence vanilla": _sequence_vanilla,  # sum_s l_s
    "leave-one-out": _leave_one_out,  # sum_s l_s less the mean of the other sequences
    "cumulative": _cumulative,  # sum_{s >= t} l_s
}


def estimate(space: Space, log_q: Any, log_p: Any, estimator: str, uniforms: Any) -> Any:
    """One estimate of the gradient of KL(q||p) for every model, from n sequences of each.

    >>> from klsym.experiments.softmax import log_softmax
    >>> space = Space(2, 1, 1, 6)
    >>> z = np.random.default_rng(0).normal(size=(2, 3, 3, 7))
    >>> u = np.random.default_rng(1).random((5, 4, 7))
    >>> estimate(space, log_softmax(z[0], 1), log_softmax(z[1], 1), "cumulative", u).shape
    (3, 3, 7)

    log_q, log_p: as in exact.  estimator: a key of ESTIMATORS.  uniforms: as in draw.
    Returns shape (rows, symbols, models).
    Raises UsageError: another estimator, leave-one-out with one sequence, shapes that do not fit.
    Source: Tang & Munos 2025, sections 3 and 4.
    """
    known = ", ".join(ESTIMATORS)
    refuse_unless(estimator in ESTIMATORS, f"estimator {estimator!r}: one of {known} expected")
    _check(space, log_q, log_p)
    q = np.exp(log_q)
    draws = draw(space, q, uniforms)
    ratio = log_q.ravel()[draws.in_q] - log_p.ravel()[draws.in_p]
    return score_sum(draws.in_q, ESTIMATORS[estimator](draws, ratio) / draws.n, q, axis=1)
