"""Values at an index of a batch or a sequence, in either spelling: sums are written as sums.

>>> from klsym.ring import ExpPoly
>>> from klsym.render.spelling import LATEX, TEXT
>>> togo = ExpPoly.variable("k1[now]") + ExpPoly.variable("k1[future]")
>>> atom(Indexed("t", "q", togo, ("now",)), {}, TEXT)
'E_q[sum_t (k1_now + k1_future)*s_now]'
>>> atom(Indexed("t", "sample", togo, ("now",)), {}, LATEX)
'\\\\sum_t s_t \\\\sum_{u\\\\ge t} k_{1,u}'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from klsym.abbreviations import Atom, Curl, Indexed, IndexedGradient, MeanVariance, TokenDivergence
from klsym.names import SAMPLE, SAMPLE_BASES, parse_name
from klsym.render import coefficients
from klsym.render.spelling import SLOT_ORDER, TEXT, Text, is_sum
from klsym.ring import ExpPoly
from klsym.slots import SECOND, at_slot, slot_of_score

Term = tuple[ExpPoly, tuple[Atom, ...]]
# Sums over slots together, in print only: sum_{u <= t}, sum_{u >= t}, sum_u, sum_j.
TOGETHER: dict[str, tuple[str, ...]] = {
    "all": ("past", "now", "future"),
    "upto": ("past", "now"),
    "from": ("now", "future"),
    "both": ("self", "others"),
    "batch": ("self", "other", "rest"),
}
OUTER = {
    "i": ("mean_i ", r"\tfrac1n\sum_i "),
    "ij": ("mean_{i!=j} ", r"\tfrac1{n(n-1)}\sum_{i\ne j} "),
    "t": ("sum_t ", r"\sum_t "),
    "it": ("mean_i sum_t ", r"\tfrac1n\sum_i\sum_t "),
}


def atom(value: Atom, labels: coefficients.Labels, spell: Text) -> str:
    """One of the atoms of batches and sequences."""
    match value:
        case Indexed(index, measure, a, score):
            written = not score and a in labels
            shown = coefficients.label(a, labels, spell) if written else _scored(index, a, score, spell)
            inner = _joined(index, measure, shown, spell)
            return inner if measure == SAMPLE else spell.expectation(measure, inner)
        case IndexedGradient(index, measure, loss):
            inner = _joined(index, measure, _gradient(index, loss, labels, spell), spell)
            return inner if measure == SAMPLE else spell.expectation(measure, inner)
        case TokenDivergence(measure, a, b, gradient):
            a, b = (spell.in_slot(name, "now") if spell is not TEXT else f"{name}_t" for name in (a, b))
            shown = spell.token_divergence(a, b)
            shown = spell.gradient_of(shown, True) if gradient else shown
            return spell.expectation(measure, _joined("t", measure, shown, spell))
        case Curl(_, measure, loss):
            field = spell.expectation(
                measure, _joined("t", measure, _gradient("t", loss, labels, spell), spell)
            )
            return f"curl {field}" if spell is TEXT else rf"\operatorname{{curl}}\,{field}"
        case MeanVariance(measure, a, score):
            inner = _joined("i", measure, _scored("i", a, score, spell), spell)
            return spell.covariance(measure, inner, inner)
    raise TypeError(f"{type(value).__name__} is no value at an index")


def _joined(index: str, measure: str, inner: str, spell: Text) -> str:
    """sum_t inner; a value at one batch is that at one i."""
    if measure == SAMPLE and "t" not in index:
        return inner
    text, latex = OUTER["t" if measure == SAMPLE else index]
    bracketed = spell.bracket(inner) if is_sum(inner) or inner.startswith("-") else inner
    return (text if spell is TEXT else latex) + bracketed


def _gradient(index: str, loss: ExpPoly, labels: coefficients.Labels, spell: Text) -> str:
    if loss in labels:
        return coefficients.loss_gradient(loss, labels, spell)
    shown = coefficients.element(merged(loss, index, spell), spell)
    return spell.gradient_of(shown, spell.is_single(shown))


def _scored(index: str, a: ExpPoly, score: tuple[str, ...], spell: Text) -> str:
    two = any(entry.endswith(SECOND) for entry in score)
    score = tuple(sorted(score, key=_score_order))
    tail = tuple(_score(entry, index, two, spell) for entry in score)
    one = all(part == score[0] for part in score) and len(score) > 1
    if one:
        tail = (spell.power(tail[0], str(len(score))),)
    return coefficients.element(merged(a, index, spell), spell, tail)


def _score_order(entry: str) -> tuple[bool, int]:
    """The first direction before the second, past before now before future, self before other."""
    slot = slot_of_score(entry)
    return entry.endswith(SECOND), SLOT_ORDER.index(slot) if slot in SLOT_ORDER else len(SLOT_ORDER)


def _score(entry: str, index: str, two: bool, spell: Text) -> str:
    """s_t, sum_{u<t} s_u, or u.s_t and v.s_t along two directions."""
    slot = slot_of_score(entry)
    if spell is TEXT:
        parts = TOGETHER.get(slot, (slot,))
        shown = " + ".join(spell.score if part == "x" else f"{spell.score}_{part}" for part in parts)
        shown = f"({shown})" if len(parts) > 1 else shown
        return f"{'v' if entry.endswith(SECOND) else 'u'}.{shown}" if two else shown
    shown = spell.in_slot(spell.score, _shown_slot(slot, index))
    if not two:
        return shown
    along = "v" if entry.endswith(SECOND) else "u"  # bold: u is the index of a sum over tokens too
    return spell.bracket(rf"\mathbf{{{along}}}\cdot {shown}")


def _shown_slot(slot: str, index: str) -> str:
    """In a batch of sequences every step carries its i as well."""
    return f"i_{slot}" if index == "it" and slot != "others" else slot


# ---------------------------------------------------------------------------- merging
def merged(a: ExpPoly, index: str, spell: Text) -> ExpPoly:
    """The coefficient with sums over adjacent slots as one, where that makes it shorter; LaTeX only."""
    if spell is TEXT:
        return a
    for base in sorted({name for name in a.names() if parse_name(name).slot != "x"}):
        a = _shortest(a, _without_slot(base))
    a = a.substitute({"length[now]": ExpPoly.number(1)})
    return a.rename(lambda name: at_slot(_without_slot(name), _slot_in_print(name, index)))


def _slot_in_print(name: str, index: str) -> str:
    parsed = parse_name(name)
    is_parameter = parsed.slot == "x" and parsed.base not in SAMPLE_BASES
    return "x" if is_parameter else _shown_slot(parsed.slot, index)


def _without_slot(name: str) -> str:
    head, _, tail = name.partition("[")
    return head + tail.partition("]")[2]


def _shortest(a: ExpPoly, base: str) -> ExpPoly:
    """V_past = V_upto - V_now and the like, whichever leaves the fewest terms."""
    best = a
    for together, parts in TOGETHER.items():
        for part in parts:
            others = (ExpPoly.variable(at_slot(base, p)) for p in parts if p != part)
            value = sum((other * -1 for other in others), ExpPoly.variable(at_slot(base, together)))
            found = a.substitute({at_slot(base, part): value})
            best = found if _size(found) < _size(best) else best
    return best


def _size(a: ExpPoly) -> int:
    return sum(
        1 + sum(abs(power) for m in (monomial, *(m for m, _ in exponent)) for _, power in m)
        for monomial, exponent in a.terms
    )


def with_scores_together(terms: Iterable[Term]) -> list[Term]:
    """Sums over t that differ in the slot of their score alone, as one with the score of both slots."""
    found: list[Term] = []
    groups: dict[Indexed, list[str]] = {}  # by the value without its score
    for coefficient, atoms in terms:
        item = atoms[0] if len(atoms) == 1 else None
        if isinstance(item, Indexed) and len(item.score) == 1 and coefficient == ExpPoly.number(1):
            groups.setdefault(replace(item, score=()), []).append(item.score[0])
        else:
            found.append((coefficient, atoms))
    for item, slots in groups.items():
        found += [(ExpPoly.number(1), (replace(item, score=(slot,)),)) for slot in _together(slots)]
    return found


def _together(slots: list[str]) -> list[str]:
    rest = list(slots)
    chosen = []
    for together, parts in TOGETHER.items():
        if set(parts) <= set(rest):
            chosen.append(together)
            rest = [slot for slot in rest if slot not in parts]
    return [*chosen, *rest]
