"""How a loss is used: the options of `explain`, checked against one another, with what they mean.

>>> checked_setting(use="reward", level="token").credit
'to-go'
>>> checked_setting(credit="total")
Traceback (most recent call last):
    ...
klsym.errors.UsageError: credit: this is said of tokens; choose level token
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klsym.engine.options.choices import (
    CENTRINGS,
    CREDITS,
    DIVISORS,
    ROWS,
    SAMPLERS,
    USAGES,
    WEIGHTINGS,
    Centring,
    Crediting,
    Divisor,
    Weighting,
    find_meaning,
)
from klsym.engine.options.option_table import CHOICES, DEFAULTS, OPTIONS
from klsym.errors import UsageError


@dataclass(frozen=True)
class Setting:
    """How the loss is used; credit, weights and aggregate are empty where they mean nothing."""

    sampling: str = "on-policy"
    use: str = "loss"
    level: str = "sample"
    batch: str = "none"
    credit: str = ""
    weights: str = ""
    aggregate: str = ""

    def __post_init__(self) -> None:
        """Raises UsageError for a choice without a meaning."""
        for option, rows in ROWS.items():
            choice = getattr(self, option)
            if choice not in ("", "none"):
                find_meaning(rows, option, choice)

    @property
    def on_policy(self) -> bool:
        """Do samples come from q, all of it or cut off?"""
        return find_meaning(SAMPLERS, "sampling", self.sampling).from_policy

    @property
    def truncated(self) -> bool:
        """Are samples drawn where M = 1 alone?"""
        return find_meaning(SAMPLERS, "sampling", self.sampling).is_cut

    @property
    def detached(self) -> bool:
        """Is the loss a detached reward, which multiplies the score?"""
        return find_meaning(USAGES, "use", self.use).detached

    @property
    def centring(self) -> Centring | None:
        """The baseline that the batch option subtracts; None for none."""
        return None if self.batch == "none" else find_meaning(CENTRINGS, "batch", self.batch)

    @property
    def divides_by_std(self) -> bool:
        """Is the score coefficient divided by a standard deviation, so that terms do not add up?"""
        return self.centring is not None and self.centring.divides

    @property
    def credits(self) -> Crediting | None:
        """The rewards that a token is credited with; None where the option has no effect."""
        return find_meaning(CREDITS, "credit", self.credit) if self.credit else None

    @property
    def credits_other_tokens(self) -> bool:
        """Is a token credited with the rewards of other tokens?"""
        return self.credits is not None and self.credits.credits_other_tokens

    @property
    def weighting(self) -> Weighting:
        """The importance weight of a token; its own ratio where the option has no effect."""
        return find_meaning(WEIGHTINGS, "weights", self.weights or "token")

    @property
    def divisor(self) -> Divisor:
        """The number that divides the sum over tokens; 1 where the option has no effect."""
        return find_meaning(DIVISORS, "aggregate", self.aggregate or "sum")

    @property
    def averaged(self) -> bool:
        """Does 1/T stand in front?"""
        return self.divisor.divides and not self.divisor.over_batch

    def to_json(self) -> dict[str, Any]:
        """All options; None for those that mean nothing here."""
        return {option.name: getattr(self, option.name) or None for option in OPTIONS}


def checked_setting(**given: str | None) -> Setting:
    """Return the setting; raises UsageError for unknown options or choices, and for those without effect."""
    unknown = [name for name in given if name not in CHOICES]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r} (known: {', '.join(CHOICES)})")
    whole = {**DEFAULTS, **given}
    for option in OPTIONS:
        value = whole[option.name]
        if value not in option.choices and (value is not None or option.always or option.silent):
            expected = f"one of {', '.join(option.choices)} expected"
            raise UsageError(f"{option.name}={value!r}: {expected}")
    values = {}
    for option in OPTIONS:
        value, idle = whole[option.name], option.explain_no_effect(whole)
        if idle and value != option.silent:  # a misunderstanding, not to be passed over
            raise UsageError(f"{option.name}: {idle}")
        values[option.name] = value or ("" if idle else option.choices[0])
    return Setting(**values)
