"""How two compared losses are used: together, or each with the options of its name.  Untrusted.

>>> from klsym.engine.answers.named_losses import read_question
>>> uses = read_uses([read_question(name, (), {}) for name in ("grpo", "ppo")], {}, ["loss", "loss"])
>>> uses.settings[0].aggregate, uses.together.aggregate, uses.pair[0].expression.has(T)
('mean', 'sum', True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy

from klsym.engine.answers.named_losses import Question, complete_options
from klsym.engine.explain import read_setting
from klsym.engine.options.settings import Setting
from klsym.engine.questions.wanted_loss import T
from klsym.notation.losses import Written, show
from klsym.notation.printers import TEXT
from klsym.records import record


@record
class Uses:
    """Two losses that their names use differently.

    settings: that of each.  together: the setting in which the losses of `pair` have the same gradients as
    theirs; None if there is none.
    """

    settings: tuple[Setting, Setting]
    together: Setting | None
    pair: tuple[Written, Written]


def read_uses(
    questions: Sequence[Question], options: Mapping[str, Any], places: Sequence[str]
) -> Uses | None:
    """Return how each loss is used; None if both can be used with the same options.

    places: whether each is a loss or a reward.
    """
    first, second = (complete_options(question) for question in questions)
    if first is None or second is None or first == second:
        return None
    written = [question.written for question in questions]
    settings = [
        read_setting(one, {**options, **used, "use": place})
        for one, used, place in zip(written, (first, second), places, strict=True)
    ]
    totals = [replace(setting, aggregate="sum") for setting in settings]
    is_divided = all(setting.is_per_token and not setting.divisor.over_batch for setting in settings)
    together = totals[0] if is_divided and totals[0] == totals[1] else None
    divided = [
        _divide_by_length(one) if together and setting.averaged else one
        for one, setting in zip(written, settings, strict=True)
    ]
    return Uses((settings[0], settings[1]), together, (divided[0], divided[1]))


def _divide_by_length(written: Written) -> Written:
    """Return the loss that summed over tokens is this loss averaged over them, divided term by term."""
    divided = sympy.Add(*(term / T for term in sympy.Add.make_args(written.expression)))
    return replace(written, text=show(divided, TEXT), expression=divided)
