"""The exact oracle on inequalities: it passes true theorems, and sees what is wrong with others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sympy import Function, Rational

from klsym.calculus import *
from klsym.engine.proof.inequalities import read_rows
from klsym.engine.proof.quantities import to_quantity
from klsym.errors import UsageError
from klsym.kernel import Theorem
from klsym.kernel.assumptions import Assumptions
from klsym.kernel.closings import read_row
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Statement, walk_elements
from klsym.language.convert import to_ring
from klsym.numeric.exact import check_theorem

a, b = parameter("a"), parameter("b")
POSITIVE = ("positive", "beta")
HERE = (("equal", 0),)
W, F = log(rho), Function("f")(k1)


def theorem(
    left: Any, right: Any, rows: Any = (), hypotheses: tuple[Any, ...] = (), premises: Any = ()
) -> Theorem:
    """A theorem that no kernel made: an inequality by its rows, an equation if there are none."""
    left, right, rows = to_quantity(left).side, to_quantity(right).side, read_rows(rows)
    pairs = tuple((to_quantity(x).side, to_quantity(y).side) for x, y in premises)
    stated = [e for side in (left, right, *(s for pair in pairs for s in pair)) for e in walk_elements(side)]
    held = [ExpPoly.from_json(row[key]) for row in rows for key in ("scale", "factor", "v", "of")]
    found = {n for e in (*stated, *held) for n in e.names()}
    known = ("k1", "w", "log_q", "R", "A", "f")
    names = tuple(sorted(n for n in found if parse_name(n).base not in known))
    functions = (("f", ("k1",)),) if "f" in found else ()
    context = Context(parameters=names, premises=pairs, functions=functions)
    zeros = tuple(read_row(row, Assumptions(context))[1] for row in rows)
    statement = Statement(left, right, context, "<=" if rows else "=")
    return Theorem("proved", statement, (), hypotheses, {"by": "equality", "rows": rows}, zeros)


def at_most(left: Any, right: Any, *rows: Any, **how: Any) -> Theorem:
    return theorem(left, right, rows, **how)


ROOT_E = 2 * k1 + 1  # at least 0 where r <= exp(1/2)
WITHIN = (("nonnegative", mu, to_ring(ROOT_E)),)


IN_REGION = {"b": k1, "at": mu, "nonnegative": ROOT_E}


def spread(left: Any, right: Any, of: Any) -> Theorem:
    return theorem(left, right, [{"variance": of, "at": q}])


def var(of: Any) -> Any:
    return covariance(of, of, under=q)


def mean(of: Any, under: str = q) -> Any:
    return expectation(of, under=under)


AT = {"at": "sample"}
KNOWN = ((jeffreys(p, q), lam * chi2(p, q)),)
TRUE = {
    "a tangent": at_most(0, sample(k3), {"u": -k1, **AT}),
    "a tangent in the mean": at_most(0, KL(mu, p), {"u": W - k1, "at": mu}),
    "two tangents": at_most(0, mean(k3 + rho - 1 - W), {"u": -k1}, {"u": W}),
    "any beta": at_most(0, mean(beta * k3), {"u": -k1}, hypotheses=(POSITIVE,)),
    "a square": at_most(0, sample(k2), {"b": k1, **AT}),
    "a square of any function": at_most(0, mean(F ** 2), {"b": F}),
    "a score": at_most(0, mean((k1 * s) ** 2, mu), {"b": k1, "power": 1, "at": mu}),
    "a factor": at_most(0, mean((a - b) ** 2 * k2), {"b": k1, "factor": a - b}),
    "a variance": spread(mean(k1) * mean(k1), mean(k1**2), k1),
    "a variance of what may be constant": spread(mean(rho) * mean(rho), mean(rho**2), rho),
    "a premise": at_most(
        var(k(lam)), var(k(a)), {"b": r - 1, "factor": a - lam}, hypotheses=HERE, premises=KNOWN),
    "an equation from a premise": theorem(
        var(k3) - var(k(lam)), (1 - lam) ** 2 * chi2(p, q), (), HERE, KNOWN),
    "a region": at_most(0, mean(ROOT_E * k1**2, mu), IN_REGION, hypotheses=WITHIN),
    "a region at one sample": at_most(
        0, sample((1 - 2 * W) * k2), {"b": k1, "scale": Rational(1, 2), "nonnegative": 1 - 2 * W, **AT},
        hypotheses=(("nonnegative", "sample", to_ring(1 - 2 * W)),)),
    "above any lambda": at_most(sample(k(lam)), sample((r - 1) * (lam - 1 / r)), {"u": k1, **AT}),
}  # fmt: skip
FALSE = {
    "no tangent": at_most(0, sample(k1), {"u": -k1, **AT}),
    "a sample for the mean": at_most(0, sample(r * k1), {"u": -k1, **AT}),
    "beta of either sign": at_most(0, mean(beta * k3), {"u": -k1}),
    "equality elsewhere": at_most(0, mean(k3), {"u": W}),
    "equality more often": at_most(0, mean(k3 + rho - 1 - W), {"u": -k1}),
    "equality more often, the other way": at_most(0, mean(k3 + rho - 1 - W), {"u": W}),
    "equality less often": at_most(0, mean(k3), {"u": -k1}, {"u": W}),
    "equality at one sample": at_most(0, mean(k3), {"u": -k1, **AT}),
    "equality at other weights": at_most(0, mean((k1 + W) ** 2), {"b": k1}),
    "equality for a factor forgotten": at_most(0, mean((a - b) ** 2 * k2), {"b": k1}),
    "equality for a factor too many": at_most(0, mean(k2), {"b": k1, "factor": a - b}),
    "equality for another factor": at_most(0, mean((a - 1) ** 2 * k2), {"b": k1, "factor": a - 2}),
    "equality of a variance where it is zero": at_most(mean(k1) * mean(k1), mean(k1**2), {"b": k1 - 1}),
    "a variance of something else": spread(mean(k1) * mean(k1), mean(k1**2), W),
    "the worst lambda": at_most(
        var(k(a)), var(k(lam)), {"b": r - 1, "factor": a - lam}, hypotheses=HERE, premises=KNOWN),
    "a premise with another factor": theorem(
        var(k3) - var(k(lam)), (1 + lam) ** 2 * chi2(p, q), (), HERE, KNOWN),
    "a region left out": at_most(0, mean(ROOT_E * k1**2, mu), IN_REGION),
    "a region of another variable": at_most(
        0, mean(ROOT_E * k1**2, mu), IN_REGION, hypotheses=(("nonnegative", mu, to_ring(2 * W + 1)),)),
    "a region and another sign": at_most(0, mean(-ROOT_E * k1**2, mu), IN_REGION, hypotheses=WITHIN),
    "any lambda": at_most(0, sample(k(lam)), {"u": -k1, **AT}),
    "above another lambda": at_most(sample(k(lam + 1)), sample((r - 1) * (lam - 1 / r)), {"u": k1, **AT}),
    "above any lambda, never equal": at_most(
        sample(k(lam)), sample((r - 1) * (lam - 1 / r)), {"u": k1 + 5, **AT}),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUE)
@pytest.mark.share(3)
def test_true_theorems_pass(name: str) -> None:
    outcome = check_theorem(TRUE[name])
    assert outcome.passed and outcome.kind == TRUE[name].kind, outcome.text


@pytest.mark.parametrize("name", FALSE)
@pytest.mark.share(3)
def test_false_theorems_fail(name: str) -> None:
    outcome = check_theorem(FALSE[name])
    assert not outcome.passed, outcome.text


def test_a_premise_for_every_theta_is_not_fitted_at_one() -> None:
    everywhere = replace(TRUE["a premise"], hypotheses=(("premise", 0),))
    with pytest.raises(UsageError, match="premise 1 fails"):
        check_theorem(everywhere)
