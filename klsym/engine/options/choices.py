"""What each choice of an option means: one row for each, which every module reads.

A choice without a row is refused by its name, wherever its meaning is asked.

>>> find_meaning(CENTRINGS, "batch", "leave-one-out").word
'loo'
>>> find_meaning(CENTRINGS, "batch", "median")
Traceback (most recent call last):
    ...
klsym.errors.UsageError: batch median: no row of klsym.engine.options.choices says what it means
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from klsym.errors import UsageError
from klsym.language.expressions import exp, log_mu, log_q, now, parameter, past, rho
from klsym.language.sums import Before, Centred, LeftOut, OfOthers, OverBatch, Whole, togo

Row = TypeVar("Row")
T = parameter("T")  # the length of a sequence


@dataclass(frozen=True)
class Sampler:
    """Where samples come from.  is_cut: from q where M = 1 alone, M*q/S."""

    from_policy: bool
    is_cut: bool = False


@dataclass(frozen=True)
class Usage:
    """Is the loss detached, and multiplies the score?"""

    detached: bool


@dataclass(frozen=True)
class Position:
    """Where the loss stands.  index: of a position without a sum over the batch."""

    index: str = ""


@dataclass(frozen=True)
class Centring:
    """What is taken from h, the score's coefficient, over a batch.

    subtracts: h less its mean, as a sum over the batch; word: all of it in the grammar.  note: the message
    that says so.  divides: by the standard deviation, so that terms do not add up.  loses_own_share: the
    mean holds the sample itself, which costs 1/n of the gradient.  keeps_gradient: the expected gradient
    stays as it is, on-policy.  reserves_m: m = n - 1 stands in answers.
    """

    subtracts: type[OverBatch]
    word: str
    note: str
    divides: bool = False
    loses_own_share: bool = False
    keeps_gradient: bool = False
    reserves_m: bool = False


@dataclass(frozen=True)
class Crediting:
    """Which rewards the score of a token meets: those of a sum over tokens, or its own alone.

    word: the sum in the grammar, None where a score meets its own token; apply: the sum.
    """

    word: str | None
    apply: Callable[[Any], Any]

    @property
    def meets_others(self) -> bool:
        return self.word is not None


@dataclass(frozen=True)
class Weighting:
    """What rho is at a token.  at_token: in slots; typed: in the grammar."""

    at_token: Any
    typed: Any


@dataclass(frozen=True)
class Divisor:
    """What the sum over tokens is divided by: n/number with the whole batch's number, else number."""

    number: Any
    over_batch: bool = False

    @property
    def divides(self) -> bool:
        return bool(self.number != 1)


SAMPLERS = {"on-policy": Sampler(True), "off-policy": Sampler(False), "truncated": Sampler(True, is_cut=True)}
USAGES = {"loss": Usage(False), "reward": Usage(True)}
POSITIONS = {"sample": Position(), "token": Position("t"), "sequence": Position()}
CENTRINGS = {
    "mean": Centring(Centred, "centred", "batch-mean", loses_own_share=True),
    "leave-one-out": Centring(LeftOut, "loo", "batch-leave-one-out", keeps_gradient=True, reserves_m=True),
    "std": Centring(Centred, "normalised", "batch-mean", divides=True),
}
CREDITS = {
    "to-go": Crediting("togo", togo),
    "same-token": Crediting(None, lambda h: h),
    "total": Crediting("whole", Whole),
}
WEIGHTINGS = {
    "token": Weighting(now(rho), rho),
    "prefix": Weighting(past(rho) * now(rho), exp(Before(log_q - log_mu)) * rho),
    "sequence": Weighting(rho, exp(Whole(log_q - log_mu))),
}
DIVISORS = {"sum": Divisor(1), "mean": Divisor(T), "batch": Divisor(T + OfOthers(T), over_batch=True)}
# Of each option, the rows; "" and "none" say nothing.
ROWS: Mapping[str, Mapping[str, Any]] = {
    "sampling": SAMPLERS, "use": USAGES, "level": POSITIONS, "batch": CENTRINGS, "credit": CREDITS,
    "weights": WEIGHTINGS, "aggregate": DIVISORS,
}  # fmt: skip


def find_meaning(rows: Mapping[str, Row], option: str, choice: str) -> Row:
    """Return the row of a choice.

    Raises UsageError: it has none.
    """
    if choice not in rows:
        raise UsageError(f"{option} {choice}: no row of klsym.engine.options.choices says what it means")
    return rows[choice]
