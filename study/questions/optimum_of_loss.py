"""Where training ends: every policy at which E_q[R] - beta (penalty) is stationary.

>>> found = compute_optimum("k2", "1/2", ["1", "0"])
>>> [round(x, 4) for x in found.optimum.stationary[0].policy], found.optimum.unique
([0.8808, 0.1192], True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from klsym.engine.answers.dispatch import as_written
from klsym.engine.divergences.f_divergence import Generated, find_divergence
from klsym.engine.fields.field import ReducedGradient, reduce_loss
from klsym.engine.fields.slot_loss import build_slot_loss, collect_random_names, has_vocabulary_sum
from klsym.engine.options.settings import Setting, checked_setting
from klsym.engine.outside.vocabulary_means import read_sampled
from klsym.errors import NotInRing, UsageError
from klsym.kernel.names import SAMPLE_BASES
from klsym.kernel.ring import ExpPoly
from klsym.language.expressions import REWARDS, log_mu, log_old, log_p, log_q
from klsym.language.messages import Message
from klsym.notation.losses import Written
from klsym.study.questions.optimum import Optimum, find_optimum

MAX_OUTCOMES = 8  # outcomes
MAX_NUMBER, LONGEST = 10**6, 40  # of a number, and of its text
SUM_TOLERANCE = Fraction(1, 10**6)  # of a sum of probabilities to 1


@dataclass(frozen=True)
class OptimumAnswer:
    """What was asked, with exact numbers, and what was found; `klsym.study.render.optima` prints it.

    generated: the f-divergence behind the penalty, where beta > 0.  messages: what else is to be known.
    """

    loss: str
    beta: Fraction
    rewards: tuple[Fraction, ...]
    reference: tuple[Fraction, ...]
    behaviour: tuple[Fraction, ...]
    coefficient: ExpPoly
    optimum: Optimum
    generated: Generated | None
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class PenaltyQuestion:
    """A penalty with what it is multiplied with, the reward of each outcome, and the reference."""

    written: Written
    beta: Fraction
    rewards: tuple[Fraction, ...]
    reference: tuple[Fraction, ...]


def read_penalty_question(
    loss: object, beta: object, rewards: Iterable[object], reference: Iterable[object] | None
) -> PenaltyQuestion:
    """Read the arguments that a penalty on outcomes and one on tokens share; raises UsageError."""
    paid = tuple(read_number("rewards", value) for value in rewards)
    p = read_probabilities("reference", reference, len(paid))
    return PenaltyQuestion(as_written(loss, ()), read_number("beta", beta), paid, p)


def compute_optimum(
    loss: object,
    beta: object,
    rewards: Iterable[object],
    reference: Iterable[object] | None = None,
    behaviour: Iterable[object] | None = None,
    **options: Any,
) -> OptimumAnswer:
    """All stationary policies of E_q[R] - beta (penalty); see `klsym.study.api.optimum`."""
    paid = tuple(rewards)
    if not 2 <= len(paid) <= MAX_OUTCOMES:
        raise UsageError(f"rewards: 2 to {MAX_OUTCOMES} numbers expected, got {len(paid)}")
    asked = read_penalty_question(loss, beta, paid, reference)
    mu = read_probabilities("behaviour", behaviour, len(paid))
    c = reduce_penalty(asked.written, checked_setting(**options)).c
    optimum_found = find_optimum(
        c, beta=asked.beta, rewards=asked.rewards, reference=asked.reference, behaviour=mu
    )
    of_r, messages = (
        find_divergence(c) if asked.beta > 0 else None,
        tuple(_list_messages(c, asked.beta, optimum_found, len(paid))),
    )
    return OptimumAnswer(
        asked.written.text, asked.beta, rewards=asked.rewards, reference=asked.reference, behaviour=mu,
        coefficient=c, optimum=optimum_found, generated=of_r, messages=(*asked.written.notes, *messages),
    )  # fmt: skip


def reduce_penalty(written: Written, setting: Setting) -> ReducedGradient:
    """The expected gradient of a penalty; raises UsageError where optimum has no model of it."""
    _refuse_names(written.expression)
    if setting.truncated:
        raise UsageError("sampling truncated: M and S move with theta, and optimum has no model of them")
    drawn = read_sampled(written, setting).written if has_vocabulary_sum(written.expression) else written
    try:
        at = build_slot_loss(drawn, setting)
        reduced = reduce_loss(at)
        if collect_random_names(reduced.c, at.defined) - {*SAMPLE_BASES}:
            raise NotInRing("it holds cases, logs or roots")
    except NotInRing as error:
        raise UsageError(f"optimum: {written.text[:60]!r} is no exponential polynomial: {error}") from None
    return reduced


def _refuse_names(penalty: Any) -> None:
    """Rewards and parameters are given as numbers."""
    if penalty.has(*REWARDS):
        raise UsageError("optimum: write the penalty alone; the rewards are given as numbers")
    if penalty.has(log_old):
        raise UsageError("optimum: a third policy (log_old) moves in training: leave it out")
    named = sorted(symbol.name for symbol in penalty.free_symbols if symbol not in (log_q, log_p, log_mu))
    if named:
        raise UsageError(f"optimum: a number in place of {named[0]} expected")


def _list_messages(c: ExpPoly, beta: Fraction, optimum_found: Optimum, size: int) -> Iterator[Message]:
    """What the penalty does not do, and what a list of isolated policies does not say."""
    ends = (*optimum_found.stationary, *optimum_found.boundary)
    if not c.names():
        yield Message("rewards-alone-decide")
    if beta < 0:
        yield Message("penalty-is-rewarded")
    if len([point for point in ends if point.stable]) > 1:
        yield Message("start-decides-the-end")
    for face in optimum_found.continua:
        yield Message("policies-not-isolated", outcomes=() if len(face) == size else face)
    if optimum_found.complete is None:
        yield Message("policies-may-be-missing")
    if any(point.stable is None for point in ends):
        yield Message("stability-open")
    if optimum_found.boundary_complete is None:
        yield Message("boundary-may-be-missing")


def read_number(name: str, value: object) -> Fraction:
    """An exact number from 1, "-0.5", "2/3" or "1e-3"."""
    try:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | str | Fraction)
            or len(str(value)) > 40
        ):
            raise ValueError
        number = Fraction(str(value).strip())
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{name}: a number expected, got {str(value)[:40]!r}") from None
    if abs(number) > MAX_NUMBER:
        raise UsageError(f"{name}: a number up to a million expected, got {str(value)[:40]}")
    return number


def read_probabilities(name: str, row: Iterable[object] | None, count: int) -> tuple[Fraction, ...]:
    """Positive numbers that sum to 1, one an outcome."""
    if row is None:
        return (Fraction(1, count),) * count
    values = tuple(read_number(name, value) for value in row)
    if len(values) != count:
        raise UsageError(f"{name}: {count} numbers expected, one for each reward, got {len(values)}")
    total = sum(values, Fraction(0))
    if any(value < SUM_TOLERANCE for value in values) or abs(total - 1) > SUM_TOLERANCE:
        raise UsageError(f"{name}: probabilities of at least {float(SUM_TOLERANCE):g} that sum to 1 expected")
    return tuple(value / total for value in values)
