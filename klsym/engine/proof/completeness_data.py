"""Data for theorems about all densities: a family that solves an equation, a foreign term.  Untrusted.

>>> k1 = ExpPoly.from_variable("k1")
>>> find_foreign_term(k1 * k1 + k1, Context()).to_json()
[['1', {'k1': 2}]]
"""

from __future__ import annotations

from typing import Any

from klsym.errors import ProofError
from klsym.kernel.meta import differentiate, is_foreign
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context


def solve_for_family(
    c: ExpPoly,
    function: str,
    family: ExpPoly,
    constants: list[str],
    coordinate: str,
    context: Context,
) -> dict[str, Any]:
    """Return the data of a completeness step: the unit that turns dc/dv = 0 into g^(n) = h."""
    order = len(constants)
    top = function + "'" * order
    condition = differentiate(c, coordinate, context)
    leading = [ExpPoly({key: value}) for key, value in condition.terms.items() if top in dict(key[0])]
    if len(leading) != 1:
        raise ProofError(f"iff: dc/d{coordinate} holds no single term in {top}")
    unit = leading[0].invert() * ExpPoly.from_variable(top)
    close = {"by": "completeness", "function": function, "family": family.to_json(), "order": order}
    return {**close, "unit": unit.to_json(), "coordinate": coordinate, "constants": constants}


def find_foreign_term(c: ExpPoly, context: Context) -> ExpPoly:
    """Return a term of c that is neither a reward nor a multiple of k1 or r; raises ProofError if none."""
    for key, value in sorted(c.terms.items()):
        term = ExpPoly({key: value})
        if is_foreign(term, context):
            return term
    raise ProofError("the coefficient is a combination of k1, r and rewards")
