"""Two small rational models that settle a question about sequences, with their exact numbers.

Both have one token, memory 1 and max_length 3: draw token or stop at the start, draw again after a
token, and stop.  Tables hold the probabilities of token and stop, at the start, then after a token.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval, log_enclosure
from klsym.numeric.autoregressive import Autoregressive


def _fractions(*rows: tuple[int, int]) -> tuple[tuple[Fraction, Fraction], ...]:
    return tuple((Fraction(a, a + b), Fraction(b, a + b)) for a, b in rows)


ASYMMETRIC = _fractions((1, 1), (1, 1)), _fractions((1, 1), (1, 3))  # q, p
OFFSET = _fractions((1, 9), (9, 1)), _fractions((1, 1), (1, 9))


def _models(tables: Any) -> tuple[Autoregressive, Autoregressive]:
    q, p = (Autoregressive(np.log(np.array(rows, dtype=float)), 1, 3) for rows in tables)
    return q, p


def asymmetric_pair() -> tuple[Autoregressive, Autoregressive]:
    """q and p whose token-level fields of k2 and k3 are no gradients.

    q(token|start) = q(token|token) = p(token|start) = 1/2, p(token|token) = 1/4

    >>> asymmetric_pair()[1].probabilities.round(12).tolist()
    [[0.5, 0.5], [0.25, 0.75]]

    Nothing smaller does: two numbers are free here, and a field of one free number is a gradient.
    """
    return _models(ASYMMETRIC)


def asymmetric_entries(loss: str) -> tuple[Interval, Interval]:
    """Two mirrored entries of the Jacobian of the token-level field at `asymmetric_pair`, enclosed.

    d field[1, token] / d z[0, token] = q(token|0) q(stop|0) g(token|1)
    d field[0, token] / d z[1, token] = 0, since the first draw knows nothing of what follows

    with g = q (l - sum_a q l) for k2 and g = q - p for k3: field[1, a] = q(token|0) g(a|1).

    >>> [entry.lower for entry in asymmetric_entries("k3")]
    [Fraction(1, 16), Fraction(0, 1)]
    >>> found, three = asymmetric_entries("k2")[0], log_enclosure(Fraction(3))
    >>> (found.lower, found.upper) == (three.lower / 16, three.upper / 16)
    True

    loss: "k2" or "k3".  Returns enclosures of log(3)/16 and 0, or of 1/16 and 0.
    Raises UsageError: another loss.
    """
    if loss not in ("k2", "k3"):
        raise UsageError(f"asymmetric_entries: loss {loss!r}: 'k2' or 'k3' expected")
    q, p = ASYMMETRIC
    reached = Interval.exact(q[0][0] * q[0][1])
    if loss == "k3":
        field = Interval.exact(q[1][0] - p[1][0])
    else:  # q (l - sum_a q l) = q(token) q(stop) (l(token) - l(stop)), one log
        odds = (q[1][0] / p[1][0]) / (q[1][1] / p[1][1])
        field = Interval.exact(q[1][0] * q[1][1]) * log_enclosure(odds)
    return reached * field, Interval.exact(0)


def offset_pair() -> tuple[Autoregressive, Autoregressive]:
    """q and p where the sum of exact next-token KLs varies more than the sum of the l_t.

    q(token|start) = 1/10, q(token|token) = 9/10, p(token|start) = 1/2, p(token|token) = 1/10

    At the start the token has the smaller l but leads to the larger KL: in sum_t l_t the two offset each
    other, and the sum of exact KLs keeps only the second.

    >>> from klsym.numeric.sequence_fields import kl_variances
    >>> found = kl_variances(*offset_pair())
    >>> round(found.exact_steps / found.sampled, 12), round(16 / 11, 12)
    (1.454545454545, 1.454545454545)
    """
    return _models(OFFSET)


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
