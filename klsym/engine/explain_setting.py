"""How a loss is used: the options of `explain`, checked against one another.

>>> checked_setting("on-policy", "reward", "token").credit
'to-go'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klsym.errors import UsageError

CHOICES = {
    "sampling": ("on-policy", "off-policy"),
    "use": ("loss", "reward"),
    "level": ("sample", "token", "sequence"),
    "batch": ("none", "mean", "leave-one-out", "std"),
    "credit": ("to-go", "same-token", "total"),
    "weights": ("token", "prefix", "sequence"),
    "aggregate": ("sum", "mean"),
}
UNSAID = ("credit", "weights", "aggregate")  # None where nothing is said: then the first choice holds


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

    @property
    def on_policy(self) -> bool:
        return self.sampling == "on-policy"

    @property
    def averaged(self) -> bool:
        """Does 1/T stand in front?"""
        return self.aggregate == "mean"

    def to_json(self) -> dict[str, Any]:
        """The options that mean something at this level."""
        names = ["sampling", "use", "level", "batch"]
        names += {"token": ["credit", "weights", "aggregate"], "sequence": ["aggregate"]}.get(self.level, [])
        return {name: getattr(self, name) or None for name in names}


def checked_setting(
    sampling: str,
    use: str,
    level: str = "sample",
    batch: str = "none",
    credit: str | None = None,
    weights: str | None = None,
    aggregate: str | None = None,
) -> Setting:
    """The setting; raises UsageError for what is not among CHOICES, or means nothing beside the rest."""
    given = {
        "sampling": sampling, "use": use, "level": level, "batch": batch, "credit": credit,
        "weights": weights, "aggregate": aggregate,
    }  # fmt: skip
    for name, value in given.items():
        if value not in CHOICES[name] and not (value is None and name in UNSAID):
            raise UsageError(f"{name}={value!r}: one of {', '.join(CHOICES[name])} expected")
    _refuse_idle(given)
    tokens, rewarded = level == "token", use == "reward"
    return Setting(
        sampling, use, level, batch,
        credit=(credit or "to-go") if tokens and rewarded else "",
        weights=(weights or "token") if tokens else "",
        aggregate=(aggregate or "sum") if level != "sample" else "",
    )  # fmt: skip


def _refuse_idle(given: dict[str, str | None]) -> None:
    """An option without effect is a misunderstanding, and not passed over."""
    level = given["level"]
    if given["aggregate"] and level == "sample":
        raise UsageError("aggregate: a single sample has no length; choose level token or sequence")
    for name in ("credit", "weights"):
        if given[name] and level != "token":
            raise UsageError(f"{name}: this is said of tokens; choose level token")
    if given["credit"] and given["use"] != "reward":
        raise UsageError("credit: a differentiated loss pushes on its own token; choose use reward")
    if level == "token" and given["batch"] != "none":
        raise UsageError("batch: samples are centred whole; choose level sequence or sample, or batch none")
