"""One row for each choice of an option says what the choice means; every module reads these rows.

A choice without a row is refused by name.

>>> find_meaning(CENTRINGS, "batch", "leave-one-out").word
'loo'
>>> find_meaning(CENTRINGS, "batch", "median")
Traceback (most recent call last):
    ...
klsym.errors.UsageError: batch median: no row of klsym.engine.options.choices says what it means
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from klsym.errors import UsageError
from klsym.language.expressions import exp, log_mu, log_q, now, parameter, past, rho
from klsym.language.sums import Before, Centred, LeftOut, OfOthers, OverBatch, Whole, togo
from klsym.records import record

Row = TypeVar("Row")
T = parameter("T")  # the length of a sequence


@record
class Sampler:
    """The policy that samples: q or mu.  is_cut: q restricted to the words with M = 1, M*q/S."""

    from_policy: bool
    is_cut: bool = False


@record
class Usage:
    """A loss is differentiated; a reward is detached and multiplies the score.  A value is logged alone."""

    detached: bool
    trains: bool = True


@record
class Position:
    """A loss is one of a sample, of a token or of a sequence.

    per_token: there is a loss for each token, and they are summed.  has_length: a sample is a sequence of T
    tokens.
    """

    per_token: bool = False
    has_length: bool = False

    @property
    def is_whole_sequence(self) -> bool:
        return self.has_length and not self.per_token

    @property
    def index(self) -> str:
        """The kernel's index without a batch."""
        return "t" if self.per_token else ""


@record
class Centring:
    """The baseline of a batch, which is subtracted from the score coefficient h.

    subtracts: the class of h minus its baseline, a sum over the batch.  word: the grammar's word for the
    whole option.  note: the code of the message that names the baseline.  divides: the result is divided by
    the standard deviation, so that the gradients of the terms of a sum do not add up.  loses_own_share: the
    baseline includes the sample itself, which costs 1/n of the gradient.  keeps_gradient: on-policy, the
    expected gradient does not change.  reserves_m: answers use m for n - 1.
    """

    subtracts: type[OverBatch]
    word: str
    note: str
    divides: bool = False
    loses_own_share: bool = False
    keeps_gradient: bool = False
    reserves_m: bool = False


@record
class Crediting:
    """The rewards that a token is credited with.

    word: the grammar's word for their sum over tokens, None for the token's own reward alone.
    apply: the sum of a reward h.
    """

    word: str | None
    apply: Callable[[Any], Any]

    @property
    def credits_other_tokens(self) -> bool:
        return self.word is not None


@record
class Weighting:
    """The importance weight rho of a token.  at_token: in slots; typed: in the grammar."""

    at_token: Any
    typed: Any

    @property
    def of_token_alone(self) -> bool:
        """Is it the token's own ratio, whatever the other tokens are?"""
        return bool(self.typed == rho)


@record
class Divisor:
    """The number by which the sum over tokens is divided.

    over_batch: the number counts the tokens of all n sequences, and the loss is multiplied by n.
    """

    number: Any
    over_batch: bool = False

    @property
    def divides(self) -> bool:
        return bool(self.number != 1)


SAMPLERS = {"on-policy": Sampler(True), "off-policy": Sampler(False), "truncated": Sampler(True, is_cut=True)}
USAGES = {"loss": Usage(False), "reward": Usage(True)}
# `recommend` and the snippets of code know these, and a value that is only logged.
PURPOSES = ChainMap(USAGES, {"value": Usage(False, trains=False)})
POSITIONS = {
    "sample": Position(),
    "token": Position(per_token=True, has_length=True),
    "sequence": Position(has_length=True),
}
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


def is_on_policy(sampling: str) -> bool:
    """Do samples come from q, all of it or cut off?"""
    return find_meaning(SAMPLERS, "sampling", sampling).from_policy


def is_reward(use: str) -> bool:
    """Is a loss of this use, or of this purpose, a detached reward, which multiplies the score?"""
    return find_meaning(PURPOSES, "use", use).detached


def is_differentiated(use: str) -> bool:
    """Is the gradient that of the loss itself?"""
    usage = find_meaning(PURPOSES, "use", use)
    return usage.trains and not usage.detached


def is_of_sequence(level: str) -> bool:
    """Is there one loss for a whole sequence?"""
    return find_meaning(POSITIONS, "level", level).is_whole_sequence


def find_meaning(rows: Mapping[str, Row], option: str, choice: str) -> Row:
    """Return the row of a choice.

    Raises UsageError: it has none.
    """
    if choice not in rows:
        raise UsageError(f"{option} {choice}: no row of klsym.engine.options.choices says what it means")
    return rows[choice]
