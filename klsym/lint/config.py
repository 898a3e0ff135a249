"""The targets of a project: [tool.klsym] in pyproject.toml, or klsym.toml, which has the same without `tool`.

select = ["KL"]                  # which codes count; ignore takes some of them out
ignore = ["KL014"]
baseline = "klsym-baseline.json"

[[target]]                       # [[tool.klsym.target]] in pyproject.toml
code = "trainer.py:Trainer.compute_loss"
map = { "self.score(batch)" = "log_q" }
set = { "self.args.beta" = 0.04 }
sampling = "off-policy"
expect = "-E[A] + 0.04*reverse-kl"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from klsym.audit.binding import parse_option
from klsym.diagnostics.codes import load_codes
from klsym.engine.answers.objectives import read_objective
from klsym.engine.options.option_table import CHOICES
from klsym.errors import UsageError
from klsym.files import read_text

FILES = ("klsym.toml", "pyproject.toml")
LARGEST = 1_000_000  # bytes of a configuration
OF_PROJECT = {"select": list, "ignore": list, "baseline": str, "target": list}
OF_TARGET = {
    "code": str,
    "result": str,
    "map": dict,
    "set": dict,
    "expect": str,
    **dict.fromkeys(CHOICES, str),
}


@dataclass(frozen=True)
class Target:
    """Code that is audited, what is bound in it, how it is used, and what it is expected to minimise."""

    code: str
    map: Mapping[str, str] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    result: str | None = None
    setting: Mapping[str, str] = field(default_factory=dict)
    expect: str | None = None


@dataclass(frozen=True)
class Config:
    """select, ignore: codes, or how they begin.  baseline: a file, or "" for none."""

    select: tuple[str, ...] = ("KL",)
    ignore: tuple[str, ...] = ()
    baseline: str = ""
    targets: tuple[Target, ...] = ()
    file: str = ""

    def is_failing(self, code: str, level: str) -> bool:
        """Does a new finding fail the gate?  Warnings do where `select` names their code in full."""
        return level == "error" or code in self.select

    def counts(self, code: str) -> bool:
        """Is a finding with this code reported?"""
        return code.startswith(self.select) and not code.startswith(self.ignore)


def read_project(folder: Path) -> Config:
    """Return the configuration in klsym.toml, or else in pyproject.toml, of a folder.

    Raises UsageError: no such file, a key that is none, a value of another type, an objective that is none.
    """
    for name in FILES:
        path = folder / name
        if not path.exists():
            continue
        table = _read_table(path)
        if table is not None:
            return _build_config(table, name)
    raise UsageError(
        "nothing to audit, and no klsym.toml or [tool.klsym] here: name a function, such as loss.py:loss, or"
        " write a klsym.toml with --scan . --write"
    )


def has_project_table(path: Path) -> bool:
    """Does the file exist, with a table of klsym in it?"""
    return path.exists() and _read_table(path) is not None


def _read_table(path: Path) -> dict[str, Any] | None:
    """Return the table of klsym in a file, or None."""
    try:
        read = tomllib.loads(read_text(path, LARGEST))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path.name}: no TOML: {error}") from None
    tools = read if path.name == "klsym.toml" else read.get("tool")
    table = tools if path.name == "klsym.toml" or not isinstance(tools, dict) else tools.get("klsym")
    return table if isinstance(table, dict) else None


def _build_config(data: dict[str, Any], file: str) -> Config:
    _check_keys(data, OF_PROJECT, file)
    select = tuple(_read_codes(data.get("select", ["KL"]), f"{file}: select"))
    ignore = tuple(_read_codes(data.get("ignore", []), f"{file}: ignore"))
    targets = tuple(
        _read_target(table, f"{file}: target {n}") for n, table in enumerate(data.get("target", []), start=1)
    )
    return Config(select, ignore, baseline=data.get("baseline", ""), targets=targets, file=file)


def _check_keys(data: Any, known: Mapping[str, type], where: str) -> None:
    if not isinstance(data, dict):
        raise UsageError(f"{where}: a table of keys expected")
    for key, value in data.items():
        if key not in known:
            near = get_close_matches(key, known, 1)
            raise UsageError(f"{where}: no key {key[:40]!r} (there are {', '.join(near or known)})")
        if not isinstance(value, known[key]):
            raise UsageError(f"{where}: {key}: {known[key].__name__} expected, got {str(value)[:40]!r}")


def _read_codes(listed: list[Any], where: str) -> list[str]:
    """Read a list of codes, or of how codes begin."""
    if not listed and where.endswith("select"):
        raise UsageError(f"{where}: no code at all would be reported; leave it out for all of them")
    for prefix in listed:
        known = isinstance(prefix, str) and any(code.startswith(prefix) for code in _list_code_numbers())
        if not known or not prefix:
            raise UsageError(f"{where}: {str(prefix)[:40]!r} is no code (klsym rules lists them)")
    return listed


def _list_code_numbers() -> list[str]:
    return [*(code.code for code in load_codes()), "KL900", "KL901", "KL902"]


def _read_target(data: Any, where: str) -> Target:
    _check_keys(data, OF_TARGET, where)
    if "code" not in data:
        raise UsageError(f"{where}: code is missing, such as code = 'trainer.py:Trainer.loss'")
    setting = {name: data[name] for name in CHOICES if name in data}
    for name, value in setting.items():
        if value not in CHOICES[name]:
            raise UsageError(f"{where}: {name}: {value[:40]!r} is none of {', '.join(CHOICES[name])}")
    if "expect" in data:
        try:
            read_objective(data["expect"])
        except UsageError as error:
            raise UsageError(f"{where}: expect: {error}") from None
    for key, value in data.get("set", {}).items():
        if not isinstance(value, str | bool | int | float | list):
            raise UsageError(
                f"{where}: set: {key}: a number, a word or a list expected, got {str(value)[:40]!r}"
            )
    maps = {key: str(value) for key, value in data.get("map", {}).items()}
    values = {k: parse_option(v) if isinstance(v, str) else v for k, v in data.get("set", {}).items()}
    return Target(
        data["code"], maps, values, result=data.get("result"), setting=setting, expect=data.get("expect")
    )
