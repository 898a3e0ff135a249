"""Is a loss right: at each sample, is it a KL and the reward with the signs of what is minimised?

A token given its prefix is a sample, so that a loss of tokens is judged by the same loss of one sample: of
whole sequences most such losses have no objective, whatever they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from klsym.api import Verdict, ask
from klsym.diagnostics.conditions import DiagnosedLoss
from klsym.engine.verdicts.verdict import TargetReading
from klsym.errors import KlsymError
from klsym.language.expressions import A, R

KLS = ("reverse-kl", "forward-kl")


@dataclass(frozen=True)
class Judgement:
    """A loss at one sample.  wanted: the KL that it is likely to mean; "" for none."""

    verdict: Verdict
    wanted: str
    has_reward: bool

    def is_right(self, wanted: str) -> bool:
        """Is it this KL, if one is named, and the reward, if it has one, with their signs, alone?"""
        return any(self._is_right(reading, wanted) for reading in self._list_readings())

    def _list_readings(self) -> list[TargetReading]:
        gradient = self.verdict.gradient
        return [gradient, *([gradient.inside_clamps] if gradient.inside_clamps else [])]

    def _is_right(self, reading: TargetReading, wanted: str) -> bool:
        names = {*([wanted] if wanted else []), *(["reward"] if self.has_reward else [])}
        if reading.rest or set(reading.multiples) != names:
            return False
        is_maximised = self.verdict.setting.is_reward and self.has_reward
        signs = {name: text.startswith("-") for name, text in reading.multiples.items()}
        return all(is_negative == ((name == "reward") != is_maximised) for name, is_negative in signs.items())


@lru_cache(maxsize=1024)
def judge(loss: Any, sampling: str, use: str) -> Judgement | None:
    """Return the judgement on a loss in the grammar; None where it has no meaning at one sample."""
    try:
        verdict: Verdict = ask(loss, sampling=sampling, use=use, level="sample")
    except KlsymError:
        return None
    written = verdict.loss.written
    if written is None or verdict.trust != "kernel":
        return None
    present = [kl for kl in KLS if kl in verdict.gradient.multiples]
    intended = DiagnosedLoss(verdict, written).intended or (present[0] if present else "")
    return Judgement(verdict, intended, bool(written.expression.has(A, R)))
