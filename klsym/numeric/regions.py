"""Models in the region that a theorem speaks of, such as 2 k1 + 1 >= 0 at every outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klsym.abbreviations import Context
from klsym.errors import UsageError
from klsym.numeric.frames import Frame
from klsym.numeric.systems import FLOAT
from klsym.numeric.trees import Model
from klsym.ring import ExpPoly

HALVINGS = 60


def inside(model: Model, region: ExpPoly, place: str) -> bool:
    """Is the function of k1 and w at least 0: at the sample, or at each outcome of a full-support model?

    >>> from klsym.convert import to_ring
    >>> from klsym.language import k1
    >>> from klsym.numeric.models import FiniteModel
    >>> model = FiniteModel(q=["1/2", "1/2"], p=["1/4", "3/4"], u=[1, 0])
    >>> inside(model, to_ring(2 * k1 + 1), "mu"), inside(model, to_ring(3 * k1 + 1), "mu")
    (True, False)
    """
    values = np.real(Frame(model, FLOAT, Context(), {}).polynomial(region).value)
    return bool(values[model.outcome] >= 0 if place == "sample" else np.min(values) >= 0)


def drawn_into(model: Model, regions: Iterable[tuple[str, ExpPoly]]) -> Model:
    """The model with p and mu moved towards q, by halves, until it lies in every region.

    regions: pairs (place, function of k1 and w that is positive at q = p = mu).  Exact models stay exact.
    Raises UsageError: no such model is found.
    """
    regions = list(regions)
    for _ in range(HALVINGS):
        if all(inside(model, region, place) for place, region in regions):
            return model
        model = replace(model, p=_halfway(model.p, model.q), mu=_halfway(model.mu or model.q, model.q))
    raise UsageError("oracle: no model near q = p = mu lies in the region of the theorem")


def _halfway(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [(x + y) / 2 for x, y in zip(a, b, strict=True)]
