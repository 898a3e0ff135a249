"""Autoregressive models with finite memory and a stop token: the exact oracle for sequences.

Steps t = 1, 2, ... draw symbols y_t from q(.|state), a softmax over the tokens and stop (the last
column), where the state is the last `memory` tokens, or all of them while there are fewer:

    q(y_1..y_T) = prod_t q(y_t | state_t)        y_T = stop, T <= max_length random

At step max_length stop is forced: it has probability one, score zero and l = log(q/p) = 0.  T counts
the stop, so a sequence holds at most max_length - 1 tokens.  The parameters theta are all logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from klsym.errors import UsageError

PADDING = -1  # what follows the stop of a sequence
LARGEST_LOGIT = 1e300  # differences of logits must not overflow
LARGEST_ENUMERATION = 1_000_000  # sequences


def _refuse_unless(condition: bool, reason: str) -> None:
    if not condition:
        raise UsageError(f"autoregressive: {reason}")


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


# ---------------------------------------------------------------------------- the model
@dataclass(frozen=True, eq=False)
class Autoregressive:
    """A tabular softmax model of sequences, whose state is the last `memory` tokens.

    q(a|s) = exp(logits[s, a]) / sum_b exp(logits[s, b]), and stop alone at step max_length.

    >>> model = Autoregressive([[0, 0, 0], [0, 0, 0], [0, 0, 0]], memory=1, max_length=4)
    >>> model.vocabulary, model.states, model.stop
    (2, 3, 2)
    >>> model.successors.tolist()
    [[1, 2], [1, 2], [1, 2]]

    logits: shape (states, vocabulary + 1), nats; -inf excludes a symbol; the last column is stop.
    States are numbered by length, then as digits: start, the 1-token states, ..., the `memory`-token
    states, so there are 1 + vocabulary + ... + vocabulary^memory of them.
    memory: tokens, 0 or more.  max_length: steps, with the stop, 1 or more.
    Raises UsageError: nan, +inf, a state without a symbol, wrong shape, memory or max_length.
    """

    logits: Any
    memory: int
    max_length: int

    def __post_init__(self) -> None:
        try:
            z = np.array(self.logits, dtype=float)
        except (TypeError, ValueError):
            raise UsageError("autoregressive: logits: an array of numbers expected") from None
        _refuse_unless(_is_count(self.memory, 0), f"memory {self.memory!r}: 0 or more expected")
        _refuse_unless(_is_count(self.max_length, 1), f"max_length {self.max_length!r}: 1 or more expected")
        wide = z.ndim == 2 and z.shape[1] >= 2
        _refuse_unless(wide, f"logits: shape (states, vocabulary + 1) expected, got {z.shape}")
        _refuse_unless(not np.isnan(z).any(), "logits hold nan")
        largest = np.abs(z[z != -np.inf]).max(initial=0.0)
        _refuse_unless(largest <= LARGEST_LOGIT, f"logits: {largest:g} in absolute value is too large")
        _refuse_unless(bool(np.isfinite(z).any(axis=1).all()), "logits: a state excludes every symbol")
        z.flags.writeable = False
        object.__setattr__(self, "logits", z)
        fits = self.memory < len(z) and sum(self._levels) == len(z)
        hint = f"1 + ... + {self.vocabulary}^{self.memory} states expected"
        _refuse_unless(fits, f"logits: {hint}, got {len(z)} rows")

    @property
    def vocabulary(self) -> int:
        """The number of tokens, without stop."""
        return self.logits.shape[1] - 1

    @property
    def stop(self) -> int:
        """The symbol, and the column of the logits, that ends a sequence."""
        return self.vocabulary

    @property
    def states(self) -> int:
        """The number of states, the start included."""
        return len(self.logits)

    @property
    def _levels(self) -> list[int]:
        """How many states hold 0, 1, ..., memory tokens."""
        return [self.vocabulary**length for length in range(self.memory + 1)]

    @cached_property
    def log_probabilities(self) -> Any:
        """log q(a|s) = z - log sum exp z, shape (states, vocabulary + 1)."""
        shifted = self.logits - self.logits.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    @cached_property
    def probabilities(self) -> Any:
        """q(a|s), shape (states, vocabulary + 1)."""
        return np.exp(self.log_probabilities)

    @cached_property
    def successors(self) -> Any:
        """The state after each token, shape (states, vocabulary)."""
        starts = np.cumsum([0, *self._levels])
        table = np.empty((self.states, self.vocabulary), dtype=np.intp)
        for length, level in enumerate(self._levels):
            after = np.arange(level)[:, None] * self.vocabulary + np.arange(self.vocabulary)
            remembered = min(length + 1, self.memory)
            table[starts[length] : starts[length + 1]] = starts[remembered] + after % self._levels[remembered]
        return table


def random_autoregressive(
    seed: int, vocabulary: int, memory: int, max_length: int, spread: float = 1.0
) -> Autoregressive:
    """Return a random model, the same for the same arguments: logits are spread * N(0, 1).

    >>> random_autoregressive(3, 2, 1, 5).logits.shape
    (3, 3)

    seed: 0 or more.  vocabulary: tokens, 1 or more.  memory, max_length: as in Autoregressive.
    Raises UsageError: numbers out of range.
    """
    fine = _is_count(seed, 0) and _is_count(vocabulary, 1) and _is_count(memory, 0)
    _refuse_unless(fine, f"seed {seed}, vocabulary {vocabulary}, memory {memory}: at least 0, 1, 0 expected")
    rows = sum(vocabulary**length for length in range(memory + 1))
    stream = np.random.default_rng([seed, vocabulary, memory])
    return Autoregressive(spread * stream.normal(size=(rows, vocabulary + 1)), memory, max_length)


# ---------------------------------------------------------------------------- sequences
@dataclass(frozen=True, eq=False)
class Sequences:
    """Many sequences in one padded array: each holds its tokens, then stop, then padding (-1).

    symbols: integers, shape (n, width).  lengths: steps with the stop, shape (n,), 1..width.
    """

    symbols: Any
    lengths: Any

    def __len__(self) -> int:
        return len(self.lengths)


def pad_sequences(model: Autoregressive, tokens: list[list[int]]) -> Sequences:
    """Return the padded array of sequences given as lists of tokens, without their stops.

    >>> model = random_autoregressive(0, 2, 1, 4)
    >>> pad_sequences(model, [[], [0, 1]]).symbols.tolist()
    [[2, -1, -1], [0, 1, 2]]

    tokens: lists of at most max_length - 1 tokens, each 0..vocabulary-1.
    Raises UsageError: a list that is too long, an unknown token.
    """
    lengths = np.array([len(row) + 1 for row in tokens], dtype=np.intp)
    symbols = np.full((len(tokens), lengths.max(initial=1)), PADDING, dtype=np.intp)
    for row, symbols_of_row in zip(symbols, tokens, strict=True):
        row[: len(symbols_of_row) + 1] = [*symbols_of_row, model.stop]
    sequences = Sequences(symbols, lengths)
    _check_sequences(model, sequences)
    return sequences


def _check_sequences(model: Autoregressive, sequences: Sequences) -> None:
    symbols, lengths = np.asarray(sequences.symbols), np.asarray(sequences.lengths)
    shaped = symbols.ndim == 2 and lengths.shape == symbols.shape[:1]
    shapes = f"{symbols.shape}, {lengths.shape}"
    _refuse_unless(shaped, f"sequences: shapes (n, width), (n,) expected, got {shapes}")
    whole = np.issubdtype(symbols.dtype, np.integer) and np.issubdtype(lengths.dtype, np.integer)
    _refuse_unless(whole, f"sequences: integers expected, got {symbols.dtype}, {lengths.dtype}")
    longest = min(model.max_length, symbols.shape[1])
    fits = bool(((lengths >= 1) & (lengths <= longest)).all())
    _refuse_unless(fits, f"sequences: lengths from 1 to {longest} expected")
    at = np.arange(symbols.shape[1]) - lengths[:, None]
    are_known = (symbols[at < -1] >= 0) & (symbols[at < -1] < model.vocabulary)
    _refuse_unless(bool(are_known.all()), f"sequences: tokens from 0 to {model.vocabulary - 1} expected")
    ended = bool((symbols[at == -1] == model.stop).all())
    _refuse_unless(ended, f"sequences: the last symbol must be stop, {model.stop}")


class Draws(NamedTuple):
    """Sequence, step, state and symbol of draws, four arrays of integers of one shape."""

    sequence: Any
    step: Any
    state: Any
    symbol: Any


def _list_draws(model: Autoregressive, sequences: Sequences) -> Draws:
    """Return every draw that is not forced."""
    _check_sequences(model, sequences)
    symbols = np.asarray(sequences.symbols)
    states = np.zeros(symbols.shape, dtype=np.intp)
    for t in range(1, symbols.shape[1]):  # clipped where the sequence is over
        states[:, t] = model.successors[states[:, t - 1], np.clip(symbols[:, t - 1], 0, model.vocabulary - 1)]
    steps = np.arange(symbols.shape[1])
    free = (steps < np.asarray(sequences.lengths)[:, None]) & (steps < model.max_length - 1)
    i, step = np.nonzero(free)
    return Draws(i, step, states[i, step], symbols[i, step])


def compute_token_log_probabilities(model: Autoregressive, sequences: Sequences) -> Any:
    """Return the log-probability of every symbol given its prefix, log q(y_t | state_t).

    >>> model = Autoregressive([[0.0, 0.0]], memory=0, max_length=3)
    >>> compute_token_log_probabilities(model, pad_sequences(model, [[], [0], [0, 0]])).round(3).tolist()
    [[-0.693, 0.0, 0.0], [-0.693, -0.693, 0.0], [-0.693, -0.693, 0.0]]

    sequences: n of them, of any width.  Returns shape (n, width), nats: 0 at a forced stop and after
    the end, -inf for excluded symbols.  Its sum over steps is the log-probability of the sequence.
    Raises UsageError: sequences that the model cannot hold.
    """
    i, t, state, symbol = _list_draws(model, sequences)
    table = np.zeros(np.shape(sequences.symbols))
    table[i, t] = model.log_probabilities[state, symbol]
    return table


def compute_log_probabilities(model: Autoregressive, sequences: Sequences) -> Any:
    """Return the log-probability of whole sequences, log q(y) = sum_t log q(y_t | state_t).

    >>> model = Autoregressive([[0.0, 0.0]], memory=0, max_length=3)
    >>> np.exp(compute_log_probabilities(model, pad_sequences(model, [[], [0], [0, 0]]))).round(3).tolist()
    [0.5, 0.25, 0.25]

    Returns shape (n,), nats.  Errors as in compute_token_log_probabilities.
    """
    return compute_token_log_probabilities(model, sequences).sum(axis=1)


def compute_token_scores(model: Autoregressive, sequences: Sequences) -> Any:
    """Return the score of every symbol, s_t = grad log q(y_t | state_t), with respect to all logits.

    s_t[s, a] = 1[state_t = s] (1[y_t = a] - q(a|s))

    >>> model = Autoregressive([[0.0, 0.0]], memory=0, max_length=3)
    >>> compute_token_scores(model, pad_sequences(model, [[0, 0]]))[0, :, 0].tolist()
    [[0.5, -0.5], [0.5, -0.5], [0.0, 0.0]]

    Returns shape (n, width, states, vocabulary + 1): 0 at a forced stop and after the end.
    Raises UsageError: sequences that the model cannot hold, or that have probability zero.
    Source: Williams 1992, Simple statistical gradient-following algorithms.
    """
    i, t, state, symbol = _list_draws(model, sequences)
    _refuse_impossible(model, state, symbol)
    scores = np.zeros((*np.shape(sequences.symbols), *model.logits.shape))
    scores[i, t, state] = -model.probabilities[state]
    scores[i, t, state, symbol] += 1
    return scores


def _refuse_impossible(model: Autoregressive, state: Any, symbol: Any) -> None:
    possible = bool(np.isfinite(model.logits[state, symbol]).all())
    _refuse_unless(possible, "a sequence of probability zero has no score")


# ---------------------------------------------------------------------------- enumeration
def enumerate_sequences(model: Autoregressive) -> Sequences:
    """Return all sequences of positive probability, 1 + vocabulary + ... + vocabulary^(max_length - 1) at
    most.

    >>> model = random_autoregressive(0, 2, 1, 3)
    >>> enumerate_sequences(model).symbols.tolist()
    [[2, -1, -1], [0, 2, -1], [1, 2, -1], [0, 0, 2], [0, 1, 2], [1, 0, 2], [1, 1, 2]]

    Raises UsageError: more than a million sequences.
    """
    count, level = 0, 1
    for _ in range(model.max_length):
        count, level = count + level, level * model.vocabulary
        _refuse_unless(count <= LARGEST_ENUMERATION, "too many sequences to enumerate")
    rows: list[list[int]] = []
    prefixes: list[list[int]] = [[]]
    for _ in range(model.max_length):
        rows += prefixes
        prefixes = [[*prefix, token] for prefix in prefixes for token in range(model.vocabulary)]
    every = pad_sequences(model, rows)
    possible = np.isfinite(compute_log_probabilities(model, every))
    return Sequences(every.symbols[possible], every.lengths[possible])


def compute_expectation(model: Autoregressive, function: Callable[[Sequences], Any]) -> Any:
    """Return E_q[f(y)] by enumeration of all sequences, sum_y q(y) f(y): for small models only.

    >>> model = Autoregressive([[0.0, 0.0]], memory=0, max_length=3)
    >>> round(float(compute_expectation(model, lambda y: y.lengths)), 12)
    1.75

    function: Sequences -> array, shape (n, ...); the result has shape (...).
    Raises UsageError: more than a million sequences, values of another shape.
    """
    every = enumerate_sequences(model)
    values = np.asarray(function(every))
    fits = values.shape[:1] == (len(every),)
    _refuse_unless(fits, f"expectation: {len(every)} values expected, got shape {values.shape}")
    return np.tensordot(np.exp(compute_log_probabilities(model, every)), values, axes=1)


# ---------------------------------------------------------------------------- dynamic programming
def _check_pair(q: Autoregressive, p: Autoregressive) -> None:
    shapes = [(m.vocabulary, m.memory, m.max_length) for m in (q, p)]
    names = "vocabulary, memory, max_length"
    _refuse_unless(shapes[0] == shapes[1], f"models differ in {names}: {shapes[0]} and {shapes[1]}")
    differ = np.argwhere(np.isfinite(q.logits) != np.isfinite(p.logits))
    where = f"state {differ[0][0]}, symbol {differ[0][1]}" if len(differ) else ""
    _refuse_unless(not len(differ), f"no common support: one model excludes what the other draws at {where}")


def compute_log_ratios(q: Autoregressive, p: Autoregressive) -> Any:
    """Return l(s, a) = log q(a|s) - log p(a|s), and 0 for symbols that both exclude."""
    both = np.isfinite(q.logits)
    return np.subtract(q.log_probabilities, p.log_probabilities, where=both, out=np.zeros(both.shape))


def compute_token_kl(q: Autoregressive, p: Autoregressive) -> Any:
    """Return KL(q(.|s)||p(.|s)) of next tokens, sum_a q (l + exp(-l) - 1), l = log(q/p).

    No term of the sum is negative, so nothing cancels between terms when q is close to p.

    >>> q, p = random_autoregressive(0, 2, 1, 4), random_autoregressive(1, 2, 1, 4)
    >>> compute_token_kl(q, q).tolist(), bool((compute_token_kl(q, p) > 0).all())
    ([0.0, 0.0, 0.0], True)

    Returns shape (states,), nats.
    Raises UsageError: models of different shapes, or without common support.
    """
    _check_pair(q, p)
    ratio = compute_log_ratios(q, p)
    near = np.abs(ratio) < 1
    small = ratio + np.expm1(-np.where(near, ratio, 0.0))
    far = q.probabilities * ratio + p.probabilities - q.probabilities
    return np.where(near, q.probabilities * small, far).sum(axis=1)


def _move_forward(q: Autoregressive, occupation: Any) -> Any:
    """Return the probability of each state one step on, and of not having stopped."""
    flow = occupation[:, None] * q.probabilities[:, :-1]
    return np.bincount(q.successors.ravel(), weights=flow.ravel(), minlength=q.states)


def _move_backward(q: Autoregressive, now: Any, to_go: Any) -> Any:
    """Return the expected sum of `now` (per state) from one step back to the end."""
    return now + (q.probabilities[:, :-1] * to_go[q.successors]).sum(axis=1)


def compute_occupations(q: Autoregressive) -> Any:
    """Return d_t(s), the probability that step t is drawn, and in state s, for t = 1..max_length - 1.

    d_1 = 1[start], d_{t+1}(s') = sum_{s, a: s' follows s, a} d_t(s) q(a|s)

    >>> compute_occupations(Autoregressive([[0.0, 0.0]], memory=0, max_length=4)).tolist()
    [[1.0], [0.5], [0.25]]

    Returns shape (max_length - 1, states); the forced step, which adds nothing, is left out.
    """
    table = np.zeros((q.max_length - 1, q.states))
    if len(table):
        table[0, 0] = 1
    for t in range(1, len(table)):
        table[t] = _move_forward(q, table[t - 1])
    return table


def compute_sequence_kl(q: Autoregressive, p: Autoregressive) -> tuple[float, Any]:
    """Return KL(q||p) over whole sequences and its gradient in all logits of q, by dynamic programming.

    V_t(s) = sum_a q(a|s) Q_t(s, a)         Q_t(s, a) = l(s, a) + V_{t+1}(next state), V = 0 after stop
    KL = V_1(start)         d KL / d logits[s, a] = sum_t d_t(s) q(a|s) (Q_t(s, a) - V_t(s))

    with d_t the occupations.  Time and memory are linear in max_length.

    >>> q, p = random_autoregressive(0, 2, 1, 9), random_autoregressive(1, 2, 1, 9)
    >>> value, gradient = compute_sequence_kl(q, p)
    >>> value > 0, gradient.shape
    (True, (3, 3))

    Returns the KL in nats, and its gradient, shape (states, vocabulary + 1).
    Raises UsageError: models of different shapes, or without common support.
    Source: Sutton et al. 2000, Policy gradient methods, theorem 1; Cover & Thomas 2006, theorem 2.5.3.
    """
    kl_of_step, ratio, table = compute_token_kl(q, p), compute_log_ratios(q, p), compute_occupations(q)
    to_go, gradient = np.zeros(q.states), np.zeros(q.logits.shape)
    for occupation in table[::-1]:
        action = ratio.copy()
        action[:, :-1] += to_go[q.successors]
        to_go = _move_backward(q, kl_of_step, to_go)
        gradient += occupation[:, None] * q.probabilities * (action - to_go[:, None])
    return float(to_go[0]), gradient


def compute_token_gradient(q: Autoregressive, p: Autoregressive, loss: str) -> Any:
    """Return E_q[sum_t grad loss(l_t)], the expected gradient with prefixes held fixed, exactly.

    k2 = l^2/2             field[s, a] = d(s) q(a|s) (l(s, a) - KL_s)
    k3 = l + exp(-l) - 1   field[s, a] = d(s) (q(a|s) - p(a|s))

    with d(s) = sum_t d_t(s) the expected number of draws in state s and KL_s the token KL.

    >>> q, p = random_autoregressive(0, 2, 1, 9), random_autoregressive(1, 2, 1, 9)
    >>> bool(np.allclose(compute_token_gradient(q, p, "k3").sum(axis=1), 0))
    True

    loss: "k2" or "k3".  Returns shape (states, vocabulary + 1).
    Raises UsageError: another loss, models of different shapes or without common support.
    Source: Tang & Munos 2025, On a few pitfalls in KL divergence gradient estimation for RL.
    """
    _refuse_unless(loss in ("k2", "k3"), f"token_field: loss {loss!r}: 'k2' or 'k3' expected")
    kl_of_step = compute_token_kl(q, p)
    visits = compute_occupations(q).sum(axis=0)[:, None]
    if loss == "k3":
        return visits * (q.probabilities - p.probabilities)
    return visits * q.probabilities * (compute_log_ratios(q, p) - kl_of_step[:, None])
