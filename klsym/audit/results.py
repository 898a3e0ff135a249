"""Which of the values that a function returns is its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from klsym.audit.compiled.unread import UnreadValue
from klsym.audit.terms import Refused
from klsym.errors import spell_option
from klsym.language.training_names import ADVANTAGES, REWARDS, split_words

FIRST_READ = "values that are returned, the first is read"
OF_POLICY = ("policy_loss", "actor_loss", "pg_loss")


def describe_first_read(count: int) -> str:
    """Return the note on a function that returns several values."""
    return f"of {count} {FIRST_READ} ({spell_option('result')} chooses)"


def choose_loss(returned: Any, result_number: int | None, note: Callable[[str], None]) -> Any:
    """Return the loss out of what a function returns; result_number: --result N."""
    if returned is None:
        raise Refused(f"nothing is returned: name the loss with {spell_option('result')}")
    if isinstance(returned, dict):
        if "loss" not in returned:
            named = ", ".join(map(str, returned))[:80]
            raise Refused(f"a dict is returned ({named}): name the loss with {spell_option('result')}")
        note(f"of the dict that is returned, 'loss' is read ({spell_option('result')} chooses)")
        return returned["loss"]
    if isinstance(returned, UnreadValue):
        return returned
    if result_number is None and (field_name := _find_loss_field(returned)):
        note(f"of the object that is returned, .{field_name} is read ({spell_option('result')} chooses)")
        return getattr(returned, field_name)
    if hasattr(returned, "_fields") and result_number is None:
        fields = ", ".join(returned._fields)
        raise Refused(
            f"an object with {fields} is returned: {spell_option('result', '0')} is the first of them"
        )
    if isinstance(returned, tuple | list):
        at = result_number or 0
        if not 0 <= at < len(returned):
            raise Refused(
                f"{len(returned)} values are returned: {spell_option('result', '0')} to {len(returned) - 1}"
            )
        if result_number is None and len(returned) > 1:
            note(describe_first_read(len(returned)))
        return choose_loss(returned[at], None, note) if hasattr(returned[at], "_fields") else returned[at]
    return returned


def is_guess(name: str, result_number: int | None, notes: Iterable[str]) -> bool:
    """Is it a guess that the value is a loss: the first of several, or of a function of advantages?"""
    words = {*split_words(name)}
    of_rewards = bool(words & (ADVANTAGES | REWARDS)) and not words & {"loss", "losses", "penalty", "kl"}
    return result_number is None and (of_rewards or any(FIRST_READ in note for note in notes))


def _find_loss_field(returned: Any) -> str | None:
    """Return the field of an object that is its loss: .loss, or the only one that is a loss of the policy."""
    if hasattr(returned, "formula") or hasattr(returned, "detach") or isinstance(returned, UnreadValue):
        return None
    if hasattr(returned, "loss"):
        return "loss"
    return next((name for name in OF_POLICY if hasattr(returned, name)), None)
