r"""Counterexamples in LaTeX: a table of outcomes, or a tree of tokens, with both sides enclosed."""

from __future__ import annotations

from fractions import Fraction
from string import ascii_lowercase
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.language.abbreviations import (
    Curl,
    ExpectedGradient,
    Gradient,
    IndexedGradient,
    Point,
    PointGradient,
    Statement,
    walk_atoms,
)
from klsym.notation.printers import LATEX
from klsym.notation.text import show_interval
from klsym.render.listing import list_tree_rows

LONGEST = 24  # digits of a fraction that is printed as such


def counterexample(proof: Proof) -> str:
    """The model of a refutation: a sentence, and for sequences a table of their tokens."""
    shown, statement = describe_counterexample(proof), proof.theorem.statement
    left, right = (show_interval(shown[side]) for side in ("left", "right"))
    verdict = rf"The left side is ${_decimal(left)}$, the right side ${_decimal(right)}$."
    parameters = _parameters(shown.get("parameters", {}))
    moving = _speaks_of(statement, MOVING)
    if "tree" in shown:
        tree = {name: row for name, row in shown["tree"].items() if moving or name != "u"}
        return _tree(tree, parameters) + " " + verdict
    values = {LATEX.measure(name): shown[name] for name in ("q", "p", "mu") if name in shown}
    values |= shown.get("rewards", {})
    rows = [rf"${name} = {_row(row)}$" for name, row in values.items()]
    rows += [parameters] if parameters else []
    along = rf", along the logits' direction $u = {_row(shown['u'])}$" if moving else ""
    at_one = _speaks_of(statement, Point | PointGradient)
    at = f", at outcome {int(proof.theorem.close['model']['outcome']) + 1}" if at_one else ""
    return rf"\emph{{Counterexample.}} {', '.join(rows)}{along}{at}. {verdict}"


MOVING = Gradient | ExpectedGradient | PointGradient | IndexedGradient | Curl  # taken along a direction


def _speaks_of(statement: Statement, kinds: Any) -> bool:
    """Is there an atom of these kinds in it?  A score function moves as a gradient does."""
    atoms = walk_atoms(statement.left, statement.right)
    return any(isinstance(a, kinds) or (kinds is MOVING and getattr(a, "score", ())) for a in atoms)


def _parameters(values: dict[str, Any]) -> str:
    return ", ".join(rf"${LATEX.name(name)} = {_number(value)}$" for name, value in values.items())


def _row(values: list[str]) -> str:
    return "(" + ",\\, ".join(_number(value) for value in values) + ")"


def _number(value: str) -> str:
    """A fraction; one of a hundred digits by its distance from 0 or 1, a power of two or a float."""
    number = Fraction(value)
    if len(value) < LONGEST:
        return LATEX.number(number)
    if number > Fraction(1, 2):
        return "1 - " + _number(str(1 - number))
    power = number.denominator.bit_length() - 1
    if number == Fraction(1, 2**power):
        return f"2^{{-{power}}}"
    return rf"\approx {_decimal(show_interval([value, value]))}"


def _decimal(text: str) -> str:
    """An enclosure as text.show_interval writes it."""
    low, dots, high = text.partition("..")
    return r"\ldots".join(part if "e" not in part else _power(part) for part in (low, high) if part or dots)


def _power(text: str) -> str:
    digits, _, power = text.partition("e")
    return rf"{digits}\cdot 10^{{{int(power)}}}"


def _tree(tree: dict[str, Any], parameters: str) -> str:
    """One row for each prefix after which a token is drawn."""
    table = list_tree_rows(tree)
    names = table.head[1:]
    head = " & ".join(["after", *(f"${LATEX.measure(name)}$" for name in names)])
    rows = []
    for prefix, *cells in table.rows:
        after = prefix if prefix != "start" else r"\text{start}"
        shown = (f"${', '.join(map(_number, cell.split(', ')))}$" for cell in cells)
        rows.append(" & ".join([f"${after}$", *shown]))
    tokens = ", ".join(f"${letter}$" for letter in ascii_lowercase[: len(tree["q"])])
    body = " \\\\\n".join([head + r" \\ \midrule" + "\n" + rows[0], *rows[1:]])
    typeset = (
        rf"\begin{{tabular}}{{@{{}}l{'l' * len(names)}@{{}}}} \toprule" + f"\n{body} " + r"\\ \bottomrule"
        "\n" + r"\end{tabular}"
    )
    known = f" Parameters: {parameters}." if parameters else ""
    return (
        rf"\emph{{Counterexample.}} The next token is one of {tokens}; a sequence ends after a prefix"
        rf" that is not listed.{known}\par\nobreak\smallskip" + f"\n{typeset}" + r"\par\smallskip" + "\n"
    )
