"""Sides of statements and their atoms in either spelling.  Standard library only.

>>> from klsym.ring import ExpPoly
>>> side(Side.atom(E("q", ExpPoly.variable("k1"), ("x",))))
'E_q[k1*s]'
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from klsym.abbreviations import (
    Atom,
    Bregman,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Indexed,
    Point,
    PointGradient,
    Side,
)
from klsym.names import SAMPLE
from klsym.render import indexed
from klsym.render.coefficients import (
    Labels,
    SidedLabels,
    element,
    label,
    loss_gradient,
    on_the_right,
    scored,
    variable,
)
from klsym.render.spelling import TEXT, Text, is_quotient, is_sum
from klsym.ring import ExpPoly, Number

__all__ = [
    "Labels", "SidedLabels", "atom", "element", "label", "loss_gradient", "on_the_right", "scored", "side",
    "variable",
]  # fmt: skip
OUTERMOST = ("sum_t ", r"\sum_t ")  # of the value at one sequence


def side(value: Side, labels: Labels | None = None, spell: Text = TEXT) -> str:
    """A side of a statement; losses appear as they were written where `labels` knows them."""
    if not value.terms:
        return "0"
    terms = [_as_written(*term, labels or {}) for term in indexed.with_scores_together(value.terms)]
    text = ""
    for coefficient, atoms in sorted(terms, key=lambda t: _is_negative(t[0])):
        negative = _is_negative(coefficient)
        shown = _side_term(-coefficient if negative else coefficient, atoms, labels or {}, spell)
        if is_sum(shown) and _is_bare(atoms):
            shown = spell.bracket(shown) if negative else shown
            negative, shown = negative or shown.startswith("-"), shown.removeprefix("-")
        text += (" - " if negative else " + ") + shown
    return text.removeprefix(" + ") if text.startswith(" + ") else "-" + text.removeprefix(" - ")


def _is_negative(coefficient: ExpPoly) -> bool:
    return all(value < 0 for value in coefficient.terms.values())


def _is_bare(atoms: tuple[Atom, ...]) -> bool:
    """A constant or the value at one sample, which prints without brackets of its own."""
    return all(isinstance(item, Indexed) and item.measure == SAMPLE for item in atoms) and len(atoms) < 2


def _side_term(coefficient: ExpPoly, atoms: tuple[Atom, ...], labels: Labels, spell: Text) -> str:
    alone = len(atoms) == 1 and coefficient == ExpPoly.number(1)
    factors = [_factor(item, alone, labels, spell) for item in atoms]
    if coefficient != ExpPoly.number(1) or not factors:
        shown = element(coefficient, spell)
        compound = len(coefficient.terms) > 1 or (spell is TEXT and is_quotient(shown))
        factors.insert(0, spell.bracket(shown) if compound and factors else shown)
    return (" " if spell is TEXT else r"\,").join(factors)


def _factor(item: Atom, alone: bool, labels: Labels, spell: Text) -> str:
    """An atom of a product; a value at one batch or sequence may be a sum."""
    shown = atom(item, labels, spell)
    open_ended = (isinstance(item, Indexed) and is_sum(shown)) or shown.startswith(OUTERMOST)
    return spell.bracket(shown) if open_ended and not alone else shown


def _as_written(
    coefficient: ExpPoly, atoms: tuple[Atom, ...], labels: Labels
) -> tuple[ExpPoly, tuple[Atom, ...]]:
    """A product with each mean as it was written: E_q[k2] E_q[k2], not E_q[k1^2] E_q[k1^2] / 4.

    A single negative value at a sample is subtracted: grad L - k1 s, not grad L + -k1 s.
    """
    if len(atoms) == 1 and isinstance(atoms[0], Point):
        a = atoms[0].coefficient
        if len(a.terms) == 1 and _is_negative(a) and a not in labels:
            return -coefficient, (Point(-a, atoms[0].score),)
    if len(atoms) == 1 and isinstance(atoms[0], Indexed) and _is_negative(atoms[0].coefficient):
        return -coefficient, (replace(atoms[0], coefficient=-atoms[0].coefficient),)
    factors: list[Atom] = []
    for item in atoms:
        if len(atoms) > 1 and isinstance(item, E) and item.coefficient not in labels:
            lead = {known: _multiple(known, item.coefficient) for known in labels}
            known = next((known for known, number in lead.items() if number), item.coefficient)
            coefficient = coefficient * (1 / Fraction(lead.get(known, 1)))
            item = E(item.measure, known, item.score)
        factors.append(item)
    return coefficient, tuple(factors)


def _multiple(a: ExpPoly, b: ExpPoly) -> Number:
    """The rational c with a = c b, or 0."""
    key = min(b.terms)
    c = Fraction(a.terms.get(key, 0)) / b.terms[key]
    return c if a == b * c else 0


def atom(value: Atom, labels: Labels, spell: Text) -> str:
    match value:
        case E(measure, a, score):
            return spell.expectation(measure, scored(a, score, labels, spell))
        case ExpectedGradient(measure, loss):
            return spell.expectation(measure, loss_gradient(loss, labels, spell))
        case Point(a, score):
            return scored(a, score, labels, spell)
        case PointGradient(loss):
            return loss_gradient(loss, labels, spell)
        case Divergence(kind, a, b):
            return spell.divergence(kind, a, b)
        case Covariance(measure, a, b):
            return spell.covariance(measure, label(a, labels, spell), label(b, labels, spell))
        case Bregman(phi):
            return spell.bregman(label(phi, labels, spell))
        case Gradient(of):
            shown = side(of, labels, spell)
            return spell.gradient_of(shown, len(of.terms) == 1 and not shown.startswith("-"))
    return indexed.atom(value, labels, spell)
