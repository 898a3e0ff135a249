"""Losses among which `recommend` chooses, and those that training code writes by mistake.

Nothing here says which of them is right: the engine judges each one.

>>> from klsym.engine.explain_setting import Setting
>>> [loss for loss, _ in candidates(Setting(use="reward"), "reward")][:3]
['k1', 'k2', 'k3']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from klsym.engine.explain_setting import CHOICES, Setting

# what estimates a KL, or has a mean of zero beside one that does; -r*k1 = r log r
ESTIMATES = ("k1", "k2", "k3", "r", "-r", "1 - r", "-r*k1", "1 - r - r*k1")
BARE, ATTACHED, DETACHED, INSIDE = "{}", "rho*{}", "sg(rho)*{}", "rho*sg({})"  # how a weight may stand there
WRITTEN = ("k1", "k2", "k3", "abs(k1)", "clip(k3, -10, 10)", "-r*k1")  # what training code calls a KL


def candidates(setting: Setting, use: str = "loss") -> Iterator[tuple[str, Setting]]:
    """Losses with the settings in which they may be right: each is for the engine to judge.

    setting: sampling and level are taken as they are; credit and weights, where they mean something and are
    empty, vary.  use: "loss", "reward" or "value".
    """
    for pattern in _patterns(setting, use):
        for estimate in ESTIMATES:
            loss = _put(pattern, estimate)
            for place in placements(setting, "rho" in loss):
                yield loss, place


def tempting(setting: Setting, use: str) -> Iterator[str]:
    """What is written for a KL penalty in such a setting: each estimator, unweighted and weighted."""
    for pattern in _patterns(setting, use):
        for estimate in WRITTEN:
            if pattern == BARE or (pattern != INSIDE and estimate.isalnum()):
                yield _put(pattern, estimate)


def _patterns(setting: Setting, use: str) -> tuple[str, ...]:
    """Detached, sg says nothing; on-policy the weight of what is detached is 1."""
    if use == "loss":
        return BARE, ATTACHED, DETACHED, INSIDE
    return (BARE,) if setting.on_policy else (BARE, ATTACHED)


def placements(setting: Setting, weighted: bool) -> Iterator[Setting]:
    """The settings of tokens that agree with this one: which rewards a score meets, and what rho is."""
    if setting.level != "token":
        yield setting
        return
    for credit in CHOICES["credit"] if setting.use == "reward" and not setting.credit else [setting.credit]:
        for weights in CHOICES["weights"] if weighted and not setting.weights else [setting.weights]:
            yield replace(setting, credit=credit, weights=weights or CHOICES["weights"][0])


def _put(pattern: str, estimate: str) -> str:
    """An estimate in its place, in brackets where the place asks for them."""
    if estimate.startswith("-") and pattern in (ATTACHED, DETACHED):
        return f"-{_put(pattern, estimate.removeprefix('-'))}"
    bare = pattern in (BARE, INSIDE) or " " not in estimate
    return pattern.format(estimate if bare else f"({estimate})")
