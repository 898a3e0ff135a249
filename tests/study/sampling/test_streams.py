"""Streams name random numbers; plans cut runs into chunks."""

from __future__ import annotations

import itertools
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.study.sampling.streams import Plan, Stream

SEEDS = st.integers(0, 2**128 - 1) | st.integers(0, 3)
KEYS = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 2), max_size=4).map(tuple)
STREAMS = st.builds(Stream, SEEDS, KEYS)


def words(stream: Stream) -> list[int]:
    return stream.build_sequence().generate_state(8).tolist()


@given(STREAMS)
def test_a_stream_is_numpys_seed_sequence_of_that_seed_and_key(stream):
    same = np.random.SeedSequence(stream.seed, spawn_key=stream.key)
    assert words(stream) == same.generate_state(8).tolist()
    drawn = np.random.Generator(np.random.SFC64(same)).standard_normal(5)
    assert stream.build_generator().standard_normal(5).tolist() == drawn.tolist()
    assert stream.draw_seed() == int.from_bytes(same.generate_state(2).tobytes(), sys.byteorder)


@given(STREAMS, STREAMS)
def test_streams_with_different_names_differ(one, other):
    assert (words(one) == words(other)) == (one == other)


@given(STREAMS, KEYS)
def test_a_child_extends_the_key_and_differs(stream, more):
    assert stream.derive_child(*more) == Stream(stream.seed, stream.key + more)
    assert (words(stream.derive_child(*more)) == words(stream)) == (not more)


def test_numpy_integers_and_lists_are_taken_as_plain_data():
    stream = Stream(np.uint64(5), [np.int32(1), 2])
    assert repr(stream) == "Stream(seed=5, key=(1, 2))"
    assert repr(Plan(np.int64(7), stream, np.int8(3)).samples) == "7"


@pytest.mark.parametrize(
    ("seed", "key", "other_seed", "other_key"),
    [(0, (2**32,), 0, (0, 1)), (2**128, (), 0, (1,)), (5 + 2**128, (3,), 5, (1, 3))],
)
def test_beyond_the_limits_numpy_confuses_names_so_they_are_refused(seed, key, other_seed, other_key):
    confused = np.random.SeedSequence(seed, spawn_key=key).generate_state(8).tolist()
    assert confused == words(Stream(other_seed, other_key))
    with pytest.raises(UsageError):
        Stream(seed, key)


MAKERS = {"seed": Stream, "stream key": lambda word: Stream(0).derive_child(1, word),
              "samples": lambda n: Plan(n, Stream(0)), "chunk": lambda n: Plan(10, Stream(0), n)}  # fmt: skip
REFUSED = (
    *(("seed", bad, r"at least 0 and below 2\^128") for bad in (-1, 2**128, 1.0, "1", None, True, np.True_)),
    *(("stream key", bad, r"at least 0 and below 2\^32") for bad in (-1, 2**32, 0.5, "a", False)),
    *(("samples", bad, "at least 1") for bad in (0, -1, 1e6, 10.0, "100", None, True, np.float64(5))),
    *(("chunk", bad, "at least 1") for bad in (0, -5, 2.0**20, False, None)),
)


@pytest.mark.parametrize(("name", "bad", "limits"), REFUSED)
def test_numbers_are_whole_and_within_limits(name, bad, limits):
    with pytest.raises(UsageError, match=rf"^{name} .*: a whole number, {limits}, expected$"):
        MAKERS[name](bad)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        *((lambda bad=bad: Plan(10, bad), "a Stream expected, such as")
          for bad in (0, None, (0, ()), np.random.default_rng(0))),
        (lambda: Plan(2**32 + 1, Stream(0), 1),
         r"^plan: chunk 1 makes too many chunks: at least 2 expected$"),
    ],
)  # fmt: skip
def test_plans_are_refused(make, reason):
    assert len(Plan(2**32, Stream(0), 1)) == 2**32
    with pytest.raises(UsageError, match=reason):
        make()


# ---------------------------------------------------------------------------- plans
@given(st.integers(1, 5000), st.integers(1, 700), STREAMS)
def test_the_chunks_share_out_the_samples(samples, chunk, stream):
    plan = Plan(samples, stream, chunk)
    chunks = list(plan.list_chunks())
    assert sum(part.size for part in chunks) == samples and len(chunks) == len(plan)
    assert [part.index for part in chunks] == list(range(len(plan)))
    assert all(part.size == chunk for part in chunks[:-1]) and 1 <= chunks[-1].size <= chunk
    assert [part.stream for part in chunks] == [stream.derive_child(i) for i in range(len(plan))]


def test_a_plan_of_ten_to_the_fifteen_makes_no_list():
    tracemalloc.start()
    try:
        plan = Plan(10**15, Stream(0))
        first = list(itertools.islice(plan.list_chunks(), 1000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(chunk.size for chunk in first) == 1000 * 2**20
    assert len(plan) == -(-(10**15) // 2**20) and peak < 2_000_000
