"""What to type for a pasted loss that cannot be read: its terms, each as code of its own; names of densities.

>>> code = "soft = F.kl_div(a/T, b/T)*T*T; hard = F.cross_entropy(x, labels); loss = w*soft - hard"
>>> [term.text for term in separate_terms(ast.parse(code).body)]
['soft = F.kl_div(a / T, b / T) * T * T; w * soft', 'hard = F.cross_entropy(x, labels); -hard']
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from klsym.errors import UsageError
from klsym.language.pasted.names import split_operands
from klsym.language.pasted.text import find_assigned_name, parse_python
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


WRITTEN = {"density": "exp(logp)", "log density": "logp", "entropy": "H(q)"}
"""What is written out with the number pi -> what to type in its place."""


def find_written(value: ast.expr) -> str:
    """Return which of WRITTEN, of a normal distribution, a value writes out; "" for other values.

    >>> codes = ("exp(-(a - m)**2/(2*v))/sqrt(2*np.pi*v)", "-((a - m)/s)**2/2 - log(s*sqrt(2*np.pi))",
    ...     "0.5*(log(2*math.pi*v) + 1)", "exp(-(a - m)**2)", "log(a) - np.pi")
    >>> [find_written(ast.parse(x, mode="eval").body) for x in codes]
    ['density', 'log density', 'entropy', '', '']
    """
    calls = [(*split_operands(x), x) for x in ast.walk(value) if isinstance(x, ast.Call)]
    if not _has_pi(value):
        return ""
    if any(name == "exp" and _squares_difference(x) for name, _, x in calls):
        return "density"
    if not any(name in ("log", "log1p") and _has_pi(x) for name, _, x in calls):
        return ""
    return "log density" if _squares_difference(value) else "entropy"


def _has_pi(tree: ast.AST) -> bool:
    """Is the number pi in it, by its name or in digits?"""
    names = {getattr(x, "attr", getattr(x, "id", "")) for x in ast.walk(tree)}
    numbers = [x.value for x in ast.walk(tree) if isinstance(x, ast.Constant)]
    return "pi" in names or any(isinstance(x, float) and abs(x - math.pi) < 0.01 for x in numbers)


def _squares_difference(tree: ast.AST) -> bool:
    """Is there the square of a difference in it?"""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(base, ast.Pow(), ast.Constant(2 | 2.0)):
                pass
            case ast.Call() if split_operands(node)[0] in ("square", "pow") and split_operands(node)[1]:
                base = split_operands(node)[1][0]
            case _:
                continue
        if any(isinstance(x, ast.BinOp) and isinstance(x.op, ast.Sub) for x in ast.walk(base)):
            return True
    return False


def _write_by_name(line: ast.stmt) -> str:
    """Return a line, with the name of a density that it writes out."""
    value = getattr(line, "value", None)
    kind = find_written(value) if isinstance(value, ast.expr) else ""
    return f"{find_assigned_name(line)} = {WRITTEN[kind]}" if kind else ast.unparse(line)


def refuse_written(statement: ast.stmt, source: str) -> UsageError | None:
    """Return why a statement that writes out a density is not read, with a command; None for others."""
    kind = find_written(value) if isinstance(value := getattr(statement, "value", None), ast.expr) else ""
    name = find_assigned_name(statement)
    if not kind or name is None:
        return None
    command = "; ".join(map(_write_by_name, parse_python(source).body))
    typed = (
        f"klsym explain {quote(command)}" if len(command) <= LONGEST else f"`{name} = {WRITTEN[kind]}; ..`"
    )
    return UsageError(f"{name[:60]!r} writes out the {kind} of a policy, which is not read: type {typed}")
