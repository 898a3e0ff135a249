"""Lines of a file as a function of the names that they read before they give them a value."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from klsym.audit.code import Argument, Code, collect_stored, collect_texts
from klsym.audit.compiled.rewriting import rewrite_function
from klsym.audit.expressions import normalise_text, set_line
from klsym.audit.source import File, collect_names_read
from klsym.errors import UsageError, spell_option

GRAD_OFF = ("no_grad", "inference_mode")
BLOCKS = ("body", "orelse", "finalbody")  # of statements, within a statement


def read_lines(file: File, name: str, result: str | None) -> Code:
    """Return the lines `name`, such as 120-128, of a file as code."""
    first, _, last = name.partition("-")
    start, end = int(first), int(last or first)
    inside = _find_statements(file.tree.body, start, end, str(file.path))
    if not inside:
        raise UsageError(f"{file.path}: no statement in lines {start} to {end}")
    lines = (min(start, inside[0].lineno), max(end, inside[-1].end_lineno or end))
    if lines != (start, end):
        file.notes.append(f"lines {start}-{end} cut a statement: lines {lines[0]}-{lines[1]} are read")
    chosen = normalise_text(result) if result else _find_last_assigned(inside)
    free = set().union(*(collect_names_read(s) for s in inside)) - set(file.definitions) - set(dir(builtins))
    names = sorted(
        (free - collect_stored(inside)) | (_find_names_read_first(inside) & collect_stored(inside))
    )
    node = _build_block(copy.deepcopy(inside), names, chosen, _find_no_grad_around(file.tree, *lines))

    def build(keys: Collection[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
        block = rewrite_function(node, keys=keys)
        file.compile_names(collect_names_read(block) - set(names) - collect_stored(inside))
        file.run([block])
        return file.namespace["block"], file.namespace

    arguments = tuple(Argument(x) for x in names)
    return Code(
        f"lines {lines[0]}-{lines[1]}", str(file.path), lines, arguments, build, file.notes, file.files,
        collect_texts(inside), collect_stored(inside),
    )  # fmt: skip


def _build_block(inside: list[ast.stmt], names: list[str], chosen: str, no_grad: Any) -> ast.FunctionDef:
    """Return statements as a function of the names that they read."""
    node = ast.parse(f"def block({', '.join(names)}): pass").body[0]
    assert isinstance(node, ast.FunctionDef)
    first, last = inside[0].lineno, inside[-1].end_lineno or inside[-1].lineno
    for part in ast.walk(node):
        set_line(part, first)
    returned = ast.Return(ast.parse(chosen, mode="eval").body)
    set_line(returned, last)
    body = [*inside, returned]
    node.body = (
        [ast.With([ast.withitem(no_grad)], body, lineno=first, col_offset=0)] if no_grad is not None else body
    )
    return node


def _find_statements(body: list[ast.stmt], start: int, end: int, path: str) -> list[ast.stmt]:
    """Return the statements within the lines, those that they cut included."""
    statements: list[ast.stmt] = []
    for node in body:
        first, last = node.lineno, node.end_lineno or node.lineno
        if start <= first and last <= end:
            statements.append(node)
        elif first <= end and last >= start:
            inner = [s for name in BLOCKS for s in getattr(node, name, [])]
            inner += [s for h in getattr(node, "handlers", []) for s in h.body]
            inner += [s for case in getattr(node, "cases", []) for s in case.body]
            within = first < start and end <= last
            deeper = _find_statements(inner, start, end, path) if within else []
            whole = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if not deeper and whole:
                raise UsageError(
                    f"{path}: lines {start} to {end} cut the definition of lines {first} to {last}"
                )
            statements += deeper or [node]
    return statements


def _find_names_read_first(body: list[ast.stmt], before: Iterable[str] = ()) -> set[str]:
    """Return the names that are read before they are assigned, in the order of statements.

    >>> sorted(_find_names_read_first(ast.parse("if a:\\n    b = c\\n    b += 1\\nd = d + b").body))
    ['a', 'c', 'd']
    """
    seen, names = set(before), set()
    for node in body:
        blocks = [getattr(node, name, []) for name in BLOCKS]
        inner = {part for block in blocks for s in block for part in ast.walk(s)}
        own_names = {n for n in ast.walk(node) if isinstance(n, ast.Name) and n not in inner}
        names |= {n.id for n in own_names if isinstance(n.ctx, ast.Load)} - seen
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names |= {node.target.id} - seen
        for block in blocks:
            names |= _find_names_read_first(block, seen)
        seen |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names


def _find_last_assigned(body: list[ast.stmt]) -> str:
    for node in reversed(body):
        match node:
            case ast.Assign(targets=[ast.Name(name)]) | ast.AugAssign(target=ast.Name(name)):
                return name
            case ast.AnnAssign(target=ast.Name(name)) if node.value is not None:
                return name
            case ast.Return(value) if value is not None:
                return ast.unparse(value)
            case ast.Expr(ast.Name() | ast.BinOp() | ast.UnaryOp() as value):  # what a notebook shows
                return ast.unparse(value)
            case ast.If(body=inside) | ast.With(body=inside):
                with suppress(UsageError):
                    return _find_last_assigned(inside)
    raise UsageError(
        f"the last of these lines assigns no name: say with {spell_option('result')} what is the loss"
    )


def _find_no_grad_around(tree: ast.Module, start: int, end: int) -> Any:
    """Return the no_grad() of a `with` around the lines; None where there is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and node.lineno < start and (node.end_lineno or 0) >= end:
            for item in node.items:
                if any(word in ast.unparse(item.context_expr) for word in GRAD_OFF):
                    return copy.deepcopy(item.context_expr)
    return None
