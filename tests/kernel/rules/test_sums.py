"""The limits of the rules on means and on sums over t, one application at a time."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.errors import NotInRing, Refused
from klsym.kernel import apply_step, check, read, replay
from klsym.kernel.ring import ONE, ExpPoly, set_budget
from klsym.kernel.statements import Side
from support.certificates.faulty_certificates import (
    NOTHING,
    A,
    Draft,
    Em,
    R,
    beta,
    curl,
    f,
    grad,
    k1,
    mean,
    r,
    sg,
    w,
)
from support.certificates.kernel_words import PLAIN, C, signed, step
from support.certificates.slot_helpers import future, mean_i, now, others, past, sum_t

H, T, g = (ExpPoly.from_variable(name) for name in ("H", "length", "g"))


def applied(rule: str, atom: Side, /, **data: Any) -> tuple[Side, set[Any]]:
    """What a rule makes of a side that is one atom, and what it assumes."""
    return apply_step({"left": atom, "right": NOTHING}, step(rule, **data), PLAIN, {})


def refusal(rule: str, atom: Side, /, **data: Any) -> str:
    with pytest.raises((Refused, NotInRing)) as caught:
        applied(rule, atom, **data)
    return str(caught.value)


# ---------------------------------------------------------------------------- rules that hold
def exchanged(inner: str) -> tuple[Side, Side]:
    """sum_t X_t sum_{u>t} Y_u = sum_u Y_u sum_{t<u} X_t for X = R and Y = k1, times what t leaves alone."""
    rest = {"": ONE, "whole": A, "others": others(w), "both": A * others(w)}[inner]
    index = "it" if inner in ("others", "both") else "t"
    return mean(index, "q", rest * now(R) * future(k1)), mean(index, "q", rest * past(R) * now(k1))


HOLDS: dict[str, tuple[str, Side, dict[str, Any], Side]] = {
    **{
        f"sum over t of {name}": ("sum over t", Em("q", ExpPoly.from_variable(name)), {"of": name},
            sum_t("q", ExpPoly.from_variable(f"{name}[now]") if name != "length" else ONE))
        for name in ("k1", "w", "log_q", "R", "H", "length")
    },
    "sum over t of a score": ("sum over t", Em("q", A, 1), {"of": "s"}, sum_t("q", A, "now")),
    "sum over t of one of two scores": ("sum over t", Em("q", A, 2), {"of": "s"}, sum_t("q", A, "now", "x")),
    "sum over t of a score beside a second": ("sum over t", mean("", "q", A, "x", "x'"), {"of": "s"},
        sum_t("q", A, "now", "x'")),
    "sum over t beside a score": ("sum over t", Em("q", R * A, 1), {"of": "R"}, sum_t("q", now(R) * A, "x")),
    "sum over t of a power": ("sum over t", Em("q", R**3), {"of": "R"}, sum_t("q", now(R) * R**2)),
    "parts of a value": ("parts of a sum", sum_t("q", now(A) * R, "x"), {"of": ["R"]},
        sum_t("q", now(A) * (past(R) + now(R) + future(R)), "x")),
    "parts of the length": ("parts of a sum", sum_t("q", T * now(R)), {"of": ["length"]},
        sum_t("q", (past(T) + ONE + future(T)) * now(R))),
    "the length of a step": ("parts of a sum", sum_t("q", now(R) * now(T)), {"of": []}, sum_t("q", now(R))),
    "parts of one of two values": ("parts of a sum", sum_t("q", now(A) * R * H), {"of": ["R"]},
        sum_t("q", now(A) * (past(R) + now(R) + future(R)) * H)),
    "parts of all at once": ("parts of a sum", sum_t("q", R, "now"),
        {"of": ["k1", "w", "log_q", "R", "H", "length", "s"]},
        sum_t("q", past(R) + now(R) + future(R), "now")),
    "parts beside a score of a step": ("parts of a sum", sum_t("q", ONE, "now", "x"), {"of": ["s"]},
        sum_t("q", ONE, "now", "past") + sum_t("q", ONE, "now", "now") + sum_t("q", ONE, "now", "future")),
    "parts of a second score": ("parts of a sum", sum_t("q", ONE, "now", "x'"), {"of": ["s"]},
        sum(({z: sum_t("q", ONE, "now", z + "'") for z in ("past", "now", "future")}).values(), NOTHING)),
    "parts of four scores": ("parts of a sum", sum_t("q", ONE, "now", "now", "past", "x"), {"of": ["s"]},
        sum((sum_t("q", ONE, "now", "now", "past", z) for z in ("past", "now", "future")), NOTHING)),
    **{
        f"exchange beside {name or 'nothing'}": ("exchange of sums", exchanged(name)[0],
            {"now": "R", "other": "k1", "slot": "future"}, exchanged(name)[1])
        for name in ("", "whole", "others", "both")
    },
    "exchange back": ("exchange of sums", exchanged("")[1], {"now": "k1", "other": "R", "slot": "past"},
        exchanged("")[0]),
    "exchange of a score": ("exchange of sums", sum_t("q", future(k1), "now"),
        {"now": "s", "other": "k1", "slot": "future"}, sum_t("q", now(k1), "past")),
    "exchange of functions": ("exchange of sums", sum_t("q", now(f) * future(g)),
        {"now": "f", "other": "g", "slot": "future"}, sum_t("q", past(f) * now(g))),
    "exchange of a detached function": ("exchange of sums", sum_t("q", now(sg(f)) * future(g)),
        {"now": "sg(f)", "other": "g", "slot": "future"}, sum_t("q", past(sg(f)) * now(g))),
    "a ratio to its own measure": ("ratio mean one", Em("q", ONE), {"of": "q", "slot": "x"}, Em("q", ONE)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOLDS)
def test_a_rule_makes_exactly_this_of_a_mean(name):
    rule, of, data, expected = HOLDS[name]
    assert applied(rule, of, **data)[0] == expected


REFUSED: dict[str, tuple[str, Side, dict[str, Any], str]] = {
    "no factor of each term": ("sum over t", Em("q", R * A + A), {"of": "R"}, "R is no factor"),
    "a factor below the line": ("sum over t", Em("q", T.invert()), {"of": "length"}, "length is no factor"),
    "a sum over t of an advantage": ("sum over t", Em("q", A), {"of": "A"}, "of: one of"),
    "a sum over t under the counting measure": ("sum over t", Em("count", R), {"of": "R"}, "whole sequences"),
    "a sum over t twice": ("sum over t", sum_t("q", R), {"of": "R"}, "whole sequences"),
    "parts of an advantage": ("parts of a sum", sum_t("q", A), {"of": ["A"]}, "of: a list of names"),
    "parts of one sample": ("parts of a sum", Em("q", R), {"of": ["R"]}, "a sum over t expected"),
    "parts of five scores": ("parts of a sum", sum_t("q", ONE, *["now"] * 4, "x"), {"of": ["s"]},
        "four score functions at most"),
    "an exchange beside a step": ("exchange of sums", sum_t("q", now(R) * future(k1) * now(w)),
        {"now": "R", "other": "k1", "slot": "future"}, "more than R and k1 depends on t"),
    "an exchange of the present": ("exchange of sums", sum_t("q", now(R) * now(k1)),
        {"now": "R", "other": "k1", "slot": "now"}, "slot: one of"),
    "an exchange of advantages": ("exchange of sums", sum_t("q", now(A) * future(k1)),
        {"now": "A", "other": "k1", "slot": "future"}, "'A' is no sum over positions"),
    "an exchange of a detached ratio": ("exchange of sums", sum_t("q", now(sg(k1)) * future(R)),
        {"now": "sg(k1)", "other": "R", "slot": "future"}, r"'sg(k1)' is no sum over positions"),
    "an exchange of a name with a slot": ("exchange of sums", sum_t("q", now(f) * future(R)),
        {"now": "f[now]", "other": "R", "slot": "future"}, "is no factor of the coefficient"),
    "an exchange of a score that is not there": ("exchange of sums", sum_t("q", future(R), "past"),
        {"now": "s", "other": "R", "slot": "future"}, "no score function in the slot now"),
    "a ratio to the counting measure": ("ratio mean one", Em("q", ONE), {"of": "count", "slot": "x"},
        "of: one of"),
    "a ratio in a slot that is not there": ("ratio mean one", Em("q", r), {"of": "p", "slot": "now"},
        "slot: one of ['x'] expected, got 'now'"),
    "a score of a slot that is not there": ("score mean zero", sum_t("q", ONE, "past"), {"slot": "past"},
        "slot: one of ['future', 'now'] expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_beyond_its_limits_a_rule_refuses(name):
    rule, of, data, reason = REFUSED[name]
    assert reason in refusal(rule, of, **data)


def test_what_a_rule_assumes():
    def assumes(rule: str, atom: Side, /, **data: Any) -> set[Any]:
        return applied(rule, atom, **data)[1]

    assert assumes("sum over t", Em("p", R), of="R") == {("ends", "p")}
    assert assumes("sum over t", Em("sample", R), of="R") == set()
    # grad E_q[beta R]: E_q[beta R s] exists where grad and E_q may be exchanged, E_q[k1 s] needs not
    exchange = ("exchange", Em("q", beta * R).terms[0][1][0])
    assert assumes("log-derivative", grad(Em("q", beta * R))) == {exchange}
    found = assumes("log-derivative", grad(Em("q", k1 * R)))
    assert ("exists", Em("q", k1 * R, 1).terms[0][1][0]) in found and len(found) == 2
    # linearity divides by its constant
    assert ("nonzero", "beta") in assumes(
        "linearity", Em("q", k1).multiply(Em("q", w)), constant=beta.to_json()
    )
    assert assumes("exchange of sums", exchanged("")[0], now="R", other="k1", slot="future") == set()


def test_a_curl_of_several_means_needs_each():
    side, assumed = applied("curl", curl("t", "q", past(k1) * now(sg(w)) + now(k1) * past(R)))
    means = {("exists", atoms[0]) for _, atoms in side.terms}
    assert len(means) > 1 and means <= assumed
    assert {h[0] for h in assumed - means} == {"exchange", "ends"}


# ---------------------------------------------------------------------------- certificates
def test_a_certificate_has_one_million_units_of_work(monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(replay, "set_budget", lambda units: (seen.append(units), set_budget(units))[1])
    draft = Draft(C(1), C(1))
    check(signed([replay.certify(draft.close("equality", rows=[]).part, {})[0]]))
    assert seen == [1_000_000, 1_000_000]


def test_the_format_is_named_in_forty_characters():
    whole = signed([]) | {"format": "x" * 100}
    with pytest.raises(Refused, match="format '" + "x" * 40 + "': this kernel"):
        check(whole)


def test_a_mean_of_a_batch_that_is_taken_apart_must_exist():
    """E_q[s] exists where the mass of q may be differentiated; E_q[mean_i c(others) s] is assumed to."""
    _, alone = applied("score mean zero", Em("q", ONE + R, 1), slot="x", part=ONE.to_json())
    assert not any(kind == "exists" and atom == Em("q", ONE, 1).terms[0][1][0] for kind, atom in alone)
    beside = mean_i("q", others(R) + now(R).rename(lambda _: "R[self]"), "self")
    _, batch = applied("score mean zero", beside, slot="self", part=others(R).to_json())
    assert ("exists", mean_i("q", others(R), "self").terms[0][1][0]) in batch


@pytest.mark.parametrize("text", ["[]", "null", "3", '"parts"'])
def test_what_is_no_certificate_is_refused(text):
    with pytest.raises(Refused, match="a certificate has the keys"):
        check(read(text))
    with pytest.raises(Refused):
        check(signed([read(text)]))
