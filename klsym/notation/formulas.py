"""Sides of statements and their atoms as trees, and in print.  Standard library only.

A mean is one thing at every index, that of a single sample included; sums over slots are sums over positions.

>>> from klsym.kernel.ring import ExpPoly
>>> from klsym.notation.printers import LATEX
>>> togo = ExpPoly.from_variable("k1[now]") + ExpPoly.from_variable("k1[future]")
>>> show_side(Side.from_atom(Mean("t", "q", togo, ("now",))))
'E_q[sum_t (k1_now + k1_future)*s_now]'
>>> show_atom(Mean("t", "sample", togo, ("now",)), {}, LATEX)
'\\\\sum_t s_t \\\\sum_{u\\\\ge t} k_{1,u}'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from klsym.kernel.names import SAMPLE, SAMPLE_BASES, parse_name
from klsym.kernel.ring import ONE, ExpPoly
from klsym.kernel.ring import Number as Rational
from klsym.kernel.slots import SECOND, find_slot, name_in_slot
from klsym.language.abbreviations import (
    Atom,
    Bregman,
    Covariance,
    Curl,
    Divergence,
    Gradient,
    Mean,
    MeanGradient,
    MeanVariance,
    Score,
    Side,
    TokenDivergence,
)
from klsym.notation import tree
from klsym.notation.coefficients import build_coefficient, show_element, show_variable
from klsym.notation.positions import SLOT_ORDER, TOGETHER, build_in_slot
from klsym.notation.printers import TEXT, Text
from klsym.notation.tree import Formula, Minus, Name, Number, Power, Product, add_terms, multiply, negate
from klsym.notation.variances import as_variances

__all__ = [
    "Labels",
    "SidedLabels",
    "build_equation",
    "build_scored",
    "build_tree",
    "choose_right_labels",
    "show_atom",
    "show_element",
    "show_side",
    "show_variable",
]

Labels = Mapping[ExpPoly, Any]
Term = tuple[ExpPoly, tuple[Atom, ...]]


class SidedLabels(dict[ExpPoly, Any]):
    """The spelling of losses on the left side, and in `right` that on the right side.

    For statements that write one and the same function in two ways.
    """

    def __init__(self, left: Labels, right: Labels) -> None:
        super().__init__(left)
        self.right = right


def choose_right_labels(labels: Labels | None) -> Labels | None:
    return labels.right if isinstance(labels, SidedLabels) else labels


def show_side(value: Side, labels: Labels | None = None, spell: Text = TEXT) -> str:
    """Return a side of a statement; losses in `labels` appear as they were written."""
    return spell(build_tree(value, labels, spell.positions))


def show_atom(value: Atom, labels: Labels, spell: Text) -> str:
    return spell(_build_atom(value, labels, spell.positions))


# ---------------------------------------------------------------------------- sides
def build_tree(value: Side, labels: Labels | None = None, sums: bool = False) -> Formula:
    """Build the tree of a side; sums: with sums over positions, as in mathematics."""
    variances, others = as_variances(value.terms)
    written = (_as_written(*term, labels or {}) for term in _combine_scores(others))
    terms = [_build_term(scale, atoms, labels or {}, sums) for scale, atoms in written]
    terms += [_build_variance(scale, of, labels or {}, sums) for scale, of in variances]
    terms.sort(key=lambda term: isinstance(term, Minus))
    return add_terms(*terms)


def _build_variance(scale: ExpPoly, of: Mean, labels: Labels, sums: bool) -> Formula:
    """Build Var_m of a mean's value, as it was written up to its sign."""
    written = (known for known in labels if abs(_find_multiple(known, of.coefficient)) == 1)
    inner = build_scored("", a=next(written, of.coefficient), score=of.score, labels=labels, sums=sums)
    covariance: Formula = tree.Covariance(of.measure, inner, inner)
    if _is_negative(scale):
        return negate(_build_variance(-scale, of, labels, sums))
    return covariance if scale == ONE else Product((build_coefficient(scale, sums), covariance), loose=True)


def _is_negative(scale: ExpPoly) -> bool:
    return all(value < 0 for value in scale.terms.values())


def _build_term(scale: ExpPoly, atoms: tuple[Atom, ...], labels: Labels, sums: bool) -> Formula:
    if _is_negative(scale):
        return negate(_build_term(-scale, atoms, labels, sums))
    factors = [_build_atom(item, labels, sums) for item in atoms]
    if scale != ONE or not factors:
        factors.insert(0, build_coefficient(scale, sums))
    return Product(tuple(factors), loose=True) if len(factors) > 1 else factors[0]


def _as_written(scale: ExpPoly, atoms: tuple[Atom, ...], labels: Labels) -> Term:
    """Return a product with each mean as it was written: E_q[k2] E_q[k2], not E_q[k1^2] E_q[k1^2] / 4.

    The sign of a mean over positions goes before it.
    """
    first = atoms[0] if len(atoms) == 1 else None
    negative = isinstance(first, Mean) and first.index and _is_negative(first.coefficient)
    if isinstance(first, Mean) and negative and first.coefficient not in labels:
        return -scale, (replace(first, coefficient=-first.coefficient),)
    factors: list[Atom] = []
    for item in atoms:
        if len(atoms) > 1 and isinstance(item, Mean) and item.coefficient not in labels:
            lead = {known: _find_multiple(known, item.coefficient) for known in labels}
            known = next((known for known, number in lead.items() if number), item.coefficient)
            scale = scale * (1 / Fraction(lead.get(known, 1)))
            item = replace(item, coefficient=known)
        factors.append(item)
    return scale, tuple(factors)


def _find_multiple(a: ExpPoly, b: ExpPoly) -> Rational:
    """Find the rational c with a = c b, or 0."""
    key = min(b.terms)
    c = Fraction(a.terms.get(key, 0)) / b.terms[key]
    return c if a == b * c else 0


# ---------------------------------------------------------------------------- atoms
def _build_atom(value: Atom, labels: Labels, sums: bool) -> Formula:
    match value:
        case Mean(index, measure, a, score):
            return _build_average(index, measure, build_scored(index, a, score, labels, sums=sums))
        case MeanGradient(index, measure, loss):
            return _build_average(index, measure, tree.Gradient(_build_label(loss, index, labels, sums)))
        case Curl(index, measure, loss):
            return tree.Curl(_build_atom(MeanGradient(index, measure, loss), labels, sums))
        case MeanVariance(measure, a, score):
            mean = tree.Over("i", build_scored("i", a, score, labels={}, sums=sums))
            return tree.Covariance(measure, mean, mean)
        case TokenDivergence(measure, a, b, gradient):
            shown: Formula = tree.Divergence("KL", Name(a, "t"), Name(b, "t"))
            return _build_average("t", measure, tree.Gradient(shown) if gradient else shown)
        case Divergence(kind, a, b):
            return tree.Divergence(kind, Name(a), Name(b))
        case Covariance(measure, a, b):
            return tree.Covariance(measure, *(_build_label(x, "", labels, sums) for x in (a, b)))
        case Bregman(phi):
            return tree.Bregman(_build_label(phi, "", labels, sums))
        case Gradient(of):
            return tree.Gradient(build_tree(of, labels, sums))
    raise TypeError(f"{type(value).__name__} is no atom")


def _build_average(index: str, measure: str, inner: Formula) -> Formula:
    """Build E_m[sum_t inner]; at one sequence without E_m, at one sample of a batch without mean_i."""
    if measure != SAMPLE:
        return tree.Mean(measure, tree.Over(index, inner) if index else inner)
    return tree.Over("t", inner) if "t" in index else inner


def _build_label(value: ExpPoly, index: str, labels: Labels, sums: bool) -> Formula:
    """Build the loss as it was written, or its normal form."""
    if value not in labels:
        return build_coefficient(_merge_slots(value, index, sums), sums)
    from klsym.notation import losses  # needs SymPy, as whoever made the label does

    return losses.build_tree(labels[value], sums)


def build_equation(value: ExpPoly, sums: bool = False) -> Formula:
    """Build value = 0 with its negative terms on the right; k1 = 0 is r = 1."""
    for name, ratio in (("k1", "r"), ("w", "rho")):
        if set(value.terms) == {(((name, 1),), ())}:
            return tree.Relation(Name(ratio), "=", Number(1))
    above = ExpPoly({key: c for key, c in value.terms.items() if c > 0})
    left, right = (above, above - value) if above else (-value, above)
    return tree.Relation(build_coefficient(left, sums), "=", build_coefficient(right, sums))


def build_scored(index: str, a: ExpPoly, score: Score, labels: Labels, sums: bool) -> Formula:
    """Build a s, a s^2, or a alone."""
    if a in labels and not (score and (index or a in (ONE, -ONE))):
        tail = _build_scores(score, index, sums)
        return (
            multiply(_build_label(a, index, labels, sums), *tail)
            if tail
            else _build_label(a, index, labels, sums)
        )
    return _build_unlabelled(index, a, score, sums)


@lru_cache(maxsize=1024)
def _build_unlabelled(index: str, a: ExpPoly, score: Score, sums: bool) -> Formula:
    return build_coefficient(_merge_slots(a, index, sums), sums, *_build_scores(score, index, sums))


def _build_scores(score: Score, index: str, sums: bool) -> tuple[Formula, ...]:
    score = tuple(sorted(score, key=_get_score_order))
    two = any(entry.endswith(SECOND) for entry in score)
    tail = tuple(_build_score(entry, index, two, sums) for entry in score)
    return (Power(tail[0], Number(len(tail))),) if len(tail) > 1 and len({*score}) == 1 else tail


def _get_score_order(entry: str) -> tuple[bool, int]:
    """Return the sort key: first direction before second, past before now before future, self first."""
    slot = find_slot(entry)
    return entry.endswith(SECOND), SLOT_ORDER.index(slot) if slot in SLOT_ORDER else len(SLOT_ORDER)


def _build_score(entry: str, index: str, two: bool, sums: bool) -> Formula:
    """Build s_t, sum_{u<t} s_u, or u.s_t and v.s_t along two directions."""
    slot = find_slot(entry)
    if sums:
        shown = build_in_slot("s", _choose_slot(slot, index), sums)
    else:
        shown = add_terms(*(build_in_slot("s", part, sums) for part in TOGETHER.get(slot, (slot,))))
    return tree.Along("v" if entry.endswith(SECOND) else "u", shown) if two else shown


def _choose_slot(slot: str, index: str) -> str:
    """Return the slot to print; in a batch of sequences every step has its i as well."""
    return f"i_{slot}" if index == "it" and slot != "others" else slot


# ---------------------------------------------------------------------------- merging
def _merge_slots(a: ExpPoly, index: str, sums: bool) -> ExpPoly:
    """Merge sums over adjacent slots in a coefficient where that makes it shorter."""
    if not index or not sums:
        return a
    for base in sorted({name for name in a.names() if parse_name(name).slot != "x"}):
        a = _find_shortest(a, _remove_slot(base))
    a = a.substitute({"length[now]": ONE})
    return a.rename(lambda name: name_in_slot(_remove_slot(name), _choose_slot_in_print(name, index)))


def _choose_slot_in_print(name: str, index: str) -> str:
    parsed = parse_name(name)
    is_parameter = parsed.slot == "x" and parsed.base not in SAMPLE_BASES
    return "x" if is_parameter else _choose_slot(parsed.slot, index)


def _remove_slot(name: str) -> str:
    head, _, tail = name.partition("[")
    return head + tail.partition("]")[2]


def _find_shortest(a: ExpPoly, base: str) -> ExpPoly:
    """Return the shortest form under V_past = V_upto - V_now and the like.

    Only with another part of the sum do terms cancel.
    """
    best, names = a, a.names()
    for together, parts in TOGETHER.items():
        present_parts = [part for part in parts if name_in_slot(base, part) in names]
        for part in present_parts if len(present_parts) > 1 else ():
            others = (ExpPoly.from_variable(name_in_slot(base, p)) for p in parts if p != part)
            value = sum((other * -1 for other in others), ExpPoly.from_variable(name_in_slot(base, together)))
            candidate = a.substitute({name_in_slot(base, part): value})
            best = candidate if _count_symbols(candidate) < _count_symbols(best) else best
    return best


def _count_symbols(a: ExpPoly) -> int:
    return sum(
        1 + sum(abs(power) for m in (monomial, *(m for m, _ in exponent)) for _, power in m)
        for monomial, exponent in a.terms
    )


def _combine_scores(terms: Iterable[Term]) -> list[Term]:
    """Combine sums over t that differ only in the slot of their score."""
    combined: list[Term] = []
    groups: dict[Mean, list[str]] = {}  # by the value without its score
    for scale, atoms in terms:
        item = atoms[0] if len(atoms) == 1 else None
        if isinstance(item, Mean) and item.index and len(item.score) == 1 and scale == ONE:
            groups.setdefault(replace(item, score=()), []).append(item.score[0])
        else:
            combined.append((scale, atoms))
    for item, slots in groups.items():
        combined += [(ONE, (replace(item, score=(slot,)),)) for slot in _combine_slots(slots)]
    return combined


def _combine_slots(slots: list[str]) -> list[str]:
    remaining = list(slots)
    chosen = []
    for together, parts in TOGETHER.items():
        if set(parts) <= set(remaining):
            chosen.append(together)
            remaining = [slot for slot in remaining if slot not in parts]
    return [*chosen, *remaining]
