"""Rows of an inequality: what the kernel accepts is true in numbers, and 0 exactly when it says so."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klsym.errors import Refused
from klsym.kernel import check
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.closings import read_row
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import SLOTS, name_in_slot
from klsym.kernel.statements import Context, Side
from support.attacks.judge import all_zero, judge
from support.certificates.faulty_certificates import (
    NOTHING,
    Draft,
    Em,
    H,
    R,
    V,
    beta,
    constant,
    k1,
    k2,
    lam,
    log_q,
    mean,
    number,
    r,
    rho,
    w,
)
from support.certificates.kernel_words import row
from support.certificates.slot_helpers import now, others, own, past
from support.oracle.numbers import as_float
from support.oracle.statements import Oracle
from support.oracle.worlds import Step, World, softmax_family
from support.scale import scaled

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=250,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
PARAMETERS = ("beta", "lam", "n")


# ---------------------------------------------------------------------------- a row, written down by hand
def worth(kind: str, of: ExpPoly, at: tuple[str, str], *score: str, **more: ExpPoly) -> Side:
    """What a row is worth, by its definition."""
    scale, factor, v, region = (
        more.get(key, default)
        for key, default in (("scale", ONE), ("factor", ONE), ("v", ZERO), ("nonnegative", ONE))
    )
    c = scale * factor * factor
    if kind == "tangent":
        return mean(*at, v.exp() * (of.exp() - 1 - of) * c)
    if kind == "square":
        return mean(*at, v.exp() * of * of * region * c, *score, *score)
    first = mean(*at, of, *score)
    return mean(*at, of * of * c, *score, *score) - first.multiply(first) * c


def claim(left: Side, right: Side, *rows: Any, relation: str = "<=") -> Any:
    """The theorem that left <= right by these rows, or None where it is refused."""
    draft = Draft(left, right, relation, parameters=PARAMETERS).rows(*rows)
    try:
        return check(draft.certificate())[0]
    except Refused:
        return None


POSITIVE = [ONE, ONE, number(2), number(HALF), beta, beta**2, beta.invert(), beta.exp(), beta * lam**-2]
SCALES = st.sampled_from([*POSITIVE, *POSITIVE, ZERO, -ONE, -beta, beta - 1, k1])
FACTORS = st.sampled_from([ONE, ONE, beta - 1, beta - lam, beta.invert(), lam * beta, k1])
REGIONS = [1 + 2 * k1, 1 - w, 2 - r, 1 + k1 - w, 1 - k1 * k1]
WRONG_REGIONS = [k1, r - 3, k1 + beta, -ONE, R + 1]


@st.composite
def spoken(draw: Any, index: str, largest: int = 2) -> ExpPoly:
    """What may be squared, or stand in a tangent, at an index."""
    names = st.sampled_from([name_in_slot(base, slot) for slot in SLOTS[index] for base in ("k1", "w", "R")])
    total = ZERO
    for _ in range(draw(st.integers(1, largest))):
        term = V(draw(names)) * draw(st.sampled_from([1, -1, 2, HALF]))
        match draw(st.integers(0, 5)):
            case 0:
                term = term * V(draw(names))
            case 1:
                name = draw(names.filter(lambda name: not name.startswith("R")))
                term = (V(name) * draw(st.sampled_from([1, -1]))).exp() - 1
            case 2:
                term = term * beta
        total = total + term
    return total


@st.composite
def rows(draw: Any, wrong: bool = True) -> dict[str, Any]:
    """The words of one row; some of them are not licensed."""
    kind = draw(st.sampled_from(["tangent", "square", "square", "variance"]))
    index = draw(st.sampled_from(["", "", "i", "t", "it", "ij"]))
    if kind == "variance" and not wrong:
        index = draw(st.sampled_from(["", "i"]))
    measure = draw(st.sampled_from(["q", "q", "p", "mu", "sample", "count"]))
    measure = "q" if measure == "count" and index else measure
    if kind == "variance" and not wrong:
        measure = draw(st.sampled_from(["q", "p", "mu"]))
    of = draw(spoken(index))
    of = draw(st.sampled_from([V(name) for name in of.names()])) if kind == "tangent" else of
    score = () if kind == "tangent" else draw(st.lists(st.sampled_from(SLOTS[index]), max_size=1))
    found = {"kind": kind, "of": of, "at": (index, measure), "score": list(score)}
    found["scale"] = draw(SCALES if wrong else st.sampled_from(POSITIVE))
    found["factor"] = draw(FACTORS if wrong else st.sampled_from([ONE, beta - 1, beta - lam]))
    slot = SLOTS[index][0]
    weights = [ZERO] * 3 + [
        V(name_in_slot("w", slot)),
        -V(name_in_slot("k1", slot)),
        V(name_in_slot("log_q", slot)) * HALF,
    ]
    found["v"] = draw(st.sampled_from(weights)) if kind != "variance" else ZERO
    if kind == "square" and not index and draw(st.booleans()):
        found["nonnegative"] = draw(st.sampled_from([*REGIONS, *WRONG_REGIONS * wrong]))
    return found


def written(words: dict[str, Any]) -> tuple[dict[str, Any], Side]:
    """A row as data, and what it is worth."""
    kind, of, at, score = (words[key] for key in ("kind", "of", "at", "score"))
    more = {key: words[key] for key in ("scale", "factor", "v", "nonnegative") if key in words}
    return row(kind, of, at, *score, **more), worth(kind, of, at, *score, **more)


# ---------------------------------------------------------------------------- true in numbers
LEFT = st.sampled_from([NOTHING, Em("q", k1), Em("p", r * R, 1), constant(beta), Em("mu", w)])
ERRORS = st.sampled_from([NOTHING] * 4 + [Em("q", -k1), Em("p", r), Em("q", r) - constant(1), constant(-1)])


def test_what_is_accepted_is_an_inequality():
    counts: Counter[str] = Counter()

    @settings(CHECK, max_examples=300)
    @given(
        st.lists(st.one_of(rows(wrong=False), rows()), min_size=1, max_size=2),
        LEFT,
        ERRORS,
        st.integers(0, 10**6),
    )
    def run(several: list[Any], left: Side, error: Side, seed: int) -> None:
        data, values = zip(*(written(words) for words in several), strict=True)
        right = sum(values, left) + error
        theorem = claim(left, right, *data)
        assert claim(left, right, *data, relation="=") is None
        counts["accepted" if theorem else "refused"] += 1
        if not theorem:
            return
        assert right == sum(values, left)
        for words in several:
            counts[f"{words['kind']} at {words['at'][0]!r}"] += 1
            counts[f"{words['kind']} under {words['at'][1]}"] += 1
        verdict = judge(theorem, random.Random(seed), full=1, boundary=2, tries=8)
        assert verdict.against is None, (several, verdict.against)
        counts["judged"] += verdict.judged["full"] + verdict.judged["boundary"]

    run()
    assert min(counts["accepted"], counts["refused"]) >= 40, counts
    assert counts["judged"] >= 250, counts
    assert all(counts[f"square at {index!r}"] for index in SLOTS), counts
    assert all(counts[f"square under {m}"] for m in ("q", "p", "mu", "sample", "count")), counts
    assert counts["tangent at ''"] and counts["tangent at 't'"] and counts["tangent at 'i'"], counts
    assert counts["variance at ''"] and counts["variance at 'i'"], counts


def test_without_its_rows_an_inequality_is_refused():
    words = {"kind": "square", "of": k1, "at": ("", "q"), "score": []}
    data, value = written(words)
    assert claim(NOTHING, value, data) and not claim(NOTHING, value)
    assert not claim(NOTHING, value * 2, data) and not claim(value, NOTHING, data)
    assert claim(NOTHING, value * 2, data, data) and claim(NOTHING, NOTHING)


# ---------------------------------------------------------------------------- when it is an equality
def test_a_row_is_zero_exactly_when_the_theorem_says_so():
    """Worlds with zeros in q, p and mu, with densities that agree, and with parameters that meet."""
    counts: Counter[Any] = Counter()

    @settings(CHECK, max_examples=scaled(150, 60))
    @given(rows(wrong=False), st.integers(0, 10**6))
    def run(words: dict[str, Any], seed: int) -> None:
        data, value = written(words)
        theorem = claim(NOTHING, value, data)
        if theorem is None:  # the row is 0, or what it is worth cancels
            counts["refused"] += 1
            return
        assert len(theorem.zeros) == 1
        verdict = judge(theorem, random.Random(seed), full=2, boundary=4, tries=12)
        assert verdict.against is None, (words, verdict.against)
        met, judged = verdict.judged["equality"], verdict.judged["full"] + verdict.judged["boundary"]
        for key in (words["at"][0], words["kind"]):
            counts[key, True] += met
            counts[key, False] += judged - met
        counts["with zeros"] += verdict.judged["boundary"]

    run()
    for key in ("", "i", "t", "tangent", "square", "variance"):
        assert min(counts[key, True], counts[key, False]) >= scaled(3, 1), counts
    assert counts["with zeros"] >= scaled(100, 25), counts


@pytest.mark.parametrize(
    ("words", "q", "p", "equal"),
    [
        ({"of": r}, (1, 0), (0, 1), True),  # r = 0 wherever q > 0
        ({"of": r}, (1, 0), (HALF, HALF), False),
        ({"of": r - 1}, (HALF, HALF), (HALF, HALF), True),
        ({"of": r - 1}, (1, 0), (HALF, HALF), False),
        ({"of": R, "v": -k1}, (HALF, HALF), (0, 1), False),
        ({"of": R, "v": -k1}, (1, 0), (0, 1), True),  # exp(v) = r has no mass
        ({"of": k1 + log_q, "v": -k1}, (1, 0), (0, 1), True),
        ({"of": R, "factor": beta - lam}, (HALF, HALF), (HALF, HALF), True),  # beta = lam
        (
            {"of": r - HALF, "nonnegative": 2 - r},
            (THIRD, 2 * THIRD),
            (2 * THIRD, THIRD),
            True,
        ),  # r = 2 or 1/2
        ({"of": r - HALF, "nonnegative": 3 - r}, (THIRD, 2 * THIRD), (2 * THIRD, THIRD), False),
    ],
)
def test_named_equality(words, q, p, equal):
    words = {"kind": "square", "at": ("", "q"), "score": [], **words}
    data, value = written(words)
    theorem = claim(NOTHING, value, data)
    oracle = Oracle(two_outcomes(q, p), as_float)
    assert all_zero(theorem, oracle, 1e-11) is equal
    assert (abs(oracle.side(value)) < 1e-12) is equal


def two_outcomes(q: Any, p: Any) -> World:
    """mu is q, and lam is beta."""
    slopes = softmax_family([Fraction(x) for x in q], [Fraction(1), Fraction(-1)], [Fraction(0)] * 2)
    steps = [Step(of, Fraction(y), of[0], False, {"R": Fraction(k + 1), "H": Fraction(0)})
             for k, (of, y) in enumerate(zip(slopes, p, strict=True))]  # fmt: skip
    parameters = {name: Fraction(4, 5) for name in PARAMETERS} | {"n": Fraction(2)}
    return World(tuple((step,) for step in steps), (), 2, parameters, {})


def read(kind: str, of: ExpPoly, measure: str = "q", **more: ExpPoly) -> tuple[Side, set[Any], Any]:
    assumed = Assumptions(Context(parameters=("beta",)))
    side, zero = read_row(row(kind, of, ("", measure), **more), assumed)
    return side, assumed.found, zero


def supports(hypotheses: set[Any]) -> set[str]:
    return {about[1] for kind, *about in hypotheses if kind == "support"}


@pytest.mark.parametrize(
    ("of", "v", "expected"),
    [(k1, ZERO, ""), (k1.exp(), ZERO, "p"), (r, ZERO, ""), (r, k1, ""), (k1, k1, "p"), (k1.exp(), -k1, "p"),
     (k1, w, "mu"), (k1, w + k1, "p mu"), ((beta * k1).exp(), ZERO, "p mu old"), (k1, beta * w, "p mu old"),
     (V("o"), ZERO, ""), (V("o").exp(), ZERO, "old"), (k1, V("o") - k1, "old"), (k1, -V("o"), "")],
)  # fmt: skip
def test_the_supports_of_a_square(of, v, expected):
    """A density in a denominator of the integrand, or of what is squared, and none at a single sample."""
    assert supports(read("square", of, v=v)[1]) == set(expected.split())
    assert not supports(read("square", of, "sample", v=v)[1])


@pytest.mark.parametrize("v", [ZERO, w, -k1, log_q])
def test_where_a_row_has_weight(v):
    """exp(v) (exp(u) - 1 - u) is 0 where exp(v) and exp(v + u) are."""
    assert read("square", k1, v=v)[2].weight == v.exp()
    assert read("tangent", k1, v=v)[2].weight == (v.exp() + (v + k1).exp() if v + k1 and v else ONE)


def test_a_place_is_an_index_and_a_measure():
    for at in ("tq", ["t"], ["t", "q", "x"]):
        with pytest.raises(Refused, match="an index and a measure expected"):
            read_row(row("square", ONE, ("t", "q")) | {"at": at}, Assumptions(Context()))


def test_scores_are_written_in_order():
    side, _ = read_row(row("square", ONE, ("t", "q"), "past", "now"), Assumptions(Context()))
    [(_, (mean,))] = side.terms
    assert mean.score == ("now", "now", "past", "past")


@pytest.mark.parametrize("v", [k1, w, -k1])
def test_a_tangent_needs_no_support(v):
    """exp(v) may divide by a density: where it is 0, no mean is named that could be taken apart."""
    tangent, square = read("tangent", k1, v=v)[1], read("square", k1, v=v)[1]
    assert not any(kind == "support" for kind, *_ in tangent)
    assert any(kind == "support" for kind, *_ in square) == (v != -k1)


@pytest.mark.parametrize("region", [1 + k1, 1 - w, 1 + k1 + w])
def test_a_region_is_assumed(region):
    assert ("nonnegative", "q", region) in read("square", k1, nonnegative=region)[1]


# ---------------------------------------------------------------------------- refusals
S = {"kind": "square", "of": k1, "at": ("", "q"), "score": []}
REFUSED = {
    "a negative scale": ({**S, "scale": -ONE}, "is not positive"),
    "a scale of 0": ({**S, "scale": ZERO}, "a single term expected as a positive factor"),
    "a scale that is a sum": ({**S, "scale": beta - 1}, "a single term expected as a positive factor"),
    "a random scale": ({**S, "scale": rho}, "scale: a constant expected"),
    "a random factor": ({**S, "factor": k1}, "no constant factor"),
    "a factor of 0": ({**S, "factor": ZERO}, "a row that is 0"),
    "a row of 0": ({**S, "of": ZERO}, "a row that is 0"),
    "an unknown kind": ({**S, "kind": "cube"}, "kind: one of"),
    "another slot": ({**S, "of": now(k1)}, "unknown slot 'now'"),
    "a weight of another slot": ({**S, "v": past(k1)}, "unknown slot 'past'"),
    "an undeclared parameter": ({**S, "factor": V("c")}, "unknown name 'c'|unknown slot"),
    "a score of another slot": ({**S, "score": ["now"]}, "score: a list of slots"),
    "a tangent with a score": ({**S, "kind": "tangent", "score": ["x"]}, "tangent: no score function"),
    "a tangent of an exponential": ({**S, "kind": "tangent", "of": r}, "exp of an exponential"),
    "a weight that is an exponential": ({**S, "v": rho}, "exp of an exponential"),
    "a variance over all outcomes": ({**S, "kind": "variance", "at": ("", "count")}, "a probability measure"),
    "a variance at a sample": ({**S, "kind": "variance", "at": ("", "sample")}, "a probability measure"),
    "a variance with a weight": ({**S, "kind": "variance", "v": w}, "and unweighted"),
    "a variance of a sum over t": ({**S, "kind": "variance", "of": now(R), "at": ("t", "q")}, "of one"),
    "a variance in a batch of sequences": (
        {**S, "kind": "variance", "of": others(R), "at": ("it", "q")}, "of one sample"),
    "all outcomes of a batch": ({**S, "of": own(R), "at": ("i", "count")}, "unknown atom"),
    "a region of a tangent": ({**S, "kind": "tangent", "nonnegative": 1 + k1}, "squares at one sample"),
    "a region of a variance": ({**S, "kind": "variance", "nonnegative": 1 + k1}, "squares at one sample"),
    "a region in a batch": (
        {**S, "of": own(k1), "at": ("i", "q"), "nonnegative": 1 + k1}, "squares at one sample have one"),
    "a region that is empty": ({**S, "nonnegative": k1 - 1}, "not positive at q = p = mu"),
    "a region that is nearly empty": ({**S, "nonnegative": k1 - HALF}, "not positive at q = p = mu"),
    "a region with its end at equality": ({**S, "nonnegative": k1}, "not positive at q = p = mu"),
    "a region that e empties": ({**S, "nonnegative": 1 - 5 * (k1 + 1).exp()}, "not positive at q = p = mu"),
    "a region below 0": ({**S, "nonnegative": -(k1 + 1).exp()}, "not positive at q = p = mu"),
    "a region of a parameter": ({**S, "nonnegative": 1 + beta * k1}, "a function of k1 and w expected"),
    "a region of rewards": ({**S, "nonnegative": 1 + H}, "a function of k1 and w expected"),
    "a region that is a number": ({**S, "nonnegative": ONE}, "a function of k1 and w expected"),
    "a region that divides": ({**S, "nonnegative": 1 + k2 * w.invert()}, "division by the random"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_named_refusal(name):
    words, message = REFUSED[name]
    more = {key: words[key] for key in ("scale", "factor", "v", "nonnegative") if key in words}
    data = row(words["kind"], words["of"], words["at"], *words["score"], **more)
    draft = Draft(NOTHING, Em("q", k1 * k1), "<=", parameters=PARAMETERS).close("equality", rows=[data])
    with pytest.raises(Refused, match=message):
        check(draft.certificate())


@pytest.mark.parametrize(
    "rows_data",
    [None, {}, "x", [None], [[]], [{}], [{**row("square", k1), "more": "1"}],
     [{**row("square", k1), "at": "q"}], [{**row("square", k1), "at": "tq"}],
     [{**row("square", k1), "at": ["", "q", "x"]}], [{**row("square", k1), "kind": []}],
     [{key: x for key, x in row("square", k1).items() if key != "v"}]],
)  # fmt: skip
def test_malformed_rows_are_refused(rows_data):
    draft = Draft(NOTHING, Em("q", k1 * k1), "<=").close("equality", rows=rows_data)
    with pytest.raises(Refused):
        check(draft.certificate())
