"""Files that are no certificates, or would say something else than it seems if they were read kindly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from klsym.kernel import FORMAT, digest
from support.certificates.faulty_certificates import (
    CLOSE,
    ONE,
    PART,
    PQ,
    QP,
    REVERSE,
    STEP1,
    WHOLE,
    Draft,
    Eg,
    Em,
    constant,
    k1,
    k2,
)


def true() -> Draft:
    """E_q[grad k1^2/2] = E_q[k1 s]."""
    return Draft(Eg("q", k2), REVERSE).step("chain rule")


def false() -> Draft:
    return Draft(QP, PQ)


def whole(**change: Any) -> Callable[[], dict[str, Any]]:
    """A true certificate with other entries."""
    return lambda: true().certificate() | change


def sealed(change: Callable[[dict[str, Any]], object]) -> Callable[[], dict[str, Any]]:
    """A true certificate whose one part is changed, with the digest of what it has become."""

    def build() -> dict[str, Any]:
        certificate = json.loads(json.dumps(true().certificate()))
        change(certificate["parts"][0])
        return certificate | {"digest": digest(certificate["parts"])}

    return build


def lacking(key: str) -> Callable[[], dict[str, Any]]:
    return lambda: {k: v for k, v in true().certificate().items() if k != key}


def text(old: str, new: str) -> Callable[[], str]:
    """The text of a true certificate, with its first `old` replaced."""

    def build() -> str:
        written = json.dumps(true().certificate(), sort_keys=True) + "\n"
        assert old in written, old
        return written.replace(old, new, 1)

    return build


def of_two_parts(which: int) -> Callable[[], dict[str, Any]]:
    """Two parts, of which one is false."""
    parts = [*true().parts(), *true().parts()]
    parts[which:which] = false().parts()
    return lambda: true().certificate() | {"parts": parts, "digest": digest(parts)}


TERM = '"term": 0'
FILES: dict[str, list[Any]] = {
    "digest": [
        ("of other content", WHOLE, "digest: the content was changed", whole(parts=false().parts())),
        ("of fewer parts", WHOLE, "digest: the content was changed", whole(parts=true().parts() * 2)),
        ("of the whole file", WHOLE, "digest: the content was changed",
            lambda: true().certificate() | {"digest": digest(true().certificate())}),
        ("in capitals", WHOLE, "digest: the content was changed",
            lambda: true().certificate() | {"digest": true().certificate()["digest"].upper()}),
        ("shortened", WHOLE, "digest: the content was changed",
            lambda: true().certificate() | {"digest": true().certificate()["digest"][:12]}),
        ("null", WHOLE, "digest: the content was changed", whole(digest=None)),
        ("of another result", WHOLE, "digest: the content was changed",
            text('"result": [[', '"result": [[[], []], [')),
        ("of other hypotheses", WHOLE, "digest: the content was changed",
            text('"hypotheses": []', '"hypotheses": [["support", "q", "p"]]')),
    ],
    "certificate": [
        ("without a digest", WHOLE, "a certificate has the keys", lacking("digest")),
        ("without a format", WHOLE, "a certificate has the keys", lacking("format")),
        ("without what it cites", WHOLE, "a certificate has the keys", lacking("cites")),
        ("with a claim of its own", WHOLE, "a certificate has the keys", whole(claim="gradient.k3-loss")),
        ("of the format before", WHOLE, "format 'klsym-certificate/1': this kernel reads",
            whole(format=FORMAT[:-1] + "1")),
        ("of a format to come", WHOLE, "format 'klsym-certificate/20': this kernel reads",
            whole(format=FORMAT + "0")),
        ("that is a list", WHOLE, "a certificate has the keys", lambda: json.dumps([true().certificate()])),
        ("that is null", WHOLE, "a certificate has the keys", lambda: "null\n"),
        ("that cites a text", WHOLE, "cites: a list expected", whole(cites="abc")),
        ("without parts", WHOLE, "parts: a nonempty list expected", whole(parts=[], digest=digest([]))),
        ("that cites no parts", WHOLE, "cited 1, parts: a nonempty list expected", whole(cites=[[]])),
        ("whose second part is false", "part 2, close", "the two sides differ", of_two_parts(1)),
        ("whose last part is false", "part 3, close", "the two sides differ", of_two_parts(2)),
        ("that is cut off", WHOLE, "no JSON", lambda: json.dumps(true().certificate())[:-20]),
        ("followed by another", WHOLE, "no JSON", lambda: json.dumps(true().certificate()) * 2),
        ("that is empty", WHOLE, "no JSON", lambda: ""),
        ("with a mark at its start", WHOLE, "no JSON", lambda: "\ufeff" + json.dumps(true().certificate())),
    ],
    "json": [
        ("a certificate with its parts twice", WHOLE, "an object has a key twice",  # the last one was read
            text('{"cites"', '{"parts": ' + json.dumps(false().parts()) + ', "cites"')),
        ("a part with its right side twice", WHOLE, "an object has a key twice",
            text('"right":', '"right": ' + json.dumps(PQ.to_json()) + ', "right":')),
        ("a monomial with a power twice", WHOLE, "an object has a key twice",
            text('{"k1": 1}', '{"k1": 2, "k1": 1}')),
        ("the same entry twice", WHOLE, "an object has a key twice", text(TERM, f"{TERM}, {TERM}")),
        ("a key twice by an escape", WHOLE, "an object has a key twice",
            text(TERM, '"term": 1, "\\u0074erm": 0')),
        ("a float for a power", WHOLE, "1.0 is no exact number", text('{"k1": 1}', '{"k1": 1.0}')),
        ("a float for a coefficient", WHOLE, "0.5 is no exact number", text('["1/2"', "[0.5")),
        ("an exponent for an integer", WHOLE, "1e0 is no exact number", text('{"k1": 1}', '{"k1": 1e0}')),
        ("not a number", WHOLE, "NaN is no exact number", text(TERM, '"term": NaN')),
        ("infinity", WHOLE, "Infinity is no exact number", text(TERM, '"term": Infinity')),
        ("minus infinity", WHOLE, "-Infinity is no exact number", text(TERM, '"term": -Infinity')),
        ("an integer of twenty digits", WHOLE, "1{20} is no exact number", text(TERM, '"term": ' + "1" * 20)),
        ("an integer of five thousand digits", WHOLE, "1{20} is no exact number",
            text(TERM, '"term": ' + "1" * 5000)),
        ("true for one", WHOLE, "no truth value", text('{"k1": 1}', '{"k1": true}')),
        ("false for zero", WHOLE, "no truth value", text(TERM, '"term": false')),
        ("a comment", WHOLE, "no JSON", text(TERM, f"/* the first */ {TERM}")),
        ("a comma too many", WHOLE, "no JSON", text(TERM, f"{TERM},,")),
        ("single quotes", WHOLE, "no JSON", text(TERM, "'term': 0")),
        ("a line break in a text", WHOLE, "no JSON", text('"chain rule"', '"chain\nrule"')),
    ],
    "part": [
        ("without its hypotheses", PART, "a part has the keys", sealed(lambda part: part.pop("hypotheses"))),
        ("with a note", PART, "a part has the keys", sealed(lambda part: part.update(note="by hand"))),
        ("that is a list", PART, "a part has the keys",
            lambda: true().certificate() | {"parts": [[]], "digest": digest([[]])}),
        ("with a context of another key", PART, "context: the keys",
            sealed(lambda part: part["context"].update(given={}))),
        ("with parameters in a text", PART, "context: a list of parameters",
            sealed(lambda part: part["context"].update(parameters="ab"))),
        ("with functions in a list", PART, "context: a list of parameters and an object",
            sealed(lambda part: part["context"].update(functions=[]))),
        ("whose close has another key", PART, "close: the keys",
            sealed(lambda part: part["close"].update(note="clear"))),
        ("whose close is a text", CLOSE, "one of .* expected",
            sealed(lambda part: part.update(close="equality"))),
        ("whose step has another key", STEP1, "a step has the keys",
            sealed(lambda part: part["steps"][0].update(note="clear"))),
        ("whose step has no data", STEP1, "data: an object expected",
            sealed(lambda part: part["steps"][0].update(data=None))),
        ("whose step is of many rules", STEP1, "unknown rule",
            sealed(lambda part: part["steps"][0].update(rule=["chain rule"]))),
        ("whose term is a text", STEP1, "term 0: there are 1",
            sealed(lambda part: part["steps"][0].update(term="0"))),
        ("whose left side is null", PART, "a side: a list of terms expected",
            sealed(lambda part: part.update(left=None))),
        ("whose atom is a text", PART, "unknown atom",
            sealed(lambda part: part["right"][0][1].append("E_q"))),
    ],
}  # fmt: skip


# ---------------------------------------------------------------------------- numbers
def weighed(coefficient: Any) -> Callable[[], dict[str, Any]]:
    """The certificate of E_q[c] = c, with c as it is written."""

    def build() -> dict[str, Any]:
        draft = Draft(Em("q", ONE), constant(1)).step("normalisation")
        draft.part["left"][0][1][0][3][0][0] = coefficient
        return draft.certificate()

    return build


NUMBERS: dict[str, list[Any]] = {
    "number": [
        (label, PART, f"{reason}, got", weighed(value))
        for label, value, reason in [
            ("with a sign", "+1", "an exact number such as .* expected"),
            ("with a space", " 1", "an exact number such as .* expected"),
            ("with two signs", "--1", "an exact number such as .* expected"),
            ("with a point", "1.0", "an exact number such as .* expected"),
            ("with an underscore", "1_0", "an exact number such as .* expected"),
            ("of other digits", "\u0661", "an exact number such as .* expected"),
            ("as an integer", 1, "an exact number such as .* expected"),
            ("as null", None, "an exact number such as .* expected"),
            ("that is empty", "", "an exact number such as .* expected"),
            ("of two fractions", "1/2/3", "an exact number such as .* expected"),
            ("of 4001 digits", "1" * 4001, "an exact number such as .* expected"),
            ("not in lowest terms", "2/2", "in lowest terms expected"),
            ("with a leading zero", "01", "in lowest terms expected"),
            ("that is minus zero", "-0", "in lowest terms expected"),
            ("with a negative denominator", "1/-1", "an exact number such as .* expected"),
        ]
    ]
    + [
        ("with a zero denominator", PART, "in lowest terms expected", weighed("1/0")),
        ("that is zero", PART, "left side is not in normal form", weighed("0")),
    ],
    "power": [
        (label, PART, f"power of 'k1'.*{reason}", sealed(lambda part, value=value: _power(part, value)))
        for label, value, reason in [
            ("that is zero", 0, "a nonzero integer up to 4096 expected"),
            ("as a text", "1", "a nonzero integer up to 4096 expected"),
            ("that is null", None, "a nonzero integer up to 4096 expected"),
            ("beyond the limit", 4097, "a nonzero integer up to 4096 expected"),
            ("below the limit", -4097, "a nonzero integer up to 4096 expected"),
        ]
    ],
}  # fmt: skip


def _power(part: dict[str, Any], value: Any) -> None:
    part["right"] = Em("q", k1, 1).to_json()
    part["right"][0][1][0][3] = [["1", {"k1": value}]]


FILES |= NUMBERS
