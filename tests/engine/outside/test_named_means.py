"""Objectives of functions of exact means are theorems, and their gradients those of finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy

from klsym import explain
from klsym.engine.outside.named_means import MeanNames, prove_objective
from klsym.language.convert import to_ring, to_sympy
from klsym.language.expressions import M, R, k1, log_p, log_q, parameter, r, unfold
from klsym.language.parser import parse
from klsym.language.sums import OverVocabulary

full, b = OverVocabulary, parameter("b")
BUCKET = full(M * k1) + (1 - full(M)) * (sympy.log(1 - full(M)) - sympy.log(1 - full(M * r)))
FUNCTIONS = [
    full(M * k1) / full(M),
    BUCKET,
    full(k1) ** 2,
    sympy.sqrt(full(k1**2)),
    full(k1) * full(M),
    sympy.log(full(M * r) + b),
    full(k1) / (1 + full(k1**2)),
    sympy.exp(full(R) - full(M)),
]


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize("loss", FUNCTIONS, ids=str)
def test_a_function_of_exact_means_is_its_own_objective(loss: Any, on_policy: bool) -> None:
    proof = prove_objective(loss, on_policy)
    assert proof is not None and (proof.trust, proof.theorem.kind) == ("kernel", "proved")
    text = str(proof)
    assert "full(" in text and "full_" not in text and "ln_" not in text


@pytest.mark.parametrize("loss", FUNCTIONS, ids=str)
def test_the_names_stand_for_what_was_written(loss: Any) -> None:
    """Read back from the ring by the definitions alone, at random numbers."""
    names = MeanNames()
    element, values = names.write(loss), {}
    chosen = {x: sympy.Rational(i + 2, 7 * (i + 3)) for i, x in enumerate(sorted(loss.atoms(full), key=str))}
    by_ring = {to_ring(x.args[0]): value for x, value in chosen.items()}
    for name, kind, e in names.context.definitions:
        values[parameter(name)] = by_ring[e] if kind == "E_q" else sympy.log(to_sympy(e).subs(values))
    at = {b: sympy.Rational(1, 3)}
    assert float(element.subs(values).subs(at)) == pytest.approx(float(loss.subs(chosen).subs(at)), rel=1e-12)


def evaluate(e: Any, q: np.ndarray, p: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The value of an expression at each outcome, its exact means summed over all of them."""
    sums = {x: sympy.Float(float((q * evaluate(x.args[0], q, p, kept)).sum())) for x in e.atoms(full)}
    call = sympy.lambdify([log_q, log_p, M], unfold(e.xreplace(sums)))
    return np.broadcast_to(call(np.log(q), np.log(p), kept), q.shape)


@pytest.mark.parametrize(
    "loss", ["full(M*k1)/full(M)", str(BUCKET), "full(k1)**2", "log(full(M*r))*full(k1)"]
)
def test_what_is_proved_has_the_gradient_of_finite_differences(loss: str) -> None:
    verdict = explain(loss)
    assert (verdict.target, verdict.trust) == ("objective", "kernel")
    c = verdict.gradient.canonical_coefficient
    stream, kept = np.random.default_rng(8), np.array([1.0, 1.0, 0.0, 1.0, 0.0])
    logits, u, p = stream.normal(size=5), stream.normal(size=5), stream.dirichlet(np.ones(5))

    def policy(t: float) -> np.ndarray:
        weights = np.exp(logits + t * u)
        return weights / weights.sum()

    def value(t: float) -> float:
        return float(evaluate(parse(loss, ()), policy(t), p, kept)[0])

    q = policy(0.0)
    pushed = float((q * evaluate(c, q, p, kept) * (u - (q * u).sum())).sum())
    assert pushed == pytest.approx((value(1e-5) - value(-1e-5)) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("loss", ["log_q*full(k1)", "full(k1)*R"])
def test_what_is_drawn_beside_a_mean_has_no_such_theorem(loss: str) -> None:
    assert explain(loss).target is None


@pytest.mark.parametrize("loss", [full(sympy.Abs(k1)) ** 2, full(sympy.log(1 + r)), sympy.Abs(full(k1))])
def test_a_mean_outside_of_the_ring_has_no_certificate(loss: Any) -> None:
    assert prove_objective(loss, on_policy=True) is None


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("full(M*k1)/full(M)", "where M is 0, c is 0"),
        ("full(1 - M)**2", "where M is 0, c is 0"),  # c = -2*M*full(1 - M)
        ("full(k3)/full(M)", ""),  # words with M = 0 move one by one
        ("full(k1) - log(full(M))", ""),
    ],
)
def test_what_is_said_of_words_that_are_left_out_is_what_c_is_there(loss: str, said: str) -> None:
    text = " ".join(explain(loss).text(full=True).split())
    assert said in text if said else "where M is 0" not in text
