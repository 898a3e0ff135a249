"""The exact oracle on inequalities: it passes true theorems, and sees what is wrong with others."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from typing import Any

import pytest
from sympy import Function, Rational

from klsym.calculus import (
    KL,
    beta,
    chi2,
    covariance,
    expectation,
    jeffreys,
    k,
    k1,
    k2,
    k3,
    lam,
    log,
    mu,
    p,
    parameter,
    q,
    r,
    rho,
    s,
    sample,
)
from klsym.convert import to_ring
from klsym.engine.inequalities import data_elements, inequality, positive_terms
from klsym.engine.quantities import quantity
from klsym.errors import UsageError
from klsym.kernel import Theorem
from klsym.names import parse_name
from klsym.numeric import sides
from klsym.numeric.exact import check_theorem
from klsym.statements import Context, Statement, elements

a, b = parameter("a"), parameter("b")
POSITIVE = ("positive", "beta")
HERE = (("equal", 0),)
W, F = log(rho), Function("f")(k1)


def theorem(
    kind: str,
    left: Any,
    right: Any,
    close: dict[str, Any],
    hypotheses: tuple[Any, ...] = (),
    premises: Any = (),
) -> Theorem:
    """A theorem that no kernel made."""
    left, right = quantity(left).side, quantity(right).side
    pairs = tuple((quantity(x).side, quantity(y).side) for x, y in premises)
    stated = [e for side in (left, right, *(s for pair in pairs for s in pair)) for e in elements(side)]
    found = {n for e in (*stated, *data_elements(close)) for n in e.names()}
    known = ("k1", "w", "log_q", "R", "A", "f")
    names = tuple(sorted(n for n in found if parse_name(n).base not in known))
    functions = (("f", ("k1",)),) if "f" in found else ()
    context = Context(parameters=names, premises=pairs, functions=functions)
    relation = "=" if close["by"] == "evaluation" else "<="
    return Theorem(kind, Statement(left, right, context, relation), (), hypotheses, close)


def iff(right: Any, value: Any, *hypotheses: Any) -> Theorem:
    close = {"by": "contact", "parameter": "lam", "value": to_ring(value).to_json()}
    return theorem("iff", 0, right, {**close, "terms": positive_terms([{"u": -k1}])}, hypotheses)


def tangents(left: Any, right: Any, *rows: Any, **how: Any) -> Theorem:
    return theorem("proved", left, right, inequality("tangent", {"terms": rows}), **how)


def squares(left: Any, right: Any, *rows: Any, **how: Any) -> Theorem:
    return theorem("proved", left, right, inequality("sum of squares", {"terms": rows}), **how)


ROOT_E = 2 * k1 + 1  # at least 0 where r <= exp(1/2)
WITHIN = (("nonnegative", mu, to_ring(ROOT_E)),)


IN_REGION = {"b": k1, "at": mu, "nonnegative": ROOT_E}


def spread(left: Any, right: Any, **data: Any) -> Theorem:
    return theorem("proved", left, right, inequality("square", {"measure": q, "power": 0, **data}))


def var(of: Any) -> Any:
    return covariance(of, of, under=q)


def mean(of: Any, under: str = q) -> Any:
    return expectation(of, under=under)


AT = {"at": "sample"}
KNOWN = ((jeffreys(p, q), lam * chi2(p, q)),)
EVALUATED = inequality("tangent", {"terms": [{"u": k1}]}) | {"by": "evaluation"}
TRUE = {
    "a tangent": tangents(0, sample(k3), {"u": -k1, **AT}),
    "a tangent in the mean": tangents(0, KL(mu, p), {"u": W - k1, "at": mu}),
    "two tangents": tangents(0, mean(k3 + rho - 1 - W), {"u": -k1}, {"u": W}),
    "any beta": tangents(0, mean(beta * k3), {"u": -k1}, hypotheses=(POSITIVE,)),
    "a square": squares(0, sample(k2), {"b": k1, **AT}),
    "a square of any function": squares(0, mean(F ** 2), {"b": F}),
    "a score": squares(0, mean((k1 * s) ** 2, mu), {"b": k1, "power": 1, "at": mu}),
    "a factor": squares(0, mean((a - b) ** 2 * k2), {"b": k1, "factor": a - b}),
    "a variance": spread(mean(k1) * mean(k1), mean(k1**2), b=k1),
    "a variance of what may be constant": spread(mean(rho) * mean(rho), mean(rho**2), b=rho),
    "a premise": squares(
        var(k(lam)), var(k(a)), {"b": r - 1, "factor": a - lam}, hypotheses=HERE, premises=KNOWN),
    "an equation from a premise": theorem(
        "proved", var(k3) - var(k(lam)), (1 - lam) ** 2 * chi2(p, q), EVALUATED, HERE, KNOWN),
    "a region": squares(0, mean(ROOT_E * k1**2, mu), IN_REGION, hypotheses=WITHIN),
    "a region at one sample": squares(
        0, sample((1 - 2 * W) * k2), {"b": k1, "scale": Rational(1, 2), "nonnegative": 1 - 2 * W, **AT},
        hypotheses=(("nonnegative", "sample", to_ring(1 - 2 * W)),)),
    "one lambda": iff(sample(k(lam)), 1),
    "one lambda for each beta": iff(sample(k3 + (lam - beta) * k1), beta),
    "one lambda and a sign": iff(sample(beta * k(lam)), 1, POSITIVE),
}  # fmt: skip
FALSE = {
    "no tangent": tangents(0, sample(k1), {"u": -k1, **AT}),
    "a sample for the mean": tangents(0, sample(r * k1), {"u": -k1, **AT}),
    "beta of either sign": tangents(0, mean(beta * k3), {"u": -k1}),
    "equality elsewhere": tangents(0, mean(k3), {"u": W}),
    "equality more often": tangents(0, mean(k3 + rho - 1 - W), {"u": -k1}),
    "equality more often, the other way": tangents(0, mean(k3 + rho - 1 - W), {"u": W}),
    "equality less often": tangents(0, mean(k3), {"u": -k1}, {"u": W}),
    "equality at one sample": tangents(0, mean(k3), {"u": -k1, **AT}),
    "equality at other weights": squares(0, mean((k1 + W) ** 2), {"b": k1}),
    "equality for a factor forgotten": squares(0, mean((a - b) ** 2 * k2), {"b": k1}),
    "equality for a factor too many": squares(0, mean(k2), {"b": k1, "factor": a - b}),
    "equality for another factor": squares(0, mean((a - 1) ** 2 * k2), {"b": k1, "factor": a - 2}),
    "equality of a variance where it is zero": squares(mean(k1) * mean(k1), mean(k1**2), {"b": k1 - 1}),
    "a variance of something else": spread(mean(k1) * mean(k1), mean(k1**2), b=W),
    "the worst lambda": squares(
        var(k(a)), var(k(lam)), {"b": r - 1, "factor": a - lam}, hypotheses=HERE, premises=KNOWN),
    "a premise with another factor": theorem(
        "proved", var(k3) - var(k(lam)), (1 + lam) ** 2 * chi2(p, q), EVALUATED, HERE, KNOWN),
    "a region left out": squares(0, mean(ROOT_E * k1**2, mu), IN_REGION),
    "a region of another variable": squares(
        0, mean(ROOT_E * k1**2, mu), IN_REGION, hypotheses=(("nonnegative", mu, to_ring(2 * W + 1)),)),
    "a region and another sign": squares(0, mean(-ROOT_E * k1**2, mu), IN_REGION, hypotheses=WITHIN),
    "another lambda": iff(sample(k(lam)), 2),
    "any lambda": iff(sample(k3 + (lam - 1) ** 2 * k2), 1),
    "every lambda on one side": iff(sample(k3 + (lam - 1) * k2), 1),
    "no lambda": iff(sample(k1 + lam * r), 1),
    "one lambda, of either sign of beta": iff(sample(beta * k(lam)), 1),
    "the other value": iff(sample(k3 + (lam - beta) * k1), -beta),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUE)
def test_true_theorems_pass(name: str) -> None:
    outcome = check_theorem(TRUE[name])
    assert outcome.passed and outcome.kind == TRUE[name].kind, outcome.text


@pytest.mark.parametrize("name", FALSE)
def test_false_theorems_fail(name: str) -> None:
    outcome = check_theorem(FALSE[name])
    assert not outcome.passed, outcome.text


def test_a_premise_for_every_theta_is_not_fitted_at_one() -> None:
    everywhere = replace(TRUE["a premise"], hypotheses=(("premise", 0),))
    with pytest.raises(UsageError, match="premise 1 fails"):
        check_theorem(everywhere)


def test_the_values_of_sides_share_no_code_with_rules_or_engine() -> None:
    tree = ast.parse(inspect.getsource(sides))
    imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported and not {m for m in imported if str(m).startswith(("klsym.kernel", "klsym.engine"))}
