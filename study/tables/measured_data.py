"""What was measured of released trainers: the cases of the recipes, and the functions of the survey.

`benchmarks/measured_trainers.py` and `benchmarks/whole_functions.py` write the stored rows; measured.toml
says in our words what the documentation says where another gradient was measured.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from klsym.measure.expectation import write_objective

TRAINERS = Path(__file__).with_name("measured_trainers.json")
FUNCTIONS = Path(__file__).with_name("whole_functions.json")
WORDS = Path(__file__).with_name("measured.toml")
DIGITS = 5  # of a multiple: what computes in float32 is good to 1e-5 only
SHORT = {"policy-gradient": "E[R]"}
NAMELESS = {
    "zero": "0",
    "own-mean": "the mean of the loss, which has no name",
    "objective": "a function without a name",
    "no-objective": "not the gradient of any function",
    "undecided": "not decided",
    "refused": "not measured",
}
REWARDS = ("policy-gradient", "token-policy-gradient", "log-likelihood")
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Sentences:
    """says: what a documentation says, in our words.  holds: where that is so.

    about: the "gradient" or, where it is a comment on the estimator alone, the "value".
    """

    says: str
    holds: str
    about: str = "gradient"


@dataclass(frozen=True)
class Finding:
    """A setting whose measured gradient is not that of the objective promised; rows: of each sampling."""

    rows: tuple[Mapping[str, Any], ...]
    sentences: Sentences

    @property
    def is_on_value(self) -> bool:
        return self.sentences.about == "value"

    @property
    def first(self) -> Mapping[str, Any]:
        """The first row that differs."""
        return next(row for row in self.rows if row["kept"] is False)


@cache
def read_trainers() -> tuple[Mapping[str, Any], ...]:
    """Return the cases of the recipes: by package and recipe, what a trainer does by default first.

    >>> {row["package"] for row in read_trainers()} >= {"verl", "openrlhf", "trl"}
    True
    """
    return order_rows(json.loads(TRAINERS.read_text(encoding="utf-8")))


@cache
def read_functions() -> tuple[Mapping[str, Any], ...]:
    """Return the functions of the survey, as read and as measured."""
    return tuple(json.loads(FUNCTIONS.read_text(encoding="utf-8")))


@cache
def read_sentences() -> Mapping[tuple[str, str], Sentences]:
    """Return the sentences on a documentation, by recipe and function."""
    found = tomllib.loads(WORDS.read_text(encoding="utf-8"))
    return {(recipe, name): Sentences(**one) for recipe, some in found.items() for name, one in some.items()}


def order_rows(rows: Rows) -> tuple[Mapping[str, Any], ...]:
    """Return rows by package and recipe, the default settings of each first."""
    ranked = [*rows]
    defaults = find_defaults(ranked)

    def rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
        of_default = row["function"] == defaults[row["recipe"]]
        return row["package"], row["recipe"], not of_default, not row["settings"].startswith("defaults")

    return tuple(sorted(ranked, key=rank))


def find_defaults(rows: Rows) -> Mapping[str, str]:
    """Return the first function of each recipe, which leaves all options at their defaults.

    >>> find_defaults(read_trainers())["trl_grpo"]
    'default'
    """
    found: dict[str, str] = {}
    for row in rows:
        found.setdefault(row["recipe"], row["function"])
    return found


def list_findings(rows: Rows) -> tuple[Finding, ...]:
    """Return the settings whose measured gradient is not that of the promised objective."""
    promised = sorted(
        (row for row in rows if row["promised"]), key=lambda row: (row["package"], *get_place(row))
    )
    found = [(place, tuple(some)) for place, some in groupby(promised, key=get_place)]
    return tuple(
        Finding(some, read_sentences()[place])
        for place, some in found
        if any(row["kept"] is False for row in some)
    )


def get_place(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the recipe and the function of a row."""
    return row["recipe"], row["function"]


# ---------------------------------------------------------------------------- words
def write_multiples(multiples: Mapping[str, float]) -> str:
    """Return multiples as `klsym measure --expect` reads them, rewards first.

    >>> write_multiples({"reverse-kl": 0.03999999, "policy-gradient": -1.0})
    '-E[R] + 0.04*reverse-kl'
    """
    ordered = sorted(multiples.items(), key=lambda item: not item[0].startswith(REWARDS))
    return write_objective({SHORT.get(name, name): value for name, value in ordered}, DIGITS)


def name_nearest(row: Mapping[str, Any]) -> str:
    """Return the objective whose gradient has the largest cosine; "" if none was sought.

    >>> name_nearest({"nearest": {"policy-gradient": -0.993}})
    'E[R]'
    """
    return next((SHORT.get(name, name) for name in row["nearest"]), "")


def describe_shape(row: Mapping[str, Any]) -> str:
    """Return that the multiples depend on the shape of the batch; "" where they do not."""
    return "; multiples depend on the shape" if any("depend on the shape" in n for n in row["notes"]) else ""


def describe_sampling(row: Mapping[str, Any]) -> str:
    """Return who sampled, and how many samples are one group.

    >>> describe_sampling({"sampling": "on-policy", "group": 2})
    'on-policy, groups of 2'
    """
    return row["sampling"] + (f", groups of {row['group']}" if row["group"] > 1 else "")


def describe_objective(row: Mapping[str, Any]) -> str:
    """Return whether the gradient is that of a function.

    >>> describe_objective({"has_objective": False})
    'no'
    """
    return {True: "yes", False: "no", None: "not decided"}[row["has_objective"]]


def describe_release(row: Mapping[str, Any]) -> str:
    """Return the package with its version."""
    return f"{row['package']} {row['version']}"
