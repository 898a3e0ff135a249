"""Expected gradients on a world, and their curl by dual numbers.

    F.u = E_m[sum_t sum_z h_z s_z.u]        curl = d_v F.u - d_u F.v

The mean over the samples of a batch is that of the first one, by symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from klsym.worlds.elements import SIZES, BatchValues, ScoreCoefficients
from klsym.worlds.world import World


def compute_expected_gradient(
    world: World, coefficients: ScoreCoefficients, parameters: Mapping[str, Any], along: str = "u"
) -> Any:
    """Return E_m[sum_t sum_z h_z s_z] along a direction, m the sampler.

    >>> from klsym.kernel.ring import ExpPoly
    >>> from klsym.worlds.numbers import FLOATS
    >>> from klsym.worlds.tree import build_layout
    >>> from klsym.worlds.world import take_logs
    >>> layout = build_layout((None, None))
    >>> rows = {"log_q": take_logs([1, 1], layout, FLOATS), "log_p": take_logs([1, 3], layout, FLOATS)}
    >>> world = World(layout, rows, {"u": [1.0, 0.0]}, FLOATS, on_policy=True)
    >>> k1 = ScoreCoefficients({"now": ExpPoly.from_variable("k1[now]")}, tokens=True, on_policy=True)
    >>> round(compute_expected_gradient(world, k1, {}), 4)  # grad KL(q||p) = cov(k1, u)
    0.2747

    parameters: name -> number of the system.
    """
    system, size = world.system, 1 if coefficients.tokens else coefficients.batch_size
    numbers = {**parameters, **{name: system.lift(size - i) for i, name in enumerate(SIZES)}}
    terms = []
    for batch, mass in world.enumerate_batches(size, "q" if coefficients.on_policy else "mu"):
        values = BatchValues(world, batch, coefficients, numbers)
        for place in values.list_places() if coefficients.tokens else values.list_places()[:1]:
            for slot, h in coefficients.by_slot.items():
                score = values.compute_score(slot, place, along)
                if not system.is_zero(score):
                    terms.append(system.multiply([mass, values.evaluate(h, place), score]))
    return system.add(terms)


def compute_curl(world: World, compute_field: Callable[[World, str], Any]) -> Any:
    """Return d_v F.u - d_u F.v; raises Tie where F has a kink or a jump.

    >>> from klsym.worlds.numbers import FLOATS
    >>> from klsym.worlds.tree import build_layout
    >>> directions = {"u": [1.0, 0.0], "v": [0.0, 1.0]}
    >>> world = World(build_layout((None, None)), {"log_q": [FLOATS.log(0.5)] * 2}, directions, FLOATS)
    >>> compute_curl(world, lambda moved, along: moved.system.exp(moved.rows["log_q"][0]) * (along == "u"))
    -0.25

    compute_field: a world, whose numbers are dual, and a direction -> F along it.
    """
    across, along = (compute_field(world.move(v), u).slope for v, u in (("v", "u"), ("u", "v")))
    return across - along
