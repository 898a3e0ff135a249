"""The weights with which code adds up the losses of tokens and of sequences, and the words for them.

Code returns sum_bt w e, with e at a token and weights w of masks and sizes.  Numbers tell what w is, for
several masks: does it stay the same, or w times the length of its sequence, or w times all tokens of the
batch?

>>> from klsym.audit.terms import sum_over
>>> [(weight, e, axes)] = split_weights(sum_over(A * mask, "bt") / sum_over(mask, "bt"))
>>> find_token_weight(weight), axes
(Weight(family='batch', scale=1.0, power=0), 'bt')
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import sympy

from klsym.audit.duals import Dual, evaluate
from klsym.audit.terms import Refused, Total, mask, sum_over
from klsym.audit.tracing.shapes import COUNTS, SIZES, is_of_masks_alone
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


def split_weights(e: Any, axes: str = "", spread: bool = False) -> list[tuple[Any, Any, str]]:
    """Return triples (w, e, axes) with the formula as the sum of w e over these axes.

    axes: those that are summed over outside.  spread: values of a whole sequence, which are the same at all
    its tokens, are spread over them.
    """
    terms = []
    for term in sympy.Add.make_args(e if isinstance(e, sympy.Add) else _expand_product(e)):
        terms += _split_term(term, axes, spread)
    return terms


def _expand_product(e: Any) -> Any:
    """Expand a product of a sum of totals with factors into a sum of products."""
    sums = [a for a in sympy.Mul.make_args(e) if isinstance(a, sympy.Add) and a.has(Total)]
    return sympy.expand_mul(e) if sums else e


def _split_term(term: Any, axes: str, spread: bool) -> list[tuple[Any, Any, str]]:
    factors = sympy.Mul.make_args(term)
    holding = [a for a in factors if a.has(Total) and find_data_symbols(a)]
    if not holding:
        weight, e = split_factors(term)
        of_sequence = spread and axes == "b" and not find_data_symbols(e) - {R, A, *WHOLE.values()}
        return [(weight / sum_over(mask, "t") if of_sequence else weight, e, axes)]
    [first, *further] = holding
    if further or not isinstance(first, Total):
        powers = first.has(*WHOLE.values()) and isinstance(first, sympy.exp)
        inside = "a mean of the log ratios of its tokens" if powers else str(first)[:80]
        raise Refused(f"a sum over tokens inside a function that is not linear: {inside}")
    fixed, others = split_factors(sympy.Mul(*(a for a in factors if a is not first)))
    if find_data_symbols(others) - {R, A, *WHOLE.values()}:
        raise Refused(f"a sum over tokens times what depends on a token: {str(others)[:80]}")
    inner = split_weights(first.args[0], axes + first.axes, spread)
    return [(fixed * w, others * e, summed) for w, e, summed in inner]


def split_factors(product: Any) -> tuple[Any, Any]:
    """Return the factors of masks and sizes, and the others; a size that code reads off a shape is prime."""
    factors = sympy.Mul.make_args(product)
    fixed = sympy.Mul(*(a for a in factors if a.has(Total) or a.free_symbols & set(COUNTS.values())))
    others = product / fixed
    parts = [
        a.as_coeff_Mul() if find_data_symbols(a) else a.as_content_primitive()
        for a in sympy.Mul.make_args(others)
    ]
    number = sympy.Mul(*(part[0] for part in parts))
    size = math.prod(n for n in SIZES.values() if number.q % n == 0) if number.is_Rational else 1
    return fixed / size, others * size


def find_data_symbols(e: Any) -> set[Any]:
    """Return the symbols that have values at each token or each sequence, masks left out."""
    fixed = set(COUNTS.values()) | {mask}
    names = {x for x in e.free_symbols if x not in fixed}
    axes = {part.args[1] for part in e.atoms(Total)}
    return {x for x in names - axes if x.name.partition("[")[0] in SAMPLED}


def draw_masks() -> list[Any]:
    """Return masks of sequences of different lengths, from the left, none of them empty."""
    rng = np.random.default_rng(7)
    t = np.arange(SIZES["t"])
    lengths = [rng.integers(1, SIZES["t"] + 1, size=SIZES["b"]) for _ in range(3)]
    return [(t[None, :] < n[:, None])[..., None] * 1.0 for n in lengths]


def decide_for_any_mask(e: Any) -> bool | None:
    """Return the truth of a condition on masks and sizes alone, the same for all that let a token through.

    >>> from klsym.audit.terms import make_step
    >>> count = sum_over(mask, "bt")
    >>> [decide_for_any_mask(e) for e in (mask, make_step(count), make_step(-count))]
    [None, True, False]
    """
    if not is_of_masks_alone(e):
        return None
    truths = {bool(x) for value in draw_masks() for x in evaluate(e, {mask: Dual(value)}).value.ravel()}
    return truths.pop() if len(truths) == 1 else None


def find_token_weight(weight: Any) -> Weight:
    """Return the weight of a token: a number, a number over T, or over all tokens of the batch."""
    values = _evaluate_weight(weight)
    return _recognise_weight([(w, value.sum(axis=1, keepdims=True), value > 0) for w, value in values], (0,))


def find_sequence_weight(weight: Any, axes: str) -> Weight:
    """Return the weight of a sequence; axes: over which values are summed, at each of its tokens or once.

    >>> count = sum_over(mask, "bt")
    >>> find_sequence_weight(mask / count, "bt")
    Weight(family='batch', scale=1.0, power=1)
    >>> find_sequence_weight(1 / count, "b")
    Weight(family='batch', scale=1.0, power=0)
    """
    values = []
    for w, value in _evaluate_weight(weight):
        at_once = w.sum(axis=1, keepdims=True) if "t" in axes else w[:, :1]
        values.append((at_once, value.sum(axis=1, keepdims=True), np.ones(at_once.shape, dtype=bool)))
    return _recognise_weight(values, (0, 1, -1, 2, -2))


def _evaluate_weight(weight: Any) -> list[tuple[Any, Any]]:
    """Return the weight at each token, and the mask, for several masks."""
    if find_data_symbols(weight):
        raise Refused(f"a sum over tokens times another one: {str(weight)[:80]}")
    weights = [(evaluate(weight, {mask: Dual(value)}).value, value) for value in draw_masks()]
    return [(np.broadcast_to(w, value.shape), value) for w, value in weights]


def _recognise_weight(values: list[tuple[Any, Any, Any]], powers: tuple[int, ...]) -> Weight:
    """Return the only form that all weights have; values: weights, lengths, and which of them count."""
    forms = [(family, power) for power in powers for family in ("sum", "mean", "batch")]
    for family, power in forms:
        if family == "mean" and len(powers) > 1:  # of a sequence, this is the power -1
            continue
        ratios = [w / _compute_form(family, power, lengths) for w, lengths, _ in values]
        flat = np.concatenate([f[valid] for f, (_, _, valid) in zip(ratios, values, strict=True)])
        middle = float(np.mean(flat))
        if np.ptp(flat) <= 1e-6 * abs(middle):
            return Weight(family, float(f"{middle:.6g}"), power)
    raise Refused(
        "tokens are weighted by neither a number, nor the length of their sequence, nor the batch's"
    )


def _compute_form(family: str, power: int, lengths: Any) -> Any:
    over = {"sum": np.ones_like(lengths), "mean": lengths, "batch": np.full_like(lengths, lengths.sum())}
    return lengths**power / over[family]


def describe_weight(weight: Weight, level: str, axes: str) -> str:
    """Return the weight in words; axes: over which the code sums."""
    family, scale, power = weight
    unit = "sequence" if level == "sequence" else "token"
    if family == "each":
        return f"each {unit} by itself"
    near = next((words for value, words in BATCH.items() if abs(scale / value - 1) < CLOSE), None)
    outer = near or f"multiplied by {scale:g}"
    if family == "batch":
        suffix = f", then {outer}" if abs(scale - 1) >= CLOSE else ""
        if level != "sequence" or power == 1:
            explanation = "" if suffix else ": each weighs one over their number"
            return f"averaged over all tokens of the batch{explanation}{suffix}"
        return f"summed over sequences and divided by the number of all tokens of the batch{suffix}"
    if family == "sum" and abs(scale * TOKENS - 1) < CLOSE:
        return "averaged over the padded grid: each token weighs one over the number of places"
    if level == "sequence":
        return outer
    start = f"{'averaged' if family == 'mean' else 'summed'} over the tokens of each sequence"
    return f"{start}, then {outer}" if "b" in axes or not near else start
