"""`klsym rule` and `klsym rules`: the diagnostic codes."""

from __future__ import annotations

import argparse
import json
from typing import Any

from klsym.commands.console import get_terminal_width
from klsym.diagnostics.codes import Code, find_code, load_codes
from klsym.render.diagnoses import format_page


def show_rule(options: argparse.Namespace) -> int:
    """The page of one code."""
    code = find_code(options.code)
    print(
        json.dumps(_code_as_json(code))
        if options.format == "json"
        else format_page(code, get_terminal_width())
    )
    return 0


def list_rules(options: argparse.Namespace) -> int:
    """One line a code."""
    if options.format == "json":
        print(json.dumps([_code_as_json(code) for code in load_codes()]))
        return 0
    for code in load_codes():
        print(f"{code.code}  {code.level:<7}  {code.name:<24} {code.says}")
    return 0


def _code_as_json(code: Code) -> dict[str, Any]:
    return {
        "code": code.code, "name": code.name, "level": code.level, "says": code.says,
        "means": code.means, "matters": code.matters,
        "example": code.example.words, "write": code.write.words, "theorem": code.theorem or None,
    }  # fmt: skip
