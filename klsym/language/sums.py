"""Sums over the tokens of a sequence, the samples of a batch, and all that might have been drawn.

The ratio that GSPO clips is exp(seqmean(log_q - log_mu)), the ratio of a prefix exp(past(log_q - log_mu)).

>>> from klsym.language.expressions import R, k1
>>> togo(k1), seqmean(k1), LeftOut(R), full_kl("q", "p")
(future(k1) + now(k1), whole(k1)/T, loo(R), full(k1))
"""

from __future__ import annotations

from typing import Any

import sympy

from klsym.language.expressions import (
    REWARDS,
    M,
    OverPositions,
    R,
    V,
    V_next,
    clip,
    exp,
    k1,
    log_mu,
    log_old,
    log_p,
    log_q,
    parameter,
    r,
    sg,
)
from klsym.language.recognition import MOST_SWITCHES, choose_switches, list_switches


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
    def combine(own: Any, rest: Any) -> Any:
        """Return the value, from that at the sample itself and the sum over the others."""
        raise TypeError("a function of a batch defines itself in a subclass")


class OfOthers(OverBatch):
    """others(x) = sum_{j != i} x_j."""

    name = "others"

    @staticmethod
    def combine(own: Any, rest: Any) -> Any:
        return rest


def sum_group(x: Any) -> Any:
    """Return groupsum(x) = x + others(x), the sum over the whole group."""
    return x + OfOthers(x)


class LeftOut(OverBatch):
    """loo(h) = h - others(h)/(n - 1): h less the mean of the other samples."""

    name = "loo"

    @staticmethod
    def combine(own: Any, rest: Any) -> Any:
        return own - rest / (parameter("n") - 1)


class Centred(OverBatch):
    """centred(h) = h - (h + others(h))/n: h less the mean of the batch."""

    name = "centred"

    @staticmethod
    def combine(own: Any, rest: Any) -> Any:
        return own - (own + rest) / parameter("n")


class Divided(OverBatch):
    """A value of a sample divided by a statistic of the batch, and 0 where the statistic is 0."""


class Normalised(Divided):
    """normalised(h) = centred(h)/std(h)."""

    name = "normalised"


class Relative(Divided):
    """relative(h) = centred(h)/mean(h)."""

    name = "relative"


class Scaled(Divided):
    """scaled(h) = h/mean(h)."""

    name = "scaled"


def centre_again(x: Any, divided: bool = False) -> Any:
    """Return a centred or normalised value less its mean, which is 0; divided: over its deviation, too.

    >>> centre_again(Centred(R)), centre_again(Centred(R), divided=True), centre_again(Normalised(R))
    (centred(R), normalised(R), normalised(R))
    """
    return Normalised(*x.args) if divided else x


def togo(h: Any) -> Any:
    """Return togo(h) = sum_{u>=t} h_u."""
    return Here(h) + After(h)


def sum_discounted(g: Any, x: Any) -> Any:
    """Return disc(g, x) = sum_{u>=t} g^(u-t) x_u, 0 <= g <= 1; past(1) counts the tokens before t."""
    if g in (0, 1):
        return togo(x) if g else Here(x)
    return g ** -Before(sympy.S.One) * togo(g ** Before(sympy.S.One) * x)


def build_advantage_estimate(weight: Any, g: Any = sympy.S.One) -> Any:
    """Return gae(x, g) = sum_{u>=t} (g x)^(u-t) (R_u + g V_{u+1} - V_u), V 0 after the last token.

    Summed by parts: the lambda-return sum_{u>=t} (g x)^(u-t) (R_u + g (1 - x) V_{u+1}), less V_t.

    >>> build_advantage_estimate(sympy.S.One), build_advantage_estimate(sympy.S.Zero)
    (-V + future(R) + now(R), -V + now(R + V_next))
    """
    return sum_discounted(g * weight, R + g * (1 - weight) * V_next) - V


def seqmean(x: Any) -> Any:
    """Return seqmean(x) = whole(x)/T."""
    return Whole(x) / parameter("T")


class OverVocabulary(OverPositions):
    """full(x) = sum_y q(y|y_<t) x(y): the mean of x over all next tokens, or all outcomes of a sample."""

    name = "full"
    is_mean_under_policy = True  # full(M) depends on theta, although M does not

    @property
    def of_masses(self) -> bool:
        """Is it a sum of masses, 0 only where M leaves all words out, or keeps all?  M is 0 or 1."""
        return all(self.args[0].xreplace({M: sympy.Integer(end)}).is_nonnegative for end in (0, 1))


def is_mass(x: Any) -> bool:
    """Is it a mass, full(y), or what is left of one, 1 - full(y), of words of q, p, mu or old?

    >>> [is_mass(x) for x in (OverVocabulary(M * r), 1 - OverVocabulary(M * r), 1 - OverVocabulary(k1))]
    [True, True, False]
    """
    if isinstance(x, OverVocabulary):
        return x.of_masses
    complement = 1 - x
    densities = (sympy.S.One, r, *map(_divide_by_q, ("mu", "old")))
    return isinstance(complement, OverVocabulary) and any(
        OverVocabulary(whole - complement.args[0]).of_masses for whole in densities
    )


DENSITIES = {"q": log_q, "p": log_p, "mu": log_mu, "old": log_old}


def is_probability_of_others(x: Any) -> bool:
    """Is it the probability of all words but the drawn one, such as 1 - exp(log_q), or 1 + 1e-8 - exp(log_q)?

    >>> from klsym.language.expressions import rho
    >>> [is_probability_of_others(x) for x in (1 - sympy.exp(log_q), 2 - sympy.exp(log_p), 1 - r, 1 - rho)]
    [True, True, False, False]
    """
    return any((x + sympy.exp(log)).is_Rational and x + sympy.exp(log) >= 1 for log in DENSITIES.values())


def has_logarithm(x: Any) -> bool:
    """Is it positive, or is the log taken where it is, as one of the hypotheses then says?"""
    is_positive = x.is_positive or is_mass(x) or is_probability_of_others(x) or is_positive_total(x)
    return bool(is_positive or list_mixture_weights(x))


def is_positive_total(x: Any) -> bool:
    """Is it positive, with sums over the group of what is at least 0?

    >>> from klsym.language.expressions import above, rho, where
    >>> bad = where(above(R, 0), 0, rho)
    >>> [is_positive_total(x) for x in (1 + sum_group(bad), sum_group(bad), 1 + sum_group(R))]
    [True, False, False]
    """
    sums = [y for y in sympy.Add.make_args(x) if isinstance(y, OfOthers)]
    own_values = _list_values(x - sympy.Add(*sums)) if sums else ()
    values_of_others = [value for y in sums for value in _list_values(y.args[0])]
    positive = bool(sums) and all(value.is_positive for value in own_values)
    return positive and all(value.is_nonnegative for value in values_of_others)


def _list_values(x: Any) -> list[Any]:
    """Return what it is as comparisons hold or not; a power of a positive number is some positive number."""
    powers = [y for y in x.atoms(sympy.exp, sympy.Pow) if isinstance(y, sympy.exp) or y.base.is_positive]
    bare = x.xreplace({power: sympy.Dummy(positive=True) for power in powers})
    few = len(list_switches(bare)) <= MOST_SWITCHES
    return [value for _, value in choose_switches(bare)] if few else [sympy.Dummy()]


def full_kl(a: str, b: str) -> Any:
    """Return sum_y a(y) log(a(y)/b(y)) over all next tokens, a and b among q, p, mu, old.

    >>> full_kl("q", "p"), full_kl("p", "q")
    (full(k1), full(-k1*r))
    """
    if {a, b} == {"q", "p"}:
        return OverVocabulary(k1 if a == "q" else -r * k1)
    return OverVocabulary(_divide_by_q(a) * (DENSITIES[a] - DENSITIES[b]))


def build_entropy(a: str) -> Any:
    """Return -sum_y a(y) log a(y)."""
    return -OverVocabulary(_divide_by_q(a) * DENSITIES[a])


def build_jensen_shannon(a: str, b: str, strength: Any = sympy.S.Half) -> Any:
    """Return (1 - x) KL(a||m) + x KL(b||m), m = (1 - x) a + x b, one of them q: E_q[f(t)], t the other over
    q.

    f = w t log t - (w t + 1 - w) log(w t + 1 - w), with w the weight of the other; x is 1/2 if not given,
    and a number or a parameter between 0 and 1.
    """
    other_policy, w = (b, strength) if a == "q" else (a, 1 - strength)
    t, log_t = (
        (r, -k1) if other_policy == "p" else (_divide_by_q(other_policy), DENSITIES[other_policy] - log_q)
    )
    above, below = (w.p, w.q) if w.is_Rational else (w, sympy.S.One)
    mixed = above * t + below - above  # over below: 1 + t over 2
    return OverVocabulary((above * t * log_t - mixed * sympy.log(mixed / below)) / below)


def list_mixture_weights(x: Any) -> list[Any]:
    """Return the parameters w of a mixture x = w a + (1 - w) b of positive a and b, none the greater: 0 <= w
    <= 1.

    >>> w = parameter("w")
    >>> list_mixture_weights(w * r + 1 - w), list_mixture_weights(w * r + 1)
    ([w], [])
    """
    weights = []
    parameters = {w for w in x.free_symbols - {*DENSITIES.values(), *REWARDS} if not w.is_positive}
    for w in sorted(parameters, key=str):
        b, a = (sympy.expand(x.xreplace({w: end})) for end in (sympy.S.Zero, sympy.S.One))
        crossing = a.is_positive and b.is_positive and (a - b).is_positive is (b - a).is_positive
        weights += [w] if crossing and sympy.expand(w * (a - b) + b - x) == 0 else []
    return weights


def _divide_by_q(a: str) -> Any:
    return exp(DENSITIES[a] - log_q)


def find_word_bounds(e: Any) -> tuple[Any, ...]:
    """Return the bounds on log q in sums over the vocabulary: min, max, clip, conditions of where(..).

    At such a bound the derivative of a word's term jumps, so that clamping words changes the gradient of the
    sum.  A detached bound is a constant factor and is left out.

    >>> from klsym.language.parser import parse
    >>> [find_word_bounds(parse(x)) for x in ("full(min(k1, 0.05))", "full(sg(min(k1, 0.05))*log_q)")]
    [(Min(1/20, k1),), ()]
    """
    bounds: dict[Any, None] = {}
    for over in sorted(e.atoms(OverVocabulary), key=sympy.default_sort_key):
        waiting = [over.args[0]]
        while waiting:
            node = waiting.pop()
            chosen = isinstance(node, sg) and isinstance(node.args[0], sympy.Heaviside)
            if (chosen or isinstance(node, sympy.Min | sympy.Max | clip)) and node.has(log_q):
                bounds[node] = None
            elif not isinstance(node, sg):
                waiting += reversed(node.args)
    return tuple(bounds)
