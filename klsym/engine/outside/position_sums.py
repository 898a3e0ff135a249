"""A loss at one position with a symbol for each sum over others; `standing` reads it.  Untrusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from klsym.convert import canonical
from klsym.engine.fields.slot_loss import ADVANTAGE
from klsym.engine.options.settings import Setting
from klsym.language import A, length, now, own

CREDITED = {"to-go": ("past",), "total": ("past", "future")}  # slots whose scores a reward also multiplies


@dataclass(frozen=True)
class PositionSum:
    """A sum over other positions.

    symbol: what stands for it.  slots: over which it runs; none for a whole baseline such as loo(R), which is
    read as `atom` says.  of: what is summed.  slope: d of/dlog q, a constant; None where it is none, so that
    it may stand in sg(..) alone.  vanishes: is its value 0, on-policy?  atom, shown: as it was typed, and in
    variables of slots.
    """

    symbol: Any
    slots: tuple[str, ...]
    of: Any
    slope: Any
    vanishes: bool
    atom: Any
    shown: Any


@dataclass(frozen=True)
class LossWithSums:
    """A loss at one token or sample, a symbol for each sum over others."""

    expression: Any
    stands: tuple[PositionSum, ...]
    setting: Setting

    @property
    def tokens(self) -> bool:
        return self.setting.level == "token"

    @property
    def own(self) -> str:
        return "now" if self.tokens else "self"

    def back(self, e: Any) -> Any:
        """As it was typed."""
        return e.xreplace({stand.symbol: stand.atom for stand in self.stands})

    def placed(self, e: Any) -> Any:
        """In the variables of slots; A is that of the whole sequence, or of the sample."""
        at = now(e).xreplace({now(A): ADVANTAGE, now(length): length}) if self.tokens else own(e)
        shown = at.xreplace({stand.symbol: stand.shown for stand in self.stands})
        return shown.replace(lambda x: isinstance(x, sympy.exp), canonical)
