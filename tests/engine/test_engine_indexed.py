"""Slots in the language, quantities at an index, the strategy, and witnesses on trees."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sympy

from klsym.calculus import *
from klsym.engine.proof.counterexamples import find_model, generate_tree_models
from klsym.engine.proof.reduction import reduce_side
from klsym.engine.proof.sequence_quantities import has_steps, split_scores
from klsym.errors import KlsymError, NotInRing, ProofError, UsageError
from klsym.kernel import check, read
from klsym.kernel.models import Model
from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Context, Indexed, Statement
from klsym.language.convert import find_generic_functions, to_ring, to_sympy
from klsym.language.expressions import H, Slot

n, m, beta = parameter("n"), parameter("m"), parameter("beta")
f = Function("f")(k1)
V = ExpPoly.from_variable


# ---------------------------------------------------------------------------- the language
@pytest.mark.parametrize(
    ("expression", "element"),
    [
        (now(k1), V("k1[now]")),
        (past(log_p), V("log_q[past]") - V("k1[past]")),
        (future(log_mu), V("log_q[future]") - V("w[future]")),
        (now(r), (-V("k1[now]")).exp()),
        (past(rho) * now(rho), (V("w[past]") + V("w[now]")).exp()),
        (now(k3), (-V("k1[now]")).exp() - 1 + V("k1[now]")),
        (now(sg(k2)), V("sg(k1[now])") ** 2 * ExpPoly.from_number(2).invert()),
        (own(R) - others(A), V("R[self]") - V("A[others]")),
        (past(length) / length, V("length[past]") * V("length").invert()),
        (now(f.diff(log_q)), V("f'[now]")),
        (future(H) * beta, V("H[future]") * V("beta")),
        (rho ** (1 / length), (V("w") * V("length").invert()).exp()),
    ],
    ids=str,
)
def test_slots_to_the_ring_and_back(expression: Any, element: ExpPoly) -> None:
    assert to_ring(expression) == element
    if "f'[now]" not in element.names():
        assert to_ring(to_sympy(element)) == element


def test_a_slot_prints_its_name() -> None:
    assert repr(past) == "past" and str(now(k1)) == "k1_now" and str(past(rho)) == "rho_past"
    assert find_generic_functions(now(f) + past(f)) == {"f": ("k1",)}
    assert sympy.diff(now(k2), now(log_q)) == now(k1) and sympy.diff(now(sg(k2)), now(log_q)) == 0


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (sympy.Symbol("k1[now]"), "no plain name"),
        (sympy.Symbol("beta[now]"), "no plain name"),
        (Function("f")(past(k1) + now(k1)), "a generic function is written"),
        (Function("f")(past(log_q), now(log_p), now(log_mu)), "a generic function is written"),
        (sympy.Symbol("H"), "klsym's own"),
    ],
    ids=str,
)
def test_other_symbols_are_refused(expression: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        to_ring(expression)


# ---------------------------------------------------------------------------- quantities
def test_scores_are_split_by_slot() -> None:
    parts = split_scores(2 * past(s) * now(s) + now(k1) * s - future(s) ** 2, "t")
    assert parts == {
        ("now", "past"): ExpPoly.from_number(2), ("x",): V("k1[now]"),
        ("future", "future"): ExpPoly.from_number(-1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: sum_over_t(own(s), q), "no score function of"),
        (lambda: sum_over_t(now(k1) / now(s), q), "positive powers"),
        (lambda: sum_over_t(sympy.exp(now(s)), q), "positive powers"),
        (lambda: sum_over_t(now(k1), "count"), "under='count'"),
        (lambda: sum_over_t(now(k1), "nope"), "one of q, p, mu, sample"),
        (lambda: token_gradient(now(k1 * s), q), "does not hold the score"),
        (lambda: token_KL(q, "r"), "under='r'"),
        (lambda: curl(now(k1), "sample"), "under='sample'"),
        (lambda: mean_over_i(past(s), q), "no score function of"),
        (lambda: variance_of_mean(own(s) + own(k1), q), "one power"),
        (lambda: variance_of_mean(others(s), q), "one power"),
        (lambda: Slot("now")("k1"), "expected"),
    ],
)
def test_misuse_is_refused_in_one_clear_line(build: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_a_foreign_slot_is_refused_by_the_kernel() -> None:
    for quantity in (sum_over_t(own(k1), q), mean_over_i(past(k1), q), expectation(now(k1), under=q)):
        with pytest.raises(ProofError, match="slot"):
            derive(quantity).equals(quantity)


# ---------------------------------------------------------------------------- the strategy
CANONICAL = {
    "same token": (token_gradient(now(k2), q), "E_q[sum_t k1_now*s_now]"),
    "the past has no say": (sum_over_t(past(k1) * now(s), q), "0"),
    "nor have later scores": (sum_over_t(now(k1) * future(s), q), "0"),
    "the later step is now": (sum_over_t(future(k1) * now(s), q), "E_q[sum_t k1_now*s_past]"),
    "ratios of the future": (sum_over_t(future(r) * now(k1 * s), q), "E_q[sum_t k1_now*s_now]"),
    "the ratio of now": (sum_over_t(now(r) * past(s), q), "E_q[sum_t s_past]"),
    "from mu to q": (sum_over_t(now(rho) * now(k1 * s), mu), "E_q[sum_t k1_now*s_now/rho_past]"),
    "whole ratios": (sum_over_t(rho * now(k1 * s), mu), "E_q[sum_t k1_now*s_now]"),
    "whole scores": (sum_over_t(now(k1) * s, q), "E_q[sum_t k1_now*(s_past + s_now)]"),
    "lengths stay whole": (token_gradient(now(k1) / length, q), "E_q[sum_t s_now/T]"),
    "lengths fall apart": (sum_over_t(length * now(s), q), "E_q[sum_t s_past]"),
    "a batch": (mean_over_i(own(k1) - others(k1) / m, q), "E_q[k1 + k1/m - n*k1/m]"),
    "generic functions": (sum_over_t(future(f) * now(s), q), "E_q[sum_t f_now*s_past]"),
    "baselines": (sum_over_t(past(A) * now(s) + now(A) * now(s), q), "E_q[sum_t V_next*s_now]"),
}


@pytest.mark.parametrize("name", CANONICAL)
def test_canonical_form(name: str) -> None:
    quantity, text = CANONICAL[name]
    assert derive(quantity).reduce().left_text == text


def test_the_canonical_form_is_reached_and_kept() -> None:
    for quantity, _ in CANONICAL.values():
        reduced = derive(quantity).reduce()
        assert not list(reduce_side(reduced.left, reduced.context))


def test_on_policy_weights_are_one() -> None:
    chain = derive(token_gradient(past(rho) * now(rho * k3), mu), on_policy=True).reduce()
    assert chain.left_text == "E_q[sum_t k1_now*(s_past + s_now)]"


def test_a_given_token_reward() -> None:
    chain = derive(sum_over_t((now(H) + future(H)) * now(s), q), given={"H[now]": now(k1)})
    assert chain.equals(grad(KL(q, p))).theorem.kind == "proved"


# ---------------------------------------------------------------------------- witnesses
def test_candidate_trees_are_models() -> None:
    context = Context(parameters=("n", "beta"))
    for _, candidate in zip(range(40), generate_tree_models(context, on_policy=True), strict=False):
        tree = Model.from_json(json.loads(json.dumps(candidate)), context)
        assert {len(path) for path in tree.sequences} >= {2} and tree.sample in tree.sequences
        steps = [step.values for path in tree.sequences for step in path]
        assert all(step["mu"] == step["q"] for step in steps)
        assert any(step["q"] != step["p"] for step in steps)
        assert tree.parameters["n"].denominator == 1


def test_a_witness_is_found_for_what_is_false_only() -> None:
    false = derive(sum_over_t(future(k1) * now(s), q)).differs_from(0)
    assert false.theorem.kind == "refuted" and "tree" in false.part["close"]["model"]
    assert check(read(json.dumps(false.certificate()))) == (false.theorem.proved,)
    with pytest.raises(ProofError, match="no finite model"):
        derive(sum_over_t(past(k1) * now(s), q)).differs_from(0)


def test_premises_between_parameters_hold_in_a_witness() -> None:
    proof = derive(n * KL(q, p), premises=((n, m + 1),)).differs_from(m * KL(q, p))
    values = proof.part["close"]["model"]["parameters"]
    assert int(values["n"]) == int(values["m"]) + 1


def test_what_speaks_of_steps() -> None:
    steps = (token_KL(q, p), curl(now(k1), q), grad(sum_over_t(now(k1), q)), expectation(1 / length, under=q))
    assert all(has_steps(quantity.side) for quantity in steps)
    assert not has_steps(mean_over_i(own(k1), q).side, KL(q, p).side)


def test_a_witness_needs_its_premises() -> None:
    side = mean_over_i(own(k1), q).side
    assert isinstance(side.terms[0][1][0], Indexed)
    with pytest.raises((KlsymError, NotInRing)):
        find_model(Statement(side, KL(q, p).side, Context(parameters=("n",))))
