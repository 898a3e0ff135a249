"""From what code returns to the loss of one token: sums and means over tokens are taken off and named.

>>> from klsym.audit.terms import mask, total
>>> from klsym.language.expressions import k1
>>> tokens_of(total(total(mask * k1, "t") / total(mask, "t"), "b")).words
'averaged over the tokens of each sequence, then summed over sequences'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from klsym.audit.duals import Dual, evaluate
from klsym.audit.terms import VOCABULARY, Refused, Top, Total, exact, grammar, mask, total
from klsym.audit.tracing.shapes import of_masks_alone
from klsym.audit.weights import (
    WHOLE,
    Weight,
    linear,
    masks,
    split,
    weight_of_sequence,
    weight_of_token,
    words_of,
)
from klsym.language.expressions import DENSITIES, M, log_mu, log_q, parameter, rho, sg, without_sg
from klsym.language.sums import OverVocabulary, Whole

ONE, LENGTH = sympy.S.One, parameter("T")


@dataclass(frozen=True)
class Tokens:
    """The loss of one token, and how those of a batch are put together.

    level: "token", or "sequence" where only sums over whole sequences matter.  weights: "sequence" where
    rho is that of the whole sequence.  aggregate: "sum", "mean" (over the tokens of each sequence), "batch"
    (over all tokens of the batch), or "" where each token stands by itself.  over_vocabulary: the code sums
    over words of the vocabulary.
    """

    loss: Any
    words: str
    level: str = "token"
    weights: str = "token"
    aggregate: str = ""
    over_vocabulary: bool = False
    traced: Any = None  # the same as it was traced, before it was written in the grammar


def tokens_of(formula: Any, level: str | None = None) -> Tokens:
    """The loss of one token, or of one sequence, in the loss grammar; raises Refused for what is no such sum.

    level: "token" reads a loss of whole sequences as the sum over their tokens that it is, "sequence" reads
    sums of log densities as those of whole sequences.
    """
    found, over_vocabulary = _exact_means(_once_masked(_inwards(_without_weights(formula))))
    found, of = _whole_sequences(found, level == "sequence")
    if (of, level) == ("sequence", "token"):
        try:
            return _put_together(found, "both", over_vocabulary)
        except Refused as refusal:
            raise Refused(f"{refusal.reason}: --level sequence reads the loss of whole sequences") from None
    return _put_together(found, of, over_vocabulary)


def _put_together(found: Any, of: str, over_vocabulary: bool) -> Tokens:
    """The loss of one token or sequence; of: what the log densities belong to, tokens, sequences or both."""
    terms = linear(found, spread=of == "both")
    classes: dict[Weight, list[tuple[Any, Weight]]] = {}
    for weight, e, axes in terms:
        if e.free_symbols - {mask} or not classes:
            one = _weight(weight, e, axes, of, bool(found.atoms(Total)))
            classes.setdefault(one._replace(power=0), []).append((e, one))
    if len(classes) > 1:
        named = "; ".join(words_of(key, of, "b") for key in classes)
        raise Refused(f"terms that are put together in different ways: {named}")
    [members] = classes.values()
    loss, weights = _renamed([e * LENGTH**one.power for e, one in members], of)
    axes = "".join(e.axes for e in found.atoms(Total))
    words = words_of(max((one for _, one in members), key=lambda one: one.power), of, axes)
    shown, family = "sequence" if of == "sequence" else "token", members[0][1].family
    aggregate = "" if family == "each" else family
    return Tokens(grammar(loss), words, shown, weights, aggregate, over_vocabulary, loss)


def _weight(weight: Any, e: Any, axes: str, of: str, summed: bool) -> Weight:
    """The weight of a token, or of a whole sequence, whose tokens that count are those of the mask in e."""
    if not (summed or weight.free_symbols):
        return Weight("each", 1.0)
    masked = weight * mask if e.has(mask) else weight
    return weight_of_sequence(masked, axes) if of == "sequence" else weight_of_token(weight)


def _inwards(e: Any) -> Any:
    """sg of a sum is the sum of sg.

    >>> _inwards(sg(2 + total(log_q, "t")))
    Total(sg(log_q), t) + 2
    """
    if not e.has(Total):
        return e
    if isinstance(e, sg) and isinstance(e.args[0], sympy.Add | sympy.Mul):
        return e.args[0].func(*(_inwards(sg(a)) for a in e.args[0].args))
    if isinstance(e, sg) and isinstance(e.args[0], Total) and "v" not in e.args[0].axes:
        inner, axes = e.args[0].args
        return Total(_inwards(sg(inner)), axes)
    return e.func(*(_inwards(a) for a in e.args))


def _without_weights(e: Any) -> Any:
    """A product of masks that is the same number for all masks, as that number.

    >>> from klsym.language.expressions import A
    >>> length = total(mask, "t")
    >>> _without_weights(A * length / sympy.Max(1, length))
    A
    """
    return e.replace(lambda part: isinstance(part, sympy.Mul) and part.has(Total), _without_weight)


def _without_weight(product: Any) -> Any:
    factors = [a for a in product.args if a.has(Total) and of_masks_alone(a)]
    factors = [a for a in factors if not a.xreplace(dict.fromkeys(a.atoms(Total), ONE)).has(mask)]
    if len(factors) < 2:
        return product
    weight = sympy.Mul(*factors)
    values = [evaluate(weight, {mask: Dual(value)}).value.ravel() for value in masks()]
    found = np.concatenate(values)
    if np.ptp(found) > 1e-6 * abs(float(found.mean())):
        return product
    return exact(float(f"{found.mean():.6g}")) * product / weight


def _once_masked(e: Any) -> Any:
    """m f(m x) is m f(x): m is 0 or 1.

    >>> _once_masked(total(mask * sympy.exp(mask * log_q), "t"))
    Total(mask*exp(log_q), t)
    """
    if not e.has(Total):
        return e
    if isinstance(e, Total) and "t" in e.axes:
        inner, axes = e.args
        return Total(sympy.Add(*map(_unmasked, sympy.Add.make_args(inner))), axes)
    return e.func(*map(_once_masked, e.args))


def _unmasked(term: Any) -> Any:
    factors = sympy.Mul.make_args(term)
    if mask not in factors:
        return term
    sums = {part: sympy.Dummy(real=True) for part in term.atoms(Total)}
    others = sympy.Mul(*(a for a in factors if a != mask)).xreplace(sums).xreplace({mask: ONE})
    return mask * others.xreplace({dummy: part for part, dummy in sums.items()})


# ---------------------------------------------------------------------------- the vocabulary
def _exact_means(formula: Any) -> tuple[Any, bool]:
    """sum_v g(v) = full(g / q), the exact mean over the next word."""
    opened, totals = _outermost(_one_choice(formula))
    if not totals:
        if formula.free_symbols & set(VOCABULARY):
            raise Refused("log-probabilities of the whole vocabulary that are not summed over it")
        return formula, False
    back = {}
    for dummy, (g, axes) in totals.items():
        x = sympy.factor_terms(sympy.expand_mul(g.xreplace(VOCABULARY) * sympy.exp(-log_q)))
        mean = OverVocabulary(x)
        back[dummy] = total(mean, axes.replace("v", ""))
    return opened.xreplace(back), True


def _one_choice(formula: Any) -> Any:
    """The words that topk takes, marked by M."""
    choices = formula.atoms(Top)
    if len(choices) > 1 or (choices and formula.has(M)):
        raise Refused("two choices of words: M marks those of one topk")
    return formula.xreplace(dict.fromkeys(choices, M))


def _outermost(formula: Any) -> tuple[Any, dict[Any, tuple[Any, str]]]:
    """Sums over the vocabulary as symbols, and what they sum: none of it is itself such a sum.

    sum_v a g(v) = a sum_v g(v), where a holds the sums that are known before v.
    """
    found: dict[Any, tuple[Any, str]] = {}
    held: dict[Any, Any] = {}

    def symbol(g: Any, axes: str) -> Any:
        mass = g.xreplace({M: ONE}).is_positive  # topk takes a word at least
        dummy = held.setdefault((g, axes), sympy.Dummy(real=True, positive=mass or None))
        found[dummy] = (g, axes)
        return dummy

    def added(terms: list[Any]) -> Any:
        sign = -1 if all(g.could_extract_minus_sign() for g in terms) else 1
        return sign * symbol(sympy.Add(*(sign * g for g in terms)), "v")

    def walk(e: Any) -> Any:
        if isinstance(e, sympy.Atom) or not e.has(Total):
            return e
        if not (isinstance(e, Total) and "v" in e.axes):
            return e.func(*(walk(a) for a in e.args))
        inner, used = walk(e.args[0]), set(found)
        if not inner.free_symbols & used:
            return symbol(inner, e.axes)
        if e.axes != "v":
            raise Refused("a sum over tokens and the vocabulary of what such a sum divides")
        parts: dict[Any, list[Any]] = {}
        for a, g in (_apart(term, used) for term in _multiplied(inner)):
            parts.setdefault(a, []).append(g)
        return sympy.Add(*(a * added(gs) for a, gs in parts.items()))

    opened = walk(formula)
    return opened, {d: of for d, of in found.items() if opened.has(d)}


def _multiplied(e: Any) -> tuple[Any, ...]:
    logs = e.replace(lambda part: isinstance(part, sympy.log), sympy.expand_log)
    terms: tuple[Any, ...] = sympy.Add.make_args(sympy.expand_mul(logs))
    return terms


def _apart(term: Any, used: set[Any]) -> tuple[Any, Any]:
    """a and g(v), a made of sums alone."""
    factors = sympy.Mul.make_args(term)
    a = sympy.Mul(*(f for f in factors if f.free_symbols & used))
    if a.free_symbols & {*VOCABULARY, M}:
        raise Refused(f"a sum over the vocabulary beside a word within a function: {str(a)[:80]}")
    return a, term / a


# ---------------------------------------------------------------------------- whole sequences
def _whole_sequences(formula: Any, asked: bool) -> tuple[Any, str]:
    """Sums of log densities over tokens inside functions: those of whole sequences.

    asked: other sums of log densities too, if no log density of a token is left.
    """
    inside = [e for e in formula.atoms(Total) if e.axes == "t" and _log_densities(e.args[0])]
    nonlinear = [e for e in inside if _bends(formula, e)]
    if not nonlinear and not (asked and inside):
        return formula, "token"
    found = formula.xreplace({e: e.args[0].xreplace({**WHOLE, mask: ONE}) for e in inside})
    found = found.replace(lambda e: isinstance(e, sympy.Mul) and e.has(*WHOLE.values()), _over_length)
    moving = found.free_symbols & {*WHOLE}
    if moving and not nonlinear:
        return formula, "token"
    return found, "both" if moving else "sequence"


def _over_length(product: Any) -> Any:
    """Of a mean over the tokens of a sequence, inside a function: its length is T."""
    w, x = split(product)
    linear = any(_is_sum(factor) for factor in sympy.Mul.make_args(x))
    return _length_of(w) * x if linear and w != 1 else product


def _is_sum(e: Any) -> bool:
    """A combination of the log densities of whole sequences."""
    plain = without_sg(e)
    return bool(plain.free_symbols) and plain.free_symbols <= {*WHOLE.values()} and not plain.atoms(sympy.exp)


def _length_of(weight: Any) -> Any:
    """A weight of masks as a number, or as a number over T."""
    family, scale, power = weight_of_sequence(weight, "")
    if family == "batch":
        raise Refused("a mean over all tokens of the batch inside a function that is not linear")
    return exact(scale) * LENGTH**power


def _log_densities(e: Any) -> bool:
    """A combination of log densities, masked or not."""
    plain = without_sg(e).xreplace({mask: ONE})
    symbols = [x for x in WHOLE if plain.has(x)]
    flat = plain - sum(plain.coeff(x) * x for x in symbols)
    return bool(symbols) and sympy.expand(flat) == 0 and all(plain.coeff(x).is_number for x in symbols)


def _bends(formula: Any, part: Any) -> bool:
    dummy = sympy.Dummy()
    opened = formula.xreplace({part: dummy})
    return any(
        e.has(dummy)
        for e in sympy.preorder_traversal(opened)
        if e.args and not isinstance(e, sympy.Add | sympy.Mul | Total)
    ) or any(_twice(e, dummy) for e in opened.atoms(sympy.Mul))


def _twice(product: Any, dummy: Any) -> bool:
    moving = [a for a in product.args if a.free_symbols & {*DENSITIES, dummy}]
    return len(moving) > 1 and any(a.has(dummy) for a in moving)


def _renamed(terms: list[Any], level: str) -> tuple[Any, str]:
    """The sum of terms, with the log densities of whole sequences by their names where no token's stand
    beside them; else rho is theirs."""
    loss = sympy.Add(*terms)
    if level == "token":
        return loss, "token"
    if level == "sequence":
        return sympy.Add(*map(_of_whole_sequence, terms)), "token"
    weighted = loss.replace(lambda e: isinstance(e, sympy.exp), _sequence_weight)
    if weighted.has(*WHOLE.values()) or _beside(weighted):
        return _with_named_sums(loss), "token"
    return weighted, "sequence"


def _of_whole_sequence(term: Any) -> Any:
    """A term with plain names for the log densities of its sequence; whole(..)/T stays in functions."""
    factor, e = term.as_independent(*WHOLE.values(), as_Add=False)
    named = _with_named_sums(e) if e.has(LENGTH) else e
    return factor * named.xreplace({whole: x for x, whole in WHOLE.items()})


def _with_named_sums(e: Any) -> Any:
    """whole(log q - log mu)/T, the mean of the log ratios of its tokens, and other sums of whole sequences.

    >>> _with_named_sums(sympy.exp((WHOLE[log_q] - WHOLE[log_mu]) / LENGTH))
    exp(whole(-log_mu + log_q)/T)
    """
    if isinstance(e, sympy.Atom):
        return Whole(next(x for x, whole in WHOLE.items() if whole == e)) if e in WHOLE.values() else e
    if not e.has(*WHOLE.values()):
        return e
    terms = sympy.Add.make_args(sympy.expand_mul(e)) if isinstance(e, sympy.Add | sympy.Mul) else ()
    linear = [t for t in terms if t.has(*WHOLE.values()) and not t.free_symbols - {*WHOLE.values(), LENGTH}]
    linear = [t for t in linear if not t.atoms(sympy.Function)]
    if not linear:
        return e.func(*map(_with_named_sums, e.args))
    rest = sympy.Add(*(_with_named_sums(t) for t in terms if t not in linear))
    whole = sympy.expand(sympy.Add(*linear) * LENGTH)
    over, inner = (LENGTH, whole) if not whole.has(LENGTH) else (1, sympy.Add(*linear))
    return Whole(sympy.factor_terms(inner.xreplace({w: x for x, w in WHOLE.items()}))) / over + rest


def _sequence_weight(e: Any) -> Any:
    exponent = sympy.expand(e.args[0])
    n = exponent.coeff(WHOLE[log_q])
    if exponent.coeff(WHOLE[log_mu]) != -n or not n.is_Integer:
        return e
    return rho**n * sympy.exp(exponent - n * (WHOLE[log_q] - WHOLE[log_mu]))


def _beside(loss: Any) -> bool:
    """Does a token's own log mu stand beside the weight of the sequence?"""
    return bool(loss.xreplace({rho: sympy.Dummy()}).has(log_mu))
