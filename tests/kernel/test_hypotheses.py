"""All that small derivations assume, written down by hand and compared with what the kernel records."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.kernel import certify, check, show
from klsym.kernel.ring import ONE
from klsym.kernel.statements import Side
from support.certificates.faulty_certificates import *
from support.certificates.kernel_words import Mg, row
from support.certificates.slot_helpers import future, lone, mean_i, now, other, others, own, past, sum_t
from support.certificates.valid_certificates import PROOFS, certificate


def exchange(of: Side) -> tuple[Any, ...]:
    return "exchange", lone(of)


def exists(*of: Side) -> set[tuple[Any, ...]]:
    return {("exists", lone(side)) for side in of}


def support(*pairs: str) -> set[tuple[str, ...]]:
    """ "q mu" is q << mu."""
    return {("support", *pair.split()) for pair in pairs}


def ends(*measures: str) -> set[tuple[str, str]]:
    return {("ends", m) for m in measures}


def batch(*measures: str) -> set[tuple[str, str]]:
    return {("batch", m) for m in measures}


# ---------------------------------------------------------------------------- whole proofs
OTHERS = mean("i", "q", -others(k1))
SUM = mean("i", "q", own(R), "self")
WHOLE: dict[str, set[Any]] = {
    "reverse": {exchange(Em("q", k1)), exchange(Em("q", ONE))} | exists(Em("q", k1, 1)),
    "cited": {exchange(Em("q", k1)), exchange(Em("q", ONE))} | exists(Em("q", k1, 1)) | support("q mu"),
    "forward": {exchange(Em("p", -beta * k1)), exchange(Em("q", ONE))} | support("p q"),
    "value": support("mu q", "q mu", "p q"),
    "premised": {exchange(Em("q", R)), ("premise", Em("q", k1), Em("q", R))},
    "product": {("equal", Em("q", k1 - R), NOTHING)} | exists(Em("p", w)),
    "sequence": {exchange(sum_t("q", now(k1)))} | ends("q") | exists(sum_t("q", now(k1), "future")),
    "exchanged": set(),
    "prefix": ends("q", "mu") | support("q mu", "mu q")
        | exists(sum_t("q", now(k1) * (-future(w)).exp())),
    "batch": {exchange(OTHERS)} | exists(mean("i", "q", -others(k1), "self")) | batch("q"),
    "pairs": exists(Em("mu", R), Em("mu", w)) | batch("mu"),
    "batch of sequences": {exchange(mean("it", "q", others(R)))} | ends("q") | batch("q")
        | exists(mean("it", "q", others(R), "now")),
    "straight": {exchange(Em("mu", rho * k1, 1))},
    "squares": {("nonnegative", "q", 2 * k1 + 1), ("positive", "beta"), ("support", "q", "mu")} | batch("q")
        | exists(Em("q", rho * k1 * k1 * (2 * k1 + 1), 2), SUM, mean_i("q", own(R) ** 2, "self", "self")),
    "tangents": exists(sum_t("mu", now(rho) - 1 - now(w))) | ends("mu"),
    "unique": set(),
    "independent": {("nonzero", "beta")},
    "one sample": set(),
    "two steps": set(),
}  # fmt: skip


@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_records_all_that_it_assumes_and_nothing_else(name):
    theorem = check(certificate(name))[-1]
    assert set(theorem.hypotheses) == WHOLE[name]
    assert len(show(theorem, full=True).split("\n  if ")) == 1 + len(WHOLE[name])


# ---------------------------------------------------------------------------- single steps
def after(left: Side, *rules: Any, **context: Any) -> Draft:
    """A derivation that ends with whatever the steps lead to."""
    draft = Draft(left, NOTHING, **{"parameters": ("beta", "lam", "n"), **context})
    for rule, data in rules:
        draft.equation(0, **data) if rule == "equation" else draft.step(rule, **data)
    end = draft.sides["left"]
    draft.part["right"] = end.to_json()
    return draft


PAIR = ((Em("q", k1), Em("q", R) * beta.invert()),)
STEPS: dict[str, tuple[Draft, set[Any]]] = {
    "parts of a score": (after(sum_t("q", now(k1), "x"), ("parts of a sum", {"of": ["s"]})),
        exists(*(sum_t("q", now(k1), z) for z in ("past", "now", "future")))),
    "parts of two scores": (after(mean("t", "mu", ONE, "x", "now"), ("parts of a sum", {"of": ["s"]})),
        exists(*(sum_t("mu", ONE, z, "now") for z in ("past", "now", "future")))),
    "parts of a value": (after(sum_t("q", k1 * now(R), "now"), ("parts of a sum", {"of": ["k1"]})), set()),
    "parts at a sample": (after(sum_t("sample", now(k1), "x"), ("parts of a sum", {"of": ["s"]})), set()),
    "chain rule in two slots": (after(Mg("q", past(k1) * now(k1), "t"), ("chain rule", {})),
        exists(sum_t("q", now(k1), "past"), sum_t("q", past(k1), "now"))),
    "chain rule in a batch": (after(Mg("mu", own(k1) * others(w), "i"), ("chain rule", {})),
        exists(mean_i("mu", others(w), "self"), mean_i("mu", own(k1), "others"))),
    "chain rule in one slot": (after(Mg("mu", past(rho) * now(R), "t"), ("chain rule", {})), set()),
    "log-derivative of a reward": (after(grad(sum_t("q", now(R))), ("log-derivative", {})),
        {exchange(sum_t("q", now(R)))} | ends("q")),
    "log-derivative of a ratio": (after(grad(sum_t("q", now(k1))), ("log-derivative", {})),
        {exchange(sum_t("q", now(k1)))} | ends("q") | exists(sum_t("q", now(k1), "x"))),
    "log-derivative under mu": (after(grad(sum_t("mu", now(k1))), ("log-derivative", {})),
        {exchange(sum_t("mu", now(k1)))} | ends("mu")),
    "log-derivative in a batch": (after(grad(mean_i("q", own(R))), ("log-derivative", {})),
        {exchange(mean_i("q", own(R)))} | batch("q")
        | exists(mean_i("q", own(R), "self"), mean_i("q", own(R), "others"))),
    "log-derivative in a batch of sequences": (after(grad(mean("it", "q", now(R))), ("log-derivative", {})),
        {exchange(mean("it", "q", now(R)))} | batch("q") | ends("q")
        | exists(mean("it", "q", now(R), "x"), mean("it", "q", now(R), "others"))),
    "change of measure along sequences": (after(sum_t("mu", rho * now(k1), "now"),
        ("change of measure", {"to": "q"})), ends("q", "mu") | support("q mu")),
    "change of measure in a batch": (after(mean_i("mu", own(rho)), ("change of measure", {"to": "q"})),
        batch("q", "mu") | support("q mu", "mu q")),
    "change of measure of both": (after(mean("it", "mu", now(R)), ("change of measure", {"to": "p"})),
        batch("p", "mu") | ends("p", "mu") | support("mu p")),
    "ratio mean one at a step": (after(sum_t("q", past(k1) * now(r)),
        ("ratio mean one", {"of": "p", "slot": "now"})), ends("p", "q") | support("p q")
        | exists(sum_t("q", past(k1) * now(r)))),
    "ratio mean one, a part of a batch": (after(mean_i("q", own(k1) * (others(r) + 1)),
        ("ratio mean one", {"of": "p", "slot": "others", "part": own(k1) * others(r)})),
        batch("p", "q") | support("p q") | exists(mean_i("q", own(k1) * others(r)))),
    "score mean zero beside others": (after(mean("ij", "q", own(k1) * other(R), "rest"),
        ("score mean zero", {"slot": "rest"})), {exchange(mean("ij", "q", own(k1) * other(R)))} | batch("q")),
    "score mean zero with a second": (after(sum_t("q", past(k1), "past", "now"),
        ("score mean zero", {"slot": "now"})), {exchange(sum_t("q", past(k1), "past"))} | ends("q")
        | exists(sum_t("q", past(k1), "past", "now"))),
    "a part of a sum over t": (after(sum_t("q", past(k1) + now(k1), "now"),
        ("score mean zero", {"slot": "now", "part": past(k1)})),
        {exchange(sum_t("q", past(k1)))} | ends("q") | exists(sum_t("q", past(k1), "now"))),
    "a constant part of a sum over t": (after(sum_t("q", ONE + now(k1), "now"),
        ("score mean zero", {"slot": "now", "part": ONE})),
        {exchange(sum_t("q", ONE))} | ends("q") | exists(sum_t("q", ONE, "now"))),
    "sum over t": (after(Em("p", R * k1), ("sum over t", {"of": "R"})), ends("p")),
    "independence, squared": (after(mean_i("p", own(R) * others(k1) * others(w)), ("independence", {})),
        batch("p") | exists(Em("p", R), Em("p", k1), Em("p", w), Em("p", k1 * w))),
    "independence, one mean": (after(mean_i("p", own(R)), ("independence", {})), batch("p")),
    "independence along sequences": (
        after(mean("it", "q", now(k1) * others(R), "past"), ("independence", {})),
        batch("q") | ends("q") | exists(sum_t("q", now(k1), "past"), Em("q", R))),
    "a division on the way": (after(Em("p", k1).multiply(Em("q", w)), ("linearity", {"constant": beta}),
        ("linearity", {"constant": beta.invert()})), {("nonzero", "beta")}
        | exists(Em("p", k1 * beta.invert()), Em("p", k1))),
    "a premise": (after(Em("q", k1), ("equation", {}), premises=PAIR),
        {("equal", *PAIR[0]), ("nonzero", "beta")}),
    "a premise many times": (
        after(Em("q", k1), ("equation", {"times": Em("mu", w) + constant(lam.invert())}), premises=PAIR),
        {("equal", *PAIR[0]), ("nonzero", "beta"), ("nonzero", "lam")} | exists(Em("mu", w))),
    "the gradient of a premise": (after(grad(Em("q", k1)), ("equation", {"gradient": 1}), premises=PAIR),
        {("premise", *PAIR[0]), ("nonzero", "beta")}),
    "a division in the statement": (after(Em("q", k1 * lam.invert())), {("nonzero", "lam")}),
    "values at one sample": (after(point(k1 + 1), ("stop-gradient", {"part": k1})), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_records_all_that_it_assumes_and_nothing_else(name):
    draft, expected = STEPS[name]
    draft.part["close"] = {"by": "equality", "rows": []}
    part, theorem = certify({**draft.part, "right": draft.sides["left"].to_json()}, {})
    assert set(theorem.hypotheses) == expected
    assert len(part["hypotheses"]) == len(expected)


# ---------------------------------------------------------------------------- rows and closings
SQUARE = Em("q", k1 * k1)
ROWS: dict[str, tuple[Any, Side, set[Any]]] = {
    "a square": (row("square", k1), SQUARE, exists(SQUARE)),
    "at a sample": (row("square", k1, ("", "sample")), point(k1 * k1), set()),
    "an odd scale": (row("square", k1, scale=beta**3), SQUARE * beta**3,
        exists(SQUARE) | {("positive", "beta")}),
    "an even scale": (row("square", k1, scale=beta.invert() ** 2), SQUARE * beta.invert() ** 2,
        exists(SQUARE) | {("nonzero", "beta")}),
    "an exponential scale": (row("square", k1, scale=beta.exp()), SQUARE * beta.exp(), exists(SQUARE)),
    "a factor": (row("square", k1, factor=beta - lam), SQUARE * (beta - lam) ** 2, exists(SQUARE)),
    "a factor that divides": (row("square", beta * k1, factor=beta.invert()), SQUARE,
        exists(Em("q", beta**2 * k1 * k1)) | {("nonzero", "beta")}),
    "a weight": (row("square", k1, v=w), Em("q", rho * k1 * k1),
        exists(Em("q", rho * k1 * k1)) | {("support", "q", "mu")}),
    "a square at t": (row("square", now(k1), ("t", "p")), sum_t("p", now(k1) ** 2),
        exists(sum_t("p", now(k1) ** 2)) | ends("p")),
    "a square of a score at i": (row("square", others(k1), ("i", "mu"), "self"),
        mean_i("mu", others(k1) ** 2, "self", "self"),
        exists(mean_i("mu", others(k1) ** 2, "self", "self")) | batch("mu")),
    "a tangent over outcomes": (row("tangent", -k1, ("", "count")), Em("count", r - 1 + k1),
        exists(Em("count", r - 1 + k1))),
    "a tangent at a batch of sequences": (row("tangent", future(k1), ("it", "q")),
        mean("it", "q", future(k1).exp() - 1 - future(k1)),
        exists(mean("it", "q", future(k1).exp() - 1 - future(k1))) | ends("q") | batch("q")),
    "a variance": (row("variance", R, ("", "p")), Em("p", R * R) - Em("p", R).multiply(Em("p", R)),
        exists(Em("p", R * R), Em("p", R))),
    "a region": (row("square", k1, ("", "mu"), nonnegative=1 - w), Em("mu", k1 * k1 * (1 - w)),
        exists(Em("mu", k1 * k1 * (1 - w))) | {("nonnegative", "mu", 1 - w)}),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_row_records_all_that_it_assumes_and_nothing_else(name):
    of, right, expected = ROWS[name]
    draft = Draft(NOTHING, right, "<=", parameters=("beta", "lam", "n")).rows(of)
    (theorem,) = check(draft.certificate())
    assert set(theorem.hypotheses) == expected


@pytest.mark.parametrize(
    ("unit", "expected"), [(ONE, set()), (lam, {("nonzero", "lam")}), (beta**2, {("nonzero", "beta")})]
)
def test_completeness_assumes_that_what_it_divides_by_is_not_zero(unit, expected):
    left = Mg("q", g * unit.invert())
    draft = Draft(left, NOTHING, parameters=("a", "b", "beta", "lam"), functions=G).step("chain rule")
    family, constants = a * k1 + b, ["b", "a"]
    draft.close("completeness", function="g", family=family, unit=unit, coordinate="k1", order=2,
                constants=constants)  # fmt: skip
    (theorem,) = check(draft.certificate())
    assert (theorem.kind, set(theorem.hypotheses)) == ("unique", expected)


@pytest.mark.parametrize(
    ("loss", "term", "expected"),
    [
        (k1**3, k1 * k1 * 3, set()),
        (beta * lam * k1**3, beta * lam * k1 * k1 * 3, {("nonzero", "beta"), ("nonzero", "lam")}),
        ((lam - 1) * k1**3, lam * k1 * k1 * 3, {("generic", "lam")}),
        ((lam * k1).exp(), lam * (lam * k1).exp(), {("generic", "lam")}),
        (k1**3 + beta * w**3, k1 * k1 * 3, set()),
    ],
)
def test_independence_assumes_that_its_term_survives(loss, term, expected):
    draft = Draft(Mg("q", loss), NOTHING, parameters=("beta", "lam")).step("chain rule")
    (theorem,) = check(draft.close("independence", term=term).certificate())
    assert (theorem.kind, set(theorem.hypotheses)) == ("independent", expected)


def test_the_cases_speak_of_every_kind_of_hypothesis():
    found = {h[0] for rows in (WHOLE, STEPS, ROWS) for case in rows.values()
             for h in (case if isinstance(case, set) else case[-1])}  # fmt: skip
    kinds = "support exchange exists ends batch nonzero positive nonnegative equal premise"
    assert found == set(kinds.split())
