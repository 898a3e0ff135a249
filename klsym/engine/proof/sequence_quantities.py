"""Quantities at an index of a batch or a sequence: means over i, sums over t.  Untrusted.

>>> from klsym.language.expressions import k1, now, past, s
>>> sum_over_t(now(k1) * past(s), under="q")
E_q[sum_t k1_now*s_past]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klsym.engine.proof.quantities import Quantity
from klsym.errors import UsageError
from klsym.kernel.names import PROBABILITIES, SAMPLE
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import is_score
from klsym.language.abbreviations import (
    Curl,
    Gradient,
    Indexed,
    IndexedGradient,
    MeanVariance,
    Score,
    Side,
    TokenDivergence,
    as_side,
    pair_elements_with_slots,
)
from klsym.language.convert import find_generic_functions, to_ring
from klsym.language.expressions import s as score_symbol


def has_steps(*sides: Side) -> bool:
    """Do sides contain a sum over the tokens of sequences, or their length?"""
    for side in sides:
        atoms = [atom for _, factors in side.terms for atom in factors]
        if any("t" in a.index for a in atoms if isinstance(a, Indexed | IndexedGradient)):
            return True
        if any(isinstance(a, TokenDivergence | Curl) for a in atoms):
            return True
        if has_steps(*(a.of for a in atoms if isinstance(a, Gradient))):
            return True
    return any("length" in element.names() for side in sides for element, _ in pair_elements_with_slots(side))


def split_scores(expression: Any, index: str) -> dict[Score, ExpPoly]:
    """Return the coefficients of the products of score functions of slots.

    >>> from klsym.language.expressions import future, now, s
    >>> sorted(split_scores(now(s) + 2 * now(s) * future(s), "t"))
    [('future', 'now'), ('now',)]

    Raises UsageError: a score function of a foreign slot, or one that is no plain factor.
    """
    coefficients: dict[Score, ExpPoly] = {}
    for (monomial, exponent), value in to_ring(expression).terms.items():
        scores = [(name, power) for name, power in monomial if _is_score(name)]
        factors = tuple(item for item in monomial if not _is_score(item[0]))
        is_hidden = any(_is_score(name) for inner, _ in exponent for name, _ in inner)
        if is_hidden or any(power < 0 for _, power in scores):
            raise UsageError(f"{expression}: the score function s stands in positive powers only")
        entries = [_read_slot(name) for name, power in scores for _ in range(power)]
        if not all(is_score(entry, index) for entry in entries):
            raise UsageError(f"{expression}: this index has no score function of {sorted(set(entries))}")
        score = tuple(sorted(entries))
        coefficients[score] = coefficients.get(score, ExpPoly({})) + ExpPoly({(factors, exponent): value})
    return coefficients


def _is_score(name: str) -> bool:
    return name.partition("[")[0] == score_symbol.name


def _read_slot(name: str) -> str:
    return name.partition("[")[2].removesuffix("]") or "x"


def _require_measure(under: str, also: tuple[str, ...] = ()) -> str:
    if under not in (*PROBABILITIES, *also):
        known = ", ".join((*PROBABILITIES, *also))
        raise UsageError(f"under={under!r}: one of {known} expected")
    return under


def _build_scored(of: Any, index: str, build: Callable[[ExpPoly, Score], Any]) -> Quantity:
    total = Quantity(Side(), find_generic_functions(of))
    for score, part in split_scores(of, index).items():
        labels = {} if score else {part: of}
        total = total + Quantity(as_side(build(part, score)), {}, labels)
    return total


# ---------------------------------------------------------------------------- sequences
def sum_over_t(of: Any, under: str) -> Quantity:
    r"""E_m[sum_t a], a in the slots past, now and future of each step, or of the whole sequence.

    E_m[\sum_{t=1}^T a_t s_t], T random.

    >>> from klsym.language.expressions import future, k1, now, s
    >>> sum_over_t((now(k1) + future(k1)) * now(s), under="q")
    E_q[sum_t (k1_now + k1_future)*s_now]

    under: q, p, mu, or "sample" for the sum at one sequence.  Raises UsageError: another measure, a slot of
    a batch.
    """
    _require_measure(under, (SAMPLE,))
    return _build_scored(of, "t", lambda a, score: Indexed("t", under, a, score))


def token_gradient(loss: Any, under: str) -> Quantity:
    """E_m[sum_t grad L_t]: what automatic differentiation of a sum of token losses averages.

    >>> from klsym.language.expressions import k2, now
    >>> token_gradient(now(k2), under="q")
    E_q[sum_t grad k2_now]

    under: as in `sum_over_t`.
    """
    _require_measure(under, (SAMPLE,))
    element = _read_loss(loss)
    return Quantity(
        Side.from_atom(IndexedGradient("t", under, element)), find_generic_functions(loss), {element: loss}
    )


def _read_loss(loss: Any) -> ExpPoly:
    element = to_ring(loss)
    if any(_is_score(name) for name in element.names()):
        raise UsageError(f"{loss}: a loss does not hold the score function s")
    return element


def token_KL(a: str, b: str, prefixes: str = "q") -> Quantity:
    """E_m[sum_t KL(a(.|y_<t)||b(.|y_<t))]: exact next-token divergences along prefixes drawn from m."""
    return Quantity(
        as_side(TokenDivergence(_require_measure(prefixes), _require_measure(a), _require_measure(b)))
    )


def token_KL_gradient(a: str, b: str, prefixes: str = "q") -> Quantity:
    """E_m[sum_t grad KL(a(.|y_<t)||b(.|y_<t))], the prefixes drawn from m and held fixed."""
    return Quantity(
        as_side(TokenDivergence(_require_measure(prefixes), _require_measure(a), _require_measure(b), True))
    )


def curl(loss: Any, under: str) -> Quantity:
    """d_v F.u - d_u F.v for the field F = E_m[sum_t grad L_t]: 0 if F is the gradient of any function."""
    element = _read_loss(loss)
    return Quantity(
        Side.from_atom(Curl("t", _require_measure(under), element)),
        find_generic_functions(loss),
        {element: loss},
    )


# ---------------------------------------------------------------------------- batches
def mean_over_i(of: Any, under: str, steps: bool = False) -> Quantity:
    r"""E_m[mean_i a], a in the slots own and others of each sample of a batch of n independent ones.

    E_m[\frac1n\sum_i a(x_i, x_{-i})].

    >>> from klsym.language.expressions import k1, others, own, parameter, s
    >>> mean_over_i((own(k1) - others(k1) / parameter("m")) * own(s), under="q")
    E_q[mean_i (k1_self - k1_others/m)*s_self]

    under: q, p, mu, or "sample" for the value at one i of one batch.  steps: the samples are sequences, and a
    is summed over the steps of each, E_m[mean_i sum_t a].
    """
    _require_measure(under, (SAMPLE,))
    index = "it" if steps else "i"
    return _build_scored(of, index, lambda a, score: Indexed(index, under, a, score))


def variance_of_mean(of: Any, under: str) -> Quantity:
    """Var_m(mean_i a s_i), a in the slots own and others, along any direction of theta."""
    _require_measure(under)
    parts = split_scores(of, "i")
    if len(parts) != 1 or set(next(iter(parts))) - {"self"}:
        raise UsageError(f"variance_of_mean: a product with one power of own(s) expected, got {of}")
    [(score, a)] = parts.items()
    return Quantity(as_side(MeanVariance(under, a, score)), find_generic_functions(of))
