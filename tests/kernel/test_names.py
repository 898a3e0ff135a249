"""Names, slots and reserved words: what a variable may be called, and which slots depend on which."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import klsym
from klsym.errors import NotInRing, Refused
from klsym.kernel.names import (
    LOG_RATIOS,
    MEASURES,
    PROBABILITIES,
    RESERVED,
    REWARDS,
    SAMPLE,
    SAMPLE_BASES,
    SLOT_WORDS,
    THETA_FREE,
    WHOLE,
    Name,
    attach_name,
    detach_name,
    is_declarable,
    parse_name,
)
from klsym.kernel.slots import (
    PARTS,
    SCORES,
    SEQUENCE,
    SINGLE,
    SLOTS,
    UPSTREAM,
    find_slot,
    is_score,
    name_in_slot,
)
from klsym.kernel.statements import Context

HOME = Path(klsym.__file__).parent
WORDS = {
    "the loss grammar": "log_q log_p log_mu k k1 r rho w o s R A M sg exp log sqrt abs min max clip",
    "logistic functions": "sigmoid logsigmoid",
    "a third policy": "old log_old rho_old",
    "a critic": "V V_next gae",
    "batches": "T H H2 H3 H4 length sum mean groupsum loo centred normalised relative scaled",
    "sequences": "togo whole seqmean disc",
    "slots": "past now future self other others rest",
    "places and measures": "q p mu count sample value total x",
    "atoms and quantities": "E grad curl KL chi2 J D Var Cov",
    "positions and directions": "i j t u v y",
    "words between formulas": "where wherever iff if and or not in is for every theta exists constant",
}


# ---------------------------------------------------------------------------- reserved words
@pytest.mark.parametrize("word", sorted({word for words in WORDS.values() for word in words.split()}))
def test_no_parameter_or_function_has_the_name_of_a_word(word):
    assert not is_declarable(word) and word in RESERVED
    for declared in (
        {"parameters": [word], "functions": {}},
        {"parameters": [], "functions": {word: ["k1"]}},
    ):
        with pytest.raises(Refused, match="cannot be declared"):
            Context.from_json({**declared, "premises": []})


@pytest.mark.parametrize("name", ["k2", "k3", "k4", "k0", "k12"])
def test_the_names_of_estimators_are_reserved(name):
    assert not is_declarable(name) and name not in RESERVED
    with pytest.raises(Refused, match="cannot be declared"):
        Context.from_json({"parameters": [name], "functions": {}, "premises": []})


@pytest.mark.parametrize("name", ["k4a", "kk4", "k_4", "K4", "b4", "ka"])
def test_their_neighbours_are_not(name):
    assert is_declarable(name)


def test_no_other_word_is_reserved():
    assert {word for words in WORDS.values() for word in words.split()} == RESERVED


def keys_of(file: str, table: str) -> list[str]:
    """The texts that are keys of a dictionary of a module, which is read and not imported."""
    for node in ast.walk(ast.parse((HOME / "language" / file).read_text())):
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if [getattr(target, "id", "") for target in targets] == [table]:
            return [
                ast.literal_eval(key) for key in node.value.keys if key is not None
            ]  # or a table of its own
    raise AssertionError(f"{file} has no {table}")


@pytest.mark.parametrize(
    ("file", "table"), [("parser.py", "FUNCTIONS"), ("parser.py", "OF_TOKENS"), ("expressions.py", "ATOMS")]
)
def test_every_word_of_the_parser_is_reserved(file, table):
    words = keys_of(file, table)
    assert len(words) >= 6 and set(words) <= RESERVED


def test_every_word_of_a_printed_formula_is_reserved():
    """What the printer writes beside names is a reserved word, or begins as no declared name may."""
    words: set[str] = set()
    for node in ast.walk(ast.parse((HOME / "kernel/printer.py").read_text())):
        if isinstance(node, ast.FunctionDef) and node.name in (
            "_show_exp",
            "show_scored",
            "show_atom",
            "show_side",
        ):
            texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and n is not node.body[0]]
            for text in texts:
                if isinstance(text, str) and text != ast.get_docstring(node):
                    words |= set(re.findall(r"[A-Za-z]\w*", text))
    assert {"grad", "curl", "s", "u", "v", "exp"} <= words
    assert not [word for word in words if is_declarable(word)]


@pytest.mark.parametrize(
    "name",
    [
        "b",
        "beta",
        "b_star",
        "lam",
        "n",
        "m",
        "g",
        "f1",
        "eps",
        "Q",
        "K1",
        "nowhere",
        "a" * 60,
        "now_b",
        "E1",
        "sums",
    ],
)
def test_other_names_may_be_declared(name):
    assert is_declarable(name)
    context = Context.from_json({"parameters": [name], "functions": {}, "premises": []})
    assert context.parameters == (name,)


@pytest.mark.parametrize(
    "name",
    [
        "", "1", "_b", "b'", "b[now]", "b b", "sg(b)", "a" * 61, "β", "b-c", "b\n", "E_q", "E_", "E_b",
        "sum_t", "sum_b", "mean_i", "mean_b", "k1_now", "b_past", "b_c_future", "b_self", "b_others",
        "b_rest", "b_other", None, 1, ("b",),
    ],
)  # fmt: skip
def test_what_is_no_plain_name_is_refused(name):
    assert not is_declarable(name)


# ---------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k1", Name("k1", 0, "x", False)),
        ("g''", Name("g", 2, "x", False)),
        ("k1[now]", Name("k1", 0, "now", False)),
        ("g'[self]", Name("g", 1, "self", False)),
        ("sg(k1)", Name("k1", 0, "x", True)),
        ("sg(g''[past])", Name("g", 2, "past", True)),
        ("log_q", Name("log_q", 0, "x", False)),
    ],
)
def test_names_are_parsed(text, expected):
    assert parse_name(text) == expected
    attached = text.removeprefix("sg(").removesuffix(")")
    assert attach_name(text) == attached and detach_name(text) == f"sg({attached})"
    assert attach_name(attached) == attached and detach_name(f"sg({attached})") == f"sg({attached})"


@pytest.mark.parametrize(
    "text",
    ["", "1", "k1[]", "k1[x]", "sg(k1[x])", "k1[now", "k1[now]'", "sg(k1", "k1)",
     "abck1)", "sg(sg(k1))", "k1 ",
     "k1[Now]", "k1\n", "_a"],
)  # fmt: skip
def test_other_names_are_refused(text):
    with pytest.raises(NotInRing, match=r"is no variable name|the slot x is not written out"):
        parse_name(text)


def test_the_bases():
    assert (*PROBABILITIES, "count") == MEASURES and SAMPLE == "sample"
    assert set(SAMPLE_BASES) == {*LOG_RATIOS, *THETA_FREE} and set(THETA_FREE) == {*REWARDS, "length"}
    assert (PROBABILITIES, LOG_RATIOS) == (("q", "p", "mu"), ("k1", "w", "log_q", "o"))
    assert (REWARDS, WHOLE) == (("R", "A", "M", "H", "H2", "H3", "H4"), ("x",))


# ---------------------------------------------------------------------------- slots
# The positions of each slot, (sample, step), in a batch of four samples and at the middle one of three steps.
STEPS = {"past": {0}, "now": {1}, "future": {2}, "x": {0, 1, 2}}
POSITIONS: dict[str, dict[str, set[tuple[int, int]]]] = {
    "": {"x": {(0, 0)}},
    "i": {"self": {(0, 0)}, "others": {(1, 0), (2, 0), (3, 0)}},
    "ij": {"self": {(0, 0)}, "other": {(1, 0)}, "rest": {(2, 0), (3, 0)}},
    "t": {slot: {(0, u) for u in steps} for slot, steps in STEPS.items()},
    "it": {slot: {(0, u) for u in steps} for slot, steps in STEPS.items()}
    | {"others": {(i, u) for i in (1, 2, 3) for u in (0, 1, 2)}},
}


def independent(a: set[tuple[int, int]], z: set[tuple[int, int]]) -> bool:
    """Each position of `a` is of another sample, or of an earlier step."""
    return all(i != j or u < v for i, u in a for j, v in z)


@pytest.mark.parametrize("index", list(POSITIONS))
def test_upstream_is_what_does_not_depend_on_a_slot(index):
    positions = POSITIONS[index]
    assert set(SLOTS[index]) == set(positions) and len(SLOTS[index]) == len(positions)
    assert set(UPSTREAM[index]) == set(PARTS[index]) - {"past"}
    for slot, upstream in UPSTREAM[index].items():
        expected = {other for other in positions if independent(positions[other], positions[slot])}
        assert set(upstream) == expected and len(upstream) == len(expected)


@pytest.mark.parametrize("table", [PARTS, SCORES])
@pytest.mark.parametrize("index", list(POSITIONS))
def test_parts_hold_each_position_once(index, table):
    found = [position for slot in table[index] for position in POSITIONS[index][slot]]
    assert sorted(found) == sorted(set().union(*POSITIONS[index].values()))
    assert len(SCORES[index]) <= len(PARTS[index])


def test_single_slots_hold_one_position_or_are_one_sample():
    alone = {slot for table in POSITIONS.values() for slot, held in table.items() if len(held) == 1}
    assert set(SINGLE) | {"past", "future"} == alone | {"x"} and SEQUENCE == ("past", "now", "future")
    assert list(POSITIONS) == list(PARTS) == list(SLOTS) == list(UPSTREAM) and SCORES["t"] == ("x",)
    assert SCORES["it"] == ("x", "others")  # a sequence has one score function, that of the whole


def test_slot_words_are_the_slots():
    assert {*SLOT_WORDS, "x"} == {slot for slots in SLOTS.values() for slot in slots}


@pytest.mark.parametrize(
    ("name", "slot", "expected"),
    [
        ("k1", "x", "k1"),
        ("k1", "now", "k1[now]"),
        ("g'", "self", "g'[self]"),
        ("sg(k1)", "x", "sg(k1)"),
        ("sg(k1)", "past", "sg(k1[past])"),
    ],
)
def test_names_at_a_slot(name, slot, expected):
    assert name_in_slot(name, slot) == expected and parse_name(expected).slot == slot


@pytest.mark.parametrize(
    ("entry", "index", "expected"),
    [
        ("x", "", True),
        ("x'", "", True),
        ("x''", "", False),
        ("now", "", False),
        ("past'", "t", True),
        ("others", "it", True),
        ("others", "t", False),
        ("x", "i", False),
        (1, "", False),
        (None, "", False),
    ],
)
def test_scores_are_slots_of_the_index(entry, index, expected):
    assert is_score(entry, index) is expected
    if expected:
        assert find_slot(entry) == entry.removesuffix("'")
