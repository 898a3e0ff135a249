"""A dual clip with a free constant: it lies beyond the clip range, which is a hypothesis of each theorem."""

from __future__ import annotations

from typing import Any

import pytest

import klsym
from klsym.engine.explain import explain
from klsym.engine.regions.bounds_in_order import collect_clip_facts, find_witness
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from klsym.notation.decimals import choose_decimals
from klsym.numeric.checks.cross_check import with_check

OURS, EPS = "max(-rho*A, -A*clip(rho, 0.8, 1.2))", "max(-rho*A, -A*clip(rho, 1 - eps, 1 + eps))"
MINUS = "min(rho*A, clip(rho, 0.8, 1.2)*A)"
DUAL = {  # losses that maximise E_q[A] on-policy, and what their bounds in order mean
    f"where(A<0, min(-A*cap, {OURS}), {OURS})": ["cap - 6/5"],
    f"where(A<0, min(-A*cap, {EPS}), {EPS})": ["cap - eps - 1", "eps"],
    f"where(A>=0, {OURS}, min(-A*cap, {OURS}))": ["cap - 6/5"],
    f"where(A<0, 1, 0)*min(-A*cap, {OURS}) + where(A>=0, 1, 0)*{OURS}": ["cap - 6/5"],
    f"-where(A<0, max(cap*A, {MINUS}), {MINUS})": ["cap - 6/5"],
    f"where(A<0, min(-cap*A, {EPS}), {EPS})": ["cap - eps - 1", "eps"],
}
OTHERS = {  # neighbours whose constant no clip bounds
    "min(-A*cap, -rho*A)": [],
    f"min(A*cap, {OURS})": [],  # of the other sign
    f"min(-cap, {OURS})": [],
    f"min(-R*cap, {OURS})": [],
    f"{OURS} + min(-A*cap, k1)": [],
    "min(-A*cap, -A*clip(rho, 1/cap, cap))": [],
    f"min(-A*cap**2, {OURS})": [],
    f"min(-A*k1, {OURS})": [],
}


def of(loss: str) -> Any:
    return parse(loss, ["cap"])


@pytest.mark.parametrize("loss", DUAL)
def test_on_policy_it_is_a_policy_gradient(loss: str) -> None:
    assert [str(e) for e in collect_clip_facts(of(loss))] == DUAL[loss]
    verdict = klsym.explain(loss, parameters=["cap"], sampling="on-policy")
    assert "maximises E_q[A] (a policy gradient)" in verdict.summary and verdict.trust == "kernel"
    assert "KL010" not in str(verdict)
    assumed = choose_decimals(loss)(DUAL[loss][0])  # 6/5 is printed as it was typed, 1.2
    assert f"{assumed} > 0 (so that the bounds of clip do not cross)" in verdict.text(proof=True)


@pytest.mark.parametrize("loss", OTHERS)
def test_neighbours_assume_nothing_of_the_constant(loss: str) -> None:
    assert [str(e) for e in collect_clip_facts(of(loss)) if "cap -" in str(e)] == OTHERS[loss]


@pytest.mark.parametrize("sampling", ["on-policy", "off-policy"])
@pytest.mark.parametrize("loss", [*DUAL][:2])
def test_the_literal_loss_agrees_where_the_bounds_are_in_order(loss: str, sampling: str) -> None:
    """And not where nothing is said of the constant: below the clip range it clips every sample."""
    verdict = explain(of(loss), sampling)
    assert with_check(verdict, of(loss)).proof.check["passed"] is True
    if sampling == "on-policy":
        told = tuple(m for m in verdict.assumptions if m.code != "bounds-in-order")
        assert with_check(verdict.revise(assumptions=told), of(loss)).proof.check["passed"] is False


def two_bounds(first: str, second: str, hi: str = "eps + 1") -> str:
    """A dual clip at `first`, whose clip range ends at `second`, beside one at `second` that ends at hi."""
    return f"min(-A*{first}, -A*clip(rho, 0, {second})) + min(-A*{second}, -A*clip(rho, 0, {hi}))"


@pytest.mark.parametrize(
    ("hi", "assumed"),
    [
        ("eps + 1", ["alpha - beta", "beta - eps - 1"]),
        ("2", ["alpha - beta", "beta - 2"]),
        ("alpha", ["-alpha + beta"]),
    ],
)
def test_bounds_that_lie_above_one_another_can_hold_together(hi: str, assumed: list[str]) -> None:
    """A chain has values at which all of it holds; of a circle, what contradicts the rest is not assumed."""
    loss = two_bounds("alpha", "beta", hi)
    positive = collect_clip_facts(parse(loss))
    assert [str(e) for e in positive if "-" in str(e)] == assumed
    facts = [to_ring(e) for e in positive]
    values = find_witness(facts) or {}
    at = [fact.substitute({x: ExpPoly.from_number(value) for x, value in values.items()}) for fact in facts]
    assert all(e.terms.get(((), ()), 0) >= 1 and not e.names() for e in at)
    verdict = klsym.explain(loss, sampling="off-policy")
    assert verdict.trust == "kernel" and f"{assumed[0]} > 0" in verdict.text(proof=True)


def test_what_contradicts_itself_has_no_witness() -> None:
    a, b = (ExpPoly.from_variable(x) for x in "ab")
    assert find_witness([a - b, b - a]) is None
    assert find_witness([a - b, b - 2 * a]) is None
    assert find_witness([a - b, b - 1]) == {"a": 3, "b": 2}
