"""The mean over all tokens of a batch, sum_i sum_t / sum_i T_i: the gradient of no function, and its limit.

Where lengths are 1 and 2, 1/(T_1 + T_2) = 11/12 - (T_1 + T_2)/4 + T_1 T_2/12, which the kernel can state.
"""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from oracle.losses import Setting, trees
from oracle.slots import Slotted
from sympy import Rational

from klsym import explain
from klsym.abbreviations import Indexed, Side
from klsym.convert import to_ring
from klsym.engine.derivation import derive
from klsym.engine.indexed import mean_over_i
from klsym.engine.quantities import Quantity, expectation
from klsym.errors import ProofError, UsageError
from klsym.kernel import check, read
from klsym.language import R, length, now, others, own, parameter, s

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
        return Side.of((1, (along(1, "x"), along(of, "x'"))), (-1, (along(1, "x'"), along(of, "x"))))

    return Quantity(wedge(now(R)) * Fraction(-1, 4) + wedge(now(R) * length) * Fraction(1, 12))


def test_it_is_the_gradient_of_no_function() -> None:
    """The kernel refutes that its curl is 0, on a tree with sequences of one token and of two."""
    proof = derive(curl()).differs_from(0, model={"tree": START, "path": [], "parameters": {}})
    assert proof.kind == "refuted" and check(read(json.dumps(proof.certificate())))
    with pytest.raises(ProofError):  # where all rewards are the same, nothing turns
        same = {**START, "next": [{**AFTER, "rewards": {"R": ["0", "0"]}}, None]}
        derive(curl()).differs_from(0, model={"tree": same, "path": [], "parameters": {}})


def forest(second: bool = False) -> Slotted:
    return Slotted(trees(3, SHORT, 2), second=second)


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


REFUSED = (
    ("R/(T + others(T))", "sequence"),
    ("k1/(T + others(T))", "token"),
    ("n*R/(whole(1) + others(whole(1)))", "sequence"),
)


@pytest.mark.parametrize(("loss", "level"), REFUSED)
def test_it_is_refused_with_what_is_known(loss: str, level: str) -> None:
    with pytest.raises(UsageError, match="the gradient of no function at n = 2"):
        explain(loss, level=level, use="reward" if level == "sequence" else "loss")
    with pytest.raises(UsageError) as other:  # of this sample's own length nothing of the kind is said
        explain("loo(R)/T", level="sequence", use="reward")
    assert "all tokens of a batch" not in str(other.value)
