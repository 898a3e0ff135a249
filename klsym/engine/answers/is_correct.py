"""Is a loss right: does the engine prove that it is the penalty, or the value, that is asked for?  Untrusted.

>>> [proved_choice(loss, Setting(), "reverse-kl", "loss") is None for loss in ("k2", "k3")]
[False, True]
"""

from __future__ import annotations

from functools import lru_cache

from klsym.engine.answers.dispatch import as_written, explained
from klsym.engine.fields.slot_loss import names_slots
from klsym.engine.options.settings import Setting
from klsym.engine.targets.ring import names_only
from klsym.engine.verdicts.verdict import Verdict

DENSITIES_OF_KL = {"reverse-kl": ("q", "p"), "forward-kl": ("p", "q")}


@lru_cache(maxsize=4096)
def proved_choice(text: str, setting: Setting, target: str, use: str) -> Verdict | None:
    """The verdict on a loss, if the engine proves that it is right.

    A sequence of one token is a sample: what is wrong for samples is wrong for tokens.
    """
    written = as_written(text, ())
    of_tokens = setting.level == "token" and not names_slots(written.expression)
    if of_tokens and proved_choice(text, Setting(setting.sampling, setting.use), target, use) is None:
        return None
    plain = not setting.averaged and setting.aggregate != "batch" and setting.batch != "std"
    if use != "value" and plain and not names_only(written, setting, target):
        return None  # without a proof, which would cost ten times as much
    verdict = explained(written, setting)
    return verdict if verdict.trust == "kernel" and is_right(verdict, target, use) else None


def is_right(verdict: Verdict, target: str, use: str) -> bool:
    """Does the verdict say that a loss is what was asked for?"""
    if use == "value":
        return verdict.unbiased_for(target)
    return verdict.target == target and verdict.gradient.single
