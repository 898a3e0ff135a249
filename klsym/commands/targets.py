"""Which code `klsym audit` is asked about, with what options: as typed, over what klsym.toml has of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from klsym.audit.binding import parse_option, split_pair
from klsym.commands.console import get_terminal_width
from klsym.engine.options.option_table import CHOICES
from klsym.errors import UsageError
from klsym.lint.config import FILES, Config, Target, has_project_table, read_project
from klsym.worker_process import Asked, Reply


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
    for code in options.targets:
        stored = next((target for target in project.targets if target.code == code), Target(code))
        for values in combine_choices(options.set):
            target = replace(
                stored, map={**stored.map, **maps}, set={**stored.set, **values},
                setting={**stored.setting, **setting}, result=options.result or stored.result,
                expect=options.expect or stored.expect,
            )  # fmt: skip
            targets.append(target)
    return replace(project, targets=tuple(targets))


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
