"""Losses with the words that say how they are used.

>>> case("rho*k3", "off token prefix").weights
'prefix'
"""

from __future__ import annotations

from typing import Any

from klsym.errors import NotInRing, UsageError
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from support.losses.random_losses import Case

WORDS: dict[str, tuple[str, str]] = {
    "off": ("sampling", "off-policy"), "on": ("sampling", "on-policy"), "reward": ("use", "reward"),
    "token": ("level", "token"), "sequence": ("level", "sequence"),
    "to-go": ("credit", "to-go"), "same": ("credit", "same-token"), "total": ("credit", "total"),
    "own": ("weights", "token"), "prefix": ("weights", "prefix"), "whole": ("weights", "sequence"),
    "/T": ("aggregate", "mean"), "/batch": ("aggregate", "batch"),
    "mean": ("batch", "mean"), "loo": ("batch", "leave-one-out"), "std": ("batch", "std"),
}  # fmt: skip


def options(words: str) -> dict[str, Any]:
    """What `klsym.explain` takes: options("off reward") is {"sampling": "off-policy", "use": "reward"}."""
    return dict(WORDS[word] for word in words.split())


def case(loss: str, words: str = "") -> Case:
    """A loss for the judge; at level token rho is that of the token unless another weight is named."""
    given = {"sampling": "on-policy", "use": "loss", "level": "sample", **options(words)}
    if given["level"] != "sample":
        given = {"aggregate": "sum", **given}
    if given["level"] == "token":
        given = {"weights": "token", **given}
    return Case(loss, ring=in_ring(loss), **given)


def in_ring(loss: str) -> bool:
    """Is it an exponential polynomial, of which the kernel proves all that is said?"""
    try:
        to_ring(parse(loss))
    except (NotInRing, UsageError):
        return False
    return True
