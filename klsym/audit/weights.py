"""The weights with which code adds up the losses of tokens and of sequences, and the words for them.

Code returns sum_bt w e, with e at a token and weights w of masks and sizes.  Numbers tell what w is, for
several masks: does it stay the same, or w times the length of its sequence, or w times all tokens of the
batch?

>>> from klsym.audit.terms import total
>>> [(weight, e, axes)] = linear(total(A * mask, "bt") / total(mask, "bt"))
>>> weight_of_token(weight), axes
(Weight(family='batch', scale=1.0, power=0), 'bt')
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import sympy

from klsym.audit.duals import Dual, evaluate
from klsym.audit.terms import Refused, Total, mask, total
from klsym.audit.tracing.shapes import COUNTS, SIZES, of_masks_alone
from klsym.language.expressions import DENSITIES, A, R

SAMPLED = ("log_q", "log_p", "log_mu", "log_old", "R", "A")
WHOLE = {x: sympy.Symbol(f"{x.name}[whole]", real=True) for x in DENSITIES}
CLOSE = 1e-5
SEQUENCES, TOKENS = float(SIZES["b"]), float(SIZES["b"] * SIZES["t"])
BATCH = {1.0: "summed over sequences", 1 / SEQUENCES: "averaged over sequences"}


class Weight(NamedTuple):
    """scale times T**power, times 1 ("sum"), 1/T ("mean") or 1/sum_i T_i ("batch"); "each": nothing is added.

    T is the length of the sequence.
    """

    family: str
    scale: float
    power: int = 0


def linear(e: Any, axes: str = "", spread: bool = False) -> list[tuple[Any, Any, str]]:
    """Triples (w, e, axes) with the formula as the sum of w e over these axes.

    axes: those that are summed over outside.  spread: values of a whole sequence, which are the same at all
    its tokens, are spread over them.
    """
    terms = []
    for term in sympy.Add.make_args(e if isinstance(e, sympy.Add) else _expanded(e)):
        terms += _term(term, axes, spread)
    return terms


def _expanded(e: Any) -> Any:
    """A product of a sum of totals with factors, as a sum of products."""
    sums = [a for a in sympy.Mul.make_args(e) if isinstance(a, sympy.Add) and a.has(Total)]
    return sympy.expand_mul(e) if sums else e


def _term(term: Any, axes: str, spread: bool) -> list[tuple[Any, Any, str]]:
    factors = sympy.Mul.make_args(term)
    holding = [a for a in factors if a.has(Total) and data_of(a)]
    if not holding:
        weight, e = split(term)
        of_sequence = spread and axes == "b" and not data_of(e) - {R, A, *WHOLE.values()}
        return [(weight / total(mask, "t") if of_sequence else weight, e, axes)]
    [first, *more] = holding
    if more or not isinstance(first, Total):
        powers = first.has(*WHOLE.values()) and isinstance(first, sympy.exp)
        inside = "a mean of the log ratios of its tokens" if powers else str(first)[:80]
        raise Refused(f"a sum over tokens inside a function that is not linear: {inside}")
    fixed, others = split(sympy.Mul(*(a for a in factors if a is not first)))
    if data_of(others) - {R, A, *WHOLE.values()}:
        raise Refused(f"a sum over tokens times what depends on a token: {str(others)[:80]}")
    inner = linear(first.args[0], axes + first.axes, spread)
    return [(fixed * w, others * e, summed) for w, e, summed in inner]


def split(product: Any) -> tuple[Any, Any]:
    """Factors of masks and sizes, and the others; a size that the code reads off a shape is a prime
    number."""
    factors = sympy.Mul.make_args(product)
    fixed = sympy.Mul(*(a for a in factors if a.has(Total) or a.free_symbols & set(COUNTS.values())))
    others = product / fixed
    parts = [
        a.as_coeff_Mul() if data_of(a) else a.as_content_primitive() for a in sympy.Mul.make_args(others)
    ]
    number = sympy.Mul(*(part[0] for part in parts))
    size = math.prod(n for n in SIZES.values() if number.q % n == 0) if number.is_Rational else 1
    return fixed / size, others * size


def data_of(e: Any) -> set[Any]:
    """The symbols that have values at each token or each sequence, masks left out."""
    fixed = set(COUNTS.values()) | {mask}
    names = {x for x in e.free_symbols if x not in fixed}
    axes = {part.args[1] for part in e.atoms(Total)}
    return {x for x in names - axes if x.name.partition("[")[0] in SAMPLED}


def masks() -> list[Any]:
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
    found = {bool(x) for value in masks() for x in evaluate(e, {mask: Dual(value)}).value.ravel()}
    return found.pop() if len(found) == 1 else None


def weight_of_token(weight: Any) -> Weight:
    """The weight of a token: a number, a number over T, or over all tokens of the batch."""
    found = _values(weight)
    return _fitted([(w, value.sum(axis=1, keepdims=True), value > 0) for w, value in found], (0,))


def weight_of_sequence(weight: Any, axes: str) -> Weight:
    """The weight of a sequence; axes: over which its values are summed, at each of its tokens or once.

    >>> weight_of_sequence(mask / total(mask, "bt"), "bt"), weight_of_sequence(1 / total(mask, "bt"), "b")
    (Weight(family='batch', scale=1.0, power=1), Weight(family='batch', scale=1.0, power=0))
    """
    values = []
    for w, value in _values(weight):
        at_once = w.sum(axis=1, keepdims=True) if "t" in axes else w[:, :1]
        values.append((at_once, value.sum(axis=1, keepdims=True), np.ones(at_once.shape, dtype=bool)))
    return _fitted(values, (0, 1, -1, 2, -2))


def _values(weight: Any) -> list[tuple[Any, Any]]:
    """The weight at each token, and the mask, for several masks."""
    if data_of(weight):
        raise Refused(f"a sum over tokens times another one: {str(weight)[:80]}")
    found = [(evaluate(weight, {mask: Dual(value)}).value, value) for value in masks()]
    return [(np.broadcast_to(w, value.shape), value) for w, value in found]


def _fitted(values: list[tuple[Any, Any, Any]], powers: tuple[int, ...]) -> Weight:
    """The only form that all weights have; values: weights, lengths, and which of them count."""
    forms = [(family, power) for power in powers for family in ("sum", "mean", "batch")]
    for family, power in forms:
        if family == "mean" and len(powers) > 1:  # of a sequence, this is the power -1
            continue
        found = [w / _form(family, power, lengths) for w, lengths, _ in values]
        flat = np.concatenate([f[valid] for f, (_, _, valid) in zip(found, values, strict=True)])
        middle = float(np.mean(flat))
        if np.ptp(flat) <= 1e-6 * abs(middle):
            return Weight(family, float(f"{middle:.6g}"), power)
    raise Refused(
        "tokens are weighted by neither a number, nor the length of their sequence, nor the batch's"
    )


def _form(family: str, power: int, lengths: Any) -> Any:
    over = {"sum": np.ones_like(lengths), "mean": lengths, "batch": np.full_like(lengths, lengths.sum())}
    return lengths**power / over[family]


def words_of(weight: Weight, level: str, axes: str) -> str:
    """The weight in words; axes: over which the code sums."""
    family, scale, power = weight
    unit = "sequence" if level == "sequence" else "token"
    if family == "each":
        return f"each {unit} by itself"
    near = next((words for value, words in BATCH.items() if abs(scale / value - 1) < CLOSE), None)
    then = near or f"multiplied by {scale:g}"
    if family == "batch":
        more = f", then {then}" if abs(scale - 1) >= CLOSE else ""
        if level != "sequence" or power == 1:
            each = "" if more else ": each weighs one over their number"
            return f"averaged over all tokens of the batch{each}{more}"
        return f"summed over sequences and divided by the number of all tokens of the batch{more}"
    if family == "sum" and abs(scale * TOKENS - 1) < CLOSE:
        return "averaged over the padded grid: each token weighs one over the number of places"
    if level == "sequence":
        return then
    start = f"{'averaged' if family == 'mean' else 'summed'} over the tokens of each sequence"
    return f"{start}, then {then}" if "b" in axes or not near else start
