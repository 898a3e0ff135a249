r"""A counterexample in a cell: the finite model, and both sides as far as its enclosures agree.

>>> from klsym.study.tables.writing.ledger_lookup import quote
>>> shown = show_witness(quote("value.k2-biased").proof)
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
from klsym.study.tables.writing.table import Cell, join_cells, math, words

DIGITS = 4


def show_witness(part: Proof | Evidence, *claims: str) -> Cell:
    """What refutes a statement: a model, a tree of tokens, or the lines of a calculation.

    part: refuted, with its finite model in the certificate, or a calculation with its steps.
    claims: the ids of those that the part settles.
    """
    if isinstance(part, Evidence):
        return join_cells(
            [words(f"{reason}: ", *claims) + math(latex, *claims) for reason, latex in part.steps]
        )
    counterexample = describe_counterexample(part)
    relation = r"\ne" if part.theorem.statement.relation == "=" else ">"
    values = math(
        f"{_write_digits(counterexample['left'])} {relation} {_write_digits(counterexample['right'])}",
        *claims,
    )
    parameters = [_show_vector(name, [value]) for name, value in counterexample.get("parameters", {}).items()]
    if "tree" in counterexample:
        prefixes = words(f"a tree of {_count_prefixes(counterexample['tree'])} prefixes", *claims)
        return join_cells([prefixes, *parameters, values])
    names = [name for name in ("q", "p", "mu", "old", "u") if name in counterexample]
    rewards = [_show_vector(name, value) for name, value in counterexample.get("rewards", {}).items()]
    return join_cells(
        [*(_show_vector(name, counterexample[name]) for name in names), *rewards, *parameters, values]
    )


def _show_vector(name: str, entries: list[str]) -> Cell:
    entry_list = ", ".join(LATEX.number(Fraction(entry)) for entry in entries)
    letter = LATEX.name(name)
    return math(f"{letter} = ({entry_list})" if len(entries) > 1 else f"{letter} = {entry_list}")


def _write_digits(ends: list[str]) -> str:
    """The first digits of an enclosure, which is far narrower."""
    return f"{float(Fraction(ends[0])):.{DIGITS}g}"


def _count_prefixes(node: dict[str, Any]) -> int:
    return 1 + sum(_count_prefixes(after) for after in node["next"] if after)
