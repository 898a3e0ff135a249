"""Both sides of a statement on a model, in floats or enclosed, and how far apart they are.

A gradient along u is d/dt at t = 0 of

    E_m[grad L]    sum_x m(x) L(live at theta + t u, sg(.) at theta)       m held fixed
    grad E_q[a]    sum_x q_t(x) a(live at theta + t u, sg(.) at theta)     q moves, p and mu do not
    grad KL(a||b)  sum_x a log(a/b), and other divergences from their own formulas

with q_t the softmax model; on-policy, mu is a frozen copy of q.  Over batches and sequences the sum is
over all of them and the steps, and each variable is a sum over the positions of its slot.  One evaluator
serves two number systems: floats with a complex step (`evaluate`), and rational enclosures with dual
numbers (`enclose`).  Everything carries its size, the sum of the absolute values of its terms, by which
differences are judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from klsym.errors import UsageError
from klsym.kernel.intervals import Interval
from klsym.language.abbreviations import Context, Statement
from klsym.numeric.model_variables import Frame, Functions
from klsym.numeric.models import FiniteModel
from klsym.numeric.number_systems import EXACT, FLOAT, Sized, System, refuse_unless
from klsym.numeric.sides import choose_instances, evaluate_side

TOLERANCE = 1e-10  # relative difference of sides that are equal
THETAS = (0.0, 0.5, -0.5, 1.0)  # steps along u at which premises are compared


def evaluate_sides(
    statement: Statement,
    model: FiniteModel,
    functions: Functions | None,
    system: System,
    thetas: Iterable[float] = THETAS,
) -> tuple[Sized, Sized]:
    context, functions_by_name = statement.context, choose_instances(statement.context, functions)
    model.check_context(context)
    check_premises(context, model, functions, thetas)
    at = Frame(model, system, context, functions_by_name)
    with np.errstate(all="ignore"):  # what is not finite is reported as such
        return evaluate_side(statement.left, at), evaluate_side(statement.right, at)


def check_premises(
    context: Context,
    model: FiniteModel,
    functions: Functions | None,
    thetas: Iterable[float] = THETAS,
) -> None:
    """Refuse what does not satisfy the premises of a statement, F = G at theta + t u.

    >>> from klsym.engine.proof.quantities import KL, expectation
    >>> from klsym.language.expressions import k1
    >>> pair = (KL("q", "p").side, expectation(k1, under="q").side)
    >>> from klsym.numeric.models import random_model
    >>> check_premises(Context(premises=(pair,)), random_model(0, 3), {})

    functions: name -> callable or ExpPoly.  thetas: the values of t.
    Raises UsageError: a premise that fails, with its two values.
    """
    functions_by_name = choose_instances(context, functions)
    for number, pair in enumerate(context.premises, start=1):
        for t in thetas:
            at = Frame(model.move_theta(t, context), FLOAT, context, functions_by_name)
            left, right = (evaluate_side(side, at) for side in pair)
            gap, size = abs(left.value - right.value), abs(left.size) + abs(right.size)
            if not gap <= TOLERANCE * size:
                values = f"{float(np.real(left.value)):.6g} != {float(np.real(right.value)):.6g}"
                reason = f"premise {number} fails on this model ({values} at t = {t})"
                raise UsageError(f"oracle: {reason}: pass functions= that satisfy it")


def evaluate(
    statement: Statement,
    model: FiniteModel,
    functions: Functions | None = None,
    thetas: Iterable[float] = THETAS,
) -> tuple[float, float]:
    """Return the two sides of a statement on a finite model or a tree, in floats.

    Gradients are Im F(theta + i h u) / h with h = 1e-30 (complex step), so nothing cancels.

    >>> from klsym.engine.proof.quantities import KL, expected_gradient, grad
    >>> from klsym.language.expressions import k3
    >>> from klsym.numeric.models import random_model
    >>> left, right = expected_gradient(k3, under="q"), grad(KL("p", "q"))
    >>> a, b = evaluate(Statement(left.side, right.side), random_model(0, 4))
    >>> bool(abs(a - b) < 1e-15 < abs(a))
    True

    functions: generic function name -> a callable of its arguments (arrays, shape (n,)), made of
    NumPy functions that are smooth in complex arithmetic; or an ExpPoly.  Others get a default.
    thetas: as in `check_premises`.
    Raises UsageError: a name without a value; a model or functions that the statement forbids.
    Source: Squire & Trapp 1998, Using complex variables to estimate derivatives of real functions.
    """
    left, right = evaluate_sides(statement, model, functions, system=FLOAT, thetas=thetas)
    return float(np.real(left.value)), float(np.real(right.value))


def enclose(
    statement: Statement, model: FiniteModel, functions: Functions | None = None
) -> tuple[Interval, Interval]:
    """Return the two sides of a statement on a rational model, each in a rational interval.

    Gradients are slopes of dual numbers; without logarithms the intervals are points.

    >>> from klsym.engine.proof.quantities import chi2, expectation
    >>> from klsym.language.expressions import r
    >>> from klsym.numeric.models import random_model
    >>> statement = Statement(chi2("p", "q").side, expectation(r**2 - 1, under="q").side)
    >>> left, right = enclose(statement, random_model(0, 3, exact=True))
    >>> left == right and left.lower == left.upper
    True

    functions: as in `evaluate`, but ExpPoly only.
    Raises UsageError: a model of floats, a function known as a callable only.
    Source: Moore, Kearfott & Cloud 2009, Introduction to interval analysis.
    """
    if not model.exact:
        raise UsageError("oracle: enclosures need a model of rational numbers")
    left, right = evaluate_sides(statement, model, functions, EXACT)
    return left.value.value, right.value.value


@dataclass(frozen=True)
class Agreement:
    """How far two sides are apart: |left - right| / size, and (left - right) / size, at most."""

    difference: float
    excess: float
    models: int


def measure_agreement(
    statement: Statement,
    models: Iterable[FiniteModel],
    functions: Functions | None = None,
    thetas: Iterable[float] = THETAS,
) -> Agreement:
    """Return the largest relative difference of the two sides over models.

    |left - right| / size, where size sums the absolute values of the terms of both sides: a result
    that is tiny because large terms cancel is not judged by its own size.

    >>> from klsym.engine.proof.quantities import expectation
    >>> from klsym.language.expressions import r
    >>> from klsym.numeric.models import random_model
    >>> one = expectation(1, under="q")
    >>> statement = Statement(expectation(r, under="q").side, one.side)
    >>> measure_agreement(statement, [random_model(seed, 3) for seed in range(4)]).difference < 1e-15
    True

    functions and errors as in `evaluate`, thetas as in `check_premises`.  A side that is not finite
    differs by infinity.
    """
    gaps = [
        compute_gap(*evaluate_sides(statement, model, functions, system=FLOAT, thetas=thetas))
        for model in models
    ]
    refuse_unless(bool(gaps), "agreement: no models")
    return Agreement(max(map(abs, gaps)), max(gaps), len(gaps))


def compute_gap(left: Sized, right: Sized) -> float:
    gap = float(np.real(left.value - right.value))
    size = float(np.real(left.size + right.size))
    if not np.isfinite(gap + size):
        return float("inf")
    return gap / size if size else gap
