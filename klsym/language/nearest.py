"""Did you mean: the choice that is spelled most like what was typed."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest_nearest(text: str, choices: Iterable[str]) -> str:
    """Return "; did you mean X?" for the nearest choice, or "".

    >>> suggest_nearest("of-policy", ("on-policy", "off-policy")), suggest_nearest("xyz", ("off-policy",))
    ('; did you mean off-policy?', '')
    """
    names = {choice.lower(): choice for choice in choices if choice != text}
    nearest = get_close_matches(text.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {names[nearest[0]]}?" if nearest else ""
