"""Does descending a loss make samples less likely the larger their reward, or their log p, is?

The gradient at a sample is h s.  Descending the loss makes such samples less likely if h rises with the
reward wherever h depends on the reward: of min(rho*A, clip(rho, 4/5, 6/5)*A), h is rho*A inside the clip
range, and 0 elsewhere.  Of -k3, h is p/q - 1.

>>> from klsym.engine.explain import explain
>>> losses = ("clip(rho, 0, 2)*A", "-clip(rho, 0, 2)*A")
>>> [find_opposed_reward(explain(loss, sampling="off-policy")) for loss in losses]
[A, None]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy

from klsym.engine.verdicts.verdict import Verdict
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import to_sympy
from klsym.language.expressions import (
    DENSITIES,
    SLOTTED,
    A,
    H,
    M,
    R,
    future,
    log_p,
    log_q,
    now,
    past,
    remove_sg,
    s,
    unfold,
)
from klsym.language.messages import Message
from klsym.language.sums import Divided
from klsym.notation.steps import iterate_values, list_jumps, open_steps
from klsym.notation.values import take_off_score

OF_NAME = {x.name: x for x in (R, A)}
WRONG_SIGNS = ("wrong-sign", "pushes-from-mu")  # warnings of a verdict
ALL_SCORES = past(s) + now(s) + future(s)


def opposes_reward(verdict: Verdict) -> bool:
    """Does the loss lower the probability of samples with a large reward?"""
    return _has_warning_already(verdict) or find_opposed_reward(verdict) is not None


def _has_warning_already(verdict: Verdict) -> bool:
    return any(
        kind.startswith("lowers")
        for message in verdict.messages if message.code in WRONG_SIGNS
        for (kind, _), _ in message.values["does"]
    )  # fmt: skip


def warn_of_opposed_values(verdict: Verdict) -> Iterator[Message]:
    """Find a reward, or log p, that lowers each sample's probability, unless a warning says so already."""
    if not _has_warning_already(verdict) and (reward := find_opposed_reward(verdict)) is not None:
        yield Message("against-reward", of=reward)
    elif not any(message.code in WRONG_SIGNS for message in verdict.messages) and opposes_reference(verdict):
        yield Message("against-reference")


def find_opposed_reward(verdict: Verdict) -> Any | None:
    """Return the reward, R or A, with which h rises somewhere and falls nowhere; else None.

    A loss of both may be that of a reward less its baseline, and is not judged.
    """
    values = list(_collect_coefficients(verdict))
    if any(value is None for value in values):
        return None
    divided = find_divided_reward(verdict)
    of_name = OF_NAME | ({} if divided is None else {H.name: divided})
    in_steps = list(_list_coefficients(verdict, by_case=False))
    bounds = [
        step.args[0] for h in in_steps if h is not None for step in h.atoms(sympy.Heaviside, sympy.sign)
    ]
    bounds += [condition.x for on, _ in verdict.gradient.score_cases for condition in on]
    rewards = {x for e in (*values, *bounds) for x in e.free_symbols if _read_base_name(x) in of_name}
    if len({_read_base_name(x) for x in rewards}) != 1:
        return None
    slopes = [sympy.expand(h.diff(x)) for h in values for x in rewards]
    bounded = [x for x in rewards if any(x in e.free_symbols for e in bounds)]
    if bounded and any(h is None for h in in_steps):
        return None
    jumps = _list_jumps(in_steps, bounded)
    changes = [change for change in (*slopes, *jumps) if change != 0]
    rises = bool(changes) and all(map(is_never_negative, changes))
    return of_name[_read_base_name(next(iter(rewards)))] if rises else None


def _list_jumps(coefficients: Sequence[Any], rewards: Sequence[Any]) -> list[Any]:
    """Return by how much coefficients jump where rewards pass their bounds, in each region.

    >>> _list_jumps([-sympy.Heaviside(A, 0)], [A])
    [-1]
    """
    jumps = [jump for h in coefficients for x in rewards for jump in list_jumps(open_steps(h), x)]
    return [value for jump in jumps for value in iterate_values(jump)]


def opposes_reference(verdict: Verdict) -> bool:
    """Does h rise with log p of some token, given log q, and fall with log p of none?

    >>> from klsym.engine.explain import explain
    >>> [opposes_reference(explain(f"{loss} - A*log_q", level="token")) for loss in ("k3", "-k3", "-k1")]
    [False, True, False]
    """
    values = list(_collect_coefficients(verdict))
    bounds = [condition.x for on, _ in verdict.gradient.score_cases for condition in on]
    if any(value is None for value in values) or any(map(_collect_log_p, bounds)):
        return False
    slopes = [
        slope
        for h in map(unfold, values)
        for x in _collect_log_p(h)
        if (slope := sympy.expand(h.diff(x))) != 0
    ]
    return bool(slopes) and all(map(is_never_negative, slopes))


def _collect_log_p(x: Any) -> list[Any]:
    """Return the log probabilities under the reference, one for each slot, that an expression has."""
    return [y for y in unfold(x).free_symbols if _read_base_name(y) == log_p.name]


def find_divided_reward(verdict: Verdict) -> Any | None:
    """Return the reward inside normalised(..) or its like, R or A, with which it rises.

    >>> from klsym.engine.explain import explain
    >>> [find_divided_reward(explain(f"{x}*log_q")) for x in ("relative(2*R)", "normalised(-R)", "R")]
    [R, None, None]
    """
    divided = set() if verdict.loss.written is None else verdict.loss.written.expression.atoms(Divided)
    if len(divided) != 1:
        return None
    h = remove_sg(next(iter(divided)).args[0])
    return next((x for x in (R, A) if h.diff(x).is_positive and not unfold(h).has(log_q)), None)


def has_divided_reward(loss: Any) -> bool:
    """Is a reward divided by a value of its batch, and nothing else?"""
    divided = loss.atoms(Divided)
    return bool(divided) and not any(unfold(x.args[0]).has(*DENSITIES) for x in divided)


def divide_by_scores(h: Any) -> Any | None:
    """Return h over the score of the whole sequence; None if that is no factor of it."""
    if not h.has(*ALL_SCORES.args):
        return None
    quotient = h / ALL_SCORES
    return None if any(quotient.has(score) for score in ALL_SCORES.args) else quotient


def _collect_coefficients(verdict: Verdict) -> Iterator[Any]:
    """Yield the coefficient of each score, case by case; None where it is no expression."""
    for h in _list_coefficients(verdict, by_case=True):
        values = [None] if h is None else [*iterate_values(h)] or [None]
        yield from (None if value is None or value.has(sympy.Heaviside) else value for value in values)


def _list_coefficients(verdict: Verdict, by_case: bool) -> Iterator[Any]:
    """Yield the coefficient of each score, in each case or with its steps; None where it is no expression."""
    h = verdict.gradient.score_coefficient if verdict.gradient.centred is None else verdict.gradient.centred
    cases = [value for _, value in verdict.gradient.score_cases] if by_case else []
    for value in cases or [take_off_score(h)]:
        for coefficient in value.values() if isinstance(value, Mapping) else [value]:
            coefficient = to_sympy(coefficient) if isinstance(coefficient, ExpPoly) else coefficient
            if not isinstance(coefficient, sympy.Basic):
                yield None
                continue
            scored = divide_by_scores(coefficient)
            yield coefficient if scored is None else scored


def is_never_negative(slope: Any) -> bool:
    """Is the slope at least 0 at every sample, for n of 2 or more, positive parameters and any mask?"""
    samples = {x.name for x in SLOTTED}
    weights = {x: sympy.Dummy(positive=True) for x in slope.free_symbols if _read_base_name(x) not in samples}
    weights |= {x: 2 + sympy.Dummy(integer=True, nonnegative=True) for x in weights if x.name == "n"}
    masks = {x: sympy.Dummy(nonnegative=True) for x in slope.free_symbols if _read_base_name(x) == M.name}
    value = slope.xreplace({**weights, **masks})
    is_of_batch = any(x.name == "n" for x in slope.free_symbols)
    return bool((sympy.factor(value) if is_of_batch else value).is_nonnegative)


def _read_base_name(x: Any) -> str:
    return str(x.name.partition("[")[0])
