"""What holds single lines of the kernel: cases that a slightly changed kernel would answer otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from klsym.errors import Refused
from klsym.kernel import Theorem, apply_step, certify
from klsym.kernel.intervals import LARGEST_EXPONENT
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context, Mean, Side

K1, W, B, N = (ExpPoly.from_variable(name) for name in ("k1", "w", "b", "n"))
CONTEXT = Context(parameters=("b", "n"), functions=(("g", ("k1",)),))
NOTHING = Side()
TREE = {
    "q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"], "v": ["0", "1"],
    "rewards": {"R": ["1", "2"]}, "next": [None, None],
}  # fmt: skip


def mean(a: ExpPoly, measure: str = "q", score: tuple[str, ...] = (), index: str = "") -> Side:
    return Side.from_atom(Mean(index, measure, a, score))


def step(
    rule: str, term: int | None = 0, factor: int | None = 0, side: str = "left", **data: Any
) -> dict[str, Any]:
    shown = {key: value.to_json() if hasattr(value, "to_json") else value for key, value in data.items()}
    return {"rule": rule, "side": side, "term": term, "factor": factor, "data": shown, "result": None}


def part(
    left: Side,
    right: Side,
    *steps: dict[str, Any],
    close: dict[str, Any],
    context: Context = CONTEXT,
    relation: str = "=",
) -> dict[str, Any]:
    """A part without hypotheses, with what its steps arrive at."""
    sides, done = {"left": left, "right": right}, []
    for one in steps:
        sides[one["side"]], _ = apply_step(sides, one, context, {})
        done.append({**one, "result": sides[one["side"]].to_json()})
    stated = {
        "left": left.to_json(),
        "right": right.to_json(),
        "context": context.to_json(),
        "relation": relation,
    }
    return {**stated, "steps": done, "close": close}


def model(left: list[str], right: list[str], **changed: Any) -> dict[str, Any]:
    """A closing by a model of one node."""
    whole = {"tree": TREE, "path": [0], "parameters": {"b": "1", "n": "2"}} | changed
    return {"by": "finite model", "model": whole, "left": left, "right": right}


def proved(*arguments: Any, **more: Any) -> Theorem:
    return certify(part(*arguments, **more), {})[1]


# ---------------------------------------------------------------------------- models
@pytest.mark.parametrize("power", [LARGEST_EXPONENT + 1, -LARGEST_EXPONENT - 1])
def test_powers_of_a_model_are_bounded(power):
    with pytest.raises(Refused, match="a power beyond"):
        proved(mean((K1 * power).exp()), NOTHING, close=model(["1", "1"], ["0", "0"]))


# ---------------------------------------------------------------------------- batches
def test_the_constants_of_independent_factors_stand_before_their_product():
    one = mean(B * ExpPoly.from_variable("k1[self]") * ExpPoly.from_variable("w[others]"), index="i")
    result, assumed = apply_step({"left": one, "right": NOTHING}, step("independence"), CONTEXT, {})
    assert result == mean(K1).multiply(mean(W)) * (B * (N - 1))
    assert assumed == {("batch", "q"), *(("exists", Mean("", "q", a)) for a in (K1, W))}
    sums = mean((B * ExpPoly.from_variable("k1[self]") + 1) * ExpPoly.from_variable("w[others]"), index="i")
    result, _ = apply_step({"left": sums, "right": NOTHING}, step("independence"), CONTEXT, {})
    assert result == mean(B * K1 + 1).multiply(mean(W)) * (N - 1)
