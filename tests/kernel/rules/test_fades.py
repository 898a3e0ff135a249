"""When a change of measure forgets a support: what vanishes there, on models with zeros and in limits."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klsym.errors import NotInRing, Refused
from klsym.kernel import apply_step
from klsym.kernel.densities import is_zero_where
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import PARTS, SLOTS, name_in_slot
from klsym.kernel.statements import Mean, Side
from support.certificates.faulty_certificates import V, beta, f, k1, log_q, number, r, rho, w
from support.certificates.kernel_words import PLAIN, step
from support.certificates.slot_helpers import at
from support.certificates.zero_density import MEASURES, ONE_STEP, TWO_STEPS, Boundary
from support.scale import scaled

CHECK = settings(
    derandomize=True, database=None, deadline=None, max_examples=scaled(500, 120),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
HALF = Fraction(1, 2)
INDEX = st.sampled_from(["", "", "", "t", "t", "i", "ij", "it"])
SHAPES = {"": ONE_STEP, "t": TWO_STEPS, "i": ONE_STEP, "ij": ONE_STEP, "it": TWO_STEPS}


def in_slots(index: str, *bases: str) -> Any:
    return st.sampled_from([name_in_slot(base, slot) for slot in SLOTS[index] for base in bases])


@st.composite
def powers(draw: Any, index: str, most: int = 3) -> ExpPoly:
    """exp of a combination of log ratios, of all that is drawn or of some: powers of densities."""
    everywhere = draw(st.sampled_from([ZERO, w, w, -k1, w - k1, w * HALF, log_q, w - k1 * HALF]))
    total = sum((at(slot, everywhere) for slot in PARTS[index]), ZERO)
    most = most if draw(st.integers(0, 2)) == 0 else 0
    for name in draw(st.lists(in_slots(index, "k1", "w", "log_q"), max_size=most)):
        total = total + V(name) * draw(st.sampled_from([1, 1, -1, 2, HALF, -HALF, Fraction(3, 2)]))
    return total.exp()


@st.composite
def coefficients(draw: Any, index: str) -> ExpPoly:
    total = ZERO
    for _ in range(draw(st.integers(1, 2))):
        term = draw(powers(index)) * draw(st.sampled_from([-2, 1, 3]))
        for name in draw(st.lists(in_slots(index, "k1", "w", "log_q", "R", "length"), max_size=2)):
            term = term * V(name)
        match draw(st.integers(0, 19)):
            case 0:
                term = term * V(draw(in_slots(index, "f", "g'")))
            case 1:
                term = term * (V(draw(in_slots(index, "k1", "w"))) ** 2 * -1).exp()
            case 2:
                term = term * (V(draw(in_slots(index, "w", "R"))) * beta).exp() * beta
        total = total + term
    return total


@st.composite
def means(draw: Any, coefficient: Any = coefficients) -> Mean:
    index, m = draw(INDEX), draw(st.sampled_from([*MEASURES, "q", "count"]))
    size = draw(st.sampled_from([0, 1, 1, 2]))
    score = draw(st.lists(st.sampled_from(SLOTS[index]), min_size=size, max_size=size))
    m = "q" if index and m == "count" else m
    return Mean(index, m, draw(coefficient(index)), tuple(sorted(score)))


def test_a_change_of_measure_is_true_on_models_with_zeros():
    """Wherever the recorded supports hold, and the ones that were forgotten need not."""
    counts: Counter[str] = Counter()

    @CHECK
    @given(means(), st.sampled_from([*MEASURES, "count"]), st.integers(0, 10**6))
    def run(mean: Mean, to: str, seed: int) -> None:
        try:
            moved, assumed = apply_step(
                {"left": Side.from_atom(mean)}, step("change of measure", to=to), PLAIN, {}
            )
        except (Refused, NotInRing):
            counts["refused"] += 1
            return
        both = {("support", mean.measure, to), ("support", to, mean.measure)}
        assert {h for h in assumed if h[0] == "support"} <= both
        for k in range(6):
            model = Boundary(seed + k, SHAPES[mean.index], zeros=0.1 + 0.08 * k)
            if model.satisfies(assumed):
                values = model.mean(mean), model.side(moved)
                assert (values[0] is None) == (values[1] is None), (mean, to, values)
                defined = values[0] is not None
                assert not defined or math.isclose(*values, rel_tol=1e-8, abs_tol=1e-9), (mean, to, values)
                forgotten = not model.satisfies(both)
                counts[f"{'forgotten' if forgotten else 'both hold'}, {defined and bool(values[0])}"] += 1
                counts[f"{mean.index}, {len(mean.score)}"] += forgotten and defined

    run()
    assert counts["forgotten, True"] >= scaled(30, 7) and counts["both hold, True"] >= scaled(100, 24), counts
    assert counts[", 1"] and sum(count for name, count in counts.items() if name[0] in "it"), counts


def test_both_supports_are_needed_where_nothing_fades():
    """A model with a zero that tells the two means apart, unless the support is recorded."""
    mean, to = Mean("", "mu", ONE), "q"
    moved, assumed = apply_step({"left": Side.from_atom(mean)}, step("change of measure", to=to), PLAIN, {})
    assert assumed == {("support", "mu", "q")}
    values = [(m.mean(mean), m.side(moved), m.satisfies(assumed)) for m in map(Boundary, range(60))]
    assert all(holds == math.isclose(x, y) for x, y, holds in values)
    assert {holds for *_, holds in values} == {True, False}


# ---------------------------------------------------------------------------- limits
SMALL = (1e-20, 1e-60, 1e-120)  # what a density goes to zero through


def approach(model: Boundary, density: str, size: float) -> Any:
    """One token's density becomes small; q does so as the square of a distance, so that s = 2 u / t."""
    token = model.sequences[0][0]
    token.logs[density] = math.log(size)
    if density == "q":
        token.score = 2 / math.sqrt(size)
    return token


def log_size(mean: Mean, row: Any, model: Boundary) -> float:
    """log of the largest term of m a s..s at a row, whatever cancels."""
    scores = [sum(abs(x.score) for x in row[entry]) for entry in mean.score]
    if 0 in scores:
        return -math.inf
    found = [
        model.log_term(key, row, mean.measure) + math.log(abs(c)) for key, c in mean.coefficient.terms.items()
    ]
    return max(found) + sum(map(math.log, scores))


def contribution(mean: Mean, density: str, size: float, seed: int) -> float:
    """What the rows that hold the token contribute, at most."""
    model = Boundary(seed, SHAPES[mean.index], zeros=0.0)
    token = approach(model, density, size)
    rows = [row for row in model.rows(mean.index) if token in model.drawn(row)]
    return max(log_size(mean, row, model) for row in rows)


def test_what_is_said_to_fade_does_in_the_limit():
    """Also where s = grad q / q grows without bound, and logs with it."""
    counts: Counter[Any] = Counter()

    @CHECK
    @given(means(), st.sampled_from(MEASURES), st.integers(0, 10**6))
    def run(mean: Mean, density: str, seed: int) -> None:
        if not mean.coefficient or not is_zero_where(mean, density, PLAIN):
            return
        sizes = [contribution(mean, density, size, seed) for size in SMALL]
        assert sizes == sorted(sizes, reverse=True) and sizes[-1] < -8, (mean, density, sizes)
        counts[len(mean.score)] += 1

    run()
    assert min(counts[k] for k in (0, 1, 2)) >= scaled(10, 2), counts


def test_what_does_not_fade_stays_in_the_limit():
    """For one product of powers the answer is exact: not to fade is not to vanish in some slot."""
    counts: Counter[bool] = Counter()

    @CHECK
    @given(means(powers), st.sampled_from(MEASURES), st.integers(0, 10**6))
    def run(mean: Mean, density: str, seed: int) -> None:
        said = is_zero_where(mean, density, PLAIN)
        sizes = [contribution(mean, density, size, seed) for size in SMALL]
        vanishes = sizes[-1] == -math.inf or sizes[-1] < sizes[0] - 20
        if mean.index == "" or said:
            assert said == vanishes, (mean, density, sizes)
        counts[said] += 1

    run()
    assert min(counts[True], counts[False]) >= scaled(40, 10), counts


@pytest.mark.parametrize(
    ("mean", "density", "answer"),
    [
        (Mean("", "q", k1), "q", True),
        (Mean("", "q", k1), "p", False),
        (Mean("", "q", r), "p", True),
        (Mean("", "mu", rho * k1, ("x",)), "q", True),
        (Mean("", "q", ONE, ("x",)), "q", True),
        (Mean("", "q", ONE, ("x", "x")), "q", False),
        (Mean("", "q", (k1 * HALF).exp(), ("x", "x")), "q", True),
        (Mean("", "mu", (w * HALF).exp(), ("x",)), "q", False),
        (Mean("", "mu", rho + 1), "q", False),
        (Mean("", "q", f), "q", False),
        (Mean("", "q", (k1 * k1).exp()), "q", False),
        (Mean("", "q", (-k1 * k1).exp()), "q", False),
        (Mean("", "q", (beta * k1).exp()), "q", False),
        (Mean("", "q", beta.exp() * number(1).exp()), "q", True),
        (Mean("", "q", V("R").exp()), "q", False),
        (Mean("", "q", V("R") * V("A")), "q", True),
        (Mean("", "p", ONE), "count", True),
        (Mean("", "count", log_q.exp()), "q", True),
        (Mean("", "count", k1), "q", False),
        (Mean("", "q", (-log_q).exp()), "q", False),
        (Mean("t", "q", at("now", r)), "p", False),  # p may vanish in the past
        (Mean("t", "q", at("past", r) * at("now", r) * at("future", r)), "p", True),
        (Mean("t", "q", r), "p", True),
        (Mean("t", "mu", at("past", rho) * at("now", rho), ("now",)), "q", False),  # the future is unweighted
        (Mean("t", "mu", rho, ("now",)), "q", True),
        (Mean("t", "q", ONE, ("now", "past")), "q", True),
        (Mean("t", "q", ONE, ("now", "x")), "q", False),
        (Mean("t", "q", ONE, ("x", "x")), "q", False),
        (Mean("i", "mu", at("self", rho)), "q", False),
        (Mean("i", "mu", at("self", rho) * at("others", rho), ("self",)), "q", True),
        (Mean("i", "q", ONE, ("self", "others")), "q", True),
        (Mean("ij", "mu", at("self", rho) * at("other", rho)), "q", False),
        (Mean("it", "mu", rho * at("others", rho)), "q", True),
        (Mean("it", "mu", rho), "q", False),
    ],
)  # fmt: skip
def test_named(mean, density, answer):
    assert is_zero_where(mean, density, PLAIN) is answer


def test_scores_are_unbounded_where_q_goes_to_zero():
    """q = t**2 / sum t**2: the limit that the rule about scores stands on, by hand."""
    for size in SMALL:
        t = np.array([math.sqrt(size), 0.7, 0.4])
        q, s = t**2 / (t**2).sum(), 2 / t[0]
        assert s > 1e9 and q[0] * s < 1e-9 and math.isclose(q[0] * s * s * (t**2).sum(), 4)
