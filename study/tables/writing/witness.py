r"""A counterexample in a cell: the finite model, and both sides as far as its enclosures agree.

>>> from klsym.study.tables.writing.ledger_lookup import quote
>>> shown = witness(quote("value.k2-biased").proof)
>>> shown.pieces[0][1], shown.pieces[-1][1]
('q = (\\tfrac{1}{2}, \\tfrac{1}{2})', '0.1612 \\ne 0.1438')
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.notation.printers import LATEX
from klsym.study.ledger.evidence import Evidence
from klsym.study.tables.writing.table import Cell, listed, math, words

DIGITS = 4


def witness(part: Proof | Evidence, *claims: str) -> Cell:
    """What refutes a statement: a model, a tree of tokens, or the lines of a calculation.

    part: refuted, with its finite model in the certificate, or a calculation with its steps.
    claims: the ids of those that the part settles.
    """
    if isinstance(part, Evidence):
        return listed([words(f"{reason}: ", *claims) + math(latex, *claims) for reason, latex in part.steps])
    shown = describe_counterexample(part)
    relation = r"\ne" if part.theorem.statement.relation == "=" else ">"
    values = math(f"{_digits(shown['left'])} {relation} {_digits(shown['right'])}", *claims)
    parameters = [_vector(name, [value]) for name, value in shown.get("parameters", {}).items()]
    if "tree" in shown:
        prefixes = words(f"a tree of {_prefixes(shown['tree'])} prefixes", *claims)
        return listed([prefixes, *parameters, values])
    names = [name for name in ("q", "p", "mu", "old", "u") if name in shown]
    rewards = [_vector(name, value) for name, value in shown.get("rewards", {}).items()]
    return listed([*(_vector(name, shown[name]) for name in names), *rewards, *parameters, values])


def _vector(name: str, entries: list[str]) -> Cell:
    shown = ", ".join(LATEX.number(Fraction(entry)) for entry in entries)
    letter = LATEX.name(name)
    return math(f"{letter} = ({shown})" if len(entries) > 1 else f"{letter} = {shown}")


def _digits(ends: list[str]) -> str:
    """The first digits of an enclosure, which is far narrower."""
    return f"{float(Fraction(ends[0])):.{DIGITS}g}"


def _prefixes(node: dict[str, Any]) -> int:
    return 1 + sum(_prefixes(after) for after in node["next"] if after)
