"""Autoregressive models, their fields, lengths and variances: dynamic programming against enumeration."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.derivations.tools.sequence_examples import offset_pair, offset_variances
from klsym.errors import UsageError
from klsym.study.sequences import autoregressive, sequence_fields
from klsym.study.sequences.autoregressive import (
    Autoregressive,
    Sequences,
    compute_expectation,
    compute_log_probabilities,
    compute_occupations,
    compute_sequence_kl,
    compute_token_gradient,
    compute_token_kl,
    compute_token_log_probabilities,
    compute_token_scores,
    enumerate_sequences,
    pad_sequences,
    random_autoregressive,
)
from klsym.study.sequences.sequence_fields import (
    compute_forward_kl,
    compute_kl_variances,
    compute_length_gradients,
    compute_weighted_token_gradient,
)

SMALL = [  # vocabulary, memory, max_length, spread
    (2, 0, 5, 1.0), (2, 1, 5, 1.0), (2, 2, 6, 1.0), (3, 0, 4, 2.0), (3, 1, 4, 2.0), (3, 2, 4, 1.0),
    (1, 2, 6, 1.0), (2, 2, 2, 1.0), (2, 1, 1, 1.0), (2, 1, 6, 3.0),
]  # fmt: skip
ALL = pytest.mark.parametrize("shape", SMALL, ids=str)
EXACT = 1e-12  # difference of two exact computations, relative to 1 + the largest entry


def three(shape, seeds=(10, 11, 12)):
    return tuple(random_autoregressive(seed, *shape) for seed in seeds)


def ratios(q, p, y):
    return compute_token_log_probabilities(q, y) - compute_token_log_probabilities(p, y)


def assert_close(found, expected, tolerance=EXACT):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * (1 + np.abs(expected).max())


@st.composite
def models(draw):
    """Three random models with a few symbols that all of them exclude."""
    vocabulary, memory = draw(st.sampled_from([(1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (2, 2), (3, 1)]))
    length = draw(st.integers(1, 5 if vocabulary < 3 else 4))
    seed, spread = draw(st.integers(0, 10**6)), draw(st.sampled_from([0.1, 1.0, 2.5]))
    found = three((vocabulary, memory, length, spread), (seed, seed + 1, seed + 2))
    excluded = np.random.default_rng(seed).random(found[0].logits.shape) < draw(st.sampled_from([0.0, 0.3]))
    excluded[excluded.all(axis=1)] = False
    return tuple(Autoregressive(np.where(excluded, -np.inf, m.logits), memory, length) for m in found)


def naive_log_probability(model, tokens):
    """Straight from the definition, with states as tuples; rows of the logits in the stated order."""
    rows = {(): 0}
    level = [()]
    for _ in range(model.memory):
        level = [(*state, token) for state in level for token in range(model.vocabulary)]
        rows |= {state: len(rows) + k for k, state in enumerate(level)}
    total = 0.0
    for t, symbol in enumerate([*tokens, model.stop][: model.max_length - 1]):
        prefix = tuple(tokens[:t])
        z = model.logits[rows[prefix[max(0, t - model.memory) :]]]
        total += z[symbol] - math.log(sum(math.exp(v) for v in z))
    return total


# ---------------------------------------------------------------------------- the model itself
@ALL
def test_log_probabilities_follow_the_definition(shape):
    model, *_ = three(shape)
    every = enumerate_sequences(model)
    tokens = [row[: length - 1].tolist() for row, length in zip(every.symbols, every.lengths, strict=True)]
    assert len({tuple(row) for row in tokens}) == len(every)
    assert len(every) == sum(model.vocabulary**k for k in range(model.max_length))
    assert_close(
        compute_log_probabilities(model, every), [naive_log_probability(model, row) for row in tokens]
    )


@ALL
def test_scores_are_gradients_of_log_probabilities(shape):
    model, *_ = three(shape)
    y, h = enumerate_sequences(model), 1e-5
    found = compute_token_scores(model, y).sum(axis=1)
    for s, a in np.ndindex(model.logits.shape):
        step = np.zeros(model.logits.shape)
        step[s, a] = h
        up, down = (Autoregressive(model.logits + d, model.memory, model.max_length) for d in (step, -step))
        assert_close(
            found[:, s, a],
            (compute_log_probabilities(up, y) - compute_log_probabilities(down, y)) / (2 * h),
            1e-8,
        )


# ---------------------------------------------------------------------------- dynamic programming
def vanilla(q, p):
    """E_q[sum_t l_t sum_t s_t], the gradient of KL(q||p)."""

    def each(y):
        return ratios(q, p, y).sum(axis=1)[:, None, None] * compute_token_scores(q, y).sum(axis=1)

    return compute_expectation(q, each)


def test_extreme_logits_stay_finite():
    q = Autoregressive([[800.0, 0.0, -800.0]], 0, 3)
    p = Autoregressive([[0.0, 800.0, -800.0]], 0, 3)
    value, gradient = compute_sequence_kl(q, p)
    assert abs(value - 1600) < 1e-9  # two free steps, 800 nats each
    assert np.isfinite(gradient).all()
    assert_close(compute_token_gradient(q, p, "k3"), [[2.0, -2.0, 0.0]])


def test_nearly_equal_models_keep_their_digits():
    z, e = [0.3, 0.7, -0.4], 1e-8
    q, p = Autoregressive([z], 0, 2), Autoregressive([[z[0] + e, *z[1:]]], 0, 2)
    first = q.probabilities[0, 0]
    expected = first * (1 - first) * e**2 / 2  # half the Fisher information times e^2, and O(e^3)
    assert abs(compute_sequence_kl(q, p)[0] / expected - 1) < 1e-6  # sum q l is off by about 1 here


# ---------------------------------------------------------------------------- long sequences
def test_long_sequences_against_the_geometric_series():
    length, row = 10_000, np.array([[6.0, 5.5, -2.0]])
    q, p = Autoregressive(row, 0, length), Autoregressive([[6.0, 5.0, -1.0]], 0, length)
    goes_on = 1 - q.probabilities[0, -1]
    draws = (1 - goes_on ** (length - 1)) / (1 - goes_on)
    assert abs(compute_sequence_kl(q, p)[0] / (draws * compute_token_kl(q, p)[0]) - 1) < 1e-10
    assert abs(compute_occupations(q).sum() / draws - 1) < 1e-10


@pytest.mark.parametrize("length", [100, 1_000])
@pytest.mark.parametrize(
    ("task", "calls"),
    [
        (lambda q, p: compute_sequence_kl(q, p), {"_move_forward": -2, "_move_backward": -1}),
        (lambda q, p: compute_length_gradients(q), {"_move_forward": -2, "_gather_to_go": -1}),
        (lambda q, p: compute_kl_variances(q, p), {"_gather_to_go": -1}),
    ],
    ids=["kl", "lengths", "variances"],
)
def test_work_is_linear_in_max_length(monkeypatch, task, calls, length):
    counts = dict.fromkeys(calls, 0)

    def counted(name, step):
        def call(*arguments):
            counts[name] += 1
            return step(*arguments)

        return call

    for name in calls:
        module = sequence_fields if name == "_gather_to_go" else autoregressive
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    task(*three((2, 2, length, 1.0))[:2])
    passes = {"_gather_to_go": 2 if "_move_forward" in calls else 3}
    assert counts == {name: passes.get(name, 1) * (length + less) for name, less in calls.items()}


# ---------------------------------------------------------------------------- whole sequences
def literal_forward(q, p):
    """KL(p||q) from p's side, and the gradient from q's: the expected gradient of whole-sequence k3."""
    value = compute_expectation(p, lambda y: ratios(p, q, y).sum(axis=1))
    whole = compute_expectation(q, lambda y: np.einsum(
        "n,ntsa->nsa", 1 - np.exp(-ratios(q, p, y).sum(axis=1)), compute_token_scores(q, y)
    ))  # fmt: skip
    return value, whole


def literal_token(q, p, mu, y):
    return np.einsum("nt,nt,ntsa->nsa", np.exp(ratios(q, mu, y)), ratios(q, p, y), compute_token_scores(q, y))


@given(models())
def test_fields_equal_enumeration(triple):
    q, p, mu = triple
    value, gradient = compute_sequence_kl(q, p)
    assert_close(value, compute_expectation(q, lambda y: ratios(q, p, y).sum(axis=1)))
    assert_close(gradient, vanilla(q, p))
    with np.errstate(invalid="ignore"):  # -inf - -inf, where both exclude a symbol
        rows = np.nansum(q.probabilities * (q.log_probabilities - p.log_probabilities), axis=1)
    assert_close(compute_token_kl(q, p), rows)
    assert_close(value, (compute_occupations(q) * rows).sum())  # the chain rule
    for loss, coefficient in {"k2": lambda l_t: l_t, "k3": lambda l_t: 1 - np.exp(-l_t)}.items():
        expected = compute_expectation(
            q,
            lambda y, c=coefficient: np.einsum(
                "nt,ntsa->nsa", c(ratios(q, p, y)), compute_token_scores(q, y)
            ),
        )
        assert_close(compute_token_gradient(q, p, loss), expected)
    value, gradient = compute_forward_kl(q, p)
    expected_value, expected_gradient = literal_forward(q, p)
    assert_close(value, expected_value)
    assert_close(gradient, expected_gradient)
    assert_close(compute_weighted_token_gradient(q, p, q), compute_token_gradient(q, p, "k2"))
    assert_close(gradient, -compute_expectation(p, lambda y: compute_token_scores(q, y).sum(axis=1)))
    assert_close(
        compute_weighted_token_gradient(q, p, mu),
        compute_expectation(mu, lambda y: literal_token(q, p, mu, y)),
    )


# ---------------------------------------------------------------------------- lengths
@given(models())
def test_lengths_equal_enumeration(triple):
    q = triple[0]
    found, y = compute_length_gradients(q), enumerate_sequences(q)
    weights, whole = np.exp(compute_log_probabilities(q, y)), compute_token_scores(q, y).sum(axis=1)
    assert_close(found.law, [weights[y.lengths == t].sum() for t in range(1, q.max_length + 1)])
    assert_close(found.mean, weights @ y.lengths)
    assert_close(found.inverse, weights @ (1 / y.lengths))
    assert_close(found.mean_gradient, np.einsum("n,n,nsa->sa", weights, y.lengths, whole))
    assert_close(found.inverse_gradient, np.einsum("n,n,nsa->sa", weights, 1 / y.lengths, whole))


def test_long_lengths_against_the_geometric_law():
    length, q = 10_000, Autoregressive([[6.0, 5.5, -2.0]], 0, 10_000)
    stop = q.probabilities[0, -1]
    found, t = compute_length_gradients(q), np.arange(1, length + 1)
    law = stop * (1 - stop) ** (t - 1)
    law[-1] = (1 - stop) ** (length - 1)
    assert_close(found.law, law)
    assert abs(found.mean / (law @ t) - 1) < 1e-10
    assert abs(found.inverse / (law @ (1 / t)) - 1) < 1e-10
    derivative = -(1 - (1 - stop) ** length * (1 + length * stop / (1 - stop))) / stop**2  # of geometric T
    cut = (1 - (1 - stop) ** length) / stop
    assert abs(found.mean / cut - 1) < 1e-10
    assert abs(found.mean_gradient[0, -1] / (derivative * stop * (1 - stop)) - 1) < 1e-8


# ---------------------------------------------------------------------------- variances
def literal_steps(q, p):
    """The weight of each sequence, and l_t and KL_t at each of its steps."""
    y = enumerate_sequences(q)
    weights, ratio = np.exp(compute_log_probabilities(q, y)), ratios(q, p, y)
    visited = np.zeros((*ratio.shape, q.states))  # where the draw is not forced
    for n, row in enumerate(y.symbols.tolist()):
        state = 0
        for t in range(min(int(y.lengths[n]), q.max_length - 1)):
            visited[n, t, state] = 1
            state = q.successors[state, row[t]] if row[t] != q.stop else state
    return weights, ratio, visited @ compute_token_kl(q, p)


@given(models())
def test_variances_equal_enumeration(triple):
    """And step by step, exact KLs vary no more than samples (Rao & Blackwell); of the sums this is false."""
    q, p, _ = triple
    found, (weights, ratio, steps) = compute_kl_variances(q, p), literal_steps(q, p)
    assert_close(found.kl, compute_sequence_kl(q, p)[0])
    for values, variance in ((ratio, found.sampled), (steps, found.exact_steps)):
        total = values.sum(axis=1)
        assert_close(weights @ total, found.kl)
        assert_close(weights @ (total - found.kl) ** 2, variance)
    each = [weights @ (x - weights @ x) ** 2 for x in (steps, ratio)]
    assert (each[0] <= each[1] + EXACT).all()


def test_the_sum_of_exact_steps_can_vary_more():
    q, p = offset_pair()
    assert_close(q.probabilities, [[0.1, 0.9], [0.9, 0.1]])
    assert_close(p.probabilities, [[0.5, 0.5], [0.1, 0.9]])
    found, exact = compute_kl_variances(q, p), offset_variances(Fraction(1, 10))
    assert found.exact_steps > 1.4 * found.sampled
    for variance, number in zip((found.sampled, found.exact_steps), exact, strict=True):
        assert abs(variance - float(number) * math.log(9) ** 2) < 1e-14


@pytest.mark.parametrize("a", [Fraction(1, n) for n in (3, 5, 7, 8, 9, 10, 100)], ids=str)
def test_offset_variances_follow_the_definition(a):
    """In units of L = log(1/a - 1), all of l is rational up to a constant: literal sums of three terms."""
    b = 1 - a
    sequences = [(b, [0], [0]), (a * a, [-1, -1], [0, b - a]), (a * b, [-1, 1], [0, b - a])]
    # weight, l_t, KL_t: stop; token, stop; token, token.  The constant log(2 b), and KL at the start, drop
    sums = [[(w, sum(row[k])) for w, *row in sequences] for k in (0, 1)]
    means = [sum(w * x for w, x in side) for side in sums]
    variances = [sum(w * (x - m) ** 2 for w, x in side) for side, m in zip(sums, means, strict=True)]
    assert tuple(variances) == offset_variances(a)
    assert (variances[1] > variances[0]) == (a < Fraction(1, 8))


# ---------------------------------------------------------------------------- refusals
Q = random_autoregressive(0, 2, 1, 4)
LONGER, WIDER = random_autoregressive(0, 2, 1, 5), random_autoregressive(0, 3, 1, 4)
EXCLUDES = Autoregressive([[0, 0, 0], [0, -np.inf, 0], [0, 0, 0]], 1, 4)
REFUSED = [
    ("nan", lambda: Autoregressive([[0.0, math.nan]], 0, 3)),
    ("inf in absolute value is too large", lambda: Autoregressive([[0.0, math.inf]], 0, 3)),
    ("a state excludes every symbol", lambda: Autoregressive([[-math.inf] * 2], 0, 3)),
    ("an array of numbers expected", lambda: Autoregressive([["a", "b"]], 0, 3)),
    ("got (3,)", lambda: Autoregressive([0.0, 1.0, 2.0], 0, 3)),
    ("1 + ... + 2^1 states expected, got 4 rows", lambda: Autoregressive(np.zeros((4, 3)), 1, 3)),
    ("2^9 states expected", lambda: Autoregressive(np.zeros((4, 3)), 9, 3)),
    ("max_length 0: 1 or more", lambda: Autoregressive(np.zeros((1, 3)), 0, 0)),
    ("max_length 2.5: 1 or more", lambda: Autoregressive(np.zeros((1, 3)), 0, 2.5)),
    ("memory -1: 0 or more", lambda: Autoregressive(np.zeros((1, 3)), -1, 3)),
    ("one model excludes what the other draws at state 1, symbol 1",
     lambda: compute_sequence_kl(Q, EXCLUDES)),
    ("no common support", lambda: compute_token_gradient(EXCLUDES, Q, "k3")),
    ("models differ", lambda: compute_sequence_kl(Q, random_autoregressive(0, 2, 1, 5))),
    ("(2, 1, 4) and (3, 1, 4)", lambda: compute_token_kl(Q, random_autoregressive(0, 3, 1, 4))),
    ("loss 'k1'", lambda: compute_token_gradient(Q, Q, "k1")),
    ("tokens from 0 to 1", lambda: pad_sequences(Q, [[2]])),
    ("tokens from 0 to 1 expected", lambda: pad_sequences(Q, [[-1]])),
    ("lengths from 1 to 4", lambda: pad_sequences(Q, [[0, 0, 0, 0]])),
    ("the last symbol must be stop",
     lambda: compute_token_scores(Q, Sequences(np.array([[0, 1]]), np.array([2])))),
    ("shapes (n, width), (n,)", lambda: compute_token_scores(Q, Sequences(np.array([0, 2]), np.array([2])))),
    ("integers expected", lambda: compute_token_scores(Q, Sequences(np.array([[0.0, 2.0]]), np.array([2])))),
    ("probability zero", lambda: compute_token_scores(EXCLUDES, pad_sequences(EXCLUDES, [[0, 1]]))),
    ("too many sequences", lambda: enumerate_sequences(random_autoregressive(0, 2, 1, 40))),
    ("values expected", lambda: compute_expectation(Q, lambda y: np.ones(3))),
    ("vocabulary 0", lambda: random_autoregressive(0, 0, 1, 4)),
    ("no common support", lambda: compute_forward_kl(Q, EXCLUDES)),
    ("models differ", lambda: compute_forward_kl(Q, LONGER)),
    ("no common support", lambda: compute_weighted_token_gradient(EXCLUDES, EXCLUDES, Q)),
    ("(2, 1, 4) and (3, 1, 4)", lambda: compute_weighted_token_gradient(Q, WIDER, Q)),
    ("state 1, symbol 1", lambda: compute_weighted_token_gradient(Q, Q, EXCLUDES)),
    ("models differ", lambda: compute_kl_variances(Q, LONGER)),
    ("no common support", lambda: compute_kl_variances(Q, EXCLUDES)),
    ("a = 1/2", lambda: offset_variances(Fraction(1, 2))),
    ("a = 0", lambda: offset_variances(Fraction(0))),
]  # fmt: skip


@pytest.mark.parametrize("message, call", REFUSED)
def test_refusals_are_one_line(message, call):
    with pytest.raises(UsageError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 140
