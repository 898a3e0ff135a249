"""The ledger: every claim with its source.  A claim is a function that returns its proofs, marked by `claim`.

>>> load()["gradient.k3-loss"].verdict
'proved'
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from klsym.errors import UsageError

VERDICTS = ("proved", "refuted", "corrected", "exact", "computed")
TRUSTS = ("kernel", "sympy", "numeric")  # strongest first
# The kinds of corrected claims, in the order in which they are listed.
PRINTED, WORDS, SLIP = ERRATA = ("Printed formulas", "Our reading of words", "Slips of the pen")


@dataclass(frozen=True)
class Claim:
    """One entry of the ledger.

    verdict: "proved" (by the kernel), "refuted" (a finite model shows the two sides differ),
    "corrected" (false as printed in the source; the true form is established and the printed one
    refuted), "exact" (an exact calculation beyond the kernel's ring) or "computed" (an experiment).
    words: what the source of a corrected claim says without a formula; the refuted form is our reading of it.
    slip: is the refuted form a slip of the pen?  later: what a later version of the source makes of it.
    instances: what the numeric oracle puts in for generic functions that a premise constrains.
    reading: how the formula is to be read, where it needs saying.
    """

    id: str
    verdict: str
    source: str
    explanation: str
    build: Callable[[], Any]
    instances: Mapping[str, Any] = field(default_factory=dict)
    reading: tuple[str, ...] = ()
    words: str = ""
    slip: bool = False
    later: str = ""

    @property
    def erratum(self) -> str:
        """The kind of a corrected claim, one of ERRATA."""
        return SLIP if self.slip else WORDS if self.words else PRINTED

    @property
    def false_form(self) -> str:
        """Describe how the refuted form of a corrected claim relates to its source.

        >>> load()["practice.reward-k3-advised"].false_form
        'our reading of: k3 in the reward, unbiased for the value, is right; withdrawn in WZ2 7 and 9.4'
        """
        form = f"our reading of: {self.words}" if self.words else "as printed, "
        if not self.words:
            form += "a slip of the pen" if self.slip else "false"
        return f"{form}; {self.later}" if self.later else form

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]


REGISTRY: dict[str, Claim] = {}


def claim(
    id: str,
    verdict: str = "proved",
    source: str = "",
    instances: Mapping[str, Any] | None = None,
    reading: tuple[str, ...] = (),
    words: str = "",
    slip: bool = False,
    later: str = "",
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register the decorated function, which returns proofs or other evidence, as a claim."""
    if verdict not in VERDICTS:
        raise ValueError(f"claim {id}: verdict {verdict!r} is not one of {VERDICTS}")

    def register(build: Callable[[], Any]) -> Callable[[], Any]:
        registered = REGISTRY.get(id)
        if registered is not None and registered.build.__qualname__ != build.__qualname__:
            raise ValueError(f"claim {id}: already registered by {registered.build.__qualname__}")
        explanation = " ".join((build.__doc__ or "").split())
        REGISTRY[id] = Claim(
            id,
            verdict,
            source,
            explanation,
            build=build,
            instances=instances or {},
            reading=reading,
            words=words,
            slip=slip,
            later=later,
        )
        return build

    return register


def load() -> dict[str, Claim]:
    """All claims of the derivations that ship with klsym, in the order of their files."""
    package = importlib.import_module("klsym.derivations")
    for module in sorted(pkgutil.walk_packages(package.__path__, "klsym.derivations."), key=lambda m: m.name):
        importlib.import_module(module.name)
    # stable: in the order of the files, whichever of them was imported first
    return dict(sorted(REGISTRY.items(), key=lambda item: item[1].build.__module__))


def corrected() -> list[Claim]:
    """The corrected claims: printed formulas first, then our readings of words, then slips of the pen."""
    corrected_claims = [claim for claim in load().values() if claim.verdict == "corrected"]
    return sorted(corrected_claims, key=lambda claim: ERRATA.index(claim.erratum))


def select(ids: list[str]) -> list[Claim]:
    """The claims with these ids; an area such as `gradient` stands for all of its claims."""
    claims = load()
    if not ids:
        return list(claims.values())
    chosen: dict[str, Claim] = {}
    for name in ids:
        selected_claims = {i: c for i, c in claims.items() if name in (i, c.area)}
        if not selected_claims:
            raise UsageError(f"unknown claim {name[:60]!r}: `klsym claims` lists them")
        chosen |= selected_claims
    return list(chosen.values())
