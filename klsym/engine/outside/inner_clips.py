"""Clips of each token's ratio inside a sum over tokens, where q draws the samples.  Untrusted.

On-policy rho = 1 at theta.  A clip whose argument lies strictly between its bounds there is its argument near
theta, and has the same gradient: exp(seqmean(clip(log(rho), -eps, eps))) is exp(seqmean(log(rho))).

>>> from klsym.language.parser import parse
>>> def read(loss):
...     return drop_inner_clips(Written("", parse(loss)), Setting("on-policy", level="sequence")).expression
>>> read("exp(seqmean(clip(log(rho), -eps, eps)))*A"), read("seqmean(clip(log(rho), -A, A))")
(A*exp(whole(log(rho))/T), whole(clip(log(rho), -A, A))/T)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.options.settings import Setting
from klsym.engine.outside.as_typed import substitute_policy
from klsym.language.expressions import ATOMS, PARAMETERS, OverPositions, clip, remove_sg, unfold
from klsym.language.messages import Message
from klsym.notation.losses import Written, show
from klsym.notation.printers import TEXT

OF_SAMPLE = {*ATOMS} - {*PARAMETERS}  # names of what a sample has


def drop_inner_clips(written: Written, setting: Setting) -> Written:
    """Return a loss with the argument for each clip that cannot bind in a sum, and a note on them."""
    e = written.expression
    if not setting.on_policy or setting.truncated or not e.has(clip):
        return written
    clips = {x for total in e.atoms(OverPositions) for x in total.atoms(clip)}
    inner = sorted(filter(_is_inside_bounds, clips), key=sympy.default_sort_key)
    if not inner:
        return written
    note = Message("inner-clips-dropped", clips=tuple(show(x, TEXT) for x in inner))
    plain = e.xreplace({x: x.args[0] for x in inner})
    return replace(written, expression=plain, notes=(*written.notes, note))


def _is_inside_bounds(x: Any) -> bool:
    """Is the argument strictly between the bounds where q = mu, for all positive parameters?"""
    value, low, high = (substitute_policy(unfold(remove_sg(part))) for part in x.args)
    symbols = low.free_symbols | high.free_symbols
    if any(symbol.name.partition("[")[0] in OF_SAMPLE for symbol in symbols):
        return False
    parameters = {p: sympy.Dummy(positive=True) for p in symbols}
    above, below = (sympy.expand(side.xreplace(parameters)) for side in (value - low, high - value))
    return bool(above.is_positive and below.is_positive)
