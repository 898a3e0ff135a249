"""The golden corpus: a share of its pairs is answered again, and each kind of change is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import sympy

from klsym import calculus
from klsym.api import explain
from klsym.engine.verdicts.lazy import Search
from klsym.engine.verdicts.verdict import Counterexample, Verdict
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.language.expressions import A, R, clip, eps, k1, k2, k3, now, own, r, rho
from klsym.language.messages import Message
from klsym.notation.tree import multiply
from klsym.notation.values import LazyFormula
from support.golden import __main__ as command
from support.golden import answers, compared, coverage, printed, stored
from support.golden.answers import answer_of, columns, value_of
from support.golden.codes import code_of
from support.golden.compared import Difference, Intended, differences, intended, same, sorted_out
from support.golden.pairs import Pair, pairs
from support.scale import scaled

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "explain.schema.json").read_text(encoding="utf-8"))
SAMPLE = scaled(2245, 60)
LARGEST = 500_000  # bytes of the file
K1, N = ExpPoly.from_variable("k1"), ExpPoly.from_variable("n")
PPO = "-min(rho*A, clip(rho, 0.8, 1.2)*A)"
OFF = {"sampling": "off-policy"}


# ---------------------------------------------------------------------------- the corpus itself
def sampled() -> list[stored.Row]:
    """The pairs whose keys come first: the same for the same corpus; random clamps take longer."""
    rows = [row for row in stored.read() if row[0].source not in ("clamped", "ties")]
    return sorted(rows, key=lambda row: row[0].key)[:SAMPLE]


def test_a_share_of_the_answers_is_as_it_is_stored() -> None:
    found: list[Difference] = []
    for pair, was in sampled():
        found += differences(pair, was, answer_of(pair.text, dict(pair.options), pair.parameters))
    left, _ = sorted_out(found, intended())
    assert not [f"{one.column}: {one.kind}: {one.pair}" for one in left], "see `make golden`"


def test_all_stored_json_has_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    answers_in_json = [one["json"] for one in printed.read().values()]
    for answer in answers_in_json:
        validator.validate(answer)
    words = SCHEMA["properties"]["target"]["enum"]
    targets = {answer["target"] for answer in answers_in_json}
    assert targets == {answer["gradient"]["target"] for answer in answers_in_json} == {*words}
    for old in ("separable", "none", "undecided"):
        for spoiled in ({**answers_in_json[0], "target": old}, {**answers_in_json[0], "schema": 3}):
            assert not validator.is_valid(spoiled)


def test_the_share_is_of_all_kinds() -> None:
    rows = sampled()
    levels = {pair.option("level") for pair, answer in rows if "refusal" not in answer}
    assert levels == {"sample", "token", "sequence"}
    assert {"kernel", "sympy"} <= {answer.get("trust") for _, answer in rows}
    assert any("refusal" in answer for _, answer in rows)


def test_every_choice_and_every_part_of_the_grammar_occurs() -> None:
    assert coverage.missing(stored.read()) == []


def test_a_part_that_is_left_out_is_missed() -> None:
    without = [row for row in stored.read() if "js" not in row[0].names]
    assert coverage.missing(without) == ["js"]
    without = [row for row in stored.read() if row[0].option("batch") != "std"]
    assert "batch std" in coverage.missing(without)


def test_the_corpus_is_large_and_its_file_small() -> None:
    rows = stored.read()
    assert len(rows) >= 1500
    assert len({pair.key for pair, _ in rows}) == len(rows)
    assert stored.FILE.stat().st_size < LARGEST


def test_the_same_rows_make_the_same_bytes() -> None:
    rows = stored.read()[:50]
    assert stored.packed(rows) == stored.packed(tuple(rows))
    assert stored.packed(rows) != stored.packed(rows[:-1])


def test_the_pairs_are_read_as_they_were_chosen() -> None:
    chosen = {pair.key: pair for pair in pairs()}
    assert all(chosen.get(pair.key, pair) == pair for pair, _ in stored.read())
    assert len(chosen.keys() & {pair.key for pair, _ in stored.read()}) >= 1500


def test_the_choice_of_pairs_is_the_same_each_time() -> None:
    first = pairs()
    pairs.cache_clear()
    assert first == pairs()
    assert len({(pair.text, pair.options, pair.parameters) for pair in first}) == len(first)


# ---------------------------------------------------------------------------- changes that are noticed
@cache
def verdict(loss: str, **options: str) -> Verdict:
    return explain(loss, **options)  # type: ignore[arg-type]


def parts(of: Verdict, **changed: Any) -> Verdict:
    """The verdict with other multiples of named parts."""
    named = {name.replace("_", "-"): value for name, value in changed.items()}
    return gradient(of, parts={**of.gradient.parts, **named})


def gradient(of: Verdict, **changed: Any) -> Verdict:
    return of.revise(gradient=replace(of.gradient, **changed))


def inside(of: Verdict, **changed: Any) -> Verdict:
    assert of.gradient.inside_clamps is not None
    return of.revise(inside_clamps=replace(of.gradient.inside_clamps, **changed))


def divergence(of: Verdict, **changed: Any) -> Verdict:
    assert of.objective.generator is not None
    return of.revise(generator=replace(of.objective.generator, **changed))


def warned(of: Verdict, messages: tuple[Message, ...]) -> Verdict:
    return of.revise(messages=messages)


def first_case(of: Verdict, **changed: Any) -> Any:
    """The cases with another condition, or another value, in the first of them."""
    (on, value), *rest = of.gradient.score_cases
    return (changed.get("on", on), changed.get("value", value)), *rest


def moved_bound() -> Any:
    """The cases of the clip with one bound elsewhere."""
    of = verdict(PPO, **OFF)
    at = next(i for i, (on, _) in enumerate(of.gradient.score_cases) if on)
    rows = list(of.gradient.score_cases)
    on, value = rows[at]
    moved = SimpleNamespace(x=on[0].x - sympy.Rational(1, 100), signs=on[0].signs)
    rows[at] = ((moved, *on[1:]), value)
    return tuple(rows)


CHANGES = {  # a verdict, what is changed, the column, the kind
    "target": ("k2", lambda v: gradient(v, target="forward-kl"), "target",
               "reverse-kl -> forward-kl"),
    "open": ("k2", lambda v: gradient(v, target=None), "target", "reverse-kl -> open"),
    "trust": ("k2", lambda v: v.revise(trust="sympy"), "trust", "kernel -> sympy"),
    "a multiple": ("k2", lambda v: parts(v, reverse_kl=ONE * 2), "combination", "reverse-kl: other value"),
    "one more part": ("k2", lambda v: parts(v, reward=K1), "combination", "reward: appeared"),
    "the rest": ("k3*k1", lambda v: gradient(v, rest=K1), "combination",
                 "rest: other value"),
    "the objective": ("k3*k1", lambda v: v.revise(quantity=verdict("k1**3").objective.quantity), "objective",
                      "side: other value"),
    "no objective": ("k3*k1", lambda v: v.revise(quantity=None, generator=None), "objective", "vanished"),
    "the value": ("k2", lambda v: v.revise(value=replace(v.value, target="zero")), "value",
                  "target: f-divergence -> zero"),
    "the constant": ("k2 + 1", lambda v: v.revise(constant=ONE * 2), "value", "constant: other value"),
    "h": ("k2", lambda v: v.revise(score_coefficient=K1 + 1), "h", "other value"),
    "h, a number": ("k2", lambda v: v.revise(score_coefficient=ZERO), "h", "other value"),
    "h outside the ring": ("k1/(2 + r)",
        lambda v: v.revise(score_coefficient=v.gradient.score_coefficient + 1), "h", "other value"),
    "c": ("k2", lambda v: v.revise(canonical_coefficient=K1 * 2), "c", "other value"),
    "c not known": ("k2", lambda v: v.revise(canonical_coefficient=None), "c", "vanished"),
    "the value in a region": (PPO, lambda v: v.revise(score_cases=first_case(v, value=A)), "cases",
                              "each: other value"),
    "a bound": (PPO, lambda v: v.revise(score_cases=moved_bound()), "cases", "each: other value"),
    "inside the clamps": (PPO, lambda v: inside(v, target="zero"), "inside", "target: combination -> zero"),
    "no counterexample": ("k3", lambda v: v.revise(counterexample=Counterexample()), "counterexample",
                          "vanished"),
    "a counterexample": ("k2", lambda v: v.revise(counterexample=Counterexample(Search(dict))),
                         "counterexample", "appeared"),
    "a warning less": ("k3", lambda v: warned(v, v.messages[1:]), "messages", "- value-is-not-gradient"),
    "a warning more": ("k3", lambda v: warned(v, (*v.messages, Message("tie", of="min"))), "messages",
                       "+ tie"),
    "a warning twice": ("k3", lambda v: warned(v, v.messages * 2), "messages", "count of heavy-tail"),
    "the generator": ("k2**2", lambda v: divergence(v, f=K1), "divergence", "f: other value"),
    "where it is convex": ("k2**2", lambda v: divergence(v, where=None), "divergence", "where: other value"),
    "the terms": ("k2**2 + k1*R", lambda v: v.revise(terms=v.gradient.terms[:1]), "terms", "other value"),
    "the advice": ("k3", lambda v: v.revise(suggestion=None), "instead", "vanished"),
    "a hypothesis less": ("k2", lambda v: v.revise(assumptions=v.assumptions[:-1]), "hypotheses", "*"),
    "how h is held": ("k2", lambda v: v.revise(score_coefficient=k1), "form", "h: ring -> outside the ring"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed_under_its_column(name: str) -> None:
    loss, change, column, kind = CHANGES[name]
    options = OFF if loss == PPO else {}
    before = verdict(loss, **options)
    pair = Pair(loss, tuple(options.items()))
    found = list(differences(pair, columns(before), columns(change(before))))
    allowed = {column, *ALONG.get(name, ())}
    assert {one.column for one in found} <= allowed
    assert any(Intended(column, "it is meant", kind=kind).covers(one) for one in found), found


ALONG = {  # columns that cannot but change with it
    "open": ("trust",), "the value": ("hypotheses",), "c not known": ("form",),
    "no objective": ("divergence",),
}  # fmt: skip


# ---------------------------------------------------------------------------- rewordings that are none
FORMS = {  # a value, the same in another form, and another value as near to it
    "another order":
        (A * rho + sympy.sqrt(2) * k1, k1 * sympy.sqrt(2) + rho * A, k1 * rho + sympy.sqrt(2) * A),
    "expanded":
        (sympy.sqrt(2) * (k1 + A) ** 2,
         sympy.expand(sympy.sqrt(2) * (k1 + A) ** 2), sympy.expand(sympy.sqrt(2) * (k1 - A) ** 2)),
    "an estimator by its definition":
        (sympy.sqrt(2) * k3, sympy.sqrt(2) * (r - 1 + k1), sympy.sqrt(2) * (r + k1)),
    "k2 by k1": (sympy.sqrt(3) * k2, sympy.sqrt(3) * k1**2 / 2, sympy.sqrt(3) * k1**2),
    "m for n - 1": (ExpPoly.from_variable("m"), N - 1, N),
    "factors apart":
        (LazyFormula(multiply, (1 - N.invert(), K1)), K1 - K1 * N.invert(), K1 + K1 * N.invert()),
    "in the ring, as an expression": (K1 * 2, 2 * k1, 2 * k2),
    "the score goes without saying": ({"now": K1}, K1, {"past": K1}),
    "zeros": ({"now": K1, "past": ZERO}, {"now": K1}, {"now": K1, "past": ONE}),
    "min and max": (sympy.Min(k1, R), -sympy.Max(-k1, -R), sympy.Max(k1, R)),
    "a clip":
        (clip(k1, -eps, eps), sympy.Min(sympy.Max(k1, -eps), eps), sympy.Min(sympy.Max(k1, -eps), 2 * eps)),
    "rho on-policy": (rho * A, A, r * A),
    "a slot":
        (now(k1) * sympy.sqrt(2),
         sympy.sqrt(2) * (now(calculus.log_q) - now(calculus.log_p)), sympy.sqrt(2) * own(k1)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_equal_values_are_the_same_in_each_form(name: str) -> None:
    one, alike, other = (value_of(value, on_policy=True) for value in FORMS[name])
    assert same(one, alike, on_policy=True) and not same(one, other, on_policy=True)


def test_off_policy_a_weight_is_no_one() -> None:
    assert not same(*(value_of(value) for value in FORMS["rho on-policy"][:2]), on_policy=False)


def test_a_bound_that_moves_a_little_is_told_as_another_form() -> None:
    bounds = 1000, sympy.Rational(100001, 100)
    one, other = ({"h": value_of(sympy.Min(rho, bound) * sympy.sqrt(2))} for bound in bounds)
    assert same(one["h"], other["h"], on_policy=False)  # no point lies between the two
    found = list(differences(Pair("rho", (("sampling", "off-policy"),)), one, other))
    assert [(x.column, x.kind) for x in found] == [("form", f"h: {compared.SAME_VALUE}")]


@pytest.mark.parametrize("change", ["order of warnings", "order of hypotheses", "values of a warning"])
def test_what_is_only_worded_otherwise_is_no_difference(change: str) -> None:
    before = verdict("k3")
    other = tuple(Message(x.code) for x in before.messages)
    after = {
        "order of warnings": before.revise(messages=before.messages[::-1]),
        "order of hypotheses": before.revise(assumptions=before.assumptions[::-1]),
        "values of a warning": before.revise(messages=other),
    }[change]
    assert list(differences(Pair("k3"), columns(before), columns(after))) == []


# ---------------------------------------------------------------------------- kinds of messages, refusals
KINDS = [  # two messages, are they of one kind?
    ("the mean of k1*R exists in 3 terms", "the mean of rho*k3 exists in 12 terms", True),
    ("'k3' sums over the tokens", "'past(k1)*R' sums over the tokens", True),
    ("unknown name 'kk' at character 1 (known: a b)", "unknown name 'x' at character 7 (known: c)", True),
    ("the mean of k1 exists", "the variance of k1 exists", False),
    ("unknown name 'kk'", "unknown function 'kk'", False),
]


@pytest.mark.parametrize(("one", "other", "alike"), KINDS)
def test_kinds_of_messages(one: str, other: str, alike: bool) -> None:
    assert (code_of(one) == code_of(other)) == alike


def test_a_code_goes_before_the_words() -> None:
    assert code_of(Message("heavy-tail", ratio="r")) == code_of(Message("heavy-tail", ratio="rho*r"))


def test_a_refusal_in_place_of_an_answer_is_one_difference() -> None:
    answered, refused = answer_of("k1", {}), answer_of("k1", {"credit": "total"})
    [found] = differences(Pair("k1"), answered, refused)
    assert (found.column, found.kind.split(" -> ")[0]) == ("refusal", "answered")
    [found] = differences(Pair("k1"), refused, answered)
    assert (found.column, found.kind.split(" -> ")[1]) == ("refusal", "answered")
    [found] = differences(Pair("k1"), refused, answer_of("kk", {}))
    assert found.column == "refusal"
    assert list(differences(Pair("k1"), refused, answer_of("k2", {"credit": "to-go"}))) == []


def test_an_answer_that_takes_too_long_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: Any, **__: Any) -> None:
        while True:
            sum(range(1000))

    monkeypatch.setattr(answers, "explain", endless)
    assert answer_of("k1", {}, limit=0.1) == {"refusal": "TooSlow: answer within"}


# ---------------------------------------------------------------------------- the list, and the command
CLAMP = Difference("trust", "sympy -> kernel", Pair("clip(k1, 0, 1)", source="ties"), "sympy", "kernel")


COVERING = [
    {"column": "trust"}, {"column": "tr*"}, {"kind": "sympy -> *"}, {"loss": "*clip*"}, {"source": "ties"},
    {"pairs": (CLAMP.pair.key,)},
]  # fmt: skip
OTHERS = [
    {"column": "target"}, {"column": "trust?"}, {"kind": "kernel -> *"}, {"loss": "clip"},
    {"source": "calls"}, {"pairs": ("00000000",)},
]  # fmt: skip


@pytest.mark.parametrize("entry", [*COVERING, *OTHERS], ids=str)
def test_what_an_entry_covers(entry: dict[str, Any]) -> None:
    one = Intended(**{"column": "*", "reason": "it is proved now", **entry})
    assert one.covers(CLAMP) == (entry in COVERING)


@pytest.mark.parametrize("reason", ["", "better", "it improved"])
def test_an_entry_needs_a_reason(reason: str) -> None:
    with pytest.raises(ValueError, match="a reason of a sentence"):
        intended(f"[[difference]]\ncolumn = 'trust'\nreason = '{reason}'")


LISTS = {  # what is listed, and how the command ends
    "nothing": ((), 1, "1 differences are not in"),
    "the difference": ((Intended("trust", "it is proved now"),), 0, ""),
    "another one": ((Intended("trust", "it is proved now"), Intended("h", "")), 1, "no difference is left"),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_the_command_fails_on_what_is_not_listed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, code, said = LISTS[name]
    answer = answer_of("k2", {})
    monkeypatch.setattr(
        stored, "read", lambda: ((Pair("k2"), {**answer, "trust": "sympy"}), (Pair("k2"), answer))
    )
    monkeypatch.setattr(command, "answers", lambda pairs, jobs: ((pair, answer, 0.1) for pair in pairs))
    monkeypatch.setattr(compared, "intended", lambda: listed)
    assert command.main([]) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert [line.split()[1:3] for line in printed.out.splitlines() if line.startswith("trust ")] == [
        ["1", "1"]
    ]
    assert ("klsym explain \"k2\"" in printed.out) == (name == "nothing")  # fmt: skip


# ---------------------------------------------------------------------------- word for word
def test_a_share_of_what_is_printed_is_as_it_is_stored() -> None:
    pairs = printed.stored_pairs()
    assert len(pairs) == printed.COUNT
    for pair in sorted(pairs, key=lambda pair: pair.key)[:: scaled(1, 12)]:
        assert list(printed.compare_printed(pair, printed.print_answer(pair))) == []


def test_what_is_stored_is_of_all_settings() -> None:
    of_all = {pair.options for pair, answer in stored.read() if "refusal" not in answer}
    assert {pair.options for pair in printed.stored_pairs()} == of_all


@pytest.mark.parametrize("part", ["text", "json", "certificates"])
def test_a_change_of_what_is_printed_is_noticed(part: str) -> None:
    pair = next(pair for pair in printed.stored_pairs() if printed.read()[pair.key]["certificates"])
    was = printed.read()[pair.key]
    changed = {"text": was["text"] + " ", "json": {**was["json"], "target": "x"}, "certificates": []}
    [found] = printed.compare_printed(pair, {**was, part: changed[part]})
    assert found.startswith(f"{pair}: {part}")
