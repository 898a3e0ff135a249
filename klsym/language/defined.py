"""Names for logs, elements and exact means: digests of definitions, so that printers can write these out.

>>> from klsym.kernel.ring import ExpPoly
>>> r = (-ExpPoly.from_variable("k1")).exp()
>>> name = name_definition(LOG, r + 1)
>>> name == name_definition(LOG, 1 + r), find_definition(name) == (LOG, 1 + r), find_definition("k1")
(True, True, None)
"""

from __future__ import annotations

from hashlib import sha256

from klsym.kernel.definitions import LET, LOG
from klsym.kernel.names import SAMPLE_BASES, parse_name
from klsym.kernel.ring import ExpPoly
from klsym.kernel.slots import name_in_slot
from klsym.kernel.statements import canonical

__all__ = ["LET", "LOG", "find_definition", "name_definition"]

OF_LOGS, OF_CONSTANTS, OF_FULL = "ln_", "const_", "full_"  # how names begin, and no others
OF_EXPECTATIONS = "E_q"  # the kind of full(x), the expectation of x under the policy
DIGITS = 6  # of a digest; more where two definitions share these
_STANDS_FOR: dict[str, tuple[str, ExpPoly]] = {}


def name_definition(kind: str, e: ExpPoly) -> str:
    """Return the name of log(e), of e, or of full(e): the same in every loss."""
    digest = sha256(canonical([kind, e.to_json()]).encode()).hexdigest()
    lead = (
        OF_FULL
        if kind == OF_EXPECTATIONS
        else OF_LOGS
        if any(_is_random(name) for name in e.names())
        else OF_CONSTANTS
    )
    names = (lead + digest[:size] for size in range(DIGITS, len(digest) + 1))
    return next(name for name in names if _STANDS_FOR.setdefault(name, (kind, e)) == (kind, e))


def find_definition(name: str) -> tuple[str, ExpPoly] | None:
    """Return the kind of what a name stands for, and e in the slot of the name; None for other names."""
    parsed = parse_name(name)
    definition = _STANDS_FOR.get(parsed.base)
    if definition is None or parsed.slot == "x":
        return definition
    kind, e = definition
    return kind, e.rename(lambda n: name_in_slot(n, parsed.slot) if _is_random(n) else n)


def _is_random(name: str) -> bool:
    """Is it a variable of a sample, or the name of what is?"""
    base = parse_name(name).base
    return base in SAMPLE_BASES or base.startswith(OF_LOGS)
