"""How a loss is used: the options of `explain`, checked against one another, with what they mean.

>>> checked_setting(use="reward", level="token").credit
'to-go'
>>> checked_setting(credit="total")
Traceback (most recent call last):
    ...
klsym.errors.UsageError: credit: needs level token
"""

from __future__ import annotations

from typing import Any

from klsym.engine.options.choices import (
    CENTRINGS,
    CREDITS,
    DIVISORS,
    POSITIONS,
    ROWS,
    SAMPLERS,
    WEIGHTINGS,
    Centring,
    Crediting,
    Divisor,
    Position,
    Weighting,
    find_meaning,
    is_differentiated,
    is_on_policy,
    is_reward,
)
from klsym.engine.options.option_table import CHOICES, DEFAULTS, OPTIONS
from klsym.engine.options.synonyms import read_choice
from klsym.errors import UsageError, suggest_nearest
from klsym.records import record


@record
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
        return is_on_policy(self.sampling)

    @property
    def truncated(self) -> bool:
        """Are samples drawn where M = 1 alone?"""
        return find_meaning(SAMPLERS, "sampling", self.sampling).is_cut

    @property
    def is_reward(self) -> bool:
        """Is the loss a detached reward, which multiplies the score?"""
        return is_reward(self.use)

    @property
    def is_differentiated(self) -> bool:
        """Is the gradient that of the loss itself?"""
        return is_differentiated(self.use)

    @property
    def position(self) -> Position:
        """Whether a loss is one of a sample, of a token or of a sequence."""
        return find_meaning(POSITIONS, "level", self.level)

    @property
    def is_per_token(self) -> bool:
        """Is there a loss for each token, and are they summed?"""
        return self.position.per_token

    @property
    def is_of_sequence(self) -> bool:
        """Is there one loss for a whole sequence, whose k1 and s are sums over tokens?"""
        return self.position.is_whole_sequence

    @property
    def is_of_sample(self) -> bool:
        """Is there one loss for a sample that has no tokens?"""
        return not self.position.has_length

    @property
    def centring(self) -> Centring | None:
        """The baseline that the batch option subtracts; None for none."""
        return None if self.batch == "none" else find_meaning(CENTRINGS, "batch", self.batch)

    @property
    def is_centred(self) -> bool:
        """Is a baseline of the batch subtracted from the score coefficient?"""
        return self.centring is not None

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
    def weighs_by_own_token(self) -> bool:
        """Is rho the ratio of one token, though the tokens before it are drawn from mu as well?"""
        return bool(self.weights) and self.weighting.of_token_alone

    @property
    def weighs_by_other_tokens(self) -> bool:
        """Is rho a product over several tokens?"""
        return bool(self.weights) and not self.weighting.of_token_alone

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
    typed = {name: read_choice(name, value) for name, value in given.items() if isinstance(value, str)}
    whole = {**DEFAULTS, **{name: value for name, value in given.items() if value is not None}, **typed}
    for option in OPTIONS:
        value = whole[option.name]
        if value not in option.choices and (value is not None or option.always or option.silent):
            expected = f"one of {', '.join(option.choices)} expected"
            raise UsageError(
                f"{option.name}={value!r}: {expected}{suggest_nearest(str(value), option.choices)}"
            )
    values = {}
    for option in OPTIONS:
        value, idle = whole[option.name], option.explain_no_effect(whole)
        if idle and value != option.silent:  # a misunderstanding, not to be passed over
            raise UsageError(f"{option.name}: {idle}")
        values[option.name] = value or ("" if idle else option.choices[0])
    return Setting(**values)
