"""Combinations of the named targets, such as grad KL(q||p) - lam grad KL(p||q)."""

from __future__ import annotations

from collections.abc import Mapping

from klsym.notation.printers import LATEX, TEXT
from klsym.notation.reading import read
from klsym.notation.tree import (
    Divergence,
    Formula,
    Gradient,
    Mean,
    Minus,
    Name,
    Number,
    Product,
    add_terms,
    negate,
)

REVERSE, FORWARD = (Divergence("KL", Name(a), Name(b)) for a, b in ("qp", "pq"))
NAMES = {"reverse-kl": REVERSE, "forward-kl": FORWARD}


def format_combination(multiples: Mapping[str, str]) -> str:
    """Return text such as "grad KL(q||p) - grad KL(p||q)" from the multiples.

    >>> format_combination({"reverse-kl": "1", "forward-kl": "-lam"})
    'grad KL(q||p) - lam grad KL(p||q)'
    >>> format_combination({"reward": "-A", "rest": "beta/rho"})
    '-grad E_q[A] + E_q[beta/rho*s]'
    """
    return TEXT(add_terms(*(_build_gradient(name, read(value)) for name, value in multiples.items())))


def format_value(multiples: Mapping[str, str], constant: str) -> str:
    """Return an expected value as text.

    >>> format_value({"reverse-kl": "1", "reward": "-beta*R"}, "-3")
    'KL(q||p) - E_q[beta*R] - 3'
    """
    rows = (
        build_mean(read(v)) if n == "reward" else _scale_target(read(v), NAMES[n])
        for n, v in multiples.items()
    )
    return TEXT(add_terms(*rows, *([read(constant)] if constant != "0" else [])))


def build_objective_terms(multiples: Mapping[str, str]) -> list[Formula]:
    """Build the terms of the objective with these multiples, rewards first.

    >>> TEXT(add_terms(*build_objective_terms({"forward-kl": "beta", "reward": "-A"})))
    '-E_q[A] + beta*KL(p||q)'
    """
    named = sorted(multiples.items(), key=lambda row: row[0] != "reward")
    return [
        build_mean(read(v)) if name == "reward" else _scale_target(read(v), NAMES[name], False)
        for name, v in named
    ]


def format_objective(multiples: Mapping[str, str]) -> str:
    """The objective with these multiples.

    >>> format_objective({"reverse-kl": "2"})
    '2*KL(q||p)'
    """
    return TEXT(add_terms(*build_objective_terms(multiples)))


def format_objective_latex(multiples: Mapping[str, str]) -> str:
    r"""The objective with these multiples, which are text.

    >>> format_objective_latex({"reverse-kl": "beta", "reward": "-A"})
    '-\\mathbb{E}_{q}\\!\\left[A\\right] + \\beta\\,\\mathrm{KL}(q\\,\\Vert\\,p)'
    """
    return LATEX(add_terms(*build_objective_terms(multiples)))


def build_mean(value: Formula) -> Formula:
    """Build E_q[value], with the sign of the value before the mean."""
    return Minus(build_mean(value.of)) if isinstance(value, Minus) else Mean("q", value)


def _build_gradient(name: str, value: Formula) -> Formula:
    if name == "reward":
        mean = build_mean(value)
        return Minus(Gradient(mean.of)) if isinstance(mean, Minus) else Gradient(mean)
    if name == "rest":
        return Mean("q", Product((value, Name("s"))))
    return _scale_target(value, Gradient(NAMES[name]))


def _scale_target(value: Formula, target: Formula, loose: bool = True) -> Formula:
    if isinstance(value, Minus):
        return negate(_scale_target(value.of, target, loose))
    return target if value == Number(1) else Product((value, target), loose=loose)
