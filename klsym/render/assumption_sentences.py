"""The sentences of hypotheses: assumptions, and definitions of names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from klsym.notation.hypotheses import WRITTEN
from klsym.notation.values import describe_conditions as place
from klsym.notation.values import show_value

SLOPES = {
    "abs": ("abs at 0 is taken as 0", "(as in PyTorch; in JAX it is 1)"),
    "clip": (
        "clip at its bounds is taken as 1",
        "(as in PyTorch up to 2.13; from 2.14 on it is 0, in JAX 1/2)",
    ),
    "min": ("min and max at a tie is shared by halves", "(as in torch.minimum and in JAX)"),
}


def _describe_full_at_one(setting: Any, of: str) -> str:
    drawn, given = ("outcome", "") if setting.is_of_sample else ("token", ", given the prefix")
    where = "" if setting.on_policy else ", where mu > 0 wherever q is"
    return (
        f"full(x) is the sum of q(y)*x(y) over every {drawn} y{given}: the mean of rho*x over the {drawn}"
        f" drawn{where}, as its gradient is that of grad(rho*x); the theorems are about {of}"
    )


def _describe_full_over_outcomes(of: Any, numbers: Sequence[tuple[Any, Any]]) -> str:
    values = ", ".join(f"{h} = {show_value(value)}" for h, value in numbers)
    return (
        "full(x) is the sum of q(y)*x(y) over every outcome y, the mean of rho*x over the outcome drawn, as"
        f" its gradient is that of grad(rho*x); the theorems are about {show_value(of)}, for every value of"
        f" {values}"
    )


def _describe_values_in_model(values: Sequence[tuple[str, Any]]) -> str:
    labels = {"A[past]": "V", "A[now]": "V_next"}
    named = " and ".join(f"{labels.get(name, name)} = {show_value(value)}" for name, value in values)
    return f"in a counterexample {named}, with R the sum of the rewards of the sequence"


SENTENCES: dict[str, str | Callable[..., str]] = {
    **WRITTEN,
    "batch-mean": "x_1..x_n are independent samples, n at least 2; others is the sum over the other n - 1",
    "batch-leave-one-out": "x_1..x_n are independent samples, n at least 2; others is the sum over the other"
    " m = n - 1",
    "independent-sequences": lambda every: "x_1..x_n are independent sequences, n at least 2"
    + "; sum_i T_i is the number of all their tokens" * every,
    "reward-of-token": "R_now is the reward of token t, R that of the whole sequence, their sum",
    "advantage-of-sequence": "A is any function of the whole sequence that is independent of theta, the"
    " same at each of its tokens",
    "critic": "V is any function of t and of the tokens before t, independent of theta",
    "critic-after": "V_next is any function of t and of the tokens up to t, independent of theta",
    "gae": "V is 0 after the last token",
    "rho-is-one": "on-policy rho is 1 at every token, and a reward is detached",
    "counts-once": "a sequence has at least one token: a quantity that is the same at each of them, over T,"
    " counts once, sum_t 1/T = 1",
    "counts-often": "a sequence has at least one token: a quantity that is the same at each of its T tokens"
    " counts T times",
    "centred-coefficient": "the centred quantity is the coefficient h in grad L = h s, detached",
    "mean-h": "mean_h stands for {of}",
    "exchange-mean": "grad and E_{under} may be exchanged (dominated derivative near theta)",
    "kept-lengths": lambda some: "T_i is the number of tokens of sequence i with M = 1"
    + (", and a batch has one, almost surely" if some else "; a batch without one has the loss 0"),
    "exchange-in-lengths": "grad and E_q may be exchanged in E_q[1/sum_i T_i] (dominated derivative near"
    " theta)",
    "no-outcome-at-kinks": "no outcome lies exactly on a kink: there the objective has no gradient",
    "slope-at-kinks": "at a kink the slope is that of PyTorch: abs has slope 0 at 0, clip passes the slope"
    " on at its bounds, min and max share it by halves at a tie",
    "slope-at-tie": lambda of: f"the slope of {SLOPES[of][0]}",
    "let": lambda of, element: f"{of} is {show_value(element)}",
    "log": lambda of, element: f"{of} is log({show_value(element)})",
    "region": lambda of, where: f"{of} is 1 where {place((where,))}, and 0 elsewhere",
    "bounds-in-order": "{of} > 0 (so that the bounds of clip do not cross)",
    "mass": "{of} is the mass of the words kept: 0 <= {of} <= 1",
    "given-std": lambda of: f"H = {show_value(of)} at every sample, std^2 = mean_i (H_i - mean H)^2",
    "mean-is-zero-or-one": "{of} is 0 or 1 and does not depend on theta, and 0 < E_q[{of}] < 1",
    "zero-over-zero": "in a batch where the mean of {of} is 0, the quotient is 0",
    "values-in-model": _describe_values_in_model,
    "samples-differ-in-h": "no two samples that differ have the same H",
    "full-at-one": _describe_full_at_one,
    "full-over-outcomes": _describe_full_over_outcomes,
}  # fmt: skip
