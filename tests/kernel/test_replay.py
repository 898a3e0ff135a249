"""Certificates: what is recorded is compared, what is malformed is refused in one line, never a traceback."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klsym.errors import Refused
from klsym.kernel import FORMAT, Theorem, certify, check, check_part, digest, read, show
from klsym.kernel.replay import write_hypotheses
from support.attacks.judge_closings import FALSE, TRUE, judged
from support.campaigns.mutated_certificates import Place, places, put
from support.certificates.certificates_at_indices import AT_INDICES
from support.certificates.faulty_certificates import Draft, Em, R, k1, k2
from support.certificates.kernel_words import Mg, signed
from support.certificates.valid_certificates import ONE_NODE, PROOFS
from support.certificates.valid_certificates import certificate as certificate_of
from support.faulty.malformed import K1, MALFORMED, ONE, a_mean, gradients, of_side
from support.scale import scaled

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=scaled(150, 50),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
NAMES = [*PROOFS, *AT_INDICES]


@cache
def certificate(name: str) -> dict[str, Any]:
    return AT_INDICES[name]().certificate() if name in AT_INDICES else certificate_of(name)


def sealed(body: dict[str, Any]) -> dict[str, Any]:
    """With the digest of what it has become."""
    return {**body, "digest": digest(body["parts"])} if "parts" in body else body


def accepted(changed: Any) -> tuple[Theorem, ...] | None:
    """The theorems, or None when it is refused in one line; any other exception escapes."""
    try:
        return check(changed)
    except Refused as refusal:
        assert "\n" not in str(refusal) and 0 < len(refusal.reason) <= 600
        return None


def refusal(changed: Any) -> str:
    with pytest.raises(Refused) as found:
        check(changed)
    assert "\n" not in str(found.value)
    return str(found.value)


# ---------------------------------------------------------------------------- one change at a time
@pytest.mark.parametrize("name", NAMES)
def test_it_is_accepted_from_the_file_that_is_written(name):
    theorems = check(certificate(name))
    assert check(read(json.dumps(certificate(name)))) == theorems
    assert len(theorems) == len(certificate(name)["parts"])
    assert theorems[-1].rules[-1] == certificate(name)["parts"][-1]["close"]["by"]
    assert not any(judged(theorem) == FALSE for theorem in theorems)


SLOTS = ("past", "now", "future", "others", "self", "x", "other", "rest")
WORDS = [
    SLOTS, ("", "i", "ij", "t", "it", "x"), ("k1", "w", "R", "s", "g", "length"),
    ("q", "p", "mu", "count", "sample"), ("=", "<="), ("left", "right"), ("tangent", "square", "variance"),
    ("Mean", "MeanGradient", "Gradient", "Curl"),
    ("ends", "batch", "exists", "exchange", "equal", "premise"),
]  # fmt: skip


def changes(value: Any) -> list[Any]:
    """What a number, a name or a monomial may be swapped for."""
    if isinstance(value, int):
        return [value + 1, value - 1, -value - 1]
    if isinstance(value, str) and re.fullmatch(r"-?\d+(/\d+)?", value):
        other = value.removeprefix("-") if value.startswith("-") else f"-{value}"
        return [new for new in (f"{value}1", other, "0", "7/3") if new != value]
    found = [name for names in WORDS if value in names for name in names if name != value]
    found += [f"{value}'"] * (isinstance(value, str) and value in SLOTS)
    if isinstance(value, dict) and value and all(type(power) is int for power in value.values()):
        name, power = next(iter(value.items()))
        rest = {k: v for k, v in value.items() if k != name}
        base = name.partition("[")[0]
        found = [{**rest, new: power} for new in ("k1", "w", "R", *(f"{base}[{slot}]" for slot in SLOTS[:5]))]
    return [new for new in found if new != value]


def changed_certificates(name: str) -> Iterator[tuple[Place, dict[str, Any]]]:
    body = {k: v for k, v in certificate(name).items() if k != "digest"}
    for path in places(body):
        value: Any = body
        for key in path:
            value = value[key]
        for change in changes(value) if path and path[0] == "parts" else ():
            yield path, put(body, path, change)


def spread_out(found: Any, most: int = 150) -> list[Any]:
    """At most so many, from all places."""
    rows = list(found)
    return rows[:: -(-len(rows) // most)]


@pytest.mark.parametrize("name", NAMES)
def test_a_change_is_refused_by_the_digest(name):
    old, found = certificate(name)["digest"], spread_out(changed_certificates(name), 40)
    for _, body in found:
        assert refusal({**body, "digest": old}) == "digest: the content was changed after it was written"
    assert len(found) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_a_change_with_a_new_digest_is_refused_or_true(name):
    """What a proof records of its steps, its hypotheses and its enclosures is all looked at."""
    refused = 0
    for path, body in spread_out(changed_certificates(name), 400 if name in AT_INDICES else 150):
        theorems = accepted(sealed(body))
        refused += theorems is None
        recorded = "hypotheses" in path or "result" in path
        assert theorems is None or not (recorded or path[2:4] in (("close", "left"), ("close", "right"))), (
            path
        )
        for theorem in theorems or ():
            assert judged(theorem) != FALSE, (path, show(theorem, full=True))
    assert refused >= 30


WRONG = (None, True, 7, -1, 1.5, float("nan"), "", "x", [], {}, [[]], {"k1": 1}, ["Mean", "", "q"], b"x", {1})


TYPES = ["cited", "squares", "two steps", "unique", "batch", "field at an index", "cited at an index"]


@pytest.mark.parametrize("name", TYPES)
def test_a_wrong_type_anywhere_is_refused_or_changes_nothing(name):
    said, refused, tried = check(certificate(name))[-1].statement, 0, 0
    body = {k: v for k, v in certificate(name).items() if k != "digest"}
    for path, wrong in spread_out(((path, wrong) for path in places(body) for wrong in WRONG), 800):
        changed = put(body, path, wrong)
        try:
            changed = sealed(changed) if path else changed
        except TypeError:
            changed = {**changed, "digest": ""}
        theorems = accepted(changed)
        refused, tried = refused + (theorems is None), tried + 1
        assert theorems is None or theorems[-1].statement == said or path[2] == "context", path
    assert tried > 500 and refused > 0.95 * tried


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_exactly_those_of_the_format(name):
    """One less or one more, at every object of fixed keys."""
    body = {k: v for k, v in certificate(name).items() if k != "digest"}
    free = {"parameters", "rewards", "functions"}
    tried = 0
    for path in places(body):
        value: Any = body
        for key in path:
            value = value[key]
        if not isinstance(value, dict) or (path[-1:] and path[-1] in free):
            continue
        monomial = all(type(power) is int for power in value.values())
        for key in () if monomial else value:
            if key != "part" and path:
                less = put(body, path, {k: v for k, v in value.items() if k != key})
                assert accepted(sealed(less)) is None, (path, key)
                tried += 1
        if not monomial:
            assert accepted(sealed(put(body, path, {**value, "more": 1}))) is None, path
    assert tried >= 7


def test_a_hypothesis_more_or_less_or_elsewhere_is_refused():
    body = certificate("cited")
    hypotheses = body["parts"][0]["hypotheses"]
    assert len(hypotheses) >= 3
    others = [hypotheses[1:], hypotheses[:-1], hypotheses[::-1], [*hypotheses, hypotheses[0]], []]
    for other in (*others, [*hypotheses, ["positive", "beta"]]):
        changed = sealed(put(body, ("parts", 0, "hypotheses"), other))
        assert re.match("part 1: hypotheses: the proof uses .* recorded", refusal(changed))


def test_the_first_wrong_step_is_named():
    body = certificate("cited")
    changed = sealed(put(body, ("parts", 0, "steps", 1, "result"), []))
    assert refusal(changed).startswith('part 1, step 2: change of measure: got [[[["1",{}]]')
    wrong = put(body, ("cites", 0, 0, "steps", 2, "data", "slot"), "now")
    assert refusal(sealed(wrong)).startswith("cited 1, part 1, step 3: ")


def test_several_random_changes_are_refused_or_true():
    """One to three places take another value, one of another place among them."""
    rng, kept = random.Random(5), 0
    for _ in range(400):
        body = {k: v for k, v in certificate(rng.choice(NAMES)).items() if k != "digest"}
        for _ in range(rng.randint(1, 3)):
            path, donor = rng.sample([place for place in places(body) if place], 2)
            value, other = at(body, path), at(body, donor)
            body = put(
                body, path, rng.choice([*changes(value), other, rng.choice(["0", "-1", "1/2", 2, None, []])])
            )
        for theorem in accepted(sealed(body)) or ():
            kept += 1
            assert judged(theorem) != FALSE, show(theorem, full=True)
    assert kept >= 5


def at(data: Any, path: Place) -> Any:
    for key in path:
        data = data[key]
    return data


# ---------------------------------------------------------------------------- malformed
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_is_refused_in_one_line(name):
    assert accepted(MALFORMED[name]()) is None


def test_gradients_of_gradients_are_read_to_a_depth_that_no_version_of_python_sets():
    """The parts of n gradients are nested 10 + 4 n deep."""
    assert check(of_side(gradients(47)))
    with pytest.raises(Refused, match="nested too deeply"):
        check(of_side(gradients(48)))


@pytest.mark.parametrize("cited", [False, True])
def test_lists_are_nested_200_deep_at_most(cited):
    """The parts of a certificate are at level 2; what is cited counts too."""
    for depth, reason in ((200, "part 1: malformed"), (201, "nested too deeply")):
        nested: Any = []
        for _ in range(depth - 2):
            nested = [nested]
        body = {"cites": [nested] if cited else [], "parts": [] if cited else nested}
        with pytest.raises(Refused, match=reason):
            check({"format": FORMAT, **body, "digest": digest(body["parts"])})


def test_the_longest_file_has_a_million_characters():
    assert read(" " * 999_999 + "1") == 1
    with pytest.raises(Refused, match="more than 1000000 characters"):
        read(" " * 1_000_000 + "1")


def test_an_unknown_format_is_named_in_few_words():
    for named, shown in (
        ("x" * 60, "'" + "x" * 40 + "'"),
        (FORMAT + "0", f"'{FORMAT}0'"),
        ([FORMAT], "'list'"),
    ):
        assert refusal({**of_side([]), "format": named}).startswith(f"format {shown}: this kernel reads")


def test_hypotheses_are_in_the_order_of_their_texts():
    """Not in that of a set, which differs from process to process."""
    for name in ("squares", "batch", "reverse", "prefix"):
        found = write_hypotheses(check(certificate(name))[-1].hypotheses)
        assert len(found) > 1 and found == sorted(found, key=json.dumps)


def test_what_these_are_changes_of_is_accepted():
    assert accepted(of_side(a_mean(K1))) and accepted(of_side([])) and accepted(of_side(gradients(1)))
    assert accepted(of_side(a_mean(ONE, index="t", score=["now", "past"])))


ANYTHING = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.binary(max_size=2),
        st.sampled_from(["q", "k1", "Mean", "1", "-2/3", "equality", FORMAT, "left", "x"]),
    ),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["by", "k1", "rows", "rule"]), x),
    max_leaves=8,
)  # fmt: skip


@CHECK
@given(ANYTHING, st.sampled_from(["", "context", "left", "steps", "close", "hypotheses", "parts", "cites"]))
def test_anything_at_all_is_refused_or_changes_nothing(data, key):
    whole = of_side([])
    if key in ("parts", "cites"):
        whole = {**whole, key: data}
    elif key:
        whole = {**whole, "parts": [{**whole["parts"][0], key: data}]}
    else:
        whole = data
    if isinstance(whole, dict):
        try:
            whole = {**whole, "digest": digest(whole["parts"])}
        except (TypeError, KeyError):
            assert accepted(whole) is None
            return
    for theorem in accepted(whole) or ():
        assert theorem.statement.left == theorem.statement.right


# ---------------------------------------------------------------------------- reading
UNREADABLE = {
    "an object with a key twice": ('{"a": 1, "a": 1}', "a key twice"),
    "a key twice inside": ('[{"b": {"a": 1, "a": 2}}]', "a key twice"),
    "a float": ("[1.0]", "1.0 is no exact number"),
    "an exponent": ("[1e5]", "1e5 is no exact number"),
    "not a number": ("[NaN]", "NaN is no exact number"),
    "infinity": ("[-Infinity]", "-Infinity is no exact number"),
    "a long integer": (f"[{10**20}]", "is no exact number: write it as a text"),
    "a very long integer": ("[" + "9" * 9000 + "]", "is no exact number"),
    "no JSON": ("{", "no JSON"),
    "nothing": ("", "no JSON"),
    "two values": ("[] []", "no JSON"),
    "a nest of 100000": ("[" * 100_000, "no JSON: "),
    "a file of more than a million characters": (" " * 1_000_001, "more than 1000000 characters"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_in_one_line(name):
    text, message = UNREADABLE[name]
    with pytest.raises(Refused, match=message) as found:
        read(text)
    assert "\n" not in str(found.value) and len(str(found.value)) < 300


def test_what_is_read_is_what_was_written():
    data = {"a": [1, -7, None, "x", {"b": {}}], "c": 10**18}
    assert read(json.dumps(data)) == data and read(f" {10**18} ") == 10**18


@pytest.mark.parametrize("name", NAMES)
def test_a_digest_is_that_of_the_content_in_any_order(name):
    parts = certificate(name)["parts"]
    backwards = json.loads(json.dumps(parts), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert digest(backwards) == digest(parts) == certificate(name)["digest"]
    assert re.fullmatch("[0-9a-f]{64}", digest(parts)) and digest(parts) != digest([*parts, *parts])


def test_a_draft_is_refused_where_its_certificate_would_be():
    draft = Draft(Mg("q", k2), Em("q", k1, 1)).step("chain rule")
    part, theorem = certify(draft.part, {})
    assert check_part(part, {}, "part 1") == theorem == check(signed([part]))[0]
    with pytest.raises(Refused, match="derivation, close: equality: the two sides differ"):
        certify({**draft.part, "right": Em("q", R, 1).to_json()}, {})
    with pytest.raises(Refused, match="derivation, step 1: unknown rule"):
        certify(put(draft.part, ("steps", 0, "rule"), "magic"), {})


def test_several_parts_are_several_theorems():
    parts = [certificate(name)["parts"][0] for name in ("forward", "squares", "unique")]
    assert [theorem.kind for theorem in check(signed(parts))] == ["proved", "proved", "unique"]
    wrong = put(parts, (1, "relation"), "=")
    assert refusal(signed(wrong)).startswith("part 2")


def test_a_model_that_contradicts_is_not_a_theorem_about_all():
    body = {"by": "finite model", "model": {"tree": ONE_NODE, "path": [], "parameters": {}}}
    draft = Draft(Em("q", k1), Em("p", -k1)).close(**body, left=["0", "0"], right=["0", "0"])
    assert re.search(
        "left side: enclosed in .* recorded", refusal(signed([{**draft.part, "hypotheses": []}]))
    )
    (theorem,) = check(certificate("one sample"))
    assert theorem.kind == "refuted" and judged(theorem) == TRUE


def test_a_message_names_three_hypotheses_that_are_missing_and_is_cut():
    """However many and however long they are."""
    names = [f"b{i}" for i in range(5)]
    context = {"parameters": names, "functions": {}, "premises": []}
    said = refusal(of_side([[[["1", {name: -1}]], []] for name in names[:1]], context=context))
    assert said.endswith("the proof uses [['nonzero', 'b0']], recorded []")
    many = [[["1", {name: -1}] for name in names], []]
    said = refusal(of_side([many], context=context))
    assert said.endswith("uses [['nonzero', 'b0'], ['nonzero', 'b1'], ['nonzero', 'b2']], recorded []")
    lengthy = [["exists", "x" * 400]]
    assert len(refusal(of_side([], hypotheses=lengthy))) < 400
