"""Means and sums over samples or tokens, which are left out where they enclose the whole loss or its terms.

    mean(a) + beta mean(b) = mean(a + beta b)     sum(a) = N mean(a)     sum(mask a)/sum(mask) = mean(a)

A loss of klsym is that of one sample, and its expectation is taken.

>>> from klsym.language.expressions import k1, rho
>>> total = reduce_to_mean("sum", MASK * k1) / reduce_to_mean("sum", MASK)
>>> flatten(reduce_to_mean("mean", rho) + 2 * total)
Flat(loss=2*k1 + rho, factor=1, masked=False)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sympy
from sympy import Dummy, Function, Heaviside, Symbol

from klsym.errors import spell_option
from klsym.language.expressions import (
    DENSITIES,
    REWARDS,
    A,
    M,
    OverPositions,
    R,
    clip,
    log_q,
    parameter,
    remove_sg,
    sg,
    unfold,
)
from klsym.language.messages import INSIDE_BOUNDS
from klsym.language.recognition import join_probabilities, recognise
from klsym.language.sums import Centred, Normalised, OverVocabulary, Whole, centre_again

MASK = Symbol("the mask", nonnegative=True)  # 1 at the tokens that count, 0 at padding
SAMPLES = Symbol("the number of samples", positive=True)
KEPT = Symbol("the number of tokens", positive=True)  # that the mask keeps
ONE_HOT = Symbol("one at the drawn word", nonnegative=True)  # and zero at the other words
LENGTH = parameter("T")  # of a sample's sequence
WORDS = Symbol("the size of the vocabulary", positive=True)
WORD_LOGS = {density: Symbol(f"{density.name}[v]", real=True) for density in DENSITIES}  # of every word
LOGITS = {density: Symbol(f"the logits of {density.name}", real=True) for density in DENSITIES}
ACTION_VALUE = Symbol("the value of an action", real=True)  # of each word, if the vocabulary is summed
COUNTS = (SAMPLES, KEPT, WORDS)
BOUNDING = (sympy.Min, sympy.Max, clip)


class Misplaced(Exception):
    """A mean or sum that is not around the whole loss or its terms: what is wrong, and what to type."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


MIXED = (
    "terms that are averaged in different ways",
    "average all terms alike: none with a sum beside a mean, or with a mask that others lack",
)
INSIDE = (
    "a mean or a sum inside a product or a function",
    "type centred(R) for R - R.mean(), loo(R) for R less the mean of the other samples; seqmean(log_q) for a"
    " mean over the tokens of a sequence; for a sum over them leave .sum(-1) out and choose level sequence",
)
BESIDE_REWARD = (
    INSIDE[0],
    "for a mean of x over the tokens of each response type ((x*A*mask).sum(-1)/mask.sum(-1)).mean(), for one"
    " over the samples (x*A.mean()).mean()",
)
DRAWN_INSIDE = (
    "a value at the drawn word inside a sum over all words",
    "klsym reads it where it multiplies the sum; give values of all words a name of their own, and type H(q)"
    " for the entropy; klsym measure FILE.py:FUNC runs the code",
)
BY_A_MEAN = (
    "a division by the mean of a batch",
    "klsym reads (R - R.mean())/R.mean() and R/R.mean(), as relative(R) and scaled(R), for the same rewards R"
    " on both sides of the division; klsym measure FILE.py:FUNC --group 4 runs others",
)
VOCABULARY = "a sum of probabilities over the vocabulary"
WEIGHTED_BY_LENGTH = (
    "a loss of each token multiplied by the number of tokens",
    "type T for the length of a sequence, and choose level token",
)
OF_LENGTHS = (
    "a mean or a sum of lengths",
    "choose level token and aggregate batch for a sum over all tokens divided by their number",
)
DIVIDED = ("a division by a mask", "multiply by the mask, and divide by its sum")


class Mean(Function):
    """The mean of an expression over samples or tokens."""

    nargs = 1
    is_real = True
    is_number = False


class Std(Function):
    """The standard deviation of an expression over the samples of a batch."""

    nargs = 1
    is_real = True
    is_number = False


def _refuse_std() -> Misplaced:
    option = spell_option("batch", "std")
    return Misplaced(
        "a standard deviation elsewhere than under R - R.mean()",
        f"type normalised(R) for (R - R.mean())/R.std(), or R alone and choose {option}",
    )


def subtract_mean(x: Any, mean: Any) -> Any:
    """Return centred(x) for x less its own mean, where x is of rewards alone; else the difference.

    >>> from klsym.language.expressions import R
    >>> subtract_mean(R, reduce_to_mean("mean", R)), subtract_mean(k1 := parameter("x"), R)
    (centred(R), -R + x)
    """
    if mean == Mean(x) and isinstance(x, Centred | Normalised):
        return centre_again(x)
    return Centred(x) if mean == Mean(x) and is_of_rewards(x) else x - mean


def is_of_rewards(x: Any) -> bool:
    """Is it made of rewards, and of densities at most detached, so that it can be centred?

    >>> from klsym.language.expressions import R
    >>> is_of_rewards(R - sg(log_q)), is_of_rewards(R - log_q)
    (True, False)
    """
    attached = x.replace(lambda e: isinstance(e, sg), lambda _: Dummy())
    return not attached.has(*DENSITIES, OverPositions) and not x.has(OverPositions)


def is_small(x: Any) -> bool:
    """Is it a small positive number beside a standard deviation, or its name: 1e-8, eps?

    >>> is_small(sympy.Rational(1, 10**8)), is_small(parameter("eps")), is_small(sympy.S.Half)
    (True, True, False)
    """
    is_number = x.is_Rational and 0 < x <= sympy.Rational(1, 1000)
    return bool(is_number or (x.is_Symbol and x.name.startswith("eps")))


def divide_by_std(product: Any) -> Any:
    """Return a product with normalised(x) in place of centred(x)/std(x); what is normalised has std 1.

    >>> from klsym.language.expressions import R, log_q
    >>> divide_by_std(Centred(R) * log_q / Std(R)), divide_by_std(Normalised(R) / Std(Normalised(R)))
    (log_q*normalised(R), normalised(R))
    """
    factors = list(sympy.Mul.make_args(product))
    for centred in [factor for factor in factors if isinstance(factor, Centred | Normalised)]:
        own = (1 / Std(centred), *([1 / Std(*centred.args)] if isinstance(centred, Centred) else ()))
        divisor = next((divisor for divisor in own if divisor in factors), None)
        if divisor is not None:
            factors.remove(centred)
            factors.remove(divisor)
            factors.append(centre_again(centred, divided=True))
    return sympy.Mul(*factors)


class Flat(NamedTuple):
    """An expression as factor * loss, or factor * mask * loss; the factor is a product of COUNTS."""

    loss: Any
    factor: Any = sympy.S.One
    masked: bool = False


def has_words(x: Any) -> bool:
    """Is it a value of every word of the vocabulary?"""
    return bool(x.has(*WORD_LOGS.values()))


def select_drawn_word(x: Any) -> Any:
    """Return a value of every word at the word that was drawn."""
    return x.xreplace({word: density for density, word in WORD_LOGS.items()})


def select_one_hot(x: Any) -> Any:
    """Return the sum over all words of a product with a one-hot factor, the value at the drawn word."""
    at_word, one_hot = x.as_independent(ONE_HOT, as_Add=False)
    if one_hot != ONE_HOT:
        raise Misplaced("a one-hot vector that multiplies no other factor", "type its sum as log_q")
    return select_drawn_word(at_word)


def sum_over_words(x: Any) -> Any:
    """Return the sum of a value of every word, full(x/q).

    >>> q, p = WORD_LOGS[DENSITIES[0]], WORD_LOGS[DENSITIES[1]]
    >>> sum_over_words(2 * sympy.exp(q) * (q - p)), sum_over_words(sympy.exp(p) * q)
    (2*full(k1), full(log_q*r))
    """
    factor, of_words = x.as_independent(*WORD_LOGS.values(), ACTION_VALUE, M, as_Add=False)
    if x.has(A, R) or of_words.has(*DENSITIES) or is_probability(factor):
        raise Misplaced(*DRAWN_INSIDE)
    return factor * average_over_words(select_drawn_word(of_words))


def average_over_words(x: Any) -> Any:
    """Return full(x/q), the sum of x over all words.

    >>> average_over_words(sympy.exp(DENSITIES[1]) * DENSITIES[0])
    full(log_q*r)
    """
    terms = sympy.Add.make_args(x)
    return OverVocabulary(recognise(sympy.Add(*(term * sympy.exp(-log_q) for term in terms))))


def reduce_to_mean(kind: str, x: Any, over_axis: bool = False, is_of_drawn: bool = False) -> Any:
    """Return the "mean" or "sum" of an expression, its factors outside the mean; raises Misplaced.

    over_axis: over one axis alone, which is the vocabulary for a value of every word.  is_of_drawn: is each
    probability in it that of the drawn word, so that a sum of some is over samples?
    """
    if has_words(x):
        x = sum_over_words(x) / (WORDS if kind == "mean" else 1)
        if over_axis:
            return x
    flat = flatten(x)
    if flat.loss.has(LENGTH) and not is_random(flat.loss):
        raise Misplaced(*OF_LENGTHS)
    if kind == "sum" and not is_of_drawn and is_probability(flat.loss):
        raise Misplaced(VOCABULARY, f"type {average_over_words(flat.loss)}, the sum over all next tokens")
    if kind == "sum" and flat.factor.has(WORDS):  # a sum over the vocabulary, as after F.kl_div
        return flat.factor * WORDS * flat.loss * (MASK if flat.masked else 1)
    power = flat.factor.as_powers_dict().get(KEPT, 0)  # 1 for a sum over tokens
    if power > int(x.has(Mean)) and is_random(flat.loss):
        raise Misplaced(*WEIGHTED_BY_LENGTH)
    count = SAMPLES if kind == "sum" else sympy.S.One
    if flat.masked:
        count = KEPT if kind == "sum" else KEPT / SAMPLES
    return flat.factor * count * (Mean(flat.loss) if is_random(flat.loss) else flat.loss)


def take_over_tokens(exponent: Any) -> Any:
    """Return an exponent with the means and sums of log-probabilities in it over the tokens of a sequence.

    exp(mean(log_q - log_mu)) is the ratio of two sequences, each token's taken to the power 1/T.

    >>> from klsym.language.expressions import log_mu, log_q
    >>> take_over_tokens(reduce_to_mean("mean", log_q - log_mu))
    whole(-log_mu + log_q)/T
    """
    means = exponent.atoms(Mean)
    if not means or not all(_is_of_tokens(x.args[0]) for x in means):
        return exponent
    length = parameter("T")
    return exponent.xreplace({x: Whole(x.args[0]) / length for x in means} | {SAMPLES: length, KEPT: length})


def list_averages(x: Any) -> list[Any]:
    """Return the means in an expression, and the sums, which are a mean times the number of its terms."""
    means = x.atoms(Mean)
    return [*means, *(count * mean for mean in means for count in COUNTS)]


def _is_of_tokens(x: Any) -> bool:
    """Is it made of log-probabilities, of which conditions such as A > 0 choose parts?"""
    chosen = x.replace(lambda e: isinstance(e, Heaviside), lambda _: sympy.S.Half)
    return bool(chosen.has(*DENSITIES)) and not chosen.has(*REWARDS, OverPositions, Mean)


def flatten(e: Any) -> Flat:
    """Return the loss whose mean an expression is; raises Misplaced where a mean or a mask is elsewhere."""
    if e.has(Std):
        raise _refuse_std()
    if not e.has(Mean, MASK, *COUNTS):
        return Flat(e)
    e = e.replace(
        lambda x: isinstance(x, sg) and isinstance(x.args[0], Mean), lambda x: Mean(sg(*x.args[0].args))
    )
    names = {mean: Dummy() for mean in e.atoms(Mean)}
    for node in sympy.preorder_traversal(e):
        if not (node.is_Add or node.is_Mul or isinstance(node, Mean)) and node.has(Mean):
            bounded = INSIDE_BOUNDS if isinstance(node, BOUNDING) else INSIDE
            raise Misplaced(*(BY_A_MEAN if _divides_by_rewards(node) else bounded))
    inside = e.xreplace(names)
    parts = []
    for mean, name in names.items():
        c = sympy.diff(inside, name)
        if c.has(*names.values()) or is_random(c):
            is_beside_reward = c.has(*REWARDS) and not c.has(*DENSITIES) and mean.has(*DENSITIES)
            raise Misplaced(*(BESIDE_REWARD if is_beside_reward else INSIDE))
        parts.append(_split_factors(c, mean.args[0]))
    remainder = inside.xreplace(dict.fromkeys(names.values(), sympy.S.Zero))
    parts += [part for term in sympy.Add.make_args(remainder) for part in _split_parts(term)]
    if len({(part.factor, part.masked) for part in parts}) > 1:
        raise Misplaced(*MIXED)
    return parts[0]._replace(loss=sympy.Add(*(part.loss for part in parts))) if parts else Flat(e)


def is_flat(e: Any) -> bool:
    """Is it the mean of a loss, of which `flatten` gives the loss?"""
    try:
        flatten(e)
    except Misplaced:
        return False
    return True


def is_linear_in(e: Any, part: Any) -> bool:
    """Is the part only a factor, also inside the bounds of min, max and clip?

    >>> is_linear_in(log_q * Mean(REWARDS[0]), Mean(REWARDS[0])), is_linear_in(1 / Mean(log_q), Mean(log_q))
    (True, False)
    >>> is_linear_in(sympy.Min(log_q * Mean(REWARDS[0]), Mean(REWARDS[0])), Mean(REWARDS[0]))
    True
    """
    bounds = {x for x in e.atoms(*BOUNDING) if x.has(part)}
    outer = {x: Dummy(real=True) for x in bounds if not any(x != y and y.has(x) for y in bounds)}
    mark = Dummy(real=True)
    marked = e.xreplace(outer).xreplace({part: mark})
    marks = (mark, *outer.values())
    is_factor = not any(sympy.diff(marked, x).has(*marks) for x in marks)
    return is_factor and all(is_linear_in(x, part) for bound in outer for x in bound.args)


def is_exact(e: Any) -> bool:
    """Is it the same for all samples of a state: exact means over the vocabulary, and numbers?

    >>> is_exact(Mean(OverVocabulary(log_q))), is_exact(Mean(log_q))
    (True, False)
    """
    return not is_random(e.args[0].replace(lambda x: isinstance(x, OverVocabulary), lambda _: Dummy()))


def _divides_by_rewards(node: Any) -> bool:
    """Is it one over the mean of rewards, with or without a small number beside it?"""
    is_division = node.is_Pow and node.exp.could_extract_minus_sign()
    return bool(is_division and node.base.has(*REWARDS) and not node.base.has(*DENSITIES))


def _split_parts(term: Any) -> list[Flat]:
    """Return the parts of what is not averaged: c mask (a + b), or c (mask a + mask b) term by term."""
    if not term:
        return []
    try:
        return [_split_factors(term)]
    except Misplaced:
        opened = sympy.expand_mul(term, deep=False)
        return [_split_factors(summand) for summand in sympy.Add.make_args(opened)]


def _split_factors(product: Any, of: Any = sympy.S.One) -> Flat:
    """Return a product without its counts and masks; a mask is 0 or 1, so that its powers are the mask."""
    loss, dependent = product.as_independent(*COUNTS, MASK, as_Add=False)
    if dependent.free_symbols - {*COUNTS, MASK} or dependent.has(sympy.Add, Function):
        raise Misplaced(*MIXED)
    factor, mask = dependent.as_independent(MASK, as_Add=False)
    if mask != 1 and not (mask.as_base_exp()[1].is_positive and mask.as_base_exp()[0] == MASK):
        raise Misplaced(*DIVIDED)
    return Flat(loss * of, factor, mask != 1)


def is_random(e: Any) -> bool:
    """Does it differ from sample to sample?"""
    return bool(e.has(*DENSITIES, *REWARDS, *WORD_LOGS.values(), ACTION_VALUE, MASK, OverPositions, Mean))


def has_other_factors(e: Any) -> bool:
    """Does a factor depend on the policies that is no power of e, as the log in q*log(q)?

    >>> has_other_factors(sympy.exp(log_q) * log_q), has_other_factors(sympy.exp(log_q))
    (True, False)
    """
    factors = (factor for term in sympy.Add.make_args(e) for factor in sympy.Mul.make_args(term))
    return any(unfold(factor).has(*DENSITIES) for factor in factors if not isinstance(factor, sympy.exp))


def is_probability(e: Any) -> bool:
    """Is a factor a probability, so that its exponent changes when all log densities are shifted alike?

    Probabilities inside a log or a comparison do not count as factors.
    """
    outside = e.replace(
        lambda x: isinstance(x, sympy.log | sympy.Heaviside | OverVocabulary),
        lambda _: sympy.Dummy(real=True),
    )
    outside = outside.replace(lambda x: x.is_Mul, join_probabilities)
    for power in outside.atoms(sympy.exp):
        exponent = remove_sg(unfold(power.args[0]))
        shifted = exponent.xreplace({density: density + 1 for density in DENSITIES})
        if sympy.expand(shifted - exponent) != 0:
            return True
    return False
