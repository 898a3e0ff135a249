"""Targets in klsym.toml: what a run asked is stored there, so that the next run asks nothing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from klsym.errors import UsageError
from klsym.files import read_text, write_whole
from klsym.lint.config import LARGEST, Target, has_project_table
from klsym.lint.scan import as_toml_string

STORED = "klsym.toml"
HEADER = re.compile(r"(?m)^(?=\s*\[)")  # before each line that begins a table
OF_SETTING = "sampling", "use", "level"  # what an audit decides where nothing says it


def build_target(target: Target, answer: Mapping[str, Any] | None) -> Target:
    """Return a target with all that its audit was told or assumed; answer: the JSON of the audit, if any."""
    if answer is None:
        return target
    setting = {name: answer[name] for name in OF_SETTING if isinstance(answer.get(name), str)}
    return Target(
        target.code, dict(answer["map"]), dict(target.set), result=target.result,
        setting={**setting, **target.setting}, expect=target.expect,
    )  # fmt: skip


def store_target(folder: Path, target: Target) -> Path:
    """Enter a target into klsym.toml, in place of the one with its code; return the file.

    Raises UsageError: the targets stand in pyproject.toml, or the path is no Unicode.
    """
    path = folder / STORED
    before = read_text(path, LARGEST) if path.exists() else ""
    if not before and has_project_table(folder / "pyproject.toml"):
        raise UsageError(
            "the targets stand in pyproject.toml, which klsym.toml would hide: add this one there"
        )
    if any("\ud800" <= sign <= "\udfff" for sign in target.code):
        raise UsageError(f"{target.code}: not written: a path in klsym.toml has to be UTF-8; rename the file")
    write_whole(path, replace_target(before, target))
    return path


def replace_target(text: str, target: Target) -> str:
    """Return the text of klsym.toml with this target; its other parts stay as they are.

    >>> print(replace_target('ignore = ["KL014"]\\n', Target("a.py:f", {"x": "log_q"}, expect="reverse-kl")))
    ignore = ["KL014"]
    <BLANKLINE>
    [[target]]
    code = "a.py:f"
    map = { "x" = "log_q" }
    expect = "reverse-kl"
    <BLANKLINE>
    """
    blocks = HEADER.split(text) if text else []
    places = [i for i, block in enumerate(blocks) if _read_code(block) == target.code]
    if not places:
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}\n{write_table(target)}"
    tail = blocks[places[0]]
    space = tail[len(tail.rstrip()) :] or "\n"
    blocks[places[0]] = write_table(target).rstrip() + space
    return "".join(block for i, block in enumerate(blocks) if i not in places[1:])


def _read_code(block: str) -> str | None:
    """Return the code of a [[target]], None of another table."""
    try:
        rows = tomllib.loads(block).get("target") if block.lstrip().startswith("[[target]]") else None
    except tomllib.TOMLDecodeError:
        return None
    return rows[0].get("code") if isinstance(rows, list) and rows else None


def write_table(target: Target) -> str:
    """Return a target as a table of TOML."""
    rows = [("code", as_toml_string(target.code))]
    rows += [("result", as_toml_string(target.result))] if target.result is not None else []
    for name, values in (("map", target.map), ("set", target.set)):
        pairs = ", ".join(f"{as_toml_string(key)} = {_write_value(value)}" for key, value in values.items())
        rows += [(name, f"{{ {pairs} }}")] if pairs else []
    rows += [(name, as_toml_string(value)) for name, value in target.setting.items()]
    rows += [("expect", as_toml_string(target.expect))] if target.expect is not None else []
    return "[[target]]\n" + "".join(f"{name} = {value}\n" for name, value in rows)


def _write_value(value: Any) -> str:
    """Return a value of `set` as TOML; what TOML has no word for is text, which is read as after --set."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and value == value and abs(value) != float("inf"):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_write_value(part) for part in value) + "]"
    return as_toml_string(str(value))
