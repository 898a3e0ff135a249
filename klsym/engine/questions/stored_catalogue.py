"""The stored catalogue: in each setting, the losses of a small grammar that have the gradient of a KL.

`klsym.study.questions.catalogue` makes it, by enumeration; `recommend` chooses among its losses.

>>> search = load_catalogue().of("off-policy", "loss")
>>> [(choice.loss, choice.constant) for choice in search.choices["reverse-kl"][:2]]
[('rho*k1', '1'), ('rho*k3', '0')]
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from klsym.files import read_text
from klsym.kernel.names import parse_name
from klsym.kernel.ring import ExpPoly

STORED = Path(__file__).with_name("catalogue.json")
MAX_BYTES = 10_000_000  # of a file that is read


@dataclass(frozen=True)
class CatalogueChoice:
    """The gradient a s at a sample that has the expected gradient of a KL, with c = k1 + b or -r + b.

    constant: b.  gradient: a.  loss: the first of the shortest losses that have it, of that size.
    unbiased: the first of the shortest whose value estimates the same KL, or None.  losses, spellings: how
    many have it.  nearest: from where to where b is the nearest to a number of all that are listed, None for
    no end.  Of two constants the one nearer to b_star varies less, by the claim catalogue.order:
    b_star = -E_m[rho^2 k1 s^2]/E_m[rho^2 s^2], and for the forward KL the same of -r.
    """

    constant: str
    gradient: str
    loss: str
    size: int
    unbiased: str | None
    losses: int
    spellings: int
    nearest: tuple[str | None, str | None]


@dataclass(frozen=True)
class CatalogueSearch:
    """What there is in one setting.

    counts: kind (KINDS) -> how many there are up to each size.  targets: target -> how many losses up to
    each size have it.  choices: "reverse-kl" and "forward-kl" -> the gradients that have it, shortest first.
    best, estimates: of what has the gradient of a KL, and of what has its value, the losses of which none
    asks for as much as another; here an expression may start with a minus.
    """

    sampling: str
    use: str
    counts: dict[str, list[int]]
    targets: dict[str, list[int]]
    choices: dict[str, tuple[CatalogueChoice, ...]]
    best: dict[str, tuple[str, ...]]
    estimates: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Catalogue:
    """All settings, for spellings up to a size.

    spellings: how many expressions there are up to each size.
    """

    size: int
    spellings: list[int]
    settings: tuple[CatalogueSearch, ...]

    def of(self, sampling: str, use: str) -> CatalogueSearch:
        """What there is in a setting.

        Raises KeyError: there is no such setting.
        """
        return {(found.sampling, found.use): found for found in self.settings}[sampling, use]

    @staticmethod
    def from_json(data: dict[str, Any]) -> Catalogue:
        return Catalogue(
            data["size"], data["spellings"], tuple(_read_search(row) for row in data["settings"])
        )


def _read_search(row: dict[str, Any]) -> CatalogueSearch:
    choices = {kl: tuple(map(_read_choice, rows)) for kl, rows in row["choices"].items()}
    lists = {name: {kl: tuple(losses) for kl, losses in row[name].items()} for name in ("best", "estimates")}
    return CatalogueSearch(**{**row, "choices": choices, **lists})


def _read_choice(row: dict[str, Any]) -> CatalogueChoice:
    low, high = row["nearest"]
    return CatalogueChoice(**{**row, "nearest": (low, high)})


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Return the catalogue that klsym brings along.

    >>> load_catalogue().of("on-policy", "reward").choices["reverse-kl"][0].loss
    'k1'
    """
    return Catalogue.from_json(json.loads(read_text(STORED, MAX_BYTES)))


def contains_reference_ratio(element: ExpPoly) -> bool:
    """Return whether it holds a positive power of r = exp(-k1), which overflows before log r does?"""
    rates = ((m, rate) for _, exponent in element.terms for m, rate in exponent)
    return any(rate < 0 and any(parse_name(name).base == "k1" for name, _ in m) for m, rate in rates)
