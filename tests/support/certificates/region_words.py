"""Words of the tests of regions and logs: definitions, rows and the data of rules."""

from __future__ import annotations

from typing import Any

from klsym.kernel.definitions import LOG, REGION, Definition
from klsym.kernel.ring import ExpPoly
from support.certificates.faulty_certificates import ONE, ZERO, V, nu, plain
from support.oracle.worlds import DEFINITIONS

# of the worlds that the oracle makes, where nu > 0
DEFINED = tuple(Definition(name, kind, e) for name, (kind, e) in DEFINITIONS.items())
KNOWN: dict[str, Any] = {"definitions": DEFINED, "facts": (nu,), "witness": (("nu", 1),)}
up, down, pos, high, low, below, some, small, over, win, flip, *logs = map(V, DEFINITIONS)
inv, quot = ((-log).exp() for log in logs[:2])  # 1/(1 + r), and 1/(1 + up)
# E_q[M + r], E_p[k1*R], E_mu[rho*R], log(1 + mass) and mass*R + theirs
mass, theirs, cost, spare, share = logs[2:]


def region(name: str, e: ExpPoly) -> Definition:
    return Definition(name, REGION, e)


def log(name: str, e: ExpPoly) -> Definition:
    return Definition(name, LOG, e)


def bound(*factors: str | int, weight: Any = ONE, square: Any = ONE, tangent: Any = ZERO) -> dict[str, Any]:
    """What is at least 0 in a cell."""
    return plain({"weight": weight, "factors": list(factors), "square": square, "tangent": tangent})


def cell(values: dict[str, int], *rows: Any, of: Any = ONE, times: Any = ONE, apart: Any = ()) -> Any:
    """The data of the rule `region`."""
    return plain({"cell": values, "rows": list(rows), "of": of, "times": times, "apart": list(apart)})
