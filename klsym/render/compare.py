"""A comparison of two losses as text, and regions such as 2*k1 + 1 >= 0, that is r <= exp(1/2).

>>> k1 = ExpPoly.variable("k1")
>>> region((k1, k1 + 1), ()), region((ONE,), (k1,))
('k1*(k1 + 1) >= 0', 'everywhere')
"""

from __future__ import annotations

from html import escape
from typing import Any

from klsym.abbreviations import Context
from klsym.names import SAMPLE
from klsym.notation import formulas
from klsym.notation.spelling import TEXT, is_sum
from klsym.notation.text import show_hypothesis, show_interval, show_statement
from klsym.render.listing import listed, model_lines
from klsym.render.verdict import TRUST, setting_words
from klsym.ring import ONE, ExpPoly

MINUS_ONE = ExpPoly.number(-1)


def region(factors: tuple[ExpPoly, ...], free: tuple[ExpPoly, ...]) -> str:
    """Where the product of the factors is at least 0, or something free is 0; free: nowhere negative."""
    if any(not factor for factor in factors) or factors == (ONE,):
        return "everywhere"
    zero = " or ".join(f"{formulas.element(f)} = 0" for f in free)
    if factors == (MINUS_ONE,):
        return f"only where {zero}" if zero else "nowhere"
    if len(factors) == 1:
        shown = show_hypothesis(("nonnegative", SAMPLE, factors[0]), Context())
    else:
        shown = f"{'*'.join(_factor(factor) for factor in factors)} >= 0"
    return f"{shown} (or {zero})" if zero else shown


def _factor(value: ExpPoly) -> str:
    shown = formulas.element(value)
    return TEXT.bracket(shown) if is_sum(shown) else shown


class ComparisonView:
    """What a comparison shows, and how it shows itself: as text, and in Jupyter."""

    losses: tuple[str, str]
    setting: Any
    value: Any
    per_sample: Any
    gradient: Any
    variance: Any
    trust: str
    undecided: tuple[str, ...]

    def __str__(self) -> str:
        return comparison_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(comparison_text(self))}</pre>"


WORDS = {True: "the same", False: "different", None: "not decided"}
OPEN = {"open": "what is answered is proved, replayed by the kernel; the rest is open"}
LOWER = {
    "A": "A varies no more than B in any model",
    "B": "B varies no more than A in any model",
    "equal": "the same in every model",
    "depends": "neither is lower in every model",
    "open": "open: no order is proved, and no models were found both ways",
}


def comparison_text(found: Any) -> str:
    """For a terminal."""
    rows = [("value E[.]", found.value), ("gradient at a sample", found.per_sample)]
    rows += [("expected gradient", found.gradient)]
    said = ", ".join(setting_words(found.setting, ("as losses", "as detached rewards")))
    lines = [f"A = {found.losses[0]}", f"B = {found.losses[1]}  ({said})", ""]
    decided = found.variance or any(answer.same is not None for _, answer in rows)
    lines += [f"  trust                 {(TRUST | OPEN)[found.trust]}"] if decided else []
    for name, answer in rows:
        said = f": {answer.statement}" if answer.statement else ""
        lines.append(f"  {name:<21} {WORDS[answer.same]}{said}")
    spread = found.variance
    known = spread.lower if spread else "equal" if found.per_sample.same else None
    lines.append(f"  {'variance':<21} {LOWER[known] if known else WORDS[None]}")
    if spread:
        lines += _spread_lines(spread)
    for name, answer in rows:
        if answer.witness:
            lines += [
                "",
                f"Counterexample: {name}, {answer.witness['refutes']}",
                *model_lines(answer.witness),
            ]
    lines += listed("Not decided", found.undecided) + listed("Hypotheses", found.hypotheses)
    return "\n".join(lines)


def _spread_lines(spread: Any) -> list[str]:
    """The difference of the variances, where it is positive, and what is proved about its sign."""
    lines = ["", "Variance of the gradient at a sample (s stands for u.s, along any direction u)"]
    lines += [f"  grad {name} = {_times_s(c)}" for name, c in zip("AB", spread.coefficients, strict=True)]
    minus = f" - {spread.correction}" if spread.correction else ""
    lines += [f"  Var A - Var B = {spread.difference}{minus}"]
    if not spread.exact:
        lines += ["  where the first term is the difference of the second moments"]
    lines += [f"  B adds no more than A to the second moment at a sample: {spread.region}"]
    if spread.lower in ("A", "B"):
        lines += [f"  proved: {_ordered('Var', spread.lower)}"]
    lines += [f"  proved: {_theorem(proof)}" for proof in (*spread.signs, *spread.order) if _told(proof)]
    if spread.regional:
        what = "Var" if spread.exact else "E[(grad {})^2]"
        lines += [f"  proved: {_ordered(what, spread.regional_lower)} if {spread.where}"]
    for name, proof in (("A", spread.a_less), ("B", spread.b_less)):
        if proof:
            lines += _variance_lines(name, spread.witness(proof))
    return lines


def _ordered(what: str, lower: str) -> str:
    pair = ("A", "B") if lower == "A" else ("B", "A")
    return " <= ".join(what.format(name) if "{}" in what else f"{what} {name}" for name in pair)


def _told(proof: Any) -> bool:
    """Var A = Var B with one and the same formula on both sides says nothing."""
    statement = proof.theorem.statement
    return bool(statement.left != statement.right)


def _theorem(proof: Any) -> str:
    """Where a number would have to be 0 for both sides to be equal, they never are."""
    never = any(_is_never(zero) for zero in proof.theorem.zeros)
    return show_statement(proof.theorem.statement, proof.labels) if never else str(proof)


def _is_never(zero: Any) -> bool:
    varies = zero.constant or zero.score or zero.element.names() or zero.factor.names()
    return bool(not varies and zero.weight == ONE and zero.element)


def _times_s(coefficient: str) -> str:
    if coefficient in ("0", "1", "-1"):
        return {"0": "0", "1": "s", "-1": "-s"}[coefficient]
    return f"({coefficient})*s" if is_sum(coefficient) else f"{coefficient}*s"


def _variance_lines(name: str, witness: dict[str, Any]) -> list[str]:
    """A model; the left side of what it refutes is the larger variance."""
    high, low = show_interval(witness["left"]), show_interval(witness["right"])
    a, b = (low, high) if name == "A" else (high, low)
    return ["", f"{name} varies less here", *model_lines(witness)[:-1], f"  Var A = {a}, Var B = {b}"]
