"""The shapes that code is traced with: each axis has a size of its own, by which it is known again."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import sympy

from klsym.audit.compiled import running
from klsym.audit.terms import AXES, Refused, Total, mask

SIZES = {"b": 7, "t": 11, "v": 13}  # few formulas hold these numbers
TOGETHER = {prod(SIZES[a] for a in axes): axes for axes in ("b", "t", "v", "bt", "tv", "btv")} | {1: ""}
COUNTS = {axis: sympy.Symbol(f"size_{axis}", positive=True) for axis in AXES}
LONGER = 12  # tokens of an argument of which a slice leaves out one
SELECTED = 17  # how many tokens a mask selects is not known
GRID, WORDS, ROWS = (7, 11), (7, 11, 13), (7,)


def find_axes(sizes: Iterable[int]) -> str:
    """Return the letters of axes of these sizes.

    >>> find_axes([7, 11]), find_axes([77]), find_axes([11, 1])
    ('bt', 'bt', 't')

    Raises Refused: a size that none of the arguments has.
    """
    axes = ""
    for size in sizes:
        if size not in TOGETHER:
            raise Refused("a sum along an axis that the arguments do not have")
        axes += TOGETHER[size]
    return "".join(sorted(set(axes), key=AXES.index))


def refuse_unless_aligned(shape: tuple[int, ...]) -> None:
    """Raise Refused if an axis occurs twice: (7, 1, 11) times (7, 11) would pair every two sequences.

    >>> refuse_unless_aligned((7, 7, 11))
    Traceback (most recent call last):
        ...
    klsym.audit.terms.Refused: sequences and tokens are mixed by broadcasting, to shape b, b, t
    """
    if SELECTED in shape:
        return
    letters = [TOGETHER.get(size, "?") for size in shape]
    order = "".join(letters)
    if "?" not in letters and len(order) > len(set(order)):
        raise Refused(
            f"sequences and tokens are mixed by broadcasting, to shape {', '.join(a or '1' for a in letters)}"
        )


def record_cut(size: int, start: int, stop: int, origins: frozenset[str]) -> None:
    """Note that a slice leaves out one token of arguments, which have one more than the others."""
    if (start, stop) == (0, size):
        return
    if stop - start != size - 1 or size not in (SIZES["t"], LONGER) or not origins:
        raise Refused("indexing that takes out a part of a tensor is not read")
    if size == SIZES["t"]:
        raise running.LongerArguments(origins)
    cuts = running.get_session().cuts
    for name in origins:
        if cuts.setdefault(name, start) != start:
            raise Refused("neighbouring tokens are combined")


def count_entries(sizes: Iterable[int]) -> Any:
    """Return how many there are, as a product of symbols, which no number of the code can be mistaken for."""
    return prod((COUNTS[axis] for axis in find_axes(sizes)), start=sympy.S.One)


def is_of_masks_alone(e: Any) -> bool:
    """Does it depend on masks and sizes alone?

    >>> from klsym.audit.terms import sum_over
    >>> is_of_masks_alone(sum_over(mask, "bt") / COUNTS["b"])
    True
    """
    axes = {part.args[1] for part in e.atoms(Total)}
    return bool(e.free_symbols - axes - set(COUNTS.values()) <= {mask})
