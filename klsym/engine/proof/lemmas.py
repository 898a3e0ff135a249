"""Theorems that many proofs cite: the gradients of the KL divergences.  Untrusted; the kernel replays them.

>>> [cited[1].to_json() for cited in prove_lemmas().by_left.values()] != []
True
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from klsym.engine.proof.reduction import CitedTheorems, reduce_side
from klsym.kernel import EQUATION, certify, digest
from klsym.kernel.densities import K1
from klsym.kernel.statements import Context, Gradient, Mean, Side


@lru_cache(maxsize=1)
def prove_lemmas() -> CitedTheorems:
    """Prove grad KL(q||p) = E_q[k1 s] and grad KL(p||q) = E_q[-r s]."""
    cited = CitedTheorems()
    for mean in (Mean("", "q", K1), Mean("", "p", -K1)):
        atom = Gradient(Side.from_atom(mean))
        left = Side.from_atom(atom)
        moves = tuple(reduce_side(left, Context()))
        part, theorem = certify(
            {
                "context": Context().to_json(),
                "relation": "=",
                "left": left.to_json(),
                "right": moves[-1][1].to_json(),
                "steps": [step for step, _ in moves],
                "close": {"by": "equality", "rows": []},
            },
            {},
        )
        name = digest([part])
        cited.known[name], cited.bodies[name] = (theorem,), [part]
        cited.by_left[atom] = ([name, 0], left, moves[-1][1])
    return cited


def collect_cited_parts(parts: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """Return the parts of the theorems that these parts cite, each once."""
    steps = (step for part in parts for step in part["steps"] if step["rule"] == EQUATION)
    names = dict.fromkeys(step["data"]["of"][0] for step in steps if isinstance(step["data"]["of"], list))
    return [prove_lemmas().bodies[name] for name in names]
