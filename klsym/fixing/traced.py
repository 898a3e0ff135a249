"""What the trace knows of each expression of the audited code, and the user's own names for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import sympy

from klsym.audit.audits import AuditRun
from klsym.audit.binding import bind, parse_role
from klsym.audit.code import Code
from klsym.audit.compiled.recording import Place, Records, record_values
from klsym.audit.compiled.sources import read_source
from klsym.audit.reading import read
from klsym.audit.terms import Total, mask, to_grammar
from klsym.errors import KlsymError
from klsym.fixing.edits import Source
from klsym.language.expressions import ATOMS, DENSITIES, log_mu, log_p, log_q, sg, unfold

LOG_RATIO, LOG_WEIGHT = log_q - log_p, log_q - log_mu
ROLES = {  # what replacements are made of, by the names that `Speller` has
    "q": log_q, "p": log_p, "mu": log_mu, "k1": LOG_RATIO, "-k1": -LOG_RATIO, "w": LOG_WEIGHT,
    "rho": sympy.exp(LOG_WEIGHT), "sg(rho)": sg(sympy.exp(LOG_WEIGHT)),
}  # fmt: skip
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)


@dataclass(frozen=True)
class TracedCode:
    """The audited code with the formulas of its expressions.

    formulas: of each place of the file.  names: expressions that the audit has bound, with their roles.
    framework: the library that it uses.
    """

    source: Source
    code: Code
    formulas: Mapping[Place, Any]
    names: Mapping[str, Any]
    framework: str
    _losses: dict[Any, Any] = field(default_factory=dict)

    # -- what may be changed --------------------------------------------------------------------
    @cached_property
    def functions(self) -> list[tuple[int, int]]:
        """The lines that may be changed: those that are audited, and helpers that nothing else can use.

        Such a helper is named _helper, and all that names it in the file may be changed as well.
        """
        spans = [self.code.lines]
        helpers = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.FunctionDef)]
        private = [n for n in helpers if n.name.startswith("_") and not n.name.startswith("__")]
        for _ in private:
            for helper in private:
                lines = (helper.lineno, helper.end_lineno or helper.lineno)
                if lines not in spans and self._is_named_within(helper.name, spans):
                    spans.append(lines)
        return spans

    def _is_named_within(self, name: str, spans: list[tuple[int, int]]) -> bool:
        nodes = [
            n for n in ast.walk(self.source.tree)
            if name in (getattr(n, "id", ""), getattr(n, "attr", ""), getattr(n, "name", ""))
            and not isinstance(n, ast.FunctionDef)
        ]  # fmt: skip
        return bool(nodes) and all(
            any(first <= getattr(n, "lineno", 0) <= last for first, last in spans) for n in nodes
        )

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The statements that may be changed, each of which has one value."""
        nodes = [n for n in ast.walk(self.source.tree) if isinstance(n, SIMPLE) and n.value is not None]
        return [
            n for n in nodes if any(a <= n.lineno and (n.end_lineno or 0) <= b for a, b in self.functions)
        ]  # fmt: skip

    def is_defined_elsewhere(self, node: Any) -> bool:
        """Is it a variable, or the call of a helper, whose value is changed where it is made?"""
        called = getattr(node, "func", None)
        name = getattr(called, "id", getattr(called, "attr", ""))
        helpers = {
            n.name for n in ast.walk(self.source.tree)
            if isinstance(n, ast.FunctionDef) and (n.lineno, n.end_lineno) in self.functions[1:]
        }  # fmt: skip
        return isinstance(node, ast.Name) or name in helpers

    # -- what is known --------------------------------------------------------------------------
    def find_formula(self, node: Any) -> Any:
        """Return the formula of an expression as it was traced; None where it was not, or changed."""
        place = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        return self.formulas.get(Place(self.source.file, *place))

    def find_loss(self, node: ast.expr) -> Any:
        """Return the formula in the loss grammar, unfolded; None for sums over axes, and what is masked."""
        formula = self.find_formula(node)
        if formula not in self._losses:
            self._losses[formula] = None if formula is None else _convert(formula)
        return self._losses[formula]

    def find_role(self, node: ast.expr) -> str:
        """Return which of ROLES an expression is; "" for none."""
        loss = self.find_loss(node)
        return next((name for name, role in ROLES.items() if loss == role), "")

    def find_text(self, role: str, statement: ast.stmt, near: ast.AST | None = None) -> str:
        """Return the user's name for a role at a statement: within an expression, else any; "" for none."""
        inside = [n for n in ast.walk(near) if isinstance(n, ast.expr)] if near is not None else []
        named = (ast.Name, ast.Attribute, ast.Subscript)
        inside.sort(key=lambda n: (not isinstance(n, named), len(self.source.get_text(n))))
        for node in inside:
            if isinstance(node, named) and self.find_role(node) == role:
                return self.source.get_text(node)
        for name, formula in self._list_variables(statement):
            if formula == ROLES[role]:
                return name
        bound = (text for text, formula in self.names.items() if unfold(formula) == ROLES[role])
        return next((text for text in bound if not text.isidentifier()), "")

    def _list_variables(self, statement: ast.stmt) -> Iterator[tuple[str, Any]]:
        """Yield the variables that have one formula, and that have it before the statement; latest first."""
        formulas: dict[str, set[Any]] = {}
        for node in self._walk_near(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                formulas.setdefault(node.id, set()).add(self.find_loss(node))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                formulas.setdefault(node.targets[0].id, set()).add(self.find_loss(node.value))
        lines = self._find_first_lines(statement)
        formulas |= {name: {unfold(self.names[name])} for name in lines if name in self.names}
        for name in sorted(lines, key=lambda name: -lines[name]):
            known = formulas.get(name, set()) - {None}
            if lines[name] < statement.lineno and len(known) == 1:
                yield name, known.pop()

    def _walk_near(self, statement: ast.stmt) -> list[ast.AST]:
        """Return all nodes of the function that has a statement."""
        first, last = next(
            ((a, b) for a, b in reversed(self.functions) if a <= statement.lineno <= b), self.code.lines
        )
        return [n for n in ast.walk(self.source.tree) if first <= getattr(n, "lineno", 0) <= last]

    def _find_first_lines(self, statement: ast.stmt) -> dict[str, int]:
        """Return the names that have a value in the function of a statement, with the line of the first."""
        lines: dict[str, int] = {}
        for node in self._walk_near(statement):
            name = node.arg if isinstance(node, ast.arg) else getattr(node, "id", "")
            is_value = isinstance(node, ast.arg) or isinstance(getattr(node, "ctx", None), ast.Store)
            if name and is_value:
                line = 0 if isinstance(node, ast.arg) else getattr(node, "lineno", 0)
                lines[name] = min(line, lines.get(name, line))
        return lines


def _convert(formula: Any) -> Any:
    try:
        formula = formula.replace(_is_of_sequence, lambda e: e.args[0].xreplace({mask: sympy.S.One}))
        loss = None if formula.has(mask) else unfold(to_grammar(formula))
    except (KlsymError, TypeError, AttributeError):
        return None
    return sympy.powsimp(loss) if isinstance(loss, sympy.Mul) else loss


def _is_of_sequence(e: Any) -> bool:
    """Is it the sum of a log density, or of a difference of two, over the tokens of a sequence?"""
    if not isinstance(e, Total) or e.axes != "t" or not e.args[0].is_polynomial(*DENSITIES):
        return False
    return bool(sympy.Poly(e.args[0], *DENSITIES).total_degree() == 1)


def trace_code(
    target: str, map: Mapping[str, str], set: Mapping[str, Any], result: str | None,
    setting: Mapping[str, Any],
) -> TracedCode:  # fmt: skip
    """Trace code that an audit has read, with the formula of each of its expressions."""
    with record_values() as records:
        code = read(target, result)
        run = AuditRun(code, bind(code, map, set), result, dict(setting))
        layout = run.trace_without_misfits().layout
        records.clear()
        run.trace_once(layout)
    text = read_source(Path(code.file))
    names = {**_guess_unused(run), **run.bindings.roles}
    names = {name: role for name, role in names.items() if role != mask}
    return TracedCode(
        Source(text, code.file),
        code,
        formulas=_join_records(records),
        names=names,
        framework=run.framework.name,
    )


def _guess_unused(run: AuditRun) -> dict[str, Any]:
    """Return the roles of arguments that the code does not use, by their usual names."""
    guesses = [run.guess(a.name, "", False) for a in run.code.arguments if a.name not in run.bindings.roles]
    return {guess[0]: parse_role(guess[1]) for guess in guesses if guess and guess[1] in ATOMS}


def _join_records(records: Records) -> dict[Place, Any]:
    """Return the formula of each place; a place that has several, as in a loop, has none."""
    formulas: dict[Place, set[Any]] = {}
    for place, formula in records:
        if isinstance(formula, sympy.Basic):
            formulas.setdefault(place, set()).add(formula)
    return {place: next(iter(values)) for place, values in formulas.items() if len(values) == 1}
