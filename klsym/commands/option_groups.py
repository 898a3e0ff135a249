"""The options that several commands have, and how words of the command line are read."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from functools import partial
from itertools import pairwise

from klsym.engine.options.option_table import DEFAULTS, OPTIONS
from klsym.engine.options.synonyms import read_choice
from klsym.language.estimators import NAMES

LONGEST_WAIT = 1_000_000  # seconds
MOST_MEMORY = 1_000_000  # gigabytes


def guard_minus(argv: list[str]) -> list[str]:
    """`explain -k1` means the loss -k1: argparse takes what starts with a space for no option.

    Nor is the -1/2 in `--rewards -1/2,1` one.
    """
    if argv[:1] == ["optimum"]:
        numbers = [bool(re.match(r"-[.\d]", a)) and b.startswith("--") for b, a in pairwise(argv)]
        return [f" {a}" if after else a for a, after in zip(argv, [False, *numbers], strict=True)]
    if argv[:1] not in (["explain"], ["compare"], ["divergence"]) or "--" in argv:
        return argv
    known = ("-", "-h", *(a for a in argv if a.startswith("--") and a[2:3].isalpha()))
    losses = ("--k", "--r", "--log", "--lam", "--sg", "--R", "--A")  # such as --k1, which is k1
    return [f" {a}" if a.startswith("-") and (a not in known or a.startswith(losses)) else a for a in argv]


def parse_seconds(text: str) -> float:
    """A time limit."""
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit <= LONGEST_WAIT:
        raise argparse.ArgumentTypeError(f"{text.strip()[:40]!r}: seconds from 0 to {LONGEST_WAIT} expected")
    return limit


def parse_gigabytes(text: str) -> float:
    """A memory limit."""
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit <= MOST_MEMORY:
        raise argparse.ArgumentTypeError(
            f"{text.strip()[:40]!r}: gigabytes above 0, at most {MOST_MEMORY}, expected"
        )
    return limit


FORMATS = ("text", "latex", "markdown", "json")
SECONDS = 10.0  # of a question
GRAMMAR = (
    f"Names: log_q log_p log_mu {' '.join(NAMES)} r=p/q rho=q/mu R A lam beta eps. Functions: sg exp log abs"
    " min max clip where full_kl H. PyTorch spellings are read, too."
)


def add_setting(
    command: argparse.ArgumentParser,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    says: Mapping[str, str] | None = None,
) -> None:
    """Add the options that say how the loss is used; says: the help of an option, with its choices."""
    default = "read from the code" if says else "the first choice is the default"
    use = command.add_argument_group(f"how the loss is used ({default})")
    tokens = None if only else command.add_argument_group("for --level token or sequence")
    for option in OPTIONS:
        if option.name not in without and (not only or option.name in only):
            group = use if tokens is None or option.always or option.silent else tokens
            group.add_argument(
                f"--{option.name}", type=partial(read_choice, option.name),
                choices=option.choices, default=DEFAULTS[option.name], metavar="CHOICE" if says else None,
                help=says[option.name] if says else option.meaning,
            )  # fmt: skip


def add_format(
    command: argparse.ArgumentParser, formats: tuple[str, ...] = ("text", "json"), lines: str = ""
) -> None:
    shown = ", ".join(formats)
    command.add_argument("--format", choices=formats, default="text", metavar="FORMAT", help=shown)
    command.add_argument(
        "--json", action="store_const", const="json", dest="format", help=f"same as --format json{lines}"
    )


def add_more(command: argparse.ArgumentParser) -> None:
    said = "also print the derivation, the counterexample and the hypotheses"
    command.add_argument("--proof", action="store_true", help=said)
    command.add_argument("--full", action="store_true", help="print all that is known")


def add_time_limit(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--time-limit", type=parse_seconds, default=SECONDS, metavar="SECONDS",
        help=f"give up after so many seconds of CPU time ({SECONDS:g}; 0 for no limit)",
    )  # fmt: skip


def add_parameters(command: argparse.ArgumentParser) -> None:
    command.add_argument("--param", action="append", default=[], metavar="NAME", help="declare a parameter")
