"""Formulas in either spelling: coefficients, losses, sides, statements.  Standard library only.

>>> from klsym.normal_form import ExpPoly
>>> k1 = ExpPoly.variable("k1")
>>> element((-k1).exp() - 1 + k1), element(ExpPoly.variable("w").exp() * k1)
('k1 + r - 1', 'rho*k1')
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from klsym.normal_form import Exponent, ExpPoly, Monomial, Number
from klsym.render.spelling import TEXT, Text, is_quotient, is_sum
from klsym.statements import (
    Atom,
    Bregman,
    Covariance,
    Divergence,
    E,
    ExpectedGradient,
    Gradient,
    Point,
    PointGradient,
    Score,
    Side,
    parse_name,
)

Labels = Mapping[ExpPoly, Any]


class SidedLabels(dict[ExpPoly, Any]):
    """How the losses of the left side are written, and in `right` those of the right side.

    For statements that write one and the same function in two ways.
    """

    def __init__(self, left: Labels, right: Labels) -> None:
        super().__init__(left)
        self.right = right


def on_the_right(labels: Labels | None) -> Labels | None:
    return labels.right if isinstance(labels, SidedLabels) else labels


# ---------------------------------------------------------------------------- coefficients
def element(value: ExpPoly, spell: Text = TEXT, tail: tuple[str, ...] = ()) -> str:
    """An exponential polynomial as a formula in k1, r, rho; the text form is in the loss grammar.

    tail: factors that follow, such as the score function.
    """
    if not value:
        return "0"
    found = _common_factor(value)
    if found:
        common, rest = found
        return _term(*common, 1, spell, (spell.bracket(_sum(rest, spell)), *tail))[1]
    if len(value.terms) == 1:
        [((monomial, exponent), number)] = value.terms.items()
        sign, body = _term(monomial, exponent, number, spell, tail)
        return ("-" if sign < 0 else "") + body
    total = _sum(value, spell)
    return _join_factors([spell.bracket(total), *tail], spell) if tail else total


def _sum(value: ExpPoly, spell: Text) -> str:
    rows = sorted(value.terms.items(), key=_display_order)
    shown = [_term(m, e, v, spell) for (m, e), v in rows]
    shown.sort(key=lambda row: row[0] < 0 and rows[0][1] < 0)  # a positive term first, if there is one
    text = ("-" if shown[0][0] < 0 else "") + shown[0][1]
    for sign, body in shown[1:]:
        text += (" - " if sign < 0 else " + ") + body
    return text


def _display_order(row: tuple[tuple[Monomial, Exponent], Number]) -> tuple[Any, ...]:
    """Polynomials by falling degree, then exponentials, then what is constant over samples."""
    (monomial, exponent), _ = row
    sample = [(n, p) for n, p in monomial if not _is_parameter(n)]
    constant = not sample and not any(not _is_parameter(n) for m, _ in exponent for n, _ in m)
    return (constant, bool(exponent), -sum(p for _, p in sample), sample, exponent, monomial)


def _common_factor(value: ExpPoly) -> tuple[tuple[Monomial, Exponent], ExpPoly] | None:
    """The weights and parameters that every term shares, such as rho in rho*(k1 + 1)."""
    if len(value.terms) < 2:
        return None
    powers = [dict(m) for m, _ in value.terms]
    exponents = [dict(e) for _, e in value.terms]
    monomial = tuple(
        (n, min(p.get(n, 0) for p in powers))
        for n in sorted(powers[0])
        if _is_parameter(n) and all(p.get(n, 0) > 0 for p in powers)
    )
    shared = tuple(
        (m, v)
        for m, v in sorted(exponents[0].items())
        if all(e.get(m) == v for e in exponents) and any(parse_name(n).base == "w" for n, _ in m)
    )
    if not monomial and not shared:
        return None
    factor = ExpPoly({(monomial, shared): 1})
    return (monomial, shared), value * factor.inverse()


def _term(
    monomial: Monomial, exponent: Exponent, value: Number, spell: Text, tail: tuple[str, ...] = ()
) -> tuple[int, str]:
    """The sign and the body of one term: numbers, parameters, weights, the rest, over a denominator."""
    over = [(n, p) for n, p in monomial if p > 0]
    weights, below = _exponential(exponent, spell)
    numerator = [_power(n, p, spell) for n, p in over if _is_parameter(n)] + weights
    numerator += [_power(n, p, spell) for n, p in over if not _is_parameter(n)] + list(tail)
    bottom = [_power(n, -p, spell) for n, p in monomial if p < 0] + below
    size = abs(Fraction(value))
    if size.denominator != 1 and (numerator or bottom):
        bottom.insert(0, str(size.denominator))
        size = Fraction(size.numerator)
    if size != 1 or not numerator:
        numerator.insert(0, spell.number(size))
    body = _join_factors(numerator, spell)
    if bottom:
        under = _join_factors(bottom, spell)
        body = spell.fraction(body, under if len(bottom) == 1 or spell is not TEXT else f"({under})")
    return (-1 if value < 0 else 1), body


def _join_factors(factors: list[str], spell: Text) -> str:
    return spell.product_sign.join(factors)


def _is_parameter(name: str) -> bool:
    return parse_name(name).base not in ("k1", "w", "log_q", "R", "A")


def _power(name: str, power: int, spell: Text) -> str:
    base = variable(name, spell)
    return base if power == 1 else spell.power(base, str(power))


def variable(name: str, spell: Text) -> str:
    """A sample variable: w, which has no name of its own in the grammar, is log(rho)."""
    parsed = parse_name(name)
    inner = spell.call("log", spell.name("rho")) if parsed.base == "w" else spell.name(parsed.base)
    inner += "'" * parsed.primes
    if parsed.slot != "x":
        inner += f"_{{{parsed.slot}}}" if spell is not TEXT else f"_{parsed.slot}"
    return spell.call("sg", inner) if parsed.detached else inner


def _exponential(exponent: Exponent, spell: Text) -> tuple[list[str], list[str]]:
    """exp(Q) as powers of rho and r, and exp of what is left: (numerator, denominator)."""
    ratios: dict[str, list[tuple[Monomial, Number]]] = {}
    rest: dict[Monomial, Number] = {}
    for monomial, value in exponent:
        name = next((n for n, p in monomial if p == 1 and parse_name(n).base in ("k1", "w")), None)
        if name is None:
            rest[monomial] = value
            continue
        others = tuple(item for item in monomial if item[0] != name)
        ratios.setdefault(name, []).append((others, -value if parse_name(name).base == "k1" else value))
    above: list[str] = []
    below: list[str] = []
    for name in sorted(ratios, reverse=True):  # rho before r
        [*_, (monomial, value)] = ratios[name]
        inverted = len(ratios[name]) == 1 and not monomial and value < 0
        power = [(m, -v) for m, v in ratios[name]] if inverted else ratios[name]
        (below if inverted else above).append(_ratio(name, power, spell))
    if rest:
        inner = ExpPoly({(m, ()): v for m, v in rest.items()})
        above.append(spell.call("exp", element(inner, spell)))
    return above, below


def _ratio(name: str, power: list[tuple[Monomial, Number]], spell: Text) -> str:
    parsed = parse_name(name)
    base = spell.name("r" if parsed.base == "k1" else "rho")
    if parsed.slot != "x":
        base += f"_{{{parsed.slot}}}" if spell is not TEXT else f"_{parsed.slot}"
    if parsed.detached:
        base = spell.call("sg", base)
    exponent = ExpPoly({(m, ()): v for m, v in power})
    return base if exponent == ExpPoly.number(1) else spell.power(base, element(exponent, spell))


# ---------------------------------------------------------------------------- sides
def side(value: Side, labels: Labels | None = None, spell: Text = TEXT) -> str:
    """A side of a statement; losses appear as they were written where `labels` knows them."""
    if not value.terms:
        return "0"
    terms = [_as_written(*term, labels or {}) for term in value.terms]
    text = ""
    for coefficient, atoms in sorted(terms, key=lambda t: _is_negative(t[0])):
        negative = _is_negative(coefficient)
        shown = _side_term(-coefficient if negative else coefficient, atoms, labels or {}, spell)
        text += (" - " if negative else " + ") + shown
    return text.removeprefix(" + ") if text.startswith(" + ") else "-" + text.removeprefix(" - ")


def _is_negative(coefficient: ExpPoly) -> bool:
    return all(value < 0 for value in coefficient.terms.values())


def _side_term(coefficient: ExpPoly, atoms: tuple[Atom, ...], labels: Labels, spell: Text) -> str:
    factors = [atom(item, labels, spell) for item in atoms]
    if coefficient != ExpPoly.number(1) or not factors:
        shown = element(coefficient, spell)
        compound = len(coefficient.terms) > 1 or (spell is TEXT and is_quotient(shown))
        factors.insert(0, spell.bracket(shown) if compound and factors else shown)
    return (" " if spell is TEXT else r"\,").join(factors)


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
            return spell.gradient_of(side(of, labels, spell), len(of.terms) == 1)


def loss_gradient(loss: ExpPoly, labels: Labels, spell: Text) -> str:
    shown = label(loss, labels, spell)
    return spell.gradient_of(shown, spell.is_single(shown))


def label(value: ExpPoly, labels: Labels, spell: Text) -> str:
    """The loss as it was written, or its normal form."""
    if value not in labels:
        return element(value, spell)
    from klsym.render.losses import show  # needs SymPy, as whoever made the label does

    return show(labels[value], spell)


def scored(a: ExpPoly, score: Score, labels: Labels, spell: Text) -> str:
    """a s, a s^2, or a alone."""
    if not score:
        return label(a, labels, spell)
    power = spell.score if len(score) == 1 else spell.power(spell.score, str(len(score)))
    if a not in labels or a in (ExpPoly.number(1), ExpPoly.number(-1)):
        return element(a, spell, (power,))
    shown = label(a, labels, spell)
    return _join_factors([spell.bracket(shown) if is_sum(shown) else shown, power], spell)
