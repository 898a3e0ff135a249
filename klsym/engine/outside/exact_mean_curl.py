"""Search for a tree on which the expected gradient of a loss with exact means has a curl.  Untrusted.

    F.u = E_m[sum_t dL_t along u],    curl = d_v F.u - d_u F.v

The slope of each L_t is computed as autograd would, full(x) by its sum over the words, and what is detached
held; theta moves the distribution of the samples on-policy.

>>> from klsym.language.expressions import k1, sg
>>> from klsym.language.sums import OverVocabulary
>>> mean = OverVocabulary(k1)
>>> find_curl_of_means(mean**2, True, "start")["refutes"], find_curl_of_means(sg(mean), True, "start")
('curl start = 0', None)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klsym.engine.proof.numeric_curl import find_curl
from klsym.kernel.names import SAMPLE_BASES
from klsym.kernel.ring import ZERO, ExpPoly
from klsym.language.expressions import (
    DENSITIES,
    REWARDS,
    V,
    V_next,
    log_mu,
    log_old,
    log_p,
    unfold,
)
from klsym.worlds.elements import ScoreCoefficients
from klsym.worlds.losses import LossWorld
from klsym.worlds.means import compute_curl
from klsym.worlds.world import Place

BASES = {log_p: "k1", log_mu: "w", log_old: "o"}  # the rows of a tree that a loss needs, by its densities


def find_curl_of_means(loss: Any, on_policy: bool, start: str) -> dict[str, Any] | None:
    """Return a tree on which the expected gradient of a loss at each token has a curl; else None."""
    symbols = unfold(loss).free_symbols
    if symbols & {V, V_next}:
        return None
    names = {BASES[x] for x in symbols & BASES.keys()} | {x.name for x in symbols & {*REWARDS}}
    names |= {"length" if x.name == "T" else x.name for x in symbols - {*DENSITIES, *REWARDS}}
    named = sum((ExpPoly.from_variable(_name_at_token(name)) for name in sorted(names)), ZERO)

    def compute_field(moved: Any, along: str) -> Any:
        return _sum_slopes(replace(moved, along=along), loss)

    def compute_on_model(_: ScoreCoefficients, model: dict[str, Any]) -> Any | None:
        try:
            return compute_curl(LossWorld.from_model(model, on_policy), compute_field)
        except (ArithmeticError, ValueError, TypeError):  # a tie, a log of what is not positive, 1/0
            return None

    rows = ScoreCoefficients({"now": named}, tokens=True, on_policy=on_policy)
    return find_curl(rows, start, compute_on_model)


def _name_at_token(name: str) -> str:
    return f"{name}[now]" if name in SAMPLE_BASES else name


def _sum_slopes(world: LossWorld, loss: Any) -> Any:
    """Return E_m[sum_t dL_t] along the direction of the world."""
    terms = [
        mass * world.evaluate_at(loss, Place(batch, 0, t)).slope
        for batch, mass in world.enumerate_batches(1, "q" if world.on_policy else "mu")
        for t in range(len(world.paths[batch[0]]))
    ]
    return world.system.add(terms)
