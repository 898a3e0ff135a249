"""Which of the values that a function returns is its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from klsym.audit.compiled.unread import Unread
from klsym.audit.terms import Refused
from klsym.language.training_names import ADVANTAGES, REWARDS, words_of

FIRST_READ = "values that are returned, the first is read (--result chooses)"
OF_POLICY = ("policy_loss", "actor_loss", "pg_loss")


def picked(returned: Any, which: int | None, note: Callable[[str], None]) -> Any:
    """The loss out of what a function returns; which: --result N."""
    if returned is None:
        raise Refused("nothing is returned: name the loss with --result")
    if isinstance(returned, dict):
        if "loss" not in returned:
            named = ", ".join(map(str, returned))[:80]
            raise Refused(f"a dict is returned ({named}): name the loss with --result")
        note("of the dict that is returned, 'loss' is read (--result chooses)")
        return returned["loss"]
    if isinstance(returned, Unread):
        return returned
    if which is None and (found := _named(returned)):
        note(f"of the object that is returned, .{found} is read (--result chooses)")
        return getattr(returned, found)
    if hasattr(returned, "_fields") and which is None:
        fields = ", ".join(returned._fields)
        raise Refused(f"an object with {fields} is returned: --result 0 is the first of them")
    if isinstance(returned, tuple | list):
        at = which or 0
        if not 0 <= at < len(returned):
            raise Refused(f"{len(returned)} values are returned: --result 0 to {len(returned) - 1}")
        if which is None and len(returned) > 1:
            note(f"of {len(returned)} {FIRST_READ}")
        return picked(returned[at], None, note) if hasattr(returned[at], "_fields") else returned[at]
    return returned


def is_guess(name: str, which: int | None, notes: Iterable[str]) -> bool:
    """Does nothing say that the value is a loss: the first of several, or of a function of advantages?"""
    words = {*words_of(name)}
    of_rewards = bool(words & (ADVANTAGES | REWARDS)) and not words & {"loss", "losses", "penalty", "kl"}
    return which is None and (of_rewards or any(FIRST_READ in note for note in notes))


def _named(returned: Any) -> str | None:
    """The field of an object that is its loss: .loss, or the only one that is a loss of the policy."""
    if hasattr(returned, "formula") or hasattr(returned, "detach") or isinstance(returned, Unread):
        return None
    if hasattr(returned, "loss"):
        return "loss"
    return next((name for name in OF_POLICY if hasattr(returned, name)), None)
