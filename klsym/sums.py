"""Sums over the tokens of a sequence and over the samples of a batch, as the grammar of losses writes them.

>>> from klsym.language import R, k1
>>> togo(k1), seqmean(k1), LeftOut(R)
(future(k1) + now(k1), whole(k1)/T, loo(R))
"""

from __future__ import annotations

from typing import Any

from klsym.language import OverPositions, parameter


class Summed(OverPositions):
    """A sum over tokens of what an expression is at each of them."""

    slot = ""


class Before(Summed):
    """past(x) = sum_{u<t} x_u."""

    slot, name = "past", "past"


class Here(Summed):
    """now(x) = x_t."""

    slot, name = "now", "now"


class After(Summed):
    """future(x) = sum_{u>t} x_u."""

    slot, name = "future", "future"


class Whole(Summed):
    """whole(x) = sum_u x_u, over all tokens."""

    slot, name = "x", "whole"


class OverBatch(OverPositions):
    """A function of an expression and its sum over the other samples of a batch of n."""

    @staticmethod
    def of(own: Any, rest: Any) -> Any:
        """The value, from that at the sample itself and the sum over the others."""
        raise TypeError("a function of a batch defines itself in a subclass")


class OfOthers(OverBatch):
    """others(x) = sum_{j != i} x_j."""

    name = "others"

    @staticmethod
    def of(own: Any, rest: Any) -> Any:
        return rest


class LeftOut(OverBatch):
    """loo(h) = h - others(h)/(n - 1): h less the mean of the other samples."""

    name = "loo"

    @staticmethod
    def of(own: Any, rest: Any) -> Any:
        return own - rest / (parameter("n") - 1)


class Centred(OverBatch):
    """centred(h) = h - (h + others(h))/n: h less the mean of the batch."""

    name = "centred"

    @staticmethod
    def of(own: Any, rest: Any) -> Any:
        return own - (own + rest) / parameter("n")


class Normalised(OverBatch):
    """normalised(h) = centred(h)/std(h)."""

    name = "normalised"


def togo(h: Any) -> Any:
    """togo(h) = sum_{u>=t} h_u."""
    return Here(h) + After(h)


def seqmean(x: Any) -> Any:
    """seqmean(x) = whole(x)/T."""
    return Whole(x) / parameter("T")
