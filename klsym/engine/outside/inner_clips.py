"""Clips of each token's ratio inside a sum over tokens, where q draws the samples.  Untrusted.

On-policy rho = 1 at theta.  A clip whose argument lies strictly between its bounds there is its argument near
theta, and has the same gradient: exp(seqmean(clip(log(rho), -eps, eps))) is exp(seqmean(log(rho))).

>>> from klsym.language.parser import parse
>>> read = drop_inner_clips(Written("", parse("exp(seqmean(clip(log(rho), -eps, eps)))*A")))
>>> read.expression, is_without_inner_clips(read)
(A*exp(whole(log(rho))/T), True)
>>> is_without_inner_clips(drop_inner_clips(Written("", parse("exp(seqmean(clip(log(rho), 0, eps)))*A"))))
False
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.outside.as_typed import substitute_policy
from klsym.language.expressions import OverPositions, clip, remove_sg, unfold
from klsym.language.messages import Message
from klsym.notation.losses import Written, show
from klsym.notation.printers import TEXT

CLIPS_DROPPED = "inner-clips-dropped"


def drop_inner_clips(written: Written) -> Written:
    """Return a loss with the argument for each clip that cannot bind in a sum, and a note on them."""
    e = written.expression
    clips = {x for total in e.atoms(OverPositions) for x in total.atoms(clip)}
    inner = sorted(filter(_is_inside_bounds, clips), key=sympy.default_sort_key)
    if not inner:
        return written
    note = Message(CLIPS_DROPPED, clips=tuple(show(x, TEXT) for x in inner))
    plain = e.xreplace({x: x.args[0] for x in inner})
    return replace(written, expression=plain, notes=(*written.notes, note))


def is_without_inner_clips(written: Written) -> bool:
    """Were clips left out of a loss?"""
    return any(note.code == CLIPS_DROPPED for note in written.notes)


def _is_inside_bounds(x: Any) -> bool:
    """Is the argument strictly between the bounds where q = mu, for all positive parameters?"""
    value, low, high = (substitute_policy(unfold(remove_sg(part))) for part in x.args)
    parameters = {p: sympy.Dummy(positive=True) for p in low.free_symbols | high.free_symbols}
    above, below = (sympy.expand(side.xreplace(parameters)) for side in (value - low, high - value))
    return bool(above.is_positive and below.is_positive)
