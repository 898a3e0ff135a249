"""Fields, lengths, Jacobians and variances of sequences: dynamic programming against literal sums."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval, log_enclosure
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
from klsym.numeric.sequence_examples import (
    ASYMMETRIC,
    OFFSET,
    asymmetric_entries,
    asymmetric_pair,
    offset_pair,
    offset_variances,
)
from klsym.numeric.sequence_fields import (
    ESTIMATORS,
    asymmetry,
    estimator_moments,
    forward_kl,
    jacobian,
    kl_variances,
    length_gradient,
    prefix_weighted_gradient,
    token_weighted_field,
)

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


def literal_prefix(q, p, mu, y):
    """sum_u (rho_1 ... rho_u) l_u sum_{t <= u} s_t of each sequence, loop by loop."""
    rho, ratio, score = np.exp(ratios(q, mu, y)), ratios(q, p, y), token_scores(q, y)
    found = np.zeros((len(y), *q.logits.shape))
    for n, u in np.ndindex(ratio.shape):
        found[n] += math.prod(rho[n, : u + 1]) * ratio[n, u] * score[n, : u + 1].sum(axis=0)
    return found


def literal_token(q, p, mu, y):
    return np.einsum("nt,nt,ntsa->nsa", np.exp(ratios(q, mu, y)), ratios(q, p, y), token_scores(q, y))


@given(models())
def test_fields_equal_enumeration(triple):
    q, p, mu = triple
    value, gradient = forward_kl(q, p)
    expected_value, expected_gradient = literal_forward(q, p)
    assert_close(value, expected_value)
    assert_close(gradient, expected_gradient)
    assert_close(prefix_weighted_gradient(q, p, mu), expectation(mu, lambda y: literal_prefix(q, p, mu, y)))
    assert_close(token_weighted_field(q, p, mu), expectation(mu, lambda y: literal_token(q, p, mu, y)))


@ALL
def test_fields_of_mild_models_equal_enumeration(shape):
    q, p, mu = three(shape)
    assert_close(forward_kl(q, p)[1], literal_forward(q, p)[1])
    minus_score = -expectation(p, lambda y: token_scores(q, y).sum(axis=1))
    assert_close(forward_kl(q, p)[1], minus_score)
    assert_close(prefix_weighted_gradient(q, p, mu), expectation(mu, lambda y: literal_prefix(q, p, mu, y)))
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


@given(models())
def test_prefix_weights_give_the_gradient_of_the_sequence_kl(triple):
    q, p, mu = triple
    assert_close(prefix_weighted_gradient(q, p, mu), sequence_kl(q, p)[1])
    assert_close(token_weighted_field(q, p, q), token_field(q, p, "k2"))


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


# ---------------------------------------------------------------------------- Jacobians
FIELDS = {
    "kl": lambda q, p: sequence_kl(q, p)[1],
    "k2": lambda q, p: token_field(q, p, "k2"),
    "k3": lambda q, p: token_field(q, p, "k3"),
}


@pytest.mark.parametrize("field", FIELDS)
@ALL
def test_jacobians_equal_central_differences(shape, field):
    q, p, _ = three(shape)
    found, h = jacobian(field, q, p), 1e-5
    for s, a in np.ndindex(q.logits.shape):
        up, down = (FIELDS[field](moved(q, s, a, h * sign), p) for sign in (1, -1))
        assert_close(found[:, :, s, a], (up - down) / (2 * h), 1e-8)


@given(models())
def test_only_the_gradient_has_a_symmetric_jacobian(triple):
    q, p, _ = triple
    hessian = jacobian("kl", q, p)
    assert asymmetry(hessian) <= EXACT * (1 + np.abs(hessian).max())
    free = np.isfinite(q.logits)
    for field in ("k2", "k3"):
        matrix = jacobian(field, q, p)
        assert np.isfinite(matrix).all() and not matrix[~free].any() and not matrix[:, :, ~free].any()
        if q.max_length <= 2 or (free.sum(axis=1) - 1).sum() <= 1:  # one draw, or one free number
            assert asymmetry(matrix) <= EXACT * (1 + np.abs(matrix).max())


@pytest.mark.parametrize("field", ["k2", "k3"])
@pytest.mark.parametrize("shape", [(1, 1, 3, 1.0), (2, 0, 3, 1.0), (2, 1, 5, 1.0), (3, 2, 4, 1.0)], ids=str)
def test_token_fields_are_no_gradients(shape, field):
    q, p, _ = three(shape)
    assert asymmetry(jacobian(field, q, p)) > 1e-3
    assert asymmetry(jacobian(field, q, q)) < EXACT  # at q = p both fields are the Fisher metric times dz


def exact_jacobian(loss, s, a, s2, b):
    """d/dz[s2, b] of E_q[sum_t c_t s_t[s, a]] at ASYMMETRIC, summed over the three sequences, enclosed.

    d E_q[f] = E_q[f score + df] with c = l (k2, dc = s_t) or 1 - 1/e^l (k3, dc = s_t / e^l).
    """
    q, p = ASYMMETRIC
    total = Interval.exact(0)
    for draws in ([(0, 1)], [(0, 0), (1, 1)], [(0, 0), (1, 0)]):  # state, symbol
        weight = math.prod(q[state][symbol] for state, symbol in draws)

        def score(state, symbol, row, column):
            return ((symbol == column) - q[row][column]) * (state == row)

        whole = sum(score(*draw, s2, b) for draw in draws)
        for state, symbol in draws:
            inverse = p[state][symbol] / q[state][symbol]
            coefficient = log_enclosure(1 / inverse) if loss == "k2" else Interval.exact(1 - inverse)
            change = score(state, symbol, s2, b) * (1 if loss == "k2" else inverse)
            mine = score(state, symbol, s, a)
            bend = -(state == s == s2) * q[s][a] * ((a == b) - q[s2][b])
            total += Interval.exact(weight * (mine * whole + bend)) * coefficient
            total += Interval.exact(weight * mine * change)
    return total


@pytest.mark.parametrize("loss", ["k2", "k3"])
def test_two_mirrored_entries_differ_exactly(loss):
    matrix = jacobian(loss, *asymmetric_pair())
    entry, mirror = asymmetric_entries(loss)
    assert entry.lower > mirror.upper == mirror.lower == 0
    for found, at in ((entry, (1, 0, 0, 0)), (mirror, (0, 0, 1, 0))):
        summed = exact_jacobian(loss, *at)
        assert summed.lower <= found.upper and found.lower <= summed.upper
        assert summed.upper - summed.lower < Fraction(1, 2**80)
        assert abs(matrix[at] - float(found.lower)) < 1e-15
    constant = math.log(3) if loss == "k2" else 1
    assert abs(float(entry.lower) - constant / 16) < 1e-15


@pytest.mark.parametrize("loss", ["k2", "k3"])
def test_every_entry_of_the_exact_jacobian(loss):
    matrix = jacobian(loss, *asymmetric_pair())
    for at in np.ndindex(matrix.shape):
        assert abs(matrix[at] - float(exact_jacobian(loss, *at).lower)) < 1e-15


# ---------------------------------------------------------------------------- variances
def literal_estimate(q, p, tokens, name):
    """One sequence, one loop: the definition of each estimator with states looked up by prefix."""
    rows = {(): 0}
    for size in range(1, q.memory + 1):
        for prefix in itertools.product(range(q.vocabulary), repeat=size):
            rows[prefix] = len(rows)
    logs, kl, score, slope = [], [], [], []
    for t, symbol in enumerate([*tokens, q.stop][: q.max_length - 1]):
        s = rows[tuple(tokens[max(0, t - q.memory) : t])]
        odds = [
            math.log(a / b) if a else 0.0 for a, b in zip(q.probabilities[s], p.probabilities[s], strict=True)
        ]
        logs.append(odds[symbol])
        kl.append(sum(a * x for a, x in zip(q.probabilities[s], odds, strict=True)))
        score.append(np.zeros(q.logits.shape))
        score[-1][s] = (np.arange(q.vocabulary + 1) == symbol) - q.probabilities[s]
        slope.append(np.zeros(q.logits.shape))
        slope[-1][s] = q.probabilities[s] * (np.array(odds) - kl[-1])
    steps = range(len(logs))
    zero = np.zeros(q.logits.shape)
    return {
        "sampled": lambda: sum(logs),
        "exact-steps": lambda: sum(kl),
        "vanilla": lambda: sum(logs) * sum(score, zero),
        "cumulative": lambda: sum((score[t] * sum(logs[t:]) for t in steps), zero),
        "cumulative-exact-steps": lambda: sum((slope[t] + score[t] * sum(kl[t + 1 :]) for t in steps), zero),
    }[name]()


@pytest.mark.parametrize("name", ESTIMATORS)
@ALL
def test_moments_equal_the_literal_loop(shape, name):
    q, p, _ = three(shape)
    y = enumerate_sequences(q)
    tokens = [row[: n - 1].tolist() for row, n in zip(y.symbols, y.lengths, strict=True)]
    values = [np.asarray(literal_estimate(q, p, row, name)) for row in tokens]
    weights = np.exp(log_probabilities(q, y))
    mean = sum(w * v for w, v in zip(weights, values, strict=True))
    trace = sum(w * ((v - mean) ** 2).sum() for w, v in zip(weights, values, strict=True))
    found = estimator_moments(q, p, name)
    assert_close(found[0], mean)
    assert_close(found[1], trace)
    assert trace > 1e-3 or shape[2] == 1 or (name.endswith("exact-steps") and shape[2] == 2)


@given(models())
def test_variances_equal_enumeration_and_every_estimate_is_unbiased(triple):
    q, p, _ = triple
    found, (value, gradient) = kl_variances(q, p), sequence_kl(q, p)
    assert_close(found.kl, value)
    for name, variance in (("sampled", found.sampled), ("exact-steps", found.exact_steps)):
        mean, trace = estimator_moments(q, p, name)
        assert_close(mean, value)
        assert_close(variance, trace)
    for name in ("vanilla", "cumulative", "cumulative-exact-steps"):
        assert_close(estimator_moments(q, p, name)[0], gradient)


@given(models())
def test_each_exact_step_varies_no_more_than_its_sample(triple):
    """Rao & Blackwell step by step: Var KL_t <= Var l_t.  Of the sums this is false: see below."""
    q, p, _ = triple
    y = enumerate_sequences(q)
    weights, ratio = np.exp(log_probabilities(q, y)), ratios(q, p, y)
    visited = np.zeros((*ratio.shape, q.states))
    for n, row in enumerate(y.symbols.tolist()):
        state = 0
        for t in range(min(int(y.lengths[n]), q.max_length - 1)):
            visited[n, t, state] = 1
            if row[t] != q.stop:
                state = q.successors[state, row[t]]
    steps = visited @ token_kl(q, p)
    variance = [weights @ (x - weights @ x) ** 2 for x in (steps, ratio)]
    assert (variance[0] <= variance[1] + EXACT).all()


@ALL
def test_the_variances_differ_by_conditional_variances_and_covariances(shape):
    q, p, _ = three(shape)
    y = enumerate_sequences(q)
    weights, ratio, score = np.exp(log_probabilities(q, y)), ratios(q, p, y), token_scores(q, y)
    visited = (np.abs(score).max(axis=3) > 0).astype(float)
    spreads = (q.probabilities * (q.log_probabilities - p.log_probabilities) ** 2).sum(axis=1)
    rows = token_kl(q, p)
    within = weights @ (visited @ (spreads - rows**2)).sum(axis=1)
    steps = visited @ rows
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
    enumerated = {name: estimator_moments(q, p, name) for name in ("sampled", "exact-steps")}
    assert_close(enumerated["sampled"][0], enumerated["exact-steps"][0])
    assert enumerated["exact-steps"][1] > 1.4 * enumerated["sampled"][1]
    exact = offset_variances(Fraction(1, 10))
    for name, number in zip(enumerated, exact, strict=True):
        assert abs(enumerated[name][1] - float(number) * math.log(9) ** 2) < 1e-14


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


def test_the_offset_pair_is_the_family_at_one_tenth():
    q, p = OFFSET
    assert [row[0] for row in (*q, *p)] == [Fraction(n, 10) for n in (1, 9, 5, 1)]
    for model, table in zip(offset_pair(), OFFSET, strict=True):
        assert_close(model.probabilities, np.array(table, dtype=float))


# ---------------------------------------------------------------------------- work
@pytest.mark.parametrize("length", [100, 1000])
@pytest.mark.parametrize(
    "task, passes",
    [
        (lambda q, p, mu: prefix_weighted_gradient(q, p, mu), 1),
        (lambda q, p, mu: length_gradient(q), 2),
        (lambda q, p, mu: kl_variances(q, p), 3),
    ],
    ids=["prefix", "lengths", "variances"],
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
    ("no common support", lambda: prefix_weighted_gradient(Q, Q, EXCLUDES)),
    ("state 1, symbol 1", lambda: prefix_weighted_gradient(Q, EXCLUDES, Q)),
    ("(2, 1, 4) and (3, 1, 4)", lambda: prefix_weighted_gradient(Q, Q, WIDER)),
    ("no common support", lambda: token_weighted_field(EXCLUDES, EXCLUDES, Q)),
    ("models differ", lambda: token_weighted_field(Q, WIDER, Q)),
    ("field 'k1'", lambda: jacobian("k1", Q, Q)),
    ("no common support", lambda: jacobian("kl", EXCLUDES, Q)),
    ("models differ", lambda: jacobian("k3", Q, LONGER)),
    ("estimator_moments: 'best'", lambda: estimator_moments(Q, Q, "best")),
    ("no common support", lambda: estimator_moments(Q, EXCLUDES, "vanilla")),
    ("too many sequences",
        lambda: estimator_moments(*[random_autoregressive(0, 2, 1, 40)] * 2, "sampled")),
    ("models differ", lambda: kl_variances(Q, LONGER)),
    ("no common support", lambda: kl_variances(Q, EXCLUDES)),
    ("loss 'k1'", lambda: asymmetric_entries("k1")),
    ("a = 1/2", lambda: offset_variances(Fraction(1, 2))),
    ("a = 0", lambda: offset_variances(Fraction(0))),
]  # fmt: skip


@pytest.mark.parametrize("message, call", REFUSED)
def test_refusals_are_one_line(message, call):
    with pytest.raises(UsageError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 140
