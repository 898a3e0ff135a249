"""Expectations under the policy itself: parts of them that change only as the policy draws other samples.

    grad E_q[L] = E_q[L s] + E_q[grad L];  code differentiates L alone, and so does klsym.

A score that a reward multiplies, A log q, stands for the first part; in R, log p and log q - log p it is
missing.

>>> from klsym.language.expressions import A, R, k1, k2, log_q
>>> [find_missed_part(e) for e in (-A * log_q, R * (1 - log_q), k1, k2)]
[None, R, -log_p + log_q, None]
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sympy import Add, Dummy, diff, expand

from klsym.errors import UsageError
from klsym.language.expressions import DENSITIES, REWARDS, log_q, sg, unfold
from klsym.language.recognition import recognise
from klsym.language.sums import OverVocabulary

OF_REWARD = "for this objective type {!r} --use reward"
OF_MIXED = "type each term as code computes it, such as -A*log_q + beta*k2"
OF_OWN_SAMPLES = (
    "{} holds what changes as the policy draws other samples: {}; without E[..] it is the loss of code"
)


class LinearPart(NamedTuple):
    """c log q + d, the terms of a loss that are linear in log q.  is_whole: are there no others?"""

    slope: Any
    rest: Any
    is_whole: bool


def find_missed_part(loss: Any) -> Any | None:
    """Return what of a loss, averaged over samples of q, changes with the samples alone; else None.

    Exact means, what is held, and what is not linear in log q, such as k2, are taken as they stand.
    """
    slope, rest, _ = split_linear_part(loss)
    if slope != 0 and not slope.has(*REWARDS):  # log q - log p, and its like
        return expand(slope * log_q + rest)
    return rest if rest.has(*DENSITIES, *REWARDS) else None


def split_linear_part(loss: Any) -> LinearPart:
    """Return the linear part of a loss, with numbers for exact and held values."""
    numbers = {x: Dummy(real=True) for x in loss.atoms(OverVocabulary, sg)}
    terms = [unfold(term) for term in Add.make_args(loss.xreplace(numbers))]
    kept = [term for term in terms if not expand(diff(term, log_q)).has(log_q)]
    linear = expand(Add(*kept))
    slope = expand(diff(linear, log_q))
    return LinearPart(slope, expand(linear - slope * log_q), len(kept) == len(terms))


def refuse_own_samples(quoted: str, loss: Any, sampler: str) -> None:
    """Refuse a formula with an expectation under the policy, or of a reward alone, that code cannot mean.

    quoted: the start of the formula.  sampler: the log density of its samples, "" where it does not say.
    Raises UsageError: with the reward to type, or the penalty that is subtracted from one.
    """
    missed = find_missed_part(loss) if sampler in ("", "log_q") else None
    if missed is None or (not sampler and (missed.has(log_q) or not missed.has(*REWARDS))):
        return
    part = split_linear_part(loss)
    penalty = expand(loss.xreplace({x: x.args[0] for x in loss.atoms(OverVocabulary)}))
    text = str(recognise(-penalty if penalty.has(*REWARDS) else penalty))
    is_score = part.slope.has(*REWARDS) or not part.is_whole
    raise UsageError(OF_OWN_SAMPLES.format(quoted, OF_MIXED if is_score else OF_REWARD.format(text)))
