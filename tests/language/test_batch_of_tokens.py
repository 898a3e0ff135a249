"""The mean over all tokens of a batch, sum_i sum_t / sum_i T_i: the gradient of no function, and its limit.

Where lengths are 1 and 2, 1/(T_1 + T_2) = 11/12 - (T_1 + T_2)/4 + T_1 T_2/12, which the kernel can state.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from sympy import Rational

from klsym import explain
from klsym.engine.proof.derivation import derive
from klsym.engine.proof.quantities import Quantity, expectation
from klsym.engine.proof.sequence_quantities import mean_over_i
from klsym.errors import ProofError, UsageError
from klsym.kernel import check, read
from klsym.language.abbreviations import Indexed, Side
from klsym.language.convert import to_ring
from klsym.language.expressions import R, length, now, others, own, parameter, s
from klsym.numeric.checks.cross_check import with_check
from support.judges.loss_witness import _witness_forest
from support.losses.random_losses import Case, generate
from support.oracle.losses import Setting, trees
from support.oracle.slots import Slotted
from support.scale import scaled

n = parameter("n")
SHORT = ((), ((), ()))  # a sequence of one token, two of two
REWARD = Setting(level="sequence", use="reward")
AFTER = {"q": ["1/2", "1/2"], "p": ["1/2", "1/2"], "mu": ["1/2", "1/2"], "u": ["0", "0"], "v": ["1", "0"],
         "rewards": {"R": ["1", "0"]}, "next": [None, None]}  # fmt: skip
START = AFTER | {"u": ["1", "0"], "v": ["0", "0"], "rewards": {"R": ["0", "0"]}, "next": [AFTER, None]}


def over(x: Any, y: Any) -> Any:
    return Rational(11, 12) - (x + y) / 4 + x * y / 12


def mean(of: Any) -> Quantity:
    return expectation(of, "q")


def test_what_stands_for_one_over_the_number_of_tokens() -> None:
    lengths = (Rational(1), Rational(2))
    assert all(over(x, y) == 1 / (x + y) for x, y in product(lengths, repeat=2))


def test_the_field_of_two_sequences() -> None:
    """Independence takes it apart: the length of the other sequence meets the score of this one as E_q[T]."""
    field = mean_over_i(over(own(length), others(length)) * own(R) * own(s), "q")
    right = mean(R * s) * Rational(11, 12) - mean(R * length * s) / 4
    right = right - mean(length) * mean(R * s) / 4 + mean(length) * mean(R * length * s) / 12
    start = derive(field, premises=((n, 2),))
    proof = start.equals(right, using=[(0, None)])
    assert check(read(json.dumps(proof.certificate())))
    with pytest.raises(ProofError):  # the length of the other one does not drop
        start.equals(mean(R * s) * Rational(11, 12) - mean(R * length * s) / 4, using=[(0, None)])


def curl() -> Quantity:
    """dE[T] ^ (dE[R T]/12 - dE[R]/4), over the steps of one sequence."""

    def along(of: Any, score: str) -> Indexed:
        return Indexed("t", "q", to_ring(of), (score,))

    def wedge(of: Any) -> Side:
        return Side.combine((1, (along(1, "x"), along(of, "x'"))), (-1, (along(1, "x'"), along(of, "x"))))

    return Quantity(wedge(now(R)) * Fraction(-1, 4) + wedge(now(R) * length) * Fraction(1, 12))


def test_it_is_the_gradient_of_no_function() -> None:
    """The kernel refutes that its curl is 0, on a tree with sequences of one token and of two."""
    proof = derive(curl()).differs_from(0, model={"tree": START, "path": [], "parameters": {}})
    assert proof.kind == "refuted" and check(read(json.dumps(proof.certificate())))
    with pytest.raises(ProofError):  # where all rewards are the same, nothing turns
        same = {**START, "next": [{**AFTER, "rewards": {"R": ["0", "0"]}}, None]}
        derive(curl()).differs_from(0, model={"tree": same, "path": [], "parameters": {}})


def forest(second: bool = False, sampling: str = "on-policy") -> Slotted:
    return Slotted(trees(3, SHORT, 2), (sampling,), second=second)


@pytest.mark.parametrize(("loss", "turns"), [("R/(T + others(T))", True), ("R/T", False), ("R/n", False)])
def test_enumeration_agrees(loss: str, turns: bool) -> None:
    """The Jacobian of the field of batches of two is symmetric over each own length, or over a constant."""
    found = forest(second=True).of_batches(loss, REWARD).ab
    size = np.abs(found).max()
    assert (np.abs(found - found.transpose(1, 0, 2)).max() > 1e-3 * size) == turns


def test_for_large_batches_it_is_the_sum_over_the_mean_length() -> None:
    where = forest()
    limit = where.slope("R").a / where.slope("T").value
    errors = []
    for size in (2, 4, 6):
        found = where.of_batches("n*R/(T + others(T))", Setting(level="sequence", use="reward", n=size)).a
        errors.append(np.abs(found - limit).max())
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.45 * errors[0]


# ---------------------------------------------------------------------------- what explain says of it
TOKEN, WHOLE = {"level": "token"}, {"level": "sequence"}
BATCH = {"aggregate": "batch", "sampling": "on-policy"}
ON = {"sampling": "on-policy"}  # rho beside A says off-policy
KEPT = "(whole(M) + others(whole(M)))"
ROWS: tuple[tuple[str, dict[str, str], str, str | None, str], ...] = (
    # a loss, how it is used, the loss of a batch as the oracle reads it, its target, trust
    ("k3", TOKEN | BATCH, "n*whole(k3)/(T + others(T))", "no-objective", "kernel"),
    ("n*k2/(T + others(T))", TOKEN, "n*whole(k2)/(T + others(T))", "no-objective", "kernel"),
    (
        "rho*k3 - A*rho",
        TOKEN | BATCH | ON,
        "n*whole(rho*k3 - A*rho)/(T + others(T))",
        "no-objective",
        "kernel",
    ),
    ("k3", WHOLE | BATCH, "n*k3/(T + others(T))", "no-objective", "kernel"),
    ("-rho*A", WHOLE | BATCH, "-n*rho*A/(T + others(T))", "no-objective", "kernel"),
    ("n*k2/(whole(1) + others(whole(1)))", WHOLE, "n*k2/(T + others(T))", "no-objective", "kernel"),
    ("k1", TOKEN | BATCH, "n*whole(k1)/(T + others(T))", "objective", "sympy"),
    ("clip(k3, 0, 1)", TOKEN | BATCH, "n*whole(clip(k3, 0, 1))/(T + others(T))", "no-objective", "kernel"),
    # over the tokens that a mask keeps, which in the counterexample are all
    ("M*k3", TOKEN | BATCH, "n*whole(M*k3)/(T + others(T))", "no-objective", "kernel"),
    (f"n*M*k3/{KEPT}", TOKEN, f"n*whole(M*k3)/{KEPT}", "no-objective", "kernel"),
    (f"n*whole(M*k2)/{KEPT}", WHOLE, f"n*whole(M*k2)/{KEPT}", "no-objective", "kernel"),
    (f"n*whole(M*k2)/max({KEPT}, 1)", WHOLE, f"n*whole(M*k2)/max({KEPT}, 1)", "no-objective", "kernel"),
)


@pytest.mark.parametrize(("loss", "options", "literal", "target", "trust"), ROWS)
@pytest.mark.share(3)
def test_the_verdict(
    loss: str, options: dict[str, str], literal: str, target: str | None, trust: str
) -> None:
    verdict = explain(loss, **options)
    assert (verdict.target, verdict.trust) == (target, trust)
    assert any("a limit" in note and "over E_q[T]" in note for note in verdict.notes)
    json.loads(json.dumps(verdict.to_json()))
    if target == "no-objective":
        # half of the curl of batches of two, as the oracle enumerates them on this tree
        proof, *apart, _ = verdict.proof.theorems
        assert proof.kind == "refuted" and apart and all(other.kind == "proved" for other in apart)
        assert all(check(read(json.dumps(each.certificate()))) for each in verdict.proof.theorems)
        assert verdict.counterexample.model is not None
        assert curl_of_two(literal, verdict.counterexample.model) == pytest.approx(
            2 * left_of(verdict.counterexample.model)
        )


def left_of(witness: dict[str, Any]) -> float:
    low, high = (float(Fraction(end)) for end in witness["left"])
    return (low + high) / 2


def curl_of_two(loss: str, witness: dict[str, Any]) -> float:
    case = Case(loss, "on-policy", "loss", "sequence", ring=False)
    world, u, v, _ = _witness_forest(witness, case, second=True)
    found = world.of_batches(loss, Setting(level="sequence")).ab
    jacobian = np.broadcast_to(found, (world.logits, world.logits, 1))[..., 0]
    return float(u @ jacobian @ v - v @ jacobian @ u)


@pytest.mark.parametrize(
    ("loss", "options", "words"),
    [
        ("k1/(2*T + others(T))", TOKEN, "in a way that is not read"),
        ("R/(T + others(T))**2", WHOLE, "in a way that is not read"),
        ("n*M*k3/(past(M) + others(whole(M)))", TOKEN, "in a way that is not read"),
        (f"M*k3/{KEPT}**2", TOKEN, "in a way that is not read"),
        ("k1", WHOLE | BATCH | {"batch": "mean"}, "of a centred batch is not handled"),
    ],
)
def test_what_is_refused_is_said(loss: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        explain(loss, **options)


@pytest.mark.parametrize(
    ("loss", "options", "literal", "times", "shown"),
    [
        ("k1", TOKEN, "n*whole(k1)/(T + others(T))", 1, "grad E_q[1/sum_i T_i]"),
        ("-3*rho", TOKEN, "n*whole(-3*rho)/(T + others(T))", -3, "-3 grad E_q[1/sum_i T_i]"),
        ("k1/2", WHOLE, "n*k1/2/(T + others(T))", 0.5, "1/2 grad E_q[1/sum_i T_i]"),
        ("past(k1)", TOKEN, "n*whole(past(k1))/(T + others(T))", None, ""),
        ("rho", TOKEN | {"weights": "prefix"}, "", None, ""),  # the scores before it as well
        ("k1", TOKEN | {"weights": "prefix"}, "n*whole(k1)/(T + others(T))", 1, "grad E_q[1/sum_i T_i]"),
        ("2", TOKEN | {"use": "reward"}, "", None, ""),  # to-go: an early token is credited with more
    ],
)
@pytest.mark.share(3)
def test_the_same_number_at_every_token(
    loss: str, options: dict[str, str], literal: str, times: float | None, shown: str
) -> None:
    """sum_i s_i is the score of the batch: the number times grad E_q[1/sum_i T_i], not n times that."""
    verdict = explain(loss, **options, **BATCH)
    assert verdict.gradient.quantities_text == shown
    assert any("in E_q[1/sum_i T_i]" in line for line in verdict.hypotheses) == bool(shown)
    if times is not None:
        setting = Setting(level="sequence")
        found = forest().of_batches(literal, setting).a
        moved = np.abs(found - times * slope_of_inverse())
        assert moved.max() < 1e-12 < np.abs(found).max()


def slope_of_inverse() -> Any:
    """grad E_q[1/(T_1 + T_2)], by the slope of the chance of each length."""
    where = forest()
    one = where.slope("2 - T")  # the chance of one token, and of two
    a, moves = one.value, one.a
    return (a + (2 - 4 * a) / 3 - (1 - a) / 2) * moves


def test_off_policy_lengths_do_not_move() -> None:
    verdict = explain("k3", sampling="off-policy", level="token", aggregate="batch")
    assert (verdict.target, verdict.trust) == ("own-mean", "sympy")
    assert verdict.gradient.quantities_text == "grad E_mu[sum_i sum_t (k3)/sum_i T_i]"
    detached = explain("sg(rho)*k3", sampling="off-policy", level="token", aggregate="batch")
    assert (detached.target, detached.trust) == ("objective", "sympy")
    to_go = explain("k1", use="reward", sampling="off-policy", level="token", aggregate="batch")
    assert (to_go.target, to_go.trust) == ("no-objective", "kernel")


WEIGHTS = {"token": "rho", "prefix": "(exp(past(log_q - log_mu))*rho)"}  # what rho stands for


def random_losses_of_tokens(count: int, sampling: str = "on-policy") -> list[Case]:
    cases = (generate("anywhere", 5, number) for number in range(100 * count))
    fit = (c for c in cases if (c.level, c.use, c.sampling) == ("token", "loss", sampling))
    return list(islice((c for c in fit if c.weights in WEIGHTS), count))


@pytest.mark.parametrize("case", random_losses_of_tokens(scaled(16, 5)), ids=lambda case: case.text)
def test_random_losses_agree_with_enumeration(case: Case) -> None:
    """No objective just where batches of two have a curl, nothing just where they have no gradient."""
    verdict = explain(case.text, level="token", weights=case.weights, **BATCH)
    whole = re.sub(r"\brho\b", WEIGHTS[case.weights], case.text)
    found = forest(second=True).of_batches(f"n*whole({whole})/(T + others(T))", Setting(level="sequence"))
    pushes, moves = (np.abs(getattr(found, part, 0.0)).max() for part in ("a", "ab"))
    twist = np.abs(found.ab - np.swapaxes(found.ab, 0, 1)).max() if moves else 0.0
    assert (verdict.target == "no-objective") == (twist > 1e-7)
    assert (verdict.target == "zero") == (pushes < 1e-12)


@pytest.mark.parametrize("case", random_losses_of_tokens(scaled(16, 5), "off-policy"), ids=lambda c: c.text)
def test_random_losses_off_policy_agree_with_enumeration(case: Case) -> None:
    """Batches of two have no curl where there is an objective, and one where there is none."""
    options = {"level": "token", "weights": case.weights, **BATCH, "sampling": "off-policy"}
    verdict = explain(case.text, **options)
    whole = re.sub(r"\brho\b", WEIGHTS[case.weights], case.text)
    setting = Setting("off-policy", level="sequence")
    batches = forest(second=True, sampling="off-policy")
    found = batches.of_batches(f"n*whole({whole})/(T + others(T))", setting)
    moves = np.abs(getattr(found, "ab", 0.0)).max()
    twist = np.abs(found.ab - np.swapaxes(found.ab, 0, 1)).max() if moves else 0.0
    assert verdict.target != "no-objective" or twist > 1e-7
    assert verdict.target not in ("objective", "own-mean") or twist < 1e-9


def test_what_is_assumed_of_a_mask() -> None:
    """A mean over the kept tokens of a batch has a value where one is kept; max(.., 1) needs none."""
    told = "T_i is the number of tokens of sequence i with M = 1"
    for number, more in ((KEPT, ", and a batch has one"), (f"max({KEPT}, 1)", "; a batch without one")):
        verdict = explain(f"n*whole(M*k3)/{number}", level="sequence", sampling="off-policy")
        assert verdict.target == "own-mean" and any(x.startswith(told + more) for x in verdict.hypotheses)
        done = with_check(verdict, verdict.loss.written.expression)
        assert done.proof.check["passed"]
    assert not any(told in x for x in explain("k3", level="token", aggregate="batch").hypotheses)
