"""Tampering: every number of a certificate, its types, its shape; only `Refused`, never a crash."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import Polynomial
from test_kernel_inequalities import NEAR, scalar
from test_kernel_refusals import world_of
from test_kernel_rules import CHECK, World, same

from klsym.engine.derivation import derive
from klsym.engine.quantities import (
    KL,
    bregman,
    chi2,
    covariance,
    expectation,
    expected_gradient,
    grad,
    jeffreys,
    mu,
    p,
    q,
    sample,
)  # fmt: skip
from klsym.errors import Refused
from klsym.kernel import FORMAT, Theorem, check, digest
from klsym.language import R, beta, exp, k, k1, k2, k3, log, log_mu, log_p, log_q, parameter, r, rho, s, sg
from klsym.normal_form import ExpPoly

Path = tuple[str | int, ...]
g, f = sympy.Function("g"), sympy.Function("f")
a, b, nu = (parameter(name) for name in ("a", "b", "nu"))


# ---------------------------------------------------------------------------- real certificates
def off_policy() -> Any:
    chain = derive(expected_gradient(rho * k3, under=mu)).differentiate().change_measure(to=q)
    return chain.equals(grad(KL(q, p)))


def on_policy() -> Any:
    return derive(expected_gradient(sg(rho) * k2, under=mu), on_policy=True).equals(grad(KL(q, p)))


def refuted() -> Any:
    return derive(expected_gradient(k3, under=q)).differentiate().differs_from(grad(KL(q, p)))


def premised() -> Any:
    loss = f(log_q, log_p, log_mu)
    left = expected_gradient(loss, under=q) + expectation(loss * s, under=q)
    return derive(left, premises=((KL(q, p), expectation(loss, under=q)),)).equals(grad(KL(q, p)))


def unique() -> Any:
    left = expected_gradient(g(k1), under=q) - grad(KL(q, p))
    return derive(left).iff("g", k2 + a * k1 + b, (b, a))


def optimum() -> Any:
    left = expected_gradient(-(R - nu) * log_q + beta * g(k1), under=mu)
    return derive(left, given={"R": nu + beta * k1}).iff("g", k2 + b, (b,), coordinate="w")


def variance() -> Any:
    mean = expectation(k1 * s, under=q)
    second = expectation((k1 * s) ** 2, under=q)
    return derive(mean * mean).at_most(second, by="square", b=k1, measure="q", power=1)


def spread(of: Any) -> Any:
    return covariance(of, of, under=q)


def best() -> Any:
    """Var_q k(b) is least, J = b chi2."""
    known, gap = ((jeffreys(p, q), b * chi2(p, q)),), a - b
    terms = [{"b": r - 1, "factor": gap, "at": q}]
    left, right = spread(k(b)), spread(k(a))
    return derive(left, premises=known).at_most(right, "sum of squares", terms=terms, using=[(0, -2 * gap)])


def contact() -> Any:
    of = beta**2 * (k1 + a * (r - 1))
    terms = [{"u": -k1, "scale": beta**2}]
    return derive(sample(0)).at_most_iff(sample(of), a, is_=1, terms=terms)


def tangent() -> Any:
    """J(q, p) >= 0, twice over, and once at a sample."""
    rows = [(2, q, 0, -k1), (2, q, -k1, k1), {"u": 2 * k1, "at": "sample"}]
    right = 2 * jeffreys(q, p) + sample(exp(2 * k1) - 2 * k1) - 1
    return derive(sample(0)).at_most(right, "tangent", terms=rows)


PROOFS = {
    "off-policy": off_policy,
    "on-policy": on_policy,
    "refuted": refuted,
    "premise": premised,
    "unique": unique,
    "optimum": optimum,
    "variance": variance,
    "covariance": lambda: derive(covariance(k1, r - 1, under=q)).equals(-jeffreys(p, q)),
    "bregman": lambda: derive(bregman(-log(r))).equals(sample(k3)),
    "independent": lambda: derive(expected_gradient(rho * k2, under=mu)).is_no_combination(),
    "best": best,
    "contact": contact,
    "tangent": tangent,
    "evaluated": lambda: derive(spread(k(a))).equals(
        spread(k1) - 2 * a * jeffreys(p, q) + a**2 * chi2(p, q), by="evaluation"),
}  # fmt: skip


@cache
def certificate(name: str) -> dict[str, Any]:
    return signed({"format": FORMAT, "claim": name, "parts": [PROOFS[name]().part]})


NAMES = [*PROOFS]


def signed(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "digest": digest(body)}


def accepted(changed: dict[str, Any]) -> tuple[Theorem, ...] | None:
    """The theorems, or None when it is refused in one line; any other exception escapes."""
    try:
        return check(changed)
    except Refused as refusal:
        assert "\n" not in str(refusal) and 0 < len(refusal.reason) <= 600
        return None


# ---------------------------------------------------------------------------- what must stay true
X = Polynomial([0, 1])
# For g: solutions, and functions that are none.
SOLUTIONS = {
    "unique": ([X**2 / 2 + 3 * X + 5, X**2 / 2 - X], [X**2, X**2 / 2 + X**3 / 9, 0 * X]),
    "optimum": ([X**2 / 2 + 5], [X**2 / 2 + X, X**2, 0 * X]),
}


def assert_true(name: str, theorem: Theorem) -> None:
    """A theorem that tampering produced must hold in numbers."""
    statement, original = theorem.statement, check(certificate(name))[0].statement
    worlds = [World(seed, statement.context) for seed in range(3)]
    if theorem.kind == "refuted":
        worlds = [world_of(theorem.close["model"])]
    if theorem.kind == "unique":
        good, wrong = SOLUTIONS[name]
        assert all(zero(statement.left, world, x) for x in good for world in worlds)
        assert not any(all(zero(statement.left, world, x) for world in worlds) for x in wrong)
        return
    if theorem.kind == "iff":
        return assert_iff(theorem)
    if theorem.kind == "independent" or statement.context.premises:
        assert (statement.left, statement.right) == (original.left, original.right)
        return
    for world in worlds:
        x, y = (world.side(side, world.theta) for side in (statement.left, statement.right))
        if theorem.kind == "refuted":
            assert not same(x, y) and (statement.relation == "=" or x > y)
        else:
            assert same(x, y) or (statement.relation == "<=" and x < y)


def assert_iff(theorem: Theorem) -> None:
    """Beside the value of the parameter, 0 <= c fails at some k1 near 0; at the value it holds."""
    ((_, (c,)),) = (theorem.statement.right - theorem.statement.left).terms
    value, name = ExpPoly.from_json(theorem.close["value"]), theorem.close["parameter"]
    for beta_is in (0.8, *(() if ("positive", "beta") in theorem.hypotheses else (-0.7,))):
        exact = float(scalar(value, {"k1": 0.0, "beta": beta_is, "a": 0.6}))
        at = {"k1": NEAR, "beta": beta_is, "a": 0.6}
        assert np.min(scalar(c.coefficient, {**at, name: exact})) > -1e-13
        for step in (0.1, -0.1, 1.0, -1.0):
            assert np.min(scalar(c.coefficient, {**at, name: exact + step})) < -1e-13


def zero(side: Any, world: World, polynomial: Polynomial) -> bool:
    world.g = lambda x, n: polynomial.deriv(n)(x)
    return same(world.side(side, world.theta), 0.0)


def test_the_certificates_are_accepted_and_true():
    for name in NAMES:
        (theorem,) = check(certificate(name))
        assert_true(name, theorem)


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


KINDS = [("q", "p", "mu", "count"), ("KL", "chi2", "J"), ("=", "<=")]


def changes(value: Any) -> list[Any]:
    """What a number, a name or a truth value may be swapped for."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, -value - 1]
    if isinstance(value, str) and re.fullmatch(r"-?\d+(/\d+)?", value):
        other = value.removeprefix("-") if value.startswith("-") else f"-{value}"
        return [new for new in (f"{value}1", other, "0", "7/3") if new != value]
    for names in KINDS:
        if value in names:
            return [name for name in names if name != value]
    if isinstance(value, dict) and value and all(type(power) is int for power in value.values()):
        name, power = next(iter(value.items()))
        rest = {k: v for k, v in value.items() if k != name}
        return [{**rest, new: power} for new in ("k1", "w", "log_q", "R") if new not in value]
    return []


def changed_certificates(name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    body = {k: v for k, v in certificate(name).items() if k != "digest"}
    for path, value in places(body):
        for change in changes(value):
            yield path, put(body, path, change)


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_number_is_refused_by_the_digest(name):
    old, count = certificate(name)["digest"], 0
    for _, body in changed_certificates(name):
        with pytest.raises(Refused, match="digest: the content was changed"):
            check({**body, "digest": old})
        count += 1
    assert count > 40


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_number_with_a_new_digest_is_refused_or_true(name):
    refused = 0
    for _, body in changed_certificates(name):
        theorems = accepted(signed(body))
        refused += theorems is None
        if theorems:
            assert_true(name, theorems[0])
    assert refused > 30


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_step_is_refused(name):
    """What a proof records of its steps, its hypotheses and its enclosures is all looked at."""
    for path, body in changed_certificates(name):
        recorded = path[2] in ("steps", "hypotheses")
        if recorded or path[2:4] in (("close", "left"), ("close", "right")):
            assert accepted(signed(body)) is None, path


def test_the_optimum_is_not_unique_on_policy():
    body = put(certificate("optimum"), ("parts", 0, "context", "on_policy"), True)
    assert accepted(signed({k: v for k, v in body.items() if k != "digest"})) is None


# ---------------------------------------------------------------------------- malformed
WRONG = (None, True, 7, -1, 1.5, float("nan"), "", "x", [], {}, [[]], {"k1": 1}, ["E", "q"])


@pytest.mark.parametrize("name", ["refuted", "optimum", "best", "contact"])
def test_a_wrong_type_anywhere_is_refused_or_changes_nothing(name):
    statement, refused, tried = check(certificate(name))[0].statement, 0, 0
    body = {k: v for k, v in certificate(name).items() if k != "digest"}
    for path, value in places(body):
        for wrong in WRONG:
            if wrong == value and type(wrong) is type(value):
                continue
            theorems = accepted(signed(put(body, path, wrong)) if path else wrong)
            refused, tried = refused + (theorems is None), tried + 1
            if theorems and theorems[0].statement != statement:
                assert path[2] == "context", path
                assert_true(name, theorems[0])
    assert tried > 900 and refused > 0.95 * tried


@pytest.mark.parametrize("name", ["refuted", "covariance", "optimum", "best", "contact", "evaluated"])
def test_a_missing_key_or_entry_is_refused(name):
    body = {k: v for k, v in certificate(name).items() if k != "digest"}
    for path, value in places(body):
        for key in value if isinstance(value, dict) else ():
            less = put(body, path, {k: v for k, v in value.items() if k != key})
            theorems = accepted(signed(less))
            assert theorems is None or path[-1] in ("parameters", "rewards"), (path, key)


def of_side(left: Any, close: Any = None, **context: Any) -> dict[str, Any]:
    """A certificate that says left = left."""
    empty = {"parameters": [], "functions": {}, "on_policy": False, "given": {}, "premises": []}
    part = {"context": empty | context, "relation": "=", "left": left, "right": left, "steps": []}
    part |= {"close": close or {"by": "ring equality"}, "hypotheses": []}
    return signed({"format": FORMAT, "claim": "", "parts": [part]})


ONE = [["1", {}]]


def mean(coefficient: Any, measure: str = "q") -> Any:
    return [[ONE, [["E", measure, coefficient, []]]]]


def nested(depth: int) -> Any:
    side = mean([["1", {"k1": 1}]])
    for _ in range(depth):
        side = [[ONE, [["gradient", side]]]]
    return side


MALFORMED = [
    ("a float power", lambda: of_side(mean([["1", {"k1": 1.0}]]))),
    ("a bool power", lambda: of_side(mean([["1", {"k1": True}]]))),
    ("a zero power", lambda: of_side(mean([["1", {"k1": 0}]]))),
    ("a number that is no string", lambda: of_side(mean([[1, {"k1": 1}]]))),
    ("a decimal", lambda: of_side(mean([["0.5", {"k1": 1}]]))),
    ("an exponential number", lambda: of_side(mean([["1e5", {"k1": 1}]]))),
    ("a zero denominator", lambda: of_side(mean([["1/0", {"k1": 1}]]))),
    ("not a number", lambda: of_side(mean([["nan", {"k1": 1}]]))),
    ("an Arabic digit", lambda: of_side(mean([["\u0663", {"k1": 1}]]))),
    ("a number of 4001 digits", lambda: of_side(mean([["9" * 4001, {"k1": 1}]]))),
    ("a term out of order", lambda: of_side(mean([["1", {"k1": 1}], ["1", {}]]))),
    ("a term twice", lambda: of_side(mean([["1", {}], ["1", {}]]))),
    ("a zero term", lambda: of_side(mean([["0", {}]]))),
    ("a fraction not reduced", lambda: of_side(mean([["2/4", {"k1": 1}]]))),
    ("an unknown measure", lambda: of_side(mean([["1", {"k1": 1}]], "pi"))),
    ("an unknown atom", lambda: of_side([[ONE, [["integral", "q", ONE, []]]]])),
    ("an unknown divergence", lambda: of_side([[ONE, [["divergence", "TV", "q", "p"]]]])),
    ("a score that is no list", lambda: of_side([[ONE, [["E", "q", ONE, "x"]]]])),
    ("exp of exp", lambda: of_side(mean([["1", {}, [["1", {"k1": 1}, [["1", {}]]]]]]))),
    ("a function with the name of a variable", lambda: of_side([], functions={"k1": ["w"]})),
    ("a parameter with a slot", lambda: of_side([], parameters=["k[self]"])),
    ("a given value for log q", lambda: of_side([], given={"log_q": ONE})),
    ("150 gradients of gradients", lambda: of_side(nested(150))),
    ("an empty list of parts", lambda: signed({"format": FORMAT, "claim": "", "parts": []})),
    ("another format", lambda: signed({"format": "klsym-certificate/2", "claim": "", "parts": []})),
    ("no object", lambda: []),
    ("nothing", lambda: None),
    ("an extra key", lambda: signed({**of_side([]), "extra": 1})),
]


@pytest.mark.parametrize("build", [pytest.param(build, id=name) for name, build in MALFORMED])
def test_malformed_is_refused(build):
    assert accepted(build()) is None


def test_the_form_these_are_mutations_of_is_accepted():
    assert accepted(of_side(mean([["1", {"k1": 1}]]))) and accepted(of_side([]))


def with_parts(**change: Any) -> dict[str, Any]:
    return {"format": FORMAT, "claim": "", "parts": [], "digest": "", **change}


def enclosure(ends: str) -> dict[str, Any]:
    body = {k: v for k, v in certificate("refuted").items() if k != "digest"}
    return signed(put(body, ("parts", 0, "close", "left"), [ends, ends]))


def deep(depth: int) -> Any:
    data: list[Any] = []
    for _ in range(depth):
        data = [data]
    return data


HOSTILE = [  # what is no plain JSON, too large or too deep; messages that quote line breaks
    ("an enclosure of 400 digits", "recorded .beyond 1e300", lambda: enclosure("1" + "0" * 400)),
    ("a claim nested 2000 deep", "claim: plain texts of at most", lambda: with_parts(claim=deep(2000))),
    ("a format nested 2000 deep", "format and claim: plain texts", lambda: with_parts(format=deep(2000))),
    ("parts nested 2000 deep", "nested too deeply", lambda: with_parts(parts=deep(2000))),
    ("a claim of 5000 digits", "claim: plain texts of at most", lambda: with_parts(claim=10**5000)),
    ("a format of 5000 digits", "format and claim: plain texts", lambda: with_parts(format=10**5000)),
    ("a claim that is no JSON", "claim: plain texts of at most", lambda: with_parts(claim={1, 2})),
    ("parts that are no JSON", "digest: no JSON", lambda: with_parts(parts=[{1, 2}])),
    ("a name of two lines", "power of 'a.nb'", lambda: of_side(mean([["1", {"a\nb": 0}]]))),
    ("a long name", "^.{500,620}$", lambda: of_side(mean([["1", {"a" * 9000: 1}]]))),
    ("a power that is a float", "a text or an integer expected, got 1.0", lambda: float_result()),
    ("data that is a list", "data: an object expected", lambda: list_data()),
]


def float_result() -> dict[str, Any]:
    body = {k: v for k, v in certificate("bregman").items() if k != "digest"}
    result = json.dumps(body["parts"][0]["steps"][0]["result"])
    result = json.loads(result.replace(": 1}", ": 1.0}"))
    return signed(put(body, ("parts", 0, "steps", 0, "result"), result))


def list_data() -> dict[str, Any]:
    body = {k: v for k, v in certificate("bregman").items() if k != "digest"}
    return signed(put(body, ("parts", 0, "steps", 0, "data"), []))


@pytest.mark.parametrize(("message", "build"), [pytest.param(*row, id=n) for n, *row in HOSTILE])
def test_what_is_hostile_is_refused_in_one_line(message, build):
    with pytest.raises(Refused, match=message) as refusal:
        check(build())
    assert "\n" not in str(refusal.value)


HUGE = """
import json, sys
from klsym.errors import Refused
from klsym.kernel import check
try:
    check(json.load(sys.stdin))
except Refused as refusal:
    print(refusal)
"""


def finite(coefficient: Any) -> dict[str, Any]:
    model = certificate("refuted")["parts"][0]["close"]["model"]
    close = {"by": "finite model", "model": model, "left": ["0", "0"], "right": ["0", "0"]}
    return of_side(mean(coefficient), close)


@pytest.mark.parametrize(
    ("coefficient", "message"),
    [
        ([["1", {"k1": 10**7}]], "power of 'k1': a nonzero integer up to 4096 expected"),
        ([["1", {}, [[str(10**9), {"k1": 1}]]]], "finite model: a power beyond 4096"),
    ],
)
def test_a_huge_power_is_refused_at_once(coefficient, message):
    text = json.dumps(finite(coefficient))
    run = [sys.executable, "-c", HUGE]
    done = subprocess.run(run, input=text, text=True, capture_output=True, timeout=2)
    assert message in done.stdout


# ---------------------------------------------------------------------------- fuzz
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 5), st.floats(allow_nan=True),
        st.sampled_from(["", "x", "q", "p", "mu", "count", "k1", "w", "sg(k1)", "R", "g"]),
        st.sampled_from(["1", "-1", "2/3", "E", "point", "gradient", "KL", "right", "definition"]),
    ),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["k1", "w"]), x),
    max_leaves=6,
)  # fmt: skip


@CHECK
@given(st.sampled_from(NAMES), st.data())
def test_random_changes_are_refused_or_true(name, data):
    body = {k: v for k, v in certificate(name).items() if k != "digest"}
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(body))
        path, value = data.draw(st.sampled_from(found))
        donor = data.draw(st.sampled_from(found))[1]
        new = data.draw(st.one_of(VALUES, st.just(donor), st.sampled_from(changes(value) or [0])))
        if isinstance(value, list) and data.draw(st.booleans()):
            new = [*value, new] if data.draw(st.booleans()) else value[:-1]
        body = put(body, path, new)
    theorems = accepted(signed(body) if isinstance(body, dict) else body)
    for theorem in theorems or ():
        assert_true(name, theorem)
