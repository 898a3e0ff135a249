"""Tampering with certificates about sequences and batches: refused, or still true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sequence_worlds import END, TWO, World, same, world_of
from test_kernel_replay import VALUES, WRONG, Path, accepted, changes, places, put, signed
from test_kernel_rules import CHECK

from klsym import calculus as c
from klsym.kernel import FORMAT, Theorem, check

TO_GO = c.now(c.k1) + c.future(c.k1)
BASELINE = c.own(c.k1) - c.others(c.k1) / c.parameter("m")
PREFIX = c.past(c.rho) * c.now(c.rho)


def to_go() -> Any:
    left = c.sum_over_t(c.sg(-c.beta * TO_GO) * c.now(c.s), under="q")
    return c.derive(left).equals(-c.beta * c.grad(c.KL("q", "p")))


def baseline() -> Any:
    return c.derive(c.mean_over_i(BASELINE * c.own(c.s), under="q")).equals(c.grad(c.KL("q", "p")))


def sequences() -> Any:
    whole = c.past(c.k1) + TO_GO - c.others(c.k1) / c.parameter("m")
    return c.derive(c.mean_over_i(whole * c.now(c.s), under="q", steps=True)).equals(c.grad(c.KL("q", "p")))


def prefix() -> Any:
    return c.derive(c.token_gradient(PREFIX * c.now(c.k3), under="mu")).equals(c.grad(c.KL("q", "p")))


def count() -> Any:
    return c.derive(c.sum_over_t(c.past(c.length), under="sample")).equals(
        c.sample(c.length * (c.length - 1) / 2))  # fmt: skip


def field() -> Any:
    return c.derive(c.curl(c.now(c.k2), under="q")).differs_from(0)


def mean() -> Any:
    n = c.parameter("n")
    return c.derive(c.variance_of_mean(c.own(c.k1), under="q")).equals(
        (c.expectation(c.k1**2, under="q") - c.expectation(c.k1, under="q") * c.expectation(c.k1, under="q"))
        / n)  # fmt: skip


PROOFS = {
    "to go": to_go,
    "baseline": baseline,
    "sequences": sequences,
    "prefix": prefix,
    "count": count,
    "field": field,
    "mean": mean,
    "tower": lambda: c.derive(c.token_gradient(c.now(c.k3), under="q")).equals(c.token_KL_gradient("p", "q")),
}
NAMES = [*PROOFS]


@cache
def body(name: str) -> dict[str, Any]:
    """A certificate without its digest."""
    return {"format": FORMAT, "claim": "", "parts": [PROOFS[name]().part]}


def assert_true(theorem: Theorem) -> None:
    """A theorem that tampering produced must hold in numbers."""
    statement = theorem.statement
    worlds = [World(seed, statement.context, (END, TWO), 3) for seed in range(2)]
    if theorem.kind == "refuted":
        found = theorem.close["model"]
        worlds = [world_of(found["tree"], found["parameters"])]
    for world in worlds:
        world.parameters |= {"m": 1.7}
        x, y = world.side(statement.left), world.side(statement.right)
        if theorem.kind == "refuted":
            assert not same(x, y) and (statement.relation == "=" or x > y)
        else:
            assert same(x, y) or (statement.relation == "<=" and x < y)


def test_the_certificates_are_accepted_and_true():
    for name in NAMES:
        (theorem,) = check(signed(body(name)))
        assert_true(theorem)


# ---------------------------------------------------------------------------- one change at a time
SLOTS = ("past", "now", "future", "others", "self", "x", "rest")
MEASURES = ("q", "p", "mu", "sample", "count")
SWAPS = [SLOTS, ("i", "ij", "t", "it", "x"), ("k1", "w", "R", "s", "length"), MEASURES]


def changes_at_index(value: Any) -> list[Any]:
    """Also slots, indices, measures and what a rule is told of variables."""
    found = changes(value)
    for names in SWAPS:
        if isinstance(value, str) and value in names:
            found += [name for name in names if name != value]
    if isinstance(value, str) and value in SLOTS:
        found.append(value + "'")
    if isinstance(value, dict) and value and all(type(power) is int for power in value.values()):
        name, power = next(iter(value.items()))
        rest = {k: v for k, v in value.items() if k != name}
        base = name.partition("[")[0]
        found += [{**rest, f"{base}[{slot}]": power} for slot in SLOTS[:5] if f"{base}[{slot}]" not in value]
    return found


MOST = 160  # changes of one certificate that are tried, drawn evenly


def spread_out(found: Iterable[Any], most: int = MOST) -> list[Any]:
    """At most so many of them, from all places."""
    rows = list(found)
    return rows[:: -(-len(rows) // most)]


def changed(name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path, value in places(body(name)):
        for change in changes_at_index(value):
            yield path, put(body(name), path, change)


@pytest.mark.parametrize("name", NAMES)
def test_a_change_with_a_new_digest_is_refused_or_true(name):
    refused = 0
    for path, tampered in spread_out(changed(name)):
        theorems = accepted(signed(tampered))
        refused += theorems is None
        recorded = path[2] == "hypotheses" or "result" in path
        assert theorems is None or not recorded, path  # all that is recorded is looked at
        if theorems:
            assert_true(theorems[0])
    assert refused > 40


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_key_is_refused(name):
    keys = [(p, value, key) for p, value in places(body(name)) if isinstance(value, dict) for key in value]
    for path, value, key in spread_out(keys):
        less = put(body(name), path, {k: v for k, v in value.items() if k != key})
        theorems = accepted(signed(less))
        assert theorems is None or path[-1] == "parameters" or key == "part", (path, key)
        for theorem in theorems or ():
            assert_true(theorem)


@pytest.mark.parametrize("name", ["to go", "sequences", "field"])
def test_a_wrong_type_anywhere_is_refused_or_changes_nothing(name):
    (good,) = check(signed(body(name)))
    found = [(path, wrong) for path, _ in places(body(name)) for wrong in WRONG if path]
    for path, wrong in spread_out(found):
        for theorem in accepted(signed(put(body(name), path, wrong))) or ():
            assert theorem.statement == good.statement or path[2] == "context", path
            assert_true(theorem)


@CHECK
@given(st.sampled_from(NAMES), st.data())
def test_random_changes_are_refused_or_true(name, data):
    tampered: Any = body(name)
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(tampered))
        path, value = data.draw(st.sampled_from(found))
        donor = data.draw(st.sampled_from(found))[1]
        new = data.draw(st.one_of(VALUES, st.just(donor), st.sampled_from(changes_at_index(value) or [0])))
        tampered = put(tampered, path, new)
    for theorem in accepted(signed(tampered) if isinstance(tampered, dict) else tampered) or ():
        assert_true(theorem)
