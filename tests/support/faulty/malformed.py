"""Malformed certificates: values of a wrong type, out of order, unknown or nested too deeply."""

from __future__ import annotations

from typing import Any

from support.certificates.kernel_words import signed


def of_side(left: Any, **change: Any) -> dict[str, Any]:
    """A certificate that says left = left."""
    context = {"parameters": [], "functions": {}, "premises": []}
    part = {"context": context, "relation": "=", "left": left, "right": left, "steps": []}
    part |= {"close": {"by": "equality", "rows": []}, "hypotheses": []}
    return signed([{**part, **change}])


ONE = [["1", {}]]


def a_mean(coefficient: Any, measure: Any = "q", index: Any = "", score: Any = ()) -> Any:
    return [[ONE, [["Mean", index, measure, coefficient, list(score)]]]]


def deep(depth: int, inner: Any = None) -> Any:
    data: Any = inner
    for _ in range(depth):
        data = [data]
    return data


def gradients(depth: int) -> Any:
    side = a_mean([["1", {"k1": 1}]])
    for _ in range(depth):
        side = [[ONE, [["Gradient", side]]]]
    return side


K1 = [["1", {"k1": 1}]]
CONTEXT = {"parameters": [], "functions": {}, "premises": []}
MALFORMED = {
    "a float power": lambda: of_side(a_mean([["1", {"k1": 1.0}]])),
    "a truth value as a power": lambda: of_side(a_mean([["1", {"k1": True}]])),
    "a zero power": lambda: of_side(a_mean([["1", {"k1": 0}]])),
    "a power of 4097": lambda: of_side(a_mean([["1", {"k1": 4097}]])),
    "a number that is no text": lambda: of_side(a_mean([[1, {"k1": 1}]])),
    "a decimal": lambda: of_side(a_mean([["0.5", {"k1": 1}]])),
    "an exponential number": lambda: of_side(a_mean([["1e5", {"k1": 1}]])),
    "a zero denominator": lambda: of_side(a_mean([["1/0", {"k1": 1}]])),
    "not a number": lambda: of_side(a_mean([["nan", {"k1": 1}]])),
    "a number with a sign": lambda: of_side(a_mean([["+1", {"k1": 1}]])),
    "an Arabic digit": lambda: of_side(a_mean([["\u0663", {"k1": 1}]])),
    "a number of 4001 digits": lambda: of_side(a_mean([["9" * 4001, {"k1": 1}]])),
    "a term out of order": lambda: of_side(a_mean([["1", {"k1": 1}], ["1", {}]])),
    "a term twice": lambda: of_side(a_mean([["1", {}], ["1", {}]])),
    "a zero term": lambda: of_side(a_mean([["0", {}]])),
    "a zero exponent": lambda: of_side(a_mean([["1", {}, [["0", {"k1": 1}]]]])),
    "a fraction not reduced": lambda: of_side(a_mean([["2/4", {"k1": 1}]])),
    "an unknown measure": lambda: of_side(a_mean(K1, "pi")),
    "a measure that is no text": lambda: of_side(a_mean(K1, ["q"])),
    "an unknown index": lambda: of_side(a_mean(K1, index="k")),
    "all outcomes of a batch": lambda: of_side(a_mean([["1", {"k1[self]": 1}]], "count", "i")),
    "a slot of another index": lambda: of_side(a_mean([["1", {"k1[self]": 1}]], index="t")),
    "a slot x that is written out": lambda: of_side(a_mean([["1", {"k1[x]": 1}]])),
    "a random coefficient outside": lambda: of_side([[[["1", {"k1": 1}]], []]]),
    "an unknown atom": lambda: of_side([[ONE, [["integral", "q", ONE, []]]]]),
    "an old atom": lambda: of_side([[ONE, [["E", "q", ONE, []]]]]),
    "an unknown name": lambda: of_side(a_mean([["1", {"k7": 1}]])),
    "an undeclared parameter": lambda: of_side(a_mean([["1", {"beta": 1}]])),
    "a derivative of a log ratio": lambda: of_side(a_mean([["1", {"k1'": 1}]])),
    "division by a log ratio": lambda: of_side(a_mean([["1", {"k1": -1}]])),
    "a score that is no list": lambda: of_side([[ONE, [["Mean", "", "q", ONE, "x"]]]]),
    "a score of another index": lambda: of_side(a_mean(ONE, score=["now"])),
    "a score that is no text": lambda: of_side(a_mean(ONE, score=[1])),
    "scores out of order": lambda: of_side(a_mean(ONE, index="t", score=["past", "now"])),
    "exp of exp": lambda: of_side(a_mean([["1", {}, [["1", {"k1": 1}, [["1", {}]]]]]])),
    "a function named as a variable": lambda: of_side([], context={**CONTEXT, "functions": {"k1": ["w"]}}),
    "a function of rewards": lambda: of_side([], context={**CONTEXT, "functions": {"g": ["R"]}}),
    "a parameter with a slot": lambda: of_side([], context={**CONTEXT, "parameters": ["b[self]"]}),
    "a parameter with a reserved name": lambda: of_side([], context={**CONTEXT, "parameters": ["rho"]}),
    "a parameter twice": lambda: of_side([], context={**CONTEXT, "parameters": ["a", "a"]}),
    "a premise of three sides": lambda: of_side([], context={**CONTEXT, "premises": [[[], [], []]]}),
    "another relation": lambda: of_side([], relation="<"),
    "an unknown closing": lambda: of_side([], close={"by": "ring equality"}),
    "a closing that is a list": lambda: of_side([], close=["equality"]),
    "rows of an equation": lambda: of_side([], close={"by": "equality", "rows": [{}]}),
    "a hypothesis that is not used": lambda: of_side([], hypotheses=[["positive", "a"]]),
    "steps that are no list": lambda: of_side([], steps={}),
    "150 gradients of gradients": lambda: of_side(gradients(150)),
    "400 gradients of gradients": lambda: {**of_side([]), "parts": gradients(400)},
    "an empty list of parts": lambda: signed([]),
    "parts that are an object": lambda: signed({}),
    "another format": lambda: {**of_side([]), "format": "klsym-certificate/1"},
    "an empty citation": lambda: {**of_side([]), "cites": [[]]},
    "a citation that is a number": lambda: {**of_side([]), "cites": [7]},
    "citations that are an object": lambda: {**of_side([]), "cites": {}},
    "a citation nested 3000 deep": lambda: {**of_side([]), "cites": deep(3000)},
    "no object": lambda: [],
    "nothing": lambda: None,
    "a text": lambda: "klsym",
    "an extra key": lambda: {**of_side([]), "extra": 1},
    "a set": lambda: {**of_side([]), "parts": {1, 2}},
    "bytes": lambda: {**of_side([]), "parts": b"[]"},
    "parts nested 3000 deep": lambda: {**of_side([]), "parts": deep(3000)},
    "a format nested 3000 deep": lambda: {**of_side([]), "format": deep(3000)},
    "a digest nested 3000 deep": lambda: {**of_side([]), "digest": deep(3000)},
    "a format of 5000 digits": lambda: {**of_side([]), "format": 10**5000},
    "a number of 5000 digits": lambda: {**of_side([]), "parts": [10**5000]},
    "a name of two lines": lambda: of_side(a_mean([["1", {"a\nb": 1}]])),
    "a long name": lambda: of_side(a_mean([["1", {"a" * 9000: 1}]])),
}  # fmt: skip
