"""The curl of a field of losses: is what code follows the gradient of anything?

    F.u(theta) = E_m[sum_t grad_u L]        curl = d/ds F.u(theta + s v) - d/ds F.v(theta + s u) at s = 0

The field is that of theta + s v throughout: sg(.), the on-policy sampler and m = q are those of that
theta.  Rewards, given or not, do not move.
"""

from __future__ import annotations

import numpy as np

from klsym.numeric.frames import Frame
from klsym.numeric.indexed import indexed_gradient
from klsym.numeric.nested import NESTED, OUTER
from klsym.numeric.systems import FLOAT, Sized, refuse_unless
from klsym.numeric.trees import TreeModel
from klsym.ring import ExpPoly

STEP = 0.02  # by which no log q moves more: a central difference of order 8 errs by about STEP^8 / 630
WEIGHTS = (4 / 5, -1 / 5, 4 / 105, -1 / 280)  # of F(k h) - F(-k h), k = 1..4
# Source: Fornberg 1988, Generation of finite difference formulas on arbitrarily spaced grids, table 1.


def curl(measure: str, loss: ExpPoly, at: Frame) -> Sized:
    """d_v F.u - d_u F.v: by central differences in floats, by nested dual numbers in enclosures.

    >>> from klsym.numeric.trees import random_tree
    >>> from klsym.abbreviations import Context
    >>> at, k1 = Frame(random_tree(0), FLOAT, Context(), {}), ExpPoly.variable("k1[now]")
    >>> [bool(abs(curl(m, a, at).value) > 1e-9) for a, m in ((k1, "q"), (k1 * k1, "q"), (k1 * k1, "p"))]
    [False, True, False]

    Raises UsageError: under a gradient, without a tree.
    """
    refuse_unless(not at.moving, "the gradient of a curl is not evaluated")
    derivative = _difference if at.system is FLOAT else _exact
    return derivative(measure, loss, at, "u", "v") - derivative(measure, loss, at, "v", "u")


def _difference(measure: str, loss: ExpPoly, at: Frame, along: str, over: str) -> Sized:
    """d/ds of F along one direction, s along the other; the size is that of the differences' terms."""
    model = at.model
    refuse_unless(isinstance(model, TreeModel), "a sequence needs a model that is a tree")
    assert isinstance(model, TreeModel)
    fastest = float(np.max(np.abs(at.score(over).value)))
    h = STEP / (fastest or 1.0)
    total = at.constant(0)
    for k, weight in enumerate(WEIGHTS, start=1):
        for sign in (1, -1):
            there = model.moved(sign * k * h, at.context, over)
            moved = Frame(there, FLOAT, at.context, at.functions, origin=at)
            field, scale = indexed_gradient("t", measure, loss, moved, along), sign * weight / h
            total = total + Sized(field.value * scale, field.size * abs(scale))
    return total


def _exact(measure: str, loss: ExpPoly, at: Frame, along: str, over: str) -> Sized:
    origin = Frame(at.model, NESTED, at.context, at.functions)
    tilted = Frame(at.model, NESTED, at.context, at.functions, tilt=((OUTER, over),), origin=origin)
    field = indexed_gradient("t", measure, loss, tilted, along)
    return Sized(field.value.slope, field.size)
