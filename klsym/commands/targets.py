"""Which code `klsym audit` is asked about, with what options: as typed, over what klsym.toml has of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from shlex import quote
from typing import Any

from klsym.audit.binding import parse_option, split_pair
from klsym.audit.source import open_file
from klsym.commands.console import get_terminal_width, print_complaint
from klsym.engine.options.option_table import CHOICES
from klsym.errors import UsageError
from klsym.lint.config import FILES, Config, Target, has_project_table, read_project
from klsym.lint.scan import Candidate, list_functions_of
from klsym.worker_process import Asked, Reply

MOST_OTHERS = 5  # functions of a file, without a loss, that are named


def read_config(options: argparse.Namespace) -> Config:
    """Return the configuration of the project, with the targets that were typed in place of its own.

    Of a target that the project has, what was typed is added to its own options.
    Raises UsageError: options without code, or no configuration for no code.
    """
    setting = {name: getattr(options, name) for name in CHOICES if getattr(options, name) is not None}
    if not options.targets:
        if options.map or options.set or options.result or options.expect or setting:
            raise UsageError("no CODE for these options: name it, or write them in klsym.toml")
        return read_project(Path.cwd())
    project = read_project(Path.cwd()) if any(has_project_table(Path(name)) for name in FILES) else Config()
    maps = dict(split_pair(text, "--map") for text in options.map)
    targets = []
    for code in expand_files(options.targets):
        stored = next((target for target in project.targets if target.code == code), Target(code))
        for values in combine_choices(options.set):
            target = replace(
                stored, map={**stored.map, **maps}, set={**stored.set, **values},
                setting={**stored.setting, **setting}, result=options.result or stored.result,
                expect=options.expect or stored.expect,
            )  # fmt: skip
            targets.append(target)
    return replace(project, targets=tuple(targets))


def expand_files(codes: Sequence[str]) -> list[str]:
    """Return the codes, with the functions that compute a KL or a policy loss in place of a whole file.

    Each other function of the file is named in a line on stderr.
    Raises UsageError: a file without such a function.
    """
    expanded: list[str] = []
    for code in codes:
        if not code.endswith(".py") or not Path(code).is_file():
            expanded.append(code)
            continue
        functions = list_functions_of(Path(code))
        losses = [function.code for function in functions if function.lines]
        others = [function for function in functions if not function.lines]
        if not losses:
            raise UsageError(_refuse_file(code, others))
        for other in others[:MOST_OTHERS]:
            complaint = f"{other.code} (line {other.line}) computes no KL and no policy loss"
            print_complaint(f"{complaint}; to audit it all the same: klsym audit {quote(other.code)}")
        if rest := others[MOST_OTHERS:]:
            print_complaint(f"{code}: {len(rest)} more functions without a KL or a policy loss")
        expanded += losses
    return expanded


def _refuse_file(file: str, functions: Sequence[Candidate]) -> str:
    """Say why a file has nothing to audit, and what can be typed."""
    open_file(Path(file))  # says what is wrong in a file that Python cannot read
    said = f"{file}: no function that computes a KL or a policy loss"
    if not functions:
        return f"{said}; lines are audited, too: klsym audit {quote(f'{file}:120-128')}"
    commands = [f"klsym audit {quote(function.code)}" for function in functions[:MOST_OTHERS]]
    return f"{said}; to audit one all the same: {' or '.join(commands)}"


def combine_choices(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return all combinations of the values, where an option is given several times.

    >>> combine_choices(["kind=k1", "kind=k3", "beta=0.1"])
    [{'kind': 'k1', 'beta': 0.1}, {'kind': 'k3', 'beta': 0.1}]
    """
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, value = split_pair(text, "--set")
        values.setdefault(name, []).append(parse_option(value))
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def refuse_choices(options: argparse.Namespace) -> None:
    """Raise UsageError where an option has several values."""
    names = [split_pair(text, "--set")[0] for text in options.set]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--set {twice[0]}: given twice; a report has one value of an option")


def ask_target(runner: Asked, target: Target, form: str = "text") -> Reply:
    """Audit a target, and measure it.  form: "text", "full", or "json", with its proof."""
    arguments = {
        "map": dict(target.map), "set": dict(target.set), "result": target.result, **target.setting
    }  # fmt: skip
    question = {
        "target": target.code, "options": arguments, "expect": target.expect, "measure": True, "form": form,
        "width": get_terminal_width(),
    }  # fmt: skip
    return runner.ask(question)
