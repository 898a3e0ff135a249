"""Random certificates against the kernel, judged by an oracle of their own; the full run is a program."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import pytest

from klsym.errors import Refused
from klsym.kernel import Theorem, batches, means, regions
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.ring import ONE, ExpPoly
from klsym.kernel.statements import Context, Curl, Gradient, Mean, MeanGradient, Side, Statement
from support.attacks.__main__ import Tally, attack
from support.attacks.judge import judge
from support.oracle.numbers import Undefined, as_float
from support.oracle.statements import Oracle
from support.oracle.worlds import Function, Step, World, square_family

K1, W, LOG_Q = (ExpPoly.from_variable(name) for name in ("k1", "w", "log_q"))
HALF = Fraction(1, 2)
SEED = 12  # with 5, the first of these faults is found after 6 s of CPU time; with this one after 0.2 s


def tree(*rows: tuple[int, int, int, int, int]) -> tuple[Step, ...]:
    """Branches a, b_u, b_v, p, mu: q is proportional to (a + b.theta)^2."""
    q = square_family([(Fraction(a), Fraction(u), Fraction(v)) for a, u, v, _, _ in rows])
    p, mu = (sum(row[i] for row in rows) for i in (3, 4))
    return tuple(
        Step(x, Fraction(row[3], p), Fraction(row[4], mu), not row[0], {"R": Fraction(row[3]), "H": HALF})
        for x, row in zip(q, rows, strict=True)
    )


def world(*paths: tuple[Step, ...], n: int = 2) -> World:
    return World(
        paths, (paths[0],) * n, n, {"n": Fraction(n)}, {"f": Function("sin", ("k1",), ((HALF, (2,)),))}
    )


FULL = tree((1, 1, 0, 2, 1), (2, -1, 1, 1, 3), (1, 2, -1, 1, 1))
EDGE = tree((1, 1, 0, 2, 1), (2, -1, 1, 1, 3), (0, 2, -1, 1, 1))  # q of the last is 0
SEQUENCES = world((FULL[0],), (FULL[1], EDGE[0]), (FULL[1], EDGE[1]), (FULL[1], EDGE[2]), (FULL[2],))


@pytest.fixture(scope="module")
def tally() -> Tally:
    return attack(200, 20)


def test_no_accepted_theorem_is_contradicted(tally: Tally) -> None:
    assert not tally.against


@pytest.mark.parametrize("what", ["full", "boundary", "touched", "n=1", "T>1", "zero parameter"])
def test_the_theorems_were_judged_in_such_worlds(tally: Tally, what: str) -> None:
    assert tally.theorems[f"judged: {what}"] > 20


def test_every_kind_of_certificate_was_accepted(tally: Tally) -> None:
    assert {"equality", "inequality", "finite model", "perturbed", "independence"} <= set(tally.kinds)
    assert len(tally.zeros) == 15 and len(tally.rules) > 45


@pytest.mark.parametrize("place, name, broken", [
    (means, "is_zero_where", lambda mean, density, context: True),
    (means, "refuse_downstream", lambda *_, **__: None),
    (batches.SIZES, "others", 0),
    (Assumptions, "divide", lambda *_, **__: None),
    (Assumptions, "assume_support", lambda *_, **__: None),
])  # fmt: skip
def test_a_broken_kernel_is_contradicted(
    place: Any, name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = monkeypatch.setitem if isinstance(place, dict) else monkeypatch.setattr
    change(place, name, broken)
    assert attack(1000, SEED, to_the_end=False).against


def forgetful(kind: str) -> Any:
    """Assumptions.add that leaves out one kind of hypothesis."""
    add = Assumptions.add
    return lambda self, name, *about: None if name == kind else add(self, name, *about)


def lenient(condition: bool, reason: str) -> None:
    """refuse_unless, but for rows that do not add up."""
    if not condition and "the rows" not in reason:
        raise Refused(reason)


def all_idempotent(element: ExpPoly, context: Context) -> ExpPoly:
    """V^n = V for every variable."""
    return ExpPoly({(tuple((n, 1) for n, _ in m), e): value for (m, e), value in element.terms.items()})


@pytest.mark.parametrize("place, name, broken", [
    (regions, "_assume_values", lambda *_, **__: None),
    (regions, "assume_positive", lambda *_, **__: None),
    (regions, "refuse_unless", lenient),
    (regions, "reduce_powers", all_idempotent),
    (Assumptions, "add", forgetful("away")),
    (Assumptions, "add", forgetful("fact")),
], ids=["values", "positive", "rows", "powers", "away", "fact"])  # fmt: skip
@pytest.mark.share(3)
def test_a_broken_comparison_is_contradicted(
    place: Any, name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, broken)
    assert attack(400, 4, to_the_end=False, rules=("region", "definition")).against


def test_comparisons_and_quotients_are_not_contradicted() -> None:
    tally = attack(80, 2, rules=("region", "definition"))
    assert not tally.against and tally.theorems["judged: boundary"] > 20
    assert {"region", "definition"} <= {rule for rule, _ in tally.judged_rules}


# ---------------------------------------------------------------------------- the oracle itself
def value(side: object, where: World) -> float:
    return float(Oracle(where, as_float).atom(side))  # type: ignore[arg-type]


def test_derivatives_of_the_family_are_those_of_its_difference_quotients() -> None:
    rows, small = [(1, 1, 0), (2, -1, 1), (0, 2, -1)], Fraction(1, 10**6)

    def q(u: Fraction, v: Fraction) -> list[Fraction]:
        weights = [(a + b * u + c * v) ** 2 for a, b, c in rows]
        return [w / sum(weights) for w in weights]

    exact = square_family([tuple(Fraction(x) for x in row) for row in rows])
    corners = [q(a * small, b * small) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
    for i, (at, du, dv, duv) in enumerate(exact):
        pp, pm, mp, mm = (corner[i] for corner in corners)
        assert at == q(Fraction(0), Fraction(0))[i]
        assert abs((pp + pm - mp - mm) / (4 * small) - du) < 1e-9
        assert abs((pp - pm + mp - mm) / (4 * small) - dv) < 1e-9
        assert abs((pp - pm - mp + mm) / (4 * small**2) - duv) < 1e-9


def test_divergences_by_hand() -> None:
    rows = [(s.q[0], s.p, s.q[1]) for s in FULL]
    where = world(*((s,) for s in FULL))
    kl = sum(q * math.log(q / p) for q, p, _ in rows)
    slope = sum(d * math.log(q / p) for q, p, d in rows)
    assert value(Mean("", "q", K1), where) == pytest.approx(kl)
    assert value(Gradient(Side.from_atom(Mean("", "q", K1))), where) == pytest.approx(slope)
    assert value(Mean("", "q", K1, ("x",)), where) == pytest.approx(slope)
    assert value(MeanGradient("", "p", K1), where) == pytest.approx(sum(p * d / q for q, p, d in rows))


def test_zeros_of_q_leave_means_and_gradients_as_the_convention_says() -> None:
    where = world(*((s,) for s in EDGE))
    assert value(Mean("", "q", ONE), where) == pytest.approx(1)
    assert value(Mean("", "q", (-K1).exp()), where) == pytest.approx(0.75)  # p of where q > 0
    assert value(Mean("", "p", K1.exp() * K1), where) == pytest.approx(value(Mean("", "q", K1), where))
    assert value(Gradient(Side.from_atom(Mean("", "q", K1))), where) == pytest.approx(
        value(Mean("", "q", K1, ("x",)), where)
    )
    for undefined in (
        Mean("", "p", K1),
        Mean("", "p", ONE, ("x",)),
        Gradient(Side.from_atom(Mean("", "q", (-K1).exp()))),
    ):
        with pytest.raises(Undefined):
            value(undefined, where)


def test_sums_over_steps_and_over_samples() -> None:
    now, past, others = (ExpPoly.from_variable(name) for name in ("k1[now]", "k1[past]", "k1[others]"))
    assert value(Mean("t", "q", now), SEQUENCES) == pytest.approx(value(Mean("", "q", K1), SEQUENCES))
    both = value(Mean("t", "q", now * past), SEQUENCES)
    assert both == pytest.approx(sum(
        float(a.q[0] * b.q[0]) * math.log(a.q[0] / a.p) * math.log(b.q[0] / b.p)
        for a, b in ((FULL[1], EDGE[0]), (FULL[1], EDGE[1]))
    ))  # fmt: skip
    three = World(SEQUENCES.paths, SEQUENCES.sample, 3, {}, {})
    assert value(Mean("i", "q", others), three) == pytest.approx(2 * value(Mean("", "q", K1), three))


def test_the_curl_of_a_gradient_is_zero_and_that_of_another_field_is_not() -> None:
    for where in (world(*((s,) for s in FULL)), world(*((s,) for s in EDGE))):
        assert value(Curl("", "q", K1 * K1 * K1.exp()), where) == pytest.approx(0)
        assert abs(value(Curl("", "mu", (W * 2).exp() * ExpPoly.from_variable("sg(k1)") * K1), where)) < 1e-9
    where = world((FULL[0],), *((FULL[1], step) for step in FULL), (FULL[2],))
    loss = ExpPoly.from_variable("sg(k1[now])") * ExpPoly.from_variable("k1[past]")
    assert abs(value(Curl("t", "q", loss), where)) > 1e-3


def test_a_false_theorem_is_contradicted_and_a_true_one_is_not() -> None:
    left = Side.from_atom(Mean("", "q", K1, ("x",)))
    for right, true in ((Side.from_atom(Gradient(Side.from_atom(Mean("", "q", K1)))), True), (Side(), False)):
        theorem = Theorem("proved", Statement(left, right, Context()), (), (), {})
        assert (judge(theorem, random.Random(0)).against is None) is true
