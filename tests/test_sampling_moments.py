"""Moments of blocks, of counts and of merged parts, against exact arithmetic.

The oracle is rational: every float is a fraction, so the true mean and comoment of the given floats are
known without rounding.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import subprocess
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.sampling.backends import Backend, backend
from klsym.sampling.moments import PIECE, TILE, Accumulator, Moments
from klsym.sampling.streams import Stream

NUMPY = Backend("numpy")
EPS = 2.0**-52


def exact(values, counts=None):
    """Mean and comoment as fractions."""
    rows = [[Fraction(float(x)) for x in row] for row in values]
    n = [1] * len(rows[0]) if counts is None else [int(c) for c in counts]
    total = sum(n)
    means = [sum(c * x for c, x in zip(n, row, strict=True)) / total for row in rows]
    shifted = [[x - mean for x in row] for row, mean in zip(rows, means, strict=True)]
    comoment = [[sum(c * x * y for c, x, y in zip(n, a, b, strict=True)) for b in shifted] for a in shifted]
    return means, comoment


def errors(found: Moments, means, comoment):
    """The largest errors: of the mean in units of |mean|, of the comoment in units of its diagonal."""
    k = range(len(means))
    of_mean = max(abs(Fraction(found.mean[i]) - means[i]) / (abs(means[i]) or 1) for i in k)
    scale = [[math.sqrt(comoment[i][i] * comoment[j][j]) or 1.0 for j in k] for i in k]
    of_comoment = max(
        float(abs(Fraction(found.comoment[i, j]) - comoment[i][j])) / scale[i][j] for i in k for j in k
    )
    return float(of_mean), of_comoment


def normals(seed, shape, mean=0.0, deviation=1.0):
    return mean + deviation * np.random.default_rng(seed).standard_normal(shape)


# ---------------------------------------------------------------------------- one block
@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [2, 3, 100, TILE - 1, TILE, TILE + 1, 3 * TILE + 17, PIECE, PIECE + 1, 70_001])
def test_a_block_agrees_with_numpy(k, n):
    values = np.linspace(0.5, 2, k)[:, None] * normals(n, (k, n), 3.0) + normals(1, n)
    found = Moments.of(values, NUMPY)
    assert found.count == n and found.mean.shape == (k,) and found.comoment.shape == (k, k)
    np.testing.assert_allclose(found.mean, values.mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(found.covariance, np.cov(values, ddof=1).reshape(k, k), rtol=1e-12)
    np.testing.assert_allclose(found.standard_error, values.std(axis=1, ddof=1) / math.sqrt(n), rtol=1e-12)
    assert (found.comoment == found.comoment.T).all()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("plain", normals(0, (2, 1500))),
        ("mean 1e9, sd 1e-3", normals(1, (2, 1500), 1e9, 1e-3)),
        ("mean -1e15, sd 1", normals(2, (2, 1500), -1e15, 1.0)),
        ("tiny", normals(3, (2, 1500), 1e-150, 1e-152)),
        ("one far away", np.where(np.arange(1500) == 1400, 1e6, normals(4, (2, 1500)))),
        ("sorted", np.sort(normals(5, (2, 2000), 1e6, 10.0))),
        ("heavy tails", np.exp(5 * normals(6, (2, 1500)))),
        ("equal rows", np.stack([normals(7, 1500)] * 2)),
    ],
)
def test_a_block_is_right_to_rounding(name, values):
    means, comoment = exact(values)
    of_mean, of_comoment = errors(Moments.of(values, NUMPY), means, comoment)
    size = float(max(np.abs(values).max(axis=1) / np.abs(np.array(means, dtype=float))))
    assert of_mean <= 4 * EPS * max(1.0, size) and of_comoment <= 60 * EPS


def test_the_textbook_formula_fails_where_ours_holds():
    x = normals(1, 1500, 1e9, 1e-3)
    [[true]] = exact([x])[1]
    naive = (x**2).sum() - len(x) * x.mean() ** 2
    assert abs(naive - float(true)) > 10 * true
    assert abs(Moments.of(x[None], NUMPY).comoment[0, 0] - float(true)) < 1e-13 * true


def test_an_outlier_that_comes_first_costs_no_more_than_stated():
    values = normals(3, (1, 3000))
    values[:, :TILE] += 1e8  # the shift is far from everything else
    of_mean, of_comoment = errors(Moments.of(values, NUMPY), *exact(values))
    assert of_mean <= 8 * EPS and of_comoment <= 3000 * EPS


@pytest.mark.parametrize("value", [0.0, 0.1, -1e300, 1e9 / 3])
def test_a_constant_is_its_own_mean_without_variance(value):
    found = [Moments.of(np.full((2, n), value), NUMPY) for n in (1, 7, 5000, 2 * PIECE + 3)]
    found += [found[2].merge(found[3])]
    for name in ("numpy", "torch", "jax"):
        if importlib.util.find_spec(name):
            on = backend(name, "cpu")
            found.append(as_on_a_gpu(on, np.full((2, 5000), value)))
    for moments in found:
        assert moments.mean.tolist() == [value, value] and not moments.comoment.any()


def as_on_a_gpu(on, values):
    """The moments by the path for other devices, on the CPU."""
    sums = Accumulator(on)
    sums._total = sums._sums_on_device([on.asarray(row) for row in values])
    sums.count = values.shape[1]
    return sums.moments()


@pytest.mark.parametrize("sizes", [(1, 1, 5), (1500, 3000, 7), (TILE, PIECE + 3)])
def test_blocks_add_up_to_one_block(sizes):
    values = normals(3, (3, sum(sizes)), 5.0, 2.0)
    sums, at = Accumulator(NUMPY), 0
    for size in sizes:
        sums.add(list(values[:, at : at + size]))
        at += size
    found, whole = sums.moments(), Moments.of(values, NUMPY)
    assert found.count == whole.count == sum(sizes)
    assert np.allclose(found.mean, whole.mean, rtol=1e-14, atol=0)
    assert np.allclose(found.comoment, whole.comoment, rtol=1e-12, atol=1e-12)


def test_no_block_has_no_moments():
    with pytest.raises(UsageError, match="no samples"):
        Accumulator(NUMPY).moments()


def test_ten_million_float32_values_are_summed_in_float64():
    """Floats between 8192 and 16384 are multiples of 2^-10, so that integers give the exact sums."""
    n, mean = 10_000_000, 10_000
    x = np.random.default_rng(8).standard_normal((1, n), dtype=np.float32) + np.float32(mean)
    steps = np.rint((x[0].astype(np.float64) - mean) * 1024).astype(np.int64)
    assert (steps / 1024 + mean == x[0]).all()
    first, second = int(steps.sum()), int((steps * steps).sum())
    true_mean = mean + Fraction(first, 1024 * n)
    true_comoment = (second - Fraction(first**2, n)) / 1024**2
    blocks = [Moments.of(x[:, i : i + 2**15], Backend("numpy", dtype="float32")) for i in range(0, n, 2**15)]
    for found in (Moments.of(x, NUMPY), functools.reduce(Moments.merge, blocks)):
        assert found.count == n and found.mean.dtype == np.float64
        assert abs(Fraction(found.mean[0]) / true_mean - 1) < 1e-14
        assert abs(Fraction(found.comoment[0, 0]) / true_comoment - 1) < 1e-13


@pytest.mark.parametrize("view", [lambda x: x[:, ::3], lambda x: x[::-1], lambda x: np.asfortranarray(x)])
def test_the_layout_of_a_block_does_not_matter(view):
    values = view(normals(9, (3, 9000)))
    plain = Moments.of(np.ascontiguousarray(values), NUMPY)
    found = Moments.of(values, NUMPY)
    np.testing.assert_allclose(found.comoment, plain.comoment, rtol=1e-13)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 5000])
def test_a_value_that_is_not_finite_shows_in_its_row_only(bad, at):
    values = normals(10, (2, 6000))
    values[0, at] = bad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Moments.of(values, NUMPY)
        merged = found.merge(Moments.of(normals(1, (2, 10)), NUMPY))
    for moments in (found, merged):
        assert not np.isfinite(moments.mean[0]) and np.isnan(moments.comoment[0]).all()
        assert np.isfinite(moments.mean[1]) and np.isfinite(moments.comoment[1, 1])


@pytest.mark.parametrize("shape", [(5,), (0, 5), (2, 0), (1, 2, 3), ()])
def test_other_shapes_are_refused(shape):
    with pytest.raises(UsageError, match=r"^moments: values of shape \(k, n\) expected, got "):
        Moments.of(np.zeros(shape), NUMPY)


def test_one_sample_has_a_mean_and_no_covariance():
    found = Moments.of(np.array([[3.0], [4.0]]), NUMPY)
    assert found.mean.tolist() == [3.0, 4.0] and not found.comoment.any()
    for attribute in ("covariance", "standard_error"):
        with pytest.raises(UsageError, match="at least 2 samples, got 1"):
            getattr(found, attribute)


# ---------------------------------------------------------------------------- bits
def bits(moments: Moments) -> tuple[int, str, str]:
    return moments.count, moments.mean.tobytes().hex(), moments.comoment.tobytes().hex()


BITS = """
import numpy as np
from klsym.sampling.backends import Backend
from klsym.sampling.moments import Moments
for k in (1, 2, 3, 8, 40):
    for n in (1000, 32768, 70_000):
        found = Moments.of(np.random.default_rng(n).standard_normal((k, n)), Backend("numpy"))
        print(k, n, found.mean.tobytes().hex(), found.comoment.tobytes().hex())
"""


def test_the_number_of_threads_changes_no_bit():
    """A plain x @ x.T does not pass: OpenBLAS shares long products out among its threads."""
    printed = set()
    for threads in ("1", "4"):
        several = {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", BITS], env=os.environ | several, capture_output=True, text=True, check=True
        )
        printed.add(done.stdout)
    assert len(printed) == 1 and printed.pop().count("\n") == 15


@pytest.mark.parametrize("name", ["torch", "jax"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_backend_on_the_cpu_gives_the_same_bits(name, dtype):
    pytest.importorskip(name)
    host, other = Backend("numpy", dtype=dtype), backend(name, "cpu", dtype)
    values = host.normals(Stream(4), (3, 40_000)) + 7
    assert bits(Moments.of(other.asarray(values), other)) == bits(Moments.of(values, host))


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1e4, 1.0), (-3.0, 1e-3)])
def test_what_a_gpu_would_do_is_right_too(name, dtype, mean, deviation):
    """The path for other devices, on the CPU."""
    pytest.importorskip(name)
    on = backend(name, "cpu", dtype)
    values = normals(11, (2, 1500), mean, deviation).astype(dtype)
    found = as_on_a_gpu(on, values)
    means, comoment = exact(values)
    of_mean, of_comoment = errors(found, means, comoment)
    size = float(max(np.abs(values).max(axis=1) / np.abs(np.array(means, dtype=float))))
    assert of_mean <= 4 * EPS * max(1.0, size) and of_comoment <= 60 * EPS
    assert (found.comoment == found.comoment.T).all() and found.mean.dtype == np.float64


# ---------------------------------------------------------------------------- merging
FLOATS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: x + 1e7)


@given(st.lists(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=6), min_size=2, max_size=6))
def test_merging_in_any_order_gives_the_moments_of_all(parts):
    values = np.array([pair for part in parts for pair in part]).T
    means, comoment = exact(values)
    blocks = [Moments.of(np.array(part).T, NUMPY) for part in parts]
    left = functools.reduce(Moments.merge, blocks)
    right = functools.reduce(lambda a, b: b.merge(a), reversed(blocks))
    turned = functools.reduce(Moments.merge, reversed(blocks))
    for found in (left, right, turned):
        assert found.count == values.shape[1]
        # About a mean of 1e7, whose own rounding the comoment inherits.
        allowed = 1e7 * EPS * 8
        for i in range(2):
            assert abs(Fraction(found.mean[i]) - means[i]) <= allowed
            for j in range(2):
                scale = math.sqrt(float(comoment[i][i])), math.sqrt(float(comoment[j][j]))
                n = math.sqrt(found.count)
                slack = 50 * EPS * scale[0] * scale[1] + 4 * n * allowed * (sum(scale) + n * allowed)
                assert abs(Fraction(found.comoment[i, j]) - comoment[i][j]) <= slack
    assert bits(left) == bits(functools.reduce(Moments.merge, blocks))


def test_merging_keeps_what_cancels():
    values = normals(12, (2, 2000), 1e9, 1e-3)
    parts = [Moments.of(values[:, i : i + 100], NUMPY) for i in range(0, 2000, 100)]
    means, comoment = exact(values)
    of_mean, of_comoment = errors(functools.reduce(Moments.merge, parts), means, comoment)
    # Means near 1e9 are multiples of 2^-23, so each delta, here below 4e-4, is off by 2^-23 at most, and
    # each of the 19 merges weighs its square by fewer than 100 samples.
    allowed = 19 * 100 * 2 * 4e-4 * 2.0**-23 / float(comoment[0][0])
    assert of_mean <= 2 * EPS and of_comoment <= allowed < 1e-4


def test_one_sample_beside_ten_to_the_fifteen():
    many = Moments(10**15 - 1, np.array([2.0]), np.array([[0.0]]))
    both = many.merge(Moments.of(np.array([[5.0]]), NUMPY))
    [mean], [[comoment]] = exact([[2.0, 5.0]], [10**15 - 1, 1])
    assert both.count == 10**15 and both.mean[0] == float(mean)
    assert both.comoment[0, 0] == pytest.approx(float(comoment), rel=1e-15)


def test_different_rows_do_not_merge():
    one, two = (Moments.of(np.ones((k, 3)), NUMPY) for k in (1, 2))
    with pytest.raises(UsageError, match="1 and 2 rows do not merge"):
        one.merge(two)
