"""Rewards and the mean of their batch, or of its other samples, in pasted code.

    (R - R.mean())/(R.mean() + 1e-6)   relative(R)          R - (R.sum() - R)/(n - 1)    loo(R)

>>> from klsym.language.expressions import R, log_q
>>> divide_by_mean(-Centred(R) * log_q, Mean(R)), divide_by_mean(R, Mean(R)), divide_by_mean(log_q, Mean(R))
(-log_q*relative(R), scaled(R), None)
>>> baseline = divide_by_count(SAMPLES * Mean(R) - R, N - 1)
>>> baseline, subtract_others(R, baseline), divide_by_count(SAMPLES * Mean(R) - R, N)
(others(R)/(n - 1), loo(R), None)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, NamedTuple

import sympy

from klsym.language.expressions import DENSITIES, OverPositions, parameter
from klsym.language.pasted.averages import AverageReader
from klsym.language.reductions import SAMPLES, Mean, is_of_rewards, is_small
from klsym.language.sums import Centred, LeftOut, OfOthers, Relative, Scaled
from klsym.language.training_names import counts_samples

N = parameter("n")


class Divisor(NamedTuple):
    """The mean of a batch, or its sum, with the small number that is added to it in a denominator."""

    mean: Any
    guard: Any
    count: Any = sympy.S.One


def read_divisor(denominator: Any) -> Divisor | None:
    """Return the mean of rewards in a denominator such as mean + 1e-6; None for other denominators.

    >>> from klsym.language.expressions import R, k1, parameter
    >>> read_divisor(Mean(R) + parameter("eps")), read_divisor(Mean(k1)), read_divisor(Mean(R) + 1)
    (Divisor(mean=Mean(R), guard=eps, count=1), None, None)
    >>> read_divisor(SAMPLES * Mean(R)).count
    the number of samples
    """
    parts = [(x, *x.as_independent(Mean, as_Add=False)) for x in sympy.Add.make_args(denominator)]
    means = [(x, count, mean) for x, count, mean in parts if isinstance(mean, Mean) and count in (1, SAMPLES)]
    if len(means) != 1:
        return None
    [(term, count, mean)] = means
    guard = denominator - term
    if guard != 0 and not is_small(guard):
        return None
    return None if mean.has(*DENSITIES, OverPositions) else Divisor(mean, guard, count)


def divide_by_mean(numerator: Any, mean: Any) -> Any | None:
    """Return a product over a mean, if one of its factors is the reward of the mean, centred or not."""
    [h] = mean.args
    factors = [*sympy.Mul.make_args(numerator)]
    for factor, quotient in ((Centred(h), Relative(h)), (h, Scaled(h))):
        if factor in factors:
            factors.remove(factor)
            return sympy.Mul(quotient, *factors)
    return None


class DivisionReader(AverageReader):
    """A reader that knows divisions by the mean of a batch."""

    def __init__(self, text: str, parameters: Iterable[str], of_words: frozenset[str]) -> None:
        super().__init__(text, parameters, of_words)
        self.axes_typed: dict[Any, set[str]] = {}  # mean or standard deviation -> its axes

    def note_axis(self, value: Any, axis: ast.expr | None) -> None:
        super().note_axis(value, axis)
        self.axes_typed.setdefault(value, set()).add(self.axes[value])

    def apply_operator(self, operator: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        divisor = read_divisor(right) if isinstance(operator, ast.Div) and right.has(Mean) else None
        quotient = None if divisor is None else divide_by_mean(left, divisor.mean)
        if divisor is None or quotient is None:
            return super().apply_operator(operator, left, right, node)
        self.refuse_two_means(divisor.mean, node)
        name = self.mean_names.get(divisor.mean, "mean")
        self.left_out[name] = max(self.left_out[name] - 1, 0)  # it is read, as the mean of the group
        if divisor.guard != 0:
            self.assumed = (*self.assumed, f"{divisor.guard} beside {name}() is left out")
        return quotient / divisor.count

    def refuse_two_means(self, mean: Any, node: ast.expr) -> None:
        """Refuse (R - R.mean(1))/R.mean(): a group has one mean, and all groups the other."""
        axes = sorted(self.axes_typed.get(mean, ()))
        if len(axes) > 1:
            said = " and ".join(f"over dim {axis}" if axis else "over all samples" for axis in axes)
            hint = ": klsym reads one group: type relative(R) for (R - R.mean())/R.mean()"
            raise self.make_error_with_hint(f"a mean {said}", hint, node)


def find_sum_of_others(x: Any) -> Any | None:
    """Return others(R) for R.sum() - R, which is R.sum() less the sample's own R; None for other values."""
    for mean in x.atoms(Mean):
        [h] = mean.args
        if is_of_rewards(h) and sympy.expand(x - (SAMPLES * mean - h)) == 0:
            return OfOthers(h)
    return None


def divide_by_count(numerator: Any, count: Any) -> Any | None:
    """Return a product with a sum of the others over their number, or of all over n; None for other values.

    >>> from klsym.language.expressions import R, log_q
    >>> divide_by_count(log_q * (R - SAMPLES * Mean(R)), SAMPLES - 1), divide_by_count(SAMPLES * Mean(R), N)
    (-log_q*others(R)/(n - 1), Mean(R))
    """
    if count == N:
        mean = numerator / SAMPLES
        return mean if isinstance(mean, Mean) and is_of_rewards(mean.args[0]) else None
    if count not in (N - 1, SAMPLES - 1):
        return None
    factors = [*sympy.Mul.make_args(numerator)]
    for place, factor in enumerate(factors):
        for sign in (1, -1):
            if factor.is_Add and (others := find_sum_of_others(sign * factor)) is not None:
                return sympy.Mul(sign * others / (N - 1), *factors[:place], *factors[place + 1 :])
    return None


def subtract_others(x: Any, baseline: Any) -> Any | None:
    """Return loo(x) for x less the mean of the other samples; None for other values."""
    return LeftOut(x) if baseline == OfOthers(x) / (N - 1) else None


class OtherSampleReader(DivisionReader):
    """A reader that knows sums over the other samples of a group."""

    def apply_operator(self, operator: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        value = None
        if isinstance(operator, ast.Sub):
            value = subtract_others(left, right)
        elif isinstance(operator, ast.Div) and left.has(Mean):
            value = self.divide_by_count(left, right)
        return super().apply_operator(operator, left, right, node) if value is None else value

    def divide_by_count(self, numerator: Any, count: Any) -> Any | None:
        """Return a sum over the others divided by their number, whatever the name of the number."""
        names = {typed: x for typed, x in self.read_as.items() if count == x - 1 and counts_samples(typed)}
        value = divide_by_count(numerator, N - 1 if names else count)
        if value is None:
            return None
        for typed in names:
            self.is_foreign, self.assumed = True, (*self.assumed, f"{typed} is n, the size of a group")
            self.read_as.pop(typed)
            self.declared.pop(typed.split(".")[-1], None)
        for mean in numerator.atoms(Mean) - value.atoms(Mean):
            name = self.mean_names.get(SAMPLES * mean, "sum")
            self.left_out[name] = max(self.left_out[name] - 1, 0)  # it is read
        return value
