"""A reward L as the loss sg(L) log q, which has the same expected gradient."""

from __future__ import annotations

from dataclasses import replace

from klsym.engine.options.expand_options import expand_options
from klsym.engine.options.settings import Setting
from klsym.engine.verdicts.verdict import is_ascended
from klsym.language.expressions import ATOMS, PARAMETERS, log_q, sg
from klsym.language.parser import parse
from klsym.notation import losses
from klsym.notation.losses import Written
from klsym.notation.printers import TEXT


def write_as_loss(reward: Written, setting: Setting) -> tuple[Written, Setting]:
    """Return the loss sg(L) log q with the expected gradient of a reward L, with its credit and weights."""
    e, names = reward.expression, {x.name for x in reward.expression.free_symbols}
    expanded = expand_options(reward, replace(setting, aggregate=setting.aggregate and "sum"))
    if expanded is not None:
        e = parse(expanded, names - {*ATOMS, *PARAMETERS})
    as_loss = sg(e) * log_q
    return Written(losses.show(as_loss, TEXT), as_loss), replace(
        setting, use="loss", credit="", weights=setting.weights and "token"
    )


def write_update_as_loss(reward: Written, setting: Setting) -> Written:
    """Return the loss whose descent is the update: sg(L) log q of a penalty L, -sg(R) log q of a reward R."""
    as_loss, _ = write_as_loss(reward, setting)
    if not is_ascended(reward, setting):
        return as_loss
    return Written(losses.show(-as_loss.expression, TEXT), -as_loss.expression)
