"""Coefficients and losses in either spelling.  Standard library only.

>>> from klsym.ring import ExpPoly
>>> k1 = ExpPoly.variable("k1")
>>> element((-k1).exp() - 1 + k1), element(ExpPoly.variable("w").exp() * k1)
('k1 + r - 1', 'rho*k1')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from klsym.abbreviations import Score
from klsym.names import SAMPLE_BASES, parse_name
from klsym.render.spelling import SLOT_ORDER, TEXT, Text, is_sum, trails
from klsym.ring import Exponent, ExpPoly, Monomial, Number

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
    return spell.product([spell.bracket(total), *tail]) if tail else total


def _sum(value: ExpPoly, spell: Text) -> str:
    rows = sorted(value.terms.items(), key=_display_order)
    shown = [_term(m, e, v, spell) for (m, e), v in rows]
    shown.sort(key=lambda row: row[0] < 0 and rows[0][1] < 0)  # a positive term first, if there is one
    shown.sort(key=lambda row: trails(row[1]))  # what follows a sum over positions would join it
    text = ("-" if shown[0][0] < 0 else "") + shown[0][1]
    for sign, body in shown[1:]:
        text += (" - " if sign < 0 else " + ") + body
    return text


def _display_order(row: tuple[tuple[Monomial, Exponent], Number]) -> tuple[Any, ...]:
    """Polynomials by falling degree, then exponentials, then what is constant over samples."""
    (monomial, exponent), _ = row
    sample = [(_slot_order(n), p) for n, p in monomial if not _is_parameter(n)]
    constant = not sample and not any(not _is_parameter(n) for m, _ in exponent for n, _ in m)
    degree = -sum(p for _, p in sample or monomial)
    return (constant, bool(exponent), degree, sample, exponent, monomial)


def _slot_order(name: str) -> tuple[str, int, str]:
    """past before now before future, self before others."""
    slot = parse_name(name).slot
    head, _, tail = name.partition("[")
    return head + tail.partition("]")[2], SLOT_ORDER.index(slot) if slot in SLOT_ORDER else -1, slot


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
    over = sorted(((n, p) for n, p in monomial if p > 0), key=lambda row: _slot_order(row[0]))
    weights, below = _exponential(exponent, spell)
    lead = [_power(n, p, spell) for n, p in over if _is_parameter(n)]
    factors = weights + [_power(n, p, spell) for n, p in over if not _is_parameter(n)] + list(tail)
    bottom = [_power(n, -p, spell) for n, p in monomial if p < 0] + below
    size = abs(Fraction(value))
    if size.denominator != 1 and (lead or factors or bottom):
        bottom.insert(0, str(size.denominator))
        size = Fraction(size.numerator)
    if size != 1 or not (lead or factors):
        lead.insert(0, spell.number(size))
    fraction = spell.fraction if below else spell.small_fraction
    return (-1 if value < 0 else 1), _over(lead, factors, bottom, fraction, spell)


def _over(
    lead: list[str], factors: list[str], bottom: list[str], before: Callable[[str, str], str], spell: Text
) -> str:
    """A product over a denominator, which does not reach under a sum over positions: (b/2m) sum_j k_j."""
    if not bottom:
        return spell.product(lead + factors)
    under = spell.product(bottom)
    if any(map(trails, factors)):
        return spell.product([before(spell.product(lead or ["1"]), under), *factors])
    under = under if len(bottom) == 1 or spell is not TEXT else f"({under})"
    return spell.fraction(spell.product(lead + factors), under)


def _is_parameter(name: str) -> bool:
    return parse_name(name).base not in SAMPLE_BASES


def _power(name: str, power: int, spell: Text) -> str:
    base = variable(name, spell)
    return base if power == 1 else spell.power(base, str(power))


def variable(name: str, spell: Text) -> str:
    """A sample variable: w, which has no name of its own in the grammar, is log(rho)."""
    parsed = parse_name(name)
    if parsed.base == "w":
        inner = spell.call("log", spell.in_slot("rho", parsed.slot, ratio=True))
    else:
        inner = spell.in_slot(parsed.base, parsed.slot, primes=parsed.primes)
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
    base = spell.in_slot("r" if parsed.base == "k1" else "rho", parsed.slot, ratio=True)
    if parsed.detached:
        base = spell.call("sg", base)
    exponent = ExpPoly({(m, ()): v for m, v in power})
    return base if exponent == ExpPoly.number(1) else spell.power(base, element(exponent, spell))


# ---------------------------------------------------------------------------- as they were written
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
    return spell.product([spell.bracket(shown) if is_sum(shown) else shown, power])
