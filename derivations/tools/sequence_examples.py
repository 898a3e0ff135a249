"""A small rational model of sequences whose exact next-token KLs vary more than the samples of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from klsym.errors import UsageError
from klsym.study.sequences.autoregressive import Autoregressive


def offset_pair() -> tuple[Autoregressive, Autoregressive]:
    """q and p where the sum of exact next-token KLs varies more than the sum of the l_t.

    q(token|start) = 1/10, q(token|token) = 9/10, p(token|start) = 1/2, p(token|token) = 1/10

    One token, memory 1 and max_length 3: token or stop at the start, again after a token, then stop.
    At the start the token has the smaller l but leads to the larger KL: in sum_t l_t the two offset each
    other, and the sum of exact KLs keeps only the second.

    >>> from klsym.study.sequences.sequence_fields import compute_kl_variances
    >>> found = compute_kl_variances(*offset_pair())
    >>> round(found.exact_steps / found.sampled, 12), round(16 / 11, 12)
    (1.454545454545, 1.454545454545)
    """
    tables = [[1, 9], [9, 1]], [[5, 5], [1, 9]]  # tenths of token and stop, at the start, after a token
    q, p = (Autoregressive(np.log(np.array(rows) / 10), 1, 3) for rows in tables)
    return q, p


def offset_variances(a: Fraction) -> tuple[Fraction, Fraction]:
    """The variances of sum_t l_t and of sum_t KL_t for 1/10 replaced by a, in units of log(1/a - 1)^2.

    l = 0 or L up to a constant at the start, +-L after a token, KL after a token (1 - 2a) L, so

    Var sum_t l_t = a (1-a) (2a)^2 + a 4a (1-a) = 4 a^2 (1-a) (1+a)
    Var sum_t KL_t = a (1-a) (1-2a)^2

    and the second is the larger exactly if a < 1/8; their ratio has no bound as a tends to 0.

    >>> offset_variances(Fraction(1, 10))
    (Fraction(99, 2500), Fraction(36, 625))
    >>> offset_variances(Fraction(1, 8))
    (Fraction(63, 1024), Fraction(63, 1024))

    a: above 0, below 1/2.  Raises UsageError: another number.
    """
    if not 0 < a < Fraction(1, 2):
        raise UsageError(f"offset_variances: a = {a}: above 0 and below 1/2 expected")
    return 4 * a**2 * (1 - a) * (1 + a), a * (1 - a) * (1 - 2 * a) ** 2
