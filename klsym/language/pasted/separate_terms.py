"""The terms of a pasted loss, each as code of its own: what to type where they cannot be read together.

>>> code = "soft = F.kl_div(a/T, b/T)*T*T; hard = F.cross_entropy(x, labels); loss = w*soft - hard"
>>> [term.text for term in separate_terms(ast.parse(code).body)]
['soft = F.kl_div(a / T, b / T) * T * T; w * soft', 'hard = F.cross_entropy(x, labels); -hard']
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from klsym.language.pasted.names import split_operands
from klsym.language.pasted.text import find_assigned_name
from klsym.language.training_names import names_drawn_word

OF_LABELS = {"cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss"}
LONGEST = 300  # characters of a term that is printed


class Term(NamedTuple):
    """A term of a loss, with the lines before it that it needs."""

    text: str
    is_of_labels: bool

    def write_command(self) -> str:
        """Return the command that explains it; of labels of a data set, the loss as drawn from the data."""
        if self.is_of_labels:
            return "klsym explain --sampling off-policy -- '-log_q' (labels of a data set)"
        return f"klsym explain {quote(self.text)}" if len(self.text) <= LONGEST else "the other term"


def separate_terms(statements: Sequence[ast.stmt]) -> list[Term]:
    """Return the terms of the last statement, a sum; a name that stands for a sum is opened.

    Nothing is returned for code that assigns a name twice.
    """
    names = [name for line in statements if (name := find_assigned_name(line)) is not None]
    last = getattr(statements[-1], "value", None) if statements else None
    if last is None or len({*names}) < len(names):
        return []
    values = {
        name: line.value
        for line in statements
        if isinstance(line, ast.Assign) and (name := find_assigned_name(line)) is not None
    }
    return [_write_term(term, values) for term in _open_sum(last, values, 1)]


def _open_sum(node: ast.expr, values: dict[str, ast.expr], sign: int) -> Iterator[ast.expr]:
    """Yield the terms of a sum, each with its sign."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right):
            yield from _open_sum(left, values, sign)
            yield from _open_sum(right, values, -sign if isinstance(operator, ast.Sub) else sign)
        case ast.Name(name) if is_sum(values.get(name)):
            yield from _open_sum(values[name], {**values, name: node}, sign)
        case ast.Call(ast.Attribute(inner, "mean" | "sum"), []) if is_sum(inner):
            yield from _open_sum(inner, values, sign)
        case _:
            yield node if sign > 0 else ast.UnaryOp(ast.USub(), node)


def is_sum(node: ast.expr | None) -> bool:
    """Is it a sum or a difference?"""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


def _write_term(term: ast.expr, values: dict[str, ast.expr]) -> Term:
    """Return a term with the assignments that it needs, in their order."""
    needed: set[str] = set()
    nodes = [term]
    trees: list[ast.expr] = [term]
    while nodes:
        names = {x.id for x in ast.walk(nodes.pop()) if isinstance(x, ast.Name)} & values.keys() - needed
        needed |= names
        nodes += [values[name] for name in names]
        trees += [values[name] for name in names]
    lines = [f"{name} = {ast.unparse(tree)}" for name, tree in values.items() if name in needed]
    text = "; ".join((*lines, ast.unparse(term)))
    is_of_labels = any(_takes_labels(node) for tree in trees for node in ast.walk(tree))
    return Term(text.replace("'", '"') if '"' not in text else text, is_of_labels)


def _takes_labels(node: ast.AST) -> bool:
    """Is it a cross-entropy at words of a data set?"""
    if not isinstance(node, ast.Call):
        return False
    called, operands = split_operands(node)
    return called in OF_LABELS and len(operands) > 1 and names_drawn_word(ast.unparse(operands[-1]))
