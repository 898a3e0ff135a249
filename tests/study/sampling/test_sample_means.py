"""SampleMeans of blocks and of merged parts, against exact arithmetic: every float is a fraction."""

from __future__ import annotations

import functools
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
from klsym.study.sampling.backends import Backend, choose_backend
from klsym.study.sampling.sample_means import SampleMeans, _sum_on_device
from klsym.study.sampling.streams import Stream

NUMPY = Backend("numpy")
EPS = 2.0**-52


def exact(values):
    """The means as fractions."""
    return [sum(Fraction(float(x)) for x in row) / len(row) for row in values]


def error(means, values):
    """The largest error of a mean, in units of the mean of |x|."""
    pairs = zip(means, exact(values), exact(np.abs(values)), strict=True)
    return max(float(abs(Fraction(float(found)) - true) / (size or 1)) for found, true, size in pairs)


def normals(seed, shape, mean=0.0, deviation=1.0):
    return mean + deviation * np.random.default_rng(seed).standard_normal(shape)


# ---------------------------------------------------------------------------- one block
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("plain", normals(0, (2, 15_000))),
        ("one sample", normals(1, (3, 1))),
        ("mean 1e9, sd 1e-3", normals(1, (2, 1500), 1e9, 1e-3)),
        ("tiny", normals(3, (2, 1500), 1e-150, 1e-152)),
        ("one far away", np.where(np.arange(1500) == 1400, 1e6, normals(4, (2, 1500)))),
        ("sorted", np.sort(normals(5, (2, 2000), 1e6, 10.0))),
        ("heavy tails", np.exp(5 * normals(6, (2, 1500)))),
        ("every third", normals(9, (3, 9000))[:, ::3]),
        ("backwards", normals(9, (3, 9000))[::-1]),
        ("by columns", np.asfortranarray(normals(9, (3, 9000)))),
        ("zero", np.zeros((1, 7))),
    ],
)
def test_a_block_is_right_to_rounding(name, values):
    found = SampleMeans.from_rows(values, NUMPY)
    assert found.count == values.shape[1] and found.mean.dtype == np.float64
    assert error(found.mean, values) <= 16 * EPS


def test_a_sum_taken_one_by_one_would_not_do():
    values = np.full((1, 2**15), 0.1)
    assert error(np.cumsum(values, axis=1)[:, -1] / 2**15, values) > 1000 * EPS
    assert error(SampleMeans.from_rows(values, NUMPY).mean, values) <= 4 * EPS


def test_ten_million_float32_values_are_summed_in_float64():
    """Floats between 8192 and 16384 are multiples of 2^-10, so that integers give the exact sum."""
    n, mean = 10_000_000, 10_000
    x = np.random.default_rng(8).standard_normal((1, n), dtype=np.float32) + np.float32(mean)
    steps = np.rint((x[0].astype(np.float64) - mean) * 1024).astype(np.int64)
    assert (steps / 1024 + mean == x[0]).all()
    true = mean + Fraction(int(steps.sum()), 1024 * n)
    blocks = [
        SampleMeans.from_rows(x[:, i : i + 2**15], Backend("numpy", dtype="float32"))
        for i in range(0, n, 2**15)
    ]
    for found in (SampleMeans.from_rows(x, NUMPY), functools.reduce(SampleMeans.merge, blocks)):
        assert found.count == n and abs(Fraction(found.mean[0]) / true - 1) < 1e-14


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 5000])
def test_a_value_that_is_not_finite_shows_in_its_row_only(bad, at):
    values = normals(10, (2, 6000))
    values[0, at] = bad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = SampleMeans.from_rows(values, NUMPY)
        against = SampleMeans.from_rows(np.where(np.isfinite(values), values, -bad), NUMPY)
        for means in (found, found.merge(found), found.merge(against)):
            assert not np.isfinite(means.mean[0]) and np.isfinite(means.mean[1])


ONE, TWO = (SampleMeans.from_rows(np.ones((k, 3)), NUMPY) for k in (1, 2))
SHAPES = (*map(np.zeros, [(0, 5), (2, 0), (1, 2, 3), (5, 1, 1)]), [np.zeros(3), np.zeros(4)])
REFUSED = [
    *((lambda rows=rows: SampleMeans.from_rows(rows, NUMPY),
       "^sample means: rows of one length, 1 or more, exp")
      for rows in SHAPES),
    (lambda: ONE.merge(TWO), "1 and 2 rows do not merge"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), REFUSED)
def test_refusals(make, reason):
    with pytest.raises(UsageError, match=reason):
        make()


# ---------------------------------------------------------------------------- bits
def bits(means: SampleMeans) -> tuple[int, str]:
    return means.count, means.mean.tobytes().hex()


BITS = """
import numpy as np
from klsym.study.sampling.backends import Backend
from klsym.study.sampling.sample_means import SampleMeans
for k in (1, 2, 3, 8, 40):
    for n in (1000, 32768, 70_000):
        values = np.random.default_rng(n).standard_normal((k, n))
        print(k, n, SampleMeans.from_rows(values, Backend()).mean.tobytes().hex())
"""


def test_the_number_of_threads_changes_no_bit():
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
    host, other = Backend("numpy", dtype=dtype), choose_backend(name, "cpu", dtype)
    values = host.draw_normals(Stream(4), (3, 40_000)) + 7
    assert bits(SampleMeans.from_rows(other.asarray(values), other)) == bits(
        SampleMeans.from_rows(values, host)
    )


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1e4, 1.0), (-3.0, 1e-3)])
def test_what_a_gpu_would_do_is_right_too(name, dtype, mean, deviation):
    """The path for other devices, on the CPU."""
    pytest.importorskip(name)
    on = choose_backend(name, "cpu", dtype)
    values = normals(11, (2, 1500), mean, deviation).astype(dtype)
    found = _sum_on_device([on.asarray(row) for row in values], on)
    assert found.dtype == np.float64 and error(found / values.shape[1], values) <= 16 * EPS


# ---------------------------------------------------------------------------- merging
FLOATS = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=6), min_size=2, max_size=6))
def test_merging_in_any_order_gives_the_means_of_all(parts):
    values = np.array([pair for part in parts for pair in part]).T
    blocks = [SampleMeans.from_rows(np.array(part).T, NUMPY) for part in parts]
    left = functools.reduce(SampleMeans.merge, blocks)
    right = functools.reduce(lambda a, b: b.merge(a), reversed(blocks))
    turned = functools.reduce(SampleMeans.merge, reversed(blocks))
    for found in (left, right, turned):
        assert found.count == values.shape[1] and error(found.mean, values) <= 36 * EPS
    assert bits(left) == bits(functools.reduce(SampleMeans.merge, blocks))


@pytest.mark.parametrize("value", [0.0, 0.1, -1e300, 1e9 / 3, 0.7])
def test_a_constant_is_its_own_mean_however_often_it_is_merged(value):
    found = block = SampleMeans.from_rows(np.full((1, 1024), value), NUMPY)
    for _ in range(10_000):
        found = found.merge(block)
    assert abs(found.mean[0] - value) <= 2 * EPS * abs(value)


def test_one_sample_beside_ten_to_the_fifteen():
    both = SampleMeans(10**15 - 1, np.array([2.0])).merge(SampleMeans.from_rows(np.array([[5.0]]), NUMPY))
    assert both.count == 10**15 and both.mean[0] == float(Fraction(2 * 10**15 + 3, 10**15))
