"""Products of steps, simplified: no sample lies in two regions that exclude one another.

>>> from klsym.language.expressions import A, rho
>>> low, high = sympy.Heaviside(4 - 5 * rho, 0), sympy.Heaviside(25 * rho - 32, 0)
>>> drop_empty_regions(low * high * A + sympy.Heaviside(A, 0) * sympy.Heaviside(-A, 0) + A * low * low)
A*Heaviside(4 - 5*rho, 0)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import sympy

MAX_STEPS = 8


def drop_empty_regions(e: Any) -> Any:
    """Return a sum without the products of steps that are 0 at every sample."""
    if not e.has(sympy.Heaviside):
        return e
    return e.replace(lambda part: part.is_Mul, lambda part: _simplify_product(*part.args))


def iterate_values(e: Any) -> Iterator[Any]:
    """Yield the value of an expression in each region that its steps divide the samples into.

    >>> from klsym.language.expressions import A, rho
    >>> list(iterate_values(rho * sympy.Heaviside(A, 0) + sympy.Heaviside(-A, 0)))
    [0, rho, 1]
    >>> list(iterate_values(sympy.Heaviside(2 - rho, 1) - sympy.Heaviside(1 - rho, 0)))
    [0, 1, 0]
    """
    steps = sorted(filter(_is_zero_or_one, e.atoms(sympy.Heaviside)), key=sympy.default_sort_key)
    if len(steps) > MAX_STEPS:
        return
    arguments = {step: _normalise(step.args[0]) for step in steps}
    for signs in product((0, 1), repeat=len(steps)):
        inside = dict(zip(steps, signs, strict=True))
        if all(_may_overlap((arguments[a], inside[a]), (arguments[b], inside[b]))
               for a, b in combinations(steps, 2)):  # fmt: skip
            yield e.xreplace({step: sympy.Integer(value) for step, value in inside.items()})


def open_steps(e: Any) -> Any:
    """Rewrite each step as one that is 0 at its bound, H(x, 1) as 1 - H(-x, 0), and sign(x) by steps."""
    e = e.replace(sympy.sign, lambda x: sympy.Heaviside(x, 0) - sympy.Heaviside(-x, 0))
    return e.replace(
        sympy.Heaviside, lambda x, at_0=0: 1 - sympy.Heaviside(-x, 0) if at_0 else sympy.Heaviside(x, 0)
    )


def list_jumps(e: Any, x: Any) -> list[Any]:
    """Return by how much an expression of open steps rises, at each bound of a variable, as that rises.

    >>> from klsym.language.expressions import A, R
    >>> list_jumps(2 * sympy.Heaviside(A, 0) + sympy.Heaviside(1 - A, 0) * R, A)
    [2, -R]
    """
    bounds = {find_bound(step.args[0], x) for step in e.atoms(sympy.Heaviside)} - {None}
    jumps = []
    for bound in sorted(bounds, key=sympy.default_sort_key):
        distances = [sympy.Dummy(x.name, **{side: True}) for side in ("positive", "negative")]
        above, below = (e.xreplace({x: bound + d}).xreplace({d: sympy.S.Zero}) for d in distances)
        jumps.append(sympy.factor(sympy.expand(above - below)))
    return jumps


def find_bound(argument: Any, x: Any) -> Any | None:
    """Return where the argument a*x + c of a step is 0; None for an argument of another kind."""
    slope = argument.diff(x)
    bound = sympy.expand(x - argument / slope) if slope.is_number and slope else x
    return None if bound.has(x) else bound


def _may_overlap(first: tuple[Any, int], second: tuple[Any, int]) -> bool:
    """May one be positive or not, and the other too, at the same sample?"""
    (a, above), (b, beyond) = first, second
    if above and beyond:
        return not (a + b).is_nonpositive
    if above != beyond:
        positive, negative = (a, b) if above else (b, a)
        return not (negative - positive).is_nonnegative
    return True


def _simplify_product(*factors: Any) -> Any:
    """Return 0 for factors that exclude one another; a power of a step is the step."""
    plain = [f.base if f.is_Pow and _is_step(f.base) and f.exp.is_positive else f for f in factors]
    arguments = [_normalise(f.args[0]) for f in plain if _is_step(f)]
    exclude = any((a + b).is_nonpositive for a, b in combinations(arguments, 2))
    return sympy.S.Zero if exclude else sympy.Mul(*plain)


def _is_step(e: Any) -> bool:
    """Is it 1 where something is positive, and 0 elsewhere?"""
    return isinstance(e, sympy.Heaviside) and len(e.args) > 1 and e.args[1] == 0


def _is_zero_or_one(e: Any) -> bool:
    """Is it a step that is 0 or 1 at its bound, too?"""
    return isinstance(e, sympy.Heaviside) and len(e.args) > 1 and e.args[1] in (0, 1)


def _normalise(x: Any) -> Any:
    """Divide by the size of the number before the first term that varies."""
    _, varying = sympy.expand(x).as_independent(*x.free_symbols, as_Add=True)
    number = sympy.Add.make_args(varying)[0].as_coeff_Mul()[0]
    return sympy.expand(x / abs(number)) if number else x
