"""When an inequality is an equality: the condition that the kernel prints, and what is literally true."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from klsym.kernel import check, show
from support.certificates.faulty_certificates import *
from support.faulty.inequalities import SAMPLE, UP_TO_ROOT_E, row, rows, square, tangent


def lines(draft: Draft, full: bool = True) -> list[str]:
    [theorem] = check(draft.certificate())
    return [line.strip() for line in show(theorem, full).splitlines()]


THIRDS = [Fraction(n, 3) for n in range(4)]
DISTRIBUTIONS = [row for row in itertools.product(THIRDS, repeat=3) if sum(row) == 1]
MODELS = [(q, p, m) for q in DISTRIBUTIONS for p in DISTRIBUTIONS for m in (q, p, (1 - sum(q[1:]), *q[1:]))]
One = Callable[[Any, Any, Any], Any]


# the theorem; its condition in print; term by term, where it has mass and what must vanish or agree there
CONDITIONS: list[tuple[Draft, str]] = [
    (square(NOTHING, Em("q", r * r), of=r), "exp(-k1) = 0 wherever q > 0"),
    (square(NOTHING, Em("q", (r - 1) ** 2), of=r - 1), "-1 + exp(-k1) = 0 wherever q > 0"),
    (square(NOTHING, Em("p", k1 * k1), at=["", "p"]), "k1 = 0 wherever p > 0"),
    (square(NOTHING, Em("q", rho * k1 * k1), v=w), "k1 = 0 wherever q*exp(w) > 0"),
    (square(NOTHING, Em("mu", rho * k1 * k1), v=w, at=["", "mu"]), "k1 = 0 wherever mu*exp(w) > 0"),
    (square(NOTHING, Em("q", (-w).exp() * k1 * k1), v=-w), "k1 = 0 wherever q*exp(-w) > 0"),
    (square(NOTHING, Em("count", k1 * k1), at=["", "count"]), "k1 = 0 at every outcome"),
    (square(NOTHING, Em("count", log_q.exp() * k1 * k1), at=["", "count"], v=log_q),
        "k1 = 0 wherever exp(log_q) > 0"),
    (square(NOTHING, point(k1 * k1), at=SAMPLE), "k1 = 0"),
    (square(NOTHING, point(r * k1 * k1), at=SAMPLE, v=-k1), "k1 = 0 wherever exp(-k1) > 0"),
    (square(NOTHING, Em("q", k1 * k1, 2), score=["x"]), "k1*s = 0 wherever q > 0"),
    (square(NOTHING, Em("q", (k1 + 1) ** 2, 2), of=k1 + 1, score=["x"]), "(1 + k1)*s = 0 wherever q > 0"),
    (square(NOTHING, Em("q", UP_TO_ROOT_E * k1 * k1), nonnegative=UP_TO_ROOT_E),
        "k1 + 2*k1^2 = 0 wherever q > 0"),
    (square(NOTHING, Em("q", (lam - 1) ** 2 * k1 * k1), factor=lam - 1, parameters=("lam",)),
        "-1 + lam = 0 or k1 = 0 wherever q > 0"),
    (square(NOTHING, Em("q", k1 * k1), factor=beta.invert(), of=beta * k1, parameters=("beta",)),
        "beta^-1 = 0 or beta*k1 = 0 wherever q > 0"),
    (square(NOTHING, mean("i", "q", V("k1[self]") ** 2), at=["i", "q"], of=V("k1[self]")),
        "k1[self] = 0 wherever q > 0, at each i"),
    (tangent(NOTHING, Em("q", k3)), "-k1 = 0 wherever q > 0"),
    (tangent(NOTHING, Em("q", r * (k1.exp() - 1 - k1)), of=k1, v=-k1), "k1 = 0 wherever q > 0"),
    (tangent(NOTHING, Em("q", r * (rho - 1 - w)), of=w, v=-k1),
        "w = 0 wherever q*(exp(-k1) + exp(-k1 + w)) > 0"),
    (tangent(NOTHING, point(k3), at=SAMPLE), "-k1 = 0"),
    (tangent(NOTHING, Em("mu", k3), at=["", "mu"]), "-k1 = 0 wherever mu > 0"),
    (rows(QP.multiply(QP), Em("q", k1 * k1), row("variance")), "k1 is constant wherever q > 0"),
    (rows(NOTHING, cov("q", R, R), row("variance", of=R)), "R is constant wherever q > 0"),
    (rows(Em("q", k1, 1).multiply(Em("q", k1, 1)), Em("q", k1 * k1, 2), row("variance", score=["x"])),
        "k1*s is constant wherever q > 0"),
    (rows(NOTHING, Em("q", k3) + Em("p", k1 * k1), row("tangent"), row("square", at=["", "p"])),
        "-k1 = 0 wherever q > 0 and k1 = 0 wherever p > 0"),
    (rows(NOTHING, chi2("p", "q") + Em("q", a * a), row("square", of=r - 1), row("square", of=a),
          parameters=("a",)),
        "-1 + exp(-k1) = 0 wherever q > 0 and a = 0 wherever q > 0"),
]  # fmt: skip


@pytest.mark.parametrize("draft, condition", CONDITIONS, ids=[condition for _, condition in CONDITIONS])
def test_the_condition_of_equality_in_print(draft, condition):
    [shown] = [line for line in lines(draft) if line.startswith("equality")]
    assert shown == f"equality if and only if {condition}"
    assert shown in lines(draft, full=False)


def test_an_equation_has_no_condition_of_equality():
    for draft in (Draft(QP, QP), Draft(QP, QP, "<=")):
        assert not any("equality" in line for line in lines(draft))


def test_a_parameter_that_a_row_divides_by_is_not_zero():
    draft = square(NOTHING, Em("q", k1 * k1), factor=beta.invert(), of=beta * k1, parameters=("beta",))
    assert "if beta is not 0" in lines(draft)


# what the inequalities sum outcome by outcome, and when each condition above says that they are equalities
LITERAL: list[tuple[str, One, One]] = [
    ("exp(-k1) = 0 wherever q > 0", lambda q, p, m: p * p / q if q else 0, lambda q, p, m: not q or p == 0),
    ("-1 + exp(-k1) = 0 wherever q > 0", lambda q, p, m: (p - q) ** 2 / q if q else 0,
        lambda q, p, m: not q or p == q),
    ("k1 = 0 wherever mu*exp(w) > 0", lambda q, p, m: q * (p != q) if m * q else 0,
        lambda q, p, m: not (m and q) or p == q),
    ("k1 = 0 wherever q*exp(-w) > 0", lambda q, p, m: m * (p != q) if m * q else 0,
        lambda q, p, m: not (q and m) or p == q),
    ("k1 = 0 wherever q > 0", lambda q, p, m: p * (p != q) if p * q else q,
        lambda q, p, m: not q or p == q),
]  # fmt: skip


@pytest.mark.parametrize("condition, slack, vanishes", LITERAL, ids=[row[0] for row in LITERAL])
def test_the_condition_of_equality_is_right_where_densities_vanish(condition, slack, vanishes):
    assert condition in {printed for _, printed in CONDITIONS}
    outcomes = [list(zip(q, p, m, strict=True)) for q, p, m in MODELS]
    equal = [sum(slack(*at) for at in model) == 0 for model in outcomes]
    assert equal == [all(vanishes(*at) for at in model) for model in outcomes]
    assert True in equal and False in equal
