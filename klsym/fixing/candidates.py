"""The changes that are tried: each of one statement, most of one expression.  An audit judges them.

A kind is what is wrong: the estimator, a weight that is missing, a weight or density that is detached and
must not be, or the reverse, a ratio upside down, a sign, and exp(x) - 1, which loses its digits near x = 0.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import sympy

from klsym.fixing.edits import Edit
from klsym.fixing.scale import find_scale, is_multiple
from klsym.fixing.spelling import Speller, add_brackets
from klsym.fixing.traced import TracedCode
from klsym.language.expressions import A, R, log_mu, log_p, log_q

OPERATORS: dict[type, tuple[str, str]] = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
New = Iterator[tuple[ast.expr, str]]  # an expression, and what to write for it


def list_edits(traced: TracedCode) -> list[Edit]:
    """Return the changes that may mend a loss: those that keep its estimator first, and small ones."""
    kinds: dict[str, Callable[[TracedCode, ast.stmt], New]] = {
        "detach": propose_attached, "weight": propose_weights, "ratio": propose_swaps,
        "sign": propose_signs, "estimator": propose_estimators,
    }  # fmt: skip
    edits = [edit for statement in traced.statements for edit in _propose_statement(traced, statement)]
    for kind, propose in kinds.items():
        for statement in traced.statements:
            for node, text in propose(traced, statement):
                edits.append(traced.source.replace_expression(statement, node, text, kind))
    changes = {(e.start, e.end, e.new): e for e in edits if e is not None and e.new != e.old}
    return sorted(changes.values(), key=lambda edit: (edit.kind == "estimator", edit.size))


def list_accurate(traced: TracedCode) -> list[Edit]:
    """Return the changes of exp(x) - 1 to expm1(x)."""
    edits = [
        traced.source.replace_expression(statement, node, text, "expm1")
        for statement in traced.statements for node, text in propose_expm1(traced, statement)
    ]  # fmt: skip
    return [edit for edit in edits if edit is not None]


def _walk(statement: ast.stmt) -> list[Any]:
    return [n for n in ast.walk(statement) if isinstance(n, ast.expr) and hasattr(n, "lineno")]


def _list_topmost(node: Any, is_wanted: Callable[[Any], bool]) -> Iterator[ast.expr]:
    """Yield the expressions that are wanted and lie in no other one."""
    if isinstance(node, ast.expr) and is_wanted(node):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _list_topmost(child, is_wanted)


def _has(loss: Any, *symbols: Any) -> bool:
    return loss is not None and any(loss.has(x) for x in symbols)


# ---------------------------------------------------------------------------- estimators
def is_penalty(loss: Any) -> bool:
    """Is it a function of log q and log p alone, other than a multiple of their difference?"""
    return loss is not None and loss.free_symbols == {log_q, log_p}


def propose_estimators(traced: TracedCode, statement: ast.stmt) -> New:
    """Propose other estimators for a penalty, and for the part of it without a number before it."""
    for node in _list_topmost(statement.value, lambda n: is_penalty(traced.find_loss(n))):  # type: ignore[attr-defined]
        parts = [n for n in ast.walk(node) if isinstance(n, ast.expr)]
        whole = traced.find_loss(node)
        same = [
            n for n in parts if is_penalty(traced.find_loss(n)) and is_multiple(whole, traced.find_loss(n))
        ]
        if any(map(traced.is_defined_elsewhere, same)):
            continue
        for part in same:
            scale = find_scale(traced.find_loss(part))
            speller = Speller(traced, statement, part)
            for number in {scale, abs(scale)} if scale is not None else ():
                yield from ((part, text) for text in speller.list_losses(_write_scale(number)))


def _write_scale(scale: float) -> str:
    """Return what stands before an estimator.

    >>> _write_scale(1.0), _write_scale(-1.0), _write_scale(0.1)
    ('', '-', '0.1 * ')
    """
    return {1.0: "", -1.0: "-"}.get(scale, f"{scale:g} * ")


# ---------------------------------------------------------------------------- weights, detach
def propose_weights(traced: TracedCode, statement: ast.stmt) -> New:
    """Propose an importance weight where there is none: before a term, or for log q in the policy loss."""

    def lacks_weight(node: Any) -> bool:
        loss = traced.find_loss(node)
        return _has(loss, log_q) and _has(loss, log_p, A, R) and not _has(loss, log_mu)

    waiting = [*_list_topmost(statement.value, lacks_weight)]  # type: ignore[attr-defined]
    while waiting:
        node = waiting.pop()
        speller = Speller(traced, statement, node)
        for weight in speller.list_weights():
            yield node, f"{weight} * {add_brackets(traced.source.get_text(node))}"
        if isinstance(node, ast.BinOp | ast.UnaryOp):
            waiting += [n for child in ast.iter_child_nodes(node) for n in _list_topmost(child, lacks_weight)]
        if _has(traced.find_loss(node), A, R) and (rho := speller.write_weight()):
            names = [n for n in _walk(statement) if traced.find_role(n) == "q" and isinstance(n, ast.Name)]
            yield from ((name, rho) for name in names)


def propose_attached(traced: TracedCode, statement: ast.stmt) -> New:
    """Propose a value without its detach, and a weight with one."""
    for node in _walk(statement):
        match node:
            case ast.Call(ast.Attribute(inner, "detach"), [], []) | ast.Call(
                ast.Attribute(_, "stop_gradient") | ast.Name("stop_gradient"), [inner], []
            ):
                yield node, traced.source.get_text(inner)
                continue
        if traced.find_role(node) == "rho":
            yield node, Speller(traced, statement, node).detach(traced.source.get_text(node)) or "_"


def propose_swaps(traced: TracedCode, statement: ast.stmt) -> New:
    """Propose b - a for a difference a - b of log densities."""
    for node in _walk(statement):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            sides = [node.left, node.right]
            if all(traced.find_role(side) in ("q", "p", "mu") for side in sides):
                first, second = map(traced.source.get_text, sides)
                yield node, f"{second} - {add_brackets(first)}"


# ---------------------------------------------------------------------------- signs
def propose_signs(traced: TracedCode, statement: ast.stmt) -> New:
    """Propose the other sign for a term, and + for - between two terms."""
    waiting: list[Any] = [statement.value]  # type: ignore[attr-defined]
    while waiting:
        node = waiting.pop()
        formula, loss = traced.find_formula(node), traced.find_loss(node)
        if not _has(formula, log_q) or not _has(formula, log_p, A, R) or (loss and is_log_ratio(loss)):
            continue
        match node:
            case ast.UnaryOp(ast.USub(), inner):
                yield node, traced.source.get_text(inner)
            case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right) if not is_penalty(loss):
                waiting += [left, right]
                yield node, f"-({traced.source.get_text(node)})"
                if text := _flip(traced, node, OPERATORS[type(operator)]):
                    yield node, text
            case _:
                text = traced.source.get_text(node)
                if isinstance(_find_first(node), ast.UnaryOp) and text.startswith("-"):
                    yield node, text.removeprefix("-")
                yield node, f"-{text}" if not isinstance(node, ast.BinOp | ast.IfExp) else f"-({text})"


def _find_first(node: Any) -> Any:
    """Return the first factor of a product."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        node = node.left
    return node


def _flip(traced: TracedCode, node: ast.BinOp, signs: tuple[str, str]) -> str:
    """Return a sum with the other operator."""
    source = traced.source
    whole, left, right = (source.find_bytes(n) for n in (node, node.left, node.right))
    before, between, behind = (
        source.data[a:b].decode()
        for a, b in ((whole.start, left.stop), (left.stop, right.start), (right.start, whole.stop))
    )
    return "" if between.count(signs[0]) != 1 else f"{before}{between.replace(*signs)}{behind}"


# ---------------------------------------------------------------------------- exp(x) - 1
def propose_expm1(traced: TracedCode, statement: ast.stmt) -> New:
    """Propose expm1(x) for exp(x) - 1, also where other terms stand between them."""
    for node in _list_topmost(statement.value, lambda n: _find_surplus(traced, n) is not None):  # type: ignore[attr-defined]
        terms = _find_surplus(traced, node)
        if terms is not None:
            exponential, others = terms
            inner = exponential.args[0] if exponential.args else exponential.func.value
            text = Speller(traced, statement, node).call("expm1", traced.source.get_text(inner))
            parts = [f" {sign} {add_brackets(traced.source.get_text(term))}" for sign, term in others]
            yield node, text + "".join(parts)


def _find_surplus(traced: TracedCode, node: Any) -> tuple[Any, list[tuple[str, ast.expr]]] | None:
    """Return exp(x) of a sum exp(x) - 1 + .., and its other terms; None where x is no log ratio."""
    if not isinstance(node, ast.BinOp):
        return None
    terms = _list_terms(node)
    one = next((t for t in terms if t[0] == "-" and isinstance(t[1], ast.Constant) and t[1].value == 1), None)
    for sign, term in terms:
        match term:
            case ast.Call(ast.Attribute(_, "exp"), [inner], []) | ast.Call(
                ast.Attribute(inner, "exp"), [], []
            ):
                loss = traced.find_loss(inner)
                if one is not None and sign == "+" and loss is not None and is_log_ratio(loss):
                    return term, [t for t in terms if t[1] not in (one[1], term)]
    return None


def is_log_ratio(loss: Any) -> bool:
    """Is it a difference of log densities, or a multiple of one?"""
    densities = (log_q, log_p, log_mu)
    if loss.has(A, R) or not loss.is_polynomial(*densities):
        return False
    is_zero = sympy.expand(loss.subs({log_p: log_q, log_mu: log_q})) == 0
    return is_zero and sympy.Poly(loss, *densities).total_degree() == 1


def _list_terms(node: Any) -> list[tuple[str, ast.expr]]:
    """Return the terms of a sum with their signs."""
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return [*_list_terms(left), ("+", right)]
        case ast.BinOp(left, ast.Sub(), right):
            return [*_list_terms(left), ("-", right)]
    return [("+", node)]


# ---------------------------------------------------------------------------- whole statements
def _propose_statement(traced: TracedCode, statement: ast.stmt) -> Iterator[Edit | None]:
    """Yield changes of x -= y and x.sub_(y), whose value is that of x behind it."""
    match statement:
        case ast.AugAssign(ast.Name(name), operator, _):
            loss = _find_value_behind(traced, name, statement)
            if type(operator) in OPERATORS and _has(loss, log_q):
                sign, other = OPERATORS[type(operator)]
                text = traced.source.get_text(statement).replace(f"{sign}=", f"{other}=", 1)
                yield traced.source.replace_statement(statement, text, "sign")
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method))) if method.endswith("_"):
            loss = traced.find_loss(statement.value)
        case _:
            return
    scale = find_scale(loss) if is_penalty(loss) else None
    for text in Speller(traced, statement).list_losses(_write_scale(scale)) if scale is not None else []:
        yield traced.source.replace_statement(statement, f"{name} = {text}", "estimator")


def _find_value_behind(traced: TracedCode, name: str, statement: ast.stmt) -> Any:
    """Return the formula of a variable where it is read first behind a statement."""
    reads = [
        n for n in ast.walk(traced.source.tree)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
        and n.lineno > (statement.end_lineno or 0) and traced.find_formula(n) is not None
    ]  # fmt: skip
    return traced.find_loss(min(reads, key=lambda n: (n.lineno, n.col_offset))) if reads else None
