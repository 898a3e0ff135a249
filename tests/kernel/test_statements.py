"""Statements: contexts, the normal form of sides, atoms to and from JSON, and what is malformed."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.errors import NotInRing, Refused
from klsym.kernel.assumptions import show_brief
from klsym.kernel.names import THETA_FREE
from klsym.kernel.ring import ONE, ZERO, ExpPoly, set_budget
from klsym.kernel.statements import (
    Context,
    Curl,
    Gradient,
    Mean,
    MeanGradient,
    Side,
    Statement,
    pair_elements_with_slots,
    read_atom,
    walk_atoms,
    walk_elements,
)

K1, W, B, C, T = (ExpPoly.from_variable(name) for name in ("k1", "w", "b", "c", "length"))
CONTEXT = Context(parameters=("b", "c"), functions=(("g", ("k1",)),))


def mean(a: ExpPoly, measure: str = "q", score: tuple[str, ...] = (), index: str = "") -> Side:
    return Side.from_atom(Mean(index, measure, a, score))


EQ, EP = mean(K1), mean(W, "p")


# ---------------------------------------------------------------------------- contexts
PREMISE = [EQ.to_json(), Side().to_json()]
DATA = {"parameters": ["b", "n"], "functions": {"g": ["k1", "w"], "f": []}, "premises": [PREMISE]}


def test_contexts_are_read_and_written():
    context = Context.from_json(DATA)
    assert context.parameters == ("b", "n") and context.functions == (("f", ()), ("g", ("k1", "w")))
    assert context.premises == ((EQ, Side()),) and context.function_arguments == {"f": (), "g": ("k1", "w")}
    assert Context.from_json(context.to_json()) == context and context.to_json() == DATA
    assert Context().to_json() == {"parameters": [], "functions": {}, "premises": []}
    every = ["k1", "w", "log_q", "o"]
    assert Context.from_json(DATA | {"functions": {"g": every}}).function_arguments == {"g": tuple(every)}


def test_a_fact_speaks_of_whatever_theta_does_not_move():
    free = sum((ExpPoly.from_variable(name) for name in THETA_FREE), ZERO)
    data = {"parameters": [], "functions": {}, "premises": []}
    given = {"facts": [free.to_json()], "witness": dict.fromkeys(THETA_FREE, "1")}
    assert Context.from_json({**data, **given}).facts == (free,)
    for name in ("k1", "w", "log_q", "o"):
        wrong = {
            "facts": [(free + ExpPoly.from_variable(name)).to_json()],
            "witness": {**given["witness"], name: "1"},
        }
        with pytest.raises(Refused, match="a fact speaks of"):
            Context.from_json({**data, **wrong})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"given": []}, "the keys"),
        ({"parameters": "b"}, "a list of parameters and an object of functions"),
        ({"parameters": {"b": 1}}, "a list of parameters and an object of functions"),
        ({"functions": [["g", ["k1"]]]}, "a list of parameters and an object of functions"),
        ({"parameters": ["b", "b"]}, "declared twice"),
        ({"parameters": ["g"]}, "declared twice"),
        ({"parameters": ["rho"]}, "cannot be declared"),
        ({"parameters": [1]}, "cannot be declared"),
        ({"functions": {"s": ["k1"]}}, "cannot be declared"),
        ({"functions": {"g": "w"}}, "g may depend on k1, w, log_q, o only"),
        ({"functions": {"g": {"k1": 1}}}, "may depend on k1, w, log_q, o only"),
        ({"functions": {"g": ["R"]}}, "may depend on k1, w, log_q, o only"),
        ({"functions": {"g": ["k1", "b"]}}, "may depend on k1, w, log_q, o only"),
        ({"premises": [[[], None]]}, "a list of terms"),
        ({"premises": [[None, []]]}, "a list of terms"),
    ],
)
def test_malformed_contexts_are_refused(changed, message):
    with pytest.raises(Refused, match=message):
        Context.from_json(DATA | changed)


def test_contexts_that_lack_a_key_are_refused():
    for data in (None, [], {}, *({k: v for k, v in DATA.items() if k != key} for key in DATA)):
        with pytest.raises(Refused, match="the keys"):
            Context.from_json(data)


def test_functions_may_depend_on_each_log_ratio():
    for arguments in (["k1"], ["w"], ["log_q"], ["k1", "w", "log_q"]):
        context = Context.from_json(DATA | {"functions": {"g": arguments}})
        assert context.functions == (("g", tuple(arguments)),)


@pytest.mark.parametrize(
    ("names", "slots"),
    [
        ((), ()),
        (("b",), ()),
        (("k1", "w", "log_q", "R", "A", "H", "length"), ("x",)),
        (("sg(k1)", "g", "g'", "sg(g'')"), ("x",)),
        (("k1[now]", "sg(w[past])", "g'[now]", "length"), ("past", "now", "future", "x")),
    ],
)
def test_declared_names_are_admitted(names, slots):
    for name in names:
        CONTEXT.check(ExpPoly.from_variable(name), slots)
        CONTEXT.check(ExpPoly.from_variable(name).exp(), slots)


@pytest.mark.parametrize(
    ("element", "slots", "message"),
    [
        ("k2", ("x",), "unknown name 'k2'"),
        ("a", ("x",), "unknown name 'a'"),
        ("k1'", ("x",), "unknown name"),
        ("R'", ("x",), "unknown name"),
        ("b'", ("x",), "unknown name"),
        ("b[now]", ("x", "now"), "unknown name"),
        ("sg(b)", ("x",), "unknown name"),
        ("k1[now]", ("x",), "unknown slot 'now'"),
        ("k1", ("now", "past"), "unknown slot 'x'"),
        ("g[self]", ("x",), "unknown slot 'self'"),
        ("k1", (), "unknown slot 'x'"),
    ],
)
def test_undeclared_names_and_foreign_slots_are_refused(element, slots, message):
    for a in (ExpPoly.from_variable(element), ExpPoly.from_variable(element).exp()):
        with pytest.raises(Refused, match=message):
            CONTEXT.check(a, slots)
    assert CONTEXT.is_sample(element) and not CONTEXT.is_constant(ExpPoly.from_variable(element) + B)


def test_only_parameters_and_lengths_divide():
    for a in (B.invert(), T.invert(), (K1 * B.invert()).exp(), K1 * T**-2):
        CONTEXT.check(a)
    for a in (
        K1.invert(),
        (W.invert() * B).exp(),
        ExpPoly.from_variable("R").invert(),
        ExpPoly.from_variable("g").invert(),
    ):
        with pytest.raises(Refused, match="only parameters divide"):
            CONTEXT.check(a)
    with pytest.raises(Refused, match="only parameters divide"):
        CONTEXT.check(ExpPoly.from_variable("length[now]").invert(), ("now",))


def test_constants_hold_parameters_alone():
    assert all(map(CONTEXT.is_constant, (ONE, ZERO, B, B.exp() * C.invert())))
    assert not any(map(CONTEXT.is_constant, (K1, B * K1, (B * K1).exp(), T, K1 + B)))
    assert not CONTEXT.is_sample("b") and CONTEXT.is_sample("k1") and CONTEXT.is_sample("g")


# ---------------------------------------------------------------------------- atoms
ATOMS = [
    (Mean("", "q", K1), ["Mean", "", "q", K1.to_json(), []]),
    (Mean("", "count", K1.exp()), ["Mean", "", "count", K1.exp().to_json(), []]),
    (Mean("", "sample", ONE, ("x",)), ["Mean", "", "sample", ONE.to_json(), ["x"]]),
    (Mean("", "q", ONE, ("x", "x'")), ["Mean", "", "q", ONE.to_json(), ["x", "x'"]]),
    (Mean("t", "mu", W, ("now", "past")), ["Mean", "t", "mu", W.to_json(), ["now", "past"]]),
    (Mean("it", "sample", W, ("others",)), ["Mean", "it", "sample", W.to_json(), ["others"]]),
    (MeanGradient("", "q", K1), ["MeanGradient", "", "q", K1.to_json()]),
    (MeanGradient("i", "p", W), ["MeanGradient", "i", "p", W.to_json()]),
    (Curl("ij", "mu", K1), ["Curl", "ij", "mu", K1.to_json()]),
    (Gradient(EQ + EP), ["Gradient", (EQ + EP).to_json()]),
]  # fmt: skip


@pytest.mark.parametrize(("atom", "data"), ATOMS)
def test_atoms_are_read_and_written(atom, data):
    assert atom.to_json() == data and read_atom(data) == atom
    assert type(read_atom(data)) is type(atom)
    side = Side.from_atom(atom)
    assert Side.from_json(side.to_json()) == side and next(iter(walk_atoms(side))) == atom


def test_the_scores_of_an_atom_are_sorted_when_read():
    read = read_atom(["Mean", "t", "q", [], ["past", "now", "now"]])
    assert read == Mean("t", "q", ZERO, ("now", "now", "past"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "unknown atom"),
        ([], "unknown atom"),
        ("Mean", "unknown atom"),
        (["E", "", "q", [], []], "unknown atom"),
        (["Mean", "", "q", []], "unknown atom"),
        (["Mean", "", "q", [], [], []], "unknown atom"),
        (["Mean", "u", "q", [], []], "unknown atom"),
        (["Mean", "x", "q", [], []], "unknown atom"),
        (["Mean", "", "nu", [], []], "unknown atom"),
        (["Mean", "", "", [], []], "unknown atom"),
        (["Mean", "t", "count", [], []], "unknown atom"),
        (["MeanGradient", "i", "count", []], "unknown atom"),
        (["Mean", 1, "q", [], []], "unknown atom"),
        (["Mean", "", 1, [], []], "unknown atom"),
        (["Mean", "", "q", [], "x"], "unknown atom"),
        (["MeanGradient", "", "q", [], []], "unknown atom"),
        (["MeanGradient", "", "nu", []], "unknown atom"),
        (["Curl", "t", "q"], "unknown atom"),
        (["Gradient"], "unknown atom"),
        (["Gradient", [], []], "unknown atom"),
        (["Mean", "", "q", [], ["now"]], "score: a list of slots"),
        (["Mean", "t", "q", [], ["now", "self"]], "score: a list of slots"),
        (["Mean", "", "q", [], ["x", 1]], "score: a list of slots"),
        (["Mean", "", "q", [], ["x''"]], "score: a list of slots"),
        (["Mean", "", "q", None, []], "a list of terms"),
        (["MeanGradient", "", "q", {}], "a list of terms"),
        (["Gradient", None], "a side: a list of terms"),
    ],
)
def test_malformed_atoms_are_refused(data, message):
    with pytest.raises((Refused, NotInRing), match=message):
        read_atom(data)


@pytest.mark.parametrize(
    "data",
    [None, {}, "x", [None], [[]], [[[]]], [[ONE.to_json(), [], []]], [[ONE.to_json(), {}]],
     [(ONE.to_json(), [])]],
)  # fmt: skip
def test_malformed_sides_are_refused(data):
    with pytest.raises(Refused, match="a side: "):
        Side.from_json(data)


# ---------------------------------------------------------------------------- sides
GRAD, FIELD = Gradient(EQ), MeanGradient("", "q", W)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (EQ + EQ, mean(K1 * 2)),
        (EQ - EQ, Side()),
        (mean(ZERO), Side()),
        (mean(K1 + 1), EQ + mean(ONE)),
        (EQ * B, mean(B * K1)),
        (EQ * 0, Side()),
        (2 * EQ, EQ * 2),
        (-EQ, EQ * -1),
        (EQ + EP, EP + EQ),
        (Side.from_constant(2) + Side.from_constant(B), Side.from_constant(B + 2)),
        (Side.from_constant(0), Side()),
        (Side.from_atom(GRAD) + Side.from_atom(GRAD), Side.combine((2, (GRAD,)))),
        (Side.from_atom(GRAD) - Side.from_atom(GRAD), Side()),
        (EQ.multiply(EP), EP.multiply(EQ)),
        ((EQ * 2).multiply(EP * B), EQ.multiply(EP * B) * 2),
        ((EQ + 3 * EP).multiply(EQ), EQ.multiply(EQ) + EP.multiply(EQ) * 3),
        (EQ.multiply(Side.from_constant(B)), EQ * B),
        (Side.from_constant(B).multiply(EQ), EQ * B),
        (mean(K1 * 3).multiply(EP), EQ.multiply(EP) * 3),
        (mean(-K1 * B + B).multiply(EP), mean(K1 * B - B).multiply(EP) * -1),
        (Side.combine((1, (Mean("", "q", ZERO), FIELD))), Side()),
        (EQ.multiply(Side.from_atom(FIELD)), Side.combine((ONE, (FIELD, Mean("", "q", K1))))),
        (EQ.multiply(EP).multiply(EQ), EQ.multiply(EQ).multiply(EP)),
    ],
)
def test_equal_sides_have_one_form(left, right):
    assert left == right and left.to_json() == right.to_json() and hash(left) == hash(right)
    assert Side.from_json(left.to_json()) == left


@pytest.mark.parametrize(
    "other",
    [
        mean(W), mean(K1, "p"), mean(K1, "mu"), mean(K1, "q", ("x",)), mean(K1 * 2), mean(K1, "sample"),
        Side(), mean(K1, index="t"), Side.from_atom(Gradient(EQ)), EQ.multiply(EQ), Side.from_constant(K1),
        Side.from_atom(MeanGradient("", "q", K1)),
    ],
)  # fmt: skip
def test_other_sides_differ(other):
    assert other != EQ and bool((EQ - other).terms) and len({other, EQ}) == 2
    assert Side.from_json(other.to_json()) == other


def test_the_terms_of_a_side():
    side = EQ * 2 + Side.from_atom(GRAD) * B + EQ.multiply(EP) * 3 + Side.from_constant(C)
    assert len(side.terms) == 4
    assert {atoms: c for c, atoms in side.terms} == {
        (Mean("", "q", K1 * 2),): ONE,
        (GRAD,): B,
        (Mean("", "p", W), Mean("", "q", K1)): ONE * 3,
        (): C,
    }
    data = side.to_json()
    assert [[row[0], [atom[0] for atom in row[1]]] for row in data] == [
        [C.to_json(), []],
        [B.to_json(), ["Gradient"]],
        [[["3", {}]], ["Mean", "Mean"]],
        [[["1", {}]], ["Mean"]],
    ]
    assert Side.from_json(data[::-1]) == side


def test_the_leading_number_of_a_mean_in_a_product_is_one():
    """The leading term is the first in canonical order, whatever order it was written in."""
    product = mean(K1 * -2 + W * 6).multiply(EP)
    [(scale, (first, second))] = product.terms
    assert scale == ONE * -2 and first == Mean("", "p", W) and second == Mean("", "q", K1 - W * 3)


def test_terms_are_sorted_by_their_canonical_text():
    first, second = MeanGradient("", "q", K1 * W), MeanGradient("", "q", K1**11)
    for side in (Side.combine((1, (first,)), (1, (second,))), Side.combine((1, (second,)), (1, (first,)))):
        assert [atoms for _, atoms in side.terms] == [(first,), (second,)]


def test_products_are_paid_for_before_they_are_made(monkeypatch):
    wide = sum((Side.from_atom(MeanGradient("", "q", K1**i)) for i in range(1, 31)), Side())
    monkeypatch.setattr(
        Side, "combine", staticmethod(lambda *terms: pytest.fail("made before it was paid for"))
    )
    with set_budget(800), pytest.raises(Refused, match="budget"):
        wide.multiply(wide)


def test_sides_are_charged():
    wide = sum((Side.from_atom(MeanGradient("", "q", K1**i)) for i in range(1, 31)), Side())
    with set_budget(800), pytest.raises(Refused, match="budget"):
        wide.multiply(wide)
    with set_budget(50), pytest.raises(Refused, match="budget"):
        wide + wide
    assert len((wide + wide).terms) == 30


# ---------------------------------------------------------------------------- what a side mentions
def test_what_a_side_mentions():
    inner = mean(K1, "p") * B + Side.from_constant(C + 1)
    field = Curl("t", "q", ExpPoly.from_variable("k1[now]"))
    side = Side.combine(
        (B, (Gradient(inner + Side.from_atom(FIELD) * C),)), (C, (field,)), (1, (Mean("i", "q", W),))
    )
    found: list[Any] = list(pair_elements_with_slots(side))
    assert {(str(a), slots) for a, slots in found} == {
        (str(a), slots)
        for a, slots in [
            (B, ("x",)),
            (C, ("x",)),
            (ONE, ("x",)),
            (C + 1, ("x",)),
            (B * K1, ("x",)),
            (W, ("x",)),
            (ExpPoly.from_variable("k1[now]"), ("past", "now", "future", "x")),
            (W, ("self", "others")),
        ]
    }
    assert [str(a) for a in walk_elements(side)] == [str(a) for a, _ in found]
    kinds = [type(atom).__name__ for atom in walk_atoms(side)]
    assert sorted(kinds) == ["Curl", "Gradient", "Mean", "Mean", "MeanGradient"]


def test_statements_are_equations_without_context_by_default():
    statement = Statement(EQ, EP)
    assert (statement.relation, statement.context) == ("=", Context())
    assert Side() == Side.combine() and Context() == Context((), (), ())


def test_a_message_shows_the_first_term_and_counts_the_others():
    """And of a long one the first 300 characters."""
    one, two, three = EQ, EQ + EP, EQ + EP + mean(W, "mu")
    long = mean(sum((K1**i for i in range(1, 40)), ZERO))
    assert len(long.text) > 300
    first = Side(three.terms[:1]).text
    assert show_brief(one) == one.text and show_brief(two) == Side(two.terms[:1]).text + " and 1 more"
    assert show_brief(three) == f"{first} and 2 more"
    assert show_brief(long) == long.text[:300]
