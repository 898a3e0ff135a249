"""From what code returns to the loss of one token: sums and means over tokens are removed and named.

>>> from klsym.audit.terms import mask, sum_over
>>> from klsym.language.expressions import k1
>>> split_aggregation(sum_over(sum_over(mask * k1, "t") / sum_over(mask, "t"), "b")).words
'averaged over the tokens of each sequence, then summed over sequences'
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import sympy

from klsym.audit.duals import Dual, evaluate
from klsym.audit.terms import VOCABULARY, Refused, Top, Total, as_rational, mask, sum_over, to_grammar
from klsym.audit.tracing.shapes import SIZES, is_of_masks_alone
from klsym.audit.weights import (
    WHOLE,
    Weight,
    describe_weight,
    draw_masks,
    find_sequence_weight,
    find_token_weight,
    split_factors,
    split_weights,
)
from klsym.errors import spell_option
from klsym.language.expressions import DENSITIES, M, log_mu, log_q, parameter, remove_sg, rho, sg
from klsym.language.sums import OverVocabulary, Whole

ONE, LENGTH = sympy.S.One, parameter("T")


@dataclass(frozen=True)
class Tokens:
    """The loss of one token, and how those of a batch are put together.

    level: "token", or "sequence" where only sums over whole sequences matter.  weights: "sequence" where
    rho is that of the whole sequence.  aggregate: "sum", "mean" (over the tokens of each sequence), "batch"
    (over all tokens of the batch), or "" where each token stands by itself.  over_vocabulary: the code sums
    over words of the vocabulary.  is_scaled: does a constant multiply the whole, which the words name?
    floors: the lower bounds of probabilities that are left out of the loss.
    """

    loss: Any
    words: str
    level: str = "token"
    weights: str = "token"
    aggregate: str = ""
    over_vocabulary: bool = False
    traced: Any = None  # the same as it was traced, before it was written in the grammar
    is_scaled: bool = False
    floors: tuple[tuple[str, Fraction], ...] = ()


def split_aggregation(formula: Any, level: str | None = None) -> Tokens:
    """Return the loss of one token or sequence in the loss grammar, and how code adds them up.

    Raises Refused: no sum of losses of tokens.

    level: "token" reads a loss of whole sequences as the sum over their tokens that it is, "sequence" reads
    sums of log densities as those of whole sequences.
    """
    token_formula, over_vocabulary = _replace_vocabulary_sums(
        _drop_repeated_masks(_move_sg_inwards(_remove_constant_weights(formula)))
    )
    token_formula, kind = _replace_sequence_sums(token_formula, level == "sequence")
    if (kind, level) == ("sequence", "token"):
        try:
            return _combine_terms(token_formula, "both", over_vocabulary)
        except Refused as refusal:
            raise Refused(
                f"{refusal.reason}: {spell_option('level', 'sequence')} reads the loss of whole sequences"
            ) from None
    return _combine_terms(token_formula, kind, over_vocabulary)


def _combine_terms(formula: Any, kind: str, over_vocabulary: bool) -> Tokens:
    """Return the loss of one token or sequence; kind: what log densities are of, token, sequence or both."""
    terms = split_weights(formula, spread=kind == "both")
    classes: dict[Weight, list[tuple[Any, Weight]]] = {}
    for weight, e, axes in terms:
        if e.free_symbols - {mask} or not classes:
            token_weight = _find_weight(weight, e, axes, kind, bool(formula.atoms(Total)))
            classes.setdefault(token_weight._replace(power=0), []).append((e, token_weight))
    if len(classes) > 1:
        named = "; ".join(describe_weight(key, kind, "b") for key in classes)
        raise Refused(f"terms that are put together in different ways: {named}")
    [members] = classes.values()
    loss, weights = _rename_densities([e * LENGTH**token_weight.power for e, token_weight in members], kind)
    axes = "".join(e.axes for e in formula.atoms(Total))
    largest = max((token_weight for _, token_weight in members), key=operator.attrgetter("power"))
    loss, largest = _cancel_batch_size(loss, largest)
    words = describe_weight(largest, kind, axes)
    unit, family = "sequence" if kind == "sequence" else "token", members[0][1].family
    aggregate = "" if family == "each" else family
    is_scaled = "multiplied by" in words or "padded grid" in words
    return Tokens(
        to_grammar(loss), words, unit, weights, aggregate, over_vocabulary, loss, is_scaled=is_scaled
    )


def _cancel_batch_size(loss: Any, weight: Weight) -> tuple[Any, Weight]:
    """Return the loss and its weight without a batch size that multiplies one and divides the other twice."""
    b = SIZES["b"]
    content, rest = loss.as_content_primitive()
    if content.p % b or abs(weight.scale * b**2 - 1) >= 1e-5:
        return loss, weight
    return content / b * rest, weight._replace(scale=1 / b)


def _find_weight(weight: Any, e: Any, axes: str, kind: str, summed: bool) -> Weight:
    """Return the weight of a token, or of a whole sequence; the mask in e tells which of its tokens count."""
    if not (summed or weight.free_symbols):
        return Weight("each", 1.0)
    masked = weight * mask if e.has(mask) else weight
    return find_sequence_weight(masked, axes) if kind == "sequence" else find_token_weight(weight)


def _move_sg_inwards(e: Any) -> Any:
    """Replace sg of a sum by the sum of sg.

    >>> _move_sg_inwards(sg(2 + sum_over(log_q, "t")))
    Total(sg(log_q), t) + 2
    """
    if not e.has(Total):
        return e
    if isinstance(e, sg) and isinstance(e.args[0], sympy.Add | sympy.Mul):
        return e.args[0].func(*(_move_sg_inwards(sg(a)) for a in e.args[0].args))
    if isinstance(e, sg) and isinstance(e.args[0], Total) and "v" not in e.args[0].axes:
        inner, axes = e.args[0].args
        return Total(_move_sg_inwards(sg(inner)), axes)
    return e.func(*(_move_sg_inwards(a) for a in e.args))


def _remove_constant_weights(e: Any) -> Any:
    """Replace products of masks that have one value for all masks by that number.

    >>> from klsym.language.expressions import A
    >>> length = sum_over(mask, "t")
    >>> _remove_constant_weights(A * length / sympy.Max(1, length))
    A
    """
    return e.replace(lambda part: isinstance(part, sympy.Mul) and part.has(Total), _remove_constant_weight)


def _remove_constant_weight(product: Any) -> Any:
    factors = [a for a in product.args if a.has(Total) and is_of_masks_alone(a)]
    factors = [a for a in factors if not a.xreplace(dict.fromkeys(a.atoms(Total), ONE)).has(mask)]
    if len(factors) < 2:
        return product
    weight = sympy.Mul(*factors)
    values = [evaluate(weight, {mask: Dual(value)}).value.ravel() for value in draw_masks()]
    flat_values = np.concatenate(values)
    if np.ptp(flat_values) > 1e-6 * abs(float(flat_values.mean())):
        return product
    return as_rational(float(f"{flat_values.mean():.6g}")) * product / weight


def _drop_repeated_masks(e: Any) -> Any:
    """Replace m f(m x) by m f(x): m is 0 or 1.

    >>> _drop_repeated_masks(sum_over(mask * sympy.exp(mask * log_q), "t"))
    Total(mask*exp(log_q), t)
    """
    if not e.has(Total):
        return e
    if isinstance(e, Total) and "t" in e.axes:
        inner, axes = e.args
        return Total(sympy.Add(*map(_drop_inner_masks, sympy.Add.make_args(inner))), axes)
    return e.func(*map(_drop_repeated_masks, e.args))


def _drop_inner_masks(term: Any) -> Any:
    factors = sympy.Mul.make_args(term)
    if mask not in factors:
        return term
    sums = {part: sympy.Dummy(real=True) for part in term.atoms(Total)}
    others = sympy.Mul(*(a for a in factors if a != mask)).xreplace(sums).xreplace({mask: ONE})
    return mask * others.xreplace({dummy: part for part, dummy in sums.items()})


# ---------------------------------------------------------------------------- the vocabulary
def _replace_vocabulary_sums(formula: Any) -> tuple[Any, bool]:
    """Replace sum_v g(v) by full(g / q), the exact mean over the next token; return whether there is one."""
    opened, totals = _collect_vocabulary_sums(_replace_topk(formula))
    if not totals:
        if formula.free_symbols & set(VOCABULARY):
            raise Refused("log-probabilities of the whole vocabulary that are not summed over it")
        return formula, False
    back = {}
    for dummy, (g, axes) in totals.items():
        x = sympy.factor_terms(sympy.expand_mul(g.xreplace(VOCABULARY) * sympy.exp(-log_q)))
        mean = OverVocabulary(x)
        back[dummy] = sum_over(mean, axes.replace("v", ""))
    return opened.xreplace(back), True


def _replace_topk(formula: Any) -> Any:
    """Replace the words that topk takes by M."""
    choices = formula.atoms(Top)
    if len(choices) > 1 or (choices and formula.has(M)):
        raise Refused("two choices of words: M marks those of one topk")
    return formula.xreplace(dict.fromkeys(choices, M))


def _collect_vocabulary_sums(formula: Any) -> tuple[Any, dict[Any, tuple[Any, str]]]:
    """Return the formula with a symbol for each outermost sum over the vocabulary, and what these sum.

    sum_v a g(v) = a sum_v g(v), where a holds the sums that are known before v.
    """
    sums: dict[Any, tuple[Any, str]] = {}
    dummies: dict[Any, Any] = {}

    def make_symbol(g: Any, axes: str) -> Any:
        mass = g.xreplace({M: ONE}).is_positive  # topk takes a word at least
        dummy = dummies.setdefault((g, axes), sympy.Dummy(real=True, positive=mass or None))
        sums[dummy] = (g, axes)
        return dummy

    def add_terms(terms: list[Any]) -> Any:
        sign = -1 if all(g.could_extract_minus_sign() for g in terms) else 1
        return sign * make_symbol(sympy.Add(*(sign * g for g in terms)), "v")

    def walk(e: Any) -> Any:
        if isinstance(e, sympy.Atom) or not e.has(Total):
            return e
        if not (isinstance(e, Total) and "v" in e.axes):
            return e.func(*(walk(a) for a in e.args))
        inner, used = walk(e.args[0]), set(sums)
        if not inner.free_symbols & used:
            return make_symbol(inner, e.axes)
        if e.axes != "v":
            raise Refused("a sum over tokens and the vocabulary of what such a sum divides")
        parts: dict[Any, list[Any]] = {}
        for a, g in (_split_sums(term, used) for term in _expand_terms(inner)):
            parts.setdefault(a, []).append(g)
        return sympy.Add(*(a * add_terms(gs) for a, gs in parts.items()))

    opened = walk(formula)
    return opened, {d: body for d, body in sums.items() if opened.has(d)}


def _expand_terms(e: Any) -> tuple[Any, ...]:
    logs = e.replace(lambda part: isinstance(part, sympy.log), sympy.expand_log)
    terms: tuple[Any, ...] = sympy.Add.make_args(sympy.expand_mul(logs))
    return terms


def _split_sums(term: Any, used: set[Any]) -> tuple[Any, Any]:
    """Return a and g(v) with term = a g(v), where a is made of sums alone."""
    factors = sympy.Mul.make_args(term)
    a = sympy.Mul(*(f for f in factors if f.free_symbols & used))
    if a.free_symbols & {*VOCABULARY, M}:
        raise Refused(f"a sum over the vocabulary beside a word within a function: {str(a)[:80]}")
    return a, term / a


# ---------------------------------------------------------------------------- whole sequences
def _replace_sequence_sums(formula: Any, asked: bool) -> tuple[Any, str]:
    """Replace sums of log densities over tokens inside functions by log densities of whole sequences.

    asked: other sums of log densities too, if no log density of a token is left.
    """
    inside = [e for e in formula.atoms(Total) if e.axes == "t" and _is_linear_in_densities(e.args[0])]
    nonlinear = [e for e in inside if _is_nonlinear_in(formula, e)]
    if not nonlinear and not (asked and inside):
        return formula, "token"
    result = formula.xreplace({e: e.args[0].xreplace({**WHOLE, mask: ONE}) for e in inside})
    result = result.replace(
        lambda e: isinstance(e, sympy.Mul) and e.has(*WHOLE.values()), _convert_mean_weight
    )
    moving = result.free_symbols & {*WHOLE}
    if moving and not nonlinear:
        return formula, "token"
    return result, "both" if moving else "sequence"


def _convert_mean_weight(product: Any) -> Any:
    """Write a mean over the tokens of a sequence, inside a function, with its length T."""
    w, x = split_factors(product)
    is_linear = any(_is_sum(factor) for factor in sympy.Mul.make_args(x))
    return _as_power_of_length(w) * x if is_linear and w != 1 else product


def _is_sum(e: Any) -> bool:
    """Is it a combination of the log densities of whole sequences?"""
    plain = remove_sg(e)
    return bool(plain.free_symbols) and plain.free_symbols <= {*WHOLE.values()} and not plain.atoms(sympy.exp)


def _as_power_of_length(weight: Any) -> Any:
    """Return a weight of masks as a number times a power of T."""
    family, scale, power = find_sequence_weight(weight, "")
    if family == "batch":
        raise Refused("a mean over all tokens of the batch inside a function that is not linear")
    return as_rational(scale) * LENGTH**power


def _is_linear_in_densities(e: Any) -> bool:
    """Is it a combination of log densities, masked or not?"""
    plain = remove_sg(e).xreplace({mask: ONE})
    symbols = [x for x in WHOLE if plain.has(x)]
    flat = plain - sum(plain.coeff(x) * x for x in symbols)
    return bool(symbols) and sympy.expand(flat) == 0 and all(plain.coeff(x).is_number for x in symbols)


def _is_nonlinear_in(formula: Any, part: Any) -> bool:
    dummy = sympy.Dummy()
    opened = formula.xreplace({part: dummy})
    return any(
        e.has(dummy)
        for e in sympy.preorder_traversal(opened)
        if e.args and not isinstance(e, sympy.Add | sympy.Mul | Total)
    ) or any(_has_density_cofactor(e, dummy) for e in opened.atoms(sympy.Mul))


def _has_density_cofactor(product: Any, dummy: Any) -> bool:
    moving = [a for a in product.args if a.free_symbols & {*DENSITIES, dummy}]
    return len(moving) > 1 and any(a.has(dummy) for a in moving)


def _rename_densities(terms: list[Any], level: str) -> tuple[Any, str]:
    """Return the sum of terms, and the level of rho: "sequence" where log q - log mu of whole sequences is
    log rho.

    Log densities of whole sequences have their names where the loss has none of a token.
    """
    loss = sympy.Add(*terms)
    if level == "token":
        return loss, "token"
    if level == "sequence":
        return sympy.Add(*map(_rename_sequence_densities, terms)), "token"
    weighted = loss.replace(lambda e: isinstance(e, sympy.exp), _replace_sequence_weight)
    if weighted.has(*WHOLE.values()) or _has_token_log_mu(weighted):
        return _name_sequence_sums(loss), "token"
    return weighted, "sequence"


def _rename_sequence_densities(term: Any) -> Any:
    """Return a term with plain names for log densities of its sequence; whole(..)/T stays in functions."""
    factor, e = term.as_independent(*WHOLE.values(), as_Add=False)
    named = _name_sequence_sums(e) if e.has(LENGTH) else e
    return factor * named.xreplace({whole: x for x, whole in WHOLE.items()})


def _name_sequence_sums(e: Any) -> Any:
    """Write whole(log q - log mu)/T, a mean of log ratios of tokens, and other sums of whole sequences.

    >>> _name_sequence_sums(sympy.exp((WHOLE[log_q] - WHOLE[log_mu]) / LENGTH))
    exp(whole(-log_mu + log_q)/T)
    """
    if isinstance(e, sympy.Atom):
        return Whole(next(x for x, whole in WHOLE.items() if whole == e)) if e in WHOLE.values() else e
    if not e.has(*WHOLE.values()):
        return e
    terms = sympy.Add.make_args(sympy.expand_mul(e)) if isinstance(e, sympy.Add | sympy.Mul) else ()
    linear_terms = [
        t for t in terms if t.has(*WHOLE.values()) and not t.free_symbols - {*WHOLE.values(), LENGTH}
    ]
    linear_terms = [t for t in linear_terms if not t.atoms(sympy.Function)]
    if not linear_terms:
        return e.func(*map(_name_sequence_sums, e.args))
    remainder = sympy.Add(*(_name_sequence_sums(t) for t in terms if t not in linear_terms))
    whole = sympy.expand(sympy.Add(*linear_terms) * LENGTH)
    over, inner = (LENGTH, whole) if not whole.has(LENGTH) else (1, sympy.Add(*linear_terms))
    return Whole(sympy.factor_terms(inner.xreplace({w: x for x, w in WHOLE.items()}))) / over + remainder


def _replace_sequence_weight(e: Any) -> Any:
    exponent = sympy.expand(e.args[0])
    n = exponent.coeff(WHOLE[log_q])
    if exponent.coeff(WHOLE[log_mu]) != -n or not n.is_Integer:
        return e
    return rho**n * sympy.exp(exponent - n * (WHOLE[log_q] - WHOLE[log_mu]))


def _has_token_log_mu(loss: Any) -> bool:
    """Does the loss have log mu of a token beside the weight of the sequence?"""
    return bool(loss.xreplace({rho: sympy.Dummy()}).has(log_mu))
