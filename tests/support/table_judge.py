"""What a table's LaTeX does in pdflatex, and what its formulas are worth on a finite model."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from klsym.study.tables.writing.table import MATH, Cell, Row, Table


def formulas(cell: Cell) -> list[str]:
    return [text for kind, text in cell.pieces if kind == MATH]


def plain(cell: Cell) -> str:
    return "".join(text for _, text in cell.pieces)


def row_of(table: Table, *claims: str) -> Row:
    """The one row that rests on just these claims."""
    [row] = [row for row in table.rows if row.claims == claims]
    return row


SPELLED = (
    (r"\\!", ""), (r"\\tfrac", r"\\frac"), (r"\\left|\\right", ""),
    (r"\\nabla \\mathrm\{KL\}\(\\?(\w+)\\,\\Vert\\,(\w)\)", r"slope_\1_\2"),
    (r"\\mathbb\{E\}_\{\\?(\w+)\}\[", r"E(\1,("), (r"\]", "))"), (r"\\nabla E\(q,\(R\)\)", "slope_R"),
    (r"\\mathrm\{Var\}_\{(\w)\}\(", r"Var(\1,"), (r"\\mathrm\{KL\}\(q\\,\\Vert\\,p\)", "KL"),
    (r"\\chi\^2\(p\\,\\Vert\\,q\)", "chi2"), (r"J\(p,q\)", "J"), (r"\^\{2\}", "**2"),
    (r"k_(\d)", r"k\1"), (r"\\lambda", "lam"), (r"_\{\\star\}", "_star"),
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))"), (r"\\,", "*"), (r"\\(rho|mu|beta)", r"\1"),
)  # fmt: skip


def number(formula: str, values: dict[str, Any]) -> Any:
    """A printed formula of means, variances and divergences on a finite model: read, not trusted.

    values: the densities and what is a function of the outcome as arrays, the rest as numbers; gradients as
    slope_R, slope_q_p.
    """
    text = formula
    for pattern, spelled in SPELLED:
        text = re.sub(pattern, spelled, text)
    assert "\\" not in text, text
    means = {"E": lambda m, a: float(m @ (a + 0 * m)), "Var": lambda m, a: float(m @ a**2 - (m @ a) ** 2)}
    return eval(text, {"__builtins__": {}}, {**means, **values})  # a formula of this package


def world(seed: int, size: int = 4, ratios: tuple[float, float] = (0.2, 3.0)) -> dict[str, Any]:
    """A random finite model, p/q between these bounds before p is normalised."""
    stream = np.random.default_rng(seed)
    q, mu = stream.dirichlet(np.ones(size) * 3), stream.dirichlet(np.ones(size) * 3)
    p = q * stream.uniform(*ratios, size)
    p = p / p.sum()
    u = stream.normal(size=size)
    return of(q, p, mu, u)


def of(q: Any, p: Any, mu: Any, u: Any) -> dict[str, Any]:
    q, p, mu, u = (np.asarray(row, dtype=float) for row in (q, p, mu, u))
    k1, r = np.log(q / p), p / q
    kl = float(q @ k1)
    return {
        "q": q, "p": p, "mu": mu, "s": u - q @ u, "k1": k1, "k2": k1**2 / 2, "k3": r - 1 + k1, "r": r,
        "rho": q / mu, "KL": kl, "d": kl, "chi2": float(q @ (r - 1) ** 2), "J": kl - float(p @ k1),
    }  # fmt: skip


def spread(measure: Any, a: Any) -> float:
    """The variance of a, straight from the probabilities."""
    return float(measure @ (a - measure @ a) ** 2)
