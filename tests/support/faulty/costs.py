"""Small files that would cost minutes or gigabytes if nothing bounded the work: each is refused in one line.

A row holds what the refusal says, and the text of a certificate.  Its left side, its steps or its close are
expensive; what they would lead to is not recorded, so that none of them is a theorem.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

from klsym.errors import KlsymError
from klsym.kernel import FORMAT, digest
from klsym.kernel.statements import Side
from support.faulty.closings import NODE

ONE: list[Any] = [["1", {}]]
K1: list[Any] = [["1", {"k1": 1}]]
BUDGET = "the budget of work for one certificate is spent"
GOT, DIFFER, ENCLOSED = ": got \\[", "the two sides differ", "enclosed in"
ANY = "^part 1"  # whichever bound is met first
Text = Callable[[], str]
Costs = dict[str, tuple[str, Text]]


# ---------------------------------------------------------------------------- certificates
def sealed(*parts: dict[str, Any], cites: Any = ()) -> str:
    """The text of a certificate with a right digest."""
    whole = {"format": FORMAT, "cites": list(cites), "parts": parts, "digest": digest(parts)}
    return json.dumps(whole, separators=(",", ":"))


def part(left: Any, *steps: Any, relation: str = "=", close: Any = None, **context: Any) -> dict[str, Any]:
    """left = 0, its left side from JSON that need not be in normal form."""
    with suppress(KlsymError):  # what cannot even be read stays as it is
        left = Side.from_json(left).to_json()
    found = {"context": {"parameters": [], "functions": {}, "premises": []} | context}
    found |= {"relation": relation, "left": left, "right": [], "steps": list(steps), "hypotheses": []}
    return found | {"close": close or {"by": "equality", "rows": []}}


def step(rule: str, where: int | None = 0, **data: Any) -> dict[str, Any]:
    return {"rule": rule, "side": "left", "term": where, "factor": where, "data": data, "result": []}


def side(*atoms: Any, coefficient: Any = ONE) -> list[Any]:
    return [[coefficient, list(atoms)]]


def mean(coefficient: Any, score: Any = (), measure: str = "q", index: str = "") -> list[Any]:
    return ["Mean", index, measure, coefficient, list(score)]


def one(rule: str, atom: Any, context: Any = None, **data: Any) -> Text:
    """One step on one atom."""
    return lambda: sealed(part(side(atom), step(rule, **data), **(context or {})))


def rows(*found: dict[str, Any], **context: Any) -> str:
    start = {"kind": "square", "scale": ONE, "factor": ONE, "at": ["", "q"], "v": [], "score": []}
    close = {"by": "equality", "rows": [start | row for row in found]}
    return sealed(part([], relation="<=", close=close, **context))


# ---------------------------------------------------------------------------- long coefficients
def dense(degree: int, *names: str) -> list[Any]:
    """A polynomial with every monomial up to a degree in each name."""
    powers: list[dict[str, int]] = [{}]
    for name in names:
        powers = [row | ({name: i} if i else {}) for row in powers for i in range(degree + 1)]
    return [["1", row] for row in powers]


def long(count: int, digits: int) -> list[Any]:
    """A sum of powers of k1 with coefficients of many digits."""
    return [["7" * digits, {"k1": i + 1}] for i in range(count)]


def exponentials(count: int, digits: int = 1, name: str = "k1") -> list[Any]:
    return [["1", {}, [["3" * digits + str(i), {name: 1}]]] for i in range(1, count + 1)]


def unlike(count: int, digits: int) -> list[str]:
    """Fractions with long denominators that share no factor."""
    return [f"1/{10**digits + 2 * i + 1}" for i in range(1, count + 1)]


def in_exponent(count: int, *names: str) -> list[Any]:
    """exp of a long polynomial."""
    return [["1", {}, [[value, powers] for value, powers in dense(count, *names)]]]


# ---------------------------------------------------------------------------- products and premises
def power(count: int, name: str = "k1") -> list[Any]:
    return mean([["1", {name: count}]])


def product(factors: int, rows: int) -> str:
    """Sums of products of many means."""
    return sealed(
        part([row for i in range(rows) for row in side(*(power(j + i + 1) for j in range(factors)))])
    )


def times_itself(count: int, terms: int = 1) -> str:
    """A premise of many products of means of so many terms, multiplied by as many."""
    means = [mean([["1", {"k1": i * terms + j + 1}] for j in range(terms)]) for i in range(count)]
    found = [row for one in means for row in side(one, power(1))]
    return sealed(part([], step("equation", None, of=0, times=found, gradient=0), premises=[[found, []]]))


def covariances(count: int) -> str:
    """Two products of covariances, multiplied out, as a premise and what multiplies it."""
    found = [
        row
        for i in range(1, count)
        for row in side(power(2 * i), power(i, "w")) + side(power(i), power(i), power(i, "w"))
    ]
    return sealed(part([], step("equation", None, of=0, times=found, gradient=0), premises=[[found, []]]))


def nested(depth: int) -> str:
    """A gradient of a gradient of .."""
    inner = '[[[["1",{}]],[["Gradient",' * depth + "[]" + "]]]]" * depth
    return sealed(part([])).replace('"left":[]', f'"left":{inner}')


def functions(count: int) -> str:
    """The slope of a product of many functions is a sum of as many products."""
    names = [f"f{i}" for i in range(count)]
    loss = ["MeanGradient", "", "q", [["1", dict.fromkeys(names, 1)]]]
    return sealed(part(side(loss), step("chain rule"), functions={name: [] for name in names}))


def parameters(count: int, inside: bool = False) -> str:
    """A monomial of many parameters and one detached copy."""
    names = [f"a{i}" for i in range(count)]
    monomial = {"sg(k1)": 1} | dict.fromkeys(names, 1)
    found = [["1", {}, [["1", monomial]]]] if inside else [["1", monomial]]
    return sealed(part(side(mean(found)), step("stop-gradient"), parameters=names))


# ---------------------------------------------------------------------------- models
def node(**change: Any) -> dict[str, Any]:
    return NODE | change


def refuted(left: Any, tree: Any = None, path: Any = (0,), values: Any = None, **context: Any) -> str:
    model = {"tree": tree or node(), "path": list(path), "parameters": values or {}}
    close = {"by": "finite model", "model": model, "left": ["0", "0"], "right": ["1", "1"]}
    return sealed(part(left, close=close, **context))


def deep(depth: int, digits: int = 0) -> Any:
    """A tree whose second branch goes on, with probabilities of many digits."""
    found = None
    for i in range(depth):
        half = Fraction(10**digits // 2 + i + 1, 10**digits + 2 * i + 7)
        found = node(q=[str(half), str(1 - half)], next=[None, found])
    return found


def full(depth: int) -> Any:
    found = node()
    for _ in range(depth):
        found = node(next=[found, found])
    return found


def wide(count: int, digits: int = 0, u: Any = None) -> Any:
    """Many outcomes, with probabilities of many digits."""
    first = Fraction(10**digits + 1, 2 * count * 10**digits)
    row = [str(first)] * (count - 1) + [str(1 - (count - 1) * first)]
    even = [f"1/{count}"] * count
    return node(
        q=even, p=row, mu=even, u=u or row, v=["0"] * count, rewards={"R": even}, next=[None] * count
    )  # fmt: skip


def denominators(count: int) -> list[str]:
    """Fractions whose sum is long."""
    return [f"1/{n}" for n in range(1003, 60_000, 2) if all(n % d for d in range(3, 250, 2))][:count]


def digits_of(count: int) -> Any:
    """Two outcomes with probabilities of many digits."""
    return node(p=[f"1/{10**count}", f"{10**count - 1}/{10**count}"])


def exp_of(count: str) -> list[Any]:
    return [["1", {}, [[count, {"k1": 1}]]]]


def of_beta(terms: Any, value: str, tree: Any = None) -> str:
    """A coefficient in the parameter beta, inside a mean if there is a tree."""
    left = side(mean(terms)) if tree else [[terms, []]]
    return refuted(left, tree, values={"beta": value}, parameters=["beta"])


def family(order: int, degree: int, count: int) -> str:
    names = [f"b{i}" for i in range(order)]
    found = [["1", {name: 1, **({"k1": i} if i else {})}] for i, name in enumerate(names)]
    found += [["1/7", {"k1": degree}], *exponentials(count)]
    close = {"by": "completeness", "function": "g", "family": found, "unit": ONE, "coordinate": "k1"}
    c = [["1", {"g'": 1}], ["-1", {"g": 60}], ["-1", {"g''": 60}]]
    close |= {"order": order, "constants": names}
    return sealed(part(side(mean(c, ["x"])), close=close, parameters=names, functions={"g": ["k1"]}))


def powers_of(name: str, count: int, start: int = 1) -> list[Any]:
    return [["1", {name: start + i}] for i in range(count)]


LONG = "9" * 990
MANY = BUDGET + "|a product of more than 20000 terms"
SLOTS = ("k1[past]", "k1[now]", "w[future]", "k1[others]", "log_q[now]")
IN_PAIRS = ("k1[self]", "k1[other]", "w[self]", "w[other]")
SIDES: Costs = {
    "30 products of 60 means": (DIFFER, lambda: product(60, 30)),
    "products of covariances": (BUDGET, lambda: covariances(150)),
    "4000 products times 4000": (BUDGET, lambda: times_itself(4000)),
    "a gradient of a gradient": ("nested too deeply|no JSON", lambda: nested(3000)),
    "a product of 3500 functions": (ANY, lambda: functions(3500)),
    "a monomial of 5000 parameters": (ANY, lambda: parameters(5000)),
    "an exponent of 5000 parameters": (ANY, lambda: parameters(5000, True)),
}  # fmt: skip
POLYNOMIALS: Costs = {
    "18 scores split into parts": ("four score functions at most",
        one("parts of a sum", mean(ONE, ["x"] * 18, index="t"), of=["s"])),
    "400 scores of one sample": ("one score function of the slot x",
        one("score mean zero", mean(ONE, ["x"] * 400), slot="x")),
    "a sum of three parts to the 64th": (MANY,
        one("parts of a sum", mean([["1", {"k1": 64}]], index="t"), of=["k1"])),
    "a sum of three parts to the 4096th": ("power 4096 of a sum is above the limit",
        one("parts of a sum", mean([["1", {"k1": 4096}]], index="t"), of=["k1"])),
    "343 products of three sums": (MANY,
        one("parts of a sum", mean(dense(6, "k1", "w", "log_q"), index="t"), of=["k1", "w", "log_q"])),
    "a power of a sum in an exponent": (MANY,
        one("parts of a sum", mean([["1", {}, [["1", {"k1": 60}]]]], index="t"), of=["k1"])),
    "a batch of 1296 terms": (GOT,
        one("independence", mean(dense(5, *IN_PAIRS), index="ij"), {"parameters": ["n"]})),
    "the slope of 3000 exponentials": (BUDGET,
        one("chain rule", ["MeanGradient", "", "q", exponentials(3000)])),
    "the slope of the exponential of 2000 terms": (BUDGET,
        one("chain rule", ["MeanGradient", "", "q", in_exponent(44, "k1", "w")])),
    "the slope of coefficients of 4000 digits": ("a number of more than 4000 digits",
        one("chain rule", ["MeanGradient", "", "q", long(24, 4000)])),
    "the curl of 1024 terms in five slots": (BUDGET, one("curl", ["Curl", "it", "q", dense(3, *SLOTS)])),
    "3000 exponentials under another measure": (GOT,
        one("change of measure", mean(exponentials(3000)), to="p")),
    "exponents of 300 digits under another measure": (GOT,
        one("change of measure", mean(exponentials(250, 300)), to="p")),
}  # fmt: skip
ROWS: Costs = {
    "the square of 400 terms": (MANY, lambda: rows({"of": dense(19, "k1", "w")})),
    "60 squares of 138 terms": (DIFFER, lambda: rows(*[{"of": powers_of("k1", 138)}] * 40)),
    "12 squares of 138 exponentials": (DIFFER, lambda: rows(*[{"of": exponentials(138)}] * 12)),
    "the square of exponents of 100 digits": (ANY,
        lambda: rows(*[{"of": [["1", {}, [[x, {"k1": 1}]]] for x in unlike(138, 100)]}] * 4)),
    "the square of unlike denominators": (ANY,
        lambda: rows({"of": [[x, {"k1": i + 1}] for i, x in enumerate(unlike(138, 230))]})),
    "the square of coefficients of 4000 digits": (BUDGET, lambda: rows({"of": long(24, 3900)})),
    "a square times a square of 2500 digits": (BUDGET,
        lambda: rows({"of": long(1, 2500), "factor": [["7" * 2500, {}]], "scale": [["7" * 3900, {}]]})),
    "a region of 144 terms": (MANY,
        lambda: rows({"of": dense(11, "k1", "w"), "nonnegative": dense(11, "k1", "w")})),
    "a region of 140 exponentials": (MANY,
        lambda: rows({"of": exponentials(140), "nonnegative": ONE + exponentials(140, 1, "w")})),
}  # fmt: skip
MODELS: Costs = {
    "a tree of 400 steps": ("nested too deeply|sequences, or too long",
        lambda: refuted(side(power(1)), deep(400))),
    "a full tree of 9 steps": ("more than 2000 sequences|the sequence goes on",
        lambda: refuted(side(power(1)), full(9))),
    "2400 outcomes": ("more than 2000 sequences", lambda: refuted(side(power(1)), wide(2400))),
    "250 outcomes of 60 digits": (ANY,
        lambda: refuted(side(mean(dense(4, "k1", "w") + exponentials(100))), wide(250, 60))),
    "1900 outcomes with unlike directions": (ANY,
        lambda: refuted(side(mean(ONE, ["x"] * 4)), wide(1900, 0, denominators(1900)))),
    "30 steps of 400 digits": (ANY,
        lambda: refuted([row for i in range(10) for row in side(mean(powers_of("R", 1, i + 1), (), "q", "t"),
                                                                mean(ONE, ["x", "x"]))], deep(30, 400), [])),
    "a log of 3900 digits": (ENCLOSED, lambda: refuted(side(power(1)), digits_of(3900))),
    "a ratio of 3900 digits to a large power": ("a power of more than 200000 bits",
        lambda: refuted(side(mean(exp_of("4000"))), digits_of(3900))),
    "a ratio to the power 10^12": ("a power beyond 4096",
        lambda: refuted(side(mean(exp_of("1" + "0" * 12))))),
    "powers of a ratio of 1500 digits": (BUDGET,
        lambda: refuted(side(mean([x for i in range(1500) for x in exp_of(str(i + 1))])), digits_of(1500))),
    "a parameter of 990 digits to the power 4096": ("a power of more than 200000 bits",
        lambda: of_beta([["1", {"beta": 4096}]], LONG)),
    "1500 powers of a parameter": (BUDGET, lambda: of_beta(powers_of("beta", 1500), "9" * 100)),
    "100 powers of a parameter at 1000 outcomes": (BUDGET,
        lambda: of_beta(powers_of("beta", 100, 100), "9" * 60, wide(1000))),
    "the exponential of a parameter of 990 digits": ("an exponent beyond 4096",
        lambda: of_beta([["1", {}, [["1", {"beta": 1}]]]], LONG)),
    "3000 exponentials of a parameter": (ENCLOSED,
        lambda: of_beta([["1", {}, [[f"1/{i}", {"beta": 1}]]] for i in range(2, 3000)], "4000")),
    "a sum of 1200 fractions without a common factor": (BUDGET,
        lambda: refuted(side(mean([["1", {"R": 1}]])), wide(1200) | {"rewards": {"R": unlike(1200, 110)}})),
    "sums of fractions of 3900 digits at 300 outcomes": (BUDGET,
        lambda: refuted(
            side(mean([[x, {"k1": i + 1}] for i, x in enumerate(unlike(12, 3899))])), wide(300, 1))),
    "200 means on 1000 outcomes": (BUDGET,
        lambda: refuted([row for i in range(200) for row in side(power(i + 1), power(1))], wide(1000))),
    "a family of 600 exponentials": ("the condition is not", lambda: family(2, 4000, 600)),
}  # fmt: skip
READING: Costs = {
    "a file of more than a megabyte": ("more than 1000000 characters", lambda: " " * 1_000_001),
    "a list nested 99000 deep": ("no JSON", lambda: "[" * 99_000),
    "an object nested 16000 deep": ("no JSON", lambda: '{"a":' * 16_000 + "1" + "}" * 16_000),
    "a number of 90000 digits": ("is no exact number", lambda: '{"parts": ' + "1" * 90_000 + "}"),
    "a text of 90000 digits": ("an exact number such as",
        lambda: sealed(part([[[["1" * 90_000, {}]], []]]))),
    "8000 parameters": (DIFFER,
        lambda: sealed(part(side(power(1)), parameters=[f"b{i}" for i in range(8000)]))),
    "a coefficient of 3969 terms": (DIFFER, lambda: sealed(part(side(mean(dense(62, "k1", "w")))))),
    "1000 products of two": (DIFFER,
        lambda: sealed(part([x for i in range(1000) for x in side(power(1), power(i + 1))]))),
    "a result of 60 times 60 products that are long": (GOT, lambda: times_itself(60, 30)),
    "a name of 90000 letters": ("unknown name|no variable name",
        lambda: sealed(part(side(mean([["1", {"k" * 90_000: 1}]]))))),
    "400 false theorems cited": ("cited 1, part 1",
        lambda: sealed(part([]), cites=[[part(side(power(1)))]] * 400)),
    "hypotheses of 90000 letters": ("hypotheses: the proof uses",
        lambda: sealed(part([]) | {"hypotheses": [["support", "q" * 90_000, "p"]]})),
}  # fmt: skip
COSTS: Costs = SIDES | POLYNOMIALS | ROWS | MODELS | READING
