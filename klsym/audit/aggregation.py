"""From what code returns to the loss of one token: sums and means over tokens are taken off and named.

Code returns sum_bt w e, with e at a token and weights w of masks and sizes.  w is told by numbers, for
several
masks: does it stay the same, or w times the length of its sequence, or w times all tokens of the batch?

>>> from klsym.audit.terms import mask, total
>>> from klsym.language.expressions import k1
>>> tokens_of(total(total(mask * k1, "t") / total(mask, "t"), "b")).words
'averaged over the tokens of each sequence, then summed over sequences'
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from klsym.audit.duals import Dual, evaluate
from klsym.audit.terms import VOCABULARY, Refused, Top, Total, exact, grammar, mask, total
from klsym.audit.tracing.shapes import COUNTS, SIZES, of_masks_alone
from klsym.language.expressions import DENSITIES, A, M, R, log_mu, log_q, parameter, rho, sg, without_sg
from klsym.language.sums import OverVocabulary, Whole

ONE, LENGTH = sympy.S.One, parameter("T")
SAMPLED = ("log_q", "log_p", "log_mu", "log_old", "R", "A")
WHOLE = {x: sympy.Symbol(f"{x.name}[whole]", real=True) for x in DENSITIES}
CLOSE = 1e-5
SEQUENCES, TOKENS = float(SIZES["b"]), float(SIZES["b"] * SIZES["t"])
BATCH = {1.0: "summed over sequences", 1 / SEQUENCES: "averaged over sequences"}


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


def tokens_of(formula: Any) -> Tokens:
    """The loss of one token in the loss grammar; raises Refused for what is no such sum."""
    found, over_vocabulary = _exact_means(_once_masked(_inwards(_without_weights(formula))))
    found, level = _whole_sequences(found)
    terms = _linear(found, "" if level == "both" else None)
    classes: dict[tuple[str, float], list[tuple[Any, Any]]] = {}
    for weight, e in terms:
        if e.free_symbols - {mask} or not classes:
            classes.setdefault(_class(weight, found, level), []).append((weight, e))
    if len(classes) > 1:
        named = "; ".join(_words(key, level, True) for key in classes)
        raise Refused(f"terms that are put together in different ways: {named}")
    [(key, members)] = classes.items()
    family, _ = key
    loss = sum((e for _, e in members), start=sympy.S.Zero)
    if level == "sequence" and family in ("sum", "batch") and any("t" in e.axes for e in found.atoms(Total)):
        loss *= LENGTH  # the same at each of its tokens
    loss, weights = _renamed(loss, level)
    aggregate = {"each": "", "sum": "sum", "mean": "mean", "batch": "batch"}[family]
    over_batch = any("b" in e.axes for e in found.atoms(Total))
    words = _words(key, level, over_batch)
    shown = "sequence" if level == "sequence" else "token"
    return Tokens(grammar(loss), words, shown, weights, aggregate, over_vocabulary, loss)


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
    values = [evaluate(weight, {mask: Dual(value)}).value.ravel() for value in _masks()]
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
def _whole_sequences(formula: Any) -> tuple[Any, str]:
    """Sums of log densities over tokens inside functions: those of whole sequences."""
    inside = [e for e in formula.atoms(Total) if e.axes == "t" and _log_densities(e.args[0])]
    nonlinear = [e for e in inside if _bends(formula, e)]
    if not nonlinear:
        return formula, "token"
    found = formula.xreplace({e: e.args[0].xreplace({**WHOLE, mask: ONE}) for e in inside})
    found = found.replace(lambda e: isinstance(e, sympy.Mul) and e.has(*WHOLE.values()), _over_length)
    moving = found.free_symbols & {*WHOLE}
    return found, "both" if moving else "sequence"


def _over_length(product: Any) -> Any:
    """Of a mean over the tokens of a sequence, inside a function: its length is T."""
    w, x = _split(product)
    linear = any(_is_sum(factor) for factor in sympy.Mul.make_args(x))
    return _length_of(w, product) * x if linear and w != 1 else product


def _is_sum(e: Any) -> bool:
    """A combination of the log densities of whole sequences."""
    plain = without_sg(e)
    return bool(plain.free_symbols) and plain.free_symbols <= {*WHOLE.values()} and not plain.atoms(sympy.exp)


def _length_of(weight: Any, term: Any) -> Any:
    """A weight of masks as a number, or as a number over T."""
    family, scale = _class(weight, term, "sequence")
    if family == "batch":
        raise Refused("a mean over all tokens of the batch inside a function that is not linear")
    return exact(scale) / (LENGTH if family == "mean" else 1)


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


def _renamed(loss: Any, level: str) -> tuple[Any, str]:
    """The log densities of whole sequences by their names, where no token's stand beside them; else rho is
    theirs."""
    if level == "token":
        return loss, "token"
    if level == "sequence":
        named = _with_named_sums(loss) if loss.has(LENGTH) else loss
        return named.xreplace({whole: x for x, whole in WHOLE.items()}), "token"
    weighted = loss.replace(lambda e: isinstance(e, sympy.exp), _sequence_weight)
    if weighted.has(*WHOLE.values()) or _beside(weighted):
        return _with_named_sums(loss), "token"
    return weighted, "sequence"


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


# ---------------------------------------------------------------------------- the weights
def _linear(e: Any, axes: str | None = None) -> list[tuple[Any, Any]]:
    """Pairs (w, e) with the formula as the sum of w e over tokens.

    axes: those that are summed over outside, where what belongs to a whole sequence, which is the same at
    all its tokens, is spread over them.
    """
    terms = []
    for term in sympy.Add.make_args(e if isinstance(e, sympy.Add) else _expanded(e)):
        terms += _term(term, axes)
    return terms


def _expanded(e: Any) -> Any:
    """A product of a sum of totals with factors, as a sum of products."""
    sums = [a for a in sympy.Mul.make_args(e) if isinstance(a, sympy.Add) and a.has(Total)]
    return sympy.expand_mul(e) if sums else e


def _term(term: Any, axes: str | None) -> list[tuple[Any, Any]]:
    factors = sympy.Mul.make_args(term)
    holding = [a for a in factors if a.has(Total) and _data(a)]
    if not holding:
        weight, e = _split(term)
        of_sequence = not _data(e) - {*WHOLE.values()}
        return [(weight / total(mask, "t") if axes == "b" and of_sequence else weight, e)]
    [first, *more] = holding
    if more or not isinstance(first, Total):
        powers = first.has(*WHOLE.values()) and isinstance(first, sympy.exp)
        inside = "a mean of the log ratios of its tokens" if powers else str(first)[:80]
        raise Refused(f"a sum over tokens inside a function that is not linear: {inside}")
    fixed, others = _split(sympy.Mul(*(a for a in factors if a is not first)))
    if _data(others) - {R, A, *WHOLE.values()}:
        raise Refused(f"a sum over tokens times what depends on a token: {str(others)[:80]}")
    inner = axes if axes is None else axes + first.axes
    return [(fixed * w, others * e) for w, e in _linear(first.args[0], inner)]


def _split(product: Any) -> tuple[Any, Any]:
    """Factors of masks and sizes, and the others; a size that the code reads off a shape is a prime
    number."""
    factors = sympy.Mul.make_args(product)
    fixed = sympy.Mul(*(a for a in factors if a.has(Total) or a.free_symbols & set(COUNTS.values())))
    others = product / fixed
    split = [a.as_coeff_Mul() if _data(a) else a.as_content_primitive() for a in sympy.Mul.make_args(others)]
    number = sympy.Mul(*(part[0] for part in split))
    size = math.prod(n for n in SIZES.values() if number.q % n == 0) if number.is_Rational else 1
    return fixed / size, others * size


def _data(e: Any) -> set[Any]:
    fixed = set(COUNTS.values()) | {mask}
    names = {x for x in e.free_symbols if x not in fixed}
    axes = {part.args[1] for part in e.atoms(Total)}
    return {x for x in names - axes if x.name.partition("[")[0] in SAMPLED}


def _masks() -> list[Any]:
    """Masks of sequences of different lengths, from the left, none of them empty."""
    rng = np.random.default_rng(7)
    t = np.arange(SIZES["t"])
    lengths = [rng.integers(1, SIZES["t"] + 1, size=SIZES["b"]) for _ in range(3)]
    return [(t[None, :] < n[:, None])[..., None] * 1.0 for n in lengths]


def of_any_mask(e: Any) -> bool | None:
    """The truth of a condition on masks and sizes alone, the same for all that let a token through.

    >>> from klsym.audit.terms import step
    >>> of_any_mask(mask), of_any_mask(step(total(mask, "bt"))), of_any_mask(step(-total(mask, "bt")))
    (None, True, False)
    """
    if not of_masks_alone(e):
        return None
    found = {bool(x) for value in _masks() for x in evaluate(e, {mask: Dual(value)}).value.ravel()}
    return found.pop() if len(found) == 1 else None


def _class(weight: Any, formula: Any, level: str) -> tuple[str, float]:
    """How tokens are put together, and with what factor."""
    reduced = bool(formula.atoms(Total)) or weight.free_symbols
    if not reduced:
        return "each", 1.0
    if _data(weight):
        raise Refused(f"a sum over tokens times another one: {str(weight)[:80]}")
    families: dict[str, list[float]] = {"sum": [], "mean": [], "batch": []}
    for value in _masks():
        w = np.broadcast_to(evaluate(weight, {mask: Dual(value)}).value, value.shape)
        valid = value > 0
        families["sum"] += list(w[valid])
        families["mean"] += list((w * value.sum(axis=1, keepdims=True))[valid])
        families["batch"] += list((w * value.sum())[valid])
    for family, found in families.items():
        middle = float(np.mean(found))
        if np.ptp(found) <= 1e-6 * abs(middle):
            return family, float(f"{middle:.6g}")
    raise Refused(
        "tokens are weighted by neither a number, nor the length of their sequence, nor the batch's"
    )


def _words(key: tuple[str, float], level: str, over_batch: bool) -> str:
    family, scale = key
    unit = "sequences" if level == "sequence" else "tokens"
    if family == "each":
        return f"each {unit[:-1]} by itself"
    if family == "batch":
        return "averaged over all tokens of the batch: each weighs one over their number"
    if abs(scale * TOKENS - 1) < CLOSE:
        return "averaged over the padded grid: each token weighs one over the number of places"
    near = next((words for value, words in BATCH.items() if abs(scale / value - 1) < CLOSE), None)
    then = near or f"multiplied by {scale:g}"
    if level == "sequence":
        return then
    start = f"{'averaged' if family == 'mean' else 'summed'} over the tokens of each sequence"
    return f"{start}, then {then}" if over_batch or not near else start


def on_level(level: str, asked: str | None, tokens: Tokens) -> list[str]:
    """Where the code aggregates over tokens: the level that is explained, and why."""
    if not tokens.aggregate or level == tokens.level == "sequence":
        return []
    if level == "token":
        more = "" if asked else "; --level sample explains a single token"
        return [f"level token, since the loss is {tokens.words}{more}"]
    return [f"level {level}, as asked: that the loss is {tokens.words} is left out"]
