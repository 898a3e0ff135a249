"""What is computed on first access: the printed steps of a proof, cases of a coefficient, a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from klsym.engine.proof.derivation import Proof
from klsym.notation.printers import LATEX, TEXT
from klsym.notation.text import PrintedSide, build_printed_chain

Cases = Sequence[tuple[tuple[Any, ...], Any]]  # conditions (x, signs) and what the coefficient is there
ChainStep = tuple[str, str, str]  # rule, text, LaTeX


class LazyRows(Sequence[Any]):
    """A sequence whose rows are computed on first access; equal to any other with the same rows."""

    rows: Any

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class Chain(LazyRows):
    """The steps of a proof, printed on first access.

    Most verdicts are intermediate, or only their target is used.
    objective: a second proof, which ends in the gradient of the objective and starts where the first one
    starts or ends.
    """

    def __init__(self, proof: Proof, objective: Proof | None = None) -> None:
        self.proof, self.objective = proof, objective

    @cached_property
    def printed(self) -> list[tuple[PrintedSide, str]]:
        """The rows; two that are equal in LaTeX and in text are merged."""
        return [*build_printed_chain(self.proof, LATEX, TEXT), *self.objective_steps]

    @cached_property
    def objective_steps(self) -> list[tuple[PrintedSide, str]]:
        """The rows of the second proof, or one for all of them if it starts at the first row."""
        if self.objective is None:
            return []
        rows = build_printed_chain(self.objective, LATEX, TEXT)[1:]
        if not rows or self.objective.theorem.statement.left == self.proof.theorem.statement.right:
            return rows
        reasons = ", ".join(dict.fromkeys(reason for _, reason in rows))
        return [(rows[-1][0], f"from the first line: {reasons}")]

    @property
    def objective_row(self) -> tuple[ChainStep, ...]:
        """The last row, where it is the gradient of the objective."""
        return tuple((why, row(TEXT), row(LATEX)) for row, why in self.objective_steps[-1:])

    @cached_property
    def rows(self) -> tuple[ChainStep, ...]:
        """In text and in LaTeX."""
        return tuple((why, row(TEXT), row(LATEX)) for row, why in self.printed)

    @property
    def in_latex(self) -> list[tuple[str, str]]:
        """Rules and formulas in LaTeX alone."""
        return [(why, row(LATEX)) for row, why in self.printed]


class LazyCases(LazyRows):
    """Cases, or steps with cases, computed on first access: build(*arguments)."""

    def __init__(self, build: Callable[..., Sequence[Any]], *arguments: Any) -> None:
        self.build, self.arguments = build, arguments

    @cached_property
    def rows(self) -> Sequence[Any]:
        return tuple(self.build(*self.arguments))


class Search:
    """A model, or the assumptions of a value, computed on first access: search(*arguments)."""

    def __init__(self, search: Callable[..., Any], *arguments: Any) -> None:
        self.search, self.arguments = search, arguments

    @cached_property
    def result(self) -> Any:
        return self.search(*self.arguments)
