"""Fields, lengths and variances of sequences: dynamic programming against literal sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.numeric import sequence_fields
from klsym.numeric.autoregressive import (
    Autoregressive,
    enumerate_sequences,
    expectation,
    log_probabilities,
    random_autoregressive,
    sequence_kl,
    token_field,
    token_kl,
    token_log_probabilities,
    token_scores,
)
from klsym.numeric.sequence_examples import offset_pair, offset_variances
from klsym.numeric.sequence_fields import forward_kl, kl_variances, length_gradient, token_weighted_field

SMALL = [  # vocabulary, memory, max_length, spread
    (2, 0, 5, 1.0), (2, 1, 5, 1.0), (2, 2, 6, 1.0), (3, 0, 4, 2.0), (3, 1, 4, 2.0),
    (1, 2, 6, 1.0), (2, 2, 2, 1.0), (2, 1, 1, 1.0), (2, 1, 6, 2.0),
]  # fmt: skip
ALL = pytest.mark.parametrize("shape", SMALL, ids=str)
EXACT = 1e-12  # difference of two exact computations, relative to 1 + the largest entry


def three(shape, seeds=(10, 11, 12)):
    return tuple(random_autoregressive(seed, *shape) for seed in seeds)


def ratios(q, p, y):
    return token_log_probabilities(q, y) - token_log_probabilities(p, y)


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


# ---------------------------------------------------------------------------- whole sequences
def literal_forward(q, p):
    """KL(p||q) from p's side, and the gradient from q's: the expected gradient of whole-sequence k3."""
    value = expectation(p, lambda y: ratios(p, q, y).sum(axis=1))
    whole = expectation(q, lambda y: np.einsum(
        "n,ntsa->nsa", 1 - np.exp(-ratios(q, p, y).sum(axis=1)), token_scores(q, y)
    ))  # fmt: skip
    return value, whole


def literal_token(q, p, mu, y):
    return np.einsum("nt,nt,ntsa->nsa", np.exp(ratios(q, mu, y)), ratios(q, p, y), token_scores(q, y))


@given(models())
def test_fields_equal_enumeration(triple):
    q, p, mu = triple
    value, gradient = forward_kl(q, p)
    expected_value, expected_gradient = literal_forward(q, p)
    assert_close(value, expected_value)
    assert_close(gradient, expected_gradient)
    assert_close(token_weighted_field(q, p, q), token_field(q, p, "k2"))
    assert_close(gradient, -expectation(p, lambda y: token_scores(q, y).sum(axis=1)))
    assert_close(token_weighted_field(q, p, mu), expectation(mu, lambda y: literal_token(q, p, mu, y)))


@ALL
def test_forward_gradient_equals_central_differences(shape):
    q, p, _ = three(shape)
    gradient, h = forward_kl(q, p)[1], 1e-5
    for s, a in np.ndindex(q.logits.shape):
        up, down = (forward_kl(moved(q, s, a, h * sign), p)[0] for sign in (1, -1))
        assert abs(gradient[s, a] - (up - down) / (2 * h)) < 1e-8


def moved(q, s, a, step):
    z = q.logits.copy()
    z[s, a] += step
    return Autoregressive(z, q.memory, q.max_length)


def test_token_weights_give_neither_the_gradient_nor_the_field_on_policy():
    q, p, mu = three((2, 1, 5, 1.0))
    found = token_weighted_field(q, p, mu)
    assert np.abs(found - sequence_kl(q, p)[1]).max() > 1e-2
    assert np.abs(found - token_field(q, p, "k2")).max() > 1e-2
    same_rows = mu.probabilities * np.exp(q.log_probabilities - mu.log_probabilities)
    assert_close(same_rows, q.probabilities)  # the tokens are corrected, so the prefixes are to blame


# ---------------------------------------------------------------------------- lengths
@given(models())
def test_lengths_equal_enumeration(triple):
    q = triple[0]
    found, y = length_gradient(q), enumerate_sequences(q)
    weights, whole = np.exp(log_probabilities(q, y)), token_scores(q, y).sum(axis=1)
    assert_close(found.law, [weights[y.lengths == t].sum() for t in range(1, q.max_length + 1)])
    assert_close(found.mean, weights @ y.lengths)
    assert_close(found.inverse, weights @ (1 / y.lengths))
    assert_close(found.mean_gradient, np.einsum("n,n,nsa->sa", weights, y.lengths, whole))
    assert_close(found.inverse_gradient, np.einsum("n,n,nsa->sa", weights, 1 / y.lengths, whole))


@ALL
def test_length_normalised_k1_has_the_gradient_of_the_inverse_length(shape):
    """d/dz of E over sequences drawn once, with the weights q(y) held still: (1/T) sum_t grad l_t."""
    q, p, _ = three(shape)
    y, h = enumerate_sequences(q), 1e-5
    weights = np.exp(log_probabilities(q, y))
    found = length_gradient(q).inverse_gradient
    for s, a in np.ndindex(q.logits.shape):
        up, down = (
            weights @ (ratios(moved(q, s, a, h * sign), p, y).sum(axis=1) / y.lengths) for sign in (1, -1)
        )
        assert abs(found[s, a] - (up - down) / (2 * h)) < 1e-9
    assert np.abs(found).max() > 1e-3 or shape[2] == 1  # not zero, as without 1/T


def test_long_lengths_against_the_geometric_law():
    length, q = 10_000, Autoregressive([[6.0, 5.5, -2.0]], 0, 10_000)
    stop = q.probabilities[0, -1]
    found, t = length_gradient(q), np.arange(1, length + 1)
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
    weights, ratio = np.exp(log_probabilities(q, y)), ratios(q, p, y)
    visited = np.zeros((*ratio.shape, q.states))  # where the draw is not forced
    for n, row in enumerate(y.symbols.tolist()):
        state = 0
        for t in range(min(int(y.lengths[n]), q.max_length - 1)):
            visited[n, t, state] = 1
            state = q.successors[state, row[t]] if row[t] != q.stop else state
    return weights, ratio, visited @ token_kl(q, p), visited


@given(models())
def test_variances_equal_enumeration(triple):
    """And step by step, exact KLs vary no more than samples (Rao & Blackwell); of the sums this is false."""
    q, p, _ = triple
    found, (weights, ratio, steps, _) = kl_variances(q, p), literal_steps(q, p)
    assert_close(found.kl, sequence_kl(q, p)[0])
    for values, variance in ((ratio, found.sampled), (steps, found.exact_steps)):
        total = values.sum(axis=1)
        assert_close(weights @ total, found.kl)
        assert_close(weights @ (total - found.kl) ** 2, variance)
    each = [weights @ (x - weights @ x) ** 2 for x in (steps, ratio)]
    assert (each[0] <= each[1] + EXACT).all()


@ALL
def test_the_variances_differ_by_conditional_variances_and_covariances(shape):
    q, p, _ = three(shape)
    weights, ratio, steps, visited = literal_steps(q, p)
    spreads = (q.probabilities * (q.log_probabilities - p.log_probabilities) ** 2).sum(axis=1)
    within = weights @ (visited @ (spreads - token_kl(q, p) ** 2)).sum(axis=1)
    cross = np.einsum("n,nt,nu->tu", weights, ratio - steps, steps)
    found = kl_variances(q, p)
    assert_close(found.sampled - found.exact_steps, within + 2 * np.triu(cross, 1).sum())
    assert np.abs(np.tril(cross)).max() < EXACT  # what is known before a draw cannot vary with it


@ALL
def test_close_to_the_reference_exact_steps_vary_less(shape):
    q, p, _ = three(shape)
    shares = []
    for e in (1e-2, 1e-3):
        near = Autoregressive(q.logits + e * (p.logits - q.logits), q.memory, q.max_length)
        found = kl_variances(q, near)
        assert found.exact_steps <= found.sampled
        shares.append(found.exact_steps / found.sampled if found.sampled else 0.0)
    assert shares[1] <= 0.012 * shares[0]  # the ratio is of order e^2


def test_the_sum_of_exact_steps_can_vary_more():
    q, p = offset_pair()
    assert_close(q.probabilities, [[0.1, 0.9], [0.9, 0.1]])
    assert_close(p.probabilities, [[0.5, 0.5], [0.1, 0.9]])
    found, exact = kl_variances(q, p), offset_variances(Fraction(1, 10))
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


# ---------------------------------------------------------------------------- work
@pytest.mark.parametrize("length", [100, 1000])
@pytest.mark.parametrize(
    "task, passes",
    [
        (lambda q, p, mu: length_gradient(q), 2),
        (lambda q, p, mu: kl_variances(q, p), 3),
    ],
    ids=["lengths", "variances"],
)
def test_work_is_linear_in_max_length(monkeypatch, task, passes, length):
    calls, step = [], sequence_fields._after
    monkeypatch.setattr(sequence_fields, "_after", lambda *given: calls.append(1) or step(*given))
    task(*three((2, 2, length, 1.0)))
    assert len(calls) == passes * (length - 1)


# ---------------------------------------------------------------------------- refusals
Q = random_autoregressive(0, 2, 1, 4)
LONGER, WIDER = random_autoregressive(0, 2, 1, 5), random_autoregressive(0, 3, 1, 4)
EXCLUDES = Autoregressive([[0, 0, 0], [0, -np.inf, 0], [0, 0, 0]], 1, 4)
REFUSED = [
    ("no common support", lambda: forward_kl(Q, EXCLUDES)),
    ("models differ", lambda: forward_kl(Q, LONGER)),
    ("no common support", lambda: token_weighted_field(EXCLUDES, EXCLUDES, Q)),
    ("(2, 1, 4) and (3, 1, 4)", lambda: token_weighted_field(Q, WIDER, Q)),
    ("state 1, symbol 1", lambda: token_weighted_field(Q, Q, EXCLUDES)),
    ("models differ", lambda: kl_variances(Q, LONGER)),
    ("no common support", lambda: kl_variances(Q, EXCLUDES)),
    ("a = 1/2", lambda: offset_variances(Fraction(1, 2))),
    ("a = 0", lambda: offset_variances(Fraction(0))),
]  # fmt: skip


@pytest.mark.parametrize("message, call", REFUSED)
def test_refusals_are_one_line(message, call):
    with pytest.raises(UsageError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 140
