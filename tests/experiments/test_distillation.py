"""Stacks of policies against the exact oracle, expectations by enumeration, and what the runs show."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.experiments.distillation import models as stacks
from klsym.experiments.distillation.experiment import BASE, CLAIMS, OTHERS, STEPS, compare, figure8, run
from klsym.experiments.distillation.models import ESTIMATORS, Space, draw, estimate
from klsym.experiments.distillation.reward import ascend, optimum, payoff
from klsym.experiments.distillation.runs import FIELDS, Adam, Setup, descend, noise, start
from klsym.experiments.softmax import centred, snap
from klsym.experiments.softmax import log_softmax as softmax
from klsym.study.sequences import autoregressive

EXACT = 1e-12  # difference of two exact computations, relative to 1 + the largest entry
SPACES = [  # vocabulary, memory, student_memory, max_length
    (2, 0, 0, 4), (2, 1, 1, 5), (2, 2, 2, 5), (3, 1, 1, 4), (1, 2, 2, 4), (2, 1, 0, 4), (2, 2, 1, 5),
    (2, 2, 0, 4), (3, 2, 1, 4), (2, 3, 1, 5), (2, 1, 1, 2),
]  # fmt: skip
EVERY = pytest.mark.parametrize("shape", SPACES, ids=str)


def log_softmax(logits):
    return softmax(logits, axis=1)


def states_of(space):
    """The tokens each state remembers, in the stated order: by length, then as digits."""
    return [p for length in range(space.memory + 1) for p in product(range(space.vocabulary), repeat=length)]


def rows_of(space):
    """Row of each state: the last student_memory tokens, or all while there are fewer."""
    short = [p for p in states_of(space) if len(p) <= space.student_memory]
    return [short.index(p[max(len(p) - space.student_memory, 0) :]) for p in states_of(space)]


def stack(space, models=3, seed=0):
    stream = np.random.default_rng(seed)
    rows = len(set(rows_of(space)))
    return (
        log_softmax(stream.normal(size=(rows, space.symbols, models))),
        log_softmax(1.5 * stream.normal(size=(space.states, space.symbols, models))),
    )


def oracle(space, log_q, log_p, m):
    """The two models of one member of a stack, as the oracle has them."""
    tables = log_q[rows_of(space), :, m], log_p[:, :, m]
    return [autoregressive.Autoregressive(t, space.memory, space.max_length) for t in tables]


def added_up(space, field):
    found = np.zeros((len(set(rows_of(space))), space.symbols))
    np.add.at(found, rows_of(space), field)
    return found


def assert_close(found, expected, tolerance=EXACT):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * (1 + np.abs(expected).max())


# ---------------------------------------------------------------------------- exactly
@EVERY
def test_states_and_rows(shape):
    space = Space(*shape)
    whole = autoregressive.random_autoregressive(0, space.vocabulary, space.memory, space.max_length)
    assert space.successors.tolist() == whole.successors.tolist()
    assert space.rows.tolist() == rows_of(space) and space.states == whole.states


@EVERY
def test_exact_quantities_are_those_of_each_member(shape):
    space = Space(*shape)
    log_q, log_p = stack(space)
    kl, gradient = stacks.exact(space, log_q, log_p)
    visits = stacks.occupations(space, np.exp(log_q)[space.rows])
    for m in range(3):
        q, p = oracle(space, log_q, log_p, m)
        assert_close(visits[:, :, m], autoregressive.compute_occupations(q))
        value, full = autoregressive.compute_sequence_kl(q, p)
        assert_close(kl[m], value)
        assert_close(gradient[:, :, m], added_up(space, full))
        for loss in ("k2", "k3"):
            expected = added_up(space, autoregressive.compute_token_gradient(q, p, loss))
            assert_close(stacks.token_field(space, log_q, log_p, loss)[:, :, m], expected)
    assert_close(stacks.sequence_kl(space, log_q, log_p), kl)


# ---------------------------------------------------------------------------- estimates


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (2, 0, 0, 4), (2, 2, 1, 4), (3, 1, 0, 3)], ids=str)
def test_estimates_against_the_definition(name, shape):
    """The same draws, summed token by token with the oracle's scores."""
    space = Space(*shape)
    log_q, log_p = stack(space, models=1)
    q, p = oracle(space, log_q, log_p, 0)
    n, u = 8, np.random.default_rng(5).random((space.max_length - 1, 8, 1))
    every = autoregressive.enumerate_sequences(q)
    grid = [drawn_symbols(q, u[:, i, 0]) for i in range(n)]
    rows = [[tuple(s[s >= 0]) for s in every.symbols].index(symbols) for symbols in grid]
    y = autoregressive.Sequences(every.symbols[rows], every.lengths[rows])
    assert len(set(y.lengths.tolist())) > 1
    scores = autoregressive.compute_token_scores(q, y)
    ratio = autoregressive.compute_token_log_probabilities(
        q, y
    ) - autoregressive.compute_token_log_probabilities(p, y)
    total = ratio.sum(axis=1)
    others = np.array([total[[j for j in range(n) if j != i]].mean() for i in range(n)])
    weights = {
        "token k3": 1 - np.exp(-ratio),
        "token vanilla": ratio,
        "sequence vanilla": np.tile(total[:, None], ratio.shape[1]),
        "leave-one-out": np.tile((total - others)[:, None], ratio.shape[1]),
        "cumulative": np.flip(np.cumsum(np.flip(ratio, 1), axis=1), 1),
    }[name]
    expected = np.einsum("it,itsa->sa", weights, scores) / n
    assert_close(estimate(space, log_q, log_p, name, u)[:, :, 0], added_up(space, expected))


def drawn_symbols(model, u):
    """Inversion as in the definition, one symbol at a time, the forced stop included."""
    state, symbols = 0, []
    for t in range(model.max_length):
        below = np.cumsum(model.probabilities[state])
        symbol = int((u[t] >= below[:-1]).sum()) if t < model.max_length - 1 else model.stop
        symbols.append(symbol)
        if symbol == model.stop:
            break
        state = model.successors[state, symbol]
    return tuple(symbols)


def test_models_of_one_column_share_their_uniforms():
    space = Space(2, 1, 1, 6)
    log_q, log_p = stack(space, models=2)
    u = np.random.default_rng(0).random((5, 4, 2))
    twice = estimate(space, np.tile(log_q, 3), np.tile(log_p, 3), "cumulative", u)
    assert_close(twice, np.tile(estimate(space, log_q, log_p, "cumulative", u), 3))


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=6))
def test_centred_is_each_less_the_mean_of_the_others(values):
    found = centred(np.array(values)[:, None])[:, 0]
    for i, value in enumerate(values):
        others = [v for j, v in enumerate(values) if j != i]
        assert found[i] == pytest.approx(value - sum(others) / len(others), abs=1e-9)


@given(st.floats(-1e6, 1e6))
def test_snap_is_close_and_idempotent(value):
    once = snap(np.array(value))
    assert abs(once - value) <= 2.0**-21 and snap(once) == once


# ---------------------------------------------------------------------------- descents
TINY = Setup("tiny", vocabulary=2, memory=1, student_memory=1, max_length=5, iterations=40)


@pytest.mark.parametrize("name", FIELDS)
def test_descents_descend_and_repeat(name):
    found = descend(TINY, name, [0.1, 0.3], 30, seed=1, record=[0])
    assert np.array_equal(found, descend(TINY, name, [0.1, 0.3], 30, seed=1, record=[0]))
    assert (found[-1].mean(axis=-1) < 0.8 * found[0].mean(axis=-1)).all()


def test_one_exact_step_is_a_gradient_step():
    setup = Setup("one", vocabulary=2, memory=1, student_memory=1, max_length=5, iterations=1)
    logits, log_p = start(setup, 2, seed=0)
    gradient = stacks.exact(setup.space, log_softmax(logits), log_p)[1]
    after = stacks.sequence_kl(setup.space, log_softmax(logits - 0.2 * gradient), log_p)
    assert_close(descend(setup, "exact gradient", [0.2], 2, seed=0)[-1, 0], after, 1e-5)  # logits are rounded


def test_the_last_bits_of_the_start_do_not_change_a_run(monkeypatch):
    """Runs are rounded to a grid, so that machines whose exp differs in the last bit agree."""
    from klsym.experiments.distillation import runs as distillation_runs

    plain = descend(TINY, "sequence vanilla", [3.0], 20, seed=0)

    def nudged(setup, repeats, seed):
        logits, log_p = start(setup, repeats, seed)
        return logits * (1 + 1e-14), log_p

    monkeypatch.setattr(distillation_runs, "start", nudged)
    assert np.allclose(descend(TINY, "sequence vanilla", [3.0], 20, seed=0), plain, rtol=1e-9)


def test_starts():
    near = Setup("near", memory=1, student_memory=1, near=True, policy=0.0)
    logits, log_p = start(near, 4, seed=0)
    moved = log_softmax(logits) - log_p
    assert np.ptp(moved[:, :-1], axis=1).max() < 1e-12  # p's own, but for stop
    assert start(TINY, 4, 0)[0].shape == (3, 3, 4) and not np.array_equal(
        *(start(TINY, 4, s)[0] for s in (0, 1))
    )


def test_adam_against_its_definition():
    gradients = np.random.default_rng(0).normal(size=(5, 3))
    adam = Adam()
    found = [adam.scaled(g) for g in gradients][-1]
    first = sum(0.1 * 0.9 ** (4 - i) * g for i, g in enumerate(gradients)) / (1 - 0.9**5)
    second = sum(0.001 * 0.999 ** (4 - i) * g**2 for i, g in enumerate(gradients)) / (1 - 0.999**5)
    assert_close(found, first / (np.sqrt(second) + 1e-8), 1e-9)


def test_noise_over_signal_against_other_draws():
    found = noise(TINY, 2, seed=3, draws=1000)
    logits, log_p = start(TINY, 2, 3)
    log_q, many = log_softmax(logits), 4000
    true = stacks.exact(TINY.space, log_q, log_p)[1]
    ratios = []
    for m in range(2):
        u = np.random.default_rng(m).random((4, 4, many))
        wide = (np.repeat(x[:, :, m : m + 1], many, axis=2) for x in (log_q, log_p))
        drawn = estimate(TINY.space, *wide, "leave-one-out", u)
        square = ((drawn - drawn.mean(axis=2, keepdims=True)) ** 2).sum(axis=(0, 1)).mean()
        ratios.append(np.sqrt(square / (true[:, :, m] ** 2).sum()))
    assert found["leave-one-out"][0] == pytest.approx(np.mean(ratios), rel=0.1)
    assert found["leave-one-out"][1] == pytest.approx(1) and found["token k3"][1] < 1


# ---------------------------------------------------------------------------- comparisons
def test_compare_and_its_error():
    stream = np.random.default_rng(0)
    final = np.exp(0.1 * stream.normal(size=(5, 2, 400)))
    final[3, 1] *= 0.5  # leave-one-out at the second step
    found = compare(final, "leave-one-out", "sequence vanilla", at=(1, 0))
    assert found.log_ratio == pytest.approx(np.log(0.5), abs=0.03) and found.verdict == 1
    assert found.error == pytest.approx(0.1 * np.sqrt(2) / 20, rel=0.2)
    assert compare(final, "sequence vanilla", "leave-one-out", at=(0, 1)).verdict == -1
    assert compare(final, "token k3", "token vanilla", at=(0, 0)).verdict == 0


def test_best_and_common_steps():
    runs = run(TINY, tuple(ESTIMATORS), 10, 0, (0,))
    share = runs.kl[:, -1].mean(axis=-1) / runs.kl[:, 0].mean(axis=-1)
    assert [share[i, b] for i, b in enumerate(runs.best)] == share.min(axis=1).tolist()
    assert runs.common == min(range(len(STEPS)), key=lambda j: np.prod(share[:, j]))
    assert len(runs.comparisons(own=True)) == len(CLAIMS)


# ---------------------------------------------------------------------------- the experiment
@pytest.fixture(scope="module")
def data():
    seen = []
    found = figure8(
        repeats=40, other_repeats=10, others=(OTHERS[0], OTHERS[-1]), progress=lambda *x: seen.append(x)
    )
    assert seen == [(i, 5) for i in range(1, 6)]
    return found


def test_out_of_reach_the_sequence_estimates_end_lowest(data):
    out = data.base[0]
    token = [out.lowest(name) for name in ("token k3", "token vanilla")]
    assert max(out.lowest(name) for name in ("leave-one-out", "cumulative")) < 0.8 * min(token)
    assert out.lowest("exact gradient") < 0.6 * min(
        out.lowest(f"expected token {k}") for k in ("k3", "vanilla")
    )


def test_within_reach_the_token_losses_end_lowest(data):
    within = data.base[1]
    sequence = [within.lowest(name) for name in ("sequence vanilla", "leave-one-out", "cumulative")]
    assert max(within.lowest(name) for name in ("token k3", "token vanilla")) < 0.5 * min(sequence)
    mark = "shows the same on a small model, but not with the reference within reach"
    assert data.findings[0].holds and data.findings[0].mark == mark


def test_a_small_model_confirms_and_contradicts_nothing_about_language_models(data):
    said = [finding for finding in data.findings if finding.paper]
    assert len(said) > 10 and all(finding.stand_in and finding.outcome for finding in said)
    marks = {finding.mark.partition(",")[0] for finding in said}
    assert marks == {f"shows {words} on a small model" for words in ("the same", "otherwise")}


def test_the_sentence_on_token_k3_is_tested(data):
    (found,) = [finding for finding in data.findings if "little progress" in finding.paper]
    assert found.holds and found.agrees is False
    still = [replace(runs, kl=np.repeat(runs.kl[:, :1], runs.kl.shape[1], axis=1)) for runs in data.base]
    (other,) = [f for f in replace(data, base=tuple(still)).findings if "little progress" in f.paper]
    assert other.agrees and not other.holds


def test_findings_and_table(data):
    assert len(data.findings) == 13 and all(
        finding.text and "\n" not in finding.text for finding in data.findings
    )
    header, rows = data.table()
    assert len(rows) == 4 and all(len(row) == len(header) for row in rows)
    assert "\n" not in data.setup and "n = 4" in data.setup


def test_the_same_seed_gives_the_same_numbers(data):
    base = tuple(replace(setup, iterations=4) for setup in BASE)
    small = {"repeats": 3, "other_repeats": 2, "others": (), "base": base}
    assert figure8(**small).table() == figure8(**small).table() != figure8(seed=1, **small).table()


# ---------------------------------------------------------------------------- refusals
SPACE = Space(2, 1, 1, 4)
LOG_Q, LOG_P = stack(SPACE)
U = np.random.default_rng(0).random((3, 4, 3))
REFUSED = {
    "no tokens": (lambda: Space(0, 1, 1, 4), "at least 1, 0, 0, 2"),
    "policy sees more": (lambda: Space(2, 1, 2, 4), "more than memory"),
    "too short": (lambda: Space(2, 1, 1, 1), "at least"),
    "fractional": (lambda: Space(2, 1.5, 1, 4), "whole numbers"),
    "true": (lambda: Space(True, 1, 1, 4), "whole numbers"),
    "nan logits": (lambda: log_softmax(np.full((1, 3, 1), np.nan)), "finite"),
    "infinite logits": (lambda: log_softmax(np.full((1, 3, 1), -np.inf)), "finite"),
    "other rows": (lambda: stacks.exact(SPACE, LOG_Q[:2], LOG_P), "shapes"),
    "other models": (lambda: stacks.exact(SPACE, LOG_Q[:, :, :2], LOG_P), "shapes"),
    "other states": (lambda: stacks.sequence_kl(SPACE, LOG_Q, LOG_P[:2]), "shapes"),
    "other symbols": (lambda: estimate(SPACE, LOG_Q, LOG_P[:, :2], "cumulative", U), "shapes"),
    "unknown loss": (lambda: stacks.token_field(SPACE, LOG_Q, LOG_P, "k1"), "'k2' or 'k3'"),
    "unknown estimator": (lambda: estimate(SPACE, LOG_Q, LOG_P, "k3", U), "one of token k3"),
    "one sequence": (lambda: estimate(SPACE, LOG_Q, LOG_P, "leave-one-out", U[:, :1]), "2 or more"),
    "uniforms too short": (lambda: draw(SPACE, np.exp(LOG_Q), U[:2]), "uniforms"),
    "uniforms too wide": (lambda: draw(SPACE, np.exp(LOG_Q), U[:, :, :2]), "uniforms"),
    "near out of reach": (lambda: Setup("x", near=True), "near needs"),
    "n is 0": (lambda: Setup("x", n=0), "1 or more"),
    "no iterations": (lambda: Setup("x", iterations=0), "1 or more"),
    "nan spread": (lambda: Setup("x", policy=float("nan")), "finite numbers"),
    "spread is text": (lambda: Setup("x", policy="1"), "finite numbers"),
    "one repeat": (lambda: figure8(repeats=1), "at least 0 and 2"),
    "no repeats": (lambda: figure8(repeats=0), "at least 0 and 2"),
    "no other repeats": (lambda: figure8(other_repeats=0), "at least 0 and 2"),
    "negative seed": (lambda: figure8(seed=-1), "at least 0 and 2"),
    "base the wrong way round": (lambda: figure8(base=(TINY, TINY)), "out of reach and one within"),
    "unknown field": (lambda: descend(TINY, "k3", [0.1], 2, 0), "one of token k3"),
    "no steps": (lambda: descend(TINY, "cumulative", [], 2, 0), "positive"),
    "step of 0": (lambda: descend(TINY, "cumulative", [0.0], 2, 0), "positive"),
    "nan step": (lambda: descend(TINY, "cumulative", [float("nan")], 2, 0), "positive"),
    "leave-one-out alone": (lambda: descend(Setup("x", n=1), "leave-one-out", [0.1], 2, 0), "2 or more"),
    "beta of 0": (lambda: optimum(SPACE, LOG_P, payoff(SPACE), 0.0), "positive"),
    "negative beta": (lambda: ascend(TINY, "token k3", [-1.0], 2, 0), "positive"),
    "unknown loss in the reward": (lambda: ascend(TINY, "cumulative", [1.0], 2, 0), "one of token vanilla"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, words = REFUSED[name]
    with pytest.raises(UsageError) as error:
        call()
    assert words in str(error.value) and "\n" not in str(error.value)
