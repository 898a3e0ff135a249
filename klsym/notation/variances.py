"""Second moments minus squares of means, of a value times a score, as variances: Var_q((k1 - b)*s).

>>> from klsym.kernel.ring import ONE
>>> X = Mean("", "q", ExpPoly.from_variable("k1"), ("x",))
>>> second = Mean("", "q", ExpPoly.from_variable("k1") ** 2, ("x", "x"))
>>> as_variances([(ONE, (second,)), (-ONE, (X, X))]) == ([(ONE, X)], [])
True
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from klsym.kernel.ring import ZERO, ExpPoly
from klsym.kernel.statements import Mean

Term = tuple[ExpPoly, tuple[Any, ...]]


def as_variances(terms: Iterable[Term]) -> tuple[list[tuple[ExpPoly, Mean]], list[Term]]:
    """Return the variances with their factors, and all other terms.

    All second moments of a measure and a score go into variances, or none: they are one mean in a side.
    """
    remaining, variances = list(terms), list[tuple[ExpPoly, Mean]]()
    squares = [(scale, atoms[0]) for scale, atoms in remaining if _is_square(atoms)]
    for measure, score in dict.fromkeys((x.measure, x.score) for _, x in squares):
        squares_of_score = [(scale, x) for scale, x in squares if (x.measure, x.score) == (measure, score)]
        second = [term for term in remaining if _is_second_moment(term[1], measure, score)]
        difference = sum((scale * atoms[0].coefficient for scale, atoms in second), ZERO)
        difference = sum((scale * x.coefficient**2 for scale, x in squares_of_score), difference)
        if not difference:
            variances += [(-scale, x) for scale, x in squares_of_score]
            remaining = [
                term
                for term in remaining
                if term not in second and (term[0], term[1][0]) not in squares_of_score
            ]
    return variances, remaining


def _is_square(atoms: tuple[Any, ...]) -> bool:
    return len(atoms) == 2 and atoms[0] == atoms[1] and _is_of_a_sample(atoms[0]) and bool(atoms[0].score)


def _is_second_moment(atoms: tuple[Any, ...], measure: str, score: tuple[str, ...]) -> bool:
    doubled = tuple(sorted(score * 2))
    alone = len(atoms) == 1 and _is_of_a_sample(atoms[0])
    return alone and (atoms[0].measure, atoms[0].score) == (measure, doubled)


def _is_of_a_sample(atom: Any) -> bool:
    return isinstance(atom, Mean) and not atom.index
