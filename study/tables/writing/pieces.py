"""Pieces of a theorem as cells: its region, its premises, when it is an equality.

>>> from klsym.study.tables.writing.ledger_lookup import quote
>>> show_region(quote("variance.sufficient-region")).pieces[0]
('math', 'r \\\\le \\\\exp(\\\\tfrac{1}{2})')
"""

from __future__ import annotations

import re
from fractions import Fraction

from klsym.kernel.ring import ExpPoly
from klsym.language.abbreviations import Side
from klsym.notation import formulas
from klsym.notation.printers import LATEX
from klsym.notation.text import find_equality as equality_of
from klsym.study.tables.writing.ledger_lookup import Quote
from klsym.study.tables.writing.table import Cell, math, words


def show_side(value: Side, found: Quote) -> Cell:
    """A side that follows from those of a theorem by adding and scaling, with its letters and its claims."""
    return math(formulas.show_side(value, found.proof.labels, LATEX), *found.claims)


def show_region(found: Quote) -> Cell:
    """The region among the hypotheses of a theorem: c + d k1 >= 0 is log r <= c/d, for d > 0.

    Raises ValueError: no such region.
    """
    regions = [row for row in found.proof.theorem.hypotheses if row[0] == "nonnegative"]
    if len(regions) != 1:
        raise ValueError(f"no region among the hypotheses of {found.text}")
    [(_, at, element)] = regions
    slope, intercept = (Fraction(element.terms.get(key, 0)) for key in (((("k1", 1),), ()), ((), ())))
    if slope <= 0 or element != ExpPoly.from_variable("k1") * slope + intercept:
        raise ValueError(f"a region without a bound on r: {formulas.show_element(element)}")
    edge = formulas.show_element(ExpPoly.from_number(intercept / slope).exp(), LATEX)
    region_cell = math(rf"r \le {edge}", *found.claims) + words(", that is ")
    region_cell = region_cell + math(rf"{formulas.show_element(element, LATEX)} \ge 0") + words(", wherever ")
    return region_cell + math(rf"{LATEX.name(str(at))} > 0")


def show_equality(found: Quote) -> Cell:
    """When an inequality is an equality.

    >>> from klsym.study.tables.writing.ledger_lookup import quote
    >>> show_equality(quote("variance.optimal-baseline", 1)).pieces[0][1]
    '; equal if and only if '
    """
    condition_latex = equality_of(found.proof.theorem, sums=True)
    return words("; equal if and only if ") + split_text(
        LATEX(condition_latex) if condition_latex else "", *found.claims
    )


def split_text(latex: str, *claims: str) -> Cell:
    r"""A formula with words inside, which may then break: \text{...} becomes words.

    >>> split_text(r"k_1\text{ is constant}").pieces
    (('math', 'k_1'), ('words', ' is constant'))
    """
    cell = Cell((), claims)
    for place, piece in enumerate(re.split(r"\\text\{([^{}]*)\}", latex)):
        if piece.strip():
            cell = cell + (words(piece) if place % 2 else math(piece.strip()))
    return cell


def annotate_text(text: str) -> Cell:
    """Words with their densities and divergences as formulas.

    >>> annotate_text("from q show_region KL(p||q) has p").pieces[1:4:2]
    (('math', 'q'), ('math', '\\\\mathrm{KL}(p\\\\,\\\\Vert\\\\,q)'))
    """
    cell = Cell()
    for piece in re.split(r"(KL\(\w+\|\|\w+\)|\b(?:q|p|mu)\b)", text):
        divergence = re.fullmatch(r"KL\((\w+)\|\|(\w+)\)", piece)
        if divergence:
            cell = cell + math(LATEX.divergence("KL", *divergence.groups()))
        else:
            cell = cell + (math(LATEX.name(piece)) if piece in ("q", "p", "mu") else words(piece))
    return cell


def show_premise(found: Quote, number: int = 0) -> Cell:
    """An equation that a theorem assumes, such as that of the best baseline.

    number: which of them, counted from 0.  Raises IndexError: there are not as many.
    """
    labels = found.proof.labels
    pair = found.proof.theorem.statement.context.premises[number]
    left_latex, right = (formulas.show_side(value, labels, LATEX) for value in pair)
    return math(f"{left_latex} = {right}", *found.claims)
