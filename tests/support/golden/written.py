"""Losses that are written by hand (written.toml): every setting, every part of the grammar, and refusals.

>>> len(settings())
204
>>> next(in_every_setting())[0], next(of_the_grammar())
('k1', ('k(lam)', {'sampling': 'on-policy'}, ()))
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from klsym.engine.options.option_table import OPTIONS
from klsym.engine.options.settings import checked_setting
from klsym.errors import UsageError

Options = dict[str, str]
Row = tuple[str, Options, tuple[str, ...]]

FACTS = Path(__file__).with_suffix(".toml")
TURNS = 4  # losses in each setting
OF_DECLARED: tuple[Options, ...] = ({}, {"sampling": "off-policy"}, {"level": "token"}, {"level": "sequence"})


@cache
def facts() -> dict[str, Any]:
    """What written.toml says."""
    return tomllib.loads(FACTS.read_text(encoding="utf-8"))


def settings() -> list[Options]:
    """Every setting: all combinations of options that mean something."""
    found = []
    choices = ((None, *option.choices) if option.needs else option.choices for option in OPTIONS)
    for chosen in product(*choices):
        given = {option.name: value for option, value in zip(OPTIONS, chosen, strict=True) if value}
        try:
            setting = checked_setting(**given)
        except UsageError:
            continue
        if {name: value for name, value in setting.to_json().items() if value} == given:
            found.append(given)
    return found


def in_every_setting() -> Iterator[Row]:
    """A few losses of the core in each setting, in turn."""
    for number, setting in enumerate(settings()):
        core = facts()["core"][setting["use"]]
        for turn in range(TURNS):
            yield core[(number + 2 * turn) % len(core)], setting, ()


def of_the_grammar() -> Iterator[Row]:
    """Each loss of a group on-policy and off-policy; those with parameters in a few settings."""
    for group in facts()["group"]:
        for number, loss in enumerate(group["losses"].split("\n")[:-1]):
            options = group["settings"][number % len(group["settings"])]
            for sampling in ("on-policy", "off-policy"):
                yield loss, {"sampling": sampling, **options}, ()
    for row in facts()["declared"]:
        for options in OF_DECLARED:
            yield row["loss"], options, tuple(row["parameters"])


def refused() -> Iterator[Row]:
    """Losses and settings that a user may try in vain."""
    return ((row["loss"], row["options"], ()) for row in facts()["refused"]["rows"])
