"""Tables of all sequences over a few words, against enumeration by itertools."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import pytest

from klsym.errors import UsageError
from klsym.worlds.numbers import DIGITS, FLOATS, build_duals
from klsym.worlds.words import Tables, WordTree, draw_tables
from klsym.worlds.world import Place, list_multisets

SIZES = [(2, 1, 0), (2, 3, 0), (3, 2, 0), (3, 3, 1), (4, 2, 3), (2, 3, None), (3, 2, None)]


def sequences_of(vocabulary: int, longest: int, end: int | None) -> set[tuple[int, ...]]:
    """Every tuple of words that ends at its first end word, or is as long as allowed without one before."""
    return {
        words
        for length in range(1, longest + 1)
        for words in itertools.product(range(vocabulary), repeat=length)
        if end not in words[:-1] and (length == longest or words[-1] == end)
    }


def log_softmax(row: list[float]) -> list[float]:
    return [x - math.log(sum(math.exp(y) for y in row)) for x in row]


def chance(tree: WordTree, table: list[list[float]], words: tuple[int, ...], prompt: int = 0) -> float:
    """The probability of a sequence, read by its prefixes alone."""
    total = 0.0
    for t, word in enumerate(words):
        row = prompt * len(tree.prefixes) + tree.prefixes.index(words[:t])
        total += log_softmax(table[row])[word]
    return math.exp(total)


@pytest.mark.parametrize(("vocabulary", "longest", "end"), SIZES)
def test_every_sequence_is_there_once(vocabulary: int, longest: int, end: int | None) -> None:
    tree = WordTree(vocabulary, longest, end)
    expected = sequences_of(vocabulary, longest, end)
    assert {*tree.sequences} == expected and len(tree.sequences) == len(expected)
    assert {*tree.prefixes} == {words[:t] for words in expected for t in range(len(words))}
    assert len(tree.prefixes) == len({*tree.prefixes})
    for t, prefix in enumerate(tree.prefixes):  # after those that it goes on from
        assert not prefix or tree.prefixes.index(prefix[:-1]) < t


@pytest.mark.parametrize(("vocabulary", "longest", "end"), SIZES)
def test_tables_of_integers(vocabulary: int, longest: int, end: int | None) -> None:
    tree = WordTree(vocabulary, longest, end, tool=None if end == 1 else 1)
    for k, words in enumerate(tree.sequences):
        gap = longest - len(words)
        assert tree.tokens[k] == [*words, *[0] * gap]
        called = [False, *(word == 1 != end for word in words[:-1])]
        assert tree.mask[k] == [int(not after_tool) for after_tool in called] + [0] * gap
        assert tree.lengths[k] == len(words)
        for t in range(len(words)):
            assert tree.prefixes[tree.rows[k][t]] == words[:t]
        for row in tree.rows[k][len(words) :]:  # what is read there belongs to no prefix of the sequence
            assert tree.prefixes[row] not in {words[:t] for t in range(len(words))}


def test_prompts_have_rows_and_sequences_of_their_own() -> None:
    tree = WordTree(3, 2, prompts=(1, 3, 2))
    single = WordTree(3, 2)
    count, height = len(single.sequences), len(single.prefixes)
    assert (tree.height, tree.prompt_of) == (3 * height, [0] * count + [1] * count + [2] * count)
    for k, prompt in enumerate(tree.prompt_of):
        assert tree.tokens[k] == single.tokens[k % count] and tree.mask[k] == single.mask[k % count]
        assert tree.rows[k] == [prompt * height + row for row in single.rows[k % count]]
    groups = [*tree.list_groups(2)]
    assert all(len({tree.prompt_of[k] for k in group}) == 1 for group, _ in groups)
    assert sum(times for _, times in groups) == 3 * count**2


@pytest.mark.parametrize("system", [FLOATS, DIGITS, build_duals(FLOATS)], ids=["floats", "digits", "duals"])
def test_a_world_reads_the_tables_where_the_tree_says(system: Any) -> None:
    tree = WordTree(3, 2, prompts=(1.0, 2.0))
    tables = draw_tables(tree, 5)
    with mpmath.workdps(40):
        for prompt in (0, 1):
            world = tree.build_world(tables.by_name, prompt, system)
            for measure in ("q", "p", "mu", "old"):
                for (k,), mass in world.enumerate_batches(1, measure):
                    value = mass.value if hasattr(mass, "slope") else mass
                    expected = chance(tree, tables.by_name[measure], tree.sequences[k], prompt)
                    assert float(value) == pytest.approx(expected)
            if system is FLOATS:
                whole = sum(world.rows["R"][b] for b in world.list_branches(Place((4,)), ""))
                first = prompt * len(tree.sequences)
                steps = zip(tree.rows[first + 4], tree.tokens[first + 4], strict=True)
                used = [*steps][: tree.lengths[4]]
                assert whole == pytest.approx(sum(tables.token_rewards[row][word] for row, word in used))


def test_on_policy_the_sampler_is_the_policy() -> None:
    tree = WordTree(3, 2)
    world = tree.build_world(draw_tables(tree, 0).by_name, on_policy=True)
    assert world.rows["log_mu"] == world.rows["log_q"]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_multisets_stand_for_all_orders(size: int) -> None:
    orders: dict[tuple[int, ...], int] = {}
    for batch in itertools.product(range(4), repeat=size):
        key = tuple(sorted(batch))
        orders[key] = orders.get(key, 0) + 1
    assert dict(list_multisets(range(4), size)) == orders
    assert [batch for batch, _ in list_multisets(range(4), size, multisets=False)] == [
        *itertools.product(range(4), repeat=size)
    ]


@pytest.mark.parametrize("size", [2, 3])
def test_means_of_what_has_no_order_agree(size: int) -> None:
    """Of a maximum over a batch; 343 batches of three of seven sequences are 84 multisets."""
    tree = WordTree(3, 2)
    tables = draw_tables(tree, 3)
    world = tree.build_world(tables.by_name)
    every, once = (dict(world.enumerate_batches(size, "mu", multisets=x)) for x in (False, True))
    assert len(every) == 7**size and len(once) == math.comb(7 + size - 1, size)
    means = [sum(m * max(tables.rewards[k] for k in b) for b, m in x.items()) for x in (every, once)]
    assert means[0] == pytest.approx(means[1]) and sum(once.values()) == pytest.approx(1)


def test_groups_with_a_fixed_sample() -> None:
    """W(y) = E[f(y, others)], by all tuples of others."""
    tree = WordTree(2, 3, prompts=(1, 1))
    masses = [
        mass for _, mass in tree.build_world(draw_tables(tree, 2).by_name, 1).enumerate_batches(1, "mu")
    ]
    numbers, first = range(4, 8), 6  # the sequences of the second prompt
    for size in (1, 2, 3):
        found = expected = 0.0
        for group, times in tree.list_groups(size, first=first):
            assert group[0] == first
            found += times * math.prod(masses[k - 4] for k in group[1:]) * sum(group) ** 2
        for others in itertools.product(numbers, repeat=size - 1):
            expected += math.prod(masses[k - 4] for k in others) * (first + sum(others)) ** 2
        assert found == pytest.approx(expected)


# ---------------------------------------------------------------------------- random tables
def spread(a: list[list[float]], b: list[list[float]]) -> float:
    gaps = [(x - y) ** 2 for pair in zip(a, b, strict=True) for x, y in zip(*pair, strict=True)]
    return math.sqrt(sum(gaps) / len(gaps))


def test_near_tables_are_q_and_a_little_noise() -> None:
    tree = WordTree(6, 3)
    near, wild, half = (draw_tables(tree, 8, near=x) for x in (0.5, None, 0.25))
    for name in ("p", "mu", "old"):
        table, small = near.by_name[name], half.by_name[name]
        assert spread(near.q, table) == pytest.approx(0.5, rel=0.15)
        assert spread(near.q, small) * 2 == pytest.approx(spread(near.q, table))
        assert spread(wild.q, wild.by_name[name]) == pytest.approx(math.sqrt(2), rel=0.15)
    assert near.q == wild.q and near.rewards == wild.rewards and near.token_rewards == wild.token_rewards


def test_each_table_has_a_stream_of_its_own() -> None:
    tree = WordTree(3, 2)
    drawn = [*draw_tables(tree, 0).by_name.values(), *draw_tables(tree, 1).by_name.values()]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))
    assert draw_tables(WordTree(2, 1), 0).q[0][0] == pytest.approx(-1.646600706956942)  # on every machine


def test_binary_rewards_are_split_at_the_median() -> None:
    tree = WordTree(3, 2)
    real, binary = (draw_tables(tree, 4, binary=x).rewards for x in (False, True))
    pairs = sorted(zip(real, binary, strict=True))
    assert [x for _, x in pairs] == [0.0] * 3 + [1.0] * 4


@pytest.mark.parametrize(
    "numbers",
    [{"vocabulary": 1, "longest": 2}, {"vocabulary": 2, "longest": 0},
     {"vocabulary": 2, "longest": 1, "end": 2},
     {"vocabulary": 2, "longest": 1, "prompts": ()}, {"vocabulary": 2, "longest": 1, "prompts": (1, 0)},
     {"vocabulary": 2, "longest": 1, "tool": 0},
     {"vocabulary": 2, "longest": 1, "tool": 2}],
    ids=str,
)  # fmt: skip
def test_what_is_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        WordTree(**numbers)


def test_a_tree_that_is_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match="branches"):
        _ = WordTree(10, 5).layout


def test_tables_say_what_they_hold() -> None:
    table = [[0.0, 1.0]]
    tables = Tables(q=table, p=table, mu=table, old=table, token_rewards=table)
    assert {*tables.by_name} == {"q", "p", "mu", "old", "R"} and tables.rewards == []
