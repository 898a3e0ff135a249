"""Tampering with certificates about sequences and batches: refused, or still true."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import pytest
from bad_trees import node
from drafts import (
    KL,
    NOTHING,
    ONE,
    Draft,
    Em,
    R,
    T,
    V,
    beta,
    curl,
    grad,
    k1,
    k2,
    mean,
    mean_grad,
    point,
    rho,
    sg,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.statements import same, worth
from oracle.worlds import DEEP, END, TWO, softmax_world, world_of
from slotted import future, mean_i, n, now, other, others, own, past, spread, sum_t

from klsym.errors import Refused
from klsym.kernel import Theorem, check, digest
from klsym.kernel.models import Model, enclose
from klsym.statements import Mean, Side

Path = tuple[str | int, ...]
CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=250,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
TO_GO, m = now(k1) + future(k1), V("m")
BASELINE = own(k1) - others(k1) * m.inverse()
BATCH: dict[str, Any] = {"parameters": ("m", "n")}
TWO_STEPS = node(q=["1/3", "2/3"], next=[None, node(u=["2", "0"])])


# ---------------------------------------------------------------------------- derivations
def reduced_gradient(draft: Draft, scale: Any = 1) -> Draft:
    """On the right side, grad KL(q||p) as a sum over t of k1_now + k1_future, times s_now."""
    draft.right("log-derivative").right("chain rule", term=1)
    draft.right("score mean zero", slot="x", part=scale * ONE)
    return draft.right("sum over t", of="s").right("parts of a sum", of=["k1"]).right(
        "score mean zero", slot="now", part=scale * past(k1))  # fmt: skip


def to_go() -> Draft:
    right = grad(KL("q", "p") * -beta)
    return reduced_gradient(Draft(sum_t("q", -beta * TO_GO, "now"), right, parameters=("beta",)), -beta)


def baseline() -> Draft:
    draft = Draft(mean_i("q", BASELINE, "self"), Em("q", k1, 1), **BATCH)
    return draft.step("score mean zero", slot="self", part=BASELINE - own(k1)).step("independence")


def sequences() -> Draft:
    whole = past(k1) + TO_GO - others(k1) * m.inverse()
    draft = Draft(mean("it", "q", whole, "now"), grad(KL("q", "p")), **BATCH)
    draft.step("score mean zero", slot="now", part=whole - TO_GO).step("independence")
    return reduced_gradient(draft)


def prefix() -> Draft:
    weight = past(sg(rho)) * now(sg(rho))
    draft = Draft(mean_grad("t", "mu", weight * now(k2)), sum_t("q", now(k1), "now"))
    return draft.step("chain rule").step("change of measure", to="q").step(
        "ratio mean one", of="mu", slot="future")  # fmt: skip


def count() -> Draft:
    draft = Draft(sum_t("sample", past(T) * 2), point(T * (T - 1))).right("sum over t", of="length")
    return draft.right("parts of a sum", of=["length"]).right(
        "exchange of sums", now="length", other="length", slot="future", part=future(T))  # fmt: skip


def variance() -> Draft:
    right = Em("q", k1 * k1 * n.inverse()) - Em("q", k1).times(Em("q", k1)) * n.inverse()
    draft = Draft(spread("q", own(k1), other(k1)), right, parameters=("n",))
    while place := next(iter(of_batches(draft.sides["left"])), None):
        draft.step("independence", term=place[0], factor=place[1])
    return draft


def of_batches(side: Side) -> Iterator[tuple[int, int]]:
    for term, (_, atoms) in enumerate(side.terms):
        for factor, atom in enumerate(atoms):
            if isinstance(atom, Mean) and "i" in atom.index:
                yield term, factor


def square() -> Draft:
    zero = {"scale": ONE, "factor": beta, "v": own(k1), "of": own(R) - others(R), "score": ["self"]}
    right = mean_i("p", (own(R) - others(R)) ** 2 * own(k1).exp() * beta * beta, "self", "self")
    draft = Draft(NOTHING, right, "<=", parameters=("beta",))
    return draft.rows({"kind": "square", "at": ["i", "p"], **zero})


def chain_rule_of_kl() -> Draft:
    """A true premise, for every theta."""
    fact = (sum_t("q", now(k1)), Em("q", k1))
    return Draft(grad(fact[0]), grad(fact[1]), premises=(fact,)).equation(0, gradient=1)


def cited() -> Draft:
    left = mean_i("q", BASELINE, "self").times(sum_t("mu", now(R)))
    right = Em("q", k1, 1).times(sum_t("mu", now(R)))
    draft = Draft(left, right, cites=(baseline(),), **BATCH)
    return draft.equation(0, cited=0, times=sum_t("mu", now(R)))


def refuted(draft: Draft, tree: Any, **values: str) -> Draft:
    """A draft closed by a tree in which its sides are apart."""
    model = {"tree": tree, "path": [0], "parameters": values}
    read = Model.from_json(model, draft.context)
    ends = {name: enclose(draft.sides[name], read) for name in ("left", "right")}
    recorded = {name: [str(end.lower), str(end.upper)] for name, end in ends.items()}
    return draft.close("finite model", model=model, **recorded)


def field() -> Draft:
    return refuted(Draft(curl("t", "q", now(k2)), NOTHING).step("curl"), TWO_STEPS)


def pairs() -> Draft:
    left, right = mean_i("q", own(R) * others(R)), Em("q", R).times(Em("q", R)) * n
    return refuted(Draft(left, right, parameters=("n",)).step("independence"), TWO_STEPS, n="3")


PROOFS: dict[str, Callable[[], Draft]] = {
    "to go": to_go, "baseline": baseline, "sequences": sequences, "prefix": prefix, "count": count,
    "variance": variance, "square": square, "premise": chain_rule_of_kl, "cited": cited, "field": field,
    "pairs": pairs,
}  # fmt: skip
NAMES = [*PROOFS]


@cache
def body(name: str) -> dict[str, Any]:
    """A certificate without its digest."""
    return {key: value for key, value in PROOFS[name]().certificate().items() if key != "digest"}


def signed(content: Any) -> Any:
    """With the digest of its parts."""
    try:
        return {**content, "digest": digest(content["parts"])}
    except (KeyError, TypeError, ValueError):
        return content


def accepted(changed: Any) -> tuple[Theorem, ...] | None:
    """The theorems, or None when it is refused in one line; any other exception escapes."""
    try:
        return check(changed)
    except Refused as refusal:
        assert "\n" not in str(refusal) and 0 < len(refusal.reason) <= 600
        return None


def assert_true(theorem: Theorem) -> None:
    """A theorem that tampering produced must hold in numbers, wherever its premises do."""
    statement = theorem.statement
    assert theorem.kind in ("proved", "refuted")
    worlds = [softmax_world(seed, (END, TWO), 3, declared=statement.context.parameters) for seed in range(2)]
    if theorem.kind == "refuted":
        worlds = [world_of(theorem.close["model"])]
    for world in worlds:
        premises = [same(worth(a, world), worth(b, world)) for a, b in statement.context.premises]
        x, y = worth(statement.left, world), worth(statement.right, world)
        if theorem.kind == "refuted":
            assert not same(x, y) and (statement.relation == "=" or x > y)
        elif all(premises):
            assert same(x, y) or (statement.relation == "<=" and x < y)


def test_the_certificates_are_accepted_and_true():
    for name in NAMES:
        (theorem,) = check(signed(body(name)))
        assert_true(theorem)
        world = softmax_world(5, DEEP, declared=theorem.statement.context.parameters)
        assert all(same(worth(a, world), worth(b, world)) for a, b in theorem.statement.context.premises)


# ---------------------------------------------------------------------------- one change at a time
def places(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, data
    items = enumerate(data) if isinstance(data, list) else ()
    for key, value in data.items() if isinstance(data, dict) else items:
        yield from places(value, (*path, key))


def put(data: Any, path: Path, value: Any) -> Any:
    """A copy with one place changed."""
    if not path:
        return value
    changed = copy.copy(data)
    changed[path[0]] = put(data[path[0]], path[1:], value)
    return changed


SLOTS = ("past", "now", "future", "others", "self", "x", "rest")
SWAPS = [
    SLOTS, ("", "i", "ij", "t", "it", "x"), ("k1", "w", "R", "s", "length"),
    ("q", "p", "mu", "sample", "count"),
    ("Mean", "MeanGradient", "Curl", "Gradient"), ("=", "<="), ("square", "tangent", "variance"),
    ("ends", "batch", "exists", "exchange", "equal", "premise"),
]  # fmt: skip


def changes(value: Any) -> list[Any]:
    """What a number, a name, a slot, an index or a measure may be swapped for."""
    if type(value) is int:
        return [value + 1, value - 1, -value - 1]
    if isinstance(value, str) and re.fullmatch(r"-?\d+(/\d+)?", value):
        negative = value.removeprefix("-") if value.startswith("-") else f"-{value}"
        return [new for new in (f"{value}1", negative, "0", "7/3") if new != value]
    if isinstance(value, list):
        return []
    found = [name for names in SWAPS if value in names for name in names if name != value]
    if value in SLOTS:
        found.append(value + "'")
    if isinstance(value, dict) and value and all(type(power) is int for power in value.values()):
        name, power = next(iter(value.items()))
        rest = {k: v for k, v in value.items() if k != name}
        base = name.partition("[")[0]
        new = ["k1", "w", "log_q", "R", *(f"{base}[{slot}]" for slot in SLOTS[:5])]
        found += [{**rest, other: power} for other in new if other not in value]
    return found


MOST = 400  # changes of one certificate that are tried, drawn evenly


def spread_out(found: Iterable[Any], most: int = MOST) -> list[Any]:
    """At most so many of them, from all places."""
    rows = list(found)
    return rows[:: -(-len(rows) // most)]


def changed(name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path, value in places(body(name)):
        for change in changes(value):
            yield path, put(body(name), path, change)


@pytest.mark.parametrize("name", NAMES)
def test_a_change_with_a_new_digest_is_refused_or_true(name):
    refused = 0
    for path, tampered in spread_out(changed(name)):
        theorems = accepted(signed(tampered))
        refused += theorems is None
        recorded = path[0] == "parts" and (path[2] == "hypotheses" or "result" in path)
        assert theorems is None or not recorded, path  # all that is recorded is looked at
        if theorems:
            assert_true(theorems[0])
    assert refused > 40


@pytest.mark.parametrize("name", NAMES)
def test_a_change_without_a_new_digest_is_refused(name):
    old = signed(body(name))["digest"]
    for path, tampered in spread_out(changed(name), 60):
        if path[0] == "parts":
            with pytest.raises(Refused, match="digest: the content was changed"):
                check({**tampered, "digest": old})


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_key_is_refused(name):
    keys = [(p, value, key) for p, value in places(body(name)) if isinstance(value, dict) for key in value]
    free = {"parameters", "rewards"}  # a parameter or a reward more or less
    for path, value, key in spread_out(keys):
        less = put(body(name), path, {k: v for k, v in value.items() if k != key})
        theorems = accepted(signed(less))
        assert theorems is None or free & set(path) or key == "part", (path, key)
        for theorem in theorems or ():
            assert_true(theorem)


WRONG = (None, True, 7, -1, 1.5, float("nan"), "", "x", [], {}, [[]], {"k1": 1}, ["Mean", "q"])


@pytest.mark.parametrize("name", ["to go", "sequences", "field", "cited"])
def test_a_wrong_type_anywhere_is_refused_or_changes_nothing(name):
    (good,) = check(signed(body(name)))
    found = [(path, wrong) for path, _ in places(body(name)) for wrong in WRONG if path]
    for path, wrong in spread_out(found):
        for theorem in accepted(signed(put(body(name), path, wrong))) or ():
            assert theorem.statement == good.statement or path[2] == "context", path
            assert_true(theorem)


TEXTS = st.sampled_from(["0", "1", "-1", "2", "1/2", *SLOTS])
VALUES = st.one_of(TEXTS, st.integers(-3, 6), st.none(), st.just([]), st.just({}))


@CHECK
@given(st.sampled_from(NAMES), st.data())
def test_random_changes_are_refused_or_true(name, data):
    tampered: Any = body(name)
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(tampered))
        path, value = data.draw(st.sampled_from(found))
        donor = data.draw(st.sampled_from(found))[1]
        new = st.sampled_from(changes(value) or [0])
        tampered = put(tampered, path, data.draw(st.one_of(VALUES, st.just(donor), new)))
    for theorem in accepted(signed(tampered)) or ():
        assert_true(theorem)
