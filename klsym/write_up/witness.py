r"""Counterexamples in LaTeX: a table of outcomes, or a tree of tokens, with both sides enclosed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from klsym.abbreviations import (
    Curl,
    ExpectedGradient,
    Gradient,
    IndexedGradient,
    Point,
    PointGradient,
    Side,
    Statement,
    elements,
    measures,
)
from klsym.engine.derivation import Proof
from klsym.names import parse_name
from klsym.render.spelling import LATEX
from klsym.render.text import show_interval

LONGEST = 24  # digits of a fraction that is printed as such
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def counterexample(proof: Proof) -> str:
    """The model of a refutation: a sentence, and for sequences a table of their tokens."""
    close, statement = proof.theorem.close, proof.theorem.statement
    model, used = close["model"], _used(statement)
    left, right = (show_interval(close[side]) for side in ("left", "right"))
    verdict = rf"The left side is ${_decimal(left)}$, the right side ${_decimal(right)}$."
    parameters = _parameters(model.get("parameters", {}))
    if "tree" in model:
        return _tree(model["tree"], used, parameters) + " " + verdict
    rows = [rf"${LATEX.measure(name)} = {_row(model[name])}$" for name in ("q", "p", "mu") if name in used]
    rows += [rf"${name} = {_row(values)}$" for name, values in model["rewards"].items() if name in used]
    rows += [parameters] if parameters else []
    along = rf", along the logits' direction $u = {_row(model['u'])}$" if "u" in used else ""
    at = f", at outcome {int(model['outcome']) + 1}" if "outcome" in used else ""
    return rf"\emph{{Counterexample.}} {', '.join(rows)}{along}{at}. {verdict}"


def _used(statement: Statement) -> set[str]:
    """What of a model a statement speaks of."""
    names, used = set(), {"q", "p"}
    for side in (statement.left, statement.right):
        names |= {parse_name(name).base for element in elements(side) for name in element.names()}
        used |= set(measures(side)) & {"mu"}
        atoms = [atom for _, product in side.terms for atom in product]
        used |= {"outcome" for atom in atoms if isinstance(atom, Point | PointGradient)}
        used |= {"u"} if _has_direction(side) else set()
        used |= {"v"} if any(isinstance(atom, Curl) for atom in atoms) else set()
    return used | ({"mu"} if "w" in names else set()) | names & {"R", "A"}


MOVING = Gradient | ExpectedGradient | PointGradient | IndexedGradient | Curl


def _has_direction(side: Side) -> bool:
    """Is there a score function or a gradient in it, which are taken along a direction?"""
    atoms = [atom for _, product in side.terms for atom in product]
    return any(isinstance(atom, MOVING) or getattr(atom, "score", ()) for atom in atoms)


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


def _tree(tree: dict[str, Any], used: set[str], parameters: str) -> str:
    """One row for each prefix after which a token is drawn."""
    found: list[tuple[str, dict[str, Any]]] = []

    def walk(prefix: str, node: dict[str, Any]) -> None:
        found.append((prefix or r"\text{start}", node))
        for token, after in zip(LETTERS, node["next"], strict=False):
            if after is not None:
                walk(prefix + token, after)

    walk("", tree)
    names = [name for name in ("q", "p", "mu", "R", "u", "v") if name in tree and name in used]
    head = " & ".join(["after", *(f"${LATEX.measure(name)}$" for name in names)])
    rows = [
        " & ".join([f"${prefix}$", *(f"${', '.join(map(_number, node[name]))}$" for name in names)])
        for prefix, node in found
    ]
    tokens = ", ".join(f"${letter}$" for letter in LETTERS[: len(tree["q"])])
    body = " \\\\\n".join([head + r" \\ \midrule" + "\n" + rows[0], *rows[1:]])
    table = (
        rf"\begin{{tabular}}{{@{{}}l{'l' * len(names)}@{{}}}} \toprule" + f"\n{body} " + r"\\ \bottomrule"
        "\n" + r"\end{tabular}"
    )
    known = f" Parameters: {parameters}." if parameters else ""
    return (
        rf"\emph{{Counterexample.}} The next token is one of {tokens}; a sequence ends after a prefix"
        rf" that is not listed.{known}\par\nobreak\smallskip" + f"\n{table}" + r"\par\smallskip" + "\n"
    )
