"""Names of the author's own, and what may define them.  Trusted; standard library only."""

from __future__ import annotations

from typing import Any, NamedTuple

from klsym.errors import Refused
from klsym.kernel.names import THETA_FREE, WHOLE, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import SINGLE, SLOTS

REGION, LOG, LET = OF_SAMPLES = ("region", "log", "let")
MEANS = {"E_q": "q", "E_p": "p", "E_mu": "mu"}
KINDS = (*OF_SAMPLES, *MEANS)
FACT = "fact"


class Definition(NamedTuple):
    """A name of the author's own: 1 where e > 0 and 0 elsewhere (region), log(e), e itself (let), or E_m[e].

    Where a density in e is 0, a region is 0 or 1 and any other name is any number; so is a log where e <= 0.
    An expectation is the same at each sample, and moves with theta.
    """

    name: str
    kind: str
    e: ExpPoly


EVERY_SLOT = frozenset(slot for slots in SLOTS.values() for slot in slots)


def read_defined(data: Any, context: Any, kind: str) -> ExpPoly:
    """Return what defines a name: no sg(..), and no f', which need not be continuous.

    A fact restricts rewards, masks, lengths and parameters, and no density; it speaks of one sample or step.
    An expectation is one of single samples; no region has bounds that move with one.
    """
    element = ExpPoly.from_json(data)
    context.check(element, SINGLE if kind == FACT else WHOLE if kind in MEANS else EVERY_SLOT)
    parsed = [parse_name(name) for name in element.names() - set(context.parameters)]
    if any(name.detached or name.primes for name in parsed):
        raise Refused("context: a definition or a fact holds sg(..), or a derivative")
    if kind == FACT and not (element.names() and {name.base for name in parsed} <= set(THETA_FREE)):
        raise Refused(f"context: a fact speaks of {', '.join(THETA_FREE)} and parameters alone")
    if kind == REGION and context.list_names_of_means(element):
        raise Refused("context: a region is defined by an expectation, which moves with theta")
    return element
