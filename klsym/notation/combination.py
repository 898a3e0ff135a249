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
    negated,
    total,
)

REVERSE, FORWARD = (Divergence("KL", Name(a), Name(b)) for a, b in ("qp", "pq"))
NAMES = {"reverse-kl": REVERSE, "forward-kl": FORWARD}


def combination_text(multiples: Mapping[str, str]) -> str:
    """grad KL(q||p) - grad KL(p||q), from the multiples.

    >>> combination_text({"reverse-kl": "1", "forward-kl": "-lam"})
    'grad KL(q||p) - lam grad KL(p||q)'
    >>> combination_text({"reward": "-A", "rest": "beta/rho"})
    '-grad E_q[A] + E_q[beta/rho*s]'
    """
    return TEXT(total(*(_gradient(name, read(value)) for name, value in multiples.items())))


def value_text(multiples: Mapping[str, str], constant: str) -> str:
    """What a value comes to.

    >>> value_text({"reverse-kl": "1", "reward": "-beta*R"}, "-3")
    'KL(q||p) - E_q[beta*R] - 3'
    """
    rows = (mean_of(read(v)) if n == "reward" else _times(read(v), NAMES[n]) for n, v in multiples.items())
    return TEXT(total(*rows, *([read(constant)] if constant != "0" else [])))


def objective_rows(multiples: Mapping[str, str]) -> list[Formula]:
    """The terms of the objective with these multiples, rewards first.

    >>> TEXT(total(*objective_rows({"forward-kl": "beta", "reward": "-A"})))
    '-E_q[A] + beta*KL(p||q)'
    """
    named = sorted(multiples.items(), key=lambda row: row[0] != "reward")
    return [
        mean_of(read(v)) if name == "reward" else _times(read(v), NAMES[name], False) for name, v in named
    ]


def objective_text(multiples: Mapping[str, str]) -> str:
    """The objective with these multiples.

    >>> objective_text({"reverse-kl": "2"})
    '2*KL(q||p)'
    """
    return TEXT(total(*objective_rows(multiples)))


def combination_latex(multiples: Mapping[str, str]) -> str:
    r"""The objective with these multiples, which are text.

    >>> combination_latex({"reverse-kl": "beta", "reward": "-A"})
    '-\\mathbb{E}_{q}\\!\\left[A\\right] + \\beta\\,\\mathrm{KL}(q\\,\\Vert\\,p)'
    """
    return LATEX(total(*objective_rows(multiples)))


def mean_of(value: Formula) -> Formula:
    """One sign comes out of the mean."""
    return Minus(mean_of(value.of)) if isinstance(value, Minus) else Mean("q", value)


def _gradient(name: str, value: Formula) -> Formula:
    if name == "reward":
        mean = mean_of(value)
        return Minus(Gradient(mean.of)) if isinstance(mean, Minus) else Gradient(mean)
    if name == "rest":
        return Mean("q", Product((value, Name("s"))))
    return _times(value, Gradient(NAMES[name]))


def _times(value: Formula, target: Formula, loose: bool = True) -> Formula:
    if isinstance(value, Minus):
        return negated(_times(value.of, target, loose))
    return target if value == Number(1) else Product((value, target), loose=loose)
